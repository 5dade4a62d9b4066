"""Contents of a page: the question, what was chosen, the answer, the code."""

import inspect
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernelbayes import kernels
from kernelbayes.compare import DriftReport, KernelTestResult
from kernelbayes.embedding.export import parts, probabilities
from kernelbayes.graphs import GraphBeliefs
from kernelbayes.likelihood_free.posterior import Posterior, Posteriors
from kernelbayes.report import differences, pictures
from kernelbayes.report.pictures import Shown
from kernelbayes.tables import Row, Table

MOST_PARTS = 12  # sequences or nodes with their own pictures; nobody reads more
MOST_ROWS = 200  # rows of a table on a page; longer tables belong in files
# Names of fitted attributes, in words.
LEARNED = {
    "kernel_x_": "kernel on observations",
    "kernel_z_": "kernel on the hidden variable",
    "kernel_u_": "kernel of controls",
    "ridge_": "ridge of Bayes' rule",
    "prior_ridge_": "ridge of the prior weights",
    "transition_ridge_": "ridge of the transition",
    "lags_": "lags",
    "order_": "order",
    "features_": "features",
    "rank_": "rank",
    "method": "method",
    "variant_": "variant",
    "ridges_": "ridges",
}


@dataclass
class Section:
    """One section of the answer: a title, text, a table, pictures."""

    title: str
    text: str = ""
    table: Table = field(default_factory=Table)
    shown: Shown = field(default_factory=Shown)


@dataclass(frozen=True)
class Asked:
    """Options of a page."""

    names: Sequence[str] | None
    level: float
    truth: Any
    model: Any


def question_of(result: Any, asked: Asked) -> str:
    """Return the question that a result answers, in words."""
    if isinstance(result, DriftReport):
        return "Which columns differ between the two tables, and by how much?"
    if isinstance(result, KernelTestResult):
        return {
            "MMD": "Do the two samples come from the same distribution?",
            "KSD": "Does the sample follow this density?",
            "HSIC": "Are the two variables independent?",
            "conditional independence": "Are the two variables independent, given the third?",
            "conditional MMD": "Does the distribution of y given x differ between the two samples?",
        }.get(result.test, f"{result.test} test: does the null hypothesis hold?")
    if isinstance(result, GraphBeliefs):
        return f"What {listed(result)}, given the evidence at other nodes?"
    if isinstance(result, Posterior | Posteriors):
        return "Which parameters of the simulator agree with the observed data?"
    if is_model(result):
        return f"Which kernels and ridges of {type(result).__name__} suit these data?"
    hidden = listed(asked.names) if asked.names else "is the hidden variable"
    if is_beliefs(result):
        return f"What {hidden} at each time, given the observations?"
    return f"What {hidden}, given the observations?"


def is_model(result: Any) -> bool:
    """Whether a result is a fitted estimator."""
    return hasattr(result, "get_params")


def is_beliefs(result: Any) -> bool:
    """Whether a result holds beliefs over time, of one sequence or of several."""
    return hasattr(result, "info") or (isinstance(result, list) and hasattr(result[0], "info"))


def sections_of(result: Any, asked: Asked) -> list[Section]:
    """Return the answer, in sections."""
    if isinstance(result, DriftReport):
        return [Section("Answer", result.verdict, result.columns, differences.of_drift(result))]
    if isinstance(result, KernelTestResult):
        return [_test(result)]
    if isinstance(result, GraphBeliefs):
        return _graph(result, asked)
    if isinstance(result, Posteriors):
        names = pictures.names_of(result[0], asked.names, "theta")
        numbers = result.mean(), result.interval(asked.level)
        drawn = pictures.series(*numbers, names, asked.level, "observation")
        return [Section("Answer", "", renamed(result.summary(asked.level), names), Shown(drawn))]
    if isinstance(result, Posterior):
        names = pictures.names_of(result, asked.names, "theta")
        shown = pictures.of_posterior(result, names, asked.level)
        return [Section("Answer", "", renamed(result.summary(asked.level), names), shown)]
    if is_model(result):
        return []
    if isinstance(result, list):
        known = asked.truth if asked.truth is not None else [None] * len(result)
        some = list(zip(result, known, strict=True))[:MOST_PARTS]
        found = [_embedding(one, asked, f"Sequence {i}", z) for i, (one, z) in enumerate(some)]
        if len(result) > MOST_PARTS:
            found[0].text = f"The first {MOST_PARTS} of {len(result)} sequences are drawn."
        return found
    return [_embedding(result, asked, "Answer", asked.truth)]


