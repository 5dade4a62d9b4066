"""A small SVG canvas: pictures that work without a script, with the data that a script needs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from kernelbayes.types import Floats

# Units of a picture (page.js knows the first) and its frame, with room for labels of axes.
ACROSS, UPRIGHT = 560.0, 300.0
EDGE_L, EDGE_T, EDGE_R, EDGE_B = 66.0, 34.0, 548.0, 248.0
MOST_TICKS = 5  # labels along an axis that do not overlap on a phone
ROOM = 0.05  # margin around the data, as a share of their range
LONG = 9  # letters of a category's label that fit beside the frame
# Resolution of numbers in a script, in steps per range: a twentieth of a pixel.
STEPS = 10_000

# Styles of layers: classes of page.css.
FIRST, SECOND, THIRD, PLAIN = "first", "second", "third", "plain"


def as_json(value: object) -> str:
    """JSON that is safe in a script element: no ``<`` that could end it."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026")


def tidy(values: Any, width: float) -> list[float | None]:
    """Values with as many digits as are visible in a range of this width; None for NaN."""
    places = int(np.clip(math.ceil(math.log10(STEPS / width)), 0, 300)) if width > 0 else 6
    flat = np.asarray(values, dtype=float).ravel().tolist()
    return [round(v, places) if math.isfinite(v) else None for v in flat]


def ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Round values between two ends, at most six, with their labels."""
    rough = (high - low) / MOST_TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(k * unit for k in (1.0, 2.0, 5.0, 10.0) if k * unit >= 0.999 * rough)
    numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    places = max(0, -math.floor(math.log10(step) + 1e-9))
    labels = [f"{k * step:.4g}" if places > 6 else f"{k * step:.{places}f}" for k in numbers]
    return [(k * step, label) for k, label in zip(numbers, labels, strict=True)]


@dataclass(eq=False)
class Picture:
    """One picture: layers over a pair of axes. Add layers, then call :meth:`html`.

    ``title``, ``x`` and ``y`` are the texts above the picture and at its axes. ``categories`` or
    ``levels`` name the positions 0, 1, ... on the x or y axis. The y axis contains ``floor``.
    """

    title: str
    x: str
    y: str = ""
    categories: Sequence[str] | None = None
    levels: Sequence[str] | None = None
    floor: float | None = None
    layers: list[dict[str, Any]] = field(default_factory=list)
    at: Floats | None = None  # places that a reader can point at, and the values shown there
    up: Floats | None = None
    values: list[tuple[str, Floats]] = field(default_factory=list)
    headings: Sequence[str] | None = None
    moving: dict[str, Any] | None = None

    def line(
        self, x: Floats, y: Floats, label: str = "", look: str = FIRST, hover: bool = True
    ) -> None:
        """Add a line, broken where values are NaN."""
        self._layer("line", look, label, x, y)
        if hover:
            self.hover(x, label, y)

    def area(self, x: Floats, low: Floats, high: Floats, label: str) -> None:
        """Add the area between two lines."""
        self._layer("area", FIRST, label, x, high, low)

    def dots(
        self, x: Floats, y: Floats, label: str = "", look: str = FIRST, sizes: Floats | None = None
    ) -> None:
        """Add points, which keep their size when the picture is zoomed."""
        self._layer("dots", look, label, x, y)
        self.layers[-1]["sizes"] = sizes

    def whiskers(self, x: Floats, y: Floats, ends: Floats, across: bool = False) -> None:
        """Add intervals (n, 2) through points: vertical, or horizontal at heights y."""
        self._layer("whisker", FIRST, "", x, y)
        self.layers[-1] |= {"ends": ends, "across": across}

    def bars(self, x: Floats, y: Floats, label: str = "", look: str = FIRST) -> None:
        """Add bars between the edges x (n + 1,), or around the places x (n,)."""
        self._layer("bars", look, label, x, y, np.zeros(len(y)))

    def upright(self, x: float, label: str, look: str = SECOND) -> None:
        """Add a vertical line over the whole height."""
        self._layer("upright", look, label, np.array([x]), np.empty(0))

    def hover(self, x: Floats, label: str, values: Floats) -> None:
        """Show values when a reader points at x; all values of a picture have the same x."""
        self.at = x
        self.values.append((label, values))

    def moves(self, kind: str, look: str = SECOND, **what: Any) -> None:
        """Add a layer that a slider moves: "when", "curve", "bars" or "points"."""
        self.moving = {"kind": kind, "look": look, **what}

    def _layer(
        self, kind: str, look: str, label: str, x: Floats, y: Floats, low: Floats | None = None
    ) -> None:
        x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
        self.layers.append({"kind": kind, "look": look, "label": label, "x": x, "y": y, "low": low})

    def _range(self, axis: str) -> tuple[float, float]:
        """Return the ends of an axis: those of the data and a small margin."""
        if (names := self.categories if axis == "x" else self.levels) is not None:
            return -0.6, len(names) - 0.4
        parts = [layer[axis] for layer in self.layers]
        across = [layer for layer in self.layers if "ends" in layer]
        parts += [layer["ends"].ravel() for layer in across if layer["across"] == (axis == "x")]
        if axis == "y":
            parts += [layer["low"] for layer in self.layers if layer["low"] is not None]
            parts += [] if self.floor is None else [np.array([self.floor])]
        frames = self._frames(axis)
        values = np.concatenate([*map(np.ravel, parts), *map(np.ravel, frames), np.empty(0)])
        values = values[np.isfinite(values)]
        if not len(values):
            return 0.0, 1.0
        low, high = float(values.min()), float(values.max())
        # Equal values, or too close for the axis to resolve.
        least = 1e-9 * max(abs(low), abs(high), 1e-290)
        room = ROOM * (high - low) if high - low > least else max(0.5 * abs(high), 1e-9)
        lowest = low if axis == "y" and low == self.floor else low - room
        return lowest, high + room

    def _frames(self, axis: str) -> list[Floats]:
        moving = self.moving or {"kind": "when"}
        if moving["kind"] == "when":
            return []
        if moving["kind"] == "points":
            return [np.asarray(frame["xy".index(axis)]) for frame in moving["frames"]]
        if axis == "y":
            return [np.asarray(moving["frames"], dtype=float)]
        return [np.asarray(moving["x"], dtype=float)] if moving["kind"] == "curve" else []

    def html(self, number: int) -> str:
        """Figure element; the number is that of the picture on its page."""
        (x0, x1), (y0, y1) = self._range("x"), self._range("y")
        scale = Scale(x0, x1, y0, y1)
        drawn = "".join(scale.layer(layer) for layer in self.layers)
        drawn += self._moved(scale)
        legend = {layer["label"]: layer["look"] for layer in self.layers if layer["label"]}
        if self.moving is not None and self.moving.get("label"):
            legend[self.moving["label"]] = self.moving["look"]
        keys = "".join(f'<span class="{k}">{escape(text)}</span>' for text, k in legend.items())
        frame = f'x="{EDGE_L}" y="{EDGE_T}" width="{EDGE_R - EDGE_L}" height="{EDGE_B - EDGE_T}"'
        title = escape(self.title)
        return (
            f'<figure class="picture"><figcaption>{title}</figcaption>'
            f'<svg viewBox="0 0 {ACROSS:g} {UPRIGHT:g}" role="img" aria-label="{title}">'
            f'<defs><clipPath id="c{number}"><rect {frame}/></clipPath></defs>'
            f"{self._axes(scale)}"
            f'<g clip-path="url(#c{number})"><g class="data">{drawn}</g></g>'
            f'<rect class="frame" {frame}/></svg>'
            f'<div class="legend">{keys}</div>'
            f'<script type="application/json">{as_json(self._spec(scale))}</script></figure>'
        )

    def _axes(self, scale: Scale) -> str:
        across = "".join(
            f'<line x1="{scale.x(v):.1f}" x2="{scale.x(v):.1f}" y1="{EDGE_T}" y2="{EDGE_B}"/>'
            f'<text x="{scale.x(v):.1f}" y="{EDGE_B + 20}" text-anchor="middle">{escape(t)}</text>'
            for v, t in self._marks(self.categories, scale.x0, scale.x1)
        )
        upward = "".join(
            f'<line x1="{EDGE_L}" x2="{EDGE_R}" y1="{scale.y(v):.1f}" y2="{scale.y(v):.1f}"/>'
            f'<text x="{EDGE_L - 6}" y="{scale.y(v) + 5:.1f}" text-anchor="end">{escape(t)}</text>'
            for v, t in self._marks(self.levels, scale.y0, scale.y1)
        )
        middle = (EDGE_L + EDGE_R) / 2
        named = "" if self.levels is None else ' data-named="1"'
        return (
            f'<g class="tick x">{across}</g><g class="tick y"{named}>{upward}</g>'
            f'<text x="{middle}" y="{UPRIGHT - 8}" text-anchor="middle">{escape(self.x)}</text>'
            f'<text x="4" y="{EDGE_T - 12}">{escape(self.y)}</text>'
        )

    def _marks(
        self, names: Sequence[str] | None, low: float, high: float
    ) -> list[tuple[float, str]]:
        if names is None:
            return ticks(low, high)
        step = max(1, math.ceil(len(names) / 12))  # a dozen labels do not overlap
        short = [name if len(name) <= LONG else f"{name[: LONG - 1]}…" for name in names]
        return [(float(k), short[k]) for k in range(0, len(names), step)]

    def _moved(self, scale: Scale) -> str:
        """Last frame of a layer with a slider, shown without a script."""
        if self.moving is None:
            return ""
        kind, look = self.moving["kind"], f"{self.moving['look']} moving"
        if kind == "when":
            place = float(scale.x(self.moving["at"][-1]))
            return f'<path class="mark moving" d="M{place:.1f} {EDGE_B}V{EDGE_T}"/>'
        last = self.moving["frames"][-1]
        if kind == "points":
            x, y, sizes = (np.asarray(v, dtype=float) for v in last)
            dots = {"kind": "dots", "look": self.moving["look"], "x": x, "y": y, "sizes": sizes}
            return f'<g class="moving">{scale.layer(dots)}</g>'
        y = np.asarray(last, dtype=float)
        x = np.asarray(self.moving.get("x", np.arange(float(len(y)))), dtype=float)
        shape = "area" if kind == "curve" else "bars"
        layer = {"kind": shape, "look": look, "x": x, "y": y, "low": np.zeros(len(y))}
        return scale.layer(layer)

    def _spec(self, scale: Scale) -> dict[str, Any]:
        """Return what the script needs: ranges, places, the values there, frames."""
        wide, tall = scale.x1 - scale.x0, scale.y1 - scale.y0
        at = np.empty(0) if self.at is None else self.at
        spec: dict[str, Any] = {
            "x": [scale.x0, scale.x1],
            "y": [scale.y0, scale.y1],
            "box": [EDGE_L, EDGE_T, EDGE_R, EDGE_B],
            "name": self.x,
            "at": tidy(at, wide),
            "rows": [_row(label, values, tall) for label, values in self.values],
            "zoom": self.categories is None and self.levels is None,
        }
        if self.up is not None:
            spec["up"] = tidy(self.up, tall)
        headings = self.headings or self.categories
        if headings is not None:
            spec["titles"] = list(headings)
        if self.moving is not None:
            spec["moving"] = _rounded(self.moving, wide, tall)
        return spec


def _row(label: str, values: Floats, tall: float) -> dict[str, Any]:
    """Values shown at a place, rounded by their own range: they need not be those of the axis."""
    known = np.asarray(values, dtype=float)
    known = known[np.isfinite(known)]
    own = (float(np.ptp(known)) or float(np.abs(known[0]))) if len(known) else 0.0
    width = min(own, tall) or tall
    return {"label": label, "values": tidy(values, width), "width": width}


def _rounded(moving: dict[str, Any], wide: float, tall: float) -> dict[str, Any]:
    kind = moving["kind"]
    if kind == "when":
        return {"kind": kind, "at": tidy(moving["at"], wide)}
    if kind == "points":
        frames: list[Any] = [
            [tidy(x, wide), tidy(y, tall), tidy(s, 100.0)] for x, y, s in moving["frames"]
        ]
        return {"kind": kind, "frames": frames}
    frames = [tidy(frame, tall) for frame in moving["frames"]]
    return {"kind": kind, "x": tidy(moving.get("x", []), wide), "frames": frames}


@dataclass(frozen=True)
class Scale:
    """From data to the units of a picture."""

    x0: float
    x1: float
    y0: float
    y1: float

    def x(self, v: Any) -> Any:
        """Across."""
        return EDGE_L + (v - self.x0) / (self.x1 - self.x0) * (EDGE_R - EDGE_L)

    def y(self, v: Any) -> Any:
        """Upright, from below."""
        return EDGE_B - (v - self.y0) / (self.y1 - self.y0) * (EDGE_B - EDGE_T)

    def layer(self, layer: dict[str, Any]) -> str:
        """Draw one layer."""
        draw = {"line": self._line, "area": self._area, "dots": self._dots, "bars": self._bars,
                "whisker": self._whiskers, "upright": self._upright}[layer["kind"]]  # fmt: skip
        return draw(layer)

    def _path(self, x: Floats, y: Floats) -> str:
        """Path through the points, broken where one is NaN."""
        parts, pen = [], "M"
        for a, b in zip(self.x(x).tolist(), self.y(y).tolist(), strict=True):
            if not (math.isfinite(a) and math.isfinite(b)):
                pen = "M"
                continue
            parts.append(f"{pen}{a:.1f} {b:.1f}")
            pen = "L"
        return "".join(parts)

    def _line(self, layer: dict[str, Any]) -> str:
        return f'<path class="line {layer["look"]}" d="{self._path(layer["x"], layer["y"])}"/>'

    def _area(self, layer: dict[str, Any]) -> str:
        known = np.isfinite(layer["y"]) & np.isfinite(layer["low"])
        x = layer["x"][known]
        there, back = self._path(x, layer["y"][known]), self._path(x, layer["low"][known])
        back = "L" + "L".join(reversed(back[1:].split("L"))) if back else ""
        return f'<path class="area {layer["look"]}" d="{there}{back}{"Z" if back else ""}"/>'

    def _dots(self, layer: dict[str, Any]) -> str:
        xs, ys, sizes = self.x(layer["x"]), self.y(layer["y"]), layer["sizes"]
        if sizes is None:
            path = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in zip(xs, ys, strict=True))
            return f'<path class="dots {layer["look"]}" d="{path}"/>'
        look = f'class="dots {layer["look"]}"'
        return "".join(
            f'<path {look} d="M{a:.1f} {b:.1f}h0" style="stroke-width:{s:.1f}"/>'
            for a, b, s in zip(xs, ys, sizes, strict=True)
        )

    def _whiskers(self, layer: dict[str, Any]) -> str:
        low, high = layer["ends"].T
        if layer["across"]:
            ends = zip(self.x(low), self.x(high), self.y(layer["y"]), strict=True)
            path = "".join(f"M{a:.1f} {c:.1f}H{b:.1f}" for a, b, c in ends)
        else:
            ends = zip(self.y(low), self.y(high), self.x(layer["x"]), strict=True)
            path = "".join(f"M{c:.1f} {a:.1f}V{b:.1f}" for a, b, c in ends)
        return f'<path class="whisker {layer["look"]}" d="{path}"/>'

    def _bars(self, layer: dict[str, Any]) -> str:
        x, y = layer["x"], layer["y"]
        low, high = (x[:-1], x[1:]) if len(x) > len(y) else (x - 0.4, x + 0.4)
        base = float(self.y(0.0))
        ends = zip(self.x(low), self.x(high), self.y(y), strict=True)
        path = "".join(f"M{a:.1f} {base:.1f}V{c:.1f}H{b:.1f}V{base:.1f}Z" for a, b, c in ends)
        return f'<path class="bars {layer["look"]}" d="{path}"/>'

    def _upright(self, layer: dict[str, Any]) -> str:
        x = float(self.x(layer["x"][0]))
        return f'<path class="line dash {layer["look"]}" d="M{x:.1f} {EDGE_T}V{EDGE_B}"/>'
