"""Thousands of seeded calls of every public function, with good, hard and hostile arguments.

    python tests/fuzz.py [--calls 10000] [--seed 0] [--only NAME]

``make fuzz`` runs it. A call is *good* (plain data), *hard* (legal, but of an odd kind, dtype,
scale or shape) or *hostile* (one argument is wrong). It must end in

- an answer of finite numbers, which obeys a law: the order of rows, units, duplicated rows, single
  precision and the kind of the container change nothing;
- an answer with a warning of ours that says what happened; or
- a ValueError or TypeError of ours. An error is ours if a ``raise`` of this library raised it: the
  innermost frame of the traceback is at such a statement.

What must not be: *foreign* errors and warnings (bare messages of NumPy, SciPy or Python), *nan*
(an answer that is not finite), *wrong* (a law is broken, or a hostile argument is accepted without
a word). ``fuzz_calls.py`` says how each function is called, ``fuzz_values.py`` has the arguments.
"""

from __future__ import annotations

import argparse
import ast
import functools
import signal
import sys
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import kernelbayes as kb
from fuzz_calls import REGISTRY, Entry
from fuzz_values import HOSTILE, containers, harden, is_frame, tables

SOURCE = Path(kb.__file__).parent
KINDS = ("answer", "warning", "refused", "foreign", "nan", "wrong")
BAD = KINDS[3:]
MOODS = ("good", "hard", "hostile")
SECONDS = 20  # a call that takes longer hangs: the slowest takes about one on an idle core


@dataclass
class Outcome:
    """How a call ended: one of KINDS, with what there is to say about it."""

    kind: str
    message: str = ""


@dataclass
class Report:
    """Counts by function and outcome, and what went wrong."""

    counts: dict[str, Counter] = field(default_factory=dict)
    moods: Counter = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)

    def add(self, name: str, mood: str, label: str, outcome: Outcome) -> None:
        self.counts.setdefault(name, Counter())[outcome.kind] += 1
        self.moods[mood, outcome.kind] += 1
        if outcome.kind in BAD:
            self.bad.append(f"{outcome.kind}: {label}: {outcome.message}")

    def table(self) -> str:
        rows = [("", *KINDS)]
        rows += [
            (name, *(counts[k] for k in KINDS)) for name, counts in sorted(self.counts.items())
        ]
        rows += [(mood, *(self.moods[mood, k] for k in KINDS)) for mood in MOODS]
        rows.append(("all", *(sum(c[k] for c in self.counts.values()) for k in KINDS)))
        return "\n".join(
            f"{row[0]:24}" + "".join(f"{value:>9}" for value in row[1:]) for row in rows
        )


@functools.cache
def raises_of(path: str) -> list[tuple[int, int]]:
    tree = ast.parse(Path(path).read_text())
    return [(n.lineno, n.end_lineno or 0) for n in ast.walk(tree) if isinstance(n, ast.Raise)]


def is_ours(error: BaseException) -> bool:
    """Whether an error is a ValueError or TypeError raised by a statement of this library."""
    if not isinstance(error, ValueError | TypeError):
        return False
    frame = traceback.extract_tb(error.__traceback__)[-1]
    if not Path(frame.filename).is_relative_to(SOURCE):
        return False
    return any(low <= (frame.lineno or 0) <= high for low, high in raises_of(frame.filename))


def is_our_warning(message: warnings.WarningMessage) -> bool:
    return message.category in (kb.NumericalWarning, UserWarning)


