"""Likelihood-free inference: a simulator and a prior in, a calibrated posterior out.

``prior`` and ``simulate`` make simulations, ``model`` learns from them (``learn`` has the methods),
``posterior`` is what comes out, ``infer`` does all of it in one call; ``checks``, ``twosample``
and ``predictive`` test the result, and ``abc`` is the baseline.
"""

from kernelbayes.likelihood_free.abc import reject_abc
from kernelbayes.likelihood_free.checks import coverage, recovery, sbc, tarp
from kernelbayes.likelihood_free.infer import infer
from kernelbayes.likelihood_free.model import LikelihoodFree
from kernelbayes.likelihood_free.pairs import pair_plot
from kernelbayes.likelihood_free.posterior import Posterior, Posteriors
from kernelbayes.likelihood_free.predictive import misspecification, posterior_predictive
from kernelbayes.likelihood_free.prior import Prior, as_prior
from kernelbayes.likelihood_free.simulate import SimulationError, Simulations, simulate
from kernelbayes.likelihood_free.twosample import c2st, lc2st

__all__ = ["LikelihoodFree", "Posterior", "Posteriors", "Prior", "SimulationError", "Simulations"]
__all__ += ["as_prior", "c2st", "coverage", "infer", "lc2st", "misspecification", "pair_plot"]
__all__ += ["posterior_predictive", "recovery", "reject_abc", "sbc", "simulate", "tarp"]
