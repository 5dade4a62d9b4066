"""Figure 8 of Song, Fukumizu and Gretton (2013): kernel Bayes filters beside EKF and UKF.

The two turns of KBR13 Figure 4, in two readings: with the noise that CME13 prints (observations of
variance 0.08, states without noise) and with that of KBR13 (standard deviation 0.2 of both, whose
variances add up to 0.08). Filters as published: weights shifted along the sequence (CME13 eq. 35)
or by the transition operator (KBR13 eq. 17), original rule, bandwidth and ridge chosen on the
halves of the training sequence. Error: squared distance to the state. Quick: T = 200, one run.
Full: T = 100 to 800, 30 runs.

Time: quick 10 s, full about 20 min.

    python experiments/cme13_fig8/run.py [--full] [--runs N] [--first SEED] [--jobs 2]
        [--sizes 200 400]
"""

from __future__ import annotations

import sys
import time
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "statespace"))

import baselines as by  # noqa: E402
from models import plane  # noqa: E402
from report import compute, finish, options, paired, print_table, summary  # noqa: E402

from kernelbayes import Gaussian, KernelBayesFilter  # noqa: E402

TURNS = {"rotation": {"step": 0.3}, "oscillatory": {"step": 0.4, "amplitude": 0.4, "phase": 1.0}}
VARIANCE = 0.08  # of the observation, as CME13 prints it
QUIET = 1e-4  # variance of the state that EKF and UKF allow for where there is none
READINGS = ("CME13's noise", "KBR13's noise")
EKF, UKF, LIMIT = "EKF, true model", "UKF, true model", "particle filter, true model"
SHIFT, OPERATOR, IMPORTANCE = "KBF, shift", "KBF, operator", "importance rule, operator"
LITERAL = {"method": "original", "literal": True}
FILTERS = {SHIFT: {"transition": "shift", **LITERAL}, OPERATOR: LITERAL, IMPORTANCE: {}}
# What is tried, as in KBR13 section 5.3: one factor of both median distances, and one ridge.
SCALES, RIDGES = (0.5, 1.0), (1e-4, 1e-3, 1e-2)
CHOOSING = 60  # steps of each half
RANK = 100


def dynamics(problem, reading):
    """Model of one of the turns with the noise of one of the papers."""
    model = plane(**TURNS[problem])
    if reading == READINGS[1]:
        return model
    return replace(
        model,
        initial=plane(**TURNS[problem], noise=0.0).initial,
        transition=lambda z, rng, control=None: model.move(z),  # noqa: ARG005
        observe=lambda z, rng: z + np.sqrt(VARIANCE) * rng.normal(size=z.shape),
        log_likelihood=lambda x, z: -0.5 * np.sum((x - z) ** 2, axis=1) / VARIANCE,
        Q=QUIET * np.eye(2),
        R=VARIANCE * np.eye(2),
    )


def learned(rule, X, Z, scale, ridge):
    """Filter with both ridges as in KBR13, delta twice epsilon; squared on our scale."""
    literal = rule.get("literal", False)
    blank = KernelBayesFilter(
        Gaussian.median(X, scale=scale), Gaussian.median(Z, scale=scale), prior_ridge=ridge,
        transition_ridge=ridge, ridge=2.0 * ridge**2 if literal else 2.0 * ridge, rank=RANK,
        lags=1, order=1, features="raw", memory=1.0, tempering=1.0, rng=0, **rule,
    )  # fmt: skip
    return blank.fit(X, Z)


def tuned(rule, X, Z, new):
    """Filter new observations: means (T, 2). Scale and ridge are chosen on the halves."""

    def score(scale, ridge):
        errors = []
        for a, b in by.halves(len(X)):
            found = learned(rule, X[a], Z[a], scale, ridge).filter(X[b[:CHOOSING]]).mean()
            errors.append(np.mean(by.squared(found, Z[b[:CHOOSING]])))
        return np.nan_to_num(np.mean(errors), nan=np.inf)

    best = by.choose([(scale, ridge) for scale in SCALES for ridge in RIDGES], score)
    return learned(rule, X, Z, *best).filter(new).mean()


def one_run(problem, reading, size, run):
    """Rows of all methods on one training and one test sequence; the seed is the run."""
    warnings.simplefilter("ignore")  # the papers' filters have no safeguards
    model, rng = dynamics(problem, reading), np.random.default_rng(run)
    train, test = model.simulate(size, rng), model.simulate(200, rng)
    start = model.initial(5000, rng)
    prior = start.mean(axis=0), np.cov(start.T)
    found = {
        LIMIT: by.particle_filter(test.X, model, rng),
        EKF: by.extended_kalman(test.X, model, *prior),
        UKF: by.unscented_kalman(test.X, model, *prior),
        "raw observation": test.X,
        "constant": np.broadcast_to(train.Z.mean(axis=0), test.Z.shape),
    }
    one = partial(tuned, X=train.X, Z=train.Z, new=test.X)
    found |= {name: one(rule) for name, rule in FILTERS.items()}
    return [
        (f"{problem}, {reading}", size, run, name, float(np.mean(by.squared(estimate, test.Z))))
        for name, estimate in found.items()
    ]


def compare_all(rows, table):
    """Print the claims of the papers: against EKF and UKF, and one rule against the other."""
    for _, problem, size in [key for key in table if key[0] == SHIFT]:
        kbf, *known = (table[m, problem, size][0] for m in (SHIFT, EKF, UKF))
        words = [f"{'below' if kbf < other else 'above'} {other:.4f}" for other in known]
        print(f"      {problem}, T = {size}: KBF {kbf:.4f}, EKF and UKF: {', '.join(words)}")
    paired(rows, IMPORTANCE, OPERATOR)


def main():
    """Run, print, compare and write."""
    parser = options(__doc__)
    parser.add_argument("--sizes", nargs="+", type=int)
    given = parser.parse_args()
    runs = given.runs or (30 if given.full else 1)
    sizes = given.sizes or ((100, 200, 400, 800) if given.full else (200,))
    seeds = range(given.first, given.first + runs)
    tasks = [(p, r, s, run) for run in seeds for s in sizes for p in TURNS for r in READINGS]
    begun = time.perf_counter()
    rows = compute(one_run, tasks, given.jobs, HERE / "partial.jsonl" if given.full else None)
    table = summary(rows)
    print(f"\nmean (standard error) of {runs} runs; {time.perf_counter() - begun:.0f} s\n")
    for problem in dict.fromkeys(p for _, p, _ in table):
        print_table({k: v for k, v in table.items() if k[1] == problem})
        print()
    compare_all(rows, table)
    return finish(given, rows, HERE, True, "squared error", log=True)


if __name__ == "__main__":
    raise SystemExit(main())
