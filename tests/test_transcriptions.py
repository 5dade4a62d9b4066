"""Posterior weights equal those of the papers' algorithms, after the documented change of scale."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import kernelbayes as kb

PATH = Path(__file__).parent.parent / "benchmarks" / "transcriptions.py"
if not PATH.exists():
    pytest.skip("the benchmarks are not part of this distribution", allow_module_level=True)
SPEC = importlib.util.spec_from_file_location("transcriptions", PATH)
literal = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(literal)

N = 60
ETA = 1e-3


@pytest.fixture(scope="module", params=[0, 1, 2])
def case(request):
    """Pairs, kernels, a weighted prior with points of its own, new observations."""
    rng = np.random.default_rng(request.param)
    Z = rng.normal(size=(N, 2))
    X = np.sin(Z) + 0.3 * rng.normal(size=(N, 2))
    kernel_x, kernel_z = kb.Gaussian.median(X), kb.Gaussian.median(Z)
    weights = rng.normal(0.1, 0.2, size=20)
    prior = kb.embed(0.5 + rng.normal(size=(20, 2)), kernel_z, weights / weights.sum())
    likelihood = kb.ConditionalEmbedding(kernel_z, kernel_x, ETA).fit(Z, X)
    return likelihood, prior, X[:5] + 0.1


def close(found, expected):
    # The literal inverses lose up to the condition number, below 1e6 for these ridges.
    assert np.abs(found - expected).max() <= 1e-9 * np.abs(expected).max()


def test_prior_weights_times_n_are_the_papers(case):
    cme, prior, _ = case
    G_Z, m = cme.kernel_x_(cme.X_), prior(cme.X_)
    gamma = cme.apply(prior)
    assert (gamma < 0).any()  # the two rules differ
    close(N * gamma, literal.kbr13_step_2(G_Z, m, ETA))
    close(N * np.maximum(gamma, 0.0), literal.iw22_line_2(G_Z, m, ETA))


@pytest.mark.parametrize("lam", [0.2, 1e-2])
def test_importance_rule_is_algorithm_1_with_lambda_over_n(case, lam):
    cme, prior, queries = case
    G_X, G_Z = cme.kernel_z_(cme.Z_), cme.kernel_x_(cme.X_)
    found = kb.bayes_rule(cme, prior, ridge=lam / N)(queries).weights
    for x, w in zip(queries, found, strict=True):
        g_x = cme.kernel_z_(cme.Z_, x[None])[:, 0]
        close(w, literal.iw22_algorithm_1(G_X, G_Z, prior(cme.X_), g_x, ETA, lam))


@pytest.mark.parametrize("delta", [0.2, 1e-2])
def test_original_rule_is_figure_1_with_delta_over_n_squared(case, delta):
    cme, prior, queries = case
    G_X, G_Z = cme.kernel_z_(cme.Z_), cme.kernel_x_(cme.X_)
    found = kb.bayes_rule(cme, prior, "original", ridge=delta / N**2)(queries).weights
    for y, w in zip(queries, found, strict=True):
        k_y = cme.kernel_z_(cme.Z_, y[None])[:, 0]
        close(w, literal.kbr13_figure_1(G_Z, G_X, prior(cme.X_), k_y, ETA, delta))
