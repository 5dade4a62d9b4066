r"""Which columns of a table have changed: a test of each column, and of all of them together.

Each column is a two-sample problem of its own. The p-values are corrected by Holm's method (1979),
which holds for columns that depend on each other: with no change at all, a column is named with
probability at most alpha. The joint test also sees changes in how columns depend on each other.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelbayes.arrays import as_array, as_generator, as_vectors, quiet, warn
from kernelbayes.compare.mmd import mmd_test
from kernelbayes.compare.problem import check_sizes, same_columns
from kernelbayes.compare.result import KernelTestResult
from kernelbayes.gram.features import nystrom
from kernelbayes.kernels import Delta
from kernelbayes.kernels.default import columns_of, two_kinds
from kernelbayes.objects import blanks, numbers_of
from kernelbayes.plot.tests import plot_change, plot_drift
from kernelbayes.points import integer, option, share
from kernelbayes.tables import Row, Table
from kernelbayes.types import Axes, Floats, Generator, PointsLike, Rng

# Rows of both tables up to which a column is tested by permutations, which are exact; beyond this
# the chi-square law of random features is accurate (tests/test_compare_level.py has it at 100).
FEW_ROWS = 2000
# Features of a column of numbers: a Gaussian kernel of median bandwidth on the line has fewer than
# 20 eigenvalues above a thousandth of the largest. Landmarks of a column of categories: each of
# them, or this many of the most frequent.
LINE_RANK, MOST_LANDMARKS = 32, 200
# Rows of each table for the joint test. A mean shift of 0.02 deviations is five standard errors.
JOINT_ROWS = 100_000
# Draws of the null distribution for each column over alpha: the smallest p-value, corrected for all
# columns, is then a tenth of alpha.
DRAWS_PER_COLUMN = 10
# Rows of the smaller table from which the law of large samples is used: see FEW_ROWS. Of a larger
# table beside a smaller one than that, FEW_ROWS random rows tell nearly as much as all.
LAW_ROWS = 100
BINS = 40  # of a picture of a column
MOST_CATEGORIES = 20  # categories of a picture of a column, those that changed most

Column = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class DriftReport:
    """What has changed between two tables. It unpacks as the joint (statistic, pvalue).

    Attributes
    ----------
    columns : Table
        A row for each column, the most changed first: ``"column"``, ``"drifted"``, ``"effect"``
        with its 95 % interval ``"low"``, ``"high"`` (MMD over the standard deviation in feature
        space: 0.2 is small, 0.8 large, as for Cohen's d), ``"pvalue"``, ``"corrected"`` (Holm) and
        ``"change"`` in words. A column of numbers with empty cells has a second row for these.
    joint : KernelTestResult
        Test of all columns together, on complete rows.
    tests : mapping
        From names of columns to their results.
    shapes : mapping
        From names to edges of bins, or categories, and the shares of both tables in them.
    alpha : float
    sizes : (int, int)
    """

    columns: Table
    joint: KernelTestResult
    tests: Mapping[str, KernelTestResult]
    shapes: Mapping[str, tuple[Column, Floats, Floats]]
    alpha: float
    sizes: tuple[int, int]

    statistic = property(lambda self: self.joint.statistic, doc="Of the joint test.")
    pvalue = property(lambda self: self.joint.pvalue, doc="Of the joint test.")
    null = property(lambda self: self.joint.null, doc="Of the joint test.")

    def __iter__(self) -> Iterator[float]:
        return iter(self.joint)

    @property
    def drifted(self) -> tuple[str, ...]:
        """Names of the columns whose corrected p-value is at most alpha."""
        return tuple(row["column"] for row in self.columns if row["drifted"])

    @property
    def verdict(self) -> str:
        """In words."""
        found, d = self.drifted, len(self.columns)
        text = f"joint p = {self.pvalue:.2g}"
        if found:
            return f"{len(found)} of {d} columns differ ({', '.join(found)}); {text}"
        if self.pvalue <= self.alpha:
            return f"no column differs alone, but all together do; {text}"
        return f"no difference found in {d} column{'s' * (d > 1)}; {text}"

    def summary(self) -> Table:
        """Return the table of the columns."""
        return self.columns

    def to_frame(self) -> Any:
        """Pandas frame with a row for each column."""
        return self.columns.to_frame()

    def plot(self, column: str | None = None, ax: Axes = None) -> Axes:
        """Draw the effects of all columns, or both distributions of one. Returns the axes."""
        if column is None:
            return plot_drift(self.columns, ax)
        return plot_change(column, self.shapes[option(column, "column", list(self.shapes))], ax)

    def __repr__(self) -> str:
        rows = " and ".join(map(str, self.sizes))
        return f"DriftReport({rows} rows: {self.verdict})\n{self.columns!r}"

    def _repr_html_(self) -> str:
        return self.columns._repr_html_()


def drift_report(
    a: PointsLike,
    b: PointsLike,
    *,
    alpha: float = 0.05,
    permutations: int | None = None,
    rng: Rng = None,
) -> DriftReport:
    """Compare two tables column by column and as a whole.

    Parameters
    ----------
    a, b : tables (n, d), (m, d)
        Frames, mappings of columns, or arrays, with the same columns in any order. Columns that are
        not numbers are categories. Empty cells are allowed: their share is compared, too.
    alpha : float
        Probability that any column is named if nothing has changed.
    permutations : int, optional
        Draws of each null distribution; by default 1000, more for many columns.
    rng : int, Generator or None

    Returns
    -------
    DriftReport

    Notes
    -----
    Tables of more than 2000 rows together are compared through random features, in time that is
    linear in the rows. The joint test then takes at most 100 000 random rows of each.

    Examples
    --------
    >>> import numpy as np
    >>> import kernelbayes as kb
    >>> rng = np.random.default_rng(0)
    >>> a = {"age": rng.normal(40.0, 10.0, 300), "city": rng.choice(["Rome", "Oslo"], 300)}
    >>> b = {"age": rng.normal(48.0, 10.0, 250), "city": rng.choice(["Rome", "Oslo"], 250)}
    >>> report = kb.drift_report(a, b, rng=0)
    >>> report.drifted, report.pvalue < 0.05
    (('age',), True)
    """
    alpha, generator = share(alpha, "alpha"), as_generator(rng)
    b = same_columns(a, b)
    first, second = _columns(a, "a"), _columns(b, "b")
    if len(first) == len(second) == 1:  # it may have another name
        second = dict(zip(first, second.values(), strict=True))
    if list(first) != list(second):
        raise ValueError(f"a has the columns {list(first)}, b {list(second)}: give both the same")
    sizes = tuple(len(next(iter(t.values()))) for t in (first, second))
    check_sizes(2, a=sizes[0], b=sizes[1])
    pairs = {name: (first[name], second[name]) for name in first}
    parts = {part.name: part for name, pair in pairs.items() for part in _parts(name, *pair)}
    draws = max(1000, math.ceil(DRAWS_PER_COLUMN * len(parts) / alpha))
    draws = draws if permutations is None else integer(permutations, "permutations")
    if len(parts) > alpha * (draws + 1):
        warn(
            f"no column of {len(parts)} can be named with {draws} permutations: corrected p-values "
            f"are at least {len(parts) / (draws + 1):.2g}; give more"
        )
    with quiet():  # a constant column needs no warning: its p-value is 1
        tests = {name: part.test(draws, generator) for name, part in parts.items()}
        joint = next(iter(tests.values()))
        if len(pairs) > 1:
            A, B = _complete(pairs, generator)
            joint = mmd_test(A, B, permutations=draws, rng=generator)
    corrected = holm(np.array([test.pvalue for test in tests.values()]))
    shapes = {name: part.shape() for name, part in parts.items()}
    rows = []
    for (name, test), p in zip(tests.items(), corrected, strict=True):
        row: Row = {"column": name, "drifted": bool(p <= alpha)}
        row |= {key: test.row()[key] for key in ("effect", "low", "high", "pvalue")}
        rows.append({**row, "corrected": float(p), "change": parts[name].change(*shapes[name])})
    rows.sort(key=lambda row: (row["corrected"], -row["effect"]))
    return DriftReport(Table(rows), joint, tests, shapes, alpha, (sizes[0], sizes[1]))


def holm(p: Floats) -> Floats:
    """Holm's corrected p-values (d,): the k-th smallest times d - k + 1, made monotone."""
    order = np.argsort(p, kind="stable")
    found = np.empty(len(p))
    raised = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order])
    found[order] = np.minimum(raised, 1.0)
    return found


