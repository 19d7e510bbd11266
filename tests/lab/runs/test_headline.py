"""What is told of a run while it goes: the accuracy over all devices, and over honest ones."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from rfa.lab.runs.progress import Bar
from tests.lab.runs.test_run import do

CORRUPTED: dict[str, Any] = {"rounds": 4, "corruption": "data", "rho": 0.3}


class KeptBar(Bar):
    """A bar that keeps the last evaluation, and what it says of it."""

    evaluation: Any = None

    def on_evaluation(self, evaluation: Any) -> None:
        super().on_evaluation(evaluation)
        self.evaluation = evaluation

    @property
    def says(self) -> str:
        return str(self.tasks[0].fields["facts"])


@pytest.mark.parametrize("personalize", [False, True])
def test_the_bar_tells_both_accuracies(tmp_path: Path, personalize: bool) -> None:
    with KeptBar("rfa") as bar:
        do(tmp_path, bar, personalize=personalize, **CORRUPTED)
    overall, honest = (
        f"{getattr(bar.evaluation, name):.1%}" for name in ("test_accuracy", "honest_accuracy")
    )
    assert overall != honest
    wanted = f"honest {honest} (all {overall})" if personalize else f"{overall} (honest {honest})"
    assert f"accuracy {wanted}, loss" in bar.says


def test_one_accuracy_is_enough_where_all_devices_are_honest(tmp_path: Path) -> None:
    with KeptBar("rfa") as bar:
        do(tmp_path, bar, rounds=2, personalize=True)
    assert f"accuracy {bar.evaluation.test_accuracy:.1%}, loss" in bar.says


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
