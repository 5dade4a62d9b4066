"""Kernels: immutable values, callable as ``k(X, Y)``, with algebra."""

from kernelbayes.kernels.algebra import Parts, Product, Scaled, Sum
from kernelbayes.kernels.base import Kernel
from kernelbayes.kernels.stationary import Gaussian, Laplace, Matern, Periodic, RationalQuadratic
from kernelbayes.kernels.structured import (
    Custom,
    Delta,
    Rotation,
    SpatialPyramid,
    Spectrum,
    Trace,
)
from kernelbayes.kernels.vector import HistogramIntersection, Linear, Polynomial
from kernelbayes.kernels.warped import Warped

__all__ = [
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
    "Warped",
]
