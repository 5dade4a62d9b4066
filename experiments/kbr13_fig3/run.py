"""Figure 3 of Fukumizu, Song and Gretton (2013): accuracy and time of likelihood-free inference.

The model of section 5.1: (z, x) Gaussian in d + d dimensions with covariance A^T A + 2 I, and a
prior of z half as wide as the marginal. Simulations come from the prior, as in section 4.4. Error:
squared distance to the true posterior mean, summed over dimensions, averaged over 10 observations
and 10 runs with random A. Time: CPU seconds of simulation, learning and all 10 answers, one thread.
Quick: n up to 600, one run. Full: n up to 6000, 10 runs.

Time: quick 8 s, full not measured.

    python experiments/kbr13_fig3/run.py [--full] [--runs N] [--first SEED] [--predictive]
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

from threadpoolctl import threadpool_limits

from kernelbayes.select.search import progress_bar

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "statespace"))

from judge import JUDGED, check_baseline, curve, judge, print_table, summary  # noqa: E402
from methods import (  # noqa: E402
    ABC,
    ADJUSTED,
    AUTO,
    CHOSEN,
    COLUMNS,
    COND,
    IMPORTANCE,
    KBR,
    LOOP,
    OPERATOR,
    PRIOR,
    one_run,
)
from report import canvas, options, write  # noqa: E402


def draw(table, dimensions, path):
    """Error against CPU time with sample sizes at the marks, if matplotlib is there."""
    made = canvas(1, 2, (12, 6))
    if made is None:
        return
    figure, (panels,) = made
    for d, axes in zip(dimensions, panels, strict=True):
        for method in (ABC, LOOP, ADJUSTED, COND, CHOSEN, KBR, OPERATOR, IMPORTANCE, AUTO):
            setting = None if method in (ABC, LOOP, ADJUSTED, AUTO) else JUDGED
            sizes, seconds, errors = zip(*curve(table, d, method, setting), strict=True)
            axes.loglog(seconds, errors, "o-", markersize=3, label=method)
            for n, s, e in zip(sizes, seconds, errors, strict=True):
                axes.annotate(f"{n:,}", (s, e), fontsize=6, xytext=(2, 2),
                              textcoords="offset points")  # fmt: skip
        axes.axhline(table[d, PRIOR, 0, ""]["error"], color="grey", ls=":", label=PRIOR)
        axes.set(title=f"d = {d}", xlabel="CPU seconds", ylabel="squared error")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4,
                  fontsize="small")  # fmt: skip
    figure.savefig(path, dpi=150)


def main():
    """Run, print, check and write."""
    parser = options(__doc__)
    parser.add_argument("--predictive", action="store_true",
                        help="observations from the prior predictive; print only")  # fmt: skip
    given = parser.parse_args()
    few = (200, 600, 2000, 6000, 20_000, 60_000)
    if given.full:
        sizes = {"kernel": few[:4], "auto": few[:2], "abc": (*few, 200_000, 600_000, 2_000_000)}
    else:
        sizes = {"kernel": few[:2], "auto": few[:1], "abc": few}
    runs = range(given.first, given.first + (given.runs or (10 if given.full else 1)))
    with threadpool_limits(1):
        one_run(2, 0, {"kernel": (50,), "auto": (50,), "abc": (50,)}, False)  # warm up
        rows = []
        with progress_bar(2 * len(runs), "runs", None) as bar:
            for d, run in product((2, 6), runs):
                rows += one_run(d, run, sizes, given.predictive)
                bar.update(1)
        stem = "full" if given.full else "quick"
        if not given.predictive:
            write(rows, HERE / f"{stem}.csv", COLUMNS)
        table = summary(rows)
        print_table(table)
        print()
        passed = check_baseline(6000, given.predictive)
    passed = judge(table, (2, 6)) and passed
    if not given.predictive:
        draw(table, (2, 6), HERE / f"{stem}.png")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
