"""Bayes' rule: finite features against exact, invariances, priors, composition, bad input."""

import numpy as np
import pytest

import kernelbayes as kb

METHODS = {"importance": 0.01, "original": 1e-3}
each_method = pytest.mark.parametrize("method", METHODS)
each_form = pytest.mark.parametrize("form", ["a", "b"])
RNG = np.random.default_rng(0)
Z, X = RNG.normal(size=(30, 2)), RNG.normal(size=(30, 2))
U, ALPHA = RNG.normal(0.3, 0.7, size=(12, 2)), RNG.normal(0.1, 0.1, size=12)
NEW = RNG.normal(size=(5, 2))
kz, kx = kb.Gaussian(0.7), kb.Gaussian(0.6)
# Ridges of 1e-2 (1e-3 squared) condition the solves below 1e4; features add as much again.
EQUAL = {"rel": 1e-7, "abs": 1e-8}


def turned(method, form="b", Z=Z, X=X, U=U, alpha=ALPHA, kz=kz, kx=kx, **options):
    cme = kb.ConditionalEmbedding(kz, kx, ridge=0.01).fit(Z, X)
    prior = U if alpha is None else kb.embed(U, kz, alpha)
    return kb.bayes_rule(cme, prior, method, form, **{"ridge": METHODS[method], **options})


# --- finite features -----------------------------------------------------------------------------


@each_form
@each_method
@pytest.mark.parametrize("approximate", [kb.nystrom, kb.pivoted_cholesky])
def test_full_rank_equals_exact(approximate, method, form):
    """The prior's points are joined to the landmarks: features must be exact on them too."""
    both = np.concatenate([Z, U])
    low = turned(
        method,
        form,
        kz=approximate(kz, both, len(both), rng=0),
        kx=approximate(kx, np.concatenate([X, NEW]), len(X) + len(NEW), rng=0),
    )(NEW)
    exact = turned(method, form)(NEW)
    assert low.weights == pytest.approx(exact.weights, **EQUAL)
    assert low.mass == pytest.approx(exact.mass, **EQUAL)


@each_form
@each_method
@pytest.mark.filterwarnings("ignore:the training sample covers")  # with few landmarks it may
def test_low_rank_equals_its_own_gram_matrix(method, form):
    """At any rank: the kernel of the features, as a Custom kernel without them."""
    low_z, low_x = kb.nystrom(kz, Z, 8, rng=0), kb.nystrom(kx, X, 9, rng=0)
    dense_z, dense_x = kb.Custom(lambda A, B: low_z(A, B)), kb.Custom(lambda A, B: low_x(A, B))
    found = turned(method, form, kz=low_z, kx=low_x)(NEW).weights
    assert found == pytest.approx(
        turned(method, form, kz=dense_z, kx=dense_x)(NEW).weights, **EQUAL
    )


@each_method
def test_sum_and_chain_of_low_rank(method):
    low = kb.nystrom(kz, np.concatenate([Z, U]), 42, rng=0)
    exact = kb.ConditionalEmbedding(kz, kx, ridge=0.01).fit(Z, X)
    found = kb.ConditionalEmbedding(low, kx, ridge=0.01).fit(Z, X)
    pairs = [(exact, kb.embed(U, kz, ALPHA)), (found, kb.embed(U, low, ALPHA))]
    for rule in (kb.sum_rule, kb.chain_rule, lambda c, p: kb.chain_rule(c, p, form="a")):
        expected, weights = (rule(cme, prior).weights for cme, prior in pairs)
        assert weights == pytest.approx(expected, **EQUAL)


# --- invariances ---------------------------------------------------------------------------------


@each_form
@each_method
def test_batch_equals_one_at_a_time(method, form):
    rule = turned(method, form)
    batch = rule(NEW)
    assert type(batch) is kb.Batch
    for i, x in enumerate(NEW):
        one = rule(x)
        assert type(one) is kb.Embedding
        assert one.weights == pytest.approx(batch[i].weights, **EQUAL)
        assert one.diagnostics.support == pytest.approx(batch.diagnostics[i].support)


