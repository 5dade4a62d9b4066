"""Mistakes in arguments are refused in our own words, never by NumPy's or Python's."""

import ast
import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import kernelbayes as kb

rng = np.random.default_rng(0)
X = rng.normal(size=(12, 2))
Z = X @ [[1.0, 0.2], [0.3, 1.0]] + 0.3 * rng.normal(size=(12, 2))
K = kb.Gaussian(1.0)
MU, BATCH = kb.embed(X, K), kb.embed(X, K, np.ones((3, 12)) / 12)
CME = kb.ConditionalEmbedding(K, K, 0.01).fit(X, Z)
RULE = kb.KernelBayesRule(K, K, prior_ridge=0.01, ridge=0.01).fit(X, Z)
THETA = rng.normal(size=(30, 1))
PRIOR = kb.as_prior(stats.norm())
FEW = {"permutations": 20, "rng": 0}
BAD = {
    "text": "x",
    "digits": "1.0",
    "complex": 1j,
    "nan": np.nan,
    "huge": 10**400,
    "object": object(),
    "class": kb.Gaussian,
    "array": np.ones((2, 3)),
    "empty": np.empty((0, 2)),
    "dates": np.array(["2026-01-01"] * 12, "M8[D]"),
    "date": datetime.date(2026, 1, 1),
    "NA": pd.NA,
    "ragged": [[1.0, 2.0], [3.0]],
    "frame": pd.DataFrame({"q": [1.0]}),
    "map": map(float, [1.0]),
    "set": {1.0},
    "bytes": b"1",
}
# Every argument that is a number, an option, a flag, a function, a kernel or a model.
CALLS = {
    "bandwidth": kb.Gaussian,
    "nu": lambda v: kb.Matern(1.0, v),
    "period": lambda v: kb.Periodic(1.0, v),
    "degree": kb.Polynomial,
    "offset": lambda v: kb.Polynomial(2, v),
    "Spectrum": kb.Spectrum,
    "normalized": lambda v: kb.Spectrum(2, v),
    "levels": kb.SpatialPyramid,
    "transform": lambda v: kb.Warped(K, v),
    "warped": kb.Warped,
    "scale": lambda v: kb.Gaussian.median(X, v),
    "per_dimension": lambda v: kb.Gaussian.median(X, per_dimension=v),
    "scaled": K.scaled,
    "nystrom": lambda v: kb.nystrom(v, X, 2, rng=0),
    "rank": lambda v: kb.nystrom(K, X, v, rng=0),
    "tol": lambda v: kb.pivoted_cholesky(K, X, tol=v, rng=0),
    "landmarks": lambda v: kb.nystrom(K, X, 2, rng=0, landmarks=v),
    "dim": lambda v: kb.fourier(K, v, 2, rng=0),
    "fourier rank": lambda v: kb.fourier(K, 2, v, rng=0),
    "rng": lambda v: kb.nystrom(K, X, 2, rng=v),
    "embed": lambda v: kb.embed(X, v),
    "weights": lambda v: kb.embed(X, K, v),
    "factor": lambda v: MU * v,
    "divisor": lambda v: MU / v,
    "inner": MU.inner,
    "mmd": lambda v: kb.mmd(MU, v),
    "unbiased": lambda v: kb.mmd2(MU, MU, v),
    "moment": MU.moment,
    "region": lambda v: MU.prob(v) if not callable(v) else MU.prob("x"),
    "valid": lambda v: MU.prob((0.0, 1.0), v),
    "q": lambda v: MU.quantile(v) if not hasattr(v, "shape") else MU.quantile("x"),
    "level": MU.interval,
    "kind": lambda v: MU.interval(0.9, v),
    "density": lambda v: MU.density(X, v),
    "starts": MU.mode,
    "by": lambda v: MU.mode(by=v),
    "components": lambda v: MU.mixture(v, rng=0),
    "covariance": lambda v: MU.mixture(1, rng=0, covariance=v),
    "sample": lambda v: MU.sample(v, rng=0),
    "sample method": lambda v: MU.sample(2, rng=0, method=v),
    "smoothing": lambda v: MU.sample(2, rng=0, method="iid", bandwidth=v),
    "herd": lambda v: kb.herd(MU, v),
    "herded": lambda v: kb.herd(v, 2),
    "compress": lambda v: kb.compress(MU, 2, method=v),
    "anywhere": lambda v: kb.compress(MU, 2, anywhere=v),
    "rows": lambda v: kb.compress(MU, 2, rows=v),
    "thin": lambda v: kb.thin(X, v, K),
    "sweeps": lambda v: kb.thin(X, 2, K, sweeps=v),
    "resample": lambda v: kb.resample(MU, v, threshold=np.inf),
    "ridge": lambda v: kb.ConditionalEmbedding(K, K, v).fit(X, Z),
    "kernel_x": lambda v: kb.ConditionalEmbedding(v, K).fit(X, Z),
    "output kernel": lambda v: CME(X, v),
    "ridges": lambda v: CME.loo_errors(v) if v is not BAD["nan"] else CME.loo_errors("x"),
    "sum_rule": kb.sum_rule,
    "form": lambda v: kb.sum_rule(CME, X, v),
    "method": lambda v: kb.bayes_rule(CME, X, v),
    "bayes ridge": lambda v: kb.bayes_rule(CME, X, ridge=v),
    "ratio": lambda v: kb.density_ratio(X, Z, K, v),
    "alpha": lambda v: kb.density_ratio(X, Z, K, "rulsif", 0.1, alpha=v),
    "bound": lambda v: kb.density_ratio(X, Z, K, "kmm", 0.1, bound=v),
    "prior_ridge": lambda v: kb.KernelBayesRule(prior_ridge=v).fit(X, Z),
    "normalize": lambda v: kb.KernelBayesRule(normalize=v).fit(X, Z),
    "rule rank": lambda v: kb.KernelBayesRule(K, K, rank=v, rng=0).fit(X, Z),
    "calibrate": kb.calibrate,
    "budget": lambda v: kb.tune(kb.ConditionalEmbedding(K, K), X, Z, budget=v),
    "criterion": lambda v: kb.tune(kb.KernelBayesRule(K, K), X, Z, criterion=v),
    "permutations": lambda v: kb.mmd_test(X, Z, K, v, rng=0),
    "significance": lambda v: kb.mmd_test(X, Z, K, alpha=v, **FEW),
    "test method": lambda v: kb.mmd_test(X, Z, K, method=v, **FEW),
    "test unbiased": lambda v: kb.hsic_test(X, Z, K, K, unbiased=v, **FEW),
    "block_length": lambda v: kb.mmd_test(X, Z, K, method="wild", block_length=v, **FEW),
    "block_size": lambda v: kb.mmd_test(X, Z, K, method="block", block_size=v, **FEW),
    "split": lambda v: kb.mmd_test(X, Z, "power", split=v, **FEW),
    "centrality": lambda v: kb.mmd_aggregated(X, Z, [K], centrality=v, **FEW),
    "draws": lambda v: PRIOR.sample(v, 0),
    "n_simulations": lambda v: kb.simulate(lambda t, rng: t, PRIOR, v, rng=0),
    "on_failure": lambda v: kb.simulate(lambda t, rng: t, PRIOR, 5, rng=0, on_failure=v),
    "fraction": lambda v: kb.reject_abc(THETA, THETA, 0.5, fraction=v),
    "tolerance": lambda v: kb.reject_abc(THETA, THETA, 0.5, tolerance=v),
    "LF method": lambda v: kb.LikelihoodFree(PRIOR, v, rng=0).fit(THETA, THETA),
    "LF criterion": lambda v: kb.LikelihoodFree(PRIOR, criterion=v, rng=0).fit(THETA, THETA),
    "filter method": lambda v: kb.KernelBayesFilter(K, K, method=v).fit(X, Z),
    "filter ridge": lambda v: kb.KernelBayesFilter(K, K, ridge=v).fit(X, Z),
    "filter kernel": lambda v: kb.KernelBayesFilter(v).fit(X, Z),
}
# A seed may be as large as it likes, and a box (low, high) may have one end for all coordinates.
RIGHT = {("rng", "huge"), ("region", "ragged")}


