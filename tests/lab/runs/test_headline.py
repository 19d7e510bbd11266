"""What is told of a run while it goes: the accuracy over all devices, and over honest ones."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from rfa.lab.runs.progress import Bar
from rfa.lab.runs.screens import Screen, Shown
from tests.lab.runs.test_run import do

CORRUPTED: dict[str, Any] = {"rounds": 4, "corruption": "data", "rho": 0.3}


class KeptScreen(Screen):
    """A screen that keeps what it shows."""

    says = ""

    def show(self, shown: Shown) -> None:
        self.says = shown.text


def watch(out: Path, **values: Any) -> tuple[str, dict[str, Any]]:
    """What the bar of a run says last, and the run's results."""
    screen = KeptScreen()
    with Bar("rfa", screen) as bar:
        row = do(out, bar, **values)
    return screen.says, row


@pytest.mark.parametrize("personalize", [False, True])
def test_the_bar_tells_both_accuracies(tmp_path: Path, personalize: bool) -> None:
    says, row = watch(tmp_path, personalize=personalize, **CORRUPTED)
    overall, honest = (f"{row[name]:.1%}" for name in ("test_accuracy", "honest_accuracy"))
    assert overall != honest
    wanted = f"honest {honest} (all {overall})" if personalize else f"{overall} (honest {honest})"
    assert f"accuracy {wanted}, loss" in says


def test_one_accuracy_is_enough_where_all_devices_are_honest(tmp_path: Path) -> None:
    says, row = watch(tmp_path, rounds=2, personalize=True)
    assert f"accuracy {row['test_accuracy']:.1%}, loss" in says


@pytest.mark.parametrize("personalize", [False, True])
def test_the_log_on_flower_tells_both_accuracies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, personalize: bool
) -> None:
    pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")
    from rfa.lab.on_flower.server import LOG, Log  # noqa: PLC0415

    LOG.addHandler(caplog.handler)
    try:
        with caplog.at_level(logging.INFO, logger=LOG.name):
            row = do(tmp_path, Log(), personalize=personalize, **CORRUPTED)
    finally:
        LOG.removeHandler(caplog.handler)
    overall, honest = f"{row['test_accuracy']:.1%}", f"{row['honest_accuracy']:.1%}"
    wanted = f"honest {honest} (all {overall})" if personalize else f"{overall} (honest {honest})"
    assert f"round 4: accuracy {wanted}, loss" in caplog.text
