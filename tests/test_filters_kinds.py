"""What filters take: NumPy in double and single, other arrays, lists, frames, stacked sequences."""

import array_api_strict
import numpy as np
import pandas as pd
import pytest

import kernelbayes as kb

RIDGES = {"prior_ridge": 1e-4, "transition_ridge": 1e-4, "ridge": 1e-2, "rng": 0}


def circling(rng, length):
    angle = rng.uniform(0, 6) + np.cumsum(0.3 + 0.1 * rng.normal(size=length))
    z = np.column_stack([np.cos(angle), np.sin(angle)])
    return z, z + 0.2 * rng.normal(size=z.shape)


RNG = np.random.default_rng(0)
Z, X = circling(RNG, 60)
_, NEW = circling(RNG, 12)
U = RNG.normal(size=(60, 1))
HOLES = NEW.copy()
HOLES[3], HOLES[5, 1] = np.nan, np.nan


def converter(kind):
    if kind == "torch":
        torch = pytest.importorskip("torch")
        return lambda x: torch.from_numpy(np.array(x))
    return {"strict": array_api_strict.asarray, "list": lambda x: x.tolist()}[kind]


def numbers(x):
    return x.numpy() if hasattr(x, "numpy") else np.asarray(x)


def walk(z, rng, control=None):
    return z  # the sample stays where it is


# --- arrays of other libraries -------------------------------------------------------------------

KINDS = ["strict", pytest.param("torch", marks=pytest.mark.torch)]
OPTIONS = {
    "automatic": {},
    "given": RIDGES,
    "rank": {"rank": 25, **RIDGES},
    "original": {"method": "original", **RIDGES, "ridge": 1e-4},
    "shift": {"transition": "shift", **RIDGES},
}


