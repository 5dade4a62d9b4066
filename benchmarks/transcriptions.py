"""IW22 Algorithms 1 and 2 and KBR13 Figure 1, typed in line by line: slow references, test oracles.

Everything is as the papers print it: diagonal matrices are n x n, inverses are inverted, weights
sum to n, ridges are on the papers' own scales, and the letters are the papers'. Against the library
(whose weights gamma sum to about one) the scales are

=======================  ===========================  =========================
ridge                    theirs                       ours
=======================  ===========================  =========================
first                    eta, epsilon_n               the same
second, IW22 Alg. 1      lambda                       lambda / n
second, KBR13 Fig. 1     delta_n                      delta_n / n^2
=======================  ===========================  =========================

KBR13 writes X for what is hidden and Y for what is observed; IW22 writes z and x, as we do.
"""

from __future__ import annotations

import numpy as np


def iw22_line_2(G_Z: np.ndarray, g_Pi: np.ndarray, eta: float) -> np.ndarray:
    """Density ratio r-hat (n,) by KuLSIF."""
    n = len(G_Z)
    inverse = np.linalg.inv(G_Z + n * eta * np.eye(n))
    return np.maximum(0.0, n * inverse @ g_Pi)


def iw22_line_3(G_X: np.ndarray, r: np.ndarray, g_x: np.ndarray, lam: float) -> np.ndarray:
    """Posterior weights w (n,)."""
    n = len(G_X)
    D = np.diag(r)
    root = np.sqrt(D)  # of a diagonal matrix, entry by entry
    return root @ np.linalg.inv(root @ G_X @ root + lam * np.eye(n)) @ root @ g_x


def iw22_algorithm_1(
    G_X: np.ndarray,
    G_Z: np.ndarray,
    g_Pi: np.ndarray,
    g_x: np.ndarray,
    eta: float,
    lam: float,
) -> np.ndarray:
    """Posterior weights (n,) of the importance rule: lines 2 and 3, Gram matrices given."""
    return iw22_line_3(G_X, iw22_line_2(G_Z, g_Pi, eta), g_x, lam)


def kbr13_step_2(G_X: np.ndarray, m_Pi: np.ndarray, epsilon: float) -> np.ndarray:
    """Prior weights mu-hat (n,) on the training sample."""
    n = len(G_X)
    return n * np.linalg.inv(G_X + n * epsilon * np.eye(n)) @ m_Pi


def kbr13_step_3(G_Y: np.ndarray, mu: np.ndarray, delta: float) -> np.ndarray:
    """Return R_{X|Y} (n, n)."""
    n = len(G_Y)
    Lambda = np.diag(mu)
    product = Lambda @ G_Y
    return product @ np.linalg.inv(product @ product + delta * np.eye(n)) @ Lambda


def kbr13_figure_1(
    G_X: np.ndarray,
    G_Y: np.ndarray,
    m_Pi: np.ndarray,
    k_y: np.ndarray,
    epsilon: float,
    delta: float,
) -> np.ndarray:
    """Posterior weights rho (n,) of the original rule: steps 2 and 3, Gram matrices given."""
    return kbr13_step_3(G_Y, kbr13_step_2(G_X, m_Pi, epsilon), delta) @ k_y


def iw22_algorithm_2_line_4(G_Z: np.ndarray, w: np.ndarray, lam: float) -> np.ndarray:
    """Weights w^(t, t+1) (T,) of the prediction from w^(t, t); lam is the paper's lambda'."""
    T = len(G_Z)
    G = G_Z[:-1, :-1]
    G_tilde = G_Z[:-1, :]
    ahead = np.linalg.inv(G + (T - 1) * lam * np.eye(T - 1)) @ G_tilde @ w
    return np.concatenate([np.zeros(1), ahead])


def iw22_algorithm_2(
    G_X: np.ndarray,
    G_Z: np.ndarray,
    G_new: np.ndarray,
    eta: float,
    lam: float,
    lam_transition: float,
) -> np.ndarray:
    """Return weights w^(t, t), one row per step; G_new (T, steps) is k_X(training, test)."""
    T = len(G_Z)
    w = np.full(T, 1.0 / T)
    found = []
    for g_x in G_new.T:
        w = iw22_algorithm_1(G_X, G_Z, G_Z @ w, g_x, eta, lam)
        found.append(w)
        w = iw22_algorithm_2_line_4(G_Z, w, lam_transition)
    return np.array(found)
