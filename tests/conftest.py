"""Settings of the whole suite."""

from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "suite",
    derandomize=True,  # the same examples in every run
    deadline=None,
    max_examples=30,
    database=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),  # failures without minutes of explaining
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")
