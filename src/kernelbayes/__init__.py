"""Bayesian inference without a model: Bayes' rule as linear algebra on samples."""

from kernelbayes import filters, kernels, laws, likelihood_free, plot
from kernelbayes.arrays import NumericalWarning
from kernelbayes.compare import (
    DriftReport,
    KernelTestResult,
    ci_test,
    conditional_mmd_test,
    drift_report,
    hsic_aggregated,
    hsic_test,
    ksd_test,
    mmd_aggregated,
    mmd_fuse,
    mmd_test,
)
from kernelbayes.compression import Compressed, Resampled, compress, herd, resample, thin
from kernelbayes.embedding import Batch, Embedding, GaussianEmbedding, Mixture, embed, mmd, mmd2
from kernelbayes.estimators import KernelBayesRule
from kernelbayes.files import load, save
from kernelbayes.filters import *  # noqa: F403
from kernelbayes.gram.features import Fourier, Landmarks, fourier, nystrom, pivoted_cholesky
from kernelbayes.gram.finite import Precomputed
from kernelbayes.graphs import GraphBeliefs, KernelBeliefPropagation, Message
from kernelbayes.kernels import *  # noqa: F403
from kernelbayes.learned import NeuralFeatures
from kernelbayes.likelihood_free import *  # noqa: F403
from kernelbayes.report import report
from kernelbayes.rules.bayes import bayes_rule, chain_rule, sum_rule
from kernelbayes.rules.cme import ConditionalEmbedding
from kernelbayes.rules.ratio import DensityRatio, density_ratio
from kernelbayes.select.calibration import Calibration, Confusion, calibrate
from kernelbayes.select.tuning import tune

__version__ = "0.1.0.dev0"

# finite features
__all__ = ["Fourier", "Landmarks", "NeuralFeatures", "Precomputed", "fourier", "nystrom"]
__all__ += ["pivoted_cholesky"]
# embeddings
__all__ += ["Batch", "Embedding", "GaussianEmbedding", "Mixture", "embed", "mmd", "mmd2"]
# herding
__all__ += ["Compressed", "Resampled", "compress", "herd", "resample", "thin"]
# rules
__all__ += ["Calibration", "ConditionalEmbedding", "Confusion", "DensityRatio", "KernelBayesRule"]
__all__ += ["bayes_rule", "calibrate", "chain_rule", "density_ratio", "sum_rule", "tune"]
# state-space models
__all__ += filters.__all__
# graphs
__all__ += ["GraphBeliefs", "KernelBeliefPropagation", "Message"]
# likelihood-free inference
__all__ += likelihood_free.__all__
# tests
__all__ += ["DriftReport", "KernelTestResult", "ci_test", "conditional_mmd_test", "drift_report"]
__all__ += ["hsic_aggregated", "hsic_test", "ksd_test", "mmd_aggregated", "mmd_fuse", "mmd_test"]
# the rest
__all__ += ["NumericalWarning", "laws", "load", "plot", "report", "save"]
__all__ += kernels.__all__
