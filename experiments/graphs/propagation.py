"""Belief propagation without kernels: discrete, Gaussian, with particles and with mixtures.

Each is a generator of (points, weights) of the beliefs of all nodes after each iteration, with all
messages sent at once.
"""

from __future__ import annotations

import numpy as np
from networks import TINY
from scipy.special import logsumexp


def discrete(network, centres, potentials, log_local, damping=0.0):
    """Discrete belief propagation (Pearl 1988) on states ``centres`` (q,).

    ``potentials`` (q, q) by template, ``log_local`` (N, q) are marginals times likelihoods.
    """
    m = np.ones((len(network.target), len(centres)))
    while True:
        logs = np.log(m)
        totals = log_local + network.totals(logs)
        new = np.empty_like(m)
        for template, side, some in network.groups:
            f = totals[network.source[some]] - logs[some ^ 1]
            f = np.exp(f - f.max(axis=1, keepdims=True))
            psi = potentials[template]
            out = f @ (psi.T if side == 0 else psi)
            new[some] = np.maximum(out / out.max(axis=1, keepdims=True), TINY)
        m = new if damping == 0.0 else m**damping * new ** (1.0 - damping)
        yield centres, _softmax(log_local + network.totals(np.log(m)))


def gaussian(network, moments, mean, var, seen, noise):
    """Gaussian belief propagation in closed form (Weiss and Freeman 2001).

    ``moments`` by template are the means (2,) and covariances (2, 2) of pairs; nodes have prior
    ``mean`` and ``var`` (N,); ``seen`` (N,), NaN where nothing is, has noise of variance ``noise``.
    Yields the means and the variances (N,) of the beliefs.
    """
    there = ~np.isnan(seen)
    J = 1.0 / var + np.where(there, 1.0 / noise, 0.0)
    h = mean / var + np.where(there, np.nan_to_num(seen) / noise, 0.0)
    mJ, mh = np.zeros((2, len(network.target)))
    while True:
        J_all, h_all = J + network.totals(mJ), h + network.totals(mh)
        new_J, new_h = np.empty_like(mJ), np.empty_like(mh)
        for template, side, some in network.groups:
            mu, S = moments[template]
            # information form of p(a, b) / (p(a) p(b)): t is the target, s the source
            Q, t, s = np.linalg.inv(S), side, 1 - side
            L = Q - np.diag(1.0 / np.diag(S))
            shift = Q @ mu - mu / np.diag(S)
            Js = J_all[network.source[some]] - mJ[some ^ 1] + L[s, s]
            hs = h_all[network.source[some]] - mh[some ^ 1] + shift[s]
            new_J[some] = L[t, t] - L[t, s] ** 2 / Js
            new_h[some] = shift[t] - L[t, s] * hs / Js
        mJ, mh = new_J, new_h
        J_all = J + network.totals(mJ)
        yield (h + network.totals(mh)) / J_all, 1.0 / J_all


def particle(network, pairs, log_local, start, log_start, step, rng, moves=1):
    """Particle belief propagation (Ihler and McAllester 2009).

    Every node has particles: ``start`` (N, K) with log densities ``log_start`` at first, then from
    its current belief, as far as Metropolis moves of width ``step`` bring them. ``pairs`` by
    template are PairMixtures, ``log_local(x)`` (N, K) marginals times likelihoods. A message is a
    sum over the particles of its source, weighted by what comes in there over the belief they
    stand for.
    """
    x = start
    logs = np.zeros((len(network.target), x.shape[1]))
    local, proposal = log_local(x), log_start

    def sent(to, totals, given):
        """Log messages (2 E, K) at points ``to`` (N, K)."""
        found = np.empty_like(given)
        for template, side, some in network.groups:
            s, t = network.source[some], network.target[some]
            w = totals[s] - given[some ^ 1] - proposal[s]
            ends = to[t][:, :, None], x[s][:, None, :]
            psi = pairs[template].log_ratio(*(ends if side == 0 else ends[::-1]))
            found[some] = logsumexp(psi + w[:, None, :], axis=2)
        return found

    while True:
        totals, old = local + network.totals(logs), logs
        logs = sent(x, totals, old)
        top = logs.max(axis=1, keepdims=True)
        logs -= top
        belief = local + network.totals(logs)
        w = _softmax(belief - proposal)
        yield x, w
        # resample from the belief, then Metropolis moves under it with its messages held fixed
        pick = _resampled(w, rng)
        moved, now = (np.take_along_axis(v, pick, 1) for v in (x, belief))
        logs = np.take_along_axis(logs, pick[network.target], 1)
        for _ in range(moves):
            other = moved + step * rng.normal(size=x.shape)
            at = sent(other, totals, old) - top
            there = log_local(other) + network.totals(at)
            take = np.log(rng.random(x.shape)) < there - now
            moved, now = np.where(take, other, moved), np.where(take, there, now)
            logs = np.where(take[network.target], at, logs)
        x, proposal, local = moved, now, log_local(moved)


