"""Learning posteriors from simulations: learners, and the choice among their variants.

``task`` has the simulations in coordinates and the learners without a likelihood, ``adjust`` the
regression from data to parameters, ``likelihood`` the one from parameters to data, ``importance``
the posteriors of a learned likelihood, ``choice`` the contest.
"""

from kernelbayes.likelihood_free.learn.adjust import Space, bounded, unbounded
from kernelbayes.likelihood_free.learn.choice import (
    Criterion,
    candidates,
    choose,
)
from kernelbayes.likelihood_free.learn.importance import Learner, learn
from kernelbayes.likelihood_free.learn.likelihood import read_data
from kernelbayes.likelihood_free.learn.task import (
    Data,
    Observed,
    Task,
    Variant,
    check_options,
)

__all__ = ["Criterion", "Data", "Learner", "Observed", "Space", "Task", "Variant", "bounded"]
__all__ += ["candidates", "check_options", "choose", "learn", "read_data", "unbounded"]
