"""Tests that are thorough by number: `make test` does a part of each, `make thorough` all."""

from __future__ import annotations

from typing import Any

import pytest


def part_or_all(name: str, part: Any, whole: Any) -> Any:
    """Parametrize a test: a part of its cases in `make test`, all of them in `make thorough`."""
    return pytest.mark.parametrize(
        name,
        [
            pytest.param(part, id="a part"),
            pytest.param(whole, id="all", marks=pytest.mark.thorough),
        ],
    )