def mixture(network, pairs, log_local, start, rng):
    """Belief propagation with mixtures of Gaussians (Sudderth et al. 2003).

    A message is a mixture of K Gaussians: points drawn at the source from the product of all else
    that comes in, each taken across the edge by a draw of the pair's conditional, and smoothed by
    the rule of thumb. Products are drawn by importance sampling from a mixture of the messages
    (Ihler et al. 2004) and of ``start`` (N, K), points that stand for the local potentials.
    """
    size, width = len(network.target), start.shape[1]
    box, there = network.inbox
    centres, bandwidth = np.zeros((size, width)), np.ones(size)
    weights = np.zeros((size, width))  # log weights of the components

    def evaluate(which, x):
        """Log of messages ``which`` (k,) at points x (k, K)."""
        h = bandwidth[which][:, None, None]
        squares = -0.5 * ((x[:, :, None] - centres[which][:, None, :]) / h) ** 2
        return logsumexp(squares + weights[which][:, None, :], axis=2) - np.log(h[:, :, 0])

    x, first = start, True
    parts = np.zeros((network.nodes, box.shape[1], width))
    while True:
        # importance sampling: half of the points from the messages, half from the start
        if not first:
            pick = rng.integers(box.shape[1], size=x.shape) % there.sum(axis=1)[:, None]
            which = np.take_along_axis(box, pick, 1)
            k = _resampled(_softmax(weights), rng)[which, np.arange(width)]
            drawn = centres[which, k] + bandwidth[which] * rng.normal(size=x.shape)
            x = np.where(np.arange(width) % 2 == 0, drawn, start)
            for slot in range(box.shape[1]):
                parts[:, slot] = np.where(there[:, slot, None], evaluate(box[:, slot], x), 0.0)
        local = log_local(x)
        spread = 1.06 * start.std(axis=1, keepdims=True) * width**-0.2 + TINY
        near = logsumexp(-0.5 * ((x[:, :, None] - start[:, None, :]) / spread[..., None]) ** 2, 2)
        q = near - np.log(width * spread * np.sqrt(2.0 * np.pi))
        if not first:
            scaled = np.where(there[:, :, None], parts, -np.inf)
            norm = logsumexp(weights, axis=1)[box][:, :, None] + 0.5 * np.log(2.0 * np.pi)
            mixed = logsumexp(scaled - norm, axis=1) - np.log(there.sum(axis=1))[:, None]
            q = np.logaddexp(q, mixed)
        belief = local + parts.sum(axis=1) - q
        new = [np.empty_like(a) for a in (centres, weights)]
        for template, side, some in network.groups:
            s = network.source[some]
            slot = np.argmax(box[s] == (some ^ 1)[:, None], axis=1)
            pick = _resampled(_softmax(belief[s] - parts[s, slot]), rng)
            at = pairs[template].sample(np.take_along_axis(x[s], pick, 1), 1 - side, rng)
            # the conditional has the target's marginal in it, which belongs to the node
            w = -pairs[template].log_marginal(at, side)
            new[0][some], new[1][some] = at, w - logsumexp(w, axis=1, keepdims=True)
        centres, weights, first = *new, False
        p = np.exp(weights)
        middle = np.sum(p * centres, axis=1, keepdims=True)
        deviation = np.sqrt(np.sum(p * (centres - middle) ** 2, axis=1))
        bandwidth = 1.06 * deviation * width**-0.2 + 1e-6 * np.ptp(start)
        for slot in range(box.shape[1]):
            parts[:, slot] = np.where(there[:, slot, None], evaluate(box[:, slot], x), 0.0)
        yield x, _softmax(local + parts.sum(axis=1) - q)


def _softmax(logs):
    w = np.exp(logs - logs.max(axis=1, keepdims=True))
    return w / w.sum(axis=1, keepdims=True)


def _resampled(weights, rng):
    """Draw indices (N, K) by weights (N, K), systematically."""
    n, k = weights.shape
    u = (np.arange(k) + rng.random((n, 1))) / k
    cut = np.cumsum(weights, axis=1)
    cut[:, -1] = 1.0
    flat = np.searchsorted(
        (cut + np.arange(n)[:, None]).ravel(), (u + np.arange(n)[:, None]).ravel()
    )
    return np.minimum(flat - np.repeat(np.arange(n) * k, k), k - 1).reshape(n, k)
