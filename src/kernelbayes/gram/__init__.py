r"""Gram matrices and regularised solves: the only place that decides on ranks and factors matrices.

A :class:`Gram` is a positive semi-definite matrix G (n, n), held whole (:class:`Dense`), as a
factor L with G = L L^T (:class:`LowRank`, L is (n, r)), as points whose features are computed
again block by block (:class:`Streamed`), or as rows on demand (:class:`OnDemand`).
:meth:`Gram.of` decides which, ``.policy`` says so. Three solvers cover every rule:

=================  =============================================  ================================
solver             applied to B (n, k)                            low-rank form, B = L Phi
=================  =============================================  ================================
``ridge(eta)``     (G + n eta I)^-1 B                             L (L^T L + n eta I)^-1 Phi
``weighted(r)``    S (S G S + lambda I)^-1 S B,  S = sqrt(r)      R L (L^T R L + lambda I)^-1 Phi
``signed(d)``      D G ((D G)^2 + delta I)^-1 D B                 D L C (C^2 + delta I)^-1 Phi
=================  =============================================  ================================

with C = L^T D L symmetric (r, r) (see the notation page). No diagonal matrix is ever formed, each
factorisation is made once and serves any number of right-hand sides, and points of zero weight
drop out of it.

**Rescue.** When a Cholesky factorisation fails, the ridge is multiplied by ``RESCUE_FACTOR`` until
it succeeds, up to ``RESCUE_BOUND`` times the largest diagonal entry; a ``NumericalWarning`` says
so and ``diagnostics`` records it. Beyond the bound a LinAlgError says that the matrix is not
positive semi-definite.

Modules: ``lapack`` has every factorisation that the library makes, ``loo`` the closed-form
leave-one-out, ``features`` the kernels with finite features, ``solvers`` all that runs when a
solver is applied.
"""

from kernelbayes.gram.base import Dense, Gram
from kernelbayes.gram.factored import Factored, LowRank, OnDemand, Streamed, exact_features
from kernelbayes.gram.finite import EXACT
from kernelbayes.gram.solvers import (
    RESCUE_BOUND,
    RESCUE_FACTOR,
    Diagnostics,
    Solver,
    check_ridge,
    factor_with_ridge,
)

__all__ = ["EXACT", "RESCUE_BOUND", "RESCUE_FACTOR", "Dense", "Diagnostics", "Factored", "Gram"]
__all__ += ["LowRank", "OnDemand", "Solver", "Streamed", "check_ridge", "exact_features"]
__all__ += ["factor_with_ridge"]
