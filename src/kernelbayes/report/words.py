"""How far to trust an answer, in words: a light, what the number means, and what to do.

The thresholds are those of docs/diagnostics.md; the verdicts on single answers are those that
``summary()`` gives (:func:`kernelbayes.embedding.export.trust`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelbayes.arrays import Floats, to_numpy
from kernelbayes.compare import DriftReport, KernelTestResult
from kernelbayes.embedding.export import LEAST_ESS, MOST_FILLED, trust
from kernelbayes.graphs import GraphBeliefs
from kernelbayes.select.calibration import Calibration

ORDER = ("good", "look", "bad")
TITLES = {"good": "good", "look": "look closer", "bad": "do not rely on it"}
# docs/diagnostics.md: effective points from which a deviation is known to an eighth; share of
# negative weight; condition numbers at which half of all digits, or a few of them, are right.
GOOD_ESS, NEGATIVE, CONDITION = 30.0, 0.3, (1e8, 1e12)
# Shares of answers (or steps) that are doubtful from which the whole needs a look, or is doubtful:
# any, and one in ten, a judgement. Filters meet strange observations now and then: twice that.
SOME, MANY_ANSWERS, MANY_STEPS = 0.0, 0.1, 0.2
# Share of held-out data by which the coverage of 90 % intervals may be off, besides its own Monte
# Carlo error: the bar of experiments/calibration, and twice that.
COVERAGE_OFF, COVERAGE_WRONG = 0.05, 0.1
CHECKED_LEVEL = 0.9  # of the intervals that calibration looks at
# Share of simulations that look as strange as the observation: tests at 5 and at 1 %.
STRANGE, VERY_STRANGE = 0.05, 0.01


@dataclass(frozen=True)
class Light:
    """One thing that was looked at.

    ``colour`` is "good", "look" or "bad".
    """

    name: str
    colour: str
    value: str
    means: str
    advice: str = ""


def overall(lights: Sequence[Light]) -> tuple[str, str]:
    """Worst colour, and a sentence."""
    worst = max((light.colour for light in lights), key=ORDER.index, default="look")
    if not lights:
        return worst, "Nothing was measured that tells how far to trust this answer."
    if worst == "good":
        return worst, "Nothing that was looked at speaks against this answer."
    found = [light for light in lights if light.colour == worst]
    return worst, " ".join(f"{one.name[0].upper()}{one.name[1:]}: {one.means}." for one in found)


def lights_of(result: Any) -> list[Light]:
    """Lights of a result, by what it is."""
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
    """Of each thing that was looked at, the worst of several results."""
    worst: dict[str, Light] = {}
    for light in (light for lights in found for light in lights):
        known = worst.get(light.name)
        if known is None or ORDER.index(light.colour) > ORDER.index(known.colour):
            worst[light.name] = light
    return list(worst.values())


def _of_embedding(mu: Any) -> list[Light]:
    rows = trust(mu)
    m = len(rows)
    source = mu.diagnostics if mu.diagnostics is not None else getattr(mu, "info", None)
    filled = getattr(source, "prior_share", None)
    lights = [_ess(np.array([row["ess"] for row in rows]))]
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
        ("reset", "steps whose belief had left the training states"),
    ):
        flags = getattr(source, name, None)
        if flags is not None:
            lights.append(_steps(name, int(np.sum(flags)), m, means))
    return lights


def _counted(bad: int, m: int, many: float = MANY_ANSWERS) -> str:
    share = bad / m
    return "good" if share <= SOME else "look" if share <= many and m > 1 else "bad"


def _support(filled: Floats, rows: Sequence[dict[str, Any]]) -> Light:
    outside = int(np.sum(np.nan_to_num(filled) > MOST_FILLED))
    m = len(filled)
    nearest = [row["support"] for row in rows if not math.isnan(row.get("support", math.nan))]
    value = f"{min(nearest):.3g}" if nearest else "no observation"
    value += " at the least" if len(nearest) > 1 else ""
    if not outside:
        return Light("support", "good", value, "observations are like those of training")
    which = "the observation is" if m == 1 else f"{outside} of {m} observations are"
    return Light(
        "support", _counted(outside, m), value,
        f"{which} outside the training sample; the answer is partly the prior",
        "collect training data like it, or leave out columns that the hidden variable does not "
        "depend on; check units and sensors",
    )  # fmt: skip


def _strange(shares: Floats) -> Light:
    """Of likelihood-free posteriors: how many simulations are as far out as the observation."""
    least = float(np.nanmin(shares))
    colour = "good" if least >= STRANGE else "look" if least >= VERY_STRANGE else "bad"
    means = f"{100 * least:.3g} % of the simulations are as far from the others as the observation"
    advice = "look for what the simulator lacks, or widen the prior; see kb.misspecification"
    return Light("support", colour, f"{least:.3g}", means, "" if colour == "good" else advice)


def _ess(sizes: Floats) -> Light:
    m, few = len(sizes), int(np.sum(sizes < LEAST_ESS))
    least = float(sizes.min())
    value = f"{least:.3g}" + (f" at the least, {np.median(sizes):.3g} usually" if m > 1 else "")
    name, advice = "effective sample size", "more training data, a larger ridge, or kb.tune"
    gone = int(np.sum(sizes < 1.0))
    if gone:
        which = "" if m == 1 else f" in {gone} of {m} answers"
        means = f"positive and negative weights nearly cancel{which}"
        return Light(name, _counted(gone, m), value, means, advice)
    if few:
        which = "it has" if m == 1 else f"{few} of {m} answers have"
        means = f"{which} few points behind them: spread and probabilities are rough"
        means = means if m > 1 else means.replace("behind them", "behind it")
        return Light(name, "look", value, means, advice)
    if least < GOOD_ESS:
        error = 100 / math.sqrt(2 * least)
        return Light(name, "look", value, f"spreads are known to about {error:.0f} %", advice)
    return Light(name, "good", value, "spreads are known to an eighth or better")


def _negative(share: float) -> Light:
    name, value = "negative weight", f"{100 * share:.3g} % at the most"
    if share <= NEGATIVE:
        return Light(name, "good", value, "negative weights are few")
    means = "densities and probabilities are those of a projection"
    return Light(name, "look", value, means, "a larger ridge, or kb.tune")


def _condition(number: float, rescues: int) -> Light:
    colour = "good" if number <= CONDITION[0] else "look" if number <= CONDITION[1] else "bad"
    means = "at least half of all digits are right" if colour == "good" else "few digits are right"
    if rescues:
        colour, means = "look", f"a ridge had to be raised {rescues} times"
    advice = "" if colour == "good" else "a larger ridge"
    return Light("condition number", colour, f"{number:.2g}", means, advice)


def _steps(name: str, bad: int, m: int, means: str) -> Light:
    colour = "good" if bad <= MANY_ANSWERS * m else "look" if bad <= MANY_STEPS * m else "bad"
    advice = "" if colour == "good" else "more training sequences; check units and sensors"
    return Light(name, colour, f"{bad} of {m}", f"{bad} {means}", advice)


def calibration_light(found: Calibration) -> Light:
    """Coverage of 90 % intervals on held-out data, against its own Monte Carlo error."""
    inside = np.abs(2.0 * found.pit - 1.0) <= CHECKED_LEVEL
    held = found.weights @ inside
    size = 1.0 / float(np.sum(found.weights**2))
    # Three standard errors of a share of 90 % among that many held-out data.
    error = 3.0 * math.sqrt(CHECKED_LEVEL * (1.0 - CHECKED_LEVEL) / size)
    off = float(np.abs(held - CHECKED_LEVEL).max())
    colour = "good" if off <= max(COVERAGE_OFF, error) else "bad"
    colour = "look" if colour == "bad" and off <= max(COVERAGE_WRONG, error) else colour
    value = ", ".join(f"{100 * share:.3g} %" for share in held)
    means = f"90 % intervals hold {value} of {len(found.pit)} held-out truths"
    short = held.min() < CHECKED_LEVEL
    advice = "" if colour == "good" else (
        f"intervals are too {'short' if short else 'wide'}; correct them with calibrate(...)"
    )  # fmt: skip
    return Light("calibration", colour, value, means, advice)


def check_light(check: Any) -> Light:
    """Light of a check of posteriors (``kb.sbc``, ``kb.coverage``, ...): its verdict in words."""
    fine = getattr(check, "calibrated", None)
    colour = "look" if fine is None else "good" if fine else "bad"
    p = getattr(check, "pvalue", None)
    value = "" if p is None else f"p = {float(p):.2g}"
    return Light(type(check).__name__, colour, value, str(check.verdict))


def _of_test(test: KernelTestResult) -> list[Light]:
    found = test.pvalue <= test.alpha
    power = test.power_estimate
    lights = []
    if power is not None and not found:
        colour = "good" if power >= 0.8 else "look"  # the power that studies are planned for
        means = f"a new sample like this one would be told apart with probability {power:.2f}"
        advice = "" if colour == "good" else "no difference found is not no difference: more data"
        lights.append(Light("power", colour, f"{power:.2f}", means, advice))
    smallest = 1.0 / (len(test.null) + 1)
    enough = smallest <= 0.1 * test.alpha or "permut" not in test.method
    lights.append(
        Light(
            "null distribution",
            "good" if enough else "look",
            f"{len(test.null)} draws",
            f"p-values go down to {smallest:.2g}",
            "" if enough else "more permutations",
        )
    )
    return lights


def _of_graph(beliefs: GraphBeliefs) -> list[Light]:
    numbers = [beliefs[node] for node in beliefs]
    lights = _merged([_of_embedding(one) for one in numbers])
    told = f"{beliefs.iterations} iterations"
    if beliefs.converged:
        return [*lights, Light("convergence", "good", told, "messages have settled")]
    advice = "more iterations, more damping, or a graph with fewer cycles"
    return [*lights, Light("convergence", "bad", told, "messages have not settled", advice)]
