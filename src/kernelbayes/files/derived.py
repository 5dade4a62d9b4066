"""Arrays that files leave out, because the rest of an object gives identical ones."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kernelbayes.arrays import quiet
from kernelbayes.filters.model import Controlled, Dynamics, inverse_ridge
from kernelbayes.filters.moves import Moves
from kernelbayes.gram.base import Dense, check_memory
from kernelbayes.gram.factored import LowRank
from kernelbayes.gram.finite import FiniteKernel
from kernelbayes.points import count, doubled, take
from kernelbayes.types import Array

State = dict[str, Any]
# Operations (about a second) up to which an array is recomputed instead of stored.
WORK_AGAIN = 1e10


def left_out(cls: type, state: State) -> list[str]:
    """Names of the arrays of an object that :func:`completed` recomputes identically."""
    found = []
    for name, work, make in _recipes(cls, state):
        known = state[name]
        if isinstance(known, np.ndarray) and work <= WORK_AGAIN:
            with quiet():  # the fit has already warned
                again = make()
            if (again.dtype, again.strides) == (known.dtype, known.strides):
                found += [name] * bool(np.array_equal(again, known))
    return found


def completed(cls: type, state: State) -> State:
    """State of an object, completed by the arrays that were left out of its file."""
    for name, work, make in _recipes(cls, state):
        if name not in state:
            if work > WORK_AGAIN:
                raise ValueError(f"{name} is never left out at this size")
            with quiet():
                state[name] = make()
    return state


def _recipes(cls: type, s: State) -> Iterator[tuple[str, float, Callable[[], Array]]]:
    """Yield name, operations and function of each array that other fields determine, in order."""
    if cls is Dense and s["kernel"] is not None:
        yield "G", 0.0, lambda: _whole(s)
    elif cls is LowRank and isinstance(s["kernel"], FiniteKernel):
        work = float(count(s["points"])) * s["kernel"].rank ** 2
        yield "L", work, lambda: s["kernel"].features(s["points"])
    elif cls is Moves and s.get("eta") is not None and isinstance(s["states"], FiniteKernel):
        work = float(count(s["Z"])) * s["states"].rank ** 2
        yield "features", work, lambda: s["states"].features(doubled(s["Z"]))
        yield "to_prior", work, lambda: inverse_ridge(s["features"], s["eta"])
    elif cls is Controlled and s.get("gram") is not None:
        joint = s["gram"].kernel
        yield "features", 0.0, lambda: s["gram"].factor
        yield "transport", _work(s), lambda: inverse_ridge(s["features"], s["eta"])
        yield "factor", 0.0, lambda: joint.factor
        yield "states", 0.0, lambda: dict(joint.kernel.parts)["z"](s["Z"], joint.basis["z"])
    elif cls is Dynamics and s.get("gram") is not None:
        yield "features", 0.0, lambda: s["gram"].factor
        F, moves = s["features"], s["simulated"]
        if isinstance(moves, Moves):
            yield "to_prior", 0.0, lambda: moves.to_prior
            yield "transport", 0.0, lambda: moves.to_prior
            yield "moved", _work(s), lambda: moves.states.features(moves.ends)
        else:
            yield "to_prior", _work(s), lambda: inverse_ridge(F, s["eta"])
            before = take(F, s["source"])
            yield "transport", _work(s), lambda: inverse_ridge(before, s["transition_eta"])


def _whole(s: State) -> Array:
    check_memory(s["kernel"], s["points"], double=False)
    return s["kernel"](s["points"])


def _work(s: State) -> float:
    n, r = s["features"].shape
    return float(n) * float(r) ** 2
