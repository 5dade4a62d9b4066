"""Likelihood-free inference: a simulator and a prior in, a calibrated posterior out."""

from kernelbayes.simulation.abc import reject_abc
from kernelbayes.simulation.checks import coverage, posterior_predictive, sbc
from kernelbayes.simulation.inference import infer
from kernelbayes.simulation.model import LikelihoodFree
from kernelbayes.simulation.pictures import pair_plot
from kernelbayes.simulation.posterior import Posterior, Posteriors
from kernelbayes.simulation.priors import Prior, as_prior
from kernelbayes.simulation.simulators import Simulations, simulate

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