@pytest.mark.parametrize("kind", [*KINDS, "list"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_arrays_in_arrays_out(kind, options):
    to = converter(kind)
    expected = kb.KernelBayesFilter(**{"rng": 0, **options}).fit(X, Z)
    model = kb.KernelBayesFilter(**{"rng": 0, **options}).fit(to(X), to(Z))
    for ask in (
        lambda m, to: m.filter(to(HOLES)).mean(),
        lambda m, to: m.smooth(to(NEW)).mean(),
        lambda m, to: m.forecast(to(NEW), 2).observations.mean(),
        lambda m, to: m.filter(to(NEW[:4])).interval(0.9),
    ):
        found = ask(model, to)
        assert kind == "list" or type(found) is type(to(X))
        np.testing.assert_allclose(numbers(found), ask(expected, np.asarray), atol=1e-6)
    state, _ = model.step(model.start(), to(NEW)[0] if kind == "list" else to(NEW)[0, ...])
    state, _ = model.step(state, None)
    np.testing.assert_allclose(
        numbers(state.belief.mean()),
        expected.filter(np.vstack([NEW[:1], [[np.nan, np.nan]]])).mean()[1],
        atol=1e-6,
    )


@pytest.mark.parametrize("kind", [*KINDS, "list"])
def test_controls_of_other_kinds(kind):
    to = converter(kind)
    expected = kb.KernelBayesFilter(**RIDGES).fit(X, Z, U).filter(NEW, U[:12]).mean()
    found = kb.KernelBayesFilter(**RIDGES).fit(to(X), to(Z), to(U)).filter(to(NEW), to(U[:12]))
    np.testing.assert_allclose(numbers(found.mean()), expected, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_are_not_mixed(kind):
    to = converter(kind)
    for x, z in ((to(X), Z), (X, to(Z))):
        with pytest.raises(TypeError, match="one kind"):
            kb.KernelBayesFilter(**RIDGES).fit(x, z)
        with pytest.raises(TypeError, match="one kind"):
            kb.KernelMonteCarloFilter(walk, Z).fit(x, z)
    with pytest.raises(TypeError, match="one kind"):
        kb.KernelBayesFilter(**RIDGES).fit(X, Z).filter(to(NEW))
    with pytest.raises(TypeError, match="one kind"):
        kb.KernelBayesFilter(**RIDGES).fit(to(X), to(Z)).filter(NEW)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_single_precision_is_close_to_double(options):
    single = [a.astype(np.float32) for a in (X, Z, HOLES)]
    # Ridges that single precision would lose are not asked for.
    model = kb.KernelBayesFilter(**{"rng": 0, **options}).fit(*single[:2])
    found = model.filter(single[2]).mean()
    expected = kb.KernelBayesFilter(**{"rng": 0, **options}).fit(X, Z).filter(HOLES).mean()
    assert found.dtype == np.float32
    assert np.sqrt(np.mean((found - expected) ** 2)) < 0.03


def doubly(z, rng, control=None):
    """A random walk that computes in doubles, whatever it is given."""
    return np.asarray(z, dtype=float) + 0.2 * rng.normal(size=z.shape)


KERNELS = {f"kernel_{name}": kb.Gaussian(0.7) for name in "xzu"}
GIVEN = {**RIDGES, **KERNELS, "back_ridge": 0.1}
PRECISE = {
    "automatic": {"back_ridge": 0.1, "rng": 0},
    "rank": {"rank": 25, **GIVEN},
    "shift": {"transition": "shift", **GIVEN},
    "tiny ridge": {"method": "original", **GIVEN, "ridge": 1e-10},
    "regression": {"features": "regression", "lags": 3, **GIVEN},
    "tracked": {"features": "tracked", "lags": 3, **GIVEN},
    "velocity": {"order": 2, **GIVEN},
    "ratio": {"ratio": "ulsif", **GIVEN},
    "prior": {"initial": Z[:20].astype(np.float32), **GIVEN},
}
SINGLE = (np.float32, np.float32)
each_precision = pytest.mark.parametrize(
    "types",
    [(np.float32, np.float64), (np.float64, np.float32), SINGLE],
    ids=["x", "z", "both"],
)


def answers(model, X, *controls):
    """Everything that sums over the training sample, at every step."""
    beliefs = model.filter(X, *controls)
    yield from (beliefs.mean(), beliefs.std(), model.smooth(X, *controls).mean())
    state = model.start()
    for t in range(3):
        state, _ = model.step(state, X[t], *(c[t] for c in controls))
    yield state.belief.mean()


def assert_same(model, types, new=HOLES, controls=()):
    """Assert that singles give what the same numbers as doubles give, but for the last rounding."""
    new, x, z, *u = (a.astype(np.float32) for a in (new, X, Z, *controls))
    now = [part[: len(new)] for part in u]
    exact = model.fit(*(a.astype(float) for a in (x, z, *u)))
    wanted = list(answers(exact, *(a.astype(float) for a in (new, *now))))
    model.fit(x.astype(types[0]), z.astype(types[1]), *u)
    for a, b in zip(answers(model, new.astype(types[0]), *now), wanted, strict=True):
        assert a.dtype == types[1]
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6 if types[1] == np.float32 else 1e-12)


@each_precision
def test_singles_are_summed_as_doubles(types):
    assert_same(kb.KernelBayesFilter(**GIVEN), types)
    assert_same(kb.KernelBayesFilter(**GIVEN), types, NEW, [U])


@pytest.mark.parametrize("options", PRECISE.values(), ids=list(PRECISE))
def test_singles_are_summed_as_doubles_under_every_option(options):
    assert_same(kb.KernelBayesFilter(**options), SINGLE)


@each_precision
@pytest.mark.parametrize("method", ["importance", "original"])
def test_singles_are_summed_as_doubles_by_the_monte_carlo_filter(method, types):
    assert_same(kb.KernelMonteCarloFilter(doubly, Z, method=method, rng=0), types)


def test_singles_are_summed_as_doubles_by_a_learned_transition():
    assert_same(kb.KernelMonteCarloFilter(rng=0), SINGLE)


@pytest.mark.parametrize("features", ["raw", "regression"])
def test_times_as_states_keep_their_digits(features):
    """Seconds since 1970 are near 1.7e9, where singles come in steps of 128."""
    x, new = X.astype(np.float32), NEW.astype(np.float32)
    model = kb.KernelBayesFilter(**GIVEN, features=features)
    wanted = model.fit(x.astype(float), 1.7e9 + Z).filter(new.astype(float)).mean()
    found = model.fit(x, 1.7e9 + Z).filter(new).mean()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)  # 1.7e9 has an epsilon of 2e-7


# --- frames --------------------------------------------------------------------------------------


def test_frames_of_pandas_are_arrays():
    pd = pytest.importorskip("pandas")
    expected = kb.KernelBayesFilter(**RIDGES).fit(X, Z, U)
    model = kb.KernelBayesFilter(**RIDGES).fit(pd.DataFrame(X), pd.DataFrame(Z), pd.Series(U[:, 0]))
    # Columns of numbers as names, in another order, with dates as an index and holes.
    new = pd.DataFrame(HOLES, index=pd.date_range("2020", periods=12))[[1, 0]]
    found = model.filter(new, pd.DataFrame(U[:12]))
    np.testing.assert_allclose(found.mean(), expected.filter(HOLES, U[:12]).mean())
    assert found.names == ("0", "1")
    ahead = model.forecast(new, 2, pd.DataFrame(U[:14]))
    np.testing.assert_allclose(ahead.mean(), expected.forecast(HOLES, 2, U[:14]).mean())
    state, _ = model.step(model.start(), pd.DataFrame(NEW).iloc[0])
    np.testing.assert_allclose(state.belief.weights, expected.filter(NEW[:1]).weights[0])
    with pytest.raises(ValueError, match=r"X has the columns .'0'., but"):
        model.filter(new[[0]])


def test_lists_of_frames():
    pd = pytest.importorskip("pandas")
    cut = lambda A: [pd.DataFrame(A[:40]), pd.DataFrame(A[40:])]  # noqa: E731
    model = kb.KernelBayesFilter(**RIDGES).fit(cut(X), cut(Z))
    expected = kb.KernelBayesFilter(**RIDGES).fit([X[:40], X[40:]], [Z[:40], Z[40:]])
    for found, exact in zip(model.filter(cut(X)), expected.filter([X[:40], X[40:]]), strict=True):
        np.testing.assert_allclose(found.mean(), exact.mean())


def test_frames_of_polars():
    pl = pytest.importorskip("polars")
    frame = lambda A: pl.DataFrame({"a": A[:, 0], "b": A[:, 1]})  # noqa: E731
    found = kb.KernelBayesFilter(**RIDGES).fit(frame(X), frame(Z)).filter(frame(NEW)[["b", "a"]])
    np.testing.assert_allclose(
        found.mean(), kb.KernelBayesFilter(**RIDGES).fit(X, Z).filter(NEW).mean()
    )


# --- stacked sequences ---------------------------------------------------------------------------


def stack(A):
    return A.reshape(4, 15, -1)


@pytest.mark.parametrize("kernel", [None, kb.Gaussian(1.0), kb.Parts({0: kb.Gaussian(1.0)})])
def test_an_array_with_three_axes_is_sequences(kernel):
    x, z, u = stack(X), stack(Z), stack(U)
    # A given ridge: whether smoothing gains on sixty steps is not asked here.
    model, expected = (
        kb.KernelBayesFilter(kernel, back_ridge=0.1, **RIDGES).fit(a, b, c)
        for a, b, c in ((x, z, u), (list(x), list(z), list(u)))
    )
    assert model.lengths_ == (15,) * 4
    new, acting, gaps = x[:2, :6], u[:2, :6], np.full((2, 6), 2)
    for method in ("filter", "smooth"):
        found = getattr(model, method)(new, acting, gaps)
        exact = getattr(expected, method)(list(new), list(acting), list(gaps))
        for a, b in zip(found, exact, strict=True):
            np.testing.assert_array_equal(a.weights, b.weights)
    ahead = model.forecast(new, 1, u[:2, :7])
    for a, b in zip(ahead, expected.forecast(list(new), 1, list(u[:2, :7])), strict=True):
        np.testing.assert_array_equal(a.weights, b.weights)


def test_stacked_sequences_elsewhere():
    carlo = kb.KernelMonteCarloFilter(walk, Z, particles=20, picks=10, rng=0, ridge=1e-2)
    assert len(carlo.fit(stack(X), stack(Z)).filter(stack(X)[:2, :3])) == 2
    tuned = kb.tune(kb.KernelBayesFilter(rank=20, **RIDGES), stack(X), stack(Z), rng=0, budget=1)
    assert tuned.lengths_ == (15,) * 4


def test_three_axes_are_one_sequence_for_kernels_on_matrices():
    rotations = np.broadcast_to(np.eye(3), (60, 3, 3))
    model = kb.KernelBayesFilter(kernel_z=kb.Rotation(1.0), **RIDGES).fit(X, rotations)
    assert model.lengths_ == (60,)


def test_only_one_of_them_stacked_is_named():
    with pytest.raises(ValueError, match=r"arrays \(S, T, d\)"):
        kb.KernelBayesFilter().fit(stack(X), Z)
    with pytest.raises(ValueError, match=r"arrays \(S, T, d\)"):
        kb.KernelBayesFilter().fit(X, stack(Z))
    with pytest.raises(ValueError, match="4 sequences of X but 2 of Z"):
        kb.KernelBayesFilter().fit(stack(X), stack(Z)[:2])


def test_columns_are_found_by_name_in_any_order():
    pd = pytest.importorskip("pandas")
    names = ["a", "b"]
    frame, new = pd.DataFrame(X, columns=names), pd.DataFrame(NEW, columns=names)
    drive = np.hstack([U, RNG.normal(size=U.shape)])
    forces = pd.DataFrame(drive, columns=["gas", "wind"])
    turned = forces[["wind", "gas"]]
    model = kb.KernelBayesFilter(**RIDGES).fit(frame, Z, forces)
    expected = model.filter(NEW, drive[:12]).weights
    np.testing.assert_array_equal(model.filter(new[["b", "a"]], turned[:12]).weights, expected)
    ahead = model.forecast(new, 2, turned[:14]).weights
    np.testing.assert_array_equal(ahead, model.forecast(NEW, 2, drive[:14]).weights)
    first, _ = model.step(model.start(), new[["b", "a"]].iloc[0])
    second, _ = model.step(first, {"b": NEW[1, 1], "a": NEW[1, 0]}, turned.iloc[1])
    np.testing.assert_allclose(second.belief.weights, expected[1], atol=1e-12)
    one = kb.KernelBayesFilter(**RIDGES).fit([frame[:30], frame[30:]], [Z[:30], Z[30:]])
    other = kb.KernelBayesFilter(**RIDGES).fit(
        [frame[:30], frame[30:][["b", "a"]]], [Z[:30], Z[30:]]
    )
    np.testing.assert_array_equal(one.filter(new).weights, other.filter(new).weights)
    with pytest.raises(ValueError, match=r"controls has the columns .'wind'., but"):
        model.filter(new, forces[["wind"]][:12])


def test_controls_in_frames_of_numbers_and_categories():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"gas": U[:, 0], "gear": np.where(U[:, 0] > 1, "high", "low")})
    kernel = kb.Parts({"gas": kb.Gaussian(1.0), "gear": kb.Delta()})
    model = kb.KernelBayesFilter(kernel_u=kernel, **RIDGES).fit(X, Z, frame)
    state = model.start()
    for t in range(12):
        state, _ = model.step(state, NEW[t], dict(frame.iloc[t]))
    found = model.filter(NEW, frame[:12])
    np.testing.assert_allclose(found.weights[-1], state.belief.weights, atol=1e-12)
    assert np.all(np.isfinite(model.smooth(NEW, frame[:12]).weights))
    assert len(model.forecast(NEW, 3, frame[:15])) == 3
    with pytest.raises(ValueError, match=r"controls.* has NaN"):
        model.filter(NEW, frame[:12].assign(gas=np.nan))


