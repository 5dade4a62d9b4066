"""Figure 7 of Song, Fukumizu and Gretton (2013): depth from one image, by four belief propagations.

Streets drawn by a ray caster stand in for the laser scans of the paper: 107 x 86 patches, each with
a hidden log depth, joined to its neighbours; rows share their potentials. Models learn from some
scenes, choose their settings on others and solve new ones. Quick: learned from 12 scenes, chosen on
one, two new ones. Full: learned from 40, chosen on two, eight new ones.

Time: quick 40 s, full not measured.

    python experiments/cme13_fig7/run.py [--full] [--runs N] [--first SEED] [--methods ...]
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / name) for name in ("statespace", "graphs")]

import methods  # noqa: E402
import numpy as np  # noqa: E402
from report import check, judge, options, print_table, summary, write  # noqa: E402

from kernelbayes import NumericalWarning  # noqa: E402

SIZES, QUICK = (40, 2, 8), (12, 1, 2)  # scenes to learn from, to choose on, to solve
# Mean absolute error of log10 depth and seconds, on 274 real images.
PUBLISHED = {
    "kernel": (0.145, 6.8), "particle": (0.166, 480.0), "discrete": (0.179, 4.1),
    "mixture": (0.226, 930.0),
}  # fmt: skip
MAE, SLOWER = "MAE (log10)", 3.0  # times that of discrete belief propagation, that kernels may take


def rows_of(size, solved):
    """Rows of errors and seconds of all methods, from what ``methods.study`` yields."""
    rows = []
    for run, (_, depth, found) in enumerate(solved):
        for name, (guess, seconds) in found.items():
            rows.append((MAE, size, run, name, methods.mae(guess, depth)))
            rows.append(("seconds", size, run, name, seconds))
    return rows


def draw(path, solved):
    """Draw the picture, depth and what each method finds, for the first two scenes."""
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        print("matplotlib is not installed: no picture")
        return
    shown = [name for name in solved[0][2] if name != "constant"]
    wide = 2 + len(shown)
    figure, panels = plt.subplots(2, wide, figsize=(2 * wide, 5.4), layout="constrained")
    for axes, (picture, depth, found) in zip(panels, solved, strict=False):
        axes[0].imshow(picture)
        images = [("true depth", depth), *((name, found[name][0]) for name in shown)]
        for panel, (name, image) in zip(axes[1:], images, strict=True):
            panel.imshow(image, vmin=depth.min(), vmax=depth.max())
            error = "" if name == "true depth" else f", {methods.mae(image, depth):.3f}"
            panel.set_title(name + error, fontsize="medium")
        for panel in axes:
            panel.set_axis_off()
    figure.savefig(path, dpi=80)
    plt.close(figure)


def check_all(table, size, full):
    """Print published values, and whether the bars hold."""
    for name, (error, seconds) in PUBLISHED.items():
        if (name, MAE, size) not in table:
            continue
        ours = table[name, MAE, size][0], table[name, "seconds", size][0]
        print(f"      {name}: {ours[0]:.3f} in {ours[1]:.2f} s; "
              f"published {error:.3f} in {seconds:g} s, on other images")  # fmt: skip
    errors = {name: one[0] for (name, what, _), one in table.items() if what != "seconds"}
    own = errors.pop("kernel")
    rival = min(errors, key=errors.get)
    error = table["kernel", MAE, size][1]
    text = f"kernel {own:.4f}, lowest of all ({rival} {errors[rival]:.4f})"
    passed = judge(text, own, errors[rival], error, full)
    times = table["kernel", "seconds", size][0] / table["discrete", "seconds", size][0]
    return check(f"{times:.1f} times the seconds of discrete, at most 3", times <= SLOWER) & passed


def paired(rows):
    """Print the differences to the kernel method, scene by scene."""
    errors = {(r[3], r[2]): r[4] for r in rows if r[0] != "seconds"}
    runs = sorted({r[2] for r in rows})
    for name in dict.fromkeys(r[3] for r in rows):
        gaps = np.array([errors[name, k] - errors["kernel", k] for k in runs])
        error = gaps.std(ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else np.nan
        if name != "kernel":
            print(f"      {name} minus kernel, scene by scene: {gaps.mean():+.4f} ({error:.4f})")


def main():
    """Run, print, check and write."""
    parser = options(__doc__)
    parser.add_argument("--methods", nargs="+", choices=methods.METHODS)
    given = parser.parse_args()
    warnings.simplefilter("ignore", NumericalWarning)  # patches unlike all training patches
    learned, chosen, new = SIZES if given.full else QUICK
    names = tuple(given.methods or methods.METHODS)
    start, solved = time.perf_counter(), []
    for one in methods.study(given.first, (learned, chosen, given.runs or new), names):
        solved.append(one)
        told = ", ".join(f"{name} {methods.mae(x, one[1]):.3f}" for name, (x, _) in one[2].items())
        print(f"scene {len(solved)}: {told}", flush=True)
    rows = rows_of(learned, solved)
    table = summary(rows)
    print(f"\nmean (standard error); {time.perf_counter() - start:.0f} s\n")
    print_table(table)
    print()
    passed = True
    if {"kernel", "discrete"} <= set(names):
        paired(rows)
        passed = check_all(table, learned, given.full)
    stem = "full" if given.full else "quick"
    write(rows, HERE / f"{stem}.csv")
    draw(HERE / f"{stem}.png", solved)
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