def ask(entry: Entry, arguments: dict) -> tuple[dict[str, np.ndarray], list[str], list[str]]:
    """Answers of a call, the warnings of ours and those of others."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answers = entry.ask(**arguments)
    ours = [str(w.message) for w in caught if is_our_warning(w)]
    foreign = [f"{w.category.__name__}: {w.message}" for w in caught if not is_our_warning(w)]
    return answers, ours, foreign


def not_finite(answers: dict[str, np.ndarray]) -> list[str]:
    """Answers with NaN or infinite numbers; a log density may be -inf."""
    found = []
    for name, value in answers.items():
        array = np.asarray(value)
        if array.dtype.kind == "f":
            fine = np.isfinite(array) | ((array == -np.inf) & name.startswith("log_"))
            if not np.all(fine):
                found.append(name)
        elif array.dtype.kind == "c":
            found.append(name)
    return found


def compare(entry: Entry, law: str, first: dict, second: dict, rtol: float) -> str | None:
    """First answer in which two calls differ more than rounding can explain, or None."""
    for name in first:
        if not entry.holds(law, name):
            continue
        a, b = np.asarray(first[name]), np.asarray(second[name])
        if a.shape != b.shape:
            return f"{name}: shapes {a.shape} and {b.shape}"
        if a.dtype.kind not in "fiub":
            if not np.array_equal(a, b):
                return f"{name}: {a} and {b}"
            continue
        scale = np.max(np.abs(a), initial=entry.least.get(name, 0.0))
        off = np.max(np.abs(a.astype(float) - b), initial=0.0)
        if not off <= rtol * entry.slack.get(name, 1.0) * scale + 1e-12 * entry.size(name, first):
            return f"{name}: {a.ravel()[:4]} and {b.ravel()[:4]}"
    return None


def one_call(name: str, number: int, seed: int) -> tuple[str, str, Outcome]:
    """Make call ``number`` of a function; return its mood, what it was, and how it ended."""
    entry = REGISTRY[name]
    key = [seed, number, *name.encode()]
    rng = np.random.default_rng(key)
    mood = str(rng.choice(MOODS, p=[0.25, 0.4, 0.35]))
    arguments = entry.make(rng)
    what, allowed = "", False
    if mood == "hard":
        arguments, what = harden(entry, arguments, rng)
    elif mood == "hostile":
        choices = [a for a in entry.kinds if arguments.get(a) is not None]
        if choices:
            which = str(rng.choice(choices))
            options = HOSTILE[entry.kinds[which]]
            label = str(rng.choice(sorted(options)))
            arguments = arguments | {which: options[label](arguments[which], rng)}
            what, allowed = f"{which}={label}", entry.allows(which, label)
        else:
            mood = "good"
    text = f"{name}[{number}, seed {seed}] {mood} {what}"
    return mood, text, _guarded(entry, arguments, mood, allowed, rng)


def _guarded(entry: Entry, arguments: dict, mood: str, allowed: bool, rng) -> Outcome:
    def too_long(*_):
        raise TimeoutError(f"no answer in {SECONDS} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(SECONDS)
    try:
        return _outcome(entry, arguments, mood, allowed, rng)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _outcome(entry: Entry, arguments: dict, mood: str, allowed: bool, rng) -> Outcome:
    try:
        answers, ours, foreign = ask(entry, arguments)
    except Exception as error:
        message = f"{type(error).__name__}: {error}".split("\n")[0][:300]
        if not is_ours(error):
            where = traceback.extract_tb(error.__traceback__)[-1]
            return Outcome("foreign", f"{message} ({Path(where.filename).name}:{where.lineno})")
        if mood == "good":
            return Outcome("wrong", f"refused good data: {message}")
        return Outcome("refused", message)
    if foreign:
        return Outcome("foreign", foreign[0][:300])
    broken = not_finite(answers)
    if broken:
        return Outcome("nan", ", ".join(broken))
    if ours:
        return Outcome("warning", ours[0])
    if mood == "hostile":
        if allowed:
            return Outcome("answer")
        return Outcome("wrong", "accepted without a word")
    return _law(entry, arguments, answers, rng)


def _law(entry: Entry, arguments: dict, answers: dict, rng) -> Outcome:
    """Ask again for data that mean the same."""
    laws = [law for law in LAWS if law in entry.laws]
    framed = not entry.frames and any(is_frame(value) for value in arguments.values())
    if framed or not laws:
        return Outcome("answer")
    law = str(rng.choice(laws))
    changed, back, rtol = LAWS[law](entry, arguments, rng)
    if changed is None:
        return Outcome("answer")
    try:
        again, ours, _ = ask(entry, changed)
    except Exception as error:
        return Outcome("wrong", f"law of {law}: {type(error).__name__}: {error}"[:300])
    if ours:  # single precision, say, may be short of something, and says so
        return Outcome("warning", ours[0])
    difference = compare(entry, law, answers, back(again), rtol)
    return Outcome("wrong", f"law of {law}: {difference}") if difference else Outcome("answer")


# --- laws: other arguments, how to turn the answers back, and the tolerance ----------------------

# Rounding: 1e-16 times the condition of a regularised system, which is at most about 1e8 for the
# ridges used here; single precision: 1e-7 times that of a mean over points, about 1e3.
ROUNDING, SINGLE = 1e-6, 2e-3


def same(answers: dict) -> dict:
    return answers


def rows(entry: Entry, arguments: dict, rng):
    """The order of rows means nothing.

    But to the phases of Fourier features, w x: of large values, rounding leaves no digit of them.
    """
    changed, rtol = dict(arguments), ROUNDING
    if any(
        tables(changed[a]).dtype == np.float32 for a in entry.samples if changed.get(a) is not None
    ):
        rtol = SINGLE / max(entry.slack.values(), default=1.0)  # sums in another order
    tops = [np.max(np.abs(tables(changed[a]).astype(float)), initial=0.0) for a in entry.samples]
    if changed.get("method") == "features" and max(tops) > 1e4:
        return None, same, 0.0
    for group in entry.rows:
        present = [a for a in group if changed.get(a) is not None]
        order = None
        for a in present:
            order = rng.permutation(len(tables(changed[a]))) if order is None else order
            changed[a] = tables(changed[a])[order]
    return changed, same, rtol


def units(entry: Entry, arguments: dict, rng):
    """Other units of all samples (and of bandwidths) give the same answer in those units.

    Single precision stays: its automatic ridges end where that precision does (docs/numbers.md).
    Its factors are powers of two, which round nothing.
    """
    changed = dict(arguments)
    given = [tables(changed[a]) for a in entry.samples if changed.get(a) is not None]
    exact = any(values.dtype == np.float32 for values in given)
    factor = float(rng.choice([2.0**-10, 0.25, 8.0, 2.0**10] if exact else [1e-3, 0.25, 8.0, 1e3]))
    for a in entry.samples:
        if changed.get(a) is not None:
            if not np.ptp(tables(changed[a]).astype(float), axis=0).all():
                return None, same, 0.0  # a constant column has no unit of its own
            if tables(changed[a]).dtype == bool:
                return None, same, 0.0  # truth values have no unit: they are categories
            values = tables(changed[a])
            kept = values.dtype if values.dtype == np.float32 else np.float64
            with np.errstate(over="ignore"):
                changed[a] = factor * np.asarray(values, dtype=kept)
            if not np.isfinite(changed[a]).all():
                return None, same, 0.0  # too large in those units
    for a, kind in entry.kinds.items():
        if kind.endswith("kernel") and changed.get(a) is not None:
            changed[a] = changed[a].scaled(factor)

    def back(answers):
        return {k: np.asarray(v) / factor ** entry.units.get(k, 0) for k, v in answers.items()}

    return changed, back, ROUNDING


def twice(entry: Entry, arguments: dict, rng):
    """Every row twice, with half its weight, is the same sample."""
    changed = dict(arguments)
    for a in entry.twice:
        if changed.get(a) is not None:
            changed[a] = np.repeat(tables(changed[a]), 2, axis=0)
    if entry.weights and changed.get(entry.weights) is not None:
        changed[entry.weights] = np.repeat(np.asarray(changed[entry.weights]), 2) / 2
    return changed, same, ROUNDING


def single(entry: Entry, arguments: dict, rng):
    """Single precision gives the same up to its rounding."""
    changed = dict(arguments)
    if changed.get("period", 1.0) < 1e-2:
        return None, same, 0.0  # within a period such numbers have no digits
    for a in entry.samples:
        if changed.get(a) is not None:
            values = np.asarray(tables(changed[a]), dtype=np.float64)
            if not 1e-2 < np.std(values) <= np.max(np.abs(values)) < 1e2:
                return None, same, 0.0  # rounding may not be small against what matters
            changed[a] = values.astype(np.float32)
    return changed, same, SINGLE


def container(entry: Entry, arguments: dict, rng):
    """Frames, lists and arrays with the same numbers give the same answer."""
    changed, kind, rtol = dict(arguments), rng.integers(1000), ROUNDING
    for a in entry.samples:
        if changed.get(a) is not None:
            values = tables(changed[a])
            short = changed.get("period", 1.0) < 1e-2  # within a period such numbers have no digits
            if values.dtype == np.float32 and (short or not np.max(np.abs(values)) < 1e2):
                return None, same, 0.0
            rtol = SINGLE if values.dtype == np.float32 else rtol  # lists have double precision
            options = containers(values, entry.frames)
            changed[a] = options[kind % len(options)]
    return changed, same, rtol


LAWS = {f.__name__: f for f in (rows, units, twice, single, container)}


def run(calls: int, seed: int = 0, only: str | None = None, first: int = 0) -> Report:
    """Make calls number ``first`` to ``first + calls - 1``; which function each is of is fixed."""
    report = Report()
    schedule = [name for name, entry in sorted(REGISTRY.items()) for _ in range(entry.share)]
    order = np.random.default_rng(0).permutation(len(schedule))  # chunks are alike
    for number in range(first, first + calls):
        name = only or schedule[order[number % len(schedule)]]
        mood, label, outcome = one_call(name, number, seed)
        report.add(name, mood, label, outcome)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", choices=sorted(REGISTRY))
    options = parser.parse_args()
    report = run(options.calls, options.seed, options.only, options.first)
    print("\n".join(report.bad))
    print(report.table())
    return 1 if report.bad else 0


if __name__ == "__main__":
    sys.exit(main())
