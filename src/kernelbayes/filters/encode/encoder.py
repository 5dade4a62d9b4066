r"""What the update sees of the observations: themselves, windows of them, or a regression on those.

``features="regression"`` replaces a window by an estimate of E[z | window]
(:mod:`kernelbayes.filters.encode.regression`). A kernel on a handful of estimated coordinates needs
far fewer pairs than one on a window of many sensors. What a mean cannot say (two places that look
alike) is lost. ``features="tracked"`` adds what all earlier observations say by a linear-Gaussian
filter (:mod:`kernelbayes.filters.encode.track`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from kernelbayes.arrays import like, namespace, to_numpy
from kernelbayes.filters.encode.lags import (
    as_rows,
    check_lags,
    choose_scales,
    window_kernel,
    windows,
    without_present,
)
from kernelbayes.filters.encode.regression import Regressed, learn_regression, reaches_less
from kernelbayes.filters.encode.track import Track, driving, learn_track
from kernelbayes.filters.missing import filled_by_state, split_missing
from kernelbayes.filters.sequences import Part
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.default import default_kernel
from kernelbayes.points import concatenate, count
from kernelbayes.types import Array, Points

if TYPE_CHECKING:
    from kernelbayes.filters.bayes import KernelBayesFilter

Features = Literal["raw", "regression", "tracked"]
ESTIMATES = ("regression", "tracked")  # features that are estimates of the state, and nothing else


@dataclass(frozen=True, eq=False)
class Encoder:
    """From the observations of a sequence to what the update sees of each step."""

    d: int  # columns of one observation
    lags: int
    regression: Regressed | None = None
    leads: int = 0  # later observations in the window, which then is present, future, past
    track: Track | None = None  # follows the estimates

    def __call__(self, X: Points, gaps: list[int] | None = None, U: Points = None) -> Array:
        """Rows (T, ...) of observations X (T, d), controls U between these; NaN is missing."""
        rows = self.rows(X)
        W = windows(rows, self.lags, gaps)
        if self.leads:  # NaN where there are not as many later ones
            later = windows(rows[::-1], self.leads + 1)[::-1]
            W = np.hstack([later, W[:, self.d :]])
            W[reaches_less(later, self.d)] = np.nan
        if self.track is None or self.regression is None:
            return self.encoded(W)
        return self.track(rows, self.regression(W), gaps, self.leads > 0, U)

    @property
    def goes_on(self) -> bool:
        """Whether there is an estimate of the state also where nothing is observed."""
        return self.track is not None and self.track.alone

    def rows(self, X: Points) -> Array:
        """Observations as (T, d); a ValueError where they have other columns."""
        X = as_rows(X)
        if X.shape[1] != self.d:
            raise ValueError(f"X has {X.shape[1]} columns, but the filter learned from {self.d}")
        if bool(namespace(X).any(namespace(X).isinf(X))):
            raise ValueError("X has infinite values; use NaN for what is missing")
        return X

    def encoded(self, W: Array) -> Array:
        """From windows (T, kd)."""
        return W if self.regression is None else self.regression(W)

    def follow(
        self, past: Array | None, x: Points | None, steps: int, control: Points
    ) -> tuple[Array, Array | None]:
        """Row (1, ...) of one more observation, and the window to go on from.

        ``past`` is the window before it, and behind it what is tracked; ``steps`` the transitions
        since, each under ``control`` (1, ...).
        """
        d, width = self.d, self.lags * self.d
        if x is None and past is None:
            return np.full((1, 1), np.nan), None  # nothing seen, nothing known of the columns
        row = np.nan * past[:, :d] if x is None else self.rows(x)  # type: ignore[index]
        xp = namespace(row)
        empty = xp.nan * xp.ones_like(row)
        before = [empty] * self.lags if past is None else [past[:, :width]]
        W = xp.concat([row, *[empty] * (steps - 1), *before], axis=1)[:, :width]
        seen = without_present(W, d)
        if self.track is None or self.regression is None:
            return self.encoded(seen), W
        known = None if past is None else to_numpy(past)[0, width:]
        P, belief = self.track.follow(row, self.regression(seen), known, steps, control)
        return P, xp.concat([W, like(belief[None], W)], axis=1)


@dataclass(frozen=True, eq=False)
class Encoded:
    """Training observations as the update sees them."""

    encoder: Encoder | None
    X: Points  # (n, ...), holes filled
    known: np.ndarray | None  # (n, ...), where there were none
    kernel: Kernel
    scales: tuple[float, ...] = (1.0,)  # bandwidth multiples of the lags


def encode(model: KernelBayesFilter, parts: list[Part], known: np.ndarray | None) -> Encoded:
    """Training observations of a filter whose kernels and states are known, encoded."""
    given, features = (model.choice_.arguments[name] for name in ("lags", "features"))
    lags = check_lags(given)
    if features == "raw" and lags == 1 and np.ndim(given) == 0:
        return Encoded(None, model.X_, known, model.kernel_x_)
    what = f"lags={lags}" if features == "raw" else f"features={features!r}"
    rows = [as_rows(part.X, what) for part in parts]
    if max(count(X) for X in rows) < lags:
        raise ValueError(f"lags is {lags}, but no sequence has so many steps; give fewer lags")
    d = int(rows[0].shape[1])
    encoder = Encoder(d, lags, leads=model.leads_)
    W = concatenate(*map(encoder, rows))
    if features == "raw":
        chosen = model.kernel_x_, *split_missing(W), model.Z_, model.kernel_z_, lags
        scales = tuple(map(float, given)) if np.ndim(given) else choose_scales(*chosen)
        X, whole = split_missing(W)
        X = filled_by_state(X, whole, model.Z_, model.kernel_z_)
        return Encoded(encoder, X, whole, window_kernel(model.kernel_x_, d, scales), scales)
    if features == "tracked":
        U = driving(model.controls_, model.choice_.arguments["kernel_u"], model.lengths_)
        learned = W, U, model.Z_, model.kernel_z_, model.lengths_, model.leads_ > 0, model.rng
        # Without controls a track says too surely where it goes.
        alone = U.shape[1] > 0 and model.choice_.arguments["memory"] == 0.0
        regression, track, left_out = learn_track(concatenate(*rows), *learned, alone=alone)
        encoder = replace(encoder, regression=regression, track=track)
    else:
        regression, left_out = learn_regression(W, d, model.Z_, model.kernel_z_, model.rng)
        encoder = replace(encoder, regression=regression)
    P, whole = split_missing(like(left_out, W))
    kernel = model.choice_.arguments["kernel_x"] or default_kernel(P)
    return Encoded(encoder, kernel.points(P, "features"), whole, kernel, (1.0,) * lags)