def test_none_and_missing_integers_are_holes():
    pd = pytest.importorskip("pandas")
    model = kb.KernelBayesFilter(**RIDGES).fit(X, Z)
    rows = [None if np.isnan(x).all() else [None if np.isnan(v) else v for v in x] for x in HOLES]
    expected = model.filter(HOLES).weights
    np.testing.assert_array_equal(model.filter(rows).weights, expected)
    a, _ = model.step(model.start(), [NEW[0, 0], None])
    b, _ = model.step(model.start(), [NEW[0, 0], np.nan])
    np.testing.assert_array_equal(a.belief.weights, b.belief.weights)
    whole = pd.DataFrame({"a": [1, None, 0], "b": [0, 1, 1]}, dtype="Int64")
    expected = model.filter(np.array([[1.0, 0.0], [np.nan, 1.0], [0.0, 1.0]])).weights
    np.testing.assert_array_equal(model.filter(whole).weights, expected)


def test_a_transition_may_work_in_place():
    def moved(z, rng):
        z += 1.0
        return z

    def at_zero(m, rng):
        return np.zeros((m, 2))

    before = Z.copy()
    model = kb.KernelMonteCarloFilter(moved, at_zero, rng=0).fit(X, Z)
    for ask in (model.filter, model.smooth):
        # It moves away from the circle for ever.
        with pytest.warns(kb.NumericalWarning, match="have left the training states"):
            ask(NEW)
    np.testing.assert_array_equal(Z, before)


