"""Learned features: the loss, the kernel, the answers of what uses it."""

import dataclasses
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes import laws
from kernelbayes.learned.features import direct, left_over, operator, profiled, unit
from kernelbayes.learned.nets import Net, kind_of
from oracles import check_embedding

RNG = np.random.default_rng(0)
N = 40
QUICK = {"dim": 6, "epochs": 8, "rng": 0}


def sample(n=N, d=3):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, d))
    return X, np.sin(2.0 * X[:, :1]) + 0.1 * rng.normal(size=(n, 1))


def parts(p=4, q=5, n=12):
    psi, phi = RNG.normal(size=(n, p)), RNG.normal(size=(n, q))
    weights = RNG.uniform(0.1, 1.0, size=n)
    return psi, phi, weights / weights.sum()


# --- the loss: no torch needed -------------------------------------------------------------------


def test_the_profiled_loss_is_the_formula_of_the_paper():
    psi, phi, weights = parts()
    G, D, Psi, lam = phi @ phi.T, np.diag(weights), psi.T, 0.03
    inverse = np.linalg.inv(Psi @ D @ Psi.T + lam * np.eye(4))
    expected = np.trace(G @ (D - D @ Psi.T @ inverse @ Psi @ D))  # IW22 A.2
    # A few hundred products of numbers of order one; the condition number is below 1e3.
    assert profiled(psi, phi, weights, lam) == pytest.approx(expected, rel=1e-11)


def test_the_profiled_loss_is_the_least_of_the_regularised_loss():
    psi, phi, weights = parts()
    lam = 0.03
    half, L = operator(psi, phi, weights, lam)
    best = np.linalg.solve(L.T, half)

    def loss(E):
        return weights @ np.sum((phi - psi @ E) ** 2, axis=1) + lam * np.sum(E**2)

    assert profiled(psi, phi, weights, lam) == pytest.approx(loss(best), rel=1e-11)
    assert left_over(psi, phi, weights, half, L) == pytest.approx(
        loss(best) - lam * np.sum(best**2), rel=1e-11
    )
    for _ in range(20):
        assert loss(best + 0.1 * RNG.normal(size=best.shape)) > loss(best)


def test_the_direct_loss_is_the_squared_distance_in_the_rkhs():
    kernel, Z = kb.Gaussian(1.0), RNG.normal(size=(12, 2))
    landmarks = kb.nystrom(kernel, Z, 5, rng=0)
    f = RNG.normal(size=(12, 5))  # coefficients of the embeddings on the landmarks
    psi, weights = f @ landmarks.factor, np.full(12, 1 / 12)
    expected = np.mean(
        [
            kb.mmd2(kb.embed(Z[i : i + 1], kernel), kb.embed(landmarks.landmarks, kernel, f[i]))
            for i in range(12)
        ]
    )
    found = direct(psi, landmarks.features(Z), weights, kernel.diag(Z))
    assert found == pytest.approx(expected, rel=1e-10)


def test_features_of_unit_size_have_a_diagonal_of_one_on_average():
    psi, _, weights = parts()
    scaled, size = unit(psi, weights)
    assert weights @ np.sum(scaled**2, axis=1) == pytest.approx(1.0, rel=1e-14)
    np.testing.assert_allclose(scaled * size, psi, rtol=1e-14)


@pytest.mark.torch
def test_gradients_are_finite_differences():
    torch = pytest.importorskip("torch")
    psi, phi, weights = (torch.tensor(a, requires_grad=True) for a in parts())
    fixed = weights.detach()
    check = torch.autograd.gradcheck
    assert check(lambda a, b, w: profiled(a, b, w, 0.03), (psi, phi, weights))
    assert check(lambda a: profiled(unit(a, fixed)[0], phi.detach(), fixed, 0.03), (psi,))
    square = phi[:, :4]
    assert check(lambda a: direct(a, square.detach(), fixed, fixed), (psi,))


@pytest.mark.torch
def test_the_loss_of_torch_is_that_of_numpy():
    torch = pytest.importorskip("torch")
    arrays = parts()
    found = profiled(*map(torch.tensor, arrays), 0.03)
    assert float(found) == pytest.approx(profiled(*arrays, 0.03), rel=1e-11)


