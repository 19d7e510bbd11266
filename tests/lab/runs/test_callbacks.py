"""Callbacks: they see a run, may stop it, and cannot harm it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa import InvalidTypeError
from rfa.cli.main import main
from rfa.lab.runs.callback import Callback, RunView
from rfa.lab.runs.jobs import plan_work
from rfa.lab.runs.run import Options, run
from rfa.lab.runs.store import Store, current_status
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.rounds import Evaluation, Facts
from tests.lab.runs.test_run import Notes, do, results

SETTINGS: dict[str, Any] = {"corruption": "gaussian", "rho": 0.2, "personalize": True}


class Stop(Callback):
    """Stops a run in the method of a name, after so many rounds."""

    def __init__(self, method: str, after: int = 0, reason: str = "") -> None:
        self.method, self.after, self.reason = method, after, reason

    def on_begin(self, run: RunView) -> None:
        self._stop("on_begin", run)

    def on_round(self, run: RunView, facts: Facts) -> None:
        self._stop("on_round", run)

    def on_evaluation(self, run: RunView, evaluation: Evaluation) -> None:
        self._stop("on_evaluation", run)

    def _stop(self, method: str, run: RunView) -> None:
        if (method, run.round) == (self.method, self.after):
            run.stop(self.reason)


class Events(Callback):
    """Keeps what it is told, in order, and may raise."""

    def __init__(self, wrong: str = "", after: int = 0) -> None:
        self.wrong, self.after, self.events = wrong, after, list[Any]()

    def on_status(self, text: str) -> None:
        self.events.append("on_status")

    def on_begin(self, run: RunView) -> None:
        self._note("on_begin", run)

    def on_round(self, run: RunView, facts: Facts) -> None:
        assert facts.round == run.round
        self._note("on_round", run)

    def on_evaluation(self, run: RunView, evaluation: Evaluation) -> None:
        assert evaluation.round == run.round
        self._note("on_evaluation", run)

    def on_end(self, run: RunView, status: str) -> None:
        self.events.append(status)
        if self.wrong == "on_end":
            msg = "mine"
            raise RuntimeError(msg)

    def _note(self, method: str, run: RunView) -> None:
        self.events.append((method, run.round))
        if (method, run.round) == (self.wrong, self.after):
            msg = "mine"
            raise RuntimeError(msg)


def status_of(out: Path, run: str) -> str:
    with Store(out) as store:
        return current_status(out, store.runs(run=run)[0])


def test_what_is_told_and_when(tmp_path: Path) -> None:
    first, second = Events(), Events()
    do(tmp_path, first, second, rounds=5)
    assert first.events == second.events
    assert first.events[:1] == ["on_status"]
    assert [event for event in first.events if event != "on_status"] == [
        ("on_begin", 0),
        ("on_evaluation", 0),
        ("on_round", 1),
        ("on_round", 2),
        ("on_round", 3),
        ("on_round", 4),
        ("on_evaluation", 4),
        ("on_round", 5),
        ("on_evaluation", 5),
        "finished",
    ]
    again = Events()
    do(tmp_path, again, rounds=5)
    assert set(again.events) <= {"on_status"}, "a run that is done does not begin"


@pytest.mark.parametrize(
    ("stops", "rounds"),
    [
        ([Stop("on_round", 5)], [5]),  # between two evaluations (4, 8) and checkpoints (3, 6)
        ([Stop("on_begin")], [0]),
        ([Stop("on_evaluation", 0)], [0]),
        ([Stop("on_round", 8)], [8]),  # an evaluation is due
        ([Stop("on_evaluation", 4)], [4]),
        ([Stop("on_round", 2), Stop("on_round", 7)], [2, 7]),
        ([Stop("on_round", 2), Stop("on_begin", 2), Stop("on_round", 3)], [2, 2, 3]),
    ],
)
def test_stopped_and_gone_on_with_is_the_same_to_the_bit(
    tmp_path: Path, stops: list[Stop], rounds: list[int]
) -> None:
    whole = do(tmp_path / "whole", **SETTINGS)
    notes = Notes()
    for stop, done in zip(stops, rounds, strict=True):
        row = do(tmp_path / "parts", stop, notes, checkpoint_every=3, **SETTINGS)
        assert (row["status"], row["rounds"]) == ("stopped", done)
        assert status_of(tmp_path / "parts", row["run"]) == "stopped"
    again = do(tmp_path / "parts", notes, checkpoint_every=3, **SETTINGS)
    assert notes.rounds == list(range(1, 13)), "no round is played twice"
    assert [evaluation.round for evaluation in notes.evaluations] == [0, 4, 8, 12]
    assert again["model_sha256"] == whole["model_sha256"]
    assert results(tmp_path / "parts", again["run"]) == results(tmp_path / "whole", whole["run"])


@pytest.mark.parametrize("method", ["on_round", "on_evaluation"])
def test_a_run_whose_last_round_is_done_has_nothing_to_stop(tmp_path: Path, method: str) -> None:
    whole = do(tmp_path / "whole", rounds=10)
    events = Events()
    row = do(tmp_path / "asked", Stop(method, 10), events, rounds=10)
    assert events.events[-2:] == [("on_evaluation", 10), "finished"]
    assert results(tmp_path / "asked", row["run"]) == results(tmp_path / "whole", whole["run"])


def test_a_stopped_run_is_not_done_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = do(tmp_path, Stop("on_round", 3, "good enough"), Stop("on_round", 3, "too late"))
    assert row["stop_reason"] == "good enough"
    settings = Settings.of("tests.tiny:TASK")
    assert plan_work([settings], Options(tmp_path)).todo == [settings]
    for arguments, said in (
        (["runs", "--status", "stopped"], "stopped"),
        (["runs", "show", row["run"]], "stopped after 3 rounds: good enough"),
    ):
        main([*arguments, "--out", str(tmp_path)], standalone_mode=False)
        assert said in capsys.readouterr().out
    with pytest.raises(KeyboardInterrupt):
        do(tmp_path, Notes(interrupt=4))
    with Store(tmp_path) as store:
        assert store.runs()[0]["stop_reason"] is None, "it went on"
    done = do(tmp_path)
    assert (done["status"], done["stop_reason"]) == ("finished", None)
    assert plan_work([settings], Options(tmp_path)).done == 1


@pytest.mark.parametrize(
    ("method", "after"), [("on_begin", 0), ("on_round", 5), ("on_evaluation", 4)]
)
def test_a_callback_that_raises_ends_the_run_and_loses_nothing(
    tmp_path: Path, method: str, after: int
) -> None:
    whole = do(tmp_path / "whole", **SETTINGS)
    before, wrong, behind = Events(), Events(method, after), Events()
    with pytest.raises(RuntimeError, match="mine") as caught:
        do(tmp_path / "parts", before, wrong, behind, checkpoint_every=3, **SETTINGS)
    assert caught.traceback[-1].name == "_note", "the user's own traceback"
    assert [events.events[-1] for events in (before, wrong, behind)] == ["interrupted"] * 3
    assert behind.events[-2] != (method, after)
    assert status_of(tmp_path / "parts", whole["run"]) == "interrupted"
    notes = Notes()
    again = do(tmp_path / "parts", notes, checkpoint_every=3, **SETTINGS)
    assert notes.rounds[0] == after // 3 * 3 + 1, "from the last checkpoint"
    assert results(tmp_path / "parts", again["run"]) == results(tmp_path / "whole", whole["run"])


def test_all_callbacks_are_told_the_end_also_when_one_fails_there(tmp_path: Path) -> None:
    wrong, other = Events("on_end"), Events()
    with pytest.raises(RuntimeError, match="mine"):
        do(tmp_path, wrong, other, rounds=2)
    assert other.events[-1] == "finished"
    with Store(tmp_path) as store:
        assert store.runs()[0]["status"] == "finished", "the run was done all the same"
    other = Events()
    with pytest.raises(KeyboardInterrupt) as caught:
        do(tmp_path, Events("on_end"), Notes(interrupt=1), other, rounds=3)
    assert other.events[-1] == "interrupted"
    assert "RuntimeError('mine')" in caught.value.__notes__[0]


class Meddler(Callback):
    """Tries to change what it is given."""

    tried = 0

    def on_begin(self, run: RunView) -> None:
        self._try(lambda: setattr(run, "settings", None))
        self._try(lambda: setattr(run.settings, "seed", 9))
        self._try(lambda: setattr(run, "round", 9))

    def on_round(self, run: RunView, facts: Facts) -> None:
        assert run.model.dtype == np.float32
        assert run.model.ndim == 1
        run.model[:] = 0
        assert run.model.any()
        assert facts.outcome is not None
        assert facts.outcome.weights is not None
        self._try(facts.outcome.point.fill, 0)
        self._try(facts.outcome.weights.fill, 0)

    def on_evaluation(self, run: RunView, evaluation: Evaluation) -> None:
        self._try(evaluation.device_accuracy.fill, 0)
        self._try(evaluation.is_honest.fill, 0)

    def _try(self, change: Any, *arguments: Any) -> None:
        with pytest.raises((dataclasses.FrozenInstanceError, ValueError, AttributeError)):
            change(*arguments)
        self.tried += 1


def test_what_callbacks_are_given_cannot_change_the_run(tmp_path: Path) -> None:
    meddler = Meddler()
    whole = do(tmp_path / "whole", rounds=3)
    row = do(tmp_path / "meddled", meddler, rounds=3)
    assert meddler.tried == 3 + 2 * 3 + 2 * 2
    assert results(tmp_path / "meddled", row["run"]) == results(tmp_path / "whole", whole["run"])


def test_what_a_view_tells(tmp_path: Path) -> None:
    views: list[tuple[Any, ...]] = []

    class Look(Callback):
        def on_begin(self, run: RunView) -> None:
            views.append((run.name, run.folder, run.started, run.resumed, run.round, run.rounds))

    row = do(tmp_path, Look(), Stop("on_round", 2), rounds=5)
    do(tmp_path, Look(), rounds=5)
    same = (row["run"], tmp_path / row["run"], row["started"])
    assert views == [(*same, False, 0, 5), (*same, True, 2, 5)]


@pytest.mark.parametrize("wrong", [[Events], [print], ["bar"], Events()])
def test_what_is_no_callback_is_refused(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(InvalidTypeError, match="callback"):
        run(Settings.of("tests.tiny:TASK"), Options(tmp_path), wrong)
    assert not list(tmp_path.iterdir())
