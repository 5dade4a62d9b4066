"""What a learned filter is compared with: filters that know the model, and methods without memory.

``kalman``, ``extended_kalman``, ``unscented_kalman`` and ``particle_filter`` are given the true
model. ``knn_log_likelihood`` (Vlassis et al. 2002) and ``gp_log_likelihood`` (Ferris et al. 2006)
learn the likelihood from pairs; the particle filter then runs on the true transition.
``nearest_neighbours`` and ``kernel_regression`` predict every state from its own observation.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh
from scipy.spatial.distance import cdist, pdist
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.neighbors import NearestNeighbors


def _update(m, P, x, predicted, S, cross):
    """Condition a Gaussian (m, P) on x, with the joint moments of state and observation."""
    gain = np.linalg.solve(S, cross.T).T
    P = P - gain @ S @ gain.T
    return m + gain @ (x - predicted), (P + P.T) / 2.0


def kalman(X, A, H, Q, R, m, P):
    """Kalman filter: filtered means (T, d); (m, P) is the prior of the first state."""
    means = []
    for t, x in enumerate(X):
        if t:
            m, P = A @ m, A @ P @ A.T + Q
        m, P = _update(m, P, x, H @ m, H @ P @ H.T + R, P @ H.T)
        means.append(m)
    return np.array(means)


def fitted_kalman(xs, zs, new, controls=None, acts=None):
    """Linear Kalman filter with velocity, fitted to sequences: means (T, d) of each new one.

    State: position and its last difference; transition (with controls, if there are any) and
    observation are least-squares fits, noises their residual covariances. Rows of NaN are steps
    without an observation.
    """
    if controls is None or controls[0] is None:
        controls, acts = [None] * len(xs), [None] * len(new)
    states, before, after, seen, moves = [], [], [], [], []
    for x, z, u in zip(xs, zs, controls, strict=True):
        s = np.hstack([z, np.vstack([np.zeros_like(z[:1]), np.diff(z, axis=0)])])
        states.append(s)
        seen.append(x)
        before.append(s[:-1])
        after.append(s[1:])
        moves.append(np.empty((len(s) - 1, 0)) if u is None else u[1:])
    S, X, P, N, U = map(np.concatenate, (states, seen, before, after, moves))
    d = S.shape[1]

    def least_squares(A, B):
        A = np.hstack([A, np.ones((len(A), 1))])
        ridge = 1e-8 * np.trace(A.T @ A) / A.shape[1]
        C = np.linalg.solve(A.T @ A + ridge * np.eye(A.shape[1]), A.T @ B).T
        noise = (B - A @ C.T).T @ (B - A @ C.T) / len(A)
        return C, noise + 1e-6 * np.trace(noise) / len(noise) * np.eye(len(noise))

    F, Q = least_squares(np.hstack([P, U]), N)
    known = np.isfinite(X).all(axis=1)
    H, R = least_squares(S[known], X[known])
    found = []
    for x, u in zip(new, acts, strict=True):
        m, C, means = S.mean(axis=0), np.cov(S.T) + 1e-9 * np.eye(d), []
        for t, row in enumerate(x):
            if t:
                m = F @ np.concatenate([m, [] if u is None else u[t], [1.0]])
                C = F[:, :d] @ C @ F[:, :d].T + Q
            G = H[:, :d]
            if np.isfinite(row).all():
                m, C = _update(m, C, row, G @ m + H[:, d], G @ C @ G.T + R, C @ G.T)
            means.append(m[: d // 2])
        found.append(np.array(means))
    return found


def jacobian(f, z, step=1e-5):
    """Jacobian (q, d) of a vectorised function at one point, by central differences."""
    shifts = step * np.eye(len(z))
    return ((f(z + shifts) - f(z - shifts)) / (2.0 * step)).T


def extended_kalman(X, model, m, P):
    """EKF with the true model: filtered means (T, d)."""
    means = []
    for t, x in enumerate(X):
        if t:
            A = jacobian(model.move, m)
            m, P = model.move(m[None])[0], A @ P @ A.T + model.Q
        H = jacobian(model.see, m)
        m, P = _update(m, P, x, model.see(m[None])[0], H @ P @ H.T + model.R, P @ H.T)
        means.append(m)
    return np.array(means)


def sigma_points(m, P, kappa):
    """Points (2 d + 1, d) and weights of the unscented transform (Julier and Uhlmann 2004)."""
    root = np.linalg.cholesky((len(m) + kappa) * P)
    weights = np.full(2 * len(m) + 1, 0.5 / (len(m) + kappa))
    weights[0] = kappa / (len(m) + kappa)
    return np.vstack([m, m + root.T, m - root.T]), weights


def _moments(points, values, weights):
    """Mean of the values, their covariance, and the covariance of points and values."""
    mean = weights @ values
    spread = (values - mean) * weights[:, None]
    return mean, (values - mean).T @ spread, (points - weights @ points).T @ spread


def unscented_kalman(X, model, m, P, kappa=1.0):
    """UKF with the true model: filtered means (T, d)."""
    means = []
    for t, x in enumerate(X):
        if t:
            points, weights = sigma_points(m, P, kappa)
            m, P, _ = _moments(points, model.move(points), weights)
            P = P + model.Q
        points, weights = sigma_points(m, P, kappa)
        predicted, S, cross = _moments(points, model.see(points), weights)
        m, P = _update(m, P, x, predicted, S + model.R, cross)
        means.append(m)
    return np.array(means)


def systematic(weights, rng):
    """Draw indices by systematic resampling from weights that sum to one."""
    steps = (rng.uniform() + np.arange(len(weights))) / len(weights)
    return np.minimum(np.searchsorted(np.cumsum(weights), steps), len(weights) - 1)


def particle_filter(X, model, rng, particles=5000, controls=None, log_likelihood=None):
    """Bootstrap particle filter (Gordon et al. 1993): filtered means (T, d).

    ``log_likelihood`` (x, z) -> (m,) replaces the model's own. A step where no particle has
    positive likelihood keeps the prediction.
    """
    score = model.log_likelihood if log_likelihood is None else log_likelihood
    z = model.initial(particles, rng)
    means = []
    for t, x in enumerate(X):
        if t:
            z = model.transition(z, rng, None if controls is None else controls[t])
        log_weights = score(x, z)
        top = np.max(log_weights)
        weights = np.exp(log_weights - top) if np.isfinite(top) else np.ones(len(z))
        weights /= np.sum(weights)
        means.append(weights @ z)
        z = z[systematic(weights, rng)]
    return np.array(means)


def knn_log_likelihood(X, Z, k, bandwidth):
    """Likelihood of kNN-PF: density at z of the states of the k examples nearest to x.

    Vlassis et al. (2002) put p(z | x), learned by k nearest neighbours, in the place of the
    likelihood, which is right up to the marginal of z.
    """
    index = NearestNeighbors(n_neighbors=k).fit(X)

    def score(x, z):
        near = Z[index.kneighbors(x[None], return_distance=False)[0]]
        return np.logaddexp.reduce(-0.5 * cdist(z, near, "sqeuclidean") / bandwidth**2, axis=1)

    return score


def gp_log_likelihood(X, Z, rng, pairs=300):
    """Likelihood of GP-PF: independent Gaussian processes from z to every coordinate of x.

    The marginal likelihood is maximised on some of the pairs; all of them are then conditioned on.
    """
    kernel = ConstantKernel(1.0) * RBF(1.0) + WhiteKernel(0.1, (1e-8, 1e5))
    some = rng.permutation(len(Z))[:pairs]
    fits = []
    for x in X.T:
        first = GaussianProcessRegressor(kernel, normalize_y=True).fit(Z[some], x[some])
        fits.append(
            GaussianProcessRegressor(first.kernel_, optimizer=None, normalize_y=True).fit(Z, x)
        )
    grid = None
    if Z.shape[1] == 1:  # one state dimension: predict once, on a grid
        low, high = Z.min() - 3.0 * Z.std(), Z.max() + 3.0 * Z.std()
        grid = np.linspace(low, high, 500)
        table = [fit.predict(grid[:, None], return_std=True) for fit in fits]

    def score(x, z):
        total = np.zeros(len(z))
        for j, fit in enumerate(fits):
            if grid is None:
                mean, deviation = fit.predict(z, return_std=True)
            else:
                mean, deviation = (np.interp(z[:, 0], grid, values) for values in table[j])
            total -= 0.5 * ((x[j] - mean) / deviation) ** 2 + np.log(deviation)
        return total

    return score


# Methods without memory, and the tuning of all that learn


def halves(n):
    """Two-fold cross-validation over the halves of a sequence (KBR13 section 5.3)."""
    first, second = np.arange(n // 2), np.arange(n // 2, n)
    return [(first, second), (second, first)]


def squared(estimate, truth):
    """Squared error (T,), summed over dimensions."""
    return np.sum((estimate - truth) ** 2, axis=1)


def distance(estimate, truth):
    """Euclidean error (T,)."""
    return np.linalg.norm(estimate - truth, axis=1)


def choose(candidates, score):
    """Candidate with the least score; the first one among equals."""
    return min(candidates, key=lambda candidate: score(*candidate))


def nearest_neighbours(X, Z, new, k):
    """Mean state (T, d) of the k training observations nearest to each new one."""
    index = NearestNeighbors(n_neighbors=min(k, len(X))).fit(X)
    return Z[index.kneighbors(new, return_distance=False)].mean(axis=1)


NEIGHBOURS = (1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200)


def tuned_neighbours(X, Z, new, folds, error=squared):
    """Nearest neighbours with k chosen on the folds (train, validation) of the training part."""

    def score(k):
        return sum(np.sum(error(nearest_neighbours(X[a], Z[a], X[b], k), Z[b])) for a, b in folds)

    (k,) = choose([(k,) for k in NEIGHBOURS if k <= len(folds[0][0])], score)
    return nearest_neighbours(X, Z, new, k), k


def kernel_regression(X, Z, new, scale, ridges):
    """Kernel ridge regression (ridges, T, d) of the state on the observation, for all ridges.

    This is the mean of the conditional embedding: static, with no transition.
    """
    width = scale * np.median(pdist(X[:: len(X) // 1000 + 1]))
    values, vectors = eigh(np.exp(-0.5 * cdist(X, X, "sqeuclidean") / width**2))
    centre = Z.mean(axis=0)
    K = np.exp(-0.5 * cdist(new, X, "sqeuclidean") / width**2) @ vectors
    target = vectors.T @ (Z - centre)
    shrunk = 1.0 / (np.maximum(values, 0.0)[None] + len(X) * np.asarray(ridges)[:, None])
    return np.stack([K @ (s[:, None] * target) for s in shrunk]) + centre


SCALES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
RIDGES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)


def tuned_regression(X, Z, new, folds, error=squared):
    """Kernel regression with bandwidth and ridge chosen on folds of the training part."""
    table = np.zeros((len(SCALES), len(RIDGES)))
    for a, b in folds:
        for i, scale in enumerate(SCALES):
            estimates = kernel_regression(X[a], Z[a], X[b], scale, RIDGES)
            table[i] += [np.sum(error(estimate, Z[b])) for estimate in estimates]
    i, j = np.unravel_index(np.argmin(table), table.shape)
    return kernel_regression(X, Z, new, SCALES[i], [RIDGES[j]])[0], (SCALES[i], RIDGES[j])


def tuned_knn_filter(train, test, model, rng, particles=5000, steps=200):
    """kNN-PF; k and the bandwidth of the state are chosen on the halves of the training part.

    Of each half, the first 200 steps are filtered.
    """
    spread = np.std(train.Z)
    folds = [(a, b[:steps]) for a, b in halves(len(train.X))]

    def run(a, b, k, share, size):
        learned = knn_log_likelihood(train.X[a], train.Z[a], k, share * spread)
        controls = None if train.controls is None else train.controls[b]
        return particle_filter(train.X[b], model, rng, size, controls, learned)

    def score(k, share):
        return sum(np.sum(squared(run(a, b, k, share, 500), train.Z[b])) for a, b in folds)

    grid = [(k, share) for k in (3, 10, 30, 100) for share in (0.1, 0.3, 1.0)]
    k, share = choose([c for c in grid if c[0] <= len(train.X) // 4], score)
    learned = knn_log_likelihood(train.X, train.Z, k, share * spread)
    return particle_filter(test.X, model, rng, particles, test.controls, learned)
