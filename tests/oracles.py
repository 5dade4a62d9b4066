"""Closed forms and literal formulas that several tests compare with; plain NumPy, no shortcuts."""

from __future__ import annotations

import numpy as np


def gaussian_measure_value(x, mean, cov, bandwidth):
    """E[k(x, X)] for X ~ N(mean, cov) and the Gaussian kernel, as printed in text books."""
    mean = np.atleast_1d(np.asarray(mean, dtype=float))
    H = np.diag(np.broadcast_to(np.square(bandwidth), mean.shape))
    S = H + np.atleast_2d(cov)
    delta = np.atleast_1d(x) - mean
    ratio = np.linalg.det(H) / np.linalg.det(S)
    return np.sqrt(ratio) * np.exp(-0.5 * delta @ np.linalg.inv(S) @ delta)


def gaussian_measure_inner(mean1, cov1, mean2, cov2, bandwidth):
    """E[k(X, Y)] for independent X ~ N(mean1, cov1) and Y ~ N(mean2, cov2)."""
    return gaussian_measure_value(mean2, mean1, np.add(cov1, cov2), bandwidth)


def gaussian_measure_mmd2(mean1, cov1, mean2, cov2, bandwidth):
    """Squared MMD of N(mean1, cov1) and N(mean2, cov2) under the Gaussian kernel."""
    return (
        gaussian_measure_inner(mean1, cov1, mean1, cov1, bandwidth)
        + gaussian_measure_inner(mean2, cov2, mean2, cov2, bandwidth)
        - 2.0 * gaussian_measure_inner(mean1, cov1, mean2, cov2, bandwidth)
    )


def quadrature(f, low=-30.0, high=30.0, nodes=4001):
    """Integral of a smooth f that vanishes at both ends: the trapezoidal rule is then exact."""
    x, step = np.linspace(low, high, nodes, retstep=True)
    return step * np.sum(f(x))


def normal_density(x, mean, variance):
    return np.exp(-0.5 * (x - mean) ** 2 / variance) / np.sqrt(2.0 * np.pi * variance)


def mmd2_double_loop(X, Y, k, unbiased=False):
    """Squared MMD of two samples, term by term; ``k`` is a function of two single points."""

    def average(A, B, skip):
        terms = [k(a, b) for i, a in enumerate(A) for j, b in enumerate(B) if not (skip and i == j)]
        return sum(terms) / len(terms)

    within = average(X, X, unbiased) + average(Y, Y, unbiased)
    return within - 2.0 * average(X, Y, False)


def ridge_solve(G, eta, B):
    """(G + n eta I)^-1 B."""
    n = len(G)
    return np.linalg.inv(G + n * eta * np.eye(n)) @ B


def weighted_solve(G, r, ridge, B):
    """S (S G S + ridge I)^-1 S B with S = sqrt(diag(r)) (IW22, importance form)."""
    S = np.diag(np.sqrt(r))
    return S @ np.linalg.inv(S @ G @ S + ridge * np.eye(len(G))) @ S @ B


def signed_solve(G, d, ridge, B):
    """D G ((D G)^2 + ridge I)^-1 D B with D = diag(d) (KBR13, Figure 1)."""
    D = np.diag(d)
    DG = D @ G
    return DG @ np.linalg.inv(DG @ DG + ridge * np.eye(len(G))) @ D @ B
