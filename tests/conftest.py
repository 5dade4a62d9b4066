"""One hypothesis profile for all tests: repeatable, few examples, no time limits."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "kernelbayes",
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("kernelbayes")
