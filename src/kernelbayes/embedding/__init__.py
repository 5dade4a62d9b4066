"""Embeddings of distributions, and everything that can be read off them."""

from kernelbayes.embedding.core import Batch, Embedding, embed, mmd, mmd2
from kernelbayes.embedding.gaussian import GaussianEmbedding
from kernelbayes.embedding.mean import MeanElement
from kernelbayes.embedding.mixture import Mixture

__all__ = ["Batch", "Embedding", "GaussianEmbedding", "MeanElement", "Mixture", "embed"]
__all__ += ["mmd", "mmd2"]
