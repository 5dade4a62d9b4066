"""What files may contain besides plain values: classes of this library, SciPy distributions."""

import dataclasses
import pkgutil
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from scipy import stats
from sklearn.base import BaseEstimator

# A JSON value. Anything but None, a boolean, a number or a string is a dict of one entry that names
# its kind.
Node = Any
PACKAGE = __name__.partition(".")[0]
# Types of arrays that are stored: booleans, integers, floats and strings, but no objects.
KINDS_STORED = "biufU"
# Packages whose classes are never stored: plots, commands, this package.
NOT_STORED = ("cli", "demo", "files", "laws", "plot", "__main__")
# Classes that have moved to another package since earlier versions.
MOVED = {"select.calibration.Calibration": "rules.calibration.Calibration"}
# Fields that classes no longer have, and the value without which nothing is lost.
REMOVED = {"Encoder": {"beside": False}}
# Values that fields no longer have: what was learned in these ways must be fitted again.
GONE = {"Recipe": {"mean", "quadratic", "quadratic-scale"}}


@cache
def registry() -> dict[str, type]:
    """Every class of the library by name: the only ones that a file can name."""
    found: dict[str, type] = {}
    for module in pkgutil.walk_packages(import_module(PACKAGE).__path__, f"{PACKAGE}."):
        short = module.name.removeprefix(f"{PACKAGE}.")
        if short.split(".")[0] in NOT_STORED:
            continue
        for name, value in vars(import_module(module.name)).items():
            if isinstance(value, type) and value.__module__ == module.name:
                found[f"{short}.{name}"] = value
    return found


def class_named(name: str) -> type:
    """Class named in a file, also if it has moved within its package."""
    known, (package, *_, short) = registry(), MOVED.get(name, name).split(".")
    if name in known:
        return known[name]
    moved = [cls for place, cls in known.items() if place.split(".")[0] == package]
    (found,) = (cls for cls in moved if cls.__name__ == short)
    return found


@cache
def names() -> dict[type, str]:
    """Names of the classes that can be stored."""
    return {cls: name for name, cls in registry().items()}


def stored_fields(cls: type) -> Sequence[str] | None:
    """Fields of a dataclass that are not caches; None for other classes, and for estimators."""
    if not dataclasses.is_dataclass(cls) or issubclass(cls, BaseEstimator):
        return None
    fields = dataclasses.fields(cls)
    return tuple(f.name for f in fields if f.init or f.default_factory is dataclasses.MISSING)


def frozen_distribution(value: Any) -> tuple[str, Any, Any] | None:
    """Name and arguments of a frozen distribution of scipy.stats; None for anything else."""
    if isinstance(value, type(stats.multivariate_normal())):
        return "multivariate_normal", (value.mean, value.cov), {}
    name = getattr(getattr(value, "dist", None), "name", None)
    if isinstance(name, str) and name in distributions() and hasattr(value, "kwds"):
        return name, value.args, value.kwds
    return None


@cache
def distributions() -> Mapping[str, Any]:
    """Distributions of scipy.stats by their names."""
    kinds = (stats.rv_continuous, stats.rv_discrete)
    known = {n: d for n, d in vars(stats).items() if isinstance(d, kinds)}
    return {**known, "multivariate_normal": stats.multivariate_normal}
