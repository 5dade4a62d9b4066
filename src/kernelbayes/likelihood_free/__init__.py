"""Likelihood-free inference: a simulator and a prior in, a calibrated posterior out.

``prior`` and ``simulate`` make simulations, ``model`` learns from them (``learn`` has the methods),
``posterior`` is what comes out, ``infer`` does all of it in one call; ``checks`` test the result,
and ``abc`` is the baseline.
"""

from kernelbayes.likelihood_free.abc import reject_abc
from kernelbayes.likelihood_free.checks import coverage, posterior_predictive, sbc
from kernelbayes.likelihood_free.infer import infer
from kernelbayes.likelihood_free.model import LikelihoodFree
from kernelbayes.likelihood_free.pairs import pair_plot
from kernelbayes.likelihood_free.posterior import Posterior, Posteriors
from kernelbayes.likelihood_free.prior import Prior, as_prior
from kernelbayes.likelihood_free.simulate import SimulationError, Simulations, simulate

__all__ = [
    "LikelihoodFree",
    "Posterior",
    "Posteriors",
    "Prior",
    "SimulationError",
    "Simulations",
    "as_prior",
    "coverage",
    "infer",
    "pair_plot",
    "posterior_predictive",
    "reject_abc",
    "sbc",
    "simulate",
]
