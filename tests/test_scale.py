"""Statistics of a fit: sums that merge, sources beyond memory, the same numbers as one fit."""

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelbayes as kb
from kernelbayes import ConditionalEmbedding, Gaussian, KernelBayesRule, nystrom
from kernelbayes.scale.statistics import Basis, Kept, Statistics

N, RANK = 2600, 40  # more pairs than are kept, so that sums and kept pairs differ


def pairs(n=N, seed=0):
    rng = np.random.default_rng(seed)
    Z = 5.0 + rng.normal(size=(n, 2))
    X = np.tanh(Z @ np.array([[1.0, 0.5, 0.0], [0.0, 0.5, 1.0]]) - 5.0)
    return X + 0.3 * rng.normal(size=X.shape), Z


X, Z = pairs()
KERNELS = nystrom(Gaussian(1.0), X, RANK, rng=0), nystrom(Gaussian(1.0), Z, RANK, rng=1)
# Answers of normal equations: rounding times a condition number of at most 1 / ridge, with slack.
TOLERANCE = 1e-10


def rule(**options):
    given = {"ridge": 1e-3, "prior_ridge": 1e-3, "literal": True}
    given |= {"kernel_x": KERNELS[0], "kernel_z": KERNELS[1]}
    return KernelBayesRule(**(given | options))


def split(cuts):
    edges = [0, *sorted(cuts), N]
    return [slice(a, b) for a, b in pairwise(edges) if b > a]


cuts = st.lists(st.integers(1, N - 1), min_size=1, max_size=5, unique=True)


@settings(max_examples=10, deadline=None)
@given(cuts)
def test_partial_fits_are_one_fit(found):
    model, whole = rule(), rule().fit(X, Z)
    for rows in split(found):
        model.partial_fit(X[rows], Z[rows])
    np.testing.assert_allclose(model.predict(X[:50]), whole.predict(X[:50]), atol=TOLERANCE)
    ours, one = model.posterior(X[:50]), whole.posterior(X[:50])
    np.testing.assert_allclose(ours.mean(), one.mean(), atol=TOLERANCE)
    np.testing.assert_allclose(ours.mass, one.mass, atol=TOLERANCE)
    np.testing.assert_allclose(ours(Z[:20]), one(Z[:20]), atol=1e-8)  # features matched to MATCHED
    assert ours.weights.shape[1] < N


@pytest.mark.filterwarnings("ignore:.*exact copies of others")  # the new pairs, in the second fit
@pytest.mark.parametrize("old", [900, 1300])  # 900: all pairs are kept, and count differently
def test_forgetting_is_a_fit_with_pairs_repeated(old):
    """Old pairs that count a half are those of a fit in which the new ones are there twice."""
    first, second = slice(0, old), slice(old, 2 * old)
    half = rule().fit(X[first], Z[first]).partial_fit(X[second], Z[second], forgetting=0.5)
    twice = rule().fit(*(np.concatenate([A[first], A[second], A[second]]) for A in (X, Z)))
    plain = rule().fit(X[: 2 * old], Z[: 2 * old])
    expected = twice.predict(X[:50])
    np.testing.assert_allclose(half.predict(X[:50]), expected, atol=TOLERANCE)
    assert np.abs(plain.predict(X[:50]) - expected).max() > 1e-4
    ours, one = half.posterior(X[:50]), twice.posterior(X[:50])
    np.testing.assert_allclose(ours.mean(), one.mean(), atol=TOLERANCE)
    np.testing.assert_allclose(ours.mass, one.mass, atol=TOLERANCE)
    np.testing.assert_allclose(ours(Z[:20]), one(Z[:20]), atol=1e-8)  # features matched to MATCHED
    cmes = [ConditionalEmbedding(*KERNELS, ridge=1e-3) for _ in range(2)]
    cmes[0].fit(X[first], Z[first]).partial_fit(X[second], Z[second], forgetting=0.5)
    cmes[1].fit(*(np.concatenate([A[first], A[second], A[second]]) for A in (X, Z)))
    np.testing.assert_allclose(*(cme(X[:9]).mean() for cme in cmes), atol=1e-8)


