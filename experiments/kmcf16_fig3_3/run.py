"""KMCF16 section 3.5, Figures 3.2 and 3.3: sampling with and without resampling by herding.

P = N(0, 0.1^2), p(.|x) = N(x, 0.1^2), so Q = N(0, 0.02); Gaussian kernel of bandwidth 0.1. An
estimate of m_P on n = 100 uniform points of [-A, A] has the weights of a ridge regression, divided
by their sum: a small ridge gives a small error and a large sum of squared weights. The estimate of
m_Q comes from sampling the transition at each point, after no resampling (woRes), resampling by
herding (Res-KH) or multinomial resampling of truncated weights (Res-Trunc). Ours in addition:
herding improved by exchanges (Res-Ex). Error: squared RKHS distance. Quick: 5 runs. Full: 20 runs.

Time: quick 4 s, full about 1 min.

    python experiments/kmcf16_fig3_3/run.py [--full] [--runs N]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from methods import WAYS, N, one_run
from threadpoolctl import threadpool_limits

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "statespace"))

from report import canvas, check, options, write  # noqa: E402

# The thesis does not list its ridges; these cover the range of sums of squares in Figure 3.3.
RIDGES = 10.0 ** np.arange(-10, 1.5, 1.0)
COLUMNS = ("ridge", "run", "sum of squares", "m_P", "woRes", *WAYS)
# Figure 3.2: squared errors that the thesis prints, of one data set with A = 1.
PUBLISHED = {"m_P": 8.49e-10, "woRes": 0.125, "m_P Res-KH": 4.74e-5, "Res-KH": 0.00827}
PUBLISHED |= {"m_P Res-Trunc": 0.0538}


def slope(x, y):
    """Slope of log y against log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def demonstrate(runs):
    """Figure 3.2: medians over data sets with A = 1 and a small ridge; the thesis shows one."""
    rows = [one_run(1.0, 1e-8, np.random.default_rng(run))[0] for run in range(runs)]
    table = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    print(f"Figure 3.2: A = 1, ridge 1e-8, median and range of {runs} data sets")
    print(f"{'squared error of':20s}{'median':>11s}{'least':>11s}{'most':>11s}{'thesis':>11s}")
    for name in ("m_P", "woRes", *(k for w in WAYS for k in (f"m_P {w}", w))):
        v = table[name]
        cells = "".join(f"{x:11.2e}" for x in (np.median(v), v.min(), v.max()))
        print(f"{name:20s}{cells}{PUBLISHED.get(name, np.nan):11.2e}".replace("nan", "  -"))
    median = {key: np.median(v) for key, v in table.items()}
    return [
        check("resampling by herding loses accuracy on m_P", median["m_P Res-KH"] > median["m_P"]),
        check("and yet gains on m_Q: Res-KH < woRes", median["Res-KH"] < median["woRes"]),
        check(
            "truncation breaks m_P: Res-Trunc at least 10 times Res-KH there",
            median["m_P Res-Trunc"] > 10.0 * median["m_P Res-KH"],
        ),
    ]


def sweep(runs):
    """Figure 3.3: rows of all ridges and runs with A = 5."""
    rows = []
    for ridge in RIDGES:
        for run in range(runs):
            row, _ = one_run(5.0, ridge, np.random.default_rng(run))
            rows.append({"ridge": ridge, "run": run} | {k: row[k] for k in COLUMNS[2:]})
    return rows


def judge(rows):
    """Print means by ridge and check what the thesis says of Figure 3.3."""
    means = {}
    for column in COLUMNS[2:]:
        means[column] = np.array(
            [np.mean([row[column] for row in rows if row["ridge"] == r]) for r in RIDGES]
        )
    print(f"\nFigure 3.3: A = 5, means of {len(rows) // len(RIDGES)} runs, squared errors")
    print(f"{'ridge':>8s}" + "".join(f"{c:>16s}" for c in means))
    for i, ridge in enumerate(RIDGES):
        print(f"{ridge:8.0e}" + "".join(f"{v[i]:16.3e}" for v in means.values()))
    squares = means["sum of squares"]
    uneven = squares > 2.0 / N  # where the thesis would resample
    rising = slope(squares[uneven], means["woRes"][uneven])
    flat = slope(squares[uneven], means["Res-KH"][uneven])
    ratio = means["Res-Trunc"] / means["Res-KH"]
    return means, [
        check(f"woRes grows in proportion to the sum of squares: power {rising:.2f} in "
              "[0.8, 1.2]", 0.8 <= rising <= 1.2),
        check(f"Res-KH does not grow with it: power {flat:.2f} at most 0.1", flat <= 0.1),
        check("Res-KH below woRes wherever the sum of squares is above 2/n",
              np.all(means["Res-KH"][uneven] < means["woRes"][uneven])),
        check(f"Res-Trunc worse than Res-KH: {ratio.prod() ** (1 / len(ratio)):.1f} times its "
              "error in geometric mean", ratio.prod() > 1.0),
        check(f"especially for a large sum of squares: {ratio[squares >= 1.0].min():.1f} times or "
              "more wherever it is at least 1", np.all(ratio[squares >= 1.0] > 1.0)),
        check("exchanges do not harm: Res-Ex at most 1.1 times Res-KH on average",
              np.mean(means["Res-Ex"]) <= 1.1 * np.mean(means["Res-KH"])),
    ]  # fmt: skip


def draw(means, path):
    """Draw Figure 3.2 for one data set and Figure 3.3, if matplotlib is there."""
    made = canvas(1, 3, (12, 3.6))
    if made is None:
        return
    figure, (axes,) = made
    _, clouds = one_run(1.0, 1e-8, np.random.default_rng(0))
    axes[0].stem(clouds["woRes"].points[:, 0], clouds["woRes"].weights, markerfmt=".", basefmt=" ")
    axes[0].set(title="estimate of $m_P$: weights", xlabel="x")
    for name in ("Res-KH", "Res-Trunc"):
        axes[1].hist(clouds[name].points[:, 0], np.linspace(-1, 1, 41), alpha=0.6, label=name)
    axes[1].set(title="resampled points", xlabel="x")
    for name, style in zip(COLUMNS[3:], ("k-", "b-", "g-", "c--", "r-"), strict=True):
        axes[2].loglog(means["sum of squares"], means[name], style, marker=".", label=name)
    axes[2].set(title="squared errors", xlabel="sum of squared weights")
    for ax in axes[1:]:
        ax.legend(fontsize="small")
    figure.savefig(path, dpi=150)


def main():
    """Run, print, check and write."""
    given = options(__doc__).parse_args()
    runs, stem = (given.runs or 20, "full") if given.full else (given.runs or 5, "quick")
    with threadpool_limits(1):
        passed = demonstrate(runs)
        rows = sweep(runs)
        means, more = judge(rows)
    write(rows, HERE / f"{stem}.csv", COLUMNS)
    draw(means, HERE / f"{stem}.png")
    return 0 if all(passed + more) else 1


if __name__ == "__main__":
    raise SystemExit(main())