@each_form
@each_method
@pytest.mark.parametrize("ridge", ["loo", 0.01])
def test_row_order(method, form, ridge):
    order, other = RNG.permutation(len(Z)), RNG.permutation(len(U))
    shuffled = turned(method, form, Z[order], X[order], U[other], ALPHA[other], ridge=ridge)
    expected = turned(method, form, ridge=ridge)(NEW)(U)
    # With "loo" the ridge may be tiny; conditioning up to 1e8 (1e8 also for its square).
    assert shuffled(NEW)(U) == pytest.approx(expected, rel=1e-5, abs=1e-6)


@each_form
@each_method
def test_duplicated_prior_points_are_weights(method, form):
    counts = RNG.integers(1, 4, size=len(U))
    repeated = turned(method, form, U=np.repeat(U, counts, axis=0), alpha=None)(NEW)
    weighted = turned(method, form, alpha=counts / counts.sum())(NEW)
    assert repeated(Z) == pytest.approx(weighted(Z), **EQUAL)


@each_method
def test_duplicated_training_pairs_are_weights(method):
    """A pair seen c times in N is a pair of ratio c n / N."""
    counts = RNG.integers(1, 4, size=len(Z))
    repeated = kb.ConditionalEmbedding(kz, kx, ridge=0.01)
    repeated.fit(np.repeat(Z, counts, axis=0), np.repeat(X, counts, axis=0))
    once = kb.ConditionalEmbedding(kz, kx, ridge=0.01).fit(Z, X)
    ratio = counts * len(Z) / counts.sum()
    ridge = METHODS[method]
    expected = kb.bayes_rule(once, None, method, ridge=ridge, ratio=ratio)(NEW)
    found = kb.bayes_rule(repeated, None, method, ridge=ridge)(NEW)
    assert found(Z) == pytest.approx(expected(Z), **EQUAL)
    first = np.cumsum(counts) - counts
    assert np.add.reduceat(found.weights, first, axis=1) == pytest.approx(expected.weights, **EQUAL)


@each_form
@each_method
@pytest.mark.parametrize("unit", [1e-6, 1024.0, 1e9])
def test_units_of_measurement(method, form, unit):
    scaled = turned(method, form, unit * Z, unit * X, unit * U,
                    kz=kb.Gaussian(0.7 * unit), kx=kb.Gaussian(0.6 * unit))  # fmt: skip
    assert scaled(unit * NEW).weights == pytest.approx(turned(method, form)(NEW).weights, **EQUAL)


# --- priors and composition ----------------------------------------------------------------------


@each_method
def test_a_ratio_instead_of_the_prior(method):
    cme = kb.ConditionalEmbedding(kz, kx, ridge=0.01).fit(Z, X)
    ratio = kb.density_ratio(U, Z, kz, ridge=0.01)
    given = kb.bayes_rule(cme, U, method, ridge=0.01, ratio=ratio)(NEW).weights
    values = kb.bayes_rule(cme, U, method, ridge=0.01, ratio=ratio.at_denominator)(NEW).weights
    assert np.array_equal(given, values)
    if method == "importance":  # KuLSIF is the default
        found = kb.bayes_rule(cme, U, method, ridge=0.01)(NEW).weights
        assert given == pytest.approx(found, **EQUAL)


@each_form
@each_method
def test_predict_turn_round_apply_again(method, form):
    """A filter step by hand: prior -> posterior -> prediction -> posterior."""
    rule = turned(method, form)
    transition = kb.ConditionalEmbedding(kz, kz, ridge=0.01).fit(Z[:-1], Z[1:])
    predicted = kb.sum_rule(transition, rule(NEW[0]))
    assert predicted.kernel == kz
    again = kb.bayes_rule(kb.ConditionalEmbedding(kz, kx, ridge=0.01).fit(Z, X), predicted, method,
                          form, ridge=METHODS[method])  # fmt: skip
    assert np.isfinite(again(NEW).weights).all()
    assert len(again(NEW).points) == (29 if form == "a" else 30)