def test_forecast_observations_are_not_called_states():
    pytest.importorskip("pandas")
    ahead = kb.KernelBayesFilter(**RIDGES).fit(X, Z).forecast(NEW, 2)
    assert {"z0", "z1"} <= set(ahead.to_frame())
    assert {"x0", "x1"} <= set(ahead.observations.to_frame())


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda m: m.filter(NEW[:3], gaps=[1, 1.5, 2]), "gaps must be 3 integers"),
        (lambda m: m.filter(NEW[:3], gaps=[1, np.nan, 2]), "gaps must be 3 integers"),
        (lambda m: m.step(m.start(), NEW[0], steps=1.5), "steps must be an integer"),
        (lambda m: m.smooth(NEW, lag=1.5), "lag must be an integer"),
        (lambda m: m.forecast(NEW, 2.5), "horizon must be an integer"),
    ],
)
def test_steps_are_whole_numbers(ask, words):
    with pytest.raises(ValueError, match=words):
        ask(kb.KernelBayesFilter(**RIDGES).fit(X, Z))


def test_bad_parameters_are_named_when_fitting():
    def fit(**options):
        return kb.KernelBayesFilter(**options).fit(X, Z)

    with pytest.raises(TypeError, match="kernel_x must be a Kernel"):
        fit(kernel_x="rbf")
    with pytest.raises(TypeError, match="kernel_z must be a Kernel"):
        fit(kernel_z=kb.Gaussian)
    with pytest.raises((TypeError, ValueError), match="ridge"):
        fit(back_ridge="loo")
    with pytest.raises(ValueError, match="initial must be"):
        fit(initial="first")
    with pytest.raises(ValueError, match="particles must be an integer"):
        kb.KernelMonteCarloFilter(walk, Z, particles=10.5).fit(X, Z)


