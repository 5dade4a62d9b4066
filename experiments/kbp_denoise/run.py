"""Denoising of sunsets of arcs: RMSE of kernel belief propagation and of its baselines.

python experiments/kbp_denoise/run.py [levels ...]   writes results.csv beside this file
"""

import csv
import sys
import time
from pathlib import Path

import methods as m
import numpy as np
from images import noisy, rmse, sunset

SAME = (100,)  # numbers of levels at which the model is also learned from the test image
LEVELS = (10, 25, 50, 75, 100, 125, 150, 175, 200, 225, 250)
PUBLISHED = dict(
    zip(LEVELS, (8.42, 8.09, 7.86, 8.01, 8.72, 7.80, 7.86, 7.88, 7.77, 8.18, 7.51), strict=True)
)


def one(levels, seed=0):
    """Row of results: learned on one image, chosen on a second, scored on a third."""
    rng = np.random.default_rng([seed, levels])
    images = [sunset(levels, rng) for _ in range(3)]
    (train, train_noisy), validation, (test, test_noisy) = [(x, noisy(x, rng)) for x in images]
    row = {"levels": levels, "published": PUBLISHED.get(levels)}
    start = time.process_time()
    model = m.kernel_bp(train, train_noisy, validation)
    row["fit_s"] = time.process_time() - start
    start = time.process_time()
    mean, mode = m.kernel_bp_denoise(model, test_noisy)
    row["query_s"] = time.process_time() - start
    row |= {"kernel": rmse(mean, test), "kernel_mode": rmse(mode, test)}
    row["iterations"] = model.iterations_
    again = noisy(test, rng), noisy(test, rng)
    same = m.kernel_bp(test, again[0], (test, again[1])) if levels in SAME else None
    found = rmse(m.kernel_bp_denoise(same, test_noisy)[0], test) if same else None
    row["kernel_same_image"] = found
    start = time.process_time()
    discrete = m.discrete_bp(train, train_noisy, validation)
    row["discrete_fit_s"] = time.process_time() - start
    row["discrete"] = rmse(m.discrete_bp_denoise(discrete, test_noisy), test)
    for name, filters in (
        ("median", m.MEDIANS), ("variation", m.VARIATIONS), ("nonlocal", m.MEANS)
    ):  # fmt: skip
        row[name] = rmse(m.tuned(filters, validation)(test_noisy), test)
    return row


def main():
    """Print the rows and write them beside this file."""
    levels = [int(text) for text in sys.argv[1:]] or LEVELS
    path = Path(__file__).parent / "results.csv"
    rows = []
    for each in levels:
        rows.append(one(each))
        print(" ".join(f"{k}={v:.2f}" if v is not None else "" for k, v in rows[-1].items()))
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows({k: _short(v) for k, v in row.items()} for row in rows)


def _short(value):
    return round(value, 2) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
