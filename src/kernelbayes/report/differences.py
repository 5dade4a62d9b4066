"""Pictures of tests and drift: null distributions, witness functions, effects by column."""

from collections.abc import Sequence

import numpy as np

from kernelbayes.compare import DriftReport, KernelTestResult
from kernelbayes.plot.tests import witness_columns
from kernelbayes.report.canvas import FIRST, PLAIN, SECOND, Picture
from kernelbayes.report.pictures import DRAWS_SHOWN, Shown, widths
from kernelbayes.tables import Row

BINS_OF_NULL = 40  # of a histogram
DRIFTED_SHOWN = 6  # columns whose change is drawn, those that changed most


def of_test(test: KernelTestResult) -> Shown:
    """Null distribution with the statistic, and the witness where it can be drawn."""
    picture = Picture("The statistic and its distribution under the null hypothesis",
                      f"{test.test} statistic", "count", floor=0.0)  # fmt: skip
    counts, edges = np.histogram(test.null, BINS_OF_NULL)
    picture.bars(edges, counts.astype(float), "null distribution", PLAIN)
    picture.hover((edges[1:] + edges[:-1]) / 2, "count", counts.astype(float))
    critical = float(np.quantile(test.null, 1.0 - test.alpha))
    picture.upright(critical, f"{100 * test.alpha:g} % critical value", PLAIN)
    picture.upright(float(test.statistic), "observed")
    return Shown([picture, *_witness(test)])


def _witness(test: KernelTestResult) -> list[Picture]:
    if test.witness is None:
        return []
    try:
        columns, names = witness_columns(test.witness)
    except (TypeError, ValueError):  # no numbers, or more than two columns
        return []
    values, pair = np.asarray(test.witness.values), isinstance(test.witness.points, tuple)
    heavy = np.argsort(-np.abs(values), kind="stable")[:DRAWS_SHOWN]
    columns, values = columns[heavy], values[heavy]
    more = ("more than independent", "less") if pair else ("more of the first", "of the second")
    more = ("far from the density", "close to it") if test.test == "KSD" else more
    if columns.shape[1] == 1:
        order = np.argsort(columns[:, 0], kind="stable")
        picture = Picture("Witness: where the null hypothesis fails", "x", "witness", floor=0.0)
        picture.line(columns[order, 0], values[order], "witness")
        return [picture]
    picture = Picture("Witness: where the null hypothesis fails", *names)
    for sign, look, label in ((values > 0, FIRST, more[0]), (values <= 0, SECOND, more[1])):
        picture.dots(columns[sign, 0], columns[sign, 1], label, look, widths(np.abs(values[sign])))
    picture.hover(columns[:, 0], "witness", values)
    picture.up = columns[:, 1]
    return [picture]


def of_drift(report: DriftReport) -> Shown:
    """Effects of the columns, and the distributions of those that changed most."""
    shown = Shown([effects(report.columns)])
    for row in report.columns[:DRIFTED_SHOWN]:
        name = row["column"]
        where, before, after = report.shapes[name]
        edges = len(where) > len(before)
        names = None if edges else [str(v) or "empty" for v in where]
        picture = Picture(f"{name}: {row['change']}", str(name), "share", names, floor=0.0)
        at = np.asarray(where, dtype=float) if edges else np.arange(float(len(where)))
        picture.bars(at, np.asarray(before), "first table")
        picture.bars(at, np.asarray(after), "second table", SECOND)
        middle = (at[1:] + at[:-1]) / 2 if edges else at
        picture.hover(middle, "first table", np.asarray(before))
        picture.hover(middle, "second table", np.asarray(after))
        shown.pictures.append(picture)
    if len(report.columns) > DRIFTED_SHOWN:
        shown.note = f"{DRIFTED_SHOWN} of {len(report.columns)} columns, those that changed most."
    return shown


def effects(rows: Sequence[Row]) -> Picture:
    """Effect of each column with its interval, the largest first."""
    rows = list(reversed(rows))
    numbers = {key: np.array([row[key] for row in rows], dtype=float)
               for key in ("effect", "low", "high", "corrected")}  # fmt: skip
    names = [str(row["column"]) for row in rows]
    picture = Picture("Effect of each column, with its 95 % interval", "effect", levels=names)
    at = np.arange(float(len(rows)))
    ends = np.column_stack([numbers["low"], numbers["high"]])
    picture.whiskers(numbers["effect"], at, ends, across=True)
    drifted = np.array([bool(row["drifted"]) for row in rows])
    for mask, look, label in ((drifted, SECOND, "changed"), (~drifted, PLAIN, "not changed")):
        if mask.any():
            picture.dots(numbers["effect"][mask], at[mask], label, look)
    picture.hover(numbers["effect"], "effect", numbers["effect"])
    picture.hover(numbers["effect"], "corrected p-value", numbers["corrected"])
    picture.up, picture.headings = at, names
    return picture
