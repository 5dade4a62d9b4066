r"""Herding on arrays: which of n candidates stand for a distribution, and with what weights.

Kernel herding (KMCF16 Alg. 2 and 3) picks candidates one after another so that their equally
weighted embedding approaches a given one: pick p maximises

.. math:: \mu(x) - \frac{1}{p} \sum_{j < p} k(x, x_j).

With the sum kept running, a pick costs one row of the Gram matrix, O(n). It is the Frank-Wolfe
method with steps 1/p for the squared distance to mu over the convex hull of the candidates
(KMCF16, proof of Theorem 3). Better steps give a faster decrease (:mod:`weighted`): the exact line
search, or the best weights on all points picked so far. :func:`exchange` keeps the weights equal
and improves the points instead, replacing one at a time by the best candidate.

Everything here works on a :class:`~kernelbayes.gram.Gram` of the candidates, row by row; the
functions for embeddings are in :mod:`kernelbayes.compression`.

>>> import numpy as np
>>> from kernelbayes import Gaussian
>>> from kernelbayes.gram import Gram
>>> from kernelbayes.herding import exchange, greedy, score
>>> X = np.random.default_rng(0).normal(size=300)[:, None]
>>> gram = Gram.by_rows(Gaussian(0.5), X)
>>> values = gram.matmul(np.full(300, 1 / 300))
>>> picks, _ = greedy(gram, values, 10)
>>> before, after = (score(gram, values, p) for p in (picks, exchange(gram, values, picks)))
>>> bool(after < before)
True
"""

from kernelbayes.herding.ascent import gaussian_starts, herd_anywhere
from kernelbayes.herding.equal import exchange, greedy, score, squared_errors
from kernelbayes.herding.weighted import fully_corrective, line_search

__all__ = [
    "exchange",
    "fully_corrective",
    "gaussian_starts",
    "greedy",
    "herd_anywhere",
    "line_search",
    "score",
    "squared_errors",
]