def test_kept_pairs_follow_what_counts():
    model = rule().fit(X, Z)
    for _ in range(8):
        model.partial_fit(X, Z + 100.0, forgetting=0.5)
    # Of the last eight batches and the first, 2^-k of each: less than 2 in 1000 are of the first.
    old = np.mean(model.statistics_.kept.Z[:, 0] < 50.0)
    assert old < 0.01
    total = sum(0.5**k for k in range(8)) + 0.5**8
    assert model.statistics_.n == pytest.approx(N * total)


def test_the_latest_pairs_are_kept():
    model = rule(kernel_x=Gaussian(1.0), kernel_z=Gaussian(1.0))
    model.fit(X[:60], Z[:60]).partial_fit(X[60:100], Z[60:100], keep=70)
    expected = rule(kernel_x=Gaussian(1.0), kernel_z=Gaussian(1.0)).fit(X[30:100], Z[30:100])
    np.testing.assert_allclose(model.predict(X[:20]), expected.predict(X[:20]), atol=TOLERANCE)


def test_forgetting_where_it_cannot_be_is_refused():
    exact = rule(kernel_x=Gaussian(1.0), kernel_z=Gaussian(1.0)).fit(X[:60], Z[:60])
    with pytest.raises(ValueError, match="forgetting needs finite features"):
        exact.partial_fit(X[:9], Z[:9], forgetting=0.5)
    with pytest.raises(ValueError, match="use forgetting"):
        rule().fit(X, Z).partial_fit(X[:9], Z[:9], keep=100)
    with pytest.raises(ValueError, match="forgetting must lie"):
        exact.partial_fit(X[:9], Z[:9], forgetting=1.5)


@settings(max_examples=10, deadline=None)
@given(cuts)
def test_merging_is_associative_and_pure(found):
    parts = [rule().fit(X[rows], Z[rows]) for rows in split([*found, 700, 1400])]
    before = [part.predict(X[:5]) for part in parts]
    left = parts[0]
    for part in parts[1:]:
        left = left + part
    right = parts[-1]
    for part in parts[-2::-1]:
        right = part.merge(right)
    np.testing.assert_allclose(left.predict(X), right.predict(X), atol=TOLERANCE)
    np.testing.assert_array_equal(left.statistics_.kept.keys, right.statistics_.kept.keys)
    assert left.statistics_.n == N
    for part, old in zip(parts, before, strict=True):
        np.testing.assert_array_equal(part.predict(X[:5]), old)


def test_sums_are_the_sums_of_the_definition():
    basis = Basis(*KERNELS)
    J = np.column_stack([KERNELS[0].features(X), KERNELS[1].features(Z), Z, np.ones(N)])
    expected = sum(np.outer(row, row) for row in J)
    found = Statistics.of(X[:900], Z[:900], basis, 100) + Statistics.of(
        X[900:], Z[900:], basis, 100
    )
    np.testing.assert_allclose(found.sums, expected, rtol=1e-10, atol=1e-10)
    assert (found.n, len(found.kept.keys)) == (N, 100)


def test_a_prior_from_batches_is_a_prior_in_memory():
    prior = np.random.default_rng(3).normal(5.3, 0.6, size=(200, 2))
    batches = [(X[rows], Z[rows]) for rows in split([1000, 1700])]
    for method in ("importance", "original"):
        whole = rule(method=method).fit(X, Z, prior)
        ours = rule(method=method).fit(batches, prior=prior)
        # The original rule squares the condition number.
        np.testing.assert_allclose(ours.predict(X[:50]), whole.predict(X[:50]), atol=1e-7)
        with pytest.raises(ValueError, match=r"fit\(source, prior=prior\)"):
            ours.with_prior(prior)
        with pytest.raises(ValueError, match="an iterator gives them once"):
            rule(method=method).fit(iter(batches), prior=prior)


