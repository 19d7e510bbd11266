"""What tests of the protocol share."""

from __future__ import annotations

import functools

import pytest

from rfa.secagg.crypto.keys import is_signed


@pytest.fixture
def checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices ask again and again whether the same is signed by the same: the answer is kept."""
    once = functools.lru_cache(maxsize=1024)(is_signed)
    monkeypatch.setattr("rfa.secagg.security.cohort.is_signed", once)
    monkeypatch.setattr("rfa.secagg.device.membership.is_signed", once)
