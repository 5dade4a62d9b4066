"""Every test is seeded, and true for other seeds too.

``make test`` uses base seed 0 and a fixed random order; ``make test-seeds`` moves the seed of every
generator, in tests and in the library, by other base seeds. A test, or an example in a docstring,
that draws from a generator without a seed fails. What compares with printed numbers, marked
``fixed_seed``, and examples in docstrings run with base seed 0 only.
"""

import traceback

import numpy as np
import pytest
import scipy.stats  # noqa: F401 (it draws without a seed while it is imported: not in a test)
from hypothesis import HealthCheck, settings

from normal_means import fitted

seeded_rng = np.random.default_rng


def moved_by(seed: object, base: int) -> object:
    """Return another seed for every base but 0; generators and seed sequences stay."""
    if base == 0 or isinstance(seed, bool):
        return seed
    if isinstance(seed, int | np.integer):
        return int(seed) + base
    return [*seed, base] if isinstance(seed, list | tuple) else seed


class Seeds:
    """Generators made without a seed: with the state they began in, and where that was."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.unseeded: list[tuple[np.random.Generator, object, str]] = []

    def rng(self, seed: object = None) -> np.random.Generator:
        """Stand in for ``np.random.default_rng``."""
        rng = seeded_rng(moved_by(seed, self.base))
        if seed is None:
            where = "".join(traceback.format_stack(limit=8)[:-1])
            self.unseeded.append((rng, rng.bit_generator.state, where))
        return rng

    @pytest.fixture(autouse=True)
    def _no_unseeded_generator(self) -> object:
        """Fail a test that draws from a generator without a seed."""
        self.unseeded.clear()
        yield
        for rng, state, where in self.unseeded:
            if rng.bit_generator.state != state:
                pytest.fail(f"draws without a seed: pass rng=...\n{where}", pytrace=False)

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Leave out what compares with printed numbers, unless the base seed is 0."""
        if self.base:
            fixed = [i for i in items if isinstance(i, pytest.DoctestItem)]
            fixed += [i for i in items if i.get_closest_marker("fixed_seed")]
            config.hook.pytest_deselected(items=fixed)
            items[:] = [i for i in items if i not in fixed]


def pytest_configure(config: pytest.Config) -> None:
    """Move all seeds by the base seed (that of pytest-randomly, which also orders the tests)."""
    seeds = Seeds(int(config.getoption("randomly_seed")))
    config.pluginmanager.register(seeds)  # a plugin, because src/ has doctests
    np.random.default_rng = seeds.rng
    settings.register_profile(
        "kernelbayes",
        max_examples=25,
        deadline=None,
        derandomize=seeds.base == 0,  # with another base seed, --hypothesis-seed moves the examples
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("kernelbayes")


@pytest.fixture(scope="module")
def adjusted():
    """Return a posterior model of normal means, by adjusted simulations."""
    return fitted(500)


@pytest.fixture(scope="module")
def likelihood():
    """Return the same by the likelihood."""
    return fitted(500, method="likelihood")


@pytest.fixture(scope="module")
def automatic():
    """Return the same by the method that is chosen."""
    return fitted(500, method="auto")
