"""A short run of every target, and what the runner does with what has no name."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")

from rfa.secagg.errors import MessageError, SecAggError, TruncatedError
from tests.fuzz.engine import ACCEPTED, named, play
from tests.fuzz.targets import TARGETS, fuzz, show

INPUTS = {
    "codec": 3000,
    "memory": 1000,
    "device": 300,
    "server": 300,
    "records": 500,
    "strategy": 5,
}
"""What takes a second or so; of the others twenty."""


@pytest.mark.parametrize("name", TARGETS)
def test_everything_is_accepted_or_refused_by_name(name: str) -> None:
    (report,) = fuzz([name], seed=1, inputs=INPUTS.get(name, 20))
    assert not report.failures, report.failures[0][1]
    assert report.inputs == INPUTS.get(name, 20) == sum(report.outcomes.values())
    assert len(report.outcomes) > 1 or name == "strategy", "inputs are all alike"


class Fails:
    """A target that fails in every third input."""

    last: Any = b"input"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def one(self, rng: Random) -> str:
        self.last = rng.randbytes(4)
        if self.last[0] % 3 == 0:
            msg = "has no name"
            raise KeyError(msg)
        return ACCEPTED


def test_what_has_no_name_is_kept_and_comes_again(tmp_path: Path) -> None:
    report = play("fails", Fails, tmp_path, 7, range(30), 60)
    assert report.inputs == 30
    assert report.outcomes[ACCEPTED] + len(report.failures) == 30
    number, text = report.failures[0]
    assert "KeyError: 'has no name'" in text
    again = play("fails", Fails, tmp_path, 7, range(number, number + 1), 60)
    assert again.failures[0][1].splitlines()[-1] == text.splitlines()[-1]
    assert f"{len(report.failures):>9}  accepted" in show(report)


@pytest.mark.parametrize("error", [SecAggError("text"), MessageError("text"), TruncatedError("")])
def test_a_name_of_its_own_and_a_text_are_wanted(error: SecAggError) -> None:
    with pytest.raises(AssertionError):
        named(error)
    assert named(TruncatedError("too short")) == "TruncatedError"