def _embedding(mu: Any, asked: Asked, title: str, truth: Any = None) -> Section:
    """Section of an embedding, a batch, or the beliefs of one sequence."""
    what = "time" if hasattr(mu, "info") else "observation"
    many = np.ndim(mu.weights) == 2
    if many and len(mu) > 1:
        shown = pictures.of_many(mu, asked.names, asked.level, what, truth)
    else:
        shown = pictures.of_one(mu[0] if many else mu, asked.names, asked.level)
    return Section(title, shown.note, _table(mu, asked, what), shown)


def _table(mu: Any, asked: Asked, what: str) -> Table:
    """Summary of numeric parts, and probabilities of categorical ones."""
    rows = Table()
    for part in parts(mu):
        names = pictures.names_of(part, asked.names)
        kind = pictures.kind_of(part)
        if kind == "numbers":
            rows += renamed(part.summary(asked.level), names)
        elif kind == "categories":
            labels, P = probabilities(part)
            for i, p in enumerate(P):
                best = int(np.argmax(p))
                row: Row = {"variable": names[0], "most probable": str(labels[best])}
                number = {"member": i} if len(P) > 1 else {}
                rows.append({**number, **row, "probability": float(p[best])})
    return Table({(what if k == "member" else k): v for k, v in row.items()} for row in rows)


def renamed(table: Table, names: Sequence[str]) -> Table:
    """Table of a summary with other names for its variables, in order."""
    old = list(dict.fromkeys(row["variable"] for row in table))
    new = dict(zip(old, names, strict=True))
    return Table({**row, "variable": new[row["variable"]]} for row in table)


def _test(test: KernelTestResult) -> Section:
    found = test.pvalue <= test.alpha
    text = f"p = {test.pvalue:.3g}, {'at most' if found else 'above'} {test.alpha:g}: "
    text += f"the null hypothesis is {'' if found else 'not '}rejected."
    if test.effect is not None:
        low, high = test.effect.interval
        text += f" Effect size {test.effect.size:.3g}, 95 % interval {low:.3g} to {high:.3g}."
    table = Table(test.details.get("table") or [test.row()])
    return Section("Answer", text, table, differences.of_test(test))


def _graph(beliefs: GraphBeliefs, asked: Asked) -> list[Section]:
    """Return a section for each requested node."""
    some = [(node, replace(asked, names=[str(node)])) for node in list(beliefs)[:MOST_PARTS]]
    sections = [_embedding(beliefs[node], own, str(node)) for node, own in some]
    if len(beliefs) > MOST_PARTS:
        sections[0].text = f"The first {MOST_PARTS} of {len(beliefs)} nodes are drawn."
    return sections


def learned(model: Any) -> dict[str, str]:
    """Return the settings of a fitted model, given or chosen, in words."""
    found = {}
    for name, words in LEARNED.items():
        value = getattr(model, name, None)
        if value is not None:
            found[words] = f"{value:.3g}" if isinstance(value, float) else rounded(str(value))
    why = getattr(getattr(model, "choice_", None), "why", None) or {}
    return {**found, **{f"why ({name})": str(reason) for name, reason in why.items()}}


def rounded(text: str) -> str:
    """Text whose long numbers have four digits."""
    return re.sub(r"\d+\.\d{4,}(e[-+]\d+)?", lambda found: f"{float(found[0]):.4g}", text)


