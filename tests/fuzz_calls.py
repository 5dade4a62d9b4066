"""How each public function is called by fuzz.py: good arguments, what they are, what to ask."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import kernelbayes as kb

Arguments = dict[str, Any]
ALL_LAWS = ("rows", "units", "twice", "single", "container")


@dataclass
class Entry:
    """A public name.

    Attributes
    ----------
    make
        Good arguments from a generator.
    ask
        From arguments to named answers, all numbers.
    kinds
        What each argument is (the keys of ``fuzz_values.HOSTILE``).
    rows
        Groups of arguments whose rows belong together; the first may also be short.
    twice, weights
        Samples that may be doubled if the weights are halved.
    units
        Power of the unit in which an answer is measured; laws hold for the answers in ``laws``.
    least
        Size of an answer below which it is the rounding of larger numbers that cancel.
    share
        How many of the calls in a round of the schedule are of this name: fewer if it is slow.
    frames
        Whether a frame means the same as an array: tests add a kernel for each of its columns.
    rigid
        Whether samples cannot come in other containers (rotations, say).
    """

    make: Callable[[np.random.Generator], Arguments]
    ask: Callable[..., dict[str, Any]]
    kinds: dict[str, str]
    rows: tuple[tuple[str, ...], ...] = ()
    twice: tuple[str, ...] = ()
    weights: str | None = None
    laws: dict[str, tuple[str, ...]] = field(default_factory=dict)
    units: dict[str, int] = field(default_factory=dict)
    slack: dict[str, float] = field(default_factory=dict)
    least: dict[str, float] = field(default_factory=dict)
    share: int = 4
    rigid: bool = False
    frames: bool = True
    allowed: frozenset[tuple[str, str]] = frozenset()

    @property
    def samples(self) -> list[str]:
        return [a for a, kind in self.kinds.items() if kind in ("sample", "optional sample")]

    def holds(self, law: str, answer: str) -> bool:
        return "*" in self.laws[law] or answer in self.laws[law]

    def allows(self, argument: str, label: str) -> bool:
        kernel = self.kinds[argument].endswith("kernel")
        if kernel and label == "a function":  # k(X, Y) is a kernel of rules and embed
            return True
        return (argument, label) in self.allowed or ("*", label) in self.allowed

    def size(self, answer: str, answers: dict) -> float:
        """Scale of an answer that is zero up to rounding: that of the others in its unit."""
        unit = self.units.get(answer, 0)
        largest = {
            k: np.max(np.abs(np.asarray(v, dtype=float)), initial=0.0)
            for k, v in answers.items()
            if np.asarray(v).dtype.kind in "fiub"
        }
        same = [v for k, v in largest.items() if self.units.get(k, 0) == unit]
        powers = [v**unit for k, v in largest.items() if unit and self.units.get(k, 0) == 1]
        return 1e6 * max(same + powers, default=0.0)


REGISTRY: dict[str, Entry] = {}


def entry(name: str, **options):
    """Register how a public name is asked; the function gets a generator, or the arguments."""

    def register(ask):
        REGISTRY[name] = Entry(ask=ask, **options)
        return ask

    return register


def laws(*invariant: str, but: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    return {law: invariant or ("*",) for law in ALL_LAWS if law not in but}


# --- good values ---------------------------------------------------------------------------------


def points(rng, n=None, d=None):
    n = int(rng.integers(5, 25)) if n is None else n
    d = int(rng.integers(1, 4)) if d is None else d
    scales = 10.0 ** rng.uniform(-1, 1, size=d)
    return rng.normal(size=(n, d)) * scales + rng.normal(size=d)


def kernel(rng, X=None):
    h = 1.0 if X is None else float(np.std(X)) + 1e-3
    wide = float(10.0 ** rng.uniform(-0.3, 0.5)) * h
    kinds = [
        kb.Gaussian(wide),
        kb.Laplace(wide),
        kb.Matern(wide, 1.5),
        kb.Matern(wide, 2.5),
        kb.RationalQuadratic(wide, 1.0),
        kb.Gaussian(wide) + kb.Laplace(wide),
        2.0 * kb.Gaussian(wide),
    ]
    if X is not None:
        kinds.append(kb.Gaussian(tuple(np.std(X, axis=0) + 1e-3)))
    return kinds[rng.integers(len(kinds))]


def pair(rng, n=None):
    """Regression data X, Z."""
    X = points(rng, n)
    A = rng.normal(size=(X.shape[1], int(rng.integers(1, 3))))
    Z = X @ A + 0.3 * rng.normal(size=(len(X), A.shape[1]))
    return X, Z


def weights_of(rng, n):
    w = rng.uniform(0.1, 1.0, size=n)
    return w / w.sum()


def maybe(rng, value):
    return value if rng.uniform() < 0.5 else None


def choose(rng, *values):
    return values[rng.integers(len(values))]


# --- kernels -------------------------------------------------------------------------------------


def kernel_values(k, X, Y):
    return {"values": k(X, Y), "diagonal": k.diag(X), "own": np.diag(np.asarray(k(X, X)))}


RADIAL = {
    "Gaussian": lambda bandwidth: kb.Gaussian(bandwidth),
    "Laplace": lambda bandwidth: kb.Laplace(bandwidth),
    "Matern": lambda bandwidth: kb.Matern(bandwidth, 1.5),
    "RationalQuadratic": lambda bandwidth: kb.RationalQuadratic(bandwidth, 1.0),
}


def vector_kernel(make_options, build, more_kinds, **options):
    def make(rng):
        d = int(rng.integers(1, 4))
        data = {"X": points(rng, d=d), "Y": points(rng, d=d)}
        return data | make_options(rng, d)

    def ask(X, Y, **how):
        return kernel_values(build(**how), X, Y)

    kinds = {"X": "sample", "Y": "sample"} | more_kinds
    options["allowed"] = options.get("allowed", frozenset()) | {("Y", "None")}  # k(X), of itself
    return Entry(make, ask, kinds, laws=dict.fromkeys(("single", "container"), ("*",)), **options)


def bandwidths(rng, d):
    h = 10.0 ** rng.uniform(-1, 2)
    return {
        "bandwidth": float(h) if rng.uniform() < 0.7 else tuple(h * rng.uniform(0.5, 2, size=d))
    }


for _name, _build in RADIAL.items():
    REGISTRY[_name] = vector_kernel(bandwidths, _build, {"bandwidth": "positive"})
REGISTRY["Matern"] = vector_kernel(
    lambda rng, d: bandwidths(rng, d) | {"nu": float(choose(rng, 0.5, 1.0, 1.5, 2.5, 4.2))},
    lambda bandwidth, nu: kb.Matern(bandwidth, nu),
    {"bandwidth": "positive", "nu": "positive"},
    allowed=frozenset({("nu", "inf")}),
)
REGISTRY["RationalQuadratic"] = vector_kernel(
    lambda rng, d: bandwidths(rng, d) | {"alpha": float(10.0 ** rng.uniform(-1, 1))},
    lambda bandwidth, alpha: kb.RationalQuadratic(bandwidth, alpha),
    {"bandwidth": "positive", "alpha": "positive"},
)
REGISTRY["Periodic"] = vector_kernel(
    lambda rng, d: {"bandwidth": float(rng.uniform(0.5, 2)), "period": float(rng.uniform(1, 9))},
    lambda bandwidth, period: kb.Periodic(bandwidth, period),
    {"bandwidth": "positive", "period": "positive"},
)
REGISTRY["Linear"] = vector_kernel(lambda rng, d: {}, lambda: kb.Linear(), {})
REGISTRY["Polynomial"] = vector_kernel(
    lambda rng, d: {"degree": int(rng.integers(1, 4)), "offset": float(rng.uniform(0, 2))},
    lambda degree, offset: kb.Polynomial(degree, offset),
    {"degree": "count", "offset": "number"},
)
REGISTRY["Delta"] = vector_kernel(lambda rng, d: {}, lambda: kb.Delta(), {}, allowed=frozenset(
    ("*", label)
    for label in (
        "dates", "date objects", "timedeltas", "bytes", "ragged", "records", "complex", "text",
        "4-d", "None inside", "number in 400 digits", "no columns", "inf", "-inf", "a set",
    )
))  # fmt: skip
REGISTRY["Sum"] = vector_kernel(
    lambda rng, d: {"left": kernel(rng), "right": kernel(rng)},
    lambda left, right: kb.Sum(left, right),
    {"left": "kernel", "right": "kernel"},
)
REGISTRY["Product"] = vector_kernel(
    lambda rng, d: {"left": kernel(rng), "right": kernel(rng)},
    lambda left, right: kb.Product(left, right),
    {"left": "kernel", "right": "kernel"},
)
REGISTRY["Scaled"] = vector_kernel(
    lambda rng, d: {"factor": float(rng.uniform(0.1, 9)), "kernel": kernel(rng)},
    lambda factor, kernel: kb.Scaled(factor, kernel),
    {"factor": "positive", "kernel": "kernel"},
    allowed=frozenset({("factor", "zero")}),
)
REGISTRY["Warped"] = vector_kernel(
    lambda rng, d: {
        "kernel": kernel(rng),
        "transform": choose(rng, "asinh", "log", "norm"),
        "unit": float(rng.uniform(0.2, 3)),
    },
    lambda kernel, transform, unit: kb.Warped(kernel, transform, unit),
    {"kernel": "kernel", "transform": "option", "unit": "positive"},
)
REGISTRY["Custom"] = vector_kernel(
    lambda rng, d: {"function": lambda X, Y: np.exp(-abs(1.0 * X[:, :1] - Y[:, :1].T))},
    lambda function: kb.Custom(function),
    {"function": "function"},
)
for _sample in ("X", "Y"):  # what a user's function does with them is not ours
    del REGISTRY["Custom"].kinds[_sample]
REGISTRY["Kernel"] = vector_kernel(  # the class of all kernels: questions to any of them
    lambda rng, d: {"kernel": kernel(rng), "factor": float(rng.uniform(0.1, 5))},
    lambda kernel, factor: kernel.scaled(factor),
    {"kernel": "kernel", "factor": "positive"},
)
del REGISTRY["Kernel"].kinds["kernel"]  # methods of something that is no kernel are not ours
REGISTRY["Parts"] = vector_kernel(
    lambda rng, d: {"kernel": kernel(rng)},
    lambda kernel: kb.Parts([(slice(0, 1), kernel)]),
    {"kernel": "kernel"},
    # The other columns are not read.
    allowed=frozenset(
        ("*", label)
        for label in ("nan", "inf", "-inf", "masked", "missing in a frame", "None inside")
    ),
)


def structured(make, build, more_kinds, **options):
    """Kernel on other things than vectors."""

    def ask(X, Y, **how):
        return kernel_values(build(**how), X, Y)

    kinds = {"X": "sample", "Y": "sample"} | more_kinds
    options["allowed"] = options.get("allowed", frozenset()) | {("Y", "None")}
    return Entry(make, ask, kinds, rigid=True, **options)


def histograms(rng):
    return {"X": rng.gamma(1.0, size=(6, 4)), "Y": rng.gamma(1.0, size=(3, 4))}


REGISTRY["HistogramIntersection"] = structured(histograms, lambda: kb.HistogramIntersection(), {})
REGISTRY["Trace"] = structured(
    lambda rng: {"X": rng.normal(size=(6, 2, 3)), "Y": rng.normal(size=(3, 2, 3))},
    lambda: kb.Trace(),
    {},
)


def rotation_matrices(rng, n):
    return stats.special_ortho_group(3, seed=rng).rvs(n)


REGISTRY["Rotation"] = structured(
    lambda rng: (
        {"X": rotation_matrices(rng, 6), "Y": rotation_matrices(rng, 3)}
        | {"bandwidth": float(rng.uniform(0.3, 3))}
    ),
    lambda bandwidth: kb.Rotation(bandwidth),
    {"bandwidth": "positive"},
)
REGISTRY["SpatialPyramid"] = structured(
    lambda rng: (
        {"X": rng.uniform(size=(5, 8, 8)), "Y": rng.uniform(size=(3, 8, 8))}
        | {"levels": int(rng.integers(1, 3)), "bins": int(rng.integers(2, 9))}
    ),
    lambda levels, bins: kb.SpatialPyramid(levels, bins),
    {"levels": "count", "bins": "count"},
    allowed=frozenset({("levels", "zero")}),
)


def words(rng, n):
    return ["".join(rng.choice(list("abc"), size=rng.integers(1, 9))) for _ in range(n)]


REGISTRY["Spectrum"] = Entry(
    lambda rng: {"X": words(rng, 6), "Y": words(rng, 3), "k": int(rng.integers(1, 4))},
    lambda X, Y, k: kernel_values(kb.Spectrum(k), X, Y),
    {"k": "count"},
)

# --- finite features -----------------------------------------------------------------------------


def features(k, X):
    return {"values": k(X, X), "shape": k.features(X).shape}


@entry(
    "fourier",
    make=lambda rng: (
        {"X": (X := points(rng)), "kernel": kb.Gaussian(float(np.std(X)) + 1e-3)}
        | {"dim": X.shape[1], "rank": 2 * int(rng.integers(1, 10)), "rng": int(rng.integers(100))}
    ),
    kinds={"kernel": "kernel", "dim": "count", "rank": "count", "rng": "rng"},
)
def _(X, kernel, dim, rank, rng):
    return features(kb.fourier(kernel, dim, rank, rng), X)


@entry(
    "Fourier",
    make=lambda rng: {"X": points(rng, d=2), "frequencies": rng.normal(size=(5, 2))},
    kinds={"X": "sample"},
    laws=laws(but=("rows", "units", "twice")),
)
def _(X, frequencies):
    return {"values": kb.Fourier(kb.Gaussian(1.0), frequencies)(X, X)}


def low_rank(rng):
    X = points(rng)
    return {"X": X, "kernel": kernel(rng, X), "rank": int(rng.integers(1, 12)), "rng": 0}


@entry(
    "nystrom",
    make=lambda rng: (
        low_rank(rng) | {"landmarks": choose(rng, "uniform", "kmeans++", "rpcholesky")}
    ),
    kinds={"X": "sample", "kernel": "kernel", "rank": "optional count", "rng": "rng"}
    | {"landmarks": "option"},
    laws=laws("values", but=("rows", "units", "twice", "single")),
)
def _(X, kernel, rank, rng, landmarks):
    return features(kb.nystrom(kernel, X, rank, rng, landmarks=landmarks), X)


@entry(
    "pivoted_cholesky",
    make=lambda rng: low_rank(rng) | {"method": choose(rng, "random", "greedy")},
    kinds={"X": "sample", "kernel": "kernel", "rank": "optional count", "rng": "rng"}
    | {"method": "option"},
    # Of pivots that are equally good, as on a lattice, rounding takes one.
    laws=laws("shape", but=("rows", "units", "twice", "single")),
)
def _(X, kernel, rank, rng, method):
    return features(kb.pivoted_cholesky(kernel, X, rank, rng=rng, method=method), X)


@entry(
    "Landmarks",
    make=lambda rng: {"X": (X := points(rng)), "query": points(rng, d=X.shape[1])},
    kinds={"query": "sample"},
    laws=laws(but=("rows", "units", "twice")),
)
def _(X, query):
    return {"features": kb.nystrom(kb.Gaussian(2.0), X, 4, 0).features(query)}


@entry(  # learning needs torch: tests/test_learned.py
    "NeuralFeatures",
    make=lambda rng: {"dim": int(rng.integers(1, 9)), "epochs": int(rng.integers(1, 9))},
    kinds={"dim": "count", "epochs": "count"},
    share=1,
)
def _(dim, epochs):
    made = kb.NeuralFeatures(dim=dim, epochs=epochs)
    return {"dim": made.dim, "epochs": made.epochs}


# --- embeddings ----------------------------------------------------------------------------------


def sample(rng):
    X = points(rng)
    return {"points": X, "kernel": kernel(rng, X), "weights": weights_of(rng, len(X))}


MOMENTS = {"mean": 1, "cov": 2, "std": 1}


def decoded(mu):
    return {"mean": mu.mean(), "cov": mu.cov(), "std": mu.std(), "mass": mu.mass, "ess": mu.ess}


@entry(
    "embed",
    make=sample,
    kinds={"points": "sample", "kernel": "kernel", "weights": "weights"},
    rows=(("points", "weights"),),
    twice=("points",),
    weights="weights",
    laws=laws("mean", "cov", "std", "mass", "norm"),
    units=MOMENTS,
    share=12,
)
def _(points, kernel, weights):
    mu = kb.embed(points, kernel, weights)
    return decoded(mu) | {"norm": mu.norm()}


@entry(
    "Embedding",
    make=lambda rng: (
        sample(rng)
        | {"q": float(rng.uniform(0.02, 0.98)), "level": float(rng.uniform(0.1, 0.99))}
        | {"k": int(rng.integers(1, 4)), "m": int(rng.integers(1, 5)), "rng": 0}
    ),
    kinds={"points": "sample", "kernel": "kernel", "weights": "weights", "q": "share"}
    | {"level": "share", "k": "count", "m": "count", "rng": "rng"},
    rows=(("points", "weights"),),
    weights="weights",
    laws=laws("quantile", "interval", "median", "moment", but=("twice", "single")),
    units={"quantile": 1, "interval": 1, "median": 1, "sample": 1},
    allowed=frozenset({("q", "complex")}),
    share=12,
)
def _(points, kernel, weights, q, level, k, m, rng):
    mu = kb.embed(points, kernel, weights)
    found = {"quantile": mu.quantile(q), "interval": mu.interval(level), "median": mu.median()}
    return found | {"moment": mu.moment(k), "sample": mu.sample(m, rng=rng)}


REGISTRY["Embedding"].laws.pop("units")  # the unit of a moment depends on k


def questions(rng):
    asked = sample(rng)
    X = asked["points"]
    return asked | {"query": X[:3] + 0.1, "low": X.min(axis=0), "high": X.mean(axis=0) + 0.1}


@entry(
    "Batch",
    make=lambda rng: (
        {"points": (X := points(rng)), "kernel": kernel(rng, X)}
        | {"weights": np.stack([weights_of(rng, len(X)) for _ in range(3)])}
        | {"q": float(rng.uniform(0.05, 0.95)), "level": float(rng.uniform(0.1, 0.99))}
    ),
    kinds={"points": "sample", "kernel": "kernel", "q": "share", "level": "share"},
    laws=laws(but=("rows", "twice", "units", "single")),
    share=6,
)
def _(points, kernel, weights, q, level):
    mu = kb.embed(points, kernel, weights)
    found = {"mean": mu.mean(), "cov": mu.cov(), "one": mu[0].mean()}
    return found | {"quantile": mu.quantile(q), "interval": mu.interval(level)}


@entry(
    "mmd",
    make=lambda rng: (
        {"X": (X := points(rng)), "Y": points(rng, d=X.shape[1]), "kernel": kernel(rng, X)}
    ),
    kinds={"X": "sample", "Y": "sample", "kernel": "kernel"},
    rows=(("X",), ("Y",)),
    twice=("X", "Y"),
    laws=laws(),
    slack={"mmd": 1e2},
    # The square root of single precision's rounding, 5e-4 for kernels of size 2, is allowed twice.
    least={"mmd": 5e-3},
    share=8,
)
def _(X, Y, kernel):
    mu, nu = kb.embed(X, kernel), kb.embed(Y, kernel)
    return {"mmd": kb.mmd(mu, nu), "inner": mu.inner(nu)}


@entry(
    "mmd2",
    make=lambda rng: REGISTRY["mmd"].make(rng) | {"unbiased": bool(rng.integers(2))},
    kinds={"X": "sample", "Y": "sample", "kernel": "kernel", "unbiased": "flag"},
    rows=(("X",), ("Y",)),
    laws=laws(but=("twice",)),
)
def _(X, Y, kernel, unbiased):
    mu, nu = kb.embed(X, kernel), kb.embed(Y, kernel)
    return {"mmd2": kb.mmd2(mu, nu, unbiased), "norm": mu.norm() ** 2}


@entry(
    "GaussianEmbedding",
    make=lambda rng: (
        {"X": (X := points(rng)), "mean": X.mean(axis=0), "cov": np.eye(X.shape[1])}
        | {"kernel": kb.Gaussian(float(rng.uniform(0.3, 3)))}
    ),
    kinds={"X": "sample", "kernel": "kernel"},
    laws=laws(but=("rows", "units", "twice")),
)
def _(X, mean, cov, kernel):
    mu = kb.GaussianEmbedding(mean, cov, kernel)
    return {"values": mu(X), "norm": mu.norm(), "inner": mu.inner(kb.embed(X, kernel))}


@entry(
    "Mixture",
    make=lambda rng: (
        sample(rng)
        | {"components": int(rng.integers(1, 3)), "kernel": kb.Gaussian(float(rng.uniform(0.5, 2)))}
    ),
    kinds={"points": "sample", "kernel": "kernel", "components": "count"},
    share=2,
)
def _(points, kernel, weights, components):
    found = kb.embed(points, kernel, weights).mixture(components, rng=0)
    return {"weights": found.weights, "means": found.means, "covariances": found.covariances}


@entry(
    "Precomputed",
    make=lambda rng: {"matrix": kernel(rng, X := points(rng))(X)},
    kinds={"matrix": "sample"},
    rigid=True,
    share=2,
)
def _(matrix):
    k = kb.Precomputed(matrix)
    return {"values": k(k.matrix)}


# --- herding -------------------------------------------------------------------------------------


@entry(
    "herd",
    make=lambda rng: sample(rng) | {"m": int(rng.integers(1, 6))},
    kinds={"points": "sample", "kernel": "kernel", "weights": "weights", "m": "count"},
    laws=laws(but=("rows", "twice", "single")),
    units={"picks": 1},
)
def _(points, kernel, weights, m):
    return {"picks": kb.herd(kb.embed(points, kernel, weights), m)}


@entry(
    "thin",
    make=lambda rng: (
        sample(rng) | {"m": int(rng.integers(1, 5)), "sweeps": int(rng.integers(1, 5))}
    ),
    kinds={"points": "sample", "kernel": "kernel", "m": "count", "sweeps": "count"},
    laws=laws(but=("rows", "twice", "single")),
    units={"picks": 1},
    allowed=frozenset({("sweeps", "zero")}),
)
def _(points, kernel, weights, m, sweeps):
    return {"picks": kb.thin(points, m, kernel, sweeps=sweeps)}


@entry(
    "compress",
    make=lambda rng: (
        sample(rng) | {"m": int(rng.integers(1, 5)), "method": choose(rng, "herding", "exchange")}
    ),
    kinds={"points": "sample", "kernel": "kernel", "weights": "weights", "m": "count"}
    | {"method": "option"},
    laws=laws("mean", but=("rows", "twice", "single")),
    units={"mean": 1, "extent": 1},
)
def _(points, kernel, weights, m, method):
    found = kb.compress(kb.embed(points, kernel, weights), m, method=method)
    mean, size = found.embedding.mean(), np.abs(np.asarray(found.embedding.points)).max()
    return {"errors": found.errors, "mean": mean, "extent": size}  # its scale, where that is zero


REGISTRY["Compressed"] = REGISTRY["compress"]


@entry(
    "resample",
    make=lambda rng: sample(rng) | {"threshold": float(rng.uniform(0.1, 1)), "rng": 0}
    | {"method": choose(rng, "herding", "multinomial")},
    kinds={"points": "sample", "kernel": "kernel", "weights": "weights", "threshold": "share"}
    | {"rng": "rng", "method": "option"},
    allowed=frozenset({("threshold", "above one")}),  # always
)  # fmt: skip
def _(points, kernel, weights, threshold, rng, method):
    mu = kb.embed(points, kernel, weights)
    found = kb.resample(mu, threshold=threshold, method=method, rng=rng)
    return {"mean": found.embedding.mean(), "error": found.error}


REGISTRY["Resampled"] = REGISTRY["resample"]

# --- rules ---------------------------------------------------------------------------------------


def regression(rng):
    X, Z = pair(rng)
    return {"X": X, "Z": Z, "query": X[:3] + 0.05 * X.std(axis=0)} | {
        "kernel_x": maybe(rng, kernel(rng, X)),
        "kernel_z": maybe(rng, kernel(rng, Z)),
        "ridge": choose(rng, "loo", 0.1, 0.01),
    }


RULE_KINDS = {"X": "sample", "Z": "sample", "query": "sample", "kernel_x": "optional kernel"}
RULE_KINDS |= {"kernel_z": "optional kernel", "ridge": "positive"}
ONE_NUMBER = frozenset({("query", "scalar")})  # a point, if x is a number


@entry(
    "ConditionalEmbedding",
    make=regression,
    kinds=RULE_KINDS,
    allowed=ONE_NUMBER,
    rows=(("X", "Z"),),
    laws=laws("mean", "mass", but=("twice", "single")),
    units={"mean": 1, "cov": 2},
    slack={"mean": 1e2, "mass": 1e2},
    share=6,
)
def _(X, Z, query, kernel_x, kernel_z, ridge):
    mu = kb.ConditionalEmbedding(kernel_x, kernel_z, ridge).fit(X, Z)(query)
    return {"mean": mu.mean(), "cov": mu.cov(), "mass": mu.mass}


def with_prior(rng):
    asked = regression(rng)
    Z = asked["Z"]
    return asked | {"prior": maybe(rng, Z[::2] + 0.1 * Z.std(axis=0))}


PRIOR_KINDS = RULE_KINDS | {"prior": "optional sample"}


@entry(
    "KernelBayesRule",
    make=lambda rng: (
        with_prior(rng)
        | {"method": choose(rng, "importance", "original"), "normalize": bool(rng.integers(2))}
    ),
    kinds=PRIOR_KINDS | {"method": "option", "normalize": "flag"},
    allowed=ONE_NUMBER,
    rows=(("X", "Z"),),
    laws=laws("mean", but=("twice", "single", "units")),
    slack={"mean": 1e2},
    share=6,
)
def _(X, Z, query, kernel_x, kernel_z, ridge, prior, method, normalize):
    # Folds that choose the prior's ridge depend on the order of rows.
    how = {"ridge": ridge, "normalize": normalize, "prior_ridge": 0.1}
    model = kb.KernelBayesRule(kernel_x, kernel_z, method, **how)
    mu = model.fit(X, Z, prior).posterior(query)
    return {"mean": mu.mean(), "cov": mu.cov(), "predict": model.predict(query)}


def likelihood(X, Z, kernel_x, kernel_z, ridge):
    return kb.ConditionalEmbedding(kernel_z, kernel_x, ridge).fit(Z, X)


@entry(
    "bayes_rule",
    make=lambda rng: (
        with_prior(rng)
        | {"method": choose(rng, "importance", "original"), "form": choose(rng, "a", "b")}
    ),
    kinds=PRIOR_KINDS | {"method": "option", "form": "option"},
    allowed=ONE_NUMBER,
    laws=laws("mean", but=("rows", "twice", "single", "units")),
    slack={"mean": 1e2},
)
def _(X, Z, query, kernel_x, kernel_z, ridge, prior, method, form):
    cme = likelihood(X, Z, kernel_x, kernel_z, ridge)
    return {"mean": kb.bayes_rule(cme, prior, method, form, ridge)(query).mean()}


@entry(
    "sum_rule",
    make=lambda rng: with_prior(rng) | {"form": choose(rng, "a", "b")},
    kinds=PRIOR_KINDS | {"form": "option"},
    laws=laws("mean", but=("rows", "twice", "single", "units")),
    slack={"mean": 1e2},
)
def _(X, Z, query, kernel_x, kernel_z, ridge, prior, form):
    mu = kb.sum_rule(likelihood(X, Z, kernel_x, kernel_z, ridge), prior, form)
    return {"mean": mu.mean(), "mass": mu.mass}


@entry(
    "chain_rule",
    make=lambda rng: with_prior(rng) | {"form": choose(rng, "a", "b")},
    kinds=PRIOR_KINDS | {"form": "option"},
    laws=laws("mean", but=("rows", "twice", "single", "units")),
    slack={"mean": 1e2},
)
def _(X, Z, query, kernel_x, kernel_z, ridge, prior, form):
    joint = kb.chain_rule(likelihood(X, Z, kernel_x, kernel_z, ridge), prior, form)
    return {"mass": np.asarray(joint.mass)}


for _rule in ("sum_rule", "chain_rule"):
    del REGISTRY[_rule].kinds["query"]


@entry(
    "calibrate",
    make=regression,
    kinds={"X": "sample", "Z": "sample"},
    share=1,
)
def _(X, Z, query, kernel_x, kernel_z, ridge):
    model = kb.ConditionalEmbedding(kernel_x, kernel_z, ridge).fit(X, Z)
    found = kb.calibrate(model)
    if isinstance(found, kb.Confusion):  # truth values are categories
        return {"counts": found.counts}
    return {"interval": found.interval(model(query), 0.8)}


@entry(
    "Calibration",
    make=lambda rng: regression(rng) | {"q": float(rng.uniform(0.05, 0.95)), "level": 0.7},
    kinds={"q": "share", "level": "share"},
    share=2,
)
def _(X, Z, query, kernel_x, kernel_z, ridge, q, level):
    model = kb.ConditionalEmbedding(kernel_x, kernel_z, ridge).fit(X, Z)
    found, mu = kb.calibrate(model), model(query)
    return {"quantile": found.quantile(mu, q), "interval": found.interval(mu, level)}


@entry(
    "Confusion",
    make=lambda rng: (
        (asked := regression(rng))
        | {"names": np.array(["a", "b"])[rng.integers(2, size=len(asked["X"]))]}
    ),
    kinds={"X": "sample"},
    laws=laws("counts", but=("rows", "units", "twice", "single")),  # ties are broken by rounding
)
def _(X, Z, query, kernel_x, kernel_z, ridge, names):
    found = kb.calibrate(kb.ConditionalEmbedding(None, kb.Delta(), ridge).fit(X, names))
    return {"counts": found.counts, "log_score": found.log_score}


@entry(
    "density_ratio",
    make=lambda rng: (
        {"numerator": (X := points(rng)), "denominator": points(rng, d=X.shape[1])}
        | {"kernel": maybe(rng, kernel(rng, X)), "ridge": choose(rng, "loo", 0.1)}
        | {"method": choose(rng, "kulsif", "rulsif", "ulsif", "kmm"), "rng": 0}
    ),
    kinds={"numerator": "sample", "denominator": "sample", "kernel": "optional kernel"}
    | {"ridge": "positive", "method": "option", "rng": "rng"},
    laws=laws(but=("rows", "twice", "single")),
    slack={"at_denominator": 1e2},
    least={"at_denominator": 1.0},  # a ratio is one on average
)
def _(numerator, denominator, kernel, ridge, method, rng):
    found = kb.density_ratio(numerator, denominator, kernel, method, ridge, rng=rng)
    return {"at_denominator": found.at_denominator}


@entry(
    "DensityRatio",
    make=lambda rng: (
        {"numerator": (X := points(rng)), "denominator": points(rng, d=X.shape[1])}
        | {"query": points(rng, d=X.shape[1])}
    ),
    kinds={"query": "sample"},
    laws=laws(but=("rows", "twice", "single", "units")),
)
def _(numerator, denominator, query):
    return {"values": kb.density_ratio(numerator, denominator)(query)}


@entry(
    "tune",
    make=lambda rng: (
        {"X": (p := pair(rng, 12))[0], "Z": p[1], "budget": 2, "rng": 0}
        | {"model": kb.ConditionalEmbedding()}
    ),
    kinds={"X": "sample", "Z": "sample", "budget": "count", "rng": "rng", "model": "model"},
    share=1,
)
def _(model, X, Z, budget, rng):
    return {"mean": kb.tune(model, X, Z, budget=budget, rng=rng)(X).mean()}


# --- state-space models --------------------------------------------------------------------------


def sequence(rng, n=16):
    t = np.arange(n)
    Z = np.stack([np.sin(0.5 * t), np.cos(0.5 * t)], axis=1) + 0.1 * rng.normal(size=(n, 2))
    X = Z + 0.2 * rng.normal(size=(n, 2))
    return {"X": X, "Z": Z, "seen": X[:4]}


MISSING = frozenset(
    ("seen", label) for label in ("nan", "masked", "missing in a frame", "None inside")
) | frozenset(("X", label) for label in ("nan", "masked", "missing in a frame", "None inside"))


@entry(
    "KernelBayesFilter",
    make=lambda rng: (
        sequence(rng)
        | {"method": choose(rng, "importance", "original"), "rank": maybe(rng, 6), "ridge": 0.01}
        | {"transition": choose(rng, "operator", "shift")}
    ),
    kinds={"X": "sample", "Z": "sample", "seen": "sample", "method": "option"}
    | {"rank": "optional count", "ridge": "positive", "transition": "option"},
    laws=laws(but=("rows", "twice", "single", "units")),
    slack={"mean": 1e2, "interval": 1e2},
    allowed=MISSING,
    share=2,
)
def _(X, Z, seen, method, rank, ridge, transition):
    how = {"prior_ridge": ridge, "transition_ridge": ridge, "ridge": ridge, "rank": rank}
    model = kb.KernelBayesFilter(method=method, transition=transition, rng=0, **how).fit(X, Z)
    beliefs = model.filter(seen)
    return {"mean": beliefs.mean(), "interval": beliefs.interval(0.8)}


@functools.cache
def fitted_filter():
    data = sequence(np.random.default_rng([7]), 24)
    ridges = dict.fromkeys(("prior_ridge", "transition_ridge", "ridge"), 0.01)
    return kb.KernelBayesFilter(**ridges, rng=0).fit(data["X"], data["Z"])


SEEN_KINDS = {"seen": "sample", "level": "share"}


def seen(rng):
    return {"seen": sequence(rng)["X"][:5], "level": float(rng.uniform(0.1, 0.95))}


@entry(
    "Beliefs",
    make=seen,
    kinds=SEEN_KINDS,
    allowed=MISSING,
    laws=laws(but=("rows", "twice", "units", "single")),
)
def _(seen, level):
    beliefs = fitted_filter().filter(seen)
    found = {"mean": beliefs.mean(), "interval": beliefs.interval(level)}
    return found | {"smooth": fitted_filter().smooth(seen).mean()}


@entry(
    "Forecast",
    make=lambda rng: seen(rng) | {"horizon": int(rng.integers(1, 4))},
    kinds=SEEN_KINDS | {"horizon": "count"},
    allowed=MISSING,
)
def _(seen, level, horizon):
    found = fitted_filter().forecast(seen, horizon)
    return {"mean": found.mean(), "interval": found.interval(level)}


@entry(
    "FilterState",
    make=lambda rng: {"seen": sequence(rng)["X"][0]},
    kinds={"seen": "sample"},
    rigid=True,
    allowed=MISSING | {("seen", label) for label in ("None", "no columns")},
)
def _(seen):
    model = fitted_filter()
    state, info = model.step(model.start(), seen)
    found = {"mean": state.belief.mean()}
    if info.observed:  # without an observation there is nothing to support: documented as NaN
        found |= {"support": info.support, "mass": info.mass}
    return found


REGISTRY["StepInfo"] = REGISTRY["FilterState"]


def moves(z, rng, control=None):
    return 0.9 * z + 0.1 * rng.normal(size=z.shape)


def begins(m, rng):
    return rng.normal(size=(m, 2))


@entry(
    "KernelMonteCarloFilter",
    make=lambda rng: sequence(rng) | {"particles": 12, "ridge": 0.01, "transition": moves}
    | {"initial": begins, "rng": 0},
    kinds={"X": "sample", "Z": "sample", "seen": "sample", "particles": "optional count"}
    | {"ridge": "positive", "initial": "function", "rng": "rng"},
    laws=laws(but=("rows", "twice", "single", "units")),
    slack={"mean": 1e2},
    allowed=MISSING | {("initial", "an array")},
    share=2,
)  # fmt: skip
def _(X, Z, seen, particles, ridge, transition, initial, rng):
    how = {"prior_ridge": ridge, "ridge": ridge, "particles": particles, "rng": rng}
    model = kb.KernelMonteCarloFilter(transition, initial, **how).fit(X, Z)
    return {"mean": model.filter(seen).mean()}


# --- likelihood-free -----------------------------------------------------------------------------


def simulator(theta, rng):
    return rng.normal(theta, 0.5)


def learned(rng):
    theta = rng.normal(size=(40, 2))
    return {
        "theta": theta,
        "x": theta + 0.5 * rng.normal(size=(40, 2)),
        "x_o": np.array([0.3, 0.1]),
    }


NORMALS = [stats.norm(0, 1), stats.norm(0, 2)]


@entry(
    "LikelihoodFree",
    make=lambda rng: (
        learned(rng)
        | choose(
            rng, {"method": "adjusted", "adjust": "linear"}, {"method": "cme", "adjust": "none"}
        )
    ),
    kinds={"theta": "sample", "x": "sample", "x_o": "sample", "method": "option"}
    | {"adjust": "option"},
    laws=laws(but=("rows", "twice", "single", "units")),
    share=1,
)
def _(theta, x, x_o, method, adjust):
    model = kb.LikelihoodFree(NORMALS, method, adjust, rng=0).fit(theta, x)
    return {"mean": model.posterior(x_o).mean()}


REGISTRY["LikelihoodFree"].allowed = frozenset(
    {("x", label) for label in ("nan", "inf", "-inf", "masked", "missing in a frame")}
)


@functools.cache
def posterior():
    data = learned(np.random.default_rng([3]))
    model = kb.LikelihoodFree(NORMALS, "adjusted", "linear", rng=0).fit(data["theta"], data["x"])
    return model.posterior(np.array([0.3, 0.1])), model.posterior(np.zeros((2, 2)))


@entry(
    "Posterior",
    make=lambda rng: (
        {"level": float(rng.uniform(0.1, 0.95)), "m": int(rng.integers(1, 9)), "rng": 0}
        | {"query": rng.normal(size=(3, 2))}
    ),
    kinds={"level": "share", "m": "count", "rng": "rng", "query": "sample"},
    laws=laws("log_density", but=("rows", "twice", "single", "units")),
    allowed=frozenset(("query", label) for label in ("empty", "empty list", "inf", "-inf")),
)
def _(level, m, rng, query):
    one, _ = posterior()
    found = {"interval": one.interval(level), "sample": one.sample(m, rng=rng)}
    return found | {"log_density": one.log_density(query), "mean": one.mean()}


@entry(
    "Posteriors",
    make=lambda rng: {
        "level": float(rng.uniform(0.1, 0.95)),
        "m": int(rng.integers(1, 9)),
        "rng": 0,
    },
    kinds={"level": "share", "m": "count", "rng": "rng"},
    share=2,
)
def _(level, m, rng):
    _, many = posterior()
    return {"interval": many.interval(level), "sample": many.sample(m, rng=rng)}


@entry(
    "as_prior",
    make=lambda rng: {"prior": points(rng), "n": int(rng.integers(1, 9)), "rng": 0},
    kinds={"prior": "sample", "n": "count", "rng": "rng"},
    laws=laws(but=("rows", "twice", "units", "single")),
    allowed=frozenset({("prior", "a function")}),
)
def _(prior, n, rng):
    return {"draws": kb.as_prior(prior).sample(n, rng)}


REGISTRY["Prior"] = Entry(
    make=lambda rng: {"theta": rng.normal(size=(4, 2)), "n": int(rng.integers(1, 9)), "rng": 0},
    ask=lambda theta, n, rng: {
        "log_density": kb.as_prior(NORMALS).log_density(theta),
        "cdf": kb.as_prior(NORMALS).cdf(theta),
        "draws": kb.as_prior(NORMALS).sample(n, rng),
    },
    kinds={"theta": "sample", "n": "count", "rng": "rng"},
    laws=laws(but=("rows", "twice", "units", "single")),
    allowed=frozenset(
        ("theta", label) for label in ("empty", "empty list", "no columns", "inf", "-inf")
    ),
)


@entry(
    "simulate",
    make=lambda rng: (
        {"simulator": simulator, "prior": list(NORMALS), "n": int(rng.integers(1, 9))}
        | {
            "rng": 0,
            "n_jobs": 1,
            "on_failure": "drop",
            "vectorized": choose(rng, None, True, False),
        }
    ),
    kinds={"simulator": "function", "n": "count", "rng": "rng", "on_failure": "option"}
    | {"n_jobs": "count"},
    allowed=frozenset({("n_jobs", "negative")}),
)
def _(simulator, prior, n, rng, n_jobs, on_failure, vectorized):
    how = {"rng": rng, "n_jobs": n_jobs, "on_failure": on_failure, "vectorized": vectorized}
    runs = kb.simulate(simulator, prior, n, **how)
    return {"theta": runs.theta, "x": runs.x}


REGISTRY["simulate"].kinds.pop("n_jobs")  # processes are tested in test_simulate_journal.py
REGISTRY["Simulations"] = REGISTRY["simulate"]
REGISTRY["SimulationError"] = REGISTRY["simulate"]


@entry(
    "infer",
    make=lambda rng: (
        {"simulator": simulator, "prior": list(NORMALS), "x_o": np.array([0.3, 0.1])}
        | {"n": 30, "method": "adjusted", "rng": 0, "rounds": int(rng.integers(1, 2))}
    ),
    kinds={"simulator": "function", "x_o": "sample", "n": "count", "method": "option"}
    | {"rng": "rng", "rounds": "count"},
    share=1,
)
def _(simulator, prior, x_o, n, method, rng, rounds):
    how = {"rng": rng, "rounds": rounds, "adjust": "linear"}
    return {"mean": kb.infer(simulator, prior, x_o, n, method, **how).mean()}


@entry(
    "reject_abc",
    make=lambda rng: learned(rng) | {"fraction": float(rng.uniform(0.2, 1.0))},
    kinds={"theta": "sample", "x": "sample", "x_o": "sample", "fraction": "share"},
    rows=(("theta", "x"),),
    laws=laws("mean", but=("rows", "twice", "single", "units")),  # equal distances: the first
    # a function is a simulator, and x then a sample of the prior
    allowed=frozenset({("fraction", "None"), ("theta", "a function")})
    | {("x", label) for label in ("nan", "inf", "-inf", "masked", "missing in a frame")},
)
def _(theta, x, x_o, fraction):
    return {"mean": kb.reject_abc(theta, x, x_o, fraction=fraction, rng=0).mean()}


def draws_model(x):
    return np.random.default_rng([5]).normal(size=(30, 2))


def checked(rng):
    return learned(rng) | {"model": draws_model, "n_draws": int(rng.integers(2, 9)), "rng": 0}


CHECK_KINDS = {"theta": "sample", "x": "sample", "n_draws": "count", "rng": "rng", "model": "model"}


@entry("sbc", make=checked, kinds=CHECK_KINDS, share=2)
def _(theta, x, x_o, model, n_draws, rng):
    found = kb.sbc(model, theta=theta, x=x, n_draws=n_draws, rng=rng)
    return {"ranks": found.ranks, "pvalues": found.pvalues}


@entry(
    "coverage",
    make=lambda rng: checked(rng) | {"levels": 0.7},
    kinds=CHECK_KINDS | {"levels": "share"},
    share=2,
)
def _(theta, x, x_o, model, n_draws, rng, levels):
    found = kb.coverage(model, theta=theta, x=x, n_draws=n_draws, rng=rng, levels=levels)
    return {"levels": found.levels}


@entry("tarp", make=checked, kinds=CHECK_KINDS, share=2)
def _(theta, x, x_o, model, n_draws, rng):
    found = kb.tarp(model, theta=theta, x=x, n_draws=n_draws, rng=rng)
    return {"ranks": found.ranks, "pvalue": found.pvalue}


@entry("recovery", make=checked, kinds=CHECK_KINDS, share=2)
def _(theta, x, x_o, model, n_draws, rng):
    found = kb.recovery(model, theta=theta, x=x, n_draws=n_draws, rng=rng)
    return {"contraction": found.contraction, "z": found.z}


@entry("lc2st", make=checked, kinds=CHECK_KINDS | {"x_o": "sample"}, share=1)
def _(theta, x, x_o, model, n_draws, rng):
    found = kb.lc2st(model, x_o, theta=theta, x=x, n_draws=n_draws, rng=rng)
    return {"pvalue": found.pvalue, "scores": found.scores}


@entry(
    "misspecification",
    make=lambda rng: {"x": rng.normal(size=(40, 2)), "x_o": np.array([0.3, 0.1]), "rng": 0},
    kinds={"x": "sample", "x_o": "sample", "rng": "rng"},
    share=2,
    allowed=frozenset(
        ("x", label) for label in ("nan", "inf", "-inf", "masked", "missing in a frame")
    ),
)
def _(x, x_o, rng):
    return {"pvalue": kb.misspecification(x_o, x, rng=rng).pvalue}


@entry(
    "c2st",
    make=lambda rng: {"a": rng.normal(size=(30, 2)), "b": rng.normal(size=(20, 2)), "rng": 0},
    kinds={"a": "sample", "b": "sample", "rng": "rng"},
    share=1,
)
def _(a, b, rng):
    from sklearn.neighbors import KNeighborsClassifier

    return {"accuracy": kb.c2st(a, b, classifier=KNeighborsClassifier(3), rng=rng).accuracy}


@entry(
    "posterior_predictive",
    make=lambda rng: (
        {"posterior": rng.normal(size=(30, 2)), "simulator": simulator}
        | {"x_o": np.array([0.3, 0.1]), "n": int(rng.integers(5, 20)), "rng": 0}
    ),
    kinds={"posterior": "sample", "simulator": "function", "x_o": "sample", "n": "count"}
    | {"rng": "rng"},
    share=2,
)
def _(posterior, simulator, x_o, n, rng):
    found = kb.posterior_predictive(posterior, simulator, x_o, n_simulations=n, rng=rng)
    return {"pvalue": found.pvalue}


@entry(
    "pair_plot",
    make=lambda rng: {"posterior": rng.normal(size=(30, 2)), "truth": np.zeros(2), "rng": 0},
    kinds={"posterior": "sample", "truth": "optional sample", "rng": "rng"},
    share=1,
)
def _(posterior, truth, rng):
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    found = kb.pair_plot(posterior, truth=truth, rng=rng)
    plt.close("all")
    return {"drawn": np.asarray(found is not None)}


# --- tests ---------------------------------------------------------------------------------------


def two_samples(rng):
    X = points(rng)
    return {"X": X, "Y": points(rng, d=X.shape[1]), "permutations": 29, "rng": 0, "alpha": 0.05}


def two_variables(rng):
    X, Y = pair(rng)
    return {"X": X, "Y": Y, "permutations": 29, "rng": 0, "alpha": 0.05}


TEST_KINDS = {"X": "sample", "Y": "sample", "permutations": "count", "rng": "rng", "alpha": "share"}


def tested(found):
    return {"statistic": found.statistic, "pvalue": found.pvalue}


@entry(
    "mmd_test",
    make=lambda rng: (
        (asked := two_samples(rng))
        | {"kernel": maybe(rng, kernel(rng, asked["X"])), "unbiased": False}
        | {"method": choose(rng, "permutation", "gamma", "features")}
    ),
    kinds=TEST_KINDS | {"kernel": "optional kernel", "method": "option", "unbiased": "flag"},
    rows=(("X",), ("Y",)),
    laws={
        "container": ("*",),
        "rows": ("statistic",),
    },
    frames=False,
    allowed=frozenset({("kernel", "a list")}),  # of kernels to choose from
    slack={"statistic": 1e2},
    share=6,
)
def _(X, Y, kernel, permutations, rng, alpha, method, unbiased):
    how = {"method": method, "alpha": alpha, "unbiased": unbiased}
    return tested(kb.mmd_test(X, Y, kernel, permutations, rng, **how))


REGISTRY["KernelTestResult"] = REGISTRY["mmd_test"]


@entry(
    "hsic_test",
    make=lambda rng: (
        (asked := two_variables(rng))
        | {"kernel_x": maybe(rng, kernel(rng, asked["X"]))}
        | {"method": choose(rng, "permutation", "gamma", "features")}
    ),
    kinds=TEST_KINDS | {"kernel_x": "optional kernel", "method": "option"},
    rows=(("X", "Y"),),
    laws={"container": ("*",)},
    frames=False,
    allowed=frozenset({("kernel_x", "a list")}),  # of kernels to choose from
    share=6,
)
def _(X, Y, kernel_x, permutations, rng, alpha, method):
    return tested(kb.hsic_test(X, Y, kernel_x, None, permutations, rng, method=method, alpha=alpha))


@entry(
    "ci_test",
    make=lambda rng: two_variables(rng) | {"Z": None},
    kinds=TEST_KINDS | {"Z": "sample"},
    rows=(("X", "Y", "Z"),),
    laws={"container": ("*",)},
    frames=False,
    share=3,
)
def _(X, Y, Z, permutations, rng, alpha):
    return tested(kb.ci_test(X, Y, Z, permutations=permutations, rng=rng, alpha=alpha))


def three_variables(rng):
    X, Y = pair(rng, 14)
    return two_variables(rng) | {"X": X, "Y": Y, "Z": points(rng, 14)}


REGISTRY["ci_test"].make = three_variables


def two_samples_of_pairs(rng):
    (X, Y), (n, m) = pair(rng, 24), (slice(0, 14), slice(14, None))
    asked = {"X1": X[n], "Y1": Y[n], "X2": X[m], "Y2": Y[m]}
    return asked | {k: v for k, v in two_variables(rng).items() if k not in ("X", "Y")}


@entry(
    "conditional_mmd_test",
    make=two_samples_of_pairs,
    kinds={k: v for k, v in TEST_KINDS.items() if k not in ("X", "Y")}
    | dict.fromkeys(("X1", "Y1", "X2", "Y2"), "sample"),
    rows=(("X1", "Y1"), ("X2", "Y2")),
    laws={"container": ("*",)},
    frames=False,
    share=2,
)
def _(X1, Y1, X2, Y2, permutations, rng, alpha):
    how = {"permutations": permutations, "rng": rng, "alpha": alpha}
    return tested(kb.conditional_mmd_test(X1, Y1, X2, Y2, **how))


@entry(
    "drift_report",
    make=lambda rng: {"a": rng.normal(size=(30, 2)), "b": rng.normal(size=(20, 2)), "rng": 0},
    kinds={"a": "sample", "b": "sample", "rng": "rng"},
    rows=(("a",), ("b",)),
    laws={"container": ("*",)},
    frames=False,
    # Empty cells are legal: their share is compared.
    allowed=frozenset((name, what) for name in "ab" for what in ("nan", "masked")),
    share=2,
)
def _(a, b, rng):
    return tested(kb.drift_report(a, b, permutations=99, rng=rng))


REGISTRY["DriftReport"] = REGISTRY["drift_report"]


@entry(
    "mmd_aggregated",
    make=two_samples,
    kinds=TEST_KINDS,
    rows=(("X",), ("Y",)),
    laws={"container": ("*",)},
    frames=False,
    share=2,
)
def _(X, Y, permutations, rng, alpha):
    return tested(kb.mmd_aggregated(X, Y, None, permutations, rng, alpha=alpha))


@entry(
    "mmd_fuse",
    make=two_samples,
    kinds=TEST_KINDS,
    rows=(("X",), ("Y",)),
    laws={"container": ("*",)},
    frames=False,
    share=2,
)
def _(X, Y, permutations, rng, alpha):
    return tested(kb.mmd_fuse(X, Y, None, permutations, rng, alpha=alpha))


@entry(
    "ksd_test",
    make=lambda rng: {"X": rng.normal(size=(20, 2)), "draws": 19, "rng": 0, "alpha": 0.05},
    kinds={"X": "sample", "draws": "count", "rng": "rng", "alpha": "share"},
    rows=(("X",),),
    laws={"container": ("*",)},
    frames=False,
    share=2,
)
def _(X, draws, rng, alpha):
    return tested(kb.ksd_test(X, lambda x: -x, None, draws, rng, alpha=alpha))


@entry(
    "hsic_aggregated",
    make=two_variables,
    kinds=TEST_KINDS,
    rows=(("X", "Y"),),
    laws={"container": ("*",)},
    frames=False,
    share=2,
)
def _(X, Y, permutations, rng, alpha):
    return tested(kb.hsic_aggregated(X, Y, None, None, permutations, rng, alpha=alpha))


# --- graphs --------------------------------------------------------------------------------------


def chain(rng, n=20):
    a = rng.normal(size=n)
    b = a + 0.5 * rng.normal(size=n)
    return {"a": a, "b": b, "c": b + 0.5 * rng.normal(size=n), "seen": float(a[0])}


@entry(
    "KernelBeliefPropagation",
    make=lambda rng: (
        chain(rng) | {"ridge": 0.01, "rank": maybe(rng, 8), "damping": float(rng.uniform(0.1, 0.5))}
    ),
    kinds={"a": "sample", "b": "sample", "c": "sample", "ridge": "positive"}
    | {"rank": "optional count", "damping": "share"},
    laws=laws(but=("rows", "twice", "single", "units")),
    slack={"mean": 1e2},
    allowed=MISSING
    | {
        (a, label)
        for a in "abc"
        for label in ("nan", "masked", "None inside", "missing in a frame")
    },
    share=2,
)
def _(a, b, c, seen, ridge, rank, damping):
    edges = [("a", "b"), ("b", "c")]
    model = kb.KernelBeliefPropagation(edges, ridge=ridge, rank=rank, damping=damping, rng=0)
    beliefs = model.fit({"a": a, "b": b, "c": c}).query(evidence={"a": seen})
    return {"mean": np.concatenate([beliefs["b"].mean(), beliefs["c"].mean()])}


@functools.cache
def fitted_graph():
    data = chain(np.random.default_rng([4]))
    data.pop("seen")
    return kb.KernelBeliefPropagation([("a", "b"), ("b", "c")], ridge=0.01, rng=0).fit(data)


@entry(
    "GraphBeliefs",
    make=lambda rng: {"a": rng.normal(size=2)},
    kinds={"a": "sample"},
    rigid=True,
    allowed=frozenset(
        ("a", label)
        for label in ("nan", "masked", "None inside", "missing in a frame", "scalar", "None")
    ),
    share=2,
)
def _(a):
    beliefs = fitted_graph().query(evidence={"a": a})
    return {"mean": beliefs["c"].mean(), "iterations": beliefs.iterations}


REGISTRY["Message"] = REGISTRY["GraphBeliefs"]

# --- files ---------------------------------------------------------------------------------------


def new_file(rng):
    return str(Path(tempfile.mkdtemp(prefix="kernelbayes")) / "model.kb")


@entry(
    "save",
    make=lambda rng: sample(rng) | {"path": new_file(rng)},
    kinds={"points": "sample", "weights": "weights", "kernel": "kernel", "path": "path"},
    share=2,
)
def _(points, kernel, weights, path):
    mu = kb.embed(points, kernel, weights)
    kb.save(mu, path)
    return {"off": np.abs(kb.load(path).mean() - mu.mean())}


REGISTRY["load"] = REGISTRY["save"]


def new_page(rng):
    return str(Path(tempfile.mkdtemp(prefix="kernelbayes")) / "page.html")


@entry(
    "report",
    make=lambda rng: sample(rng) | {"path": new_page(rng), "level": 0.9},
    kinds={"points": "sample", "weights": "weights", "kernel": "kernel"}
    | {"path": "path", "level": "share"},
    share=2,
)
def _(points, kernel, weights, path, level):
    page = kb.report(kb.embed(points, kernel, weights), path, level=level)
    return {"whole": page.read_text(encoding="utf-8").endswith("</html>\n")}


# The warning class is called with a message, as any other.
REGISTRY["NumericalWarning"] = Entry(
    make=lambda rng: {},
    ask=lambda: {"is a warning": issubclass(kb.NumericalWarning, Warning)},
    kinds={},
    share=1,
)
