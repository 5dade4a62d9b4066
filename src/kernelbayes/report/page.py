"""One self-contained HTML page about a result: no network, light and dark, printable."""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any

from kernelbayes.files.archive import checked_path, replaced
from kernelbayes.points import share
from kernelbayes.report import contents, words
from kernelbayes.report.canvas import as_json
from kernelbayes.rules.calibration import Pending
from kernelbayes.tables import Table


def report(
    result: Any, path: str | PathLike[str], *, model: Any = None, title: str | None = None,
    question: str | None = None, data: Mapping[str, Any] | None = None,
    names: Sequence[str] | None = None, level: float = 0.9, truth: Any = None,
    calibration: Any = None, checks: Sequence[Any] = (), code: str | None = None,
) -> Path:  # fmt: skip
    """Write one self-contained HTML page about a result.

    The page has the question, the data, the answer with intervals, diagnostics with advice, the
    settings that were chosen and tried, and the code. Pictures show values on hover and can be
    zoomed; a slider moves over time or observations.

    Parameters
    ----------
    result : Embedding, Batch, Beliefs (or a list of them), Posterior, Posteriors, GraphBeliefs,
        KernelTestResult, DriftReport, or a fitted model (for its settings)
    path : path
        An ``.html`` file. It is replaced completely or not at all.
    model : fitted estimator, optional
        The model that gave the result; the page then shows its kernels, ridges and search.
    title, question : str, optional
    data : mapping from words to values, optional
        Facts about the data, shown as they are.
    names : sequence of str, optional
        Names of the coordinates of the hidden variable, or of the parameters.
    level : float
        Coverage of intervals.
    truth : points (T, d), optional
        True states, drawn with the beliefs; a list for several sequences.
    calibration : Calibration, optional
        From ``kb.calibrate(model)`` or ``model.calibrate()``; default: the calibration of a
        filter's beliefs. It is shown among the diagnostics, as are ``checks``, a list of results
        of ``kb.sbc``, ``kb.coverage`` and similar checks.
    code : str, optional
        Code or command that makes the page again; by default derived from the model.

    Returns
    -------
    Path

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import kernelbayes as kb
    >>> x = np.random.default_rng(0).normal(size=(100, 2))
    >>> rule = kb.KernelBayesRule().fit(x, x[:, 0])
    >>> page = Path(tempfile.mkdtemp(), "page.html")
    >>> kb.report(rule.posterior(x[:5]), page, model=rule).stat().st_size < 200_000
    True
    """
    path = checked_path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"path must end in .html, got {path.name!r}")
    known = getattr(result, "diagnostics", None)
    model = getattr(known, "model", None) if model is None else model
    model = result if contents.is_model(result) else model
    if contents.is_beliefs(result) and isinstance(result, list):
        result = list(result)
    asked = contents.Asked(names, share(level, "level"), truth, model)
    try:
        sections = contents.sections_of(result, asked)
        lights = [] if contents.is_model(result) else words.lights_of(result)
    except (AttributeError, TypeError) as error:
        if isinstance(error, TypeError) or hasattr(result, "weights"):
            raise
        raise TypeError(f"report cannot describe a {type(result).__name__}") from error
    own = getattr(result[0] if isinstance(result, list) else result, "calibration", None)
    own = own.found if isinstance(own, Pending) else own
    held_out = own if calibration is None else calibration
    lights += [] if held_out is None else [words.calibration_light(held_out, own is not None)]
    lights += [words.check_light(check) for check in checks]
    question, numbers = question or contents.question_of(result, asked), count()
    about = [
        _verdict(lights, contents.is_model(result)),
        _facts("Data", contents.facts(result, data, model)),
        *(_section(section, numbers) for section in sections),
        _diagnostics(lights),
        _chosen(model),
        f"<h2>Code</h2><pre>{escape(code or contents.code_of(result, model, path.name))}</pre>",
    ]
    text = _page(title or question, question, "".join(about))
    with replaced(path) as file:
        file.write(text.encode("utf-8"))
    return path


