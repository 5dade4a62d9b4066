r"""States with their velocity, (z_t, c (z_t - z_{t-1})): what the operator of ``order=2`` acts on.

With c both have the same spread. Beliefs stay weights over the training states. The first state of
a sequence has no velocity. With the difference to the *second*, its transition is learned as
z' = z + v, v' = v, without any force. Where sequences are short, a regression on states with both
neighbours corrects that difference, and transitions from first states are left out.
"""

from collections.abc import Sequence

import numpy as np

from kernelbayes.arrays import as_vectors, like, namespace, to_numpy
from kernelbayes.filters.encode.lags import window_kernel
from kernelbayes.filters.encode.regression import learn_regression
from kernelbayes.kernels import Gaussian, Kernel
from kernelbayes.types import Bools, Floats, Ints, Points

# Spread of velocities below this share of the states' spread is rounding: there is none to learn.
AT_REST = 1e-9
# Share of first states among all that start a transition above which they are set right: below, at
# most one transition in twenty is learned without a force, and sequences have some twenty steps.
FIRST_SHARE = 0.05
# States with two neighbours for each coefficient of a linear regression, as in a track, at least.
NEIGHBOURED = 10


def set_right(lengths: Sequence[int], d: int) -> bool:
    """Whether first states of so short sequences need a velocity, and others can tell it."""
    sizes = np.asarray(lengths)
    first, inner = np.sum(sizes > 1), np.sum(np.maximum(sizes - 2, 0))
    return bool(first > FIRST_SHARE * np.sum(sizes - 1) and inner >= NEIGHBOURED * (2 * d + 1))


def true_moves(lengths: Sequence[int], d: int) -> Bools | slice:
    """Which transitions (m,) of sequences start from a state whose velocity is known; or all."""
    steps = np.concatenate([np.arange(size - 1) for size in lengths])
    return steps > 0 if set_right(lengths, d) else slice(None)


def with_velocity(Z: Points, lengths: Sequence[int], kernel: Kernel) -> tuple[Points, Kernel]:
    """States (n, 2 d) with their velocity in units of the states' spread, and a kernel on them."""
    if not kernel.is_vector:
        raise ValueError(
            f"order=2 needs states that are vectors, under a kernel such as Gaussian; "
            f"{type(kernel).__name__} has no differences"
        )
    Z = as_vectors(Z, "Z")
    xp, d = namespace(Z), int(Z.shape[1])
    sizes, ends = np.asarray(lengths), np.cumsum(lengths)
    first = (ends - sizes)[sizes > 1]
    U = np.asarray(to_numpy(Z), dtype=np.float64)
    V = np.diff(U, axis=0, prepend=U[:1])
    V[ends - sizes] = 0.0
    V[first] = U[first + 1] - U[first]
    if set_right(lengths, d):
        inner = np.setdiff1d(np.arange(len(U)), [*ends - sizes, *ends - 1])
        V[first] += _turn(U, V, inner, first)
    V = like(V, Z)
    spread, speed = xp.std(Z, axis=0), xp.std(V, axis=0)
    moving = speed > AT_REST * spread
    scale = xp.where(moving, spread / xp.where(moving, speed, xp.ones_like(speed)), 0.0 * speed)
    return xp.concat([Z, V * scale], axis=1), window_kernel(kernel, d, (1.0, 1.0))


def _turn(Z: Floats, V: Floats, inner: Ints, first: Ints) -> Floats:
    """Velocities of first states less the differences to the next, as inner states have them."""
    ahead = np.diff(Z, axis=0, append=Z[-1:])
    W, less = np.hstack([Z, ahead]), V - ahead
    told = learn_regression(W[inner], W.shape[1], less[inner], Gaussian(1.0), 0)[0]
    return np.asarray(told(W[first]))
