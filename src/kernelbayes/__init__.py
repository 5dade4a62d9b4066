"""Bayesian inference without a model: Bayes' rule as linear algebra on samples."""

from kernelbayes import laws, tuning  # noqa: F401 (registers what tune can do)
from kernelbayes.arrays import NumericalWarning
from kernelbayes.conditional import ConditionalEmbedding
from kernelbayes.discrepancy import mmd, mmd2
from kernelbayes.embedding import Batch, Embedding, embed
from kernelbayes.estimators import KernelBayesRule
from kernelbayes.features import Fourier, Landmarks, fourier, nystrom, pivoted_cholesky
from kernelbayes.gaussian import GaussianEmbedding
from kernelbayes.herding import herd, thin
from kernelbayes.kernels import (
    Custom,
    Delta,
    Gaussian,
    HistogramIntersection,
    Kernel,
    Laplace,
    Linear,
    Matern,
    Parts,
    Periodic,
    Polynomial,
    Product,
    RationalQuadratic,
    Rotation,
    Scaled,
    SpatialPyramid,
    Spectrum,
    Sum,
    Trace,
)
from kernelbayes.ratio import DensityRatio, density_ratio
from kernelbayes.rules import bayes_rule, chain_rule, sum_rule
from kernelbayes.select import tune

__version__ = "0.1.0.dev0"

__all__ = [
    # kernels
    "Custom",
    "Delta",
    "Gaussian",
    "HistogramIntersection",
    "Kernel",
    "Laplace",
    "Linear",
    "Matern",
    "Parts",
    "Periodic",
    "Polynomial",
    "Product",
    "RationalQuadratic",
    "Rotation",
    "Scaled",
    "SpatialPyramid",
    "Spectrum",
    "Sum",
    "Trace",
    # finite features
    "Fourier",
    "Landmarks",
    "fourier",
    "nystrom",
    "pivoted_cholesky",
    # embeddings
    "Batch",
    "Embedding",
    "GaussianEmbedding",
    "embed",
    "mmd",
    "mmd2",
    # herding
    "herd",
    "thin",
    # rules
    "ConditionalEmbedding",
    "DensityRatio",
    "KernelBayesRule",
    "bayes_rule",
    "chain_rule",
    "density_ratio",
    "sum_rule",
    "tune",
    # the rest
    "NumericalWarning",
    "laws",
]