@each_method
def test_form_a_cannot_be_turned(method):
    rule = turned(method, "a")
    with pytest.raises(ValueError, match="needs pairs"):
        kb.bayes_rule(rule, X, method)
    with pytest.raises(ValueError, match="needs pairs"):
        kb.chain_rule(rule, X, form="b")
    summed = kb.sum_rule(rule, NEW)
    assert summed.weights == pytest.approx(rule(NEW).weights.mean(axis=0), **EQUAL)


@each_form
@each_method
def test_another_output_kernel(method, form):
    rule = turned(method, form)
    mu = rule(NEW, kernel=kb.Linear())
    assert mu(np.eye(2)) == pytest.approx(rule(NEW).weights @ rule(NEW).points, **EQUAL)


# --- diagnostics and hard input ------------------------------------------------------------------


@each_form
@each_method
def test_far_out_of_support(method, form):
    found = turned(method, form)([[50.0, 50.0], [0.0, 0.0]])
    assert np.isfinite(found.weights).all()
    info = found.diagnostics
    assert info.support[0] == 0.0
    assert info.support[1] > 0.1
    assert abs(info.mass[0]) < 1e-6  # far away nothing is claimed
    assert info.condition >= 1
    assert info.rescues == 0
    assert np.all((info.negative >= 0) & (info.negative <= 1))


@each_method
@pytest.mark.parametrize("ridge", ["loo", 0.01])
@pytest.mark.parametrize("distance", [10.0, 20.0, 26.5, 100.0, 1e9])
def test_a_prior_without_mass_on_the_sample(method, ridge, distance):
    """Kernel values from 1e-40 through denormal numbers to zero: the training marginal instead."""
    with pytest.warns(kb.NumericalWarning, match="no mass on the training sample"):
        found = turned(method, U=U + distance, alpha=None, ridge=ridge)(NEW)
    expected = kb.bayes_rule(
        kb.ConditionalEmbedding(kz, kx, ridge=0.01).fit(Z, X), None, method, ridge=ridge
    )(NEW)
    assert found.weights == pytest.approx(expected.weights, **EQUAL)


@each_method
@pytest.mark.parametrize("ridge", ["loo", 0.01])
@pytest.mark.parametrize(
    ("gap", "message"),
    [(3.5, "covers about 0%"), (5.5, "covers about 0%"), (6.5, "no mass on the training sample")],
)
def test_a_prior_in_the_tail_of_the_sample(method, ridge, gap, message):
    """Little mass, but some: finite, and the fallback only below rounding.

    The prior is one point at exactly ``gap`` from the sample, where the largest kernel value is
    k = exp(-gap^2 / 0.98). The eigenvalues of the matrix solved with are between 0.01 n and
    1.01 n, so n times the largest weight is between k / (1.01 sqrt(n)) and k sqrt(n) / 0.01, and
    the mass is at most k / 0.01: for n = 30 and k = 4e-6, 4e-14 and 2e-19, a mass below 4e-4,
    32 times the rounding of one at least, and half of it at most.
    """
    far = Z[[np.argmax(Z[:, 1])]] + [0.0, gap]
    with pytest.warns(kb.NumericalWarning, match=message):
        found = turned(method, U=far, alpha=None, ridge=ridge)(NEW)
    assert np.isfinite(found.weights).all()
    assert np.isfinite(found.diagnostics.ess).all()


HARD = {
    "duplicated": (np.repeat(Z[:3], 10, axis=0), np.repeat(X[:3], 10, axis=0)),
    "constant": (np.ones((30, 2)), np.ones((30, 2))),
    "constant x": (Z, np.ones((30, 2))),
    "huge": (1e150 * Z, 1e150 * X),
    "one pair": (Z[:1], X[:1]),
    "ill-conditioned": (1e-6 * Z, 1e-6 * X),
}


