"""Summary, printed table, requirements, csv file and picture of the rows of ``methods``."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from methods import ADJUSTED, OURS, PRIOR, Row
from report import check

# Lueckmann et al. (2021), C2ST at 1000 and 10 000 simulations: NPE, rejection ABC with adjustment.
PUBLISHED = {
    "two_moons": ((0.73, 0.61), (0.91, 0.84)),
    "gaussian_linear": ((0.69, 0.55), (0.75, 0.73)),
    "gaussian_linear_uniform": ((0.70, 0.55), (0.83, 0.82)),
    "gaussian_mixture": ((0.72, 0.62), (0.75, 0.73)),
    "slcp": ((0.98, 0.90), (0.98, 0.98)),
    "bernoulli_glm": ((0.86, 0.68), (0.86, 0.81)),
    "sir": ((0.82, 0.68), (0.82, 0.67)),
    "lotka_volterra": ((1.0, 1.0), (1.0, 1.0)),
}
BUDGETS = (1000, 10_000)
MARGIN, TASKS_NEEDED, SECONDS = 0.05, 5, 30.0
Table = dict[tuple[str, int, str], tuple[float, float, float, float]]


def summary(rows: list[Row]) -> Table:
    """Mean C2ST, its standard error, mean squared MMD and worst seconds by task, n and method."""
    found: dict[tuple[str, int, str], list[tuple[float, float, float]]] = {}
    for name, n, _, method, *scores in rows:
        found.setdefault((name, n, method), []).append(tuple(scores))
    table = {}
    for key, scores in found.items():
        values = np.array(scores)
        error = values[:, 0].std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
        table[key] = (values[:, 0].mean(), error, values[:, 1].mean(), values[:, 2].max())
    return table


def published(name: str, n: int) -> str:
    """Return the two published values of a task at a budget, as text."""
    if name not in PUBLISHED or n not in BUDGETS:
        return ""
    npe, adjusted = (values[BUDGETS.index(n)] for values in PUBLISHED[name])
    return f"{npe:.2f} / {adjusted:.2f}"


def print_table(table: Table) -> None:
    """Print one line for each task, budget and method."""
    titles = "C2ST (error)", "MMD^2", "CPU s", "published NPE / adjusted ABC"
    print(f"{'task':25s}{'n':>7s}  {'method':25s}{titles[0]:>14s}{titles[1]:>10s}{titles[2]:>9s}"
          f"  {titles[3]}")  # fmt: skip
    for (name, n, method), (mean, error, mmd, seconds) in table.items():
        cell = f"{mean:.3f}" + ("" if np.isnan(error) else f" ({error:.3f})")
        beside = published(name, n) if method == OURS else ""
        print(f"{name:25s}{n:7d}  {method:25s}{cell:>14s}{mmd:10.4f}{seconds:9.2f}  {beside}")


def check_all(table: Table) -> bool:
    """Print one line for each requirement of the issue; return whether all hold."""
    results, near = [], []
    for (name, n, method), (mean, _, _, seconds) in table.items():
        if method != OURS:
            continue
        baseline, label = table[name, n, ADJUSTED][0], f"{name} n = {n}: C2ST {mean:.3f}"
        results.append(
            check(f"{label}, below measured adjusted ABC {baseline:.3f}", mean < baseline)
        )
        if name in PUBLISHED:
            npe, adjusted = (values[BUDGETS.index(n)] for values in PUBLISHED[name])
            text = f"{label}, below published adjusted ABC {adjusted:.2f}"
            results.append(check(text, mean < adjusted))
            if n == BUDGETS[0]:
                near.append(mean <= npe + MARGIN)
        trivial = table[name, 0, PRIOR][0]
        results.append(check(f"{label}, below the prior's {trivial:.3f}", mean < trivial))
        if n == BUDGETS[1]:
            text = f"{name} n = {n}: {seconds:.1f} s CPU, at most {SECONDS:.0f}"
            results.append(check(text, seconds <= SECONDS))
    needed = min(TASKS_NEEDED, len(near))
    text = f"at most published NPE + {MARGIN} at n = {BUDGETS[0]} on {sum(near)} of {len(near)}"
    results.append(check(f"{text} tasks; needed {needed}", sum(near) >= needed))
    return all(results)


def write(rows: list[Row], path: Path) -> None:
    """Write all rows to a csv file."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("task", "n", "seed", "method", "c2st", "mmd2", "seconds"))
        writer.writerows((*row[:4], *(f"{value:.5g}" for value in row[4:])) for row in rows)


def draw(table: Table, path: Path) -> None:
    """Draw C2ST against budget, one panel per task, if matplotlib is there."""
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        print("matplotlib is not installed: no picture")
        return
    names = list(dict.fromkeys(name for name, _, _ in table))
    wide = min(len(names), 5)
    high = -(-len(names) // wide)
    figure, panels = plt.subplots(
        high, wide, figsize=(1 + 2.6 * wide, 0.6 + 2.5 * high), layout="constrained", squeeze=False
    )
    for name, axes in zip(names, panels.flat, strict=False):
        for method in dict.fromkeys(m for t, n, m in table if t == name and n > 0):
            budgets = [n for t, n, m in table if (t, m) == (name, method)]
            means, errors, _, _ = zip(*(table[name, n, method] for n in budgets), strict=True)
            axes.errorbar(budgets, means, errors, marker="o", markersize=3, label=method)
        if name in PUBLISHED:
            for values, label in zip(PUBLISHED[name], ("NPE", "adjusted ABC"), strict=True):
                axes.plot(BUDGETS, values, "--", alpha=0.6, label=f"{label}, published")
        axes.axhline(table[name, 0, PRIOR][0], color="grey", linewidth=0.8, label=PRIOR)
        axes.set(title=name, xscale="log", ylim=(0.48, 1.02), xlabel="simulations", ylabel="C2ST")
    for axes in panels.flat[len(names) :]:
        axes.set_axis_off()
    panels[0, 0].legend(fontsize="xx-small")
    figure.savefig(path, dpi=150)
    plt.close(figure)
