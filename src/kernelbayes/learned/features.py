r"""Learned features of images, windows and other complex observations.

A fixed kernel on images or long windows compares pixels, not content. A network :math:`\psi` is
trained so that the features of z are as nearly as possible linear in :math:`\psi(x)` (IW22 section
3.3). Then :math:`k(x, y) = \psi(x)^\top \psi(y)` is a kernel with finite features.

Features fit the pairs they were learned from better than other pairs. Where intervals matter, learn
the features from one part of the sample and the embedding from the other.

With features :math:`\Psi` (n, p) of x, features :math:`\Phi` (n, q) of z with
:math:`G_Z = \Phi \Phi^\top`, and :math:`D` the diagonal matrix of weights that sum to one, the best
operator E for given :math:`\Psi` leaves the **profiled** loss (IW22 section 3.3 and A.2)

.. math:: \ell = \mathrm{tr}\, G_Z \left(D - D \Psi (\Psi^\top D \Psi + \lambda I)^{-1}
          \Psi^\top D\right)

The **direct** loss (Shimizu, Fukumizu and Sejdinovic 2024, eq. 7) needs no inverse: the network is
the embedding itself, :math:`\hat\mu_x = \sum_a f_a(x) k_Z(\eta_a, \cdot)` on landmarks
:math:`\eta_a`,

.. math:: \ell = \sum_i D_{ii} \|k_Z(z_i, \cdot) - \hat\mu_{x_i}\|^2
          = \sum_i D_{ii} \left(k_Z(z_i, z_i) - 2 \psi_i^\top \phi(z_i) + \|\psi_i\|^2\right)

with Nystrom features :math:`\phi(z) = L^{-1} k_Z(\eta, z)` and :math:`\psi_i = L^\top f(x_i)`.
"""

import math
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
from array_api_compat import device

from kernelbayes.arrays import as_doubles, as_generator, namespace, to_numpy
from kernelbayes.gram import Gram
from kernelbayes.gram.features import cheap_features, nystrom
from kernelbayes.gram.lapack import cholesky, solve_triangular
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.base import as_kernel
from kernelbayes.kernels.default import default_kernel
from kernelbayes.learned.kernel import Learned, read_points
from kernelbayes.learned.nets import Kind, Module, Net, import_torch, kind_of
from kernelbayes.points import column_names, count, finite, integer, option, positive, share, take
from kernelbayes.select.search import progress_bar
from kernelbayes.types import Array, Floats, Generator, Points, PointsLike, Rng

# Rows evaluated at once, which bounds memory.
JUDGED_ROWS = 512


class _Sample(NamedTuple):
    """Pairs on the device: inputs, features of z, k(z, z), and weights that sum to one."""

    X: Any
    phi: Any
    diag: Any
    weights: Any

    def take(self, rows: Any) -> Self:
        weights = self.weights[rows]
        return type(self)(self.X[rows], self.phi[rows], self.diag[rows], weights / weights.sum())