def tried(model: Any) -> Table:
    """Table of the settings that were tried, by ``tune`` or by the default search."""
    for name in ("tuning_", "choice_"):
        found = getattr(getattr(model, name, None), "table", getattr(model, name, None))
        if isinstance(found, list) and found:
            return Table(found)
    return Table()


def sample_of(model: Any) -> dict[str, str]:
    """Training sample of a fitted model, in words."""
    lengths = getattr(model, "lengths_", None)
    if lengths is not None:
        steps = int(np.sum(lengths))
        return {"training": f"{steps} steps in {len(lengths)} sequence{'s' * (len(lengths) > 1)}"}
    fitted = getattr(model, "likelihood_", getattr(model, "conditional_", None))
    return {} if fitted is None else {"training": f"{fitted.n} pairs"}


def code_of(result: Any, model: Any, path: str) -> str:
    """Python code that fits the model and makes the page again, as far as possible."""
    lines = ["import kernelbayes as kb"]
    used = set() if model is None else set(re.findall(r"\w+", constructor(model)))
    kinds = sorted(used & set(kernels.__all__))
    lines += [f"from kernelbayes import {', '.join(kinds)}", ""] if kinds else [""]
    if model is None:
        return "\n".join([*lines, f"kb.report(result, {path!r})"])
    fit, ask = "model.fit(X, Z)", "result = model.posterior(X_new)"
    if hasattr(model, "filter"):
        ask = "result = model.filter(X_new)"
    elif hasattr(model, "query"):
        fit, ask = "model.fit(data)", "result = model.query(evidence=evidence)"
    elif hasattr(model, "variant_"):
        fit, ask = "model.fit(theta, x)", "result = model.posterior(x_observed)"
    end = f"kb.report(result, {path!r}, model=model)"
    if is_model(result):
        ask, end = "", f"kb.report(model, {path!r})"
    return "\n".join([*lines, f"model = kb.{constructor(model)}", fit, *filter(None, [ask]), end])


def constructor(model: Any) -> str:
    """Return the constructor call with the chosen settings, without defaults."""
    defaults, given = inspect.signature(type(model)).parameters, []
    chosen = dict(getattr(getattr(model, "choice_", None), "arguments", {}))
    if getattr(model, "calibration_", None) is not None:  # None if there was nothing to choose
        chosen["intervals"] = "calibrated"
    for name, value in model.get_params(deep=False).items():
        value = getattr(model, f"{name}_", value) if name.startswith(("kernel", "ridge")) else value
        value = chosen.get(name, value)
        if value is not None and repr(value) != repr(defaults[name].default):
            text = name if name == "prior" or repr(value).startswith("<") else repr(value)
            given.append(f"{name}={text},")
    body = textwrap.indent("\n".join(given), "    ")
    return f"{type(model).__name__}(\n{body}\n)" if given else f"{type(model).__name__}()"


def listed(names: Any) -> str:
    """Names in a sentence, with their verb."""
    words = [str(name) for name in names]
    words = [*words[:MOST_PARTS], "others"] if len(words) > MOST_PARTS else words
    several = f"are {', '.join(words[:-1])} and {words[-1]}"
    return f"is {words[0]}" if len(words) == 1 else several


def facts(result: Any, data: Mapping[str, Any] | None, model: Any) -> dict[str, str]:
    """Return facts about the data, in words."""
    found = {} if model is None else sample_of(model)
    known: Any = getattr(result, "diagnostics", None)
    if hasattr(known, "n_simulations"):
        found["simulations"] = f"{known.n_simulations}, of which {known.failed} failed"
    if isinstance(result, KernelTestResult | DriftReport):
        found["sample sizes"] = " and ".join(map(str, result.sizes))
    if isinstance(result, KernelTestResult):
        found |= {"method": result.method, "kernel": rounded(str(result.kernel))}
    return {**found, **{str(k): str(v) for k, v in (data or {}).items()}}
