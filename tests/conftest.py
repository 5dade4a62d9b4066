"""Every test is seeded, and true for other seeds too.

``make test`` uses base seed 0 and a fixed random order; ``make test-seeds`` moves the seed of every
generator, in tests and in the library, by other base seeds. A test that meets a generator without a
seed fails.
"""

import traceback

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

seeded_rng = np.random.default_rng
# Generators made without a seed, with the state they began in and where that was.
unseeded: list[tuple[np.random.Generator, object, str]] = []


def pytest_configure(config: pytest.Config) -> None:
    """Move all seeds by the base seed (that of pytest-randomly, which also orders the tests)."""
    base = int(config.getoption("randomly_seed"))

    def moved(seed: object = None) -> np.random.Generator:
        number = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
        rng = seeded_rng(seed + base if number else seed)
        if seed is None:
            where = "".join(traceback.format_stack(limit=8)[:-1])
            unseeded.append((rng, rng.bit_generator.state, where))
        return rng

    np.random.default_rng = moved
    settings.register_profile(
        "kernelbayes",
        max_examples=25,
        deadline=None,
        derandomize=base == 0,  # with another base seed, --hypothesis-seed moves the examples
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("kernelbayes")


@pytest.fixture(autouse=True)
def _no_unseeded_generator() -> object:
    """Fail a test that draws from a generator without a seed."""
    unseeded.clear()
    yield
    for rng, state, where in unseeded:
        if rng.bit_generator.state != state:
            pytest.fail(f"draws without a seed: pass rng=...\n{where}", pytrace=False)
