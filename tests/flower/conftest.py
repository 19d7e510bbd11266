"""What tests on Flower share."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from rfa.secagg.fixed_point import Total
from rfa.secagg.server.machine import Server


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Total]:
    """All that a server learns: every sum that is opened."""
    sums: list[Total] = []
    original = Server.total

    def total(server: Server) -> Total:
        sums.append(original(server))
        return sums[-1]

    monkeypatch.setattr(Server, "total", total)
    return sums


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The log of Flower."""
    logging.getLogger("flwr").propagate = True
    caplog.set_level(logging.INFO)
    return caplog


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The nodes whose app was called, in order; each time it finds another update."""
    from tests.flower import toy  # which needs Flower  # noqa: PLC0415

    seen: list[int] = []
    step_of = toy.step_of

    def counted(node: int, t: int) -> Any:
        seen.append(node)
        return step_of(node, len(seen))

    monkeypatch.setattr(toy, "step_of", counted)
    return seen