@pytest.mark.parametrize("index", [[1, 4], np.array([1, 4]), np.arange(6) % 3 == 1])
def test_some_times_are_beliefs_too(index):
    beliefs = kb.KernelBayesFilter(rng=0).fit(X, Z).filter(X[:6])
    some = beliefs[index]
    np.testing.assert_array_equal(some.weights, beliefs.weights[[1, 4]])
    np.testing.assert_array_equal(some.info.ess, beliefs.info.ess[[1, 4]])
    assert "2 steps" in repr(some)


def test_states_that_are_matrices_have_a_mean():
    """Trace states, KBR13 section 5.3: the mean matrix, and its projection on rotations."""
    angle = 0.5 + 0.8 * np.sin(0.4 * np.arange(80))
    R = np.stack([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    Z = np.moveaxis(R, 2, 0)
    X = np.column_stack([np.cos(angle), np.sin(angle)])
    model = kb.KernelBayesFilter(kb.Gaussian(0.5), kb.Trace(), ridge=1e-4, rng=0)
    model.fit(X[:60], Z[:60])
    beliefs = model.filter(X[60:])
    assert beliefs.mean().shape == (20, 2, 2)
    np.testing.assert_allclose(
        beliefs.mean(), np.einsum("tn,npq->tpq", beliefs.weights, Z[:60]), atol=1e-12
    )
    np.testing.assert_allclose(beliefs.mean(), Z[60:], atol=0.2)
    assert beliefs[3].mean().shape == (2, 2)


# --- frames of numbers and categories, matrices that are known -----------------------------------


def floors(rng, length):
    """A walk up and down: a noisy height, and on which floor it is, which is sometimes wrong."""
    z = np.zeros(length)
    for t in range(1, length):
        z[t] = 0.95 * z[t - 1] + 0.4 * rng.normal()
    wrong = rng.uniform(size=length) < 0.05
    floor = np.where((z > 0.0) ^ wrong, "upper", "lower")
    return pd.DataFrame({"height": z + 0.5 * rng.normal(size=length), "floor": floor}), z


def test_frames_of_numbers_and_categories_are_observations():
    rng = np.random.default_rng(0)
    (frame, z), (new, truth) = floors(rng, 200), floors(rng, 150)
    model = kb.KernelBayesFilter(rng=0).fit(frame, z)
    assert isinstance(model.kernel_x_, kb.Parts)
    beliefs = model.filter(new)  # heights that were never seen
    assert np.mean((beliefs.mean()[:, 0] - truth) ** 2) < 0.5 * np.var(truth)
    other = model.filter(new[["floor", "height"]])
    np.testing.assert_array_equal(other.weights, beliefs.weights)
    state = model.start()
    for row in new[:4].to_dict("records"):
        state, _ = model.step(state, row)
    np.testing.assert_allclose(state.belief.weights, beliefs.weights[3], atol=1e-12)
    pieces = kb.KernelBayesFilter(rng=0).fit([frame[:100], frame[100:]], [z[:100], z[100:]])
    assert isinstance(pieces.kernel_x_, kb.Parts)
    with pytest.raises(ValueError, match="floor"):
        model.filter(new[["height"]])


def test_frames_of_numbers_and_categories_are_states_and_controls():
    rng = np.random.default_rng(1)
    frame, z = floors(rng, 120)
    states = pd.DataFrame({"height": z, "room": np.where(z > 0.0, "attic", "hall")})
    table = kb.KernelBayesFilter(rng=0).fit(frame, states).filter(frame[:10]).to_frame()
    assert {"height", "height_low", "room", "room_attic", "room_hall"} <= set(table)
    np.testing.assert_allclose(table["room_attic"] + table["room_hall"], 1.0)
    controlled = kb.KernelBayesFilter(rng=0).fit(z, z, frame)
    assert isinstance(controlled.kernel_u_, kb.Parts)
    assert np.isfinite(controlled.filter(z[:10], frame[:10]).mean()).all()


@pytest.mark.filterwarnings("ignore:smoothing gains nothing")
def test_a_kernel_on_indices_is_the_kernel_of_its_matrix():
    rng = np.random.default_rng(2)
    z = np.cumsum(rng.normal(size=70)) * 0.3
    x = z + 0.2 * rng.normal(size=70)
    kernel, ridges = kb.Gaussian(0.4), {"ridge": 0.01, "rng": 0}
    G = kernel(x, x)
    index, old, new = kb.Custom(lambda i, j: G[i][:, j]), np.arange(60), np.arange(60, 70)
    both = {"prior_ridge": 1e-4, "transition_ridge": 1e-4, "back_ridge": 0.1} | ridges

    def walk(states, rng, control=None):
        del control
        return states + 0.3 * rng.normal(size=states.shape)

    for make in (
        lambda k: kb.KernelBayesFilter(k, kernel, **both),
        lambda k: kb.KernelMonteCarloFilter(
            walk, z[:60, None], k, kernel, prior_ridge=1e-4, **ridges
        ),
    ):
        given, known = make(kernel).fit(x[:60], z[:60, None]), make(index).fit(old, z[:60, None])
        expected = given.filter(x[60:]).mean()
        # Both factor the same matrix, to a relative trace error of 1e-10 or so over ridge 1e-2.
        np.testing.assert_allclose(known.filter(new).mean(), expected, atol=1e-6)
    chosen = kb.KernelBayesFilter(kernel_x=index, rng=0).fit(old, z[:60])
    assert np.isfinite(chosen.smooth(new).mean()).all()