@pytest.mark.filterwarnings("ignore::kernelbayes.NumericalWarning")  # points at the edge
def test_safeguards_inside_the_sample_and_automatic_ridges():
    model, whole = rule(literal=False), rule(literal=False).fit(X, Z)
    model.fit([(X[:1300], Z[:1300]), (X[1300:], Z[1300:])])
    inside = X[np.linalg.norm(X - X.mean(axis=0), axis=1) < 1.0]
    np.testing.assert_allclose(model.predict(inside), whole.predict(inside), atol=TOLERANCE)
    chosen = KernelBayesRule(rank=RANK, rng=0).fit([(X[:1300], Z[:1300]), (X[1300:], Z[1300:])])
    known = KernelBayesRule(rank=RANK, rng=0).fit(X, Z)
    new, truth = pairs(500, seed=9)
    ours, one = (np.mean((m.predict(new) - truth) ** 2) for m in (chosen, known))
    assert ours < 1.1 * one  # other landmarks and ridges, chosen from as many pairs


def test_few_pairs_are_all_kept_and_everything_is_as_in_memory():
    model = rule(literal=False, ridge="loo").fit(X[:300], Z[:300])
    model.partial_fit(X[300:800], Z[300:800])
    whole = rule(literal=False, ridge="loo").fit(X[:800], Z[:800])
    np.testing.assert_allclose(model.posterior(X[:9]).weights, whole.posterior(X[:9]).weights)
    prior = Z[:100] + 0.3
    ours, one = (m.with_prior(prior).predict(X[:9]) for m in (model, whole))
    np.testing.assert_allclose(ours, one, atol=TOLERANCE)


@pytest.mark.parametrize("kernel", [None, Gaussian(1.0)])
def test_without_a_rank_all_pairs_are_kept(kernel):
    model = KernelBayesRule(kernel, kernel).fit(X[:60], Z[:60, 0])
    grown = KernelBayesRule(kernel, kernel).partial_fit(X[:20], Z[:20, 0])
    grown.partial_fit(X[20:60], Z[20:60, 0])
    np.testing.assert_allclose(grown.predict(X[:9]), model.predict(X[:9]), atol=TOLERANCE)
    assert grown.predict(X[:9]).shape == (9,)
    a, b = (KernelBayesRule(kernel, kernel).fit(X[s], Z[s, 0]) for s in (slice(20), slice(20, 60)))
    np.testing.assert_allclose((a + b).predict(X[:9]), model.predict(X[:9]), atol=TOLERANCE)


def test_conditional_embeddings_merge():
    whole = ConditionalEmbedding(*KERNELS, ridge=1e-3).fit(X, Z)
    parts = [ConditionalEmbedding(*KERNELS, ridge=1e-3).fit(X[s], Z[s]) for s in split([800])]
    for ours in (parts[0] + parts[1], ConditionalEmbedding(*KERNELS, ridge=1e-3).fit(batches())):
        near, one = ours.filled(X[:30]), whole.filled(X[:30])
        raw, whole_raw = (found.diagnostics.embedding for found in (near, one))
        np.testing.assert_allclose(raw.mass, whole_raw.mass, atol=TOLERANCE)
        np.testing.assert_allclose(raw(Z[:20]), whole_raw(Z[:20]), atol=1e-8)


def batches(size=500):
    return ((X[a : a + size], Z[a : a + size]) for a in range(0, N, size))


def test_tables_are_read_by_name(tmp_path):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(
        {"z1": Z[:, 1], **{f"x{j}": X[:, j] for j in range(3)}, "z0": Z[:, 0], "other": ["a"] * N}
    )
    (tmp_path / "many").mkdir()
    frame[:1000].write_parquet(tmp_path / "many" / "a.parquet")
    frame[1000:].write_parquet(tmp_path / "many" / "b.parquet")
    frame.write_csv(tmp_path / "one.csv")
    columns = (["x0", "x1", "x2"], ["z0", "z1"])
    expected = rule().fit(X, Z).predict(X[:20])
    sources = [tmp_path / "many", str(tmp_path / "one.csv"), frame.lazy(), frame]
    for source in sources:
        model = rule().fit(source, columns=columns)
        for asked in (frame[:20, [1, 2, 3]], frame[:20, [3, 1, 2]]):
            np.testing.assert_allclose(model.predict(asked), expected, atol=TOLERANCE)
    one = nystrom(Gaussian(1.0), Z[:, 0], RANK, rng=1)
    model = rule(kernel_z=one).fit(tmp_path / "many", columns=(columns[0], "z0"))
    assert model.predict(frame[:20, [1, 2, 3]]).shape == (20,)


