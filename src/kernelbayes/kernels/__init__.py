"""Kernels: immutable values, callable as ``k(X, Y)``, with algebra."""

from kernelbayes.kernels.algebra import Product, Scaled, Sum, Warped
from kernelbayes.kernels.base import Kernel
from kernelbayes.kernels.curved import Periodic, Rotation
from kernelbayes.kernels.custom import Custom
from kernelbayes.kernels.parts import Parts
from kernelbayes.kernels.radial import Gaussian
from kernelbayes.kernels.structured import Delta, SpatialPyramid, Spectrum, Trace
from kernelbayes.kernels.vector import (
    HistogramIntersection,
    Laplace,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
)

__all__ = ["Custom", "Delta", "Gaussian", "HistogramIntersection", "Kernel", "Laplace", "Linear"]
__all__ += ["Matern", "Parts", "Periodic", "Polynomial", "Product", "RationalQuadratic", "Rotation"]
__all__ += ["Scaled", "SpatialPyramid", "Spectrum", "Sum", "Trace", "Warped"]
