"""Simulators written in torch, called as those written in NumPy are."""

import warnings
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from kernelbayes.likelihood_free.distributions import torch_seed
from kernelbayes.likelihood_free.running.calling import Caller, Output, Seed, Simulator
from kernelbayes.types import Array, Floats


@dataclass(frozen=True)
class TorchSimulator:
    """A simulator whose only random numbers may be those of torch's global stream.

    The stream is seeded from NumPy's, which the caller seeds, and restored afterwards: the same
    ``rng`` gives the same simulations. NumPy's does not move: a simulator that draws from it gives
    what it gives without torch. ``tensors``: whether parameters are handed over as tensors.
    """

    simulator: Simulator
    tensors: bool

    def __call__(self, theta: Floats) -> Output:
        """Simulate at theta, (d,) or (b, d)."""
        given: Array = theta
        if self.tensors:
            import torch

            given = torch.as_tensor(theta, dtype=torch.get_default_dtype())
        state = np.random.get_state()  # noqa: NPY002
        seed = int(np.random.randint(2**31))  # noqa: NPY002
        np.random.set_state(state)  # noqa: NPY002
        with torch_seed(seed):
            return self.simulator(given)


def takes_tensors(simulator: Simulator, theta: Floats, seed: Seed) -> bool:
    """Whether a simulator without ``rng`` fails at arrays theta (k, d), and not at tensors."""
    with warnings.catch_warnings(action="ignore"):
        for tensors in (False, True):
            caller = Caller(TorchSimulator(simulator, tensors), rng_argument=None)
            for some in (theta[0], theta[:2]):
                with suppress(Exception):
                    caller.raw(some, seed)
                    return tensors
    return False