def in_our_words(error):
    """Whether an exception comes from a ``raise`` of the library."""
    last = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    path = Path(last.tb_frame.f_code.co_filename)
    if "kernelbayes" not in path.parts:
        return False
    raises = (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Raise))
    return any(n.lineno <= last.tb_lineno <= n.end_lineno for n in raises)


@pytest.mark.filterwarnings("ignore::kernelbayes.NumericalWarning")
@pytest.mark.parametrize("argument", CALLS)
def test_mistakes_are_refused_in_our_own_words(argument):
    for name, bad in BAD.items():
        if (argument, name) in RIGHT:
            continue
        with pytest.raises((ValueError, TypeError)) as caught:
            CALLS[argument](bad)
        assert in_our_words(caught.value), f"{name}: {caught.value!r}"


RECORDS = np.zeros(12, dtype=[("a", float), ("b", int)])
NORMALS = kb.as_prior([stats.norm(), stats.norm()])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: kb.ConditionalEmbedding().fit(X, RECORDS), "array of records"),
        (lambda: NORMALS.cdf([[0.0, np.nan]]), "theta has NaN"),
        (lambda: NORMALS.ppf([[0.5, np.nan]]), "u has NaN"),
        (lambda: kb.as_prior(np.sin), "function"),
        (lambda: kb.Parts({0: K})(np.empty((3, 0))), "shape"),
        (lambda: kb.KernelBayesRule().fit(np.empty((12, 0)), Z), "X is empty"),
        (lambda: kb.KernelBayesRule().fit(X, Z[:0]), "y is empty"),
        (lambda: kb.KernelBayesRule().fit(X + 1j, Z), "X must be real"),
        (lambda: kb.sbc(kb.KernelBayesRule, theta=X, x=Z, rng=0), "no class"),
        (lambda: kb.pair_plot(X, truth=np.zeros((2, 1, 1, 1))), "truth must have shape"),
        (lambda: kb.pair_plot(X, truth=[0.0, np.inf]), "truth has NaN or infinite"),
        (lambda: kb.pair_plot(np.where(X.mean() < X, -np.inf, X)), "draws has NaN or infinite"),
    ],
)
def test_what_is_no_data_is_refused(call, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call()
