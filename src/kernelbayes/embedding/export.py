"""Out of the library: data frames, ArviZ, pictures."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import Rng, to_numpy
from kernelbayes.embedding.sampling import Sampling


class Export(Sampling):
    """The weighted sample in other libraries' terms."""

    def to_frame(self) -> Any:
        """Pandas frame of the points, one row each, with their weights as they are.

        Columns have the names of the frame the points came from, or "x0", "x1", ... (one column
        "point" for points that are not vectors), then "weight"; for a batch "weight_0",
        "weight_1", ...

        Examples
        --------
        >>> from kernelbayes import Gaussian, embed
        >>> embed([0.5, 1.5], Gaussian(1.0)).to_frame()
            x0  weight
        0  0.5     0.5
        1  1.5     0.5
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError("frames need pandas: pip install 'kernelbayes[pandas]'") from error
        columns = named_columns(self.points, self.names)
        weights = np.atleast_2d(to_numpy(self.weights))
        names = ["weight"] if self._single else [f"weight_{i}" for i in range(len(weights))]
        clash = sorted(set(names) & set(columns))
        if clash:
            raise ValueError(f"the points have a column {clash[0]!r} already; rename it")
        return pandas.DataFrame({**columns, **dict(zip(names, weights, strict=True))})

    def to_arviz(self, draws: int = 1000, rng: Rng = None, bandwidth: Any = None) -> Any:
        """ArviZ InferenceData (a DataTree from ArviZ 1.0 on) whose posterior group holds draws.

        ArviZ knows no weights, so they are resolved to independent draws:
        ``sample(draws, rng, "iid", bandwidth)``.

        Parameters
        ----------
        draws : int
        rng : int, Generator or None
        bandwidth : float or array (d,), optional
            Smoothing of the draws, as in :meth:`sample`.

        Returns
        -------
        arviz.InferenceData or xarray.DataTree
            One chain. Variables have the points' column names, or "x0", "x1", ...; those of a
            batch have one more dimension, its members.
        """
        try:
            import arviz
        except ImportError as error:
            raise ImportError("this needs ArviZ: pip install 'kernelbayes[arviz]'") from error
        batches = [self] if self._single else list(self)  # type: ignore[call-overload]
        generator = np.random.default_rng(rng) if not isinstance(rng, np.random.Generator) else rng
        members = [
            named_columns(mu.sample(draws, generator, "iid", bandwidth), self.names)
            for mu in batches
        ]
        posterior = {
            name: (
                members[0][name][None]
                if self._single
                else np.stack([member[name] for member in members], axis=1)[None]
            )
            for name in members[0]
        }
        if "posterior" in inspect.signature(arviz.from_dict).parameters:  # before ArviZ 1.0
            return arviz.from_dict(posterior=posterior)
        return arviz.from_dict({"posterior": posterior})


def named_columns(points: Any, names: tuple[str, ...] | None) -> dict[str, Any]:
    """Columns (n,) of points by name: of a mapping, of vectors, or one column "point"."""
    if isinstance(points, Mapping):
        parts = [named_columns(value, None) for value in points.values()]
        return {
            str(key) if len(part) == 1 else f"{key}_{name}": column
            for key, part in zip(points, parts, strict=True)
            for name, column in part.items()
        }
    if not is_array_api_obj(points):
        return {"point": np.asarray(points, dtype=object)}
    array = to_numpy(points)
    if array.ndim == 1:
        return {"point" if names is None else names[0]: array}
    if array.ndim > 2:
        return {"point": np.fromiter(array, dtype=object, count=len(array))}
    labels = names if names and len(names) == array.shape[1] else None
    return {labels[j] if labels else f"x{j}": array[:, j] for j in range(array.shape[1])}
