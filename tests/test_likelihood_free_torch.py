"""Likelihood-free inference as users of sbi write it: torch priors, simulators and tensors."""

import numpy as np
import pytest
from scipy import stats

import kernelbayes as kb
from normal_means import FEW, NOISE, assert_close, closed_form

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")


def one(theta):
    return theta + NOISE * torch.randn_like(theta)


def with_shape(theta):
    return torch.cat([one(theta), one(theta)], dim=-1)


def prior(d=2):
    return torch.distributions.MultivariateNormal(torch.zeros(d), torch.eye(d))


def test_a_torch_simulator_without_rng_is_repeatable():
    state = torch.get_rng_state()
    runs = [kb.simulate(one, prior(), 60, rng=3) for _ in range(2)]
    assert torch.equal(state, torch.get_rng_state())
    np.testing.assert_array_equal(runs[0].x, runs[1].x)
    assert runs[0].x.shape == (60, 2)
    assert runs[0].vectorized
    other = kb.simulate(one, prior(), 60, rng=4)
    assert not np.any(other.x == runs[0].x)
    assert len(np.unique(runs[0].x - runs[0].theta)) > 100  # the noise of each is its own


def test_a_simulator_that_makes_tensors_of_arrays_is_repeatable():
    def simulator(theta):
        return one(torch.as_tensor(theta))

    runs = [kb.simulate(simulator, stats.norm(), 30, rng=3) for _ in range(2)]
    np.testing.assert_array_equal(runs[0].x, runs[1].x)


def test_a_simulator_with_rng_gets_arrays():
    def simulator(theta, rng):
        assert isinstance(theta, np.ndarray)
        return rng.normal(theta, NOISE)

    assert kb.simulate(simulator, prior(), 30, rng=0).x.shape == (30, 2)


def test_infer_with_torch_prior_simulator_and_observation():
    x_o = torch.tensor([0.5, -0.5])
    found = kb.infer(one, prior(), x_o, 400, rng=0, **FEW)
    drawn = found.sample(100, rng=0)
    for answer in (drawn, found.mean(), found.std(), found.log_density(drawn), found.map()):
        assert isinstance(answer, torch.Tensor)
        assert answer.dtype == x_o.dtype
    assert drawn.shape == (100, 2)
    plain = kb.infer(one, prior(), x_o.numpy(), 400, rng=0, **FEW)
    assert isinstance(plain.mean(), np.ndarray)
    assert_close(plain, *closed_form(x_o.numpy()), 400)
    np.testing.assert_allclose(found.mean(), plain.mean(), rtol=1e-4, atol=1e-6)  # single precision


def test_rounds_by_themselves():
    wide = torch.distributions.Normal(torch.zeros(1), 30.0 * torch.ones(1))
    found = kb.infer(one, wide, torch.tensor([3.0]), 300, rng=0, rounds="auto", **FEW)
    assert found.diagnostics.rounds > 1
    assert abs(float(found.mean()[0]) - 3.0) < 1.0


def test_tensors_in_and_out_of_a_fitted_model():
    theta = prior().sample((300,))
    x = with_shape(theta)
    model = kb.LikelihoodFree(prior(), rng=0, **FEW).fit(theta, x)
    found = model.posterior(x[0])
    assert isinstance(found.sample(10, rng=0), torch.Tensor)
    assert found.interval(0.9).shape == (2, 2)
    many = model.posterior(x[:3])
    assert tuple(many.mean().shape) == (3, 2)
    assert many.sample(5, rng=0).shape == (3, 5, 2)
    arrays = kb.LikelihoodFree(prior(), rng=0, **FEW).fit(theta.numpy(), x.numpy())
    np.testing.assert_allclose(found.mean(), arrays.posterior(x[0].numpy()).mean(), rtol=1e-4)
    assert isinstance(arrays.posterior(x[0]).mean(), np.ndarray)
    test = {"theta": theta[:20], "x": x[:20], "rng": 0}
    assert len(kb.sbc(model, **test).table) > 0
    assert np.all(np.isfinite(np.asarray(kb.coverage(model, **test).coverage)))
    found.summary()
    assert np.isfinite(model.score(theta[:5], x[:5]))
