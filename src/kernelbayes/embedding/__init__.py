"""Embeddings of distributions, and everything that can be read off them."""

from kernelbayes.embedding.core import Batch, Embedding, MeanElement, check_same_kernel, embed
from kernelbayes.embedding.discrepancy import mmd, mmd2
from kernelbayes.embedding.gaussian import GaussianEmbedding
from kernelbayes.embedding.mixture import Mixture

__all__ = [
    "Batch",
    "Embedding",
    "GaussianEmbedding",
    "MeanElement",
    "Mixture",
    "check_same_kernel",
    "embed",
    "mmd",
    "mmd2",
]
