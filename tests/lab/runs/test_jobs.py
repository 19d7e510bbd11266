"""Many runs at once: each done once, none lost, whatever happens to the others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rfa import PluginError
from rfa.lab.paper.numbers import COUNTS, TEXTS
from rfa.lab.runs.estimate import RECENT, START, in_words, pace, seconds, total_seconds
from rfa.lab.runs.jobs import do_work, plan_work
from rfa.lab.runs.run import Options, run
from rfa.lab.runs.store import Store
from rfa.lab.runs.sweep import settle
from rfa.lab.settings.settings import Settings


class Notes:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.shares: list[float] = []
        self.ended: dict[str, str] = {}

    def on_begin(self, settings: Settings) -> None:
        self.begun.append(settings.run_name)

    def on_progress(self, settings: Settings, done: float) -> None:
        self.shares.append(done)

    def on_end(self, settings: Settings, problem: str) -> None:
        self.ended[settings.run_name] = problem


def tiny(**values: Any) -> Settings:
    return settle({"task": "tests.tiny:TASK", "rounds": 3, "devices_per_round": 8, **values})


def test_runs_side_by_side_are_those_one_after_another(tmp_path: Path) -> None:
    runs = [tiny(seed=1), tiny(seed=2, personalize=True), tiny(seed=3, worker_momentum=0.5)]
    runs += [Settings.of("digits-mlp", rounds=3)]
    notes = Notes()
    side = Options(tmp_path / "side")
    work = plan_work(runs, side, 2)
    assert (len(work.todo), work.done, work.at_once) == (4, 0, 2)
    assert do_work(work, side, notes) == {}
    assert sorted(notes.ended) == sorted(settings.run_name for settings in runs)
    assert max(notes.shares) == 1.0
    for settings in runs:
        alone = run(settings, Options(tmp_path / "alone", workers=1))
        with Store(tmp_path / "side") as store:
            assert store.runs(run=settings.run_name)[0]["model_sha256"] == alone["model_sha256"]


def test_what_is_done_is_not_done_again_and_twins_once(tmp_path: Path) -> None:
    options = Options(tmp_path)
    do_work(plan_work([tiny()], options), options, Notes())
    work = plan_work([tiny(), tiny(), tiny(seed=2)], options)
    assert ([s.seed for s in work.todo], work.done) == ([2], 1)
    assert len(plan_work([tiny()], Options(tmp_path, fresh=True)).todo) == 1


def test_a_run_that_fails_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    bad, good = tiny(devices_per_round=1000), tiny()
    notes, options = Notes(), Options(tmp_path)
    problems = do_work(plan_work([bad, good], options, 1), options, notes)
    assert list(problems) == [bad.run_name]
    assert "devices_per_round=1000" in problems[bad.run_name]
    assert notes.ended[good.run_name] == ""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_process_that_dies_costs_one_run(tmp_path: Path, workers: int) -> None:
    deadly, good = tiny(corruption="tests.tiny:deadly", rho=0.3), tiny()
    options = Options(tmp_path, workers=workers)
    problems = do_work(plan_work([deadly, good], options, 1), options, Notes())
    assert list(problems) == [deadly.run_name]
    assert "its process ended with code" in problems[deadly.run_name]
    with Store(tmp_path) as store:
        assert store.runs(run=good.run_name)[0]["status"] == "finished"


def test_an_error_in_a_device_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    bad, good = tiny(corruption="tests.tiny:broken", rho=0.5), tiny()
    options = Options(tmp_path, workers=1)
    problems = do_work(plan_work([bad, good], options, 1), options, Notes())
    assert list(problems) == [bad.run_name]
    assert "failed in round 0: RuntimeError: no data for you" in problems[bad.run_name]


def test_what_was_done_with_other_code_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "from tests.tiny import backwards\n"
    (tmp_path / "other_attack.py").write_text(code)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    options, mine = Options(tmp_path / "out"), tiny(corruption="other_attack:backwards", rho=0.2)
    assert do_work(plan_work([mine], options), options, Notes()) == {}
    assert plan_work([mine], options).todo == []
    (tmp_path / "other_attack.py").write_text(code + "# another version\n")
    with pytest.raises(PluginError, match="other_attack has changed since it was imported here"):
        plan_work([mine], options)
    monkeypatch.delitem(sys.modules, "other_attack")  # as in another process
    work = plan_work([mine], options)
    assert work.todo == [mine]
    (problem,) = do_work(work, options, Notes()).values()
    assert "your own code, has changed" in problem
    assert do_work(work, Options(tmp_path / "out", fresh=True), Notes()) == {}


def test_what_an_attack_starts_may_print(tmp_path: Path) -> None:
    loud = tiny(corruption="tests.tiny:loud", rho=0.3)
    options = Options(tmp_path)
    assert do_work(plan_work([loud], options), options, Notes()) == {}


SWEEP = """
seeds = [1, 2]
[settings]
task = "tests.tiny:TASK"
rounds = 4000
devices_per_round = 4
eval_every = 1000
[[lines]]
label = "RFA"
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed_and_interrupted_sweeps_leave_no_process_behind(tmp_path: Path, how: int) -> None:
    file = tmp_path / "long.toml"
    file.write_text(SWEEP)
    heard = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # tests may run unheard
    code = f"import signal; {heard}; from rfa.cli.main import main; main()"
    command = [sys.executable, "-c", code]
    command += ["sweep", str(file), "--out", str(tmp_path / "out"), "-j", "2"]
    process = subprocess.Popen(  # noqa: S603
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, text=True
    )
    _wait(lambda: _rounds(tmp_path / "out") > 0)
    os.kill(process.pid, how)
    _, errors = process.communicate(timeout=60)
    _wait(lambda: not _alive(process.pid))
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert "the same command resumes it" in errors
        assert "Traceback" not in errors