def _columns(table: PointsLike, name: str) -> dict[str, Column]:
    """Columns of a table: floats with NaN where empty, or texts, "" where empty."""
    columns = columns_of(table, name)
    if columns is None:
        array = as_array(table, name)
        if array.dtype.kind in "fiub":
            array = as_vectors(array, name) if array.ndim < 2 else array
        array = array[:, None] if array.ndim == 1 else array
        if array.ndim != 2:
            raise ValueError(f"{name} must be a table (n, d), got shape {array.shape}")
        columns = {f"x{j}": column for j, column in enumerate(array.T)}
    if not columns or len({len(column) for column in columns.values()}) != 1:
        raise ValueError(f"{name} must have columns of one length, and at least one")
    return {str(key): _typed(column) for key, column in columns.items()}


def _typed(column: Column) -> Column:
    if column.dtype.kind in "fiu":
        return column.astype(np.float64)
    if column.dtype.kind != "O":
        return column.astype(str)
    found = numbers_of(column, "a column")
    if found.dtype.kind in "fiu":
        return found.astype(np.float64)
    return np.where(blanks(column), "", column.astype(str))


@dataclass(frozen=True, eq=False)
class _Part:
    """One column of both tables without empty cells: numbers, or codes of labels."""

    name: str
    x: Column
    y: Column
    labels: list[str] | None = None

    def test(self, draws: int, rng: Generator) -> KernelTestResult:
        """Two-sample test of the column."""
        x, y = self.x, self.y
        if min(len(x), len(y)) < LAW_ROWS:  # too few for a law of large samples
            x, y = (v if len(v) <= FEW_ROWS else rng.choice(v, FEW_ROWS, False) for v in (x, y))
        options: Any = {"permutations": draws, "rng": rng, "method": "permutation"}
        if min(len(x), len(y)) >= LAW_ROWS and len(x) + len(y) > FEW_ROWS:
            options |= {"method": "features", "rank": LINE_RANK}
        if self.labels is None:
            return mmd_test(x, y, **options)
        if options["method"] != "features":
            return mmd_test(x, y, Delta(), **options)
        counts = np.bincount(np.concatenate([x, y]), minlength=len(self.labels))
        often = np.sort(np.argsort(-counts, kind="stable")[:MOST_LANDMARKS])
        return mmd_test(x, y, nystrom(Delta(), often, len(often), rng), **options)

    def shape(self) -> tuple[Column, Floats, Floats]:
        """Edges of bins (k + 1,) or labels (k,), and the shares (k,) of both tables there."""
        if self.labels is not None:
            counts = [np.bincount(v, minlength=len(self.labels)) / len(v) for v in (self.x, self.y)]
            order = np.argsort(-np.abs(counts[1] - counts[0]), kind="stable")[:MOST_CATEGORIES]
            return np.array(self.labels)[order], counts[0][order], counts[1][order]
        low, high = np.quantile(np.concatenate([self.x, self.y]), (0.005, 0.995))
        edges = np.linspace(low, max(high, np.nextafter(low, np.inf)), BINS + 1)
        found = [np.histogram(v.clip(low, high), edges)[0] / len(v) for v in (self.x, self.y)]
        return edges, found[0], found[1]

    def change(self, where: Column, before: Floats, after: Floats) -> str:
        """Difference in words: of mean and deviation, or of the share that changed most."""
        if self.labels is not None:
            return f"{where[0] or 'empty'}: {before[0]:.1%} -> {after[0]:.1%}"
        moments = [(f(self.x), f(self.y)) for f in (np.mean, np.std)]
        words = (f"{a:.3g} -> {b:.3g}" for a, b in moments)
        return "mean {}, sd {}".format(*words)


