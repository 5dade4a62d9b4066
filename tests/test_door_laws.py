"""One law for every function that takes data: by name, missing is missing, copies are kept."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest

import kernelbayes as kb
from door import frame_of

rng = np.random.default_rng(0)
n = 30
# Columns of very different scales: read in the wrong order they give another answer.
X = rng.normal(size=(n, 2)) * [1.0, 5.0] + [0.0, 3.0]
Z = X @ [[1.0, 0.0], [0.5, 2.0]] + 0.1 * rng.normal(size=(n, 2))
Q, U = X[:4] + 0.1, Z[:20] + 0.3
KX, KZ = kb.Gaussian([1.0, 5.0]), kb.Gaussian([3.0, 9.0])
NAMES = {"x": ("a", "b"), "z": ("s", "t")}


def cme(make):
    return kb.ConditionalEmbedding(KX, KZ, 0.01).fit(make(X, "x"), make(Z, "z"))


def rule(make, prior=None):
    model = kb.KernelBayesRule(KX, KZ, prior_ridge=0.01, ridge=0.01)
    return model.fit(make(X, "x"), make(Z, "z"), prior)


def likelihood(make):
    return kb.ConditionalEmbedding(KZ, KX, 0.01).fit(make(Z, "z"), make(X, "x"))


def embedding(make):
    return kb.embed(make(X, "x"), KX)


# --- by name --------------------------------------------------------------------------------------

# What is asked, of data in the order of training (``make``) and of data to be put in order (``q``).
ASKED = {
    "kernel": lambda make, q: KX(make(X, "x"), q(Q, "x")),
    "embedding": lambda make, q: embedding(make)(q(Q, "x")),
    "density": lambda make, q: embedding(make).density(q(Q, "x")),
    "log_density": lambda make, q: embedding(make).log_density(q(Q, "x")),
    "cdf": lambda make, q: embedding(make).cdf(q(Q, "x")),
    "preimage": lambda make, q: embedding(make).preimage(q(Q, "x")),
    "herd": lambda make, q: kb.herd(embedding(make), 3, q(Q, "x")),
    "compress": lambda make, q: kb.compress(embedding(make), 3, q(Q, "x")).errors,
    "mmd": lambda make, q: kb.mmd(embedding(make), kb.embed(q(Q, "x"), KX)),
    "inner": lambda make, q: embedding(make).inner(kb.embed(q(Q, "x"), KX)),
    "sum of embeddings": lambda make, q: (embedding(make) + kb.embed(q(Q, "x"), KX)).mean(),
    "conditional": lambda make, q: cme(make)(q(Q, "x")).weights,
    "posterior": lambda make, q: rule(make).posterior(q(Q, "x")).weights,
    "predict": lambda make, q: rule(make).predict(q(Q, "x")),
    "score, X": lambda make, q: rule(make).score(q(X, "x"), make(Z, "z")),
    "score, Z": lambda make, q: rule(make).score(make(X, "x"), q(Z, "z")),
    "prior of fit": lambda make, q: rule(make, q(U, "z")).predict(make(Q, "x")),
    "prior, embedded": lambda make, q: rule(make, kb.embed(q(U, "z"), kb.Gaussian(1.0))).predict(
        make(Q, "x")
    ),
    "prior of posterior": lambda make, q: (
        rule(make).posterior(make(Q, "x"), prior=q(U, "z")).weights
    ),
    "with_prior": lambda make, q: rule(make).with_prior(q(U, "z")).predict(make(Q, "x")),
    "sum_rule": lambda make, q: kb.sum_rule(likelihood(make), q(U, "z")).weights,
    "sum_rule, embedded": lambda make, q: (
        kb.sum_rule(likelihood(make), kb.embed(q(U, "z"), KZ)).weights
    ),
    "chain_rule, a": lambda make, q: kb.chain_rule(likelihood(make), q(U, "z"), "a").weights,
    "chain_rule, b": lambda make, q: kb.chain_rule(likelihood(make), q(U, "z")).weights,
    "bayes_rule, a": lambda make, q: kb.bayes_rule(
        likelihood(make), q(U, "z"), form="a", ridge=0.01
    )(make(Q, "x")).mean(),
    "bayes_rule, b": lambda make, q: kb.bayes_rule(likelihood(make), q(U, "z"), ridge=0.01)(
        make(Q, "x")
    ).mean(),
    **{
        f"density_ratio, {method}": lambda make, q, method=method: (
            kb.density_ratio(q(U, "z"), make(Z, "z"), KZ, method, 0.01, rng=0).at_denominator
        )
        for method in ("kulsif", "rulsif", "ulsif", "kmm")
    },
    "density_ratio, embedded": lambda make, q: (
        kb.density_ratio(kb.embed(q(U, "z"), KZ), make(Z, "z"), KZ, ridge=0.01).at_denominator
    ),
    "ratio": lambda make, q: kb.density_ratio(make(U, "z"), make(Z, "z"), KZ, ridge=0.01).ratio(
        q(Z, "z")
    ),
}
every_question = pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED.keys())
every_frame = pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, dict])


@every_frame
@every_question
def test_columns_are_put_in_order(ask, kind):
    def make(values, role):
        return frame_of(kind, values, NAMES[role])

    expected = ask(lambda values, _: values, lambda values, _: values)
    found = ask(make, lambda values, role: frame_of(kind, values, NAMES[role], order=(1, 0)))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@every_frame
@every_question
def test_other_columns_are_refused_with_both_lists(ask, kind):
    def make(values, role):
        return frame_of(kind, values, NAMES[role])

    with pytest.raises(ValueError, match=r"\['[as]', 'other'\].*\['[as]', '[bt]'\]"):
        ask(make, lambda values, role: frame_of(kind, values, NAMES[role], renamed=True))


ROWS = {
    "mapping": lambda: {"b": Q[0, 1], "a": Q[0, 0]},
    "pandas row": lambda: pd.DataFrame({"b": Q[:, 1], "a": Q[:, 0]}).iloc[0],
    "polars row": lambda: pl.DataFrame({"b": Q[:, 1], "a": Q[:, 0]}).row(0, named=True),
    "vector": lambda: Q[0],
    "series without labels": lambda: pd.Series(Q[0]),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_one_observation_is_read_by_name(row):
    frames = lambda values, role: frame_of(pd.DataFrame, values, NAMES[role])  # noqa: E731
    for ask in (cme(frames), rule(frames).posterior):
        found = ask(row())
        assert isinstance(found, kb.Embedding)
        np.testing.assert_allclose(found.weights, ask(Q)[0].weights, rtol=1e-9, atol=1e-12)


def test_an_observation_of_other_names_is_refused():
    frames = lambda values, role: frame_of(pd.DataFrame, values, NAMES[role])  # noqa: E731
    for row in ({"a": 1.0, "c": 2.0}, pd.Series({"a": 1.0, "c": 2.0}), {"a": 1.0}):
        with pytest.raises(ValueError, match=r"\['a'.*\].*\['a', 'b'\]"):
            cme(frames)(row)


# --- missing --------------------------------------------------------------------------------------


def hidden(values, _=None):
    """Data with a masked entry, behind which stands a number that must not be used."""
    spoiled = values.copy()
    spoiled[1, 0] = 1e6
    mask = np.zeros(values.shape, dtype=bool)
    mask[1, 0] = True
    return np.ma.array(spoiled, mask=mask)


def holes(values, role):
    """Frame of nullable numbers with a hole."""
    frame = pd.DataFrame(values, columns=list(NAMES[role])).astype("Float64")
    frame.iloc[1, 0] = pd.NA
    return frame


@pytest.mark.parametrize("bad", [hidden, holes])
@every_question
def test_missing_entries_are_refused(ask, bad):
    with pytest.raises(ValueError, match="NaN"):
        ask(lambda values, _: values, bad)
    with pytest.raises(ValueError, match="NaN"):
        ask(bad, lambda values, _: values)


# --- buffers --------------------------------------------------------------------------------------

# Objects made from arrays, and a question to them.
KEPT = {
    "embed": (
        lambda a: kb.embed(a["X"], KX, a["w"]),
        lambda mu: [mu.mean(), mu(Q), mu.weights],
    ),
    "embed scalars": (lambda a: kb.embed(a["x"], kb.Gaussian(1.0)), lambda mu: [mu.mean()]),
    "embed parts": (
        lambda a: kb.embed({"p": a["X"], "q": a["Z"]}, kb.Parts({"p": KX, "q": KZ})),
        lambda mu: [mu.weights, mu({"p": Q, "q": Q})],
    ),
    "gaussian": (
        lambda a: kb.GaussianEmbedding(a["m"], a["S"], KX),
        lambda mu: [mu(Q), mu.norm()],
    ),
    "conditional": (
        lambda a: kb.ConditionalEmbedding(KX, KZ, 0.01).fit(a["X"], a["Z"]),
        lambda c: [c(Q).weights, c(Q).mean()],
    ),
    "rule": (
        lambda a: kb.KernelBayesRule(KX, KZ).fit(a["X"], a["Z"], a["U"]),
        lambda m: [m.predict(Q), m.posterior(Q).mean()],
    ),
    "rule, form a": (
        lambda a: kb.KernelBayesRule(KX, KZ, form="a").fit(a["X"], a["Z"], a["U"]),
        lambda m: [m.predict(Q), m.posterior(Q).mean()],
    ),
    "rule, frame": (
        lambda a: kb.KernelBayesRule(KX, KZ).fit(a["frame"], a["Z"]),
        lambda m: [m.predict(pd.DataFrame(Q, columns=["a", "b"]))],
    ),
    "bayes_rule": (
        lambda a: kb.bayes_rule(
            kb.ConditionalEmbedding(KZ, KX, 0.01).fit(a["Z"], a["X"]), a["U"], form="a"
        ),
        lambda r: [r(Q).mean()],
    ),
    **{
        f"density_ratio, {method}": (
            lambda a, method=method: kb.density_ratio(a["U"], a["Z"], KZ, method, 0.01, rng=0),
            lambda r: [r.ratio(Z), r.at_denominator],
        )
        for method in ("kulsif", "rulsif", "ulsif", "kmm")
    },
}


def arrays():
    found = {"X": X, "Z": Z, "U": U, "x": X[:, 0], "w": np.full(n, 1.0 / n)}
    found |= {"m": np.zeros(2), "S": np.eye(2)}
    found = {name: np.array(value) for name, value in found.items()}
    return {**found, "frame": pd.DataFrame(np.array(X), columns=["a", "b"])}


def overwrite(given):
    for value in given.values():
        if isinstance(value, pd.DataFrame):
            value.iloc[:, :] = 7.0
        elif isinstance(value, list):
            overwrite(dict(enumerate(value)))
        else:
            value[...] = 7.0


@pytest.mark.parametrize(("make", "ask"), KEPT.values(), ids=KEPT.keys())
def test_a_fitted_object_owns_its_data(make, ask):
    given = arrays()
    found = make(given)
    fresh = ask(make(arrays()))
    overwrite(given)
    for one, other in zip(ask(found), fresh, strict=True):
        np.testing.assert_array_equal(one, other)


def test_no_copy_for_those_who_know():
    given = arrays()
    mu = kb.embed(given["X"], KX, given["w"], copy=False)
    assert np.shares_memory(mu.points, given["X"])
    assert np.shares_memory(mu.weights, given["w"])
    model = kb.ConditionalEmbedding(KX, KZ, 0.01).fit(given["X"], given["Z"], copy=False)
    assert np.shares_memory(model.X_, given["X"])
    learned = kb.KernelBayesRule(KX, KZ).fit(given["X"], given["Z"], copy=False)
    assert np.shares_memory(learned.likelihood_.inputs.points, given["Z"])


# --- in our own words -----------------------------------------------------------------------------

MU = kb.embed(X, KX)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: MU / 0, ValueError, "cannot be divided by zero"),
        (lambda: MU / np.float64(0.0), ValueError, "cannot be divided by zero"),
        (lambda: MU * np.nan, ValueError, "factor of an embedding must be finite"),
        (lambda: MU * "2", TypeError, "factor of an embedding must be a number"),
        (lambda: MU * 10**400, ValueError, "beyond the range of floating point"),
        (lambda: kb.sum_rule(3.0), TypeError, "a conditional embedding is needed, got float"),
        (lambda: kb.bayes_rule(None), TypeError, "a conditional embedding is needed"),
        (lambda: kb.sum_rule(likelihood(lambda v, _: v), U, form=["a"]), ValueError, "form must"),
        (lambda: kb.ConditionalEmbedding("rbf").fit(X, Z), TypeError, "kernel on X must be a Ker"),
        (lambda: kb.ConditionalEmbedding(ridge="1").fit(X, Z), ValueError, "a ridge is a positive"),
        (lambda: kb.ConditionalEmbedding(ridge=1j).fit(X, Z), TypeError, "a ridge must be a posit"),
        (lambda: kb.ConditionalEmbedding(ridge=X).fit(X, Z), TypeError, "a ridge must be a posit"),
        (lambda: kb.ConditionalEmbedding().fit(map(float, X[:, 0]), Z), TypeError, "X is a map"),
        (lambda: kb.KernelBayesRule().fit(map(float, X[:, 0]), Z), TypeError, "X is a map"),
        (lambda: kb.KernelBayesRule(kernel_x="rbf").fit(X, Z), TypeError, "must be a Kernel"),
        (lambda: kb.KernelBayesRule(method=None).fit(X, Z), ValueError, "method must be one of"),
        (
            lambda: kb.ConditionalEmbedding().fit({"a": X[:, 0], "b": X[:3, 1]}, Z),
            ValueError,
            "must be aligned",
        ),
        (
            lambda: kb.tune(kb.ConditionalEmbedding(), X, Z, prior=U),
            TypeError,
            "tune of a Cond.*it",
        ),
        (
            lambda: kb.tune(kb.KernelBayesRule(), X, Z, budget=2.5),
            ValueError,
            "budget must be an i",
        ),
        (lambda: kb.density_ratio(U, Z, KZ, "kliep"), ValueError, "method must be one of"),
        (lambda: kb.density_ratio(U, Z, "rbf"), TypeError, "kernel must be a Kernel"),
        (lambda: kb.density_ratio(U, Z, KZ, "rulsif", alpha=1.0), ValueError, "alpha must lie in"),
        (
            lambda: kb.density_ratio(U, Z, KZ, "ulsif", centres=2.5, rng=0),
            ValueError,
            "centres must be an",
        ),
        (lambda: cme(lambda v, _: v)(Q, "linear"), TypeError, "kernel must be a Kernel"),
    ],
)
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("method", ["kulsif", "rulsif", "ulsif", "kmm"])
def test_a_density_ratio_can_be_stored(method):
    found = kb.density_ratio(U, Z, KZ, method, 0.01, rng=0)
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_allclose(again.ratio(Z), found.ratio(Z), rtol=1e-9)  # sums in another order


# --- out of the library ---------------------------------------------------------------------------


def test_columns_of_one_name_are_all_kept():
    twice = pd.DataFrame(X, columns=["a", "a"])
    out = kb.embed(twice, KX).to_frame()
    assert list(out.columns) == ["a", "a_2", "weight"]
    np.testing.assert_array_equal(out[["a", "a_2"]], X)
    parts = {"p": X, "p_x0": X[:, 0]}
    kernel = kb.Parts({"p": KX, "p_x0": kb.Gaussian(1.0)})
    assert list(kb.embed(parts, kernel).to_frame().columns) == ["p_x0", "p_x1", "p_x0_2", "weight"]


def test_a_column_may_be_called_as_arviz_calls_its_axes():
    arviz = pytest.importorskip("arviz")
    frame = pd.DataFrame(X, columns=["chain", "draw"])
    data = kb.embed(frame, KX).to_arviz(n_draws=10, rng=0)
    assert set(data.posterior.data_vars) == {"chain_2", "draw_2"}
    assert len(arviz.summary(data)) == 2