# --- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((3,), "mlp"),
        ((64, 64), "cnn"),
        ((24, 36, 3), "cnn"),
        ((10, 2), "window"),
        ((10, 42), "window"),
    ],
)
def test_the_network_is_chosen_by_shape(shape, kind):
    assert kind_of(shape) == kind


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dim": 0}, "dim must be an integer"),
        ({"ridge": 0.0}, "ridge must be positive"),
        ({"validation": 1.0}, "validation must lie"),
        ({"loss": "hinge"}, "loss must be one of"),
        ({"module": "rnn"}, "module must be one of"),
        ({"decay": -1.0}, "decay must not be negative"),
        ({"batch": 1}, "batch must be an integer of at least 2"),
    ],
)
def test_bad_settings_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        kb.NeuralFeatures(**arguments)


def test_what_is_no_module_or_kernel_is_refused():
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
        kb.NeuralFeatures(module=3)
    with pytest.raises(TypeError, match="kernel_z must be a Kernel"):
        kb.NeuralFeatures(kernel_z="gaussian")
    with pytest.raises(ValueError, match="no network for points of shape"):
        kind_of((2, 3, 4, 5))
    with pytest.raises(ValueError, match="cannot take points of shape"):
        Net("cnn", (3,), 2)
    with pytest.raises(ValueError, match="cannot take points of shape"):
        Net("gru", (3,), 2)


def test_features_that_are_not_learned_yet_are_no_kernel():
    X, Z = sample()
    for model in (kb.KernelBayesRule, kb.ConditionalEmbedding, kb.KernelBayesFilter):
        with pytest.raises(TypeError, match=r"fit\(X, Z\)"):
            model(kernel_x=kb.NeuralFeatures()).fit(X, Z)


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"kernelbayes\[torch\]"):
        kb.NeuralFeatures().fit(*sample())


# --- the kernel ----------------------------------------------------------------------------------


def points(kind, n=N):
    shape = {"mlp": (3,), "cnn": (9, 8), "window": (5, 2), "gru": (5, 2)}.get(kind, (9, 8, 3))
    return np.random.default_rng(2).normal(size=(n, *shape))


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["mlp", "cnn", "window", "gru", "colour"])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_learned_kernels_obey_the_laws(kind, scale):
    pytest.importorskip("torch")
    X = points(kind)
    module = "gru" if kind == "gru" else None
    kernel = kb.NeuralFeatures(module, **QUICK).fit(X, X.reshape(N, -1)[:, :1])
    laws.check_kernel(kernel, scale * np.concatenate([X[:8], X[:3]]))
    assert kernel.features(X).shape == (N, 6)
    # The mean is that of the training part, four fifths of the sample.
    assert 0.5 < float(np.mean(kernel.diag(X))) < 2.0


@pytest.mark.torch
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"loss": "direct"},
        {"targets": None},
        {"batch": 16},
        {"batch": None, "restarts": 2},
        {"kernel_z": kb.Laplace(1.0), "targets": 10},
    ],
    ids=str,
)
def test_the_same_seed_gives_the_same_kernel_to_the_bit(options):
    torch = pytest.importorskip("torch")
    X, Z = sample()
    before = torch.random.get_rng_state()
    first, second, third = (
        kb.NeuralFeatures(**{**QUICK, "rng": seed}, **options).fit(X, Z) for seed in (0, 0, 1)
    )
    assert torch.equal(torch.random.get_rng_state(), before)
    assert first == second
    assert hash(first) == hash(second)
    assert first != third
    np.testing.assert_array_equal(first.features(X), second.features(X))
    assert first.history == second.history


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["cnn", "window", "gru"])
def test_networks_repeat_to_the_bit_are_saved_and_differentiated(kind, tmp_path):
    torch = pytest.importorskip("torch")
    X = points(kind)
    features = kb.NeuralFeatures(kind, **QUICK)
    kernel, again = (features.fit(X, X.reshape(N, -1)[:, :1]) for _ in range(2))
    np.testing.assert_array_equal(kernel.features(X), again.features(X))
    # Noise and dropout are for training only.
    np.testing.assert_array_equal(kernel.features(X), kernel.features(X))
    kb.save(kernel, tmp_path / "kernel")
    assert kb.load(tmp_path / "kernel") == kernel
    tensor = torch.tensor(X[:3], requires_grad=True)
    found = kernel.features(tensor)
    # The same network in another order of sums.
    np.testing.assert_allclose(
        found.detach().numpy(), kernel.features(X[:3]), rtol=1e-9, atol=1e-12
    )
    found.sum().backward()
    assert float(tensor.grad.abs().max()) > 0.0


