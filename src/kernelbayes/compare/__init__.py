"""Tests of two samples, of independence and of conditional independence.

Each test compares embeddings. A result has SciPy's ``statistic`` and ``pvalue``, the ``null``
distribution, the ``kernel``, an ``effect`` with a confidence interval, a ``power_estimate``, and a
``witness`` that says where the difference lies.

Modules: ``problem`` says what a test is and makes null distributions by permutation; ``mmd`` and
``hsic`` (with ``pairs``) are the two problems; ``nulls`` has the gamma law and the wild bootstrap,
``large`` the methods in linear time, ``aggregate`` the tests over many kernels, ``conditional`` and
``residuals`` those given a variable, ``stein`` goodness of fit, ``samples`` weights and kernels,
``result`` what a test gives.

>>> import numpy as np
>>> import kernelbayes as kb
>>> rng = np.random.default_rng(0)
>>> x, y = rng.normal(size=200), rng.laplace(1.0, size=150)
>>> kb.mmd_aggregated(x, y, permutations=500, rng=0).pvalue < 0.05
True
"""

from kernelbayes.compare.aggregate import hsic_aggregated, mmd_aggregated, mmd_fuse
from kernelbayes.compare.conditional import ci_test, conditional_mmd_test
from kernelbayes.compare.drift import DriftReport, drift_report
from kernelbayes.compare.hsic import hsic_test
from kernelbayes.compare.mmd import mmd_test
from kernelbayes.compare.result import Effect, KernelTestResult, Witness
from kernelbayes.compare.stein import ksd_test
from kernelbayes.plot.tests import plot_null, plot_where

__all__ = ["DriftReport", "Effect", "KernelTestResult", "Witness", "ci_test"]
__all__ += ["conditional_mmd_test", "drift_report", "hsic_aggregated", "hsic_test", "ksd_test"]
__all__ += ["mmd_aggregated", "mmd_fuse", "mmd_test", "plot_null", "plot_where"]
