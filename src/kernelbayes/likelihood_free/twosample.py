"""Classifiers that tell samples apart: posterior draws from exact ones, or from true parameters.

:func:`c2st` tells two samples apart. :func:`lc2st` does so with pairs (theta, x) of the prior and
simulator, and pairs whose theta was drawn from the posterior given x; then it looks at one
observation (Linhart et al. 2023).
"""

from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from scipy import stats
from sklearn.base import clone

from kernelbayes.arrays import as_generator, is_frame
from kernelbayes.gram.lapack import eigh
from kernelbayes.kernels import Gaussian
from kernelbayes.likelihood_free.distributions import PriorLike
from kernelbayes.likelihood_free.learn.task import Data
from kernelbayes.likelihood_free.pairs import Model, Testing, draws_of, on_pairs
from kernelbayes.likelihood_free.results import ALPHA, Check, row
from kernelbayes.likelihood_free.running.calling import Output, Simulator
from kernelbayes.likelihood_free.simulate import Simulations, as_observation
from kernelbayes.plot.posteriors import plot_local, plot_told
from kernelbayes.points import integer
from kernelbayes.tables import Table
from kernelbayes.types import Axes, Floats, PointsLike, Rng

# Network and folds of Lueckmann et al. (2021), so that numbers compare with published ones.
UNITS, EPOCHS, C2ST_FOLDS = 10, 10_000, 5
# Ridges of the local classifier, relative to the kernel's mean: weak, usual, strong. The statistic
# takes the best of them, under the null hypothesis too.
LOCAL_RIDGES = (0.01, 0.1, 1.0)
# Bandwidths of theta and x in median distances; half of it in x, to look at one observation only.
WIDTHS = (1.0, 0.5)
FLIPS = 999  # random labels: a p-value of 1 % has a standard error of 0.3 %


@dataclass(frozen=True, eq=False, repr=False)
class ClassifierCheck(Check):
    """Result of :func:`c2st`; a number, the accuracy, wherever one is asked for.

    Attributes
    ----------
    accuracy : float
        Share of left-out points that the classifier told right: 0.5 if it cannot, 1 if always.
    probabilities : array (2 n,)
        That it gave each left-out point to be of the second sample; those of the first come first.
    pvalue : float
        Of the accuracy, if points were told at random.
    """

    accuracy: float
    probabilities: Floats
    pvalue: float

    def __float__(self) -> float:
        return self.accuracy

    @property
    def verdict(self) -> str:
        """In words."""
        told = f"C2ST {self.accuracy:.3f}, p = {self.pvalue:.2g}"
        words = "not told apart" if self.pvalue > ALPHA else "told apart"
        return f"the samples are {words} by {len(self.probabilities) // 2} draws of each ({told})"

    @property
    def table(self) -> Table:
        """Return the accuracy."""
        return Table([row("accuracy", "all parameters", self.accuracy, 0.5, self.pvalue)])

    def plot(self, ax: Axes = None) -> Axes:
        """Histograms of the probabilities that the classifier gave the two samples."""
        return plot_told(self, ax)


@dataclass(frozen=True, eq=False, repr=False)
class LocalCheck(Check):
    """Result of :func:`lc2st`.

    Attributes
    ----------
    statistic, pvalue : float
        Mean square of the scores, in units of what random labels give; its p-value.
    null : array
        Statistics of random labels.
    draws : array (m, d)
        Of the posterior given the observation.
    scores : array (m,)
        Of the classifier at these draws: positive where the posterior has too little mass.
    names : tuple of str
    fault : str
        In words, what the scores show most clearly, significant or not.
    """

    statistic: float
    pvalue: float
    null: Floats
    draws: Floats
    scores: Floats
    names: tuple[str, ...]
    fault: str

    @property
    def verdict(self) -> str:
        """In words."""
        if self.pvalue > ALPHA:
            return f"nothing to see at this observation (p = {self.pvalue:.2g})"
        return f"wrong at this observation (p = {self.pvalue:.2g}), most clearly: {self.fault}"

    @property
    def table(self) -> Table:
        """Return the statistic, in units of its mean under random labels."""
        return Table([row("L-C2ST", "all parameters", self.statistic, 1.0, self.pvalue)])

    def plot(self, axes: Axes = None) -> Axes:
        """Null distribution with the statistic, and the scores of the draws by parameter."""
        return plot_local(self, axes)


