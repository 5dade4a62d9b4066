"""Two-sample scores: a classifier's accuracy (C2ST) and the maximum mean discrepancy.

C2ST: train a network to tell the two samples apart; the cross-validated accuracy is .5 when it
cannot and 1 when it always can. Settings as in Lueckmann et al. (2021): scikit-learn's
``MLPClassifier`` with two hidden layers of 10 d units, relu, Adam, at most 10 000 epochs (its own
default stop: ten epochs without progress of the training loss), five shuffled folds, both samples
z-scored by the first. The paper uses 10 000 draws per side; fewer make the score noisier (its
standard deviation is about .5 / sqrt(2 m) at best) and a bit lower, because the classifier sees
less.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import kernelbayes as kb

Array = np.ndarray


def c2st(reference: Array, draws: Array, classifier: Any = None, seed: int = 1) -> float:
    """Five-fold accuracy of telling ``draws`` (n, d) from ``reference`` (m, d).

    ``classifier``: another one than the paper's network, which takes from seconds to a minute.
    """
    return float(kb.c2st(reference, draws, classifier=classifier, rng=seed))


def mmd2(reference: Array, draws: Array) -> float:
    """Unbiased squared MMD, Gaussian kernel with the reference's median distance; may be < 0."""
    scale = reference.std(axis=0, ddof=1)
    kernel = kb.Gaussian.median(reference / scale)
    both = kb.embed(reference / scale, kernel), kb.embed(draws / scale, kernel)
    return float(kb.mmd2(*both, unbiased=True))
