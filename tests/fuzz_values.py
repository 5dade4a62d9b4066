"""Arguments for fuzz.py: containers, hard data and hostile values."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl

import kernelbayes as kb

NAMES = ("first", "second", "third", "fourth", "fifth", "sixth")


def tables(value):
    """Array of what a container holds."""
    if isinstance(value, pl.DataFrame):
        return value.to_numpy()
    if isinstance(value, pd.DataFrame):
        return value.to_numpy(dtype=np.float64)
    if isinstance(value, list):
        return np.array(value, dtype=np.float64)
    return np.asarray(value)


def is_frame(value):
    return isinstance(value, pd.DataFrame | pl.DataFrame)


def columns_of(values):
    table = np.reshape(values, (len(values), -1))
    return {NAMES[j]: table[:, j] for j in range(min(table.shape[1], len(NAMES)))}


def containers(values, frames=True):
    """The same numbers in several containers."""
    kept = [values.tolist(), np.asfortranarray(values), values[::-1][::-1]]
    read_only = values.copy()
    read_only.flags.writeable = False
    kept += [read_only, np.ma.masked_array(values), values.astype(object)]
    small = values.ndim == 2 and values.shape[1] <= len(NAMES)
    if frames and small and values.dtype.kind == "f":
        columns = columns_of(values.astype(values.dtype.newbyteorder("=")))  # polars 1.34 reads it
        kept += [pd.DataFrame(columns), pl.DataFrame(columns)]
        kept.append(pd.DataFrame(columns).astype("Float64"))
    return kept


# --- hard: legal, but unusual --------------------------------------------------------------------


def _scaled(factor):
    return lambda values, rng: values * factor


def _outlier(values, rng):
    values = values.copy()
    values[rng.integers(len(values))] *= 1e6
    return values


def _huge_outlier(values, rng):
    values = values.copy()
    values[rng.integers(len(values))] = 1e80
    return values


def _constant(values, rng):
    return np.repeat(values[:1], len(values), axis=0)


def _constant_column(values, rng):
    values = values.copy()
    values[..., 0] = 1.0 if values.ndim > 1 else values[..., 0]
    return values


def _pairs(values, rng):
    values = values.copy()
    values[1::2] = values[: len(values) - len(values) % 2 : 2][: len(values[1::2])]
    return values


VALUES = {
    "tiny": _scaled(1e-30),
    "small": _scaled(1e-6),
    "large": _scaled(1e6),
    "huge": _scaled(1e30),
    "offset": lambda values, rng: values + 1e6,
    "outlier": _outlier,
    "outlier of 1e80": _huge_outlier,
    "constant": _constant,
    "constant column": _constant_column,
    "pairs": _pairs,
    "integers": lambda values, rng: np.rint(4 * values),
    "zeros": lambda values, rng: 0.0 * values,
    "heavy tails": lambda values, rng: np.sign(values) * np.exp(5 * np.abs(values)),
}


@np.errstate(over="ignore")  # 1e80 is infinite in single precision
def _single(values, rng):
    return values.astype(np.float32)


FORMS = {
    "float32": _single,
    "big-endian": lambda values, rng: values.astype(">f8"),
    "int": lambda values, rng: np.clip(np.rint(values), -1e9, 1e9).astype(np.int64),
    "bool": lambda values, rng: values > 0,
    "uint8": lambda values, rng: np.clip(np.rint(values), 0, 200).astype(np.uint8),
    "container": lambda values, rng: (options := containers(values))[rng.integers(len(options))],
    "decimals": lambda values, rng: np.vectorize(lambda v: Decimal(repr(float(v))))(values),
}
FEW = ("one row", "two rows", "three rows")


def harden(entry, arguments, rng):
    """Legal but hard arguments, and what is hard about them."""
    arguments, what = dict(arguments), []
    samples = [a for a in entry.samples if arguments.get(a) is not None]
    chance = rng.uniform()
    if samples and chance < 0.6:
        label = str(rng.choice(sorted(VALUES)))
        some = samples if rng.uniform() < 0.5 else [str(rng.choice(samples))]
        for a in some:
            arguments[a] = VALUES[label](np.asarray(arguments[a], dtype=np.float64), rng)
        what.append(f"{'+'.join(some)}: {label}")
    if samples and chance > 0.4 and not entry.rigid:
        label = str(rng.choice(sorted(FORMS)))
        some = samples if rng.uniform() < 0.5 else [str(rng.choice(samples))]
        for a in some:
            arguments[a] = FORMS[label](np.asarray(arguments[a]), rng)
        what.append(f"{'+'.join(some)}: {label}")
    if entry.rows and rng.uniform() < 0.15:
        keep = int(rng.integers(1, 4))
        for a in entry.rows[0]:
            if arguments.get(a) is not None:
                arguments[a] = arguments[a][:keep]
        what.append(f"{keep} rows")
    for a, kind in entry.kinds.items():
        if kind.endswith("kernel") and arguments.get(a) is not None and rng.uniform() < 0.25:
            factor = float(rng.choice([1e-6, 1e-2, 1e2, 1e6]))
            try:
                arguments[a] = arguments[a].scaled(factor)
            except ValueError:
                continue
            what.append(f"{a}: times {factor:g}")
        if kind == "positive" and isinstance(arguments.get(a), float) and rng.uniform() < 0.25:
            arguments[a] = float(rng.choice([1e-14, 1e-6, 1e3, 1e6]))
            what.append(f"{a}={arguments[a]:g}")
    return arguments, ", ".join(what)


# --- hostile: exactly one argument is wrong ------------------------------------------------------


def _with(value):
    def maker(values, rng):
        values = np.array(tables(values), dtype=np.float64)
        flat = values.reshape(-1)
        flat[rng.integers(flat.size)] = value
        return values

    return maker


def _masked(values, rng):
    values = np.array(tables(values), dtype=np.float64)
    mask = np.zeros(values.shape, dtype=bool)
    mask.reshape(-1)[rng.integers(values.size)] = True
    return np.ma.masked_array(values, mask)


def _ragged(values, rng):
    rows = [list(np.atleast_1d(row)) for row in tables(values)]
    return [*rows[:-1], [*rows[-1], 1.0]]


def _always(value):
    return lambda values, rng: value


def _nullable(values, rng):
    table = pd.DataFrame(columns_of(np.array(tables(values), dtype=np.float64))).astype("Float64")
    table.iloc[0, 0] = pd.NA
    return table


SAMPLE = {
    "nan": _with(np.nan),
    "inf": _with(np.inf),
    "-inf": _with(-np.inf),
    "masked": _masked,
    "missing in a frame": _nullable,
    "None inside": lambda values, rng: [None, *tables(values).tolist()[1:]],
    "empty": lambda values, rng: tables(values)[:0],
    "empty list": _always([]),
    "no columns": lambda values, rng: np.empty((len(tables(values)), 0)),
    "4-d": lambda values, rng: np.asarray(tables(values), dtype=float).reshape(-1, 1, 1, 1),
    "scalar": _always(3.0),
    "text": _always("data.csv"),
    "number in 400 digits": lambda values, rng: [10**400] * len(tables(values)),
    "complex": lambda values, rng: tables(values) + 1j,
    "ragged": _ragged,
    "an object": lambda values, rng: object(),
    "a function": _always(np.sin),
    "a class": _always(np.ndarray),
    "a set": _always({1.0, 2.0, 3.0}),
    "a generator": lambda values, rng: map(float, range(len(tables(values)))),
    "dates": lambda values, rng: np.array(
        ["2024-01-01"] * len(tables(values)), dtype="datetime64[D]"
    ),
    "date objects": lambda values, rng: [datetime.date(2024, 1, 1)] * len(tables(values)),
    "timedeltas": lambda values, rng: np.arange(len(tables(values))).astype("timedelta64[s]"),
    "bytes": _always(b"\x00\x01\x02"),
    "records": lambda values, rng: np.zeros(len(tables(values)), dtype=[("a", float), ("b", int)]),
    "a mapping of unequal lengths": _always({"a": [1.0, 2.0], "b": [1.0]}),
}
REQUIRED = SAMPLE | {"None": _always(None)}
COUNT = {
    "zero": _always(0),
    "negative": _always(-1),
    "a fraction": _always(2.5),
    "text": _always("3"),
    "nan": _always(np.nan),
    "inf": _always(np.inf),
    "complex": _always(3 + 0j),
    "a list": _always([3]),
    "an object": lambda values, rng: object(),
    "an array": lambda values, rng: np.array([2, 3]),
    "None": _always(None),
}
POSITIVE = {
    "zero": _always(0.0),
    "negative": _always(-1.0),
    "nan": _always(np.nan),
    "inf": _always(np.inf),
    "text": _always("1.0"),
    "complex": _always(1j),
    "empty": _always([]),
    "an object": lambda values, rng: object(),
    "400 digits": _always(10**400),
    "a matrix": lambda values, rng: np.ones((2, 2)),
    "None": _always(None),
    "dates": lambda values, rng: np.datetime64("2024-01-01"),
}
SHARE = {
    "negative": _always(-0.1),
    "above one": _always(1.5),
    "nan": _always(np.nan),
    "text": _always("0.5"),
    "complex": _always(0.5 + 0j),
    "an object": lambda values, rng: object(),
    "None": _always(None),
}
NUMBER = {k: v for k, v in POSITIVE.items() if k not in ("zero", "negative")}
OPTION = {
    "unknown": _always("nonsense"),
    "a number": _always(3.7),
    "bytes": _always(b"abc"),
    "a list": _always(["importance"]),
    "an object": lambda values, rng: object(),
}
KERNEL = {
    "text": _always("gaussian"),
    "a number": _always(1.0),
    "a class": _always(kb.Gaussian),
    "a function": _always(lambda X, Y: X @ Y.T),
    "another dimension": _always(kb.Gaussian((1.0,) * 9)),
    "of strings": _always(kb.Spectrum(2)),
    "of rotations": _always(kb.Rotation(1.0)),
    "a list": _always([kb.Gaussian(1.0)]),
    "an array": lambda values, rng: np.eye(3),
}
WEIGHTS = {
    "nan": lambda values, rng: np.full(len(values), np.nan),
    "inf": _with(np.inf),
    "too few": lambda values, rng: values[:-1],
    "too many": lambda values, rng: np.append(values, 0.5),
    "text": _always("uniform"),
    "list of text": lambda values, rng: ["a"] * len(values),
    "complex": lambda values, rng: values + 1j,
    "a matrix": lambda values, rng: np.ones((len(values), 2, 2)),
    "an object": lambda values, rng: object(),
    "a number": _always(0.5),
}
RNG = {
    "text": _always("seed"),
    "a fraction": _always(1.5),
    "negative": _always(-1),
    "an object": lambda values, rng: object(),
    "old state": lambda values, rng: np.random.RandomState(0),
}
FLAG = {"text": _always("yes"), "an array": lambda values, rng: np.array([True, False])}
PATH = {
    "None": _always(None),
    "a number": _always(3.5),
    "a list": _always(["model.kb"]),
    "a folder that is not there": _always("/nowhere/at/all/model.kb"),
    "a folder": _always("/"),
    "empty": _always(""),
}
FUNCTION = {
    "None": _always(None),
    "a number": _always(1.0),
    "text": _always("normal"),
    "an array": lambda values, rng: np.ones(3),
}
MODEL = {
    "None": _always(None),
    "a number": _always(1.0),
    "text": _always("model"),
    "an array": lambda values, rng: np.ones((3, 2)),
    "a class": _always(kb.KernelBayesRule),
}
HOSTILE = {
    "sample": REQUIRED,
    "optional sample": SAMPLE,
    "count": COUNT,
    "optional count": {k: v for k, v in COUNT.items() if k != "None"},
    "positive": POSITIVE,
    "optional positive": {k: v for k, v in POSITIVE.items() if k != "None"},
    "number": NUMBER,
    "share": SHARE,
    "option": OPTION,
    "kernel": KERNEL | {"None": _always(None)},
    "optional kernel": KERNEL,
    "weights": WEIGHTS,
    "rng": RNG,
    "flag": FLAG,
    "function": FUNCTION,
    "model": MODEL,
    "path": PATH,
}