def _rounds(out: Path) -> int:
    if not (out / "runs.sqlite").exists():
        return 0
    with Store(out) as store:
        return max((row["rounds"] or 0 for row in store.runs()), default=0)


def _alive(session: int) -> bool:
    """Whether a process of a session is left, by what /proc says."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z" and int(fields[3]) == session:
            return True
    return False


def _wait(done: Any) -> None:
    for _ in range(600):
        if done():
            return
        time.sleep(0.1)
    pytest.fail("it did not come to that within a minute")


def test_longer_runs_are_thought_to_take_longer() -> None:
    base = settle({"task": "emnist-linear", "rounds": 100})
    more = [
        {"rounds": 200},
        {"devices_per_round": 200},
        {"local_epochs": 9},
        {"personalize": True},
        {"eval_every": 1},
    ]
    for change in more:
        assert seconds(settle({"task": "emnist-linear", "rounds": 100, **change})) > seconds(base)
    assert seconds(settle({"task": "emnist-linear", "rounds": 100, "aggregator": "sgd"})) < seconds(
        base
    )
    assert in_words(3600 * 6.3) == "about 6.3 hours"


def test_the_pace_of_the_machine_is_learned(tmp_path: Path) -> None:
    settings = tiny(rounds=5)
    row = run(settings, Options(tmp_path, workers=1))
    assert pace([]) == 1.0
    assert pace([row | {"seconds": 2 * row["seconds"]}]) == pytest.approx(2 * pace([row]))
    assert pace([row | {"settings": '{"unknown": 1}'}]) == 1.0


def finished(task: str, times: float) -> tuple[Settings, dict[str, Any]]:
    """A run, and its row if it took so many times as long as was thought, but for the start."""
    settings = settle({"task": task, "rounds": 100})
    told = {"task": task, "status": "finished", "rounds": 100, "corrupted": "[]"}
    told["settings"] = json.dumps(settings.to_dict())
    return settings, told | {"seconds": times * (seconds(settings) - START)}


def test_a_slow_machine_makes_rounds_longer_and_not_the_start_of_runs() -> None:
    settings, row = finished("sent140-linear", 8)
    assert total_seconds([settings] * 3, [row]) == pytest.approx(3 * (START + row["seconds"]))
    assert total_seconds([settings], []) == pytest.approx(seconds(settings))


def test_the_pace_is_that_of_the_same_task_and_of_now() -> None:
    tweets, slow = finished("sent140-linear", 8)
    letters, fast = finished("emnist-linear:polarity=ink", 0.5)
    rows = [slow, fast]
    assert total_seconds([letters], rows) == pytest.approx(START + fast["seconds"])
    assert total_seconds([tweets], rows) == pytest.approx(START + slow["seconds"])
    other = settle({"task": "emnist-linear", "rounds": 100})
    assert total_seconds([other], rows) < seconds(other)
    now = [slow] * 10 + [finished("sent140-linear", 1)[1]] * RECENT
    assert total_seconds([tweets], now) == pytest.approx(seconds(tweets))
    failed = [slow | {"status": "diverged"}]
    assert total_seconds([tweets], failed) == pytest.approx(seconds(tweets))


def test_runs_that_were_imported_tell_nothing_about_this_machine(tmp_path: Path) -> None:
    settings = tiny(rounds=5)
    row = run(settings, Options(tmp_path / "there", workers=1))
    known = {name: row[name] for name in (*TEXTS, *COUNTS)}
    with Store(tmp_path / "here") as store:
        store.adopt(settings.run_name, settings, known | {"seconds": 1e6}, [])
        rows = store.runs()
    assert [each["seconds"] for each in rows] == [1e6]
    assert total_seconds([tiny(seed=2)], rows) == pytest.approx(seconds(tiny(seed=2)))


def test_the_estimate_counts_aggregation_attackers_who_try_and_variants_of_a_task() -> None:
    def cost(task: str = "emnist-linear", **given: Any) -> float:
        return seconds(Settings.where_taken(task, rounds=100, **given))

    plain = cost(aggregator="fedavg")
    assert cost(aggregator="nnm") > plain
    attacked: dict[str, Any] = {"corruption": "ipm-optimized", "rho": 0.1}
    once = cost(aggregator="nnm", corruption="ipm", rho=0.1) - plain
    assert cost(aggregator="nnm", **attacked) - plain > 8 * once
    assert cost("emnist-convnet:polarity=ink") == cost("emnist-convnet")
