"""Stationary kernels: functions of x - y, and the distributions of which they are transforms."""

from dataclasses import dataclass

import numpy as np

from kernelbayes.arrays import namespace
from kernelbayes.kernels.base import Kernel
from kernelbayes.types import Array, Floats, Generator, Points


@dataclass(frozen=True, eq=False)
class Stationary(Kernel):
    """A function of x - y on R^d, and so the Fourier transform of a distribution (Bochner)."""

    bandwidth: float | tuple[float, ...]

    is_stationary = True
    is_vector = True  # the kernel is a function of a distance

    def spectrum(self, q: int, dim: int, rng: Generator) -> Floats:
        """Draw q frequencies (q, dim) from the spectral distribution."""
        bandwidth = np.asarray(self.bandwidth)
        if bandwidth.ndim and len(bandwidth) != dim:
            raise ValueError(f"the kernel has {len(bandwidth)} bandwidths, but dim is {dim}")
        return np.asarray(self._unit_spectrum(q, dim, rng) / bandwidth)

    def _unit_spectrum(self, q: int, dim: int, rng: Generator) -> Floats:
        """Frequencies for the bandwidth 1: the Gaussian kernel's, times random lengths."""
        return rng.normal(size=(q, dim)) * np.sqrt(self._mixing(q, rng))

    def _mixing(self, q: int, rng: Generator) -> Floats | float:  # noqa: ARG002
        """Squared lengths (q, 1) relative to Gaussian frequencies: the kernel as a mixture."""
        return 1.0

    def _paired(self, X: Points, Y: Points) -> Array:
        D = X - Y
        return self._cross(D, namespace(D).zeros_like(D[:1, ...]))[:, 0]
