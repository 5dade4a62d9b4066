"""Learned features: a neural network as a kernel with finite features (torch extra)."""

from kernelbayes.learned.features import NeuralFeatures
from kernelbayes.learned.kernel import Learned

__all__ = ["Learned", "NeuralFeatures"]
