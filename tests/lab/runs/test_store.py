"""Settings from files, the store, checkpoints and locks."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa.aggregators import RFA, AdaptiveRadius
from rfa.errors import InvalidValueError
from rfa.lab.lock import LockedError, hold_lock
from rfa.lab.runs.checkpoint import Checkpoint, CheckpointError, load, save
from rfa.lab.runs.store import Store, StoreError, aggregator_parameters, find_run
from rfa.lab.settings.fields import ConfigError
from rfa.lab.settings.files import read_settings, read_toml, write_settings
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.rounds import State
from rfa.lab.simulation.server_optimizer import ServerState
from tests.tiny import HeavyBall


def test_the_papers_settings_are_the_defaults() -> None:
    def values(task: str, *names: str, **given: Any) -> tuple[Any, ...]:
        flat = Settings.of(task, **given).flat
        return tuple(flat[name] for name in names)

    emnist = ("devices_per_round", "batch_size", "local_epochs", "learning_rate", "rounds")
    assert values("emnist-linear", *emnist, aggregator="fedavg") == (100, 50, 5, 0.08, 6000)
    assert values("emnist-linear", *emnist) == (100, 50, 5, 0.08, 2000)
    lstm = ("devices_per_round", "batch_size", "learning_rate", "lr_decay", "lr_decay_every")
    assert values("shakespeare-lstm", *lstm, "rounds") == (50, 10, 0.64, 0.5, 50, 200)
    sgd = ("learning_rate", "batch_fraction", "local_steps", "rounds")
    assert values("emnist-convnet", *sgd, aggregator="sgd") == (0.2, 0.1, 1, 2000)
    sent = ("devices_per_round", "rounds", "learning_rate")
    assert values("sent140-linear", *sent, learning_rate=1) == (50, 1000, 1.0)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "no task is given"),
        ({"task": "mnist"}, "no task is called 'mnist': give one of emnist-linear"),
        ({"task": "emnist-linear", "speed": 3}, "no setting is called 'speed'"),
        ({"task": "emnist-linear", "rounds": 2.5}, "rounds must be a whole number, not 2.5"),
        ({"task": "emnist-linear", "rounds": True}, "rounds must be a whole number, not True"),
        (
            {"task": "emnist-linear", "learning_rate": "fast"},
            "learning_rate must be a number, not 'fast'",
        ),
        ({"task": "emnist-linear", "personalize": 1}, "personalize must be true or false"),
        (
            {"task": "emnist-linear", "aggregator": "x"},
            "no aggregator is called 'x': give one of fedavg",
        ),
        ({"task": "emnist-linear", "aggregator": []}, "aggregator must be text"),
        ({"task": ["emnist-linear"]}, "task must be text"),
    ],
)
def test_settings_that_make_no_sense(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Settings.of(**given)


def test_settings_survive_a_file(tmp_path: Path) -> None:
    given = {"corruption": "ipm:epsilon=2", "rho": 0.25, "partition": "iid", "nu": 1e-05}
    settings = Settings.of("emnist-linear", secure="unmasked", **given)
    write_settings(settings, tmp_path / "deep" / "run.toml")
    assert Settings.of(**read_settings(tmp_path / "deep" / "run.toml")) == settings
    assert "# The fraction of the training data" in (tmp_path / "deep" / "run.toml").read_text()


@pytest.mark.parametrize("content", [b"rounds = ", b"\xff\xfe", b"[a]\nb"])
def test_files_that_are_no_settings(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"run\.toml cannot be read"):
        read_toml(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_toml(tmp_path / "missing.toml")


def test_the_name_of_a_run_is_decided_by_its_settings() -> None:
    one = Settings.of("emnist-linear")
    assert one.run_name == Settings.of("emnist-linear").run_name
    for name, value in (("seed", 2), ("rounds", 3), ("learning_rate", 0.2), ("device", "cuda")):
        assert one.replace(**{name: value}).run_name != one.run_name
    own = Settings.of("tests.tiny:TASK", aggregator="tests.tiny:HeavyBall:nu=0.5").run_name
    assert own.startswith("tests.tiny-TASK.tests.tiny-HeavyBall.")
    assert not set(own) & set(":,=/")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"budget": 4}, {"aggregator": "rfa:budget=4"}),
        ({"aggregator": "rfa:nu=0.5,budget=4"}, {"aggregator": "rfa:budget=4,nu=0.5"}),
        ({"lr_decay_every": 7}, {}),
        ({"local_steps": 3, "local_epochs": 2}, {"local_steps": 3}),
        ({"batch_fraction": 0.5, "batch_size": 2}, {"batch_fraction": 0.5}),
        ({"server_learning_rate": 1.0}, {}),
        ({"corruption": "ipm", "attackers": "random", "rho": 0.0}, {}),
        (
            {"aggregator": "tests.tiny:HeavyBall", "nu": 0.5},
            {"aggregator": "tests.tiny:HeavyBall:nu=0.5"},
        ),
    ],
)
def test_what_gives_the_same_numbers_has_the_same_name(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    one, two = (Settings.of("emnist-linear", **values) for values in (first, second))
    assert one.aggregation == two.aggregation
    assert one.run_name == two.run_name


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"budget": 4}, {"budget": 5}),
        ({"early_stop": 0.0}, {}),
        ({"lr_decay": 0.5, "lr_decay_every": 7}, {"lr_decay": 0.5}),
        ({"server_optimizer": "adam"}, {"server_optimizer": "adam", "server_learning_rate": 1.0}),
        ({"corruption": "backdoor", "rho": 0.0}, {}),
        ({"secure": "unmasked"}, {"secure": "unmasked", "max_share": 0.5}),
        ({"aggregator": "fedavg", "secure": "unmasked"}, {"aggregator": "fedavg"}),
        ({"aggregator": "fedavg"}, {"aggregator": "fedavg:clip_norm=100"}),
        ({"aggregator": "tests.tiny:HeavyBall"}, {"aggregator": "tests.tiny:HeavyBall:nu=0.5"}),
        ({"aggregator": "rfa:groups=2"}, {"aggregator": "rfa-one-step:groups=2"}),
    ],
)
def test_what_may_give_other_numbers_has_another_name(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    one, two = (Settings.of("emnist-linear", **values) for values in (first, second))
    assert one.run_name != two.run_name


def test_a_checkpoint_of_another_aggregator_is_named(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    save(checkpoint(state=State(7, np.zeros(5, np.float32), aggregator=AdaptiveRadius())), path)
    with pytest.raises(CheckpointError, match=r"is not a state of HeavyBall.* --fresh"):
        load(path, HeavyBall())


def checkpoint(**values: Any) -> Checkpoint:
    state = State(7, np.arange(5, dtype=np.float32), ServerState(), 21, 1, 2)
    plain = Checkpoint(state, None, 4.5, 12.25, "digest")
    return dataclasses.replace(plain, **values)


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    assert load(path, RFA()) is None
    server = ServerState(np.ones(5, np.float32), np.zeros(5, np.float32))
    learned = AdaptiveRadius().after(0.2).after(0.9)
    state = dataclasses.replace(checkpoint().state, server=server, aggregator=learned)
    for original in (
        checkpoint(),
        checkpoint(state=state, slots=np.array([-1, 0, 1], np.int8), done="diverged"),
    ):
        save(original, path)
        found: Any = load(path, RFA())
        for name in ("first_loss", "seconds", "data", "done"):
            assert getattr(found, name) == getattr(original, name)
        for name in ("round", "calls", "rejected", "dropped", "stopped", "aggregator"):
            assert getattr(found.state, name) == getattr(original.state, name)
        pairs: list[tuple[Any, Any]] = [
            (found.state.model, original.state.model),
            (found.slots, original.slots),
            (found.state.server.momentum, original.state.server.momentum),
            (found.state.server.squares, original.state.server.squares),
        ]
        for a, b in pairs:
            assert type(a) is type(b)
            assert a is None or a.tobytes() == b.tobytes()
    assert [file.name for file in tmp_path.iterdir()] == ["c.npz"]


@pytest.mark.parametrize("cut", [0, 10, 300, -1])
def test_a_checkpoint_that_is_not_whole_is_named(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "c.npz"
    save(checkpoint(), path)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(CheckpointError, match=r"c\.npz cannot be read .* --fresh.* fresh=True"):
        load(path, RFA())


def test_only_one_process_holds_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = (
        "import sys, pathlib\nfrom rfa.lab.lock import LockedError, hold_lock\n"
        "with hold_lock(pathlib.Path(sys.argv[1]), LockedError()):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    holder = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(LockedError, match="it is busy"),
            hold_lock(path, LockedError("it is busy")),
        ):
            pass
        holder.kill()
    with hold_lock(path, LockedError("it is busy")):
        assert path.exists()
    assert not path.exists()


def test_a_store_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there are no results in"):
        Store(tmp_path, create=False)
    (tmp_path / "runs.sqlite").write_bytes(b"this is no database, whatever its name says" * 30)
    with pytest.raises(StoreError, match="cannot be used: file is not a database"):
        Store(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be used"):
        Store(tmp_path / "file")


@pytest.mark.parametrize("version", [0, 99])
def test_a_store_of_other_tables_is_refused_with_a_remedy(tmp_path: Path, version: int) -> None:
    path = tmp_path / "runs.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as old:
        old.execute("CREATE TABLE runs (run TEXT)")
        old.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(
        StoreError, match=rf"tables of version {version}.* another --out, or delete"
    ):
        Store(tmp_path)
    with contextlib.closing(sqlite3.connect(path)) as old:
        assert old.execute("SELECT count(*) FROM sqlite_master").fetchone() == (1,)
    path.unlink()
    for _ in range(2):  # made, and opened again
        with Store(tmp_path) as store:
            assert store.runs() == []


def test_the_parameters_of_the_aggregator_are_kept_as_text() -> None:
    one = aggregator_parameters(Settings.of("emnist-linear", budget=4))
    two = aggregator_parameters(Settings.of("emnist-linear", aggregator="rfa:budget=4"))
    assert one == two
    assert "budget=4" in one.split(",")
    assert aggregator_parameters(Settings.of("emnist-linear", aggregator="coordinate-median")) == ""
    own = Settings.of("tests.tiny:TASK", aggregator="tests.tiny:HeavyBall:nu=0.5")
    assert aggregator_parameters(own) == "nu=0.5"


RUNS = [{"run": f"digits-linear.{name}"} for name in ("rfa.0123abcdef", "fedavg.fedcba9012")]


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ("digits-linear.rfa.0123abcdef", 0),
        ("0123", 0),
        ("cdef", 0),
        ("23ab", 0),
        ("linear.fed", 1),
        ("fedavg", 1),
        ("fedc", 1),
        ("12", 1),  # an end, which is in the middle of the other
    ],
)
def test_a_run_is_found_by_any_part_of_its_name(part: str, found: int) -> None:
    assert find_run(RUNS, part) is RUNS[found]


@pytest.mark.parametrize(
    ("part", "said"),
    [("digits", "2 runs match"), ("012", "2 runs match"), ("krum", "no run matches")],
)
def test_a_part_of_no_name_and_of_several_is_refused(part: str, said: str) -> None:
    with pytest.raises(InvalidValueError, match=f"{said} '{part}': `rfa runs` lists them"):
        find_run(RUNS, part)


def test_several_processes_write_at_once(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from rfa.lab.runs.store import Store\n"
        "from rfa.lab.settings.settings import Settings\n"
        "for i in range(20):\n"
        "    with Store(pathlib.Path(sys.argv[1])) as store:\n"
        "        store.begin(f'{sys.argv[2]}-{i}', Settings.of('emnist-linear'), {'started': ''})\n"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(n)])  # noqa: S603
        for n in range(4)
    ]
    assert [writer.wait() for writer in writers] == [0] * 4
    with Store(tmp_path) as store:
        assert len(store.runs()) == 80


def test_a_store_that_another_process_is_just_making_is_waited_for(tmp_path: Path) -> None:
    with contextlib.closing(
        sqlite3.connect(tmp_path / "runs.sqlite", isolation_level=None, check_same_thread=False)
    ) as other:
        other.execute("BEGIN IMMEDIATE")  # SQLite does not wait for this before it changes to WAL
        done = threading.Timer(0.3, other.execute, ["COMMIT"])
        done.start()
        with Store(tmp_path) as store:
            assert store.runs() == []
        done.join()


def test_a_store_that_stays_locked_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rfa.lab.runs.store.BUSY", 0.2)
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.sqlite")) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="database is locked"):
            Store(tmp_path)
