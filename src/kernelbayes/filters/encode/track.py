r"""A track of estimates: a linear-Gaussian filter over the regression on single observations.

An estimate of E[z | x_t] forgets the past, and a window remembers only a few steps of it. With
``features="tracked"`` a linear state-space model, in units of the states' spread, follows it:

.. math:: z_t = A_1 z_{t-1} + A_2 z_{t-2} + B u_t + a + v_t, \qquad
          \hat{E}[z \mid x_t] = C z_t + c + e_t,

all by least squares on the training sequences, with cross-fitted estimates. Controls :math:`u_t`
act on the way into step t; only vectors of numbers count. The Kalman filter of this model gives a
mean :math:`m_t`, and a second regression estimates :math:`E[z \mid m_t, w_t]` with the estimate
:math:`w_t` of the window beside it, or :math:`m_t` again where nothing is observed and the filter
has no memory of its own: with memory the past would count twice. For a linear sensor with Gaussian
noise E[z | x_t] says all that x_t says of the state, and the track is the Kalman filter on
observations. Where the sensor is not linear, or has many columns, the regression takes care of that
first.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kernelbayes.arrays import as_doubles, like, quiet
from kernelbayes.filters.encode.lags import AT_REST
from kernelbayes.filters.encode.regression import Regressed, learn_regression, targets
from kernelbayes.gram.lapack import least_squares, solve_positive
from kernelbayes.kernels import Gaussian, Kernel
from kernelbayes.points import count
from kernelbayes.types import Array, Floats, Points, Rng

Gaps = Sequence[int] | None  # transitions into each step
# Variance added to the noises, in that of the states: derivatives among the states leave none, and
# covariances must keep an inverse. It is far below what any sensor tells.
ADDED_VARIANCE = 1e-8
# Transitions for each coefficient of the next state: least squares then adds a tenth to the noise.
TRANSITIONS = 10


@dataclass(frozen=True, eq=False)
class Track:
    """A linear-Gaussian model of states and estimates of them, and a regression on its means."""

    first: Regressed  # on one observation
    second: Regressed  # on the track's mean and the estimate of the window
    centre: Floats  # of the states (q,), and their scale
    unit: Floats
    moves: Floats  # (q, 2q + p + 1): A_1, A_2, B, a
    noise: Floats  # (q, q)
    sees: Floats  # (q, q + 1): C, c
    error: Floats  # (q, q)
    mean: Floats  # (2q,), of two states in a row, and their covariance
    cov: Floats
    alone: bool = field(default=False, kw_only=True)  # the mean goes on where nothing is seen

    def __call__(self, X: Array, P: Array, gaps: Gaps, back: bool, U: Points) -> Array:
        """Estimates (T, q) from observations X (T, d), estimates P of windows and controls U."""
        return self.second(self.beside(self.means(self.first(X), gaps, back, U), P))

    def beside(self, M: Floats, P: Array) -> Array:
        """Means of the track with the estimates P (T, q) of windows; NaN where there is none."""
        W = as_doubles(P)
        if self.alone:
            follows = (self._unscaled(self.mean[None]) != M).any(axis=1, keepdims=True)
            W = np.where(np.isnan(W) & follows, M, W)
        V = np.hstack([M, W])
        return like(np.where(np.isnan(V).any(axis=1, keepdims=True), np.nan, V), P)

    def follow(
        self, x: Array, P: Array, past: Floats | None, steps: int, u: Points
    ) -> tuple[Array, Floats]:
        """Estimate (1, q) from one more observation x (1, d), and the belief to go on from."""
        belief = self.step(past, self._scaled(self.first(x))[0], steps, self._pushes(u, 1)[0])
        return self.second(self.beside(self._unscaled(belief[None]), P)), belief

    def means(self, Y: Array, gaps: Gaps = None, back: bool = False, U: Points = None) -> Floats:
        """Means (T, q) of the states, given estimates Y (T, q) so far, or with ``back`` all."""
        beliefs, past, pushes = [], None, self._pushes(U, len(Y))
        for t, y in enumerate(self._scaled(Y)):
            past = self.step(past, y, 1 if gaps is None else gaps[t], pushes[t])
            beliefs.append(past)
        return self._unscaled(np.stack(self._smoothed(beliefs, pushes) if back else beliefs))

    def ahead(self, X: Array, U: Points, steps: int) -> Array:
        """Estimates (T - steps, q) of states from what was observed so many steps before them."""
        pushes, past, found = self._pushes(U, len(X)), None, []
        for t, y in enumerate(self._scaled(self.first(X))[:-steps]):
            belief = past = self.step(past, y, 1, pushes[t])
            for push in pushes[t + 1 : t + 1 + steps]:
                belief = self.step(belief, np.nan * y, 1, push)
            found.append(belief)
        M = self._unscaled(np.stack(found))
        return self.second(self.beside(M, np.nan * M))

    def _pushes(self, U: Points, T: int) -> Floats:
        """B u + a, (T, q), of each of T steps; controls U are those of the last ones, or None."""
        B, found = self.moves[:, 2 * len(self.unit) : -1], np.tile(self.moves[:, -1], (T, 1))
        if U is not None and B.size:
            found[T - count(U) :] += as_doubles(U).reshape(count(U), -1) @ B.T
        return found

    # Beliefs are rows: a mean (2q,), then a covariance (2q, 2q), flat.

    def step(self, past: Floats | None, y: Floats, steps: int, push: Floats) -> Floats:
        """Belief after one more estimate y (q,); NaN tells nothing. Each step has the push."""
        q = len(self.unit)
        m, V = (self.mean, self.cov) if past is None else self._split(past)
        for _ in range(steps):
            if np.array_equal(V, self.cov):  # nothing has been seen, or too long ago
                break
            m, V = self._predicted(m, V, push)
            if not np.trace(V) < np.trace(self.cov):  # no worse than to know nothing
                m, V = self.mean, self.cov
        if not np.isnan(y).any():
            C = self.sees[:, :q]
            CV = C @ V[:q]
            K = solve_positive(CV[:, :q] @ C.T + self.error, CV).T
            m = m + K @ (y - C @ m[:q] - self.sees[:, q])
            V = V - K @ CV
            V = 0.5 * (V + V.T)
        return np.concatenate([m, V.ravel()])

    def _predicted(self, m: Floats, V: Floats, push: Floats) -> tuple[Floats, Floats]:
        q = len(self.unit)
        A = self.moves[:, : 2 * q]
        AV = A @ V
        new = np.empty_like(V)
        new[:q, :q], new[:q, q:] = AV @ A.T + self.noise, AV[:, :q]
        new[q:, :q], new[q:, q:] = AV[:, :q].T, V[:q, :q]
        return np.concatenate([A @ m + push, m[:q]]), new

    def _smoothed(self, beliefs: list[Floats], pushes: Floats) -> list[Floats]:
        """Means of beliefs, each given all later ones too (Rauch, Tung and Striebel)."""
        q, found = len(self.unit), [self._split(beliefs[-1])[0]]
        to_next = np.vstack([self.moves[:, : 2 * q], np.eye(q, 2 * q)])
        for belief, push in zip(beliefs[-2::-1], pushes[:0:-1], strict=True):
            m, V = self._split(belief)
            ahead, S = self._predicted(m, V, push)
            S = S + ADDED_VARIANCE * np.eye(2 * q)
            found.append(m + V @ to_next.T @ solve_positive(S, found[-1] - ahead))
        return found[::-1]

    def _split(self, belief: Floats) -> tuple[Floats, Floats]:
        size = len(self.mean)
        return belief[:size], belief[size:].reshape(size, size)

    def _scaled(self, Y: Array) -> Floats:
        return np.asarray((as_doubles(Y) - self.centre) / self.unit)

    def _unscaled(self, beliefs: Floats) -> Floats:
        return np.asarray(beliefs[:, : len(self.unit)] * self.unit + self.centre)


def driving(controls: Points, kernel: Kernel | None, lengths: Sequence[int]) -> Floats:
    """Return controls (n, p) of the ways into steps, 0 into first ones; none if not vectors."""
    U = np.empty((sum(lengths) - len(lengths), 0))
    if controls is not None and kernel is not None and kernel.is_vector:
        U = as_doubles(kernel.points(controls, "controls")).reshape(len(U), -1)
    return np.insert(U, np.cumsum([0, *(size - 1 for size in lengths[:-1])]), 0.0, axis=0)


def learn_track(
    X: Array, W: Array, U: Floats, Z: Points, kernel_z: Kernel, lengths: Sequence[int], back: bool,
    rng: Rng, alone: bool = False,
) -> tuple[Regressed, Track, Floats]:  # fmt: skip
    """Regression on windows, the track beside it, and left-out estimates (n, q) of both.

    From all sequences end to end: X (n, d), its windows W (n, kd), what drives Z, U (n, p), and Z.
    """
    first, Y = learn_regression(X, X.shape[1], Z, kernel_z, rng)
    window, P = learn_regression(W, X.shape[1], Z, kernel_z, rng)
    H = targets(Z, kernel_z)
    centre, unit = H.mean(axis=0), H.std(axis=0)
    unit = np.where(unit > 0.0, unit, 1.0)
    fields = _linear((Y - centre) / unit, (H - centre) / unit, U, lengths)
    track = Track(first, first, centre, unit, *fields, alone=alone)
    each = zip(*(np.split(rows, np.cumsum(lengths)[:-1]) for rows in (Y, U)), strict=True)
    M = np.concatenate([track.means(y, None, back, u) for y, u in each])
    V = np.asarray(track.beside(M, P))
    second, left_out = learn_regression(V, V.shape[1], Z, kernel_z, rng)
    return window, replace(track, second=second), left_out


def trackable(lengths: Sequence[int], q: int) -> bool:
    """Whether sequences of these lengths have enough states of q coordinates for a track."""
    return sum(max(0, size - 2) for size in lengths) >= _least_states(q)


def tracked_error(X: Array, W: Array, U: Floats, Z: Points, lengths: Sequence[int]) -> float:
    """Mean squared error of left-out estimates, in the variances of the states.

    Arguments as in :func:`learn_track`.
    """
    kernel = Gaussian(1.0)
    H = targets(Z, kernel)
    with quiet():  # about estimates that are constant, say
        _, track, left_out = learn_track(X, W, U, Z, kernel, lengths, False, 0)
    return float(np.nanmean(((left_out - H) / track.unit) ** 2))


def _least_states(q: int, p: int = 0) -> int:
    """States of q coordinates, with p controls, that a track needs, with two before each."""
    return TRANSITIONS * (2 * q + p + 1)


def _linear(Y: Floats, H: Floats, U: Floats, lengths: Sequence[int]) -> tuple[Floats, ...]:
    """Fields of a track from ``moves`` on, from estimates Y, states H (n, q), controls U (n, p)."""
    q = H.shape[1]
    place = np.concatenate([np.arange(size) for size in lengths])  # within its sequence
    third, second = np.flatnonzero(place >= 2), np.flatnonzero(place >= 1)
    if len(third) < _least_states(q):
        raise ValueError(
            f"tracked features need {_least_states(q)} states with two before them, got "
            f"{len(third)}; give longer sequences or features='regression'"
        )
    # Controls are left out where they are too many, and count for nothing where they do not vary.
    U = U[third, : U.shape[1] if len(third) >= _least_states(q, U.shape[1]) else 0]
    usual, spread = U.mean(axis=0), U.std(axis=0)
    spread = np.where(spread > AT_REST * np.abs(U).max(axis=0), spread, np.inf)
    moves, noise = _fitted(np.hstack([H[third - 1], H[third - 2], (U - usual) / spread]), H[third])
    moves[:, 2 * q : -1] /= spread
    moves[:, -1] -= moves[:, 2 * q : -1] @ usual
    seen = np.flatnonzero(~np.isnan(Y).any(axis=1))
    sees, error = _fitted(H[seen], Y[seen])
    pairs = np.hstack([H[second], H[second - 1]])
    cov = np.cov(pairs.T) + ADDED_VARIANCE * np.eye(2 * q)
    return moves, noise, sees, error, pairs.mean(axis=0), cov


def _fitted(U: Floats, Y: Floats) -> tuple[Floats, Floats]:
    """Coefficients (q, p + 1) of a linear regression, the constant last; residual covariance."""
    inputs = np.column_stack([U, np.ones(len(U))])
    B = least_squares(inputs, Y)
    left = Y - inputs @ B
    return B.T, left.T @ left / len(left) + ADDED_VARIANCE * np.eye(Y.shape[1])
