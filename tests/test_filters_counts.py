"""What a filter step costs, in counts instead of seconds: kernel values and solves."""

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.filters import step, update
from kernelbayes.kernels.radial import Gaussian


def recording(seed, n):
    rng = np.random.default_rng(seed)
    angle = np.cumsum(0.3 + 0.2 * rng.normal(size=n))
    Z = np.column_stack([np.cos(angle), np.sin(angle)])
    return Z + 0.2 * rng.normal(size=Z.shape), Z


@pytest.fixture(scope="module", params=[None, 30], ids=["exact", "rank"])
def model(request):
    ridges = {"prior_ridge": 1e-4, "transition_ridge": 1e-4, "ridge": 1e-2, "back_ridge": 0.1}
    found = kb.KernelBayesFilter(
        kb.Gaussian(0.7), kb.Gaussian(0.5), rank=request.param, rng=0, **ridges
    )
    return found.fit(*recording(0, 450))


class Counted:
    """Kernel values and calls of the solver since it was made."""

    def __init__(self, monkeypatch):
        self.values = self.matrices = self.solves = 0
        cross, solve = Gaussian._cross, update.solve_positive

        def counted(kernel, A, B):
            self.values += len(A) * len(B)
            self.matrices += 1
            return cross(kernel, A, B)

        def solved(*arguments, **options):
            self.solves += 1
            return solve(*arguments, **options)

        monkeypatch.setattr(Gaussian, "_cross", counted)
        monkeypatch.setattr(update, "solve_positive", solved)


def anchors(model):
    """Points that an observation is compared with: landmarks, or all training observations."""
    found = model.observations_
    return len(found.kernel.anchors(found.X))


def test_a_step_has_one_kernel_column_and_one_solve(model, monkeypatch):
    new = recording(1, 20)[0]
    state, _ = model.step(model.start(), new[0])  # what is kept for all steps is made now
    count = Counted(monkeypatch)
    for x in new[1:]:
        state, _ = model.step(state, x)
    steps = len(new) - 1
    assert count.matrices == steps
    assert count.values == steps * anchors(model)
    assert count.solves == steps


def test_a_sequence_has_one_kernel_matrix(model, monkeypatch):
    new = recording(2, 20)[0]
    model.filter(new[:2], progress=False)
    count = Counted(monkeypatch)
    model.filter(new, progress=False)
    assert count.matrices == 1
    assert count.values == len(new) * anchors(model)
    assert len(new) - 1 <= count.solves <= len(new)  # the first may be the kept regression


def test_a_prediction_and_its_prior_weights_are_one_pass(model, monkeypatch):
    """Weights on the sample come with the prediction, and are those of the prediction."""
    new = recording(3, 6)[0]
    state, _ = model.step(model.start(), new[0])
    dynamics = model.dynamics_
    V, _, gammas = step.predict(dynamics, state.belief.weights[:, None])
    expected = update.on_sample(dynamics, V)
    # Ridges of 1e-4 leave four digits of rounding above machine precision, twice.
    np.testing.assert_allclose(gammas, expected, rtol=0.0, atol=1e-8 * np.abs(expected).max())
    calls = []
    monkeypatch.setattr(step, "prior_weights", lambda *_: calls.append(1))
    for x in new[1:]:
        state, _ = model.step(state, x)
    assert not calls


def test_an_update_uses_few_features_where_the_others_say_nothing(model, monkeypatch):
    """What is left out is below a millionth of the ridge; outliers get all features."""
    new, seen = recording(4, 30)[0], model.observations_
    r = seen.gram.factor.shape[1]
    if model.rank is not None:  # so few that each of them counts
        assert seen.leading is None
        return
    V, few, rest = seen.leading
    assert few.shape[1] <= 0.75 * r
    np.testing.assert_allclose(V.T @ V, np.eye(few.shape[1]), atol=1e-12)
    used, original = [], update._features

    def features(observations, gamma, column):
        found = original(observations, gamma, column)
        used.append(found[0].shape[1])
        return found

    monkeypatch.setattr(update, "_features", features)
    means = []
    for leading in (seen.leading, None):
        seen.__dict__["leading"] = leading
        state, each = model.start(), []
        for x in new:
            state, _ = model.step(state, x)
            each.append(state.belief.mean())
        means.append(np.array(each))
    seen.__dict__["leading"] = (V, few, rest)
    # The ridge is 1e-2 of the matrix: weights change by 1e-6 of themselves, times states near one.
    np.testing.assert_allclose(*means, rtol=0.0, atol=1e-6)
    assert np.mean(np.array(used[: len(new)]) < r) > 0.5
    assert all(k == r for k in used[len(new) :])
    far = seen.kernel.features(np.array([[30.0, 30.0]]))[0]
    gamma = np.full(seen.gram.n, 1.0 / seen.gram.n)
    far[-1] += 1.0  # an observation of which the few features say little
    assert original(seen, gamma, far)[0].shape[1] == r