def _parts(name: str, x: Column, y: Column) -> Iterator[_Part]:
    """Column of both tables, and which of its cells are empty if some are."""
    if x.dtype.kind != y.dtype.kind:
        raise two_kinds(name, *("ab" if x.dtype.kind == "f" else "ba"))
    if x.dtype.kind == "U":
        yield _coded(name, x, y)
        return
    if np.isinf(x).any() or np.isinf(y).any():
        raise ValueError(f"column {name!r} has infinite numbers; leave these rows out")
    empty = np.isnan(x), np.isnan(y)
    if not any(missing.any() for missing in empty):
        yield _Part(name, x, y)
        return
    x, y = x[~empty[0]], y[~empty[1]]
    if min(len(x), len(y)) > 1:
        yield _Part(name, x, y)
    yield _coded(f"{name} (empty)", *(np.where(e, "empty", "filled") for e in empty))


def _coded(name: str, x: Column, y: Column) -> _Part:
    """Column of texts as codes; a lookup is ten times faster than sorting a million texts."""
    both = x.tolist(), y.tolist()
    labels = sorted({*both[0], *both[1]})
    lookup = {label: code for code, label in enumerate(labels)}
    codes = [np.fromiter(map(lookup.__getitem__, v), np.int64, len(v)) for v in both]
    return _Part(name, codes[0], codes[1], labels)


def _complete(
    pairs: Mapping[str, tuple[Column, Column]], rng: Generator
) -> Iterator[dict[str, Column]]:
    """Complete rows of each table, at most JOINT_ROWS; if they are few, medians fill the holes."""
    numbers = [key for key, (x, _) in pairs.items() if x.dtype.kind == "f"]
    empty = [np.any([np.isnan(pairs[key][side]) for key in numbers], axis=0) for side in (0, 1)]
    if numbers and max(rows.mean() for rows in empty) > 0.5:
        pairs = {k: _filled(*pair) if k in numbers else pair for k, pair in pairs.items()}
        empty = [np.zeros_like(rows) for rows in empty]
    for side, rows in enumerate(empty):
        table = {key: pair[side] for key, pair in pairs.items()}
        n = len(next(iter(table.values())))
        kept = np.flatnonzero(~rows) if numbers else np.arange(n)
        if len(kept) > JOINT_ROWS:
            kept = np.sort(rng.choice(kept, JOINT_ROWS, replace=False))
        yield {key: column[kept] for key, column in table.items()}


def _filled(x: Column, y: Column) -> tuple[Column, Column]:
    """Column of both tables with the median of both in empty cells; zeros if all are empty."""
    both = np.concatenate([x, y])
    middle = 0.0 if np.isnan(both).all() else np.nanmedian(both)
    return np.nan_to_num(x, nan=middle), np.nan_to_num(y, nan=middle)
