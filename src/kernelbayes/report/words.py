"""Diagnostics in words: a traffic light, the meaning of the number, and what to do.

The thresholds are those of docs/diagnostics.md, and the verdicts on single answers those of
``summary()``. Both are defined in :mod:`kernelbayes.embedding.export`.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelbayes.arrays import to_numpy
from kernelbayes.compare import DriftReport, KernelTestResult
from kernelbayes.embedding import export
from kernelbayes.graphs import GraphBeliefs
from kernelbayes.select.calibration import Calibration, Confusion
from kernelbayes.types import Floats

ORDER = ("good", "look", "bad")
TITLES = {"good": "good", "look": "look closer", "bad": "do not rely on it"}
# Shares of doubtful answers (or steps) from which the result is yellow or red: any, and one in ten,
# by judgement. Filters meet unusual observations now and then: twice that.
SOME, MANY_ANSWERS, MANY_STEPS = 0.0, 0.1, 0.2
# Error of the coverage of 90 % intervals on held-out data that is allowed besides its Monte Carlo
# error: the limit of experiments/calibration, and twice that.
COVERAGE_OFF, COVERAGE_WRONG = 0.05, 0.1
CHECKED_LEVEL = 0.9  # level of the intervals whose coverage is checked
PLANNED_POWER = 0.8  # the usual target of study designs
# Share of simulations that are as unusual as the observation: tests at 5 and at 1 %.
STRANGE, VERY_STRANGE = 0.05, 0.01
# Methods of tests whose p-values do not come from draws.
LAWS = {"gamma": "a gamma distribution", "linear": "Student's distribution"}


@dataclass(frozen=True)
class Light:
    """One diagnostic: "good", "look" or "bad", with advice for the last two."""

    name: str
    colour: str
    value: str
    means: str
    advice: str = ""


def overall(lights: Sequence[Light]) -> tuple[str, str]:
    """Worst colour, and a sentence."""
    worst = max((light.colour for light in lights), key=ORDER.index, default="look")
    if not lights:
        return worst, "There are no diagnostics for this result."
    if worst == "good":
        return worst, "No diagnostic gives a reason to doubt this result."
    found = [light for light in lights if light.colour == worst]
    return worst, " ".join(f"{one.name[0].upper()}{one.name[1:]}: {one.means}." for one in found)


def lights_of(result: Any) -> list[Light]:
    """Lights of a result, by its type."""
    if isinstance(result, KernelTestResult):
        return _of_test(result)
    if isinstance(result, DriftReport):
        return _of_test(result.joint)
    if isinstance(result, GraphBeliefs):
        return _of_graph(result)
    if isinstance(result, list | tuple) or not hasattr(result, "ess"):
        return _merged([lights_of(one) for one in result])
    return _of_embedding(result)


def _merged(found: Iterable[list[Light]]) -> list[Light]:
    """Return the worst light of each diagnostic over several results."""
    worst: dict[str, Light] = {}
    for light in (light for lights in found for light in lights):
        known = worst.get(light.name)
        if known is None or ORDER.index(light.colour) > ORDER.index(known.colour):
            worst[light.name] = light
    return list(worst.values())


def _of_embedding(mu: Any) -> list[Light]:
    rows = export.trust(mu)
    source = mu.diagnostics if mu.diagnostics is not None else getattr(mu, "info", None)
    filled = export.filled_in(source)
    sizes = [row["ess"] for row in rows if row["verdict"] != export.SINGLE]
    lights = [_ess(np.array(sizes))] if sizes else []
    if filled is not None:
        lights.insert(0, _support(np.atleast_1d(to_numpy(filled)), rows))
    elif "support" in rows[0]:
        lights.insert(0, _strange(np.array([row["support"] for row in rows])))
    negative = getattr(source, "negative", None)
    if negative is not None:
        lights.append(_negative(float(np.max(to_numpy(negative)))))
    condition = getattr(source, "condition", None)
    if condition is not None and math.isfinite(condition):
        lights.append(_condition(float(condition), int(getattr(source, "rescues", 0))))
    for name, means in (
        ("fallback", "observations that could not be fully trusted"),
        ("reset", "steps whose belief left the training states"),
    ):
        flags = getattr(source, name, None)
        if flags is not None:
            lights.append(_steps(name, int(np.sum(flags)), len(rows), means))
    return lights


def _grade(number: float, look: float, bad: float) -> str:
    """Colour of a number that should be small."""
    return "good" if number <= look else "look" if number <= bad else "bad"


def _counted(bad: int, m: int) -> str:
    """Colour of a number of doubtful answers out of m."""
    return _grade(bad / m, SOME, MANY_ANSWERS)


def _support(filled: Floats, rows: Sequence[dict[str, Any]]) -> Light:
    outside, m = int(np.sum(np.nan_to_num(filled) > export.MOST_FILLED)), len(filled)
    nearest = [row["support"] for row in rows if not math.isnan(row.get("support", math.nan))]
    value = f"{min(nearest):.3g}" if nearest else "no observation"
    value += " at least" if len(nearest) > 1 else ""
    which = "the observation is" if m == 1 else f"{outside} of {m} observations are"
    means = f"{which} outside the training sample; the answer is partly filled in"
    means = means if outside else "observations are close to training observations"
    advice = "collect similar training data, or drop columns that the hidden variable does not "
    advice += "depend on; check units and sensors"
    return Light("support", _counted(outside, m), value, means, advice)


def _strange(shares: Floats) -> Light:
    """Light of a likelihood-free posterior: how unusual the observation is."""
    least = float(np.nanmin(shares))
    means = f"{100 * least:.3g} % of the simulations are as far from the others as the observation"
    advice = "check what the simulator lacks, or widen the prior; see kb.misspecification"
    return Light("support", _grade(-least, -STRANGE, -VERY_STRANGE), f"{least:.3g}", means, advice)


def _ess(sizes: Floats) -> Light:
    m, least = len(sizes), float(sizes.min())
    few, gone = int(np.sum(sizes < export.LEAST_ESS)), int(np.sum(sizes < 1.0))
    value = f"{least:.3g}" + (f" at least, median {np.median(sizes):.3g}" if m > 1 else "")
    colour, means = "good", "standard deviations are accurate to an eighth or better"
    if gone:
        means = "positive and negative weights nearly cancel"
        colour, means = _counted(gone, m), means + (f" in {gone} of {m} answers" if m > 1 else "")
    elif few:
        which = "it rests on few points" if m == 1 else f"{few} of {m} answers rest on few points"
        colour, means = "look", f"{which}: intervals and probabilities are rough"
    elif least < export.GOOD_ESS:
        error = 100.0 / math.sqrt(2.0 * least)
        colour, means = "look", f"standard deviations are accurate to {error:.0f} %"
    advice = "more training data, a larger ridge, or kb.tune"
    return Light("effective sample size", colour, value, means, advice)


def _negative(share: float) -> Light:
    few = share <= export.NEGATIVE[1]
    means = "few weights are negative" if few else "probabilities come from projected weights"
    value, advice = f"{100 * share:.3g} % at most", "a larger ridge, or kb.tune"
    return Light("negative weight", "good" if few else "look", value, means, advice)


def _condition(number: float, rescues: int) -> Light:
    colour = _grade(number, *export.CONDITION)
    means = f"{'at least half of the' if colour == 'good' else 'few'} digits are correct"
    if rescues:
        colour, means = "look", f"a ridge had to be raised {rescues} times"
    return Light("condition number", colour, f"{number:.2g}", means, "a larger ridge")


def _steps(name: str, bad: int, m: int, means: str) -> Light:
    advice = "more training sequences; check units and sensors"
    colour = _grade(bad, MANY_ANSWERS * m, MANY_STEPS * m)
    return Light(name, colour, f"{bad} of {m}", f"{bad} {means}", advice)


def calibration_light(found: Calibration | Confusion, corrected: bool = False) -> Light:
    """Coverage of 90 % intervals on held-out data; of categories, how many were right."""
    if isinstance(found, Confusion):
        share, always = (f"{100 * p:.3g} %" for p in (found.accuracy, found.majority))
        means = f"accuracy {share} on held-out data; the most frequent category: {always}"
        # Two standard errors of a proportion of that many held-out data.
        error = 2.0 * math.sqrt(found.majority * (1.0 - found.majority) / found.counts.sum())
        colour = _grade(found.majority + error - found.accuracy, 0.0, error)
        return Light("held-out categories", colour, share, means, "more pairs, or other columns")
    held = found.weights @ (np.abs(2.0 * found.pit - 1.0) <= CHECKED_LEVEL)
    # Three standard errors of a proportion of 90 % of that many held-out data.
    size = 1.0 / float(np.sum(found.weights**2))
    error = 3.0 * math.sqrt(CHECKED_LEVEL * (1.0 - CHECKED_LEVEL) / size)
    off = float(np.abs(held - CHECKED_LEVEL).max())
    colour = _grade(off, max(COVERAGE_OFF, error), max(COVERAGE_WRONG, error))
    value = ", ".join(f"{100 * share:.3g} %" for share in held)
    means = f"90 % intervals cover {value} of {len(found.pit)} held-out values"
    if corrected:
        colour, means = "good", f"{means} before correction; those on this page are corrected"
    wrong = "short" if held.min() < CHECKED_LEVEL else "wide"
    advice = f"intervals are too {wrong}; correct them with calibrate(...)"
    return Light("calibration", colour, value, means, advice)


def check_light(check: Any) -> Light:
    """Light of a check of posteriors (``kb.sbc``, ``kb.coverage``, ...): its verdict in words."""
    fine = getattr(check, "calibrated", None)
    colour = "look" if fine is None else "good" if fine else "bad"
    p = getattr(check, "pvalue", None)
    value = "" if p is None else f"p = {float(p):.2g}"
    return Light(type(check).__name__, colour, value, str(check.verdict))


def _of_test(test: KernelTestResult) -> list[Light]:
    power, lights = test.power_estimate, []
    if power is not None and test.pvalue > test.alpha:
        colour = "good" if power >= PLANNED_POWER else "look"
        means = f"a new sample of this size would be rejected with probability {power:.2f}"
        advice = "a test that does not reject proves nothing at this power: collect more data"
        lights.append(Light("power", colour, f"{power:.2f}", means, advice))
    if test.method in LAWS:
        means = f"p-values come from {LAWS[test.method]}, which is valid for large samples"
        return [*lights, Light("null distribution", "good", "approximate", means)]
    smallest = 1.0 / (len(test.null) + 1)
    # Ten times below alpha the rounding of p-values hardly matters.
    enough = smallest <= 0.1 * test.alpha or "permut" not in test.method
    found = f"{len(test.null)} draws", f"p-values are at least {smallest:.2g}", "more permutations"
    return [*lights, Light("null distribution", "good" if enough else "look", *found)]


def _of_graph(beliefs: GraphBeliefs) -> list[Light]:
    lights = _merged([_of_embedding(beliefs[node]) for node in beliefs])
    done = bool(beliefs.converged)
    found = f"{beliefs.iterations} iterations", f"messages have {'' if done else 'not '}converged"
    advice = "more iterations, more damping, or a graph with fewer cycles"
    return [*lights, Light("convergence", "good" if done else "bad", *found, advice)]