def test_an_arrow_stream_is_a_source():
    polars = pytest.importorskip("polars")

    class Stream:
        def __arrow_c_stream__(self, requested_schema=None):
            columns = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "z": Z[:, 0]}
            return polars.DataFrame(columns).__arrow_c_stream__(requested_schema)

    kernels = KERNELS[0], nystrom(Gaussian(1.0), Z[:, 0], RANK, rng=1)
    model = KernelBayesRule(*kernels, ridge=1e-3, literal=True)
    model.fit(Stream(), columns=(["a", "b", "c"], "z"))
    whole = KernelBayesRule(*kernels, ridge=1e-3, literal=True).fit(X, Z[:, 0])
    asked = polars.DataFrame(dict(zip("abc", X[:20].T, strict=True)))
    np.testing.assert_allclose(model.predict(asked), whole.predict(X[:20]), atol=TOLERANCE)


def test_models_of_statistics_are_saved_and_go_on(tmp_path):
    model = rule().fit(X[:2300], Z[:2300]).partial_fit(X[2300:2400], Z[2300:2400])
    kb.save(model, tmp_path / "m.kb")
    again = kb.load(tmp_path / "m.kb")
    np.testing.assert_array_equal(again.predict(X[:9]), model.predict(X[:9]))
    again.partial_fit(X[2400:], Z[2400:])
    expected = rule().fit(X, Z).predict(X[:9])
    np.testing.assert_allclose(again.predict(X[:9]), expected, atol=TOLERANCE)


def test_conditional_embeddings_of_statistics_are_saved_and_go_on(tmp_path):
    cme = ConditionalEmbedding(*KERNELS, ridge=1e-3).fit(X[:2300], Z[:2300])
    kb.save(cme.partial_fit(X[2300:2400], Z[2300:2400]), tmp_path / "c.kb")
    again = kb.load(tmp_path / "c.kb").partial_fit(X[2400:], Z[2400:])
    assert again.statistics_.n == N
    whole = ConditionalEmbedding(*KERNELS, ridge=1e-3).fit(X, Z)
    ours, one = (found.filled(X[:9]).diagnostics.embedding.mass for found in (again, whole))
    np.testing.assert_allclose(ours, one, atol=TOLERANCE)


def test_batches_of_frames_are_read_by_name():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    parts = [(frame[:900], Z[:900]), (frame[900:][["c", "a", "b"]], Z[900:])]
    model = KernelBayesRule(Gaussian(1.0), Gaussian(1.0), ridge=1e-3, rank=RANK, rng=0).fit(parts)
    landmarks = model.kernel_x_.landmarks
    assert all(np.any(np.all(row == X, axis=1)) for row in landmarks)
    whole = KernelBayesRule(model.kernel_x_, model.kernel_z_, ridge=1e-3).fit(frame, Z)
    near = frame[np.linalg.norm(X - X.mean(axis=0), axis=1) < 1.0]
    np.testing.assert_allclose(model.predict(near), whole.predict(near), atol=TOLERANCE)


def test_kept_pairs_are_a_random_part():
    """Each pair is kept with the same probability, whatever batch it came in."""
    seen = np.zeros(60)
    for seed in range(400):
        kept = Kept.of(np.arange(20.0), np.arange(20.0), 15, seed)
        kept = kept + Kept.of(np.arange(20.0, 60.0), np.arange(20.0, 60.0), 15, seed)
        seen[kept.X.astype(int)] += 1
    # Binomial(400, 1/4): standard deviation 8.7; six of them for the largest of 60.
    assert np.abs(seen - 100).max() < 6 * 8.7


