"""How far an embedding made by a rule can be trusted."""

from dataclasses import dataclass
from typing import Self

from kernelbayes.embedding import Batch, Embedding
from kernelbayes.gram import Diagnostics
from kernelbayes.types import Array


@dataclass(frozen=True)
class PosteriorDiagnostics:
    """How far an embedding made by a rule can be trusted; one entry per conditioning point.

    Computed when asked for, from the embedding as the rule made it.

    Attributes
    ----------
    mass, ess, negative : array (m,)
        Sum of the weights, near 1 where the sample says much and near 0 far from it; effective
        sample size; share of negative weight, ``sum |w_i|`` over w_i < 0 relative to all.
    support : array (m,)
        Similarity ``|k(x, x_i)| / sqrt(k(x, x) k(x_i, x_i))`` of the nearest training point (or
        landmark): 1 on a training point, 0 where nothing like x was seen.
    prior_share : array (m,)
        What an estimator has filled from the prior, for want of mass or support: 0 inside the
        training sample, 1 where nothing like x was seen (:mod:`kernelbayes.rules.support`).
    filled : array (m,)
        That, and what stands for negative weights that were dropped. Above 0.1 an estimator warns.
    solver : gram.Diagnostics
        Of the factorisation, with ``condition`` (estimated condition number of the regularised
        matrix) and ``rescues`` (how often the ridge had to be raised).
    """

    embedding: Batch | Embedding
    support: Array
    solver: Diagnostics
    prior_share: Array
    filled: Array = None  # as in older files

    def __repr__(self) -> str:
        """Say all but the embedding and the solver."""
        names = ["mass", "ess", "negative", "support", "prior_share", "filled"]
        names += ["condition", "rescues"]
        return f"PosteriorDiagnostics({', '.join(f'{n}={getattr(self, n)!r}' for n in names)})"

    mass = property(lambda self: self.embedding.mass, doc="Sum of the weights.")
    ess = property(lambda self: self.embedding.ess, doc="Effective sample size.")
    negative = property(lambda self: self.embedding.negative, doc="Share of negative weight.")
    condition = property(lambda self: self.solver.condition, doc="Condition number, about.")
    rescues = property(lambda self: self.solver.rescues, doc="How often the ridge was raised.")

    def __getitem__(self, index: int | slice) -> Self:
        """Return the diagnostics of one conditioning point, or of a slice of them."""
        assert isinstance(self.embedding, Batch)
        each = (self.support, self.prior_share, self.filled)
        near, *rest = (None if one is None else one[index] for one in each)
        return type(self)(self.embedding[index], near, self.solver, *rest)
