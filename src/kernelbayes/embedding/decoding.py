r"""Decoding: from a weighted sample to answers.

An embedding is a weighted sample whose weights may be negative and need not sum to one. Two kinds
of questions are asked of it:

* **Linear ones** (``expect``, ``mean``, ``moment``) are answered with the weights as they are:
  ``E[f] = sum_i w_i f(x_i)``, the estimate of the papers. Divide by the mass first, with
  ``normalized()``, if you want a probability.
* **Questions about a distribution** (``prob``, ``cdf``, ``quantile``, ``interval``, ``density``,
  ``mode``) need weights that are not negative and sum to one. The option ``valid`` says how they
  are made so; :mod:`kernelbayes.embedding.regions` has the choices and the default.

Everything works on a single embedding and on a batch, which adds a leading axis.

>>> import numpy as np
>>> from kernelbayes import Gaussian, embed
>>> mu = embed(np.random.default_rng(0).normal(2.0, 1.0, size=2000), Gaussian(0.5))
>>> mu.mean().round(1), mu.cov().round(1), mu.interval(0.9).round(1)
(array([2.]), array([[1.]]), array([[0.4, 3.6]]))
>>> round(float(mu.prob((1.0, 3.0))), 2)  # within one standard deviation
0.67
"""

from kernelbayes.embedding.density import Densities
from kernelbayes.embedding.export import Export
from kernelbayes.embedding.mixture import Mixture, Mixtures
from kernelbayes.embedding.moments import Moments
from kernelbayes.embedding.pictures import Pictures
from kernelbayes.embedding.preimage import Preimages
from kernelbayes.embedding.regions import Regions
from kernelbayes.embedding.sampling import Sampling
from kernelbayes.embedding.simplex import project_simplex

__all__ = ["Decoding", "Mixture", "project_simplex"]


class Decoding(Moments, Pictures, Regions, Densities, Preimages, Mixtures, Export, Sampling):
    """What can be read off an embedding (weights (n,)) or a batch (weights (m, n))."""