def _page(title: str, question: str, body: str) -> str:
    """Complete document, including style and script."""
    from kernelbayes import __version__  # avoids a circular import

    style, script = ((files(__package__) / f"page.{kind}").read_text() for kind in ("css", "js"))
    made = f"kernelbayes {__version__}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    asked = "" if title == question else f'<p class="question">{escape(question)}</p>'
    # Nothing is loaded from elsewhere, and the browser enforces it.
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title>'
        f"<style>{style}</style></head>\n"
        f"<body><header><h1>{escape(title)}</h1>{asked}</header>\n<main>{body}</main>\n"
        f"<footer><p>{made}</p></footer>\n<script>{script}</script></body></html>\n"
    )


def _verdict(lights: Sequence[words.Light], about_model: bool) -> str:
    if about_model and not lights:
        return ""
    colour, text = words.overall(lights)
    return (
        f'<div class="verdict {colour}"><span class="light {colour}">{words.TITLES[colour]}</span>'
        f"<span>{escape(text)}</span></div>"
    )


def _facts(title: str, found: Mapping[str, str]) -> str:
    if not found:
        return ""
    rows = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in found.items())
    return f"<h2>{title}</h2><dl>{rows}</dl>"


def _section(section: contents.Section, numbers: Iterator[int]) -> str:
    shown = section.shown
    drawn = "".join(picture.html(next(numbers)) for picture in shown.pictures)
    text = f"<p>{escape(section.text)}</p>" if section.text else ""
    return (
        f"<section><h2>{escape(section.title)}</h2>{text}{_slider(shown.places)}"
        f'<div class="pictures">{drawn}</div>{_table(section.table)}</section>'
    )


def _slider(places: Sequence[str]) -> str:
    if len(places) < 2:
        return ""
    last = len(places) - 1
    return (
        '<div class="slider"><button type="button" class="play" aria-label="play">▶</button>'
        f'<input type="range" min="0" max="{last}" value="{last}" aria-label="place">'
        f"<output>{escape(places[-1])}</output>"
        f'<script type="application/json">{as_json(list(places))}</script></div>'
    )


def _table(table: Table) -> str:
    if not table:
        return ""
    some = Table(table[: contents.MOST_ROWS])
    left = len(table) - len(some)
    more = f'<p class="soft">{left} more rows are not shown.</p>' if left else ""
    return f'<div class="wide">{some.html()}</div>{more}'


def _diagnostics(lights: Sequence[words.Light]) -> str:
    if not lights:
        return ""
    rows = "".join(
        f'<tr><td>{escape(one.name)}</td><td><span class="light {one.colour}">'
        f"{words.TITLES[one.colour]}</span></td>"
        f"<td>{escape(one.value)}</td><td>{escape(one.means)}</td>"
        f"<td>{'' if one.colour == 'good' else escape(one.advice)}</td></tr>"
        for one in lights
    )
    head = "<tr><th></th><th></th><th>value</th><th>meaning</th><th>what to do</th></tr>"
    return (
        f'<h2>How far to trust it</h2><div class="wide"><table class="lights">{head}{rows}</table>'
        "</div>"
    )


def _chosen(model: Any) -> str:
    if model is None:
        return ""
    found = _facts("What was chosen", {"model": type(model).__name__, **contents.learned(model)})
    rows = contents.tried(model)
    if not rows:
        return found
    ended = [math.isfinite(row.get("score", math.nan)) for row in rows]
    order = sorted(range(len(rows)), key=lambda i: not ended[i])  # those dropped early go last
    table = Table({k: _short(v) for k, v in rows[i].items()} for i in order)
    text = f"{len(rows)} settings were tried, {sum(ended)} of them to the end."
    text += " Smaller scores are better." if any(ended) else ""
    return f"{found}<h2>What was tried</h2><p>{text}</p>{_table(table)}"


def _short(value: Any) -> Any:
    """Cell of the search table: an abandoned candidate has no score."""
    if isinstance(value, float) and math.isinf(value):
        return "dropped early"
    if value is None:
        return ""
    return value if isinstance(value, float | int) else contents.rounded(str(value))
