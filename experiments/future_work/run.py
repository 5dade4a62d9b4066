"""Future work of the papers, measured: relative ratios, evidence, changed sensors, Frank-Wolfe.

Relative density ratios in the importance rule over dimensions (IW22 section 6). A transition's
parameter learned by the evidence of a sequence (KMCF16 chapter 6). A sensor whose offset has
changed since the examples, by re-weighting them (KMCF16 section 4.2.3). Frank-Wolfe instead of
herding inside the Monte Carlo filter (KMCF16 chapter 3). Quick: the smallest size, one run. Full:
all sizes, 20 runs.

Time: quick 12 s, full about 15 min.

    python experiments/future_work/run.py [--full] [--runs N] [--first SEED] [--jobs 2]
        [--only evidence]
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / part) for part in ("statespace", "posteriors")]

from questions import QUESTIONS  # noqa: E402
from report import compute, finish, options, paired, print_table, summary  # noqa: E402

PAIRS = (
    ("rulsif", "kulsif"),
    ("re-weighted", "as it is"),
    ("line-search", "herding"),
    ("fully-corrective", "herding"),
)


def one_run(question, size, run):
    """Rows of one question; the seed is the run."""
    warnings.simplefilter("ignore")  # sequences that leave the sample
    return QUESTIONS[question][0](size, run)


def main():
    """Run, print and write."""
    parser = options(__doc__)
    parser.add_argument("--only", choices=QUESTIONS, help="one of them; print only")
    given = parser.parse_args()
    runs = given.runs or (20 if given.full else 1)
    asked = [given.only] if given.only else list(QUESTIONS)
    tasks = [
        (name, size, run)
        for run in range(given.first, given.first + runs)
        for name in asked
        for size in QUESTIONS[name][1][: None if given.full else 1]
    ]
    begun = time.perf_counter()
    rows = compute(one_run, tasks, given.jobs, HERE / "partial.jsonl" if given.full else None)
    table = summary(rows)
    print(f"\nmean (standard error) of {runs} runs; {time.perf_counter() - begun:.0f} s\n")
    for problem in dict.fromkeys(row[0] for row in rows):
        print_table({k: v for k, v in table.items() if k[1] == problem}, digits=3)
        print()
    for pair in PAIRS:
        paired(rows, *pair)
    return 0 if given.only else finish(given, rows, HERE, True, "see the title")


if __name__ == "__main__":
    raise SystemExit(main())
