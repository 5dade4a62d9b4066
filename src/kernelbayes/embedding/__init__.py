"""Embeddings of distributions, and everything that can be read off them."""

from kernelbayes.embedding.core import Batch, Embedding, embed, mmd, mmd2
from kernelbayes.embedding.gaussian import GaussianEmbedding, Mixture
from kernelbayes.embedding.mean import MeanElement

__all__ = ["Batch", "Embedding", "GaussianEmbedding", "MeanElement", "Mixture", "embed"]
__all__ += ["mmd", "mmd2"]
