"""The rules on torch tensors: the same numbers, tensors out, and derivatives."""

import numpy as np
import pytest

import kernelbayes as kb

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

METHODS = ["importance", "original"]
each_method = pytest.mark.parametrize("method", METHODS)
each_form = pytest.mark.parametrize("form", ["a", "b"])
RNG = np.random.default_rng(0)
Z, X = RNG.normal(size=(20, 2)), RNG.normal(size=(20, 2))
U, ALPHA, NEW = RNG.normal(0.3, 0.7, (8, 2)), RNG.normal(0.1, 0.1, 8), RNG.normal(size=(3, 2))
kz, kx = kb.Gaussian(0.7), kb.Gaussian(0.6)
# Ridges of 1e-2 condition the solves below 1e4; torch squares that in the original rule.
EQUAL = {"rel": 1e-6, "abs": 1e-8}


def numpy(x):
    return np.asarray(x)


def tensor(x):
    return torch.tensor(x, dtype=torch.float64)


def low_rank(kernel, points):
    return kb.nystrom(kernel, points, 6, rng=0)


def same(run):
    """Run on NumPy arrays and on tensors; results agree and are of the kind that went in."""
    expected, found = run(numpy), run(tensor)
    for a, b in zip(expected, found, strict=True):
        assert isinstance(b, torch.Tensor)
        assert b.dtype == torch.float64
        assert b.numpy() == pytest.approx(a, **EQUAL)


@pytest.mark.parametrize("rank", ["exact", "low rank"])
@pytest.mark.parametrize("ridge", ["loo", 0.01])
def test_conditional_sum_and_chain(rank, ridge):
    def run(kind):
        k = low_rank(kz, kind(Z)) if rank == "low rank" else kz
        cme = kb.ConditionalEmbedding(k, kx, ridge).fit(kind(Z), kind(X))
        prior = kb.embed(kind(U), k, kind(ALPHA))
        mu = cme(kind(U))
        b, a = kb.chain_rule(cme, prior), kb.chain_rule(cme, prior, form="a")
        yield from (
            mu.weights,
            mu.diagnostics.support,
            mu.diagnostics.mass,
            cme(kind(U[0])).weights,
        )
        yield from (kb.sum_rule(cme, prior).weights, kb.sum_rule(cme, prior, "b")(kind(NEW)))
        yield from (b.weights, a.weights, a.marginal("x").weights, b.marginal("z")(kind(NEW)))

    same(run)


@each_form
@each_method
@pytest.mark.parametrize("rank", ["exact", "low rank"])
@pytest.mark.parametrize("prior", ["none", "points", "embedding"])
def test_bayes_rule(method, form, rank, prior):
    def run(kind):
        low = rank == "low rank"
        k, q = (low_rank(kz, kind(Z)), low_rank(kx, kind(X))) if low else (kz, kx)
        priors = {"none": None, "points": kind(U), "embedding": kb.embed(kind(U), k, kind(ALPHA))}
        cme = kb.ConditionalEmbedding(k, q, 0.01).fit(kind(Z), kind(X))
        for ridge in (0.01, "loo"):
            mu = kb.bayes_rule(cme, priors[prior], method, form, ridge)(kind(NEW))
            yield mu.weights if ridge == 0.01 else mu.weights * 0.0
            yield mu.diagnostics.support

    same(run)


@each_form
@each_method
@pytest.mark.parametrize("normalize", [False, True])
def test_estimator(method, form, normalize):
    def run(kind):
        model = kb.KernelBayesRule(kx, kz, method, 0.01, 0.01, form, normalize=normalize)
        model.fit(kind(X), kind(Z), prior=kind(U))
        yield from (model.posterior(kind(NEW)).weights, model.predict(kind(NEW)))
        yield model.with_prior(kind(U[:4])).predict(kind(NEW))
        yield kb.KernelBayesRule().fit(kind(X), kind(Z[:, 0]), prior=kind(U[:, 0])).ridge_ * kind(
            1.0
        )

    same(run)


@pytest.mark.parametrize("method", ["kulsif", "rulsif", "ulsif", "kmm"])
@pytest.mark.parametrize("ridge", [0.01, "loo"])
def test_density_ratio(method, ridge):
    def run(kind):
        r = kb.density_ratio(kind(U), kind(Z), kz, method, ridge, rng=0)
        yield from (r.at_denominator, r.ratio(kind(NEW)))

    same(run)


@each_form
@each_method
@pytest.mark.parametrize("rank", ["exact", "low rank"])
def test_posterior_means_are_differentiable(method, form, rank):
    """With respect to what is observed, and to prior points and training pairs."""
    size = 4 if rank == "exact" else 6

    def mean(new, prior, z, x):
        k, q = (low_rank(kz, z.detach()), low_rank(kx, x.detach())) if rank != "exact" else (kz, kx)
        cme = kb.ConditionalEmbedding(k, q, 0.1).fit(z, x)
        mu = kb.bayes_rule(cme, prior, method, form, ridge=0.1)(new)
        return mu.weights @ mu.points

    leaves = [tensor(a).requires_grad_() for a in (NEW[:2], U[:3], Z[:size], X[:size])]
    if rank == "exact":
        assert torch.autograd.gradcheck(mean, leaves)
    else:  # landmarks are held fixed
        fixed = [leaf.detach() for leaf in leaves[1:]]
        assert torch.autograd.gradcheck(lambda new: mean(new, *fixed), leaves[:1])


def test_mixed_kinds_are_refused():
    cme = kb.ConditionalEmbedding(kz, kx, 0.01).fit(tensor(Z), tensor(X))
    with pytest.raises(TypeError, match="one kind"):
        cme(Z)
    with pytest.raises(TypeError, match="one kind"):
        kb.bayes_rule(cme, U)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_halves_are_read_as_singles(half):
    x, rule = torch.linspace(-2.0, 2.0, 60).to(half), kb.KernelBayesRule(ridge=0.01)
    expected = rule.fit(x.float(), x.float()).predict(x.float()[:5])
    found = rule.fit(x, x).predict(x[:5])
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)


def test_truth_values_are_two_classes():
    x = torch.tensor(X)
    z = x[:, 0] > 0
    found, same = kb.KernelBayesRule().fit(x, z), kb.KernelBayesRule().fit(X, X[:, 0] > 0)
    assert found.classes_.tolist() == [False, True]
    assert found.predict(x).tolist() == same.predict(X).tolist()
    np.testing.assert_allclose(found.predict_proba(x), same.predict_proba(X), atol=1e-8)