@dataclass(frozen=True)
class NeuralFeatures:
    r"""Settings for learning features; :meth:`fit` learns them and returns a kernel.

    Parameters
    ----------
    module : torch.nn.Module, {"mlp", "cnn", "window", "gru"} or None
        Your own network from points (n, ...) to (n, dim), which is copied. Or a built-in one: for
        vectors, images (n, h, w) or (n, h, w, channels), or windows (n, steps, d) with the newest
        step last, by convolutions along the steps ("window") or a recurrent unit ("gru"). None
        chooses by the shape of the points: an array (n, a, b) holds images if both sides have at
        least 8 pixels and neither is more than twice the other, otherwise windows.
    dim : int
        Number of features.
    loss : {"profiled", "direct"}
        The loss of IW22, or the one without an inverse (see the module).
    kernel_z : Kernel, optional
        Kernel on z; None means the default kernel.
    targets : int, optional
        Number of random Fourier features of z in the profiled loss (landmarks, where the kernel
        has none). None: the exact kernel.
    ridge : float
        The ridge lambda, relative to the mean of k(x, x).
    batch : int, optional
        Pairs per step, many more than ``dim``; None: all of them.
    epochs, patience : int
        Largest number of passes over the pairs, in all and without a gain on held-out pairs.
    rate, decay : float
        Learning rate and weight decay of AdamW.
    validation : float
        Share of held-out pairs, which decide when to stop and which start is best.
    restarts : int
        Starts from different random weights. Your own module is first started as it is.
    device : str
        Device for training: "cpu", "cuda", ...
    rng : int, Generator or None
        On a CPU the same seed gives identical features.
    progress : bool, optional
        Show a progress bar; by default in terminals and notebooks.

    Examples
    --------
    The result is used like any other kernel::

        kernel = NeuralFeatures(rng=0).fit(images[:500], Z[:500])
        rule = KernelBayesRule(kernel_x=kernel).fit(images[500:], Z[500:])
    """

    module: Module | Kind | None = None
    dim: int = 32
    loss: Literal["profiled", "direct"] = "profiled"
    kernel_z: Kernel | None = None
    targets: int | None = 100
    ridge: float = 1e-3
    batch: int | None = 256
    epochs: int = 200
    patience: int = 20
    rate: float = 3e-3
    decay: float = 1e-2
    validation: float = 0.2
    restarts: int = 1
    device: str = "cpu"
    rng: Rng = None
    progress: bool | None = None

    def __post_init__(self) -> None:
        for name in ("dim", "epochs", "patience", "restarts"):
            object.__setattr__(self, name, integer(getattr(self, name), name))
        for name in ("targets", "batch"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, integer(getattr(self, name), name, 2))
        for name in ("ridge", "rate"):
            positive(getattr(self, name), name)
        if finite(self.decay, "decay") < 0.0:
            raise ValueError(f"decay must not be negative, got {self.decay}")
        share(self.validation, "validation")
        option(self.loss, "loss", ("profiled", "direct"))
        if self.kernel_z is not None:
            as_kernel(self.kernel_z, "kernel_z")
        if isinstance(self.module, str):
            option(self.module, "module", get_args(Kind))
        elif self.module is not None and not hasattr(self.module, "state_dict"):
            raise TypeError(f"module must be a torch.nn.Module, got {type(self.module).__name__}")

    def fit(self, X: PointsLike, Z: PointsLike, weights: Array | None = None) -> Learned:
        """Learn features of x from pairs (x, z), and return their kernel.

        Parameters
        ----------
        X : points (n, ...)
            Vectors, images, windows, or the input of your own module.
        Z : points (n, ...)
            What the features should predict; for a filter, optionally with the next state.
        weights : array (n,), optional
            Nonnegative importance weights of the pairs.
        """
        torch, rng = import_torch(), as_generator(self.rng)
        names, points = column_names(X), as_doubles(read_points(X))
        kernel = default_kernel(Z, "Z") if self.kernel_z is None else self.kernel_z
        hidden = kernel.points(Z, "Z")
        n, shape = len(points), points.shape[1:]
        if count(hidden) != n:
            raise ValueError(f"X and Z must be pairs, got {n} and {count(hidden)} points")
        shares = _shares(weights, n)
        if not np.all(shares):  # pairs of zero weight
            rows = np.flatnonzero(shares)
            points, hidden, shares, n = points[rows], take(hidden, rows), shares[rows], len(rows)
        held_out = round(self.validation * n)
        if held_out < 1 or n - held_out < 2:
            raise ValueError(
                f"{n} pairs are too few to hold out {self.validation:.0%} of them; give more pairs"
            )
        kind: Any = kind_of(shape) if self.module is None else self.module
        net = kind if hasattr(kind, "state_dict") else Net(kind, shape, self.dim)
        scales = net.scales(points) if isinstance(net, Net) else (np.zeros(1), np.ones(1))
        # In double precision, as numbers may be large relative to their spread.
        inputs = ((points - scales[0]) / scales[1]).astype(np.float32)
        arrays = (inputs, *self._targets(kernel, hidden, rng), shares)
        sample = _Sample(*(torch.from_numpy(np.array(a)).to(self.device) for a in arrays))
        order = torch.from_numpy(rng.permutation(n)).to(self.device)
        parts = sample.take(order[held_out:]), sample.take(order[:held_out])
        found = []
        with progress_bar(self.restarts * self.epochs, "learning", self.progress) as bar:
            for start in range(self.restarts):
                module, steps = self._start(net, start, rng), rng.spawn(1)[0]
                found.append(self._train(module, *parts, steps, bar))
        (state, size), _ = min(found, key=lambda run: min(run[1]))
        history = tuple(run[1] for run in found)
        if isinstance(net, Net):  # set the first layer, which standardises
            state |= {"0.centre": scales[0], "0.spread": scales[1]}
        return Learned(net, state, shape, self.dim, size, names, history)

    def _targets(self, kernel: Kernel, Z: Points, rng: Generator) -> tuple[Floats, Floats]:
        """Features (n, q) of z to predict, and k(z, z) (n,), in double precision."""
        if self.loss == "direct":
            if count(Z) < self.dim:
                raise ValueError(f"loss='direct' needs at least dim = {self.dim} pairs")
            phi = nystrom(kernel, Z, self.dim, rng).features(Z)
        elif self.targets is None:
            phi = Gram.of(kernel, Z, double=True).factor
        else:
            phi = cheap_features(kernel, Z, min(self.targets, count(Z)), rng).features(Z)
        return as_doubles(phi), as_doubles(kernel.diag(Z))

    def _start(self, net: Net | Module, start: int, rng: Generator) -> Module:
        """Make a module with initial weights, without changing torch's global generator."""
        torch, seed = import_torch(), int(rng.integers(2**62))
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            if isinstance(net, Net):
                return net.build().to(self.device)
            module = deepcopy(net).float()
            for layer in module.modules() if start else ():
                if hasattr(layer, "reset_parameters"):
                    layer.reset_parameters()
        return module.to(self.device)

    def _train(
        self, module: Module, train: _Sample, held_out: _Sample, rng: Generator, bar: Any
    ) -> tuple[tuple[dict[str, Floats], float], tuple[float, ...]]:
        """Best state and size of the features, and the held-out loss after each epoch."""
        torch = import_torch()
        optimiser = torch.optim.AdamW(module.parameters(), self.rate, weight_decay=self.decay)
        n = len(train.X)
        batches = 1 if self.batch is None else max(1, n // self.batch)
        history: list[float] = []
        best: tuple[dict[str, Floats], float] | None = None
        with torch.random.fork_rng(devices=[]):  # dropout
            torch.manual_seed(int(rng.integers(2**62)))
            for epoch in range(self.epochs):
                module.train()
                for rows in np.array_split(rng.permutation(n), batches):
                    some = train.take(torch.from_numpy(rows).to(self.device))
                    optimiser.zero_grad()
                    self._loss(self._features(module, some.X), some).backward()
                    optimiser.step()
                value, size = self._judge(module, train, held_out)
                if not math.isfinite(value):
                    break
                if not history or value < min(history):
                    state = module.state_dict().items()
                    best = {k: to_numpy(v).copy() for k, v in state}, size
                history.append(value)
                bar.update()
                if epoch - int(np.argmin(history)) >= self.patience:
                    break
        if best is None:
            raise ValueError("training diverged at once; standardise X or use a smaller rate")
        return best, tuple(history)

    def _features(self, module: Module, X: Any) -> Any:
        """Return the outputs of the network (n, dim), in double precision."""
        psi = module(X)
        if psi.shape != (len(X), self.dim):
            raise ValueError(
                f"the module must return shape ({len(X)}, {self.dim}), got {tuple(psi.shape)}; "
                "give it as many outputs as dim"
            )
        return psi.double()

    def _loss(self, psi: Any, sample: _Sample) -> Any:
        if self.loss == "direct":
            return direct(psi, sample.phi, sample.weights, sample.diag)
        return profiled(unit(psi, sample.weights)[0], sample.phi, sample.weights, self.ridge)

    def _judge(self, module: Module, train: _Sample, held_out: _Sample) -> tuple[float, float]:
        """Loss on held-out pairs of the fit to the others, and the size of features."""
        torch = import_torch()
        module.eval()
        with torch.no_grad():
            first, second = (
                torch.cat([self._features(module, X) for X in part.X.split(JUDGED_ROWS)])
                for part in (train, held_out)
            )
            psi, size = unit(first, train.weights)
            if self.loss == "direct":
                loss = direct(second, held_out.phi, held_out.weights, held_out.diag)
            else:
                factors = operator(psi, train.phi, train.weights, self.ridge)
                loss = left_over(second / size, held_out.phi, held_out.weights, *factors)
        return float(loss), float(size)


def _shares(weights: Array | None, n: int) -> Floats:
    """Weights (n,) of pairs that sum to one; equal by default."""
    if weights is None:
        return np.full(n, 1.0 / n)
    found = as_doubles(weights, "weights")
    if found.shape != (n,) or not np.all(np.isfinite(found)) or found.min() < 0 or not found.any():
        raise ValueError(f"weights must be {n} finite numbers, not negative and not all zero")
    shares: Floats = found / found.sum()
    return shares


def unit(psi: Array, weights: Array) -> tuple[Array, Array]:
    """Features divided by the root of their mean squared norm, so that k(x, x) is one; the root."""
    xp = namespace(psi)
    size = xp.sqrt(weights @ xp.sum(psi * psi, axis=1))
    return psi / size, size


def operator(psi: Array, phi: Array, weights: Array, ridge: float) -> tuple[Array, Array]:
    """E = (Psi^T D Psi + ridge I)^-1 Psi^T D Phi, as L^-1 Psi^T D Phi (p, q) and L (p, p)."""
    weighted = psi * weights[:, None]
    eye = namespace(psi).eye(psi.shape[1], dtype=psi.dtype, device=device(psi))
    L = cholesky(weighted.T @ psi + ridge * eye)
    return solve_triangular(L, weighted.T @ phi), L


def profiled(psi: Array, phi: Array, weights: Array, ridge: float) -> Array:
    """Profiled loss of features psi (n, p) for targets phi (n, q), under weights (n,)."""
    xp = namespace(psi)
    half, _ = operator(psi, phi, weights, ridge)
    return weights @ xp.sum(phi * phi, axis=1) - xp.sum(half * half)


def left_over(psi: Array, phi: Array, weights: Array, half: Array, L: Array) -> Array:
    """Mean squared error of new points under an operator given by its two factors."""
    xp = namespace(psi)
    rest = phi - psi @ solve_triangular(L, half, transpose=True)
    return weights @ xp.sum(rest * rest, axis=1)


def direct(psi: Array, phi: Array, weights: Array, diag: Array) -> Array:
    """Direct loss of psi (n, p) for Nystrom features phi (n, p) and k(z, z) (n,)."""
    return weights @ (diag + namespace(psi).sum(psi * (psi - 2.0 * phi), axis=1))
