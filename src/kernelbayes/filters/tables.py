"""Beliefs as tables: columns for coordinates, and probabilities for states that are categories.

States are categories under the ``Delta`` kernel, whatever they are coded by, and wherever they are
not numbers (strings). Their mean means nothing; their probabilities do. States with named parts are
taken apart, each under its own kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import to_numpy
from kernelbayes.gram.features import Fourier, Landmarks
from kernelbayes.kernels import Delta, Kernel, Parts

if TYPE_CHECKING:
    from kernelbayes.filters.beliefs import Beliefs


def split(beliefs: Beliefs) -> list[Beliefs]:
    """Beliefs about each part of states with named parts; otherwise the beliefs themselves."""
    if not isinstance(beliefs.points, Mapping):
        return [beliefs]
    joint = _base(beliefs.kernel)
    assert isinstance(joint, Parts)  # no other kernel takes mappings
    found = []
    for key, kernel in joint.parts:
        names = key if isinstance(key, tuple) else (key,)
        points = kernel.points(joint.part(beliefs.points, key), "Z")
        several = getattr(points, "ndim", 1) == 2 and points.shape[1] != len(names)
        if several:
            names = tuple(f"{names[0]}_{j}" for j in range(points.shape[1]))
        found.append(replace(beliefs, points=points, kernel=kernel, names=names))
    return found


def is_categorical(beliefs: Beliefs) -> bool:
    """Whether the states are categories."""
    points = beliefs.points
    if isinstance(_base(beliefs.kernel), Delta) or not is_array_api_obj(points):
        return not isinstance(points, Mapping)
    return isinstance(points, np.ndarray) and points.dtype.kind in "USO"


def probabilities(beliefs: Beliefs) -> tuple[list[Any], np.ndarray[Any, Any]]:
    """Categories in order, and their probabilities (T, number of categories).

    Those of ``valid()``: not negative, each row sums to one, the same as ``prob`` gives.
    """
    points = np.asarray(to_numpy(beliefs.points))
    if points.ndim == 1:
        found, codes = np.unique(points, return_inverse=True)
        labels = found.tolist()
    else:  # equal when all columns are
        rows, codes = np.unique(points.reshape(len(points), -1), axis=0, return_inverse=True)
        labels = [tuple(row) for row in rows.tolist()]
    members = (codes.ravel()[:, None] == np.arange(len(labels))).astype(float)
    return labels, np.asarray(to_numpy(beliefs.valid().weights)) @ members


def columns(beliefs: Beliefs, level: float) -> dict[str, Any]:
    """Columns (T,) of a table: most probable category and probabilities, or mean and interval."""
    if is_categorical(beliefs):
        labels, P = probabilities(beliefs)
        name = beliefs.names[0] if beliefs.names else "z0"
        best = np.empty(len(labels), dtype=object)
        best[:] = labels  # tuples stay whole
        shares = {f"{name}_{label}": P[:, j] for j, label in enumerate(labels)}
        return {name: best[np.argmax(P, axis=1)], **shares}
    mean, ends = to_numpy(beliefs.mean()), to_numpy(beliefs.interval(level))
    found: dict[str, Any] = {}
    for j, name in enumerate(names_of(beliefs, mean.shape[1])):
        found[name] = mean[:, j]
        found[f"{name}_low"], found[f"{name}_high"] = ends[:, j, 0], ends[:, j, 1]
    return found


def names_of(beliefs: Beliefs, d: int) -> tuple[str, ...]:
    """Names of d coordinates, those of the frame that the states came from if there was one."""
    return beliefs.names or tuple(f"z{j}" for j in range(d))


def _base(kernel: Kernel) -> Kernel:
    return kernel.kernel if isinstance(kernel, Landmarks | Fourier) else kernel
