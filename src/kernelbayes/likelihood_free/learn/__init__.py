"""Learning posteriors from simulations: learners, and the choice among their variants.

``task`` has the simulations in coordinates and the learners without a likelihood, ``adjust`` the
regression from data to parameters, ``likelihood`` the one from parameters to data, ``importance``
the posteriors of a learned likelihood, ``choice`` the contest.
"""

from kernelbayes.likelihood_free.learn.choice import (
    Criterion,
    Learner,
    candidates,
    check_options,
    choose,
    learn,
)
from kernelbayes.likelihood_free.learn.task import (
    Data,
    Observed,
    Space,
    Task,
    Variant,
    bounded,
    unbounded,
)

__all__ = [
    "Criterion",
    "Data",
    "Learner",
    "Observed",
    "Space",
    "Task",
    "Variant",
    "bounded",
    "candidates",
    "check_options",
    "choose",
    "learn",
    "unbounded",
]
