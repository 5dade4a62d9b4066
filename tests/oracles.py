"""Closed forms and literal formulas that several tests compare with; plain NumPy, no shortcuts."""

from __future__ import annotations

import numpy as np

from kernelbayes import embed, mmd2
from kernelbayes.arrays import epsilon, to_numpy
from kernelbayes.points import take


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


# --- probability tables --------------------------------------------------------------------------


def samples_of(counts):
    """Pairs (a, b) whose empirical distribution is counts / sum exactly; row a, column b."""
    a, b = np.nonzero(counts)
    repeats = counts[a, b]
    return np.repeat(a, repeats), np.repeat(b, repeats)


def conditional_table(counts):
    """P(b | a) from counts (rows a)."""
    return counts / counts.sum(axis=1, keepdims=True)


def joint_table(counts, prior):
    """P(a, b) = P(b | a) prior(a)."""
    return conditional_table(counts) * np.asarray(prior)[:, None]


def posterior_table(counts, prior):
    """P(a | b) in row b, by Bayes' rule; rows of NaN where P(b) = 0."""
    joint = joint_table(counts, prior)
    with np.errstate(invalid="ignore"):
        return (joint / joint.sum(axis=0)).T


# --- linear-Gaussian -----------------------------------------------------------------------------


def linear_gaussian_posterior(x, slope, noise, mean, variance):
    """Mean and variance of z given x = slope z + N(0, noise), z ~ N(mean, variance)."""
    gain = variance * slope / (slope**2 * variance + noise)
    return mean + gain * (np.asarray(x) - slope * mean), (1.0 - gain * slope) * variance


# --- the papers' formulas, as printed but in our scales ------------------------------------------
# G is the Gram matrix of what is conditioned on, K_u = k(training, prior points), alpha the prior's
# weights. CME13 writes G + lambda I and KBR13 and IW22 multiply gamma by n: see the notation page.


def sum_rule_weights(G, eta, K_u, alpha):
    """CME13 eq. 14 (and the diagonal of eq. 15): (G + n eta I)^-1 K_u alpha."""
    return ridge_solve(G, eta, K_u) @ alpha


def chain_rule_a(G, eta, K_u, alpha):
    """CME13 eq. 18: Lambda = (G + n eta I)^-1 K_u diag(alpha), over training x prior points."""
    return ridge_solve(G, eta, K_u) @ np.diag(alpha)


def chain_rule_b(G, eta, K_u, alpha):
    """CME13 eq. 19: diag((G + n eta I)^-1 K_u alpha), over training pairs."""
    return np.diag(sum_rule_weights(G, eta, K_u, alpha))


def iw22_algorithm_1(G_z, G_x, m_prior, k_x, eta, ridge):
    """IW22 Algorithm 1, with its factors n: r = n (G_z + n eta I)^-1 m, and n times the ridge."""
    n = len(G_z)
    r = np.maximum(0.0, n * np.linalg.inv(G_z + n * eta * np.eye(n)) @ m_prior)
    S = np.diag(np.sqrt(r))
    return S @ np.linalg.inv(S @ G_x @ S + n * ridge * np.eye(n)) @ S @ k_x


def kbr13_figure_1(G_z, G_x, m_prior, k_x, eta, delta):
    """KBR13 Figure 1, with its factor n: mu = n (G_z + n eta I)^-1 m; its delta is n^2 times ours.

    CME13 eq. 24 is the same formula.
    """
    n = len(G_z)
    mu = n * np.linalg.inv(G_z + n * eta * np.eye(n)) @ m_prior
    DG = np.diag(mu) @ G_x
    R = DG @ np.linalg.inv(DG @ DG + n**2 * delta * np.eye(n)) @ np.diag(mu)
    return R @ k_x


def cme13_equation_23(G_z, G_x, K_u, alpha, k_x, eta, delta):
    """CME13 eq. 23 without its slip: Lambda^T ((K D)^2 + delta I)^-1 K D k_x, on prior points."""
    Lambda = chain_rule_a(G_z, eta, K_u, alpha)
    KD = G_x @ np.diag(Lambda.sum(axis=1))
    return Lambda.T @ np.linalg.inv(KD @ KD + delta * np.eye(len(G_x))) @ KD @ k_x


def importance_on_prior_points(G_z, G_x, K_u, alpha, k_x, eta, ridge):
    """Form (a) of the importance rule: the pairs with r > 0, spread over the prior's points."""
    Lambda = chain_rule_a(G_z, eta, K_u, alpha)
    r = Lambda.sum(axis=1)
    on = r > 0
    S = np.diag(np.sqrt(r[on]))
    A = S @ G_x[np.ix_(on, on)] @ S + ridge * np.eye(on.sum())
    return Lambda[on].T @ np.linalg.inv(S) @ np.linalg.inv(A) @ S @ k_x[on]


