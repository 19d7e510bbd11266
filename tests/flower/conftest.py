"""What tests on Flower share."""

from __future__ import annotations

import logging

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
