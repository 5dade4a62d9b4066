"""The filters of KMCF16 section 4.5.1 at one setting: Alg. 4, low rank, subsampled, and KBR."""

from __future__ import annotations

import numpy as np

from kernelbayes import Gaussian, KernelBayesFilter, KernelMonteCarloFilter

PICKS = 50  # points herded and copied, as in the thesis
TRANSITIONS = 1000  # examples that the KBR filter learns the transition from, as in the thesis
ORIGINAL = {"method": "original", "literal": True}
VARIANTS = {
    "KMCF (Alg. 4)": ORIGINAL,
    "KMCF-low10": {"rank": 10, "low_rank": "cholesky", **ORIGINAL},
    "KMCF-low20": {"rank": 20, "low_rank": "cholesky", **ORIGINAL},
    "KMCF-sub50": {"subsample": 50, "sweeps": 0, **ORIGINAL},
    "KMCF-sub100": {"subsample": 100, "sweeps": 0, **ORIGINAL},
    "KMCF, importance rule": {},
    "KMCF-sub100, importance rule": {"subsample": 100},
}


def kernels(train):
    """Gaussian kernels on x and z: the median distance, and half of it."""
    return Gaussian.median(train.X), Gaussian.median(train.Z, scale=0.5)


def monte_carlo(variant, model, train, run):
    """One of the variants, learned from a sample; ridges by leave-one-out."""
    blank = KernelMonteCarloFilter(
        model.transition, model.initial, *kernels(train), picks=PICKS, rng=run, **VARIANTS[variant]
    )
    return blank.fit(train.X, train.Z, train.controls)


def kbr_filter(model, train, ridges, run, rng):
    """KBR filter with transition examples beside the pairs, and the ridges of Alg. 4.

    Examples of transitions are a sequence of states without observations.
    """
    extra = model.simulate(TRANSITIONS + 1, rng)
    X, Z = [train.X, np.full_like(extra.X, np.nan)], [train.Z, extra.Z]
    acts = None if train.controls is None else [train.controls, extra.controls]
    kernel_u = None if acts is None else Gaussian.median(train.controls)
    eta, delta = ridges
    blank = KernelBayesFilter(
        *kernels(train), kernel_u, **ORIGINAL, prior_ridge=eta, transition_ridge=eta, ridge=delta,
        rank=200, lags=1, order=1, features="raw", memory=1.0, tempering=1.0, rng=run,
    )  # fmt: skip
    return blank.fit(X, Z, acts)


def as_printed(model, train, test, ridges, rng, steps):
    """Posterior means (steps, d) by Alg. 4, 2 and 1 in plain matrices: O(n^3) a step."""
    kernel_x, kernel_z = kernels(train)
    n, (eta, delta) = len(train.X), ridges
    G_x, G_z = kernel_x(train.X), kernel_z(train.Z)
    carry, means, w = np.linalg.inv(G_z + n * eta * np.eye(n)), [], None
    for t in range(steps):
        if w is None:
            moved = model.initial(n, rng)
        else:
            picks, field = [], G_z @ w
            total = np.zeros(n)
            for p in range(PICKS):  # KMCF16 eq. 2.16, 2.17 among the training states
                picks.append(int(np.argmax(field - total / (p + 1))))
                total += G_z[:, picks[-1]]
            chosen = np.resize(picks, n)
            control = None if test.controls is None else test.controls[t]
            moved = model.transition(train.Z[chosen], rng, control)
        D = np.diag(carry @ kernel_z(train.Z, moved).mean(axis=1))
        DG = D @ G_x
        w = DG @ np.linalg.solve(
            DG @ DG + delta * np.eye(n), D @ kernel_x(train.X, test.X[t : t + 1])
        )
        w = w[:, 0] / w.sum()
        means.append(w @ train.Z)
    return np.array(means)
