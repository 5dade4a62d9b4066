"""What leaves the device of torch tensors inside fits, answers and filter steps.

On the CPU nothing is copied, but the calls that would copy from a GPU are the same: they are
counted, each with the number of elements, and so are single numbers (``float(t)``, ``bool(t)``).
"""

import numpy as np
import pytest

import kernelbayes as kb

torch = pytest.importorskip("torch")
dispatch = pytest.importorskip("torch.utils._python_dispatch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::kernelbayes.NumericalWarning")]
N, RANK = 300, 20


class Transfers(dispatch.TorchDispatchMode):
    """Counts single numbers, and the sizes of arrays, that are asked for on the host."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.numbers, self.sizes = 0, []
        for name in ("numpy", "__array__", "tolist"):
            monkeypatch.setattr(torch.Tensor, name, self._counted(getattr(torch.Tensor, name)))

    def _counted(self, method):
        def count(tensor, *args, **options):
            if tensor.numel() > 1:
                self.sizes.append(tensor.numel())
            return method(tensor, *args, **options)

        return count

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.numbers += "_local_scalar_dense" in str(func)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    angle = np.cumsum(0.3 + 0.2 * rng.normal(size=N))
    Z = np.column_stack([np.cos(angle), np.sin(angle)])
    return torch.tensor(Z + 0.2 * rng.normal(size=Z.shape)), torch.tensor(Z)


def test_the_counter_counts(monkeypatch):
    with Transfers(monkeypatch) as moved:
        float(torch.ones(3).sum())
        torch.ones(4).numpy()
    assert (moved.numbers, moved.sizes) == (1, [4])


@pytest.mark.parametrize("rank", [None, RANK])
@pytest.mark.parametrize("method", ["importance", "original"])
def test_a_rule_keeps_its_matrices_on_the_device(monkeypatch, data, rank, method):
    X, Z = data
    options = {"ridge": 1e-3, "prior_ridge": 1e-3, "method": method, "rank": rank, "rng": 0}
    model = kb.KernelBayesRule(kb.Gaussian(1.0), kb.Gaussian(1.0), **options)
    with Transfers(monkeypatch) as moved:
        model.fit(X, Z, prior=Z[:50] + 0.1)
    # Vectors over the sample, and the landmarks' own matrix, whose rank is decided on the host.
    assert all(size <= max(N, RANK**2) for size in moved.sizes), moved.sizes
    model.predict(X[:5] + 0.01)  # what is usual is measured by the first one
    with Transfers(monkeypatch) as moved:
        means = model.predict(X[:5] + 0.01)
    assert isinstance(means, torch.Tensor)
    assert all(size <= 5 for size in moved.sizes), moved.sizes  # which points are outside


@pytest.mark.parametrize("rank", [None, RANK])
def test_a_step_moves_numbers_only(monkeypatch, data, rank):
    X, Z = data
    ridges = {"ridge": 1e-2, "prior_ridge": 1e-3, "transition_ridge": 1e-3, "back_ridge": 0.1}
    model = kb.KernelBayesFilter(kb.Gaussian(1.0), kb.Gaussian(0.7), rank=rank, rng=0, **ridges)
    with Transfers(monkeypatch) as moved:
        model.fit(X, Z)
    if rank is not None:  # an exact filter is factored on the host
        assert all(size <= RANK**2 for size in moved.sizes), moved.sizes
    state = model.start()
    for t in range(3):
        state, _ = model.step(state, X[t])
    with Transfers(monkeypatch) as moved:
        state, _ = model.step(state, X[3])
    assert moved.sizes == []
    assert moved.numbers <= 20  # masses, the support, what is lost: some 15
    assert isinstance(state.belief.weights, torch.Tensor)


def test_the_condition_is_that_of_lapack():
    from kernelbayes.gram.lapack import cholesky, condition_number

    for seed in range(5):
        B = np.random.default_rng(seed).normal(size=(30, 30)) * np.logspace(0, -4, 30)
        A = B @ B.T
        L = cholesky(A + 1e-6 * np.eye(30))
        expected = np.linalg.cond(A + 1e-6 * np.eye(30), 1)
        found = condition_number(torch.tensor(A), torch.tensor(L), 1e-6)
        assert 0.1 * expected < found < 1.01 * expected  # a lower bound, close to it
