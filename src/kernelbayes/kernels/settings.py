"""Settings of kernels as parameters of an estimator: ``kernel_x__bandwidth``."""

from dataclasses import fields, replace
from typing import Any, Self

from kernelbayes.kernels.base import Kernel
from kernelbayes.kernels.parts import Parts
from kernelbayes.tables import Documented


class KernelSettings(Documented):
    """Mixin of scikit-learn estimators that makes the settings of their kernels parameters too.

    Kernels are immutable, so ``set_params(kernel_x__bandwidth=2.0)`` puts another kernel in place.
    Kernels inside of kernels have the names of their place: ``kernel_x__left__bandwidth`` of a sum,
    ``kernel_x__age__bandwidth`` of ``Parts``.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; deep ones have two underscores."""
        found: dict[str, Any] = super().get_params(deep)  # type: ignore[misc]
        for name, value in list(found.items()) if deep else ():
            found |= {f"{name}__{key}": setting for key, setting in settings(value).items()}
        return found

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; of kernels as well."""
        inner = sorted(key for key in params if key.startswith("kernel") and "__" in key)
        changes = {key: params.pop(key) for key in inner}  # a kernel comes before what is in it
        super().set_params(**params)  # type: ignore[misc]
        for key, value in changes.items():
            name, _, place = key.partition("__")
            setattr(self, name, changed(getattr(self, name, None), place, value))
        return self


def settings(kernel: object) -> dict[str, Any]:
    """Return the settings of a kernel by name; none for anything that is not a kernel."""
    found = _held(kernel)
    for name, value in list(found.items()):
        found |= {f"{name}__{key}": setting for key, setting in settings(value).items()}
    return found


def changed(kernel: Any, place: str, value: Any) -> Kernel:
    """Kernel with another setting; a ValueError names those it has."""
    name, _, deeper = place.partition("__")
    held = _held(kernel)
    if name not in held:
        known = sorted(held) or "none: give a kernel first"
        raise ValueError(f"{kernel!r} has no setting {name!r}; it has {known}")
    new = changed(held[name], deeper, value) if deeper else value
    if isinstance(kernel, Parts):
        return Parts([(key, new if str(key) == name else part) for key, part in kernel.parts])
    found: Kernel = replace(kernel, **{name: new})
    return found


def _held(kernel: object) -> dict[str, Any]:
    if isinstance(kernel, Parts):
        return {str(key): part for key, part in kernel.parts}
    known = fields(kernel) if isinstance(kernel, Kernel) else ()
    return {f.name: getattr(kernel, f.name) for f in known if f.init and not f.name.startswith("_")}