@pytest.mark.torch
def test_a_recurrent_unit_remembers_what_was_at_the_start_of_a_window():
    pytest.importorskip("torch")
    X = np.random.default_rng(7).normal(size=(600, 4, 2))
    z = X[:, 0, 0] + X[:, -1, 1]
    kernel = kb.NeuralFeatures("gru", dim=8, epochs=60, rng=0).fit(X[:400], z[:400])
    rule = kb.ConditionalEmbedding(kernel_x=kernel).fit(X[:400], z[:400])
    # Who forgets the first step is left with its variance, which is one.
    assert np.mean((rule(X[400:]).mean().ravel() - z[400:]) ** 2) < 0.5


@pytest.mark.torch
def test_a_learned_kernel_is_immutable_and_runs_in_double_precision():
    torch = pytest.importorskip("torch")
    X, Z = sample()
    kernel = kb.NeuralFeatures(**QUICK).fit(X, Z)
    with pytest.raises(dataclasses.FrozenInstanceError):
        kernel.dim = 3
    assert kernel.features(X).dtype == np.float64
    assert kernel.features(X.astype(np.float32)).dtype == np.float32
    tensor = torch.tensor(X[:4], requires_grad=True)
    np.testing.assert_allclose(
        kernel.features(tensor).detach().numpy(), kernel.features(X[:4]), rtol=1e-12, atol=1e-14
    )
    assert torch.autograd.gradcheck(lambda x: kernel(x, x[:2]), (tensor,))
    with pytest.raises(ValueError, match="learned for points of shape"):
        kernel(X[:, :2])
    with pytest.raises(ValueError, match="NaN"):
        kernel.features(np.full((2, 3), np.nan))
    with pytest.raises(TypeError, match="partly missing"):
        kernel.on([0])


@pytest.mark.torch
def test_columns_of_a_frame_are_put_in_order():
    pytest.importorskip("torch")
    pandas = pytest.importorskip("pandas")
    X, Z = sample()
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    kernel = kb.NeuralFeatures(**QUICK).fit(frame, Z)
    np.testing.assert_array_equal(kernel.features(frame[["c", "a", "b"]]), kernel.features(X))
    with pytest.raises(ValueError, match="columns"):
        kernel.features(frame.rename(columns={"a": "d"}))


@pytest.mark.torch
def test_bad_pairs_are_refused():
    pytest.importorskip("torch")
    X, Z = sample()
    features = kb.NeuralFeatures(**QUICK)
    with pytest.raises(ValueError, match="must be pairs"):
        features.fit(X, Z[:-1])
    with pytest.raises(ValueError, match="too few to hold out"):
        features.fit(X[:2], Z[:2])
    with pytest.raises(ValueError, match="X has NaN"):
        features.fit(np.where(X > 1.0, np.nan, X), Z)
    for weights in (-np.ones(N), np.zeros(N), np.ones(3)):
        with pytest.raises(ValueError, match="weights must be 40 finite numbers"):
            features.fit(X, Z, weights)
    with pytest.raises(ValueError, match="at least dim"):
        kb.NeuralFeatures(dim=50, loss="direct").fit(X, Z)


@pytest.mark.torch
def test_a_pair_without_weight_does_not_count():
    pytest.importorskip("torch")
    X, Z = sample()
    weights = np.arange(N) % 2.0
    changed = np.where(weights[:, None] > 0.0, Z, 100.0)
    features = kb.NeuralFeatures(**QUICK, kernel_z=kb.Gaussian(1.0), batch=None)
    assert features.fit(X, Z, weights) == features.fit(X, changed, weights)
    assert features.fit(X, Z, 3.0 * np.ones(N)) == features.fit(X, Z)


@pytest.mark.torch
def test_a_large_offset_of_x_changes_nothing():
    pytest.importorskip("torch")
    X, Z = sample()
    X = np.round(8.0 * X) / 8.0
    near, far = (kb.NeuralFeatures(**QUICK).fit(X + offset, Z) for offset in (0.0, 2.0**30))
    # The mean is known to 1e9 times 1e-16; a step of Adam does not magnify that much.
    np.testing.assert_allclose(far.history, near.history, rtol=1e-3)
    np.testing.assert_allclose(far.features(X + 2.0**30), near.features(X), atol=1e-2)


