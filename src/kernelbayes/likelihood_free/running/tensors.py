"""Simulators written in torch, called as those written in NumPy are."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from kernelbayes.arrays import Array, Floats
from kernelbayes.likelihood_free.distributions import torch_seed
from kernelbayes.likelihood_free.running.calling import Output, Simulator, rng_argument


@dataclass(frozen=True)
class TorchSimulator:
    """A simulator whose only random numbers may be those of torch's global stream.

    The stream is seeded from NumPy's, which the caller seeds, and restored afterwards: the same
    ``rng`` gives the same simulations. ``tensors``: whether parameters are handed over as tensors.
    """

    simulator: Simulator
    tensors: bool

    def __call__(self, theta: Floats) -> Output:
        """Simulate at theta, (d,) or (b, d)."""
        given: Array = theta
        if self.tensors:
            import torch

            given = torch.as_tensor(theta, dtype=torch.get_default_dtype())
        with torch_seed(int(np.random.randint(2**31))):  # noqa: NPY002
            return self.simulator(given)


def for_torch(simulator: Simulator, theta: Floats) -> Simulator:
    """Wrap a simulator without ``rng``, which gets tensors if it takes no arrays theta (k, d)."""
    if not callable(simulator) or rng_argument(simulator) is not None:
        return simulator
    state = np.random.get_state()  # noqa: NPY002
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for tried in (TorchSimulator(simulator, False), TorchSimulator(simulator, True)):
            for some in (theta[0], theta[:2]):
                with suppress(Exception):
                    tried(some.copy())
                    np.random.set_state(state)  # noqa: NPY002
                    return tried
    np.random.set_state(state)  # noqa: NPY002
    return simulator