@each_form
@each_method
@pytest.mark.parametrize("ridge", ["loo", 1e-12])
@pytest.mark.parametrize("name", HARD)
@pytest.mark.filterwarnings("ignore::kernelbayes.NumericalWarning")
def test_hard_data_gives_finite_numbers(name, method, form, ridge):
    z, x = HARD[name]
    found = turned(method, form, z, x, z[:5], None, ridge=ridge)(x[:4])
    assert np.isfinite(found.weights).all()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"method": "bayes"}, ValueError, "method must be"),
        ({"form": "c"}, ValueError, "form must be"),
        ({"ridge": 0.0}, ValueError, "ridge must be positive"),
        ({"ridge": -1.0}, ValueError, "ridge must be positive"),
        ({"prior": np.ones((4, 3))}, ValueError, "one space"),
        ({"prior": np.full((4, 2), np.nan)}, ValueError, "prior has NaN"),
        ({"prior": np.ones((0, 2))}, ValueError, "prior is empty"),
        ({"prior": kb.embed(U, kb.Gaussian(9.0))}, ValueError, "embedded with"),
        ({"ratio": np.ones(7)}, ValueError, "ratio must have shape"),
        ({"ratio": np.full(30, np.nan)}, ValueError, "ratio has NaN"),
        ({"prior": kb.GaussianEmbedding([0, 0], np.eye(2), kz), "form": "a"}, TypeError, "sample"),
    ],
)
def test_bad_input(change, error, message):
    cme = kb.ConditionalEmbedding(kz, kx, ridge=0.01).fit(Z, X)
    with pytest.raises(error, match=message):
        kb.bayes_rule(cme, **{"prior": U, "ridge": 0.01, **change})


@pytest.mark.parametrize("rule", [kb.sum_rule, kb.chain_rule])
def test_bad_input_of_sum_and_chain(rule):
    cme = kb.ConditionalEmbedding(kz, kx, ridge=0.01).fit(Z, X)
    with pytest.raises(ValueError, match="form must be"):
        rule(cme, U, form="c")
    with pytest.raises(ValueError, match="one space"):
        rule(cme, np.ones((4, 3)))
    with pytest.raises(ValueError, match="not fitted"):
        rule(kb.ConditionalEmbedding(), U)
    with pytest.raises(ValueError, match="part must be"):
        kb.chain_rule(cme, U).marginal("y")


@pytest.mark.parametrize("rank", [None, 10])
def test_new_points_are_compared_once(rank, monkeypatch):
    model = kb.KernelBayesRule(kx, kz, prior_ridge=0.01, ridge=0.01, rank=rank, rng=0)
    model.fit(X, Z, prior=U)
    points = model.rule_.inputs.points[:4]  # inside the sample: nothing to fill in
    model.predict(points)  # what is usual is found out now
    sizes, cross = [], kb.Gaussian._cross

    def counted(kernel, A, B):
        sizes.append(len(A) * len(B))
        return cross(kernel, A, B)

    monkeypatch.setattr(kb.Gaussian, "_cross", counted)
    model.predict(points)
    model.posterior(points)
    assert sizes == [4 * (rank or len(X))] * 2


def test_supports_of_kernels_from_zero_to_one_need_no_norms():
    kernels = [
        kx,
        kb.Laplace(0.6),
        kb.Matern(0.6, 1.5),
        kb.RationalQuadratic(0.6),
        kb.Periodic(1.0),
    ]
    for kernel in kernels:
        assert kernel.is_unit
        scaled = 4.0 * kernel  # is not, and has the same supports
        found = kernel.similarity(kernel(NEW, X), NEW, X)
        other = scaled.similarity(scaled(NEW, X), NEW, X)
        assert found == pytest.approx(other, rel=1e-14)
