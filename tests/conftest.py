"""Settings for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "rfa",
    deadline=None,
    derandomize=True,
    max_examples=200,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("rfa")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of data for the tests alone, which worker processes find too."""
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("RFA_CACHE")
    os.environ["RFA_CACHE"] = str(folder)
    yield folder
    os.environ.pop("RFA_CACHE")
    if before is not None:
        os.environ["RFA_CACHE"] = before


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The directory with the real sources; skips the test if there is none."""
    named = os.environ.get("RFA_DATA")
    if not named:
        pytest.skip("RFA_DATA is not set: no real data")
    return Path(named)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what waits most, so that other processes have something to do meanwhile."""
    items.sort(key=lambda item: "test_deployment.py" not in item.nodeid)