def c2st(
    a: Any, b: Any, *, classifier: Any = None, n_draws: int = 1000, rng: Rng = None
) -> ClassifierCheck:
    """Classifier two-sample test: how well a network tells two samples apart.

    Parameters
    ----------
    a, b : arrays (n, d), or objects with ``sample(m, rng=...)``
        Samples; of the larger one as many rows as the other has are taken at random. Both are
        z-scored by the first.
    classifier : scikit-learn classifier, optional
        The network of Lueckmann et al. (2021) unless given, which takes seconds to a minute: two
        hidden layers of 10 d units.
    n_draws : int
        Drawn from objects. The published numbers are for 10 000; fewer make the accuracy noisier
        and a little lower.
    rng : int, Generator or None

    Returns
    -------
    ClassifierCheck

    Notes
    -----
    The p-value takes the left-out points for independent, as Lopez-Paz and Oquab (2017) do.

    Examples
    --------
    >>> import numpy as np
    >>> import kernelbayes as kb
    >>> draws = np.random.default_rng(0).normal(size=(2, 200, 1))
    >>> float(kb.c2st(draws[0], draws[1] + 3.0, rng=0)) > 0.85
    True
    """
    from sklearn.model_selection import KFold, cross_val_predict  # slow to import
    from sklearn.neural_network import MLPClassifier

    rng = as_generator(rng)
    m = integer(n_draws, "n_draws")
    # A frame of pandas has a method of this name, but it is a sample itself.
    both = ((s, hasattr(s, "sample") and not is_frame(s)) for s in (a, b))
    parts = [draws_of(s, m if drawn else None, rng) for s, drawn in both]
    n, d = min(map(len, parts)), parts[0].shape[1]
    if parts[1].shape[1] != d:
        raise ValueError(f"the samples have {d} and {parts[1].shape[1]} columns")
    if n < 2 * C2ST_FOLDS:
        raise ValueError(f"a sample of {n} points is too small: give {2 * C2ST_FOLDS} or more")
    first, second = (part[np.sort(rng.permutation(len(part))[:n])] for part in parts)
    spread = first.std(axis=0, ddof=1)
    points = (np.vstack([first, second]) - first.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    seed, labels = int(rng.integers(2**31)), np.repeat([0, 1], n)
    network = MLPClassifier((UNITS * d, UNITS * d), max_iter=EPOCHS, random_state=seed)
    folds = KFold(C2ST_FOLDS, shuffle=True, random_state=seed)
    how = network if classifier is None else clone(classifier)
    told = cross_val_predict(how, points, labels, cv=folds, method="predict_proba")[:, 1]
    right = int(np.sum((told > 0.5) == labels))
    return ClassifierCheck(right / (2 * n), told, float(stats.binom.sf(right - 1, 2 * n, 0.5)))


def lc2st(
    model: Model,
    x_observed: Output,
    prior: PriorLike = None,
    simulator: Simulator | None = None,
    *,
    theta: PointsLike = None,
    x: PointsLike = None,
    rng: Rng = None,
    **options: Unpack[Testing],
) -> LocalCheck:
    r"""Local classifier two-sample test: whether the posterior at one observation is right.

    Each test pair :math:`(\theta_i, x_i)` gets a rival :math:`\theta'_i`, drawn from the posterior
    given :math:`x_i`. Kernel ridge regression on the differences of their features learns a score
    that is higher for truths than for rivals. If posteriors are right, the two may be swapped
    without notice; so the mean square of the scores at draws given ``x_observed`` is compared with
    those of random swaps. The p-value is exact if posteriors are right for all x.

    Parameters
    ----------
    model, prior, simulator, theta, x, rng, **options
        As for :func:`~kernelbayes.tarp`; ``n_draws`` are drawn given ``x_observed``.
    x_observed : array
        Shaped like one of the data sets x.

    Returns
    -------
    LocalCheck
    """
    rng = as_generator(rng)
    m, options["n_draws"] = integer(options.get("n_draws", 200), "n_draws"), 1
    rivals = on_pairs(model, prior, simulator, theta, x, False, rng, **options)
    truth, names, rival = rivals.theta, rivals.names, rivals.drawn[:, 0]
    runs = Simulations.of(truth, rivals.x, None)
    seen, at = runs.x, as_observation(x_observed, None, runs)[None]
    given: Any = getattr(model, "posterior", model)
    draws = draws_of(given(at[0]), m, rng)
    data, scale = Data.of(seen, rng), np.where(truth.std(axis=0) > 0, truth.std(axis=0), 1.0)
    kernel, wide = Gaussian(1.0), [Gaussian.median(A) for A in (truth / scale, data(seen).X)]
    h, width = (s * np.asarray(k.bandwidth) for k, s in zip(wide, WIDTHS, strict=True))

    def joined(P: Floats, x: Floats) -> Floats:
        X = data(x).X / width
        return np.hstack([P / scale / h, np.broadcast_to(X, (len(P), X.shape[1]))])

    # Draws twice as far from their mean show, too, what a posterior lacks that is too narrow.
    farther = np.vstack([draws, 2.0 * draws - draws.mean(axis=0)])
    true, false, here = joined(truth, seen), joined(rival, seen), joined(farther, at)
    cross = kernel(true, false)
    values, vectors = eigh(kernel(true, true) + kernel(false, false) - cross - cross.T)
    signs = rng.choice([-1.0, 1.0], size=(len(truth), 1 + FLIPS))
    signs[:, 0] = 1.0
    reached = (kernel(here, true) - kernel(here, false)) @ vectors
    ridges = len(truth) * np.mean(values) * np.array(LOCAL_RIDGES)
    found = [reached / (np.maximum(values, 0.0) + r) @ (vectors.T @ signs) for r in ridges]
    squares = np.stack([np.mean(f[: len(draws)] ** 2, axis=0) for f in found])
    squares /= np.maximum(squares.mean(axis=1, keepdims=True), np.finfo(float).tiny)
    top = squares.max(axis=0)
    best = found[int(np.argmax(squares[:, 0]))][:, 0]
    pvalue = float(np.mean(top >= top[0] * (1 - 1e-12)))
    fault = _fault(farther, best, names)
    return LocalCheck(float(top[0]), pvalue, top[1:], draws, best[: len(draws)], names, fault)


def _fault(points: Floats, scores: Floats, names: tuple[str, ...]) -> str:
    """In words, how scores (m,) go with points (m, d), or with their squares, most clearly."""
    z = points - points.mean(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):  # of points that are all the same
        shown = np.nan_to_num(np.corrcoef(np.column_stack([z, z**2]).T, scores)[-1, :-1])
    k, d = int(np.argmax(np.abs(shown))), len(names)
    words = ("biased down", "too narrow") if shown[k] > 0 else ("biased up", "too wide")
    return f"{names[k % d]} is {words[k // d]}"