def test_calls_are_counted_and_not_timed(monkeypatch):
    """A batch costs one evaluation of each kernel against its landmarks, whatever n was before."""
    model = rule().fit(X[:2300], Z[:2300]).partial_fit(X[2300:2400], Z[2300:2400])
    evaluated = []
    known = Gaussian._cross

    def counted(self, A, B):
        evaluated.append(len(A) * len(B))
        return known(self, A, B)

    monkeypatch.setattr(Gaussian, "_cross", counted)
    counts = []
    for rows in (slice(2400, 2500), slice(2500, 2600)):
        evaluated.clear()
        model.partial_fit(X[rows], Z[rows])
        counts.append(sum(evaluated))
    # The batch, its first row for the widths, and the kept pairs, for both kernels.
    assert counts[0] == counts[1] <= 2 * RANK * (100 + 2 + 2 * 2000)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.parquet",), "columns"),
        (("missing.parquet", (["a"], "b")), "must be a .parquet or .csv file"),
        ((iter([]),), "empty"),
        ((iter([X]),), "pairs"),
    ],
)
def test_bad_sources_are_refused(arguments, message):
    columns = arguments[1] if len(arguments) > 1 else None
    with pytest.raises((ValueError, TypeError), match=message):
        rule().fit(arguments[0], columns=columns)


def test_other_kernels_do_not_merge():
    other = KernelBayesRule(nystrom(Gaussian(1.0), X, RANK, rng=7), KERNELS[1]).fit(X[:99], Z[:99])
    with pytest.raises(ValueError, match="same kernels"):
        rule().fit(X[:99], Z[:99]) + other
    with pytest.raises(ValueError, match="two fitted estimators"):
        rule().fit(X[:99], Z[:99]).merge(rule())


@pytest.mark.fixed_seed
def test_the_page_prints_what_it_says(capsys):
    page = Path(__file__).parents[1] / "docs" / "scale.md"
    code, printed = re.search(
        r"```python\n(.*?)```\s*```text\n(.*?)```", page.read_text(), re.S
    ).groups()
    exec(compile(code, str(page), "exec"), {})
    assert capsys.readouterr().out == printed


def test_empty_batches_are_passed_over():
    x, z = X[:60], Z[:60]
    nothing = x[:0], z[:0]
    whole = rule().fit([(x[:30], z[:30]), (x[30:], z[30:])]).predict(X[:5])
    holes = [nothing, (x[:30], z[:30]), nothing, (x[30:], z[30:])]
    np.testing.assert_allclose(rule().fit(holes).predict(X[:5]), whole, atol=1e-8)
    np.testing.assert_allclose(rule().fit(iter(holes)).predict(X[:5]), whole, atol=1e-8)
    with pytest.raises(ValueError, match="no pairs to learn from"):
        rule().fit([nothing])


def test_a_prior_in_force_is_not_lost_by_more_pairs():
    given = kb.KernelBayesRule(kb.Gaussian(1.0), kb.Gaussian(1.0)).fit(X[:40], Z[:40], Z[:20] + 0.5)
    for more in (lambda: given.partial_fit(X[40:50], Z[40:50]), lambda: given + given):
        with pytest.raises(ValueError, match="fitted under a prior"):
            more()


def test_exact_fits_and_statistics_do_not_merge():
    exact = kb.KernelBayesRule(kb.Gaussian(1.0), kb.Gaussian(1.0)).fit(X[:40], Z[:40])
    with pytest.raises(ValueError, match="same kernels"):
        exact.merge(kb.KernelBayesRule(rank=5, rng=0).fit(X[:40], Z[:40]))


def test_more_pairs_under_a_precomputed_kernel_are_refused():
    G = kb.Gaussian(1.0)(X[:30])
    given = kb.KernelBayesRule("precomputed", kb.Gaussian(1.0)).fit(G, Z[:30])
    with pytest.raises(ValueError, match="fit all at once"):
        given.partial_fit(G[:5], Z[:5])