# --- filters, as printed, in dense matrices -------------------------------------------------------


def transferred(G_z, w, eta):
    """KBR13 eq. 17 and IW22 Alg. 2, line 4: weights on the ends of one sequence's transitions."""
    m = len(G_z) - 1
    return np.append(0.0, np.linalg.solve(G_z[:-1, :-1] + m * eta * np.eye(m), G_z[:-1] @ w))


def kbr13_filter(G_z, G_x, K_new, epsilon, delta, first="uniform"):
    """KBR13 eq. 17 and 18; first by Bayes' rule on the training states, or by eq. 8."""
    n = len(G_z)
    eye, found = np.eye(n), []
    for t, k in enumerate(K_new.T):
        if t == 0 and first == "observation":
            found.append(np.linalg.solve(G_x + n * epsilon * eye, k))
            continue
        v = np.full(n, 1.0 / n) if t == 0 else transferred(G_z, found[-1], epsilon)
        D = np.diag(np.linalg.solve(G_z + n * epsilon * eye, G_z @ v))
        DG = D @ G_x
        found.append(DG @ np.linalg.solve(DG @ DG + delta * eye, D @ k))
    return np.array(found)


def iw22_filter(G_z, G_x, K_new, eta, ridge):
    """IW22 Algorithm 2 with one ridge of states, in weights that sum to about one."""
    n = len(G_z)
    eye, found = np.eye(n), []
    for k in K_new.T:
        v = transferred(G_z, found[-1], eta) if found else np.full(n, 1.0 / n)
        r = np.maximum(0.0, np.linalg.solve(G_z + n * eta * eye, G_z @ v))
        S = np.diag(np.sqrt(r))
        found.append(S @ np.linalg.solve(S @ G_x @ S + ridge * eye, S @ k))
    return np.array(found)


# --- density ratios ------------------------------------------------------------------------------


def kulsif_formula(K_den, K_dn, K_xd, K_xn, eta):
    """KuLSIF at points x, Kanamori et al. 2012 Theorem 1 with its lambda = eta.

    alpha = -(K_den / n + eta I)^-1 K_dn 1 / (n m eta) over the denominator, and 1 / (m eta) over
    the numerator.
    """
    n, m = K_dn.shape
    alpha = -np.linalg.solve(K_den / n + eta * np.eye(n), K_dn.sum(axis=1)) / (n * m * eta)
    return K_xd @ alpha + K_xn.sum(axis=1) / (m * eta)


def check_embedding(mu):
    """Check the laws of an embedding: evaluation, inner product, norm, algebra, distance.

    For an embedding of a few dozen points; an AssertionError says which law is broken.
    """

    def close(found, expected, tolerance, law):
        error = float(np.max(np.abs(np.asarray(found, float) - to_numpy(expected))))
        assert error <= tolerance, f"{law}: off by {error:.3e}, allowed {tolerance:.3e}"

    G, w = to_numpy(mu.kernel(mu.points)), to_numpy(mu.weights)
    scale = float(np.abs(w).sum() ** 2 * max(1.0, np.abs(G).max()))
    rounding = epsilon(mu.weights) ** (0.5 if mu.kernel.finite else 1.0)  # a factor has its root
    tolerance = 1e3 * len(w) * rounding * max(scale, 1.0)
    close(to_numpy(mu(mu.points)), G @ w, tolerance, "mu(X) = sum_i w_i k(X, x_i)")
    close(to_numpy(mu.inner(mu)), w @ G @ w, tolerance, "<mu, mu> = w^T K w")
    close(to_numpy(mu.norm()) ** 2, w @ G @ w, tolerance, "|mu|^2 = <mu, mu>")
    close(to_numpy(mu.mass), w.sum(), tolerance, "mass = sum of the weights")
    nu = embed(take(mu.points, slice(0, max(1, len(w) // 2))), mu.kernel)
    bound = float(mu.norm()) * float(nu.norm())
    assert abs(float(mu.inner(nu))) <= bound + tolerance, "Cauchy-Schwarz is broken"
    close(to_numpy((mu + nu).inner(nu)), mu.inner(nu) + nu.inner(nu), tolerance, "linearity")
    close(to_numpy((3.0 * mu).norm()), 3.0 * float(mu.norm()), tolerance, "|c mu| = c |mu|")
    close(to_numpy(mmd2(mu, nu)), (mu - nu).inner(mu - nu), tolerance, "MMD = |mu - nu|")
    close(to_numpy(mmd2(mu, mu)), 0.0, tolerance, "MMD(mu, mu) = 0")
