"""Settings for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

for profile, examples in (("rfa", 60), ("thorough", 200)):
    settings.register_profile(
        profile,
        deadline=None,
        derandomize=True,
        max_examples=examples,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("rfa")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of data for the tests alone: one for all processes, so that data is read once."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    folder.mkdir(exist_ok=True)
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


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call() -> None:
    """Let the environment be the same in all tests, so that one fork server serves them all."""
    os.environ.pop("PYTEST_CURRENT_TEST", None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what waits most, so that other processes have something to do meanwhile."""
    items.sort(key=lambda item: "test_deployment.py" not in item.nodeid)
