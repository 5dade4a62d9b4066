"""Choosing kernels and ridges from data alone.

``tune(model, X, Z)`` searches bandwidths and ridges and returns a fitted model of the same class,
with the table of what was tried in ``tuning_``. It is generous with ridges, which are almost free
(one eigendecomposition scores all of them by closed-form leave-one-out), and careful with
bandwidths: multiples of the median heuristic, coarse first, then refined around the best.

Each model says what it is scored on; see its ``tune`` section in the documentation of its class.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import singledispatch
from typing import Any

from kernelbayes.arrays import Rng
from kernelbayes.gram.loo import loo, loo_subset, ridge_grid
from kernelbayes.kernels import Kernel
from kernelbayes.points import PointsLike
from kernelbayes.rules.conditional import ConditionalEmbedding
from kernelbayes.rules.prior import PriorLike
from kernelbayes.select.search import coarse_to_fine, progress_bar
from kernelbayes.tables import Row, Table


@singledispatch
def tune(
    model: Any,
    X: PointsLike,
    Z: PointsLike,
    *,
    prior: PriorLike = None,
    criterion: str | None = None,
    budget: int = 12,
    rng: Rng = None,
    progress: bool | None = None,
) -> Any:
    """Choose kernels and ridges from data; returns a fitted model of the same class.

    Parameters
    ----------
    model : ConditionalEmbedding or KernelBayesRule
        What is set on it (a kernel) is the starting point of the search; it is not changed.
    X, Z : points (n, ...)
        Training pairs. Nothing else is looked at.
    prior : points, embedding or None
        For Bayes' rule: the prior that the model is tuned for, and fitted with.
    criterion : str, optional
        For Bayes' rule: what is minimised; see :class:`~kernelbayes.KernelBayesRule`.
    budget : int
        How many bandwidths are tried for each variable; ridges come on top for free.
    rng : int, Generator or None
        For random folds, where a model needs them.
    progress : bool, optional
        Show a progress bar; by default when a person is watching.

    Returns
    -------
    model
        Fitted, with ``tuning_``: a table (list of dicts) of what was tried. Scores compare within
        a ``"stage"`` only: "regression" (leave-one-out error), "ratio" (KuLSIF's score, which may
        be negative) or "rule" (the criterion). ``"variable"`` is the one whose bandwidth changed.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelbayes import ConditionalEmbedding, tune
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-3, 3, size=200)
    >>> cme = tune(ConditionalEmbedding(), x, np.sin(4 * x) + 0.1 * rng.normal(size=200))
    >>> cme.kernel_x_.bandwidth < 1.0  # the median distance, 1.8, is too wide for sin(4 x)
    True
    """
    del X, Z, prior, criterion, budget, rng, progress
    hint = "; pass an instance, not the class" if isinstance(model, type) else ""
    raise TypeError(f"tune does not know {type(model).__name__}{hint}")


@tune.register
def _(
    model: ConditionalEmbedding,
    X: PointsLike,
    Z: PointsLike,
    *,
    budget: int = 12,
    rng: Rng = None,  # noqa: ARG001 (nothing is random here)
    progress: bool | None = None,
) -> ConditionalEmbedding:
    """Bandwidth of x and ridge by leave-one-out error in the RKHS of z (CME13 section 3.2)."""
    base = copy(model).fit(X, Z).conditional_
    keep = loo_subset(base.n)
    H = base.outputs.exact(keep)

    def score(kernel: Kernel) -> Row:
        F = replace(base.inputs, kernel=kernel).exact(keep)
        found = loo(F, H, ridge_grid(F))
        return {"kernel": kernel, "ridge": found.best, "score": float(found.errors.min())}

    with progress_bar(budget, "tuning", progress) as bar:
        table = coarse_to_fine(base.inputs.kernel.scaled, score, budget, bar)
    best = table.best
    tuned = ConditionalEmbedding(best["kernel"], base.outputs.kernel, best["ridge"]).fit(X, Z)
    table = Table({"stage": "regression", "variable": "x", **row} for row in table)
    tuned.tuning_ = table  # type: ignore[attr-defined]
    return tuned
