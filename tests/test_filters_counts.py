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