# --- your own module -----------------------------------------------------------------------------


def own(dim=6):
    torch = pytest.importorskip("torch")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = torch.nn.Linear(3, 8), torch.nn.Dropout(0.2), torch.nn.ReLU()
        return torch.nn.Sequential(*layers, torch.nn.BatchNorm1d(8), torch.nn.Linear(8, dim))


@pytest.mark.torch
def test_your_own_module_is_trained_as_a_copy():
    module = own()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    X, Z = sample()
    kernel = kb.NeuralFeatures(module, **QUICK, restarts=2).fit(X, Z)
    assert all(bool((value == before[name]).all()) for name, value in module.state_dict().items())
    assert kernel == kb.NeuralFeatures(module, **QUICK, restarts=2).fit(X, Z)
    laws.check_kernel(kernel, X[:9])
    with pytest.raises(ValueError, match="as many outputs as dim"):
        kb.NeuralFeatures(own(5), **QUICK).fit(X, Z)


# --- files ---------------------------------------------------------------------------------------


@pytest.mark.torch
def test_learned_kernels_are_saved_without_pickle(tmp_path):
    pytest.importorskip("torch")
    X, Z = sample()
    kernel = kb.NeuralFeatures(**QUICK).fit(X, Z)
    model = kb.KernelBayesRule(kernel_x=kernel).fit(X, Z)
    kb.save(kernel, tmp_path / "kernel")
    kb.save(model, tmp_path / "model")
    assert kb.load(tmp_path / "kernel") == kernel
    found = kb.load(tmp_path / "model")
    np.testing.assert_array_equal(found.predict(X), model.predict(X))
    kb.save(kb.NeuralFeatures(**QUICK), tmp_path / "settings")
    assert kb.load(tmp_path / "settings") == kb.NeuralFeatures(**QUICK)


@pytest.mark.torch
def test_your_own_module_is_given_again_when_a_file_is_read(tmp_path):
    module = own()
    X, Z = sample()
    kernel = kb.NeuralFeatures(module, **QUICK).fit(X, Z)
    kb.save(kernel, tmp_path / "kernel")
    with pytest.raises(ValueError, match="module"):
        kb.load(tmp_path / "kernel")
    assert kb.load(tmp_path / "kernel", module=module) == kernel
    again = kb.load(tmp_path / "kernel", module=own())  # its weights come from the file
    np.testing.assert_array_equal(again.features(X), kernel.features(X))
    with pytest.raises(ValueError, match="not the one that was trained"):
        kb.load(tmp_path / "kernel", module=own(5)).features(X)


# --- what uses it --------------------------------------------------------------------------------


@pytest.mark.torch
def test_a_learned_kernel_goes_wherever_kernels_go():
    pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    images = rng.normal(size=(80, 8, 8))
    z = images[:, :4].mean(axis=(1, 2))[:, None] * 6.0
    kernel = kb.NeuralFeatures(**QUICK).fit(images[:40], z[:40])
    rest, hidden = images[40:], z[40:]
    embedding = kb.ConditionalEmbedding(kernel_x=kernel).fit(rest, hidden)
    assert embedding(rest[:3]).mean().shape == (3, 1)
    rule = kb.KernelBayesRule(kernel_x=kernel).fit(rest, hidden, prior=hidden[:20])
    assert np.all(np.isfinite(rule.predict(rest)))
    tuned = kb.tune(kb.KernelBayesRule(kernel_x=kernel), rest, hidden, budget=3, rng=0)
    assert tuned.kernel_x_ == kernel
    model = kb.KernelBayesFilter(kernel_x=kernel, rng=0).fit(rest, hidden)
    assert np.all(np.isfinite(model.filter(rest).mean()))
    assert 0.0 < kb.mmd_test(rest[:20], rest[20:], kernel, permutations=99, rng=0).pvalue <= 1.0
    mu = kb.embed(rest, kernel)
    check_embedding(mu)
    free = kb.LikelihoodFree(method="cme", rng=0).fit(hidden, kernel.features(rest))
    assert np.all(np.isfinite(free.posterior(kernel.features(rest[:1])[0]).mean()))


