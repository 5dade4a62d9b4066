"""Likelihood-free inference: a simulator and a prior in, a calibrated posterior out."""

from kernelbayes.likelihood_free.abc import reject_abc
from kernelbayes.likelihood_free.checks import coverage, posterior_predictive, sbc
from kernelbayes.likelihood_free.inference import infer
from kernelbayes.likelihood_free.model import LikelihoodFree
from kernelbayes.likelihood_free.pictures import pair_plot
from kernelbayes.likelihood_free.posterior import Posterior, Posteriors
from kernelbayes.likelihood_free.priors import Prior, as_prior
from kernelbayes.likelihood_free.simulators import Simulations, simulate

__all__ = [
    "LikelihoodFree",
    "Posterior",
    "Posteriors",
    "Prior",
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
