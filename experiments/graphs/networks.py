"""Pairwise networks of numbers, and the potentials that belief propagation learns from pairs.

An edge has the potential p(a, b) / (p(a) p(b)), a node its marginal times the likelihood of what
was seen there. Edges of one template share their potential.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array
from scipy.special import logsumexp
from sklearn.mixture import GaussianMixture

COMPONENTS = (2, 4, 8)  # of Gaussian mixtures, chosen on the held-out half of the pairs
PIECE = 1000  # messages that are sent at once, so that K x K numbers of each fit in memory
FLOOR = 1e-6  # of variances of mixtures, as a share of the variance
TINY = 1e-300


@dataclass(frozen=True)
class Network:
    """Edges (E, 2) of N nodes, and the template (E,) that each follows.

    Message 2 e goes to the first node of edge e, 2 e + 1 to the second.
    """

    nodes: int
    edges: np.ndarray
    template: np.ndarray

    @cached_property
    def source(self):
        """Node (2 E,) that each message comes from."""
        return self.edges[:, ::-1].reshape(-1)

    @cached_property
    def target(self):
        """Node (2 E,) that each message goes to."""
        return self.edges.reshape(-1)

    @cached_property
    def groups(self):
        """Messages of one template in one direction, in pieces of (template, side, messages)."""
        kind = (2 * self.template[:, None] + [0, 1]).reshape(-1)
        order = np.argsort(kind, kind="stable")
        whole = np.split(order, 1 + np.flatnonzero(np.diff(kind[order])))
        found = [some[k : k + PIECE] for some in whole for k in range(0, len(some), PIECE)]
        return [(*divmod(int(kind[some[0]]), 2), some) for some in found]

    @cached_property
    def incoming(self):
        """Matrix (N, 2 E) that sums messages at the nodes they go to."""
        size = len(self.target)
        return csr_array((np.ones(size), (self.target, np.arange(size))), shape=(self.nodes, size))

    def totals(self, messages):
        """Return the sums (N, ...) of all that comes in, from log messages (2 E, ...)."""
        flat = self.incoming @ messages.reshape(len(messages), -1)
        return np.asarray(flat).reshape(self.nodes, *messages.shape[1:])

    @cached_property
    def inbox(self):
        """Messages (N, most) that come in at each node, and which of them there are."""
        order = np.argsort(self.target, kind="stable")
        counts = np.bincount(self.target, minlength=self.nodes)
        place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        box = np.zeros((self.nodes, counts.max()), dtype=int)
        box[self.target[order], place] = order
        return box, np.arange(counts.max()) < counts[:, None]


def grid(rows, columns, by_row=False):
    """Network of a grid: horizontal edges first, then vertical; one template each, or by row."""
    at = np.arange(rows * columns).reshape(rows, columns)
    right = np.stack([at[:, :-1].ravel(), at[:, 1:].ravel()], axis=1)
    down = np.stack([at[:-1].ravel(), at[1:].ravel()], axis=1)
    across, along = right[:, 0] // columns, down[:, 0] // columns
    template = (across, rows + along) if by_row else (0 * across, 1 + 0 * along)
    return Network(at.size, np.concatenate([right, down]), np.concatenate(template))


class PairMixture:
    """Gaussian mixture of pairs (a, b), its size chosen among some on the pairs' other half."""

    def __init__(self, a, b, sizes=COMPONENTS, rng=0):
        pairs = np.column_stack([a, b])
        order = np.random.default_rng(rng).permutation(len(pairs))
        halves = pairs[order[::2]], pairs[order[1::2]]
        floor = FLOOR * pairs.var()

        def fitted(size, points):
            model = GaussianMixture(size, reg_covar=floor, random_state=rng, max_iter=50, tol=1e-2)
            return model.fit(points)

        size = max(sizes, key=lambda k: fitted(k, halves[0]).score(halves[1]))
        model = fitted(size, pairs)
        self.logs, self.means, self.cov = np.log(model.weights_), model.means_, model.covariances_

    def log_marginal(self, x, side):
        """Log density (...) of the first or second variable."""
        return logsumexp(self._marginals(x, side), axis=-1)

    def log_joint(self, a, b):
        """Log density (...) of pairs, broadcast."""
        found = -np.inf
        for log, m, S in zip(self.logs, self.means, self.cov, strict=True):
            (p, r), (_, q) = np.linalg.inv(S)
            u, v = a - m[0], b - m[1]
            one = log - np.log(2.0 * np.pi) - 0.5 * np.linalg.slogdet(S)[1]
            found = np.logaddexp(found, one - 0.5 * (p * u * u + 2.0 * r * u * v + q * v * v))
        return found

    def log_ratio(self, a, b):
        """Log of p(a, b) / (p(a) p(b)), broadcast."""
        return self.log_joint(a, b) - self.log_marginal(a, 0) - self.log_marginal(b, 1)

    def sample(self, x, given, rng):
        """Draws of the other variable, given the one of side ``given`` at x."""
        parts = self._marginals(x, given)
        cut = np.cumsum(np.exp(parts - logsumexp(parts, axis=-1, keepdims=True)), axis=-1)
        k = np.minimum((rng.random(x.shape)[..., None] > cut).sum(axis=-1), len(self.logs) - 1)
        gain = self.cov[k, 0, 1] / self.cov[k, given, given]
        mean = self.means[k, 1 - given] + gain * (x - self.means[k, given])
        var = self.cov[k, 1 - given, 1 - given] - gain * self.cov[k, 0, 1]
        return mean + np.sqrt(np.maximum(var, 0.0)) * rng.normal(size=x.shape)

    def _marginals(self, x, side):
        m, v = self.means[:, side], self.cov[:, side, side]
        squares = (np.asarray(x)[..., None] - m) ** 2 / v
        return self.logs - 0.5 * (np.log(2.0 * np.pi * v) + squares)


def table(a, b, first, second, pseudo):
    """Potential p(a, b) / (p(a) p(b)) of codes below ``first`` and ``second``, from counts."""
    counts = np.full((first, second), pseudo)
    np.add.at(counts, (a, b), 1.0)
    P = counts / counts.sum()
    return P / np.outer(P.sum(axis=1), P.sum(axis=0))


def binned(values, bins):
    """Middles of equal bins, and the bin of each value; each value its own if there are few."""
    levels = np.unique(values)
    if len(levels) <= bins:
        return levels, np.searchsorted(levels, values)
    edges = np.linspace(levels[0], levels[-1], bins + 1)
    code = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, bins - 1)
    return 0.5 * (edges[1:] + edges[:-1]), code


def median(points, weights):
    """Medians (N,) of weighted points (N, K), or (K,) shared by all."""
    points = np.broadcast_to(points, weights.shape)
    order = np.argsort(points, axis=1)
    mass = np.cumsum(np.take_along_axis(weights, order, 1), axis=1)
    at = np.argmax(mass >= 0.5 * mass[:, -1:], axis=1)
    rows = np.arange(len(points))
    return points[rows, order[rows, at]]


def mean(points, weights):
    """Means (N,) of weighted points (N, K), or (K,) shared by all."""
    return np.sum(points * weights, axis=1) / np.sum(weights, axis=1)
