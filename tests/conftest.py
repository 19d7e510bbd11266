"""Settings for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "rfa",
    deadline=None,
    derandomize=True,
    max_examples=200,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("rfa")