@pytest.mark.torch
def test_a_learned_kernel_is_the_linear_one_of_its_features():
    pytest.importorskip("torch")
    X, Z = sample(60)
    kernel = kb.NeuralFeatures(**QUICK).fit(X, Z)
    settings = {"kernel_z": kb.Gaussian(0.5), "prior_ridge": 1e-3, "transition_ridge": 1e-3}
    settings |= {"ridge": 1e-2, "rng": 0}
    model = kb.KernelBayesFilter(kernel, **settings).fit(X, Z)
    linear = kb.KernelBayesFilter(kb.Linear(), **settings).fit(kernel.features(X), Z)
    expected = linear.filter(kernel.features(X[:9])).mean()
    # The same numbers in another order: ridges of 1e-3 leave some ten digits.
    np.testing.assert_allclose(model.filter(X[:9]).mean(), expected, rtol=1e-7, atol=1e-9)


# --- coverage ------------------------------------------------------------------------------------


def noisy_views(n, rng):
    """Views (n, 10) of a number through three functions of it, mixed, with noise."""
    z, mix = rng.normal(size=(n, 1)), seeded_mix()
    return np.hstack([z, z**2, np.sin(3.0 * z)]) @ mix + rng.normal(size=(n, 10)), z


def seeded_mix():
    return np.random.default_rng(5).normal(size=(3, 10))


def covered(kernel, X, Z, new, truth, level=0.8):
    """Share of the truths in calibrated intervals."""
    model = kb.ConditionalEmbedding(kernel_x=kernel).fit(X, Z)
    ends = kb.calibrate(model).interval(model(new), level)[:, 0]
    return float(np.mean((ends[:, 0] <= truth[:, 0]) & (truth[:, 0] <= ends[:, 1])))


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.*outside the training sample")  # a few of a thousand are
def test_features_of_one_part_and_embedding_of_the_other_cover_as_exact_kernels_do():
    pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    (X, Z), (new, truth) = noisy_views(800, rng), noisy_views(1000, rng)
    kernel = kb.NeuralFeatures(dim=16, epochs=40, rng=0).fit(X[:400], Z[:400])
    # Ends are quantiles of 400 left-out levels, their coverage is counted in 1000 draws: a standard
    # error of sqrt(.16 / 400 + .16 / 1000). Five of them are exceeded once in a million.
    error = 5.0 * np.sqrt(0.16 / 400 + 0.16 / 1000)
    exact = covered(None, X[400:], Z[400:], new, truth)
    assert abs(exact - 0.8) < error
    assert abs(covered(kernel, X[400:], Z[400:], new, truth) - 0.8) < error


@pytest.mark.torch
def test_the_example_of_the_documentation_runs():
    pytest.importorskip("torch")
    page = Path(__file__).parents[1] / "docs" / "learned_features.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.S)
    exec(compile(code, str(page), "exec"), {})


# --- tuning --------------------------------------------------------------------------------------


def test_candidates_of_tune_are_kernels_or_features():
    X, Z = sample()
    for wrong in (kb.Linear(), [3], ["cnn"]):
        with pytest.raises(TypeError, match="candidates must be a list"):
            kb.tune(kb.KernelBayesFilter(rng=0), X, Z, candidates=wrong)


@pytest.mark.torch
def test_tune_learns_features_without_the_part_that_judges_them():
    pytest.importorskip("torch")
    rng = np.random.default_rng(6)
    z = np.cumsum(rng.normal(size=(120, 1)), axis=0) * 0.3
    # The sign of each column is random: only absolute values say something about the state.
    X = np.exp(0.7 * np.tanh(z)) * rng.normal(size=(120, 8))
    seen = []

    class Watched(kb.NeuralFeatures):
        def fit(self, X, Z, weights=None):
            seen.append(len(X))
            return super().fit(X, Z, weights)

    model = kb.KernelBayesFilter(rank=20, rng=0)
    tuned = kb.tune(model, X, z, budget=6, candidates=[Watched(dim=4, epochs=5, rng=0)], rng=0)
    assert seen == [120, 60, 60]
    assert "Learned" in {row["kernel_x"] for row in tuned.tuning_}
    assert np.all(np.isfinite(tuned.filter(X[:10]).mean()))
    given = kb.tune(model, X, z, budget=6, candidates=[kb.Linear()], rng=0)
    assert "Linear" in {row["kernel_x"] for row in given.tuning_}
