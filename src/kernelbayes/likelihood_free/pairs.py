"""Draws of a posterior, and the pair plot of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelbayes.arrays import (
    Floats,
    Rng,
    as_doubles,
    as_floats,
    as_generator,
    is_frame,
)
from kernelbayes.likelihood_free.distributions import PriorLike
from kernelbayes.likelihood_free.prior import as_prior
from kernelbayes.plot.posteriors import draw_pairs
from kernelbayes.points import Names, PointsLike, in_order, integer, named_row


def draws_of(posterior: Any, m: int, rng: np.random.Generator) -> Floats:
    """Draws (m, d) of a posterior: by its ``sample``, or an array of draws, cut to m if longer."""
    drawn = (
        posterior.sample(m, rng=rng)
        if hasattr(posterior, "sample") and not is_frame(posterior)
        else posterior
    )
    table = as_doubles(as_floats(drawn, "draws"))
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or not len(table):
        raise ValueError(f"draws must have shape (m, d), got {table.shape}")
    return table[:m]


def pair_plot(
    posterior: Any,
    prior: PriorLike = None,
    truth: PointsLike = None,
    names: Sequence[str] | None = None,
    *,
    n_draws: int = 1000,
    rng: Rng = 0,
) -> Any:
    """Draw the marginals of a posterior, and all its pairs, over those of the prior.

    On the diagonal: the posterior's histogram, the prior's outline. Below it: draws of the
    posterior with contours around 50 and 90 % of the mass, over draws of the prior.

    Parameters
    ----------
    posterior : object with ``sample(m, rng=...)``, or draws (m, d)
    prior : optional
        Anything that :func:`~kernelbayes.as_prior` takes.
    truth : array (d,), or mapping from names, optional
        Marked in each panel.
    names : sequence of str, optional
        The posterior's or the prior's names unless given.
    n_draws : int
        Draws of each.
    rng : int, Generator or None

    Returns
    -------
    array (d, d) of matplotlib Axes
    """
    rng = as_generator(rng)
    n_draws = integer(n_draws, "n_draws")
    draws = draws_of(posterior, n_draws, rng)
    d = draws.shape[1]
    read = None if prior is None else as_prior(prior)
    if read is not None and read.dim != d:
        raise ValueError(f"the prior has {read.dim} parameters, the posterior {d}")
    wide = None if read is None else read.sample(n_draws, rng)
    known = getattr(posterior, "names", None) or (None if read is None else read.names)
    names = tuple(names or known or (f"theta[{j}]" for j in range(d)))
    if len(names) != d:
        raise ValueError(f"{len(names)} names for {d} parameters")
    mark = None if truth is None else _mark(truth, d, tuple(known) if known else None)
    return draw_pairs(draws, wide, mark, names)


def _mark(truth: PointsLike, d: int, names: Names) -> Floats:
    """Return the true parameters (d,): numbers, a row or a column of them, or by their names."""
    row = named_row(truth, names)
    mark = as_doubles(as_floats(in_order(truth if row is None else row, names, "truth"), "truth"))
    if mark.size != d or mark.ndim > 2:
        raise ValueError(f"truth must have shape ({d},), got {mark.shape}")
    return mark.ravel()
