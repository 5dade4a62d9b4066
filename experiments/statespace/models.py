"""State-space models of the papers: simulation, transitions and likelihoods, vectorised over rows.

``rotation`` and ``oscillatory`` are the two dynamics of KBR13 section 5.3 and IW22 section 5.2;
``kanagawa("1a")`` to ``kanagawa("4b")`` are the eight models of KMCF16 Table 4.2. States and
observations are (m, d) arrays. A model with controls takes one control per step: ``controls[t]``
acts on the transition from t - 1 to t; ``controls[0]`` acts on nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np


class Sequence(NamedTuple):
    """A simulated sequence: observations (T, p), states (T, d), controls (T, 1) or None."""

    X: np.ndarray
    Z: np.ndarray
    controls: np.ndarray | None


@dataclass(frozen=True)
class StateSpace:
    """A state-space model; every function works on all rows of z at once."""

    initial: Callable  # (m, rng) -> z (m, d)
    transition: Callable  # (z, rng, control=None) -> z_next (m, d)
    observe: Callable  # (z, rng) -> x (m, p)
    log_likelihood: Callable  # (x (p,), z) -> log p(x | z) + constant (m,)
    controlled: bool = False
    # Additive Gaussian form z' = move(z) + N(0, Q), x = see(z) + N(0, R); for EKF and UKF.
    move: Callable | None = None
    see: Callable | None = None
    Q: np.ndarray | None = None
    R: np.ndarray | None = None

    def simulate(self, length: int, rng: np.random.Generator) -> Sequence:
        """One sequence that starts from the initial distribution."""
        controls = rng.normal(size=(length, 1)) if self.controlled else None
        z = self.initial(1, rng)
        states = [z]
        for t in range(1, length):
            z = self.transition(z, rng, None if controls is None else controls[t])
            states.append(z)
        Z = np.concatenate(states)
        return Sequence(self.observe(Z, rng), Z, controls)


def _gaussian(x, mean, variance):
    return -0.5 * np.sum((x - mean) ** 2, axis=1) / variance


# KBR13 section 5.3, IW22 section 5.2


def swing(z, step, amplitude, frequency, phase):
    """Noise-free next state: angle on by ``step``, radius 1 + amplitude sin(frequency theta).

    theta is the angle before the step (phase 0, IW22 eq. 5) or after it (phase 1, KBR13).
    """
    theta = np.arctan2(z[:, 1], z[:, 0])
    radius = 1.0 + amplitude * np.sin(frequency * (theta + phase * step))
    return radius[:, None] * np.column_stack([np.cos(theta + step), np.sin(theta + step)])


def plane(step, amplitude=0.0, frequency=8, phase=0.0, noise=0.2, burn_in=50):
    """Noisy turn in the plane, seen with noise; it starts where ``burn_in`` steps lead."""
    move = partial(swing, step=step, amplitude=amplitude, frequency=frequency, phase=phase)

    def transition(z, rng, control=None):  # noqa: ARG001 (no controls here)
        return move(z) + noise * rng.normal(size=z.shape)

    def initial(m, rng):
        angle = rng.uniform(0.0, 2.0 * np.pi, size=m)
        z = np.column_stack([np.cos(angle), np.sin(angle)])
        for _ in range(burn_in):
            z = transition(z, rng)
        return z

    return StateSpace(
        initial,
        transition,
        observe=lambda z, rng: z + noise * rng.normal(size=z.shape),
        log_likelihood=lambda x, z: _gaussian(x, z, noise**2),
        move=move,
        see=lambda z: z,
        Q=noise**2 * np.eye(2),
        R=noise**2 * np.eye(2),
    )


def rotation(paper: str = "IW22") -> StateSpace:  # noqa: ARG001 (the papers agree)
    """Dynamics (a): steps of 0.3 on the circle."""
    return plane(0.3)


def oscillatory(paper: str = "IW22") -> StateSpace:
    """Dynamics (b): steps of 0.4 and a radius that oscillates eight times a turn."""
    return plane(0.4, amplitude=0.4, phase={"IW22": 0.0, "KBR13": 1.0}[paper])


# KMCF16 Table 4.2

KANAGAWA = ("1a", "1b", "2a", "2b", "3a", "3b", "4a", "4b")


def _damped(z, rng, control=None, scale=1.0):
    push = 0.0 if control is None else control
    return 0.9 * z + scale * (push + rng.normal(size=z.shape))


def _jump(z, rng, control=None, scale=1.0):
    push = 0.0 if control is None else control
    a = z + scale * rng.normal(size=z.shape) + push
    return np.where(np.abs(a) <= 3.0, a, -3.0)


def _volatile(z, rng, size):
    return 0.5 * np.exp(z / 2.0) * rng.normal(size=(len(z), size))


def _volatile_log_likelihood(x, z):
    variance = 0.25 * np.exp(z[:, 0])
    return -0.5 * np.sum(x**2) / variance - 0.5 * len(x) * np.log(variance)


def _fold(b):
    return np.where(np.abs(b) <= 3.0, b, b - 6.0 * np.sign(b))


def _folded_log_likelihood(x, z):
    # y in [-3, 3] comes from b = y, or from b = y + 6 or y - 6 outside the interval; an
    # observation outside comes from a b beyond 9 on its own side.
    images = np.where(np.abs(x) <= 3.0, np.array([0.0, 6.0, -6.0]), 6.0 * np.sign(x))
    return np.logaddexp.reduce(-0.5 * (x + images - z) ** 2, axis=1)


def kanagawa(name: str) -> StateSpace:
    """One of the eight models of KMCF16; "b" has a control input, drawn from N(0, 1)."""
    number, controlled = name[0], name[1] == "b"
    scale = np.sqrt(0.5) if controlled else 1.0
    damped = partial(_damped, scale=scale)

    def wide(m, rng):
        return rng.normal(scale=np.sqrt(1.0 / (1.0 - 0.9**2)), size=(m, 1))

    if number == "1":
        return StateSpace(
            wide,
            damped,
            observe=lambda z, rng: z + rng.normal(size=z.shape),
            log_likelihood=lambda x, z: _gaussian(x, z, 1.0),
            controlled=controlled,
        )
    if number in "23":
        observe = partial(_volatile, size=1 if number == "2" else 10)
        return StateSpace(wide, damped, observe, _volatile_log_likelihood, controlled)
    return StateSpace(
        initial=lambda m, rng: rng.uniform(-3.0, 3.0, size=(m, 1)),
        transition=partial(_jump, scale=1.0 if controlled else np.sqrt(2.0)),
        observe=lambda z, rng: _fold(z + rng.normal(size=z.shape)),
        log_likelihood=_folded_log_likelihood,
        controlled=controlled,
    )
