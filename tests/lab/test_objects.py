"""Objects that a script or a notebook defines: in runs, like the same code in a module."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rfa import PluginError
from rfa._plugins import define, defined, load_plugin
from rfa._specs import parse_spec
from rfa._texts import text_of
from rfa.lab.attacks.corruption import UpdateCorruption, corrupts_data, corrupts_updates
from rfa.lab.attacks.registry import find_corruption
from rfa.lab.objects import pack, unpack
from rfa.lab.on_flower.launch import Where, check
from rfa.lab.processes import WorkerError
from rfa.lab.runs.jobs import plan_work
from rfa.lab.runs.run import Options, run
from rfa.lab.runs.store import Store
from rfa.lab.settings.settings import Settings
from tests import tiny

ROOT = Path(__file__).parents[2]
OFFSET = "AMOUNT = 0.25\n"
BODY = """
import dataclasses
import numpy as np
import offset
from rfa.aggregators import SumAggregator
from rfa.aggregators.clear import ClearAggregator
from rfa.lab.attacks.corruption import corrupts_data, corrupts_updates
from tests.tiny import TASK

SCALE = 3.0

def helper(rows):
    return -SCALE * rows

def push(times):
    @corrupts_updates
    def backwards(attack, *, extra=1.0):
        return helper(attack.updates[attack.corrupted]) * times * extra
    return backwards

def turn(k):
    @corrupts_data(adaptive=True)
    def shift(x, y, attack):
        return x + offset.AMOUNT, (y + k) % attack.classes
    return shift

class Base(ClearAggregator):
    def order(self, points):
        return np.argsort(np.linalg.norm(points, axis=1))

class Shortest(Base):
    def aggregate(self, points, weights):
        return points[super().order(points)[: (len(points) + 1) // 2]].mean(axis=0)

@dataclasses.dataclass(frozen=True)
class Count:
    rounds: int = 0

@dataclasses.dataclass(frozen=True)
class Patient(SumAggregator[Count]):
    nu: float = 1.0

    def init(self):
        return Count()

    def aggregate(self, oracles, dim, state):
        total = oracles[0](np.zeros(dim), self.nu)
        return min(1.0, 0.3 * (1 + state.rounds)) * self.nu * total.push / total.mass

    def next_state(self, oracles, state):
        return Count(state.rounds + 1)

backwards, shift = push(2), turn(1)
SHORTEST = Shortest()
doubled = dataclasses.replace(TASK, name="doubled", prepare=lambda x: 2 * x)
"""
USE = """
import json, sys
from collections.abc import Callable
from pathlib import Path
from rfa._texts import text_of
from rfa.lab.settings.settings import Settings
from rfa.lab.runs.jobs import do_work, plan_work
from rfa.lab.runs.run import Options, run
from rfa.lab.runs.store import Store

class Quiet:
    def on_begin(self, *_): pass
    def on_progress(self, *_): pass
    def on_end(self, *_): pass

CASES = {
    "attack": dict(corruption=backwards, rho=0.3, aggregator=Patient(nu=0.5)),
    "data": dict(corruption=shift, rho=0.3, aggregator=SHORTEST),
    "secure": dict(aggregator=Patient(), secure="unmasked", honest_per_query=0),
    "task": dict(task=doubled),
}
texts = ("task", "corruption", "aggregator")
cases = {
    name: Settings.of(**{"task": "tests.tiny:TASK", "rounds": 5} | {
        key: text_of(value) if key in texts else value for key, value in case.items()
    })
    for name, case in CASES.items()
}
if __name__ == "__main__":
    out, how = Path(sys.argv[1]), sys.argv[2]
    options = Options(out, workers=2)
    if how == "run":
        for settings in cases.values():
            run(settings, options)
    if how == "sweep":
        assert do_work(plan_work(cases.values(), options, 2), options, Quiet()) == {}
    assert how == "name" or plan_work(cases.values(), options).todo == []
    print(json.dumps({name: settings.run_name for name, settings in cases.items()}))
"""


def start(folder: Path, how: str, *, body: str = BODY, seed: str = "0", **paths: Any) -> Any:
    """What a script prints that defines things and does runs with them."""
    folder.mkdir(exist_ok=True)
    (folder / "offset.py").write_text(OFFSET)
    (folder / "script.py").write_text(body + USE)
    result = subprocess.run(  # noqa: S603
        [sys.executable, "script.py", "out", how],
        cwd=folder,
        env=os.environ
        | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def numbers(folder: Path, names: dict[str, str]) -> Any:
    with Store(folder / "out") as store:
        return {
            case: (
                store.runs(run=name)[0]["model_sha256"],
                [row["test_accuracy"] for row in store.table("evaluations", run=name)],
            )
            for case, name in names.items()
        }


def test_what_a_script_defines_gives_the_numbers_of_a_module(tmp_path: Path) -> None:
    script = numbers(tmp_path / "a", start(tmp_path / "a", "run"))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "plug.py").write_text(BODY)
    named = start(tmp_path / "b", "run", body="from plug import *\n")
    assert numbers(tmp_path / "b", named) == script
    assert len({digest for digest, _ in script.values()}) == len(script)
    swept = start(tmp_path / "c", "sweep")
    assert numbers(tmp_path / "c", swept) == script
    assert not any("__main__" in name for name in named.values())


def test_the_same_definition_has_the_same_name_in_every_process(tmp_path: Path) -> None:
    before = start(tmp_path, "name", seed="1")
    moved = "\n# a remark\n\n" + BODY.replace("def turn", "# another\n\ndef turn")
    assert start(tmp_path, "name", seed="2", body=moved) == before
    for old, new, changed in (
        ("SCALE = 3.0", "SCALE = 3.5", {"attack"}),
        ("extra=1.0", "extra=1.5", {"attack"}),
        ("turn(1)", "turn(2)", {"data"}),
        ("linalg.norm(points", "linalg.norm(-points", {"data"}),
        ("2 * x", "3 * x", {"task"}),
        ("0.3 * (1", "0.4 * (1", {"attack", "secure"}),
    ):
        assert BODY.count(old) == 1
        after = start(tmp_path, "name", body=BODY.replace(old, new))
        assert {case for case in before if before[case] != after[case]} == changed, old


def settings_of(**values: Any) -> Any:
    return Settings.of("tests.tiny:TASK", rounds=2, **values)


def rows(attack: Any) -> Any:
    return attack.updates[attack.corrupted]


def attack_by(scale: float) -> UpdateCorruption:
    forge: Callable[[Any], Any] = lambda attack: scale * rows(attack)  # noqa: E731
    return corrupts_updates(forge)


def test_other_closures_and_lambdas_never_share_a_run() -> None:
    attacks = [attack_by(1.0), attack_by(2.0), attack_by(2.0)]
    negative: Callable[[Any], Any] = lambda attack: -rows(attack)  # noqa: E731
    positive: Callable[[Any], Any] = lambda attack: +rows(attack)  # noqa: E731
    attacks += [corrupts_updates(negative), corrupts_updates(positive)]
    names = [settings_of(corruption=text_of(attack), rho=0.3).run_name for attack in attacks]
    assert names[1] == names[2]
    assert len(set(names)) == 4


def test_texts_of_objects() -> None:
    @corrupts_data
    def local(x: Any, y: Any, attack: Any) -> Any:
        return x, y

    text = text_of(local)
    assert text.startswith("__main__:local@")
    assert parse_spec(f"{text}:scale=2").name == text
    assert find_corruption(text, {}) is local
    assert text_of("alie") == "alie"
    assert text_of(tiny.backwards) == "tests.tiny:backwards"
    assert text_of(tiny.TASK) == "tests.tiny:TASK"
    assert text_of(attack_by) == f"{__name__}:attack_by"
    assert text_of(attack_by(1)).startswith("__main__:lambda@")


def test_what_its_module_has_no_more_is_not_named_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before, name = tiny.backwards, "backwards"
    for other, module in list(sys.modules.items()):  # another test may have left a module with it
        if module is not tiny and getattr(module, "__dict__", {}).get(name) is before:
            monkeypatch.delitem(sys.modules, other)
    monkeypatch.setattr(tiny, name, attack_by(2.0))
    text = text_of(before)
    assert text.startswith("__main__:backwards@")
    assert load_plugin(text, UpdateCorruption, "an attack") is before


def test_what_changed_since_it_was_given_is_refused(tmp_path: Path) -> None:
    scale = [1.0]
    forge: Callable[[Any], Any] = lambda attack: scale[0] * rows(attack)  # noqa: E731
    attack = corrupts_updates(forge)
    settings = settings_of(corruption=text_of(attack), rho=0.3)
    scale[0] = 2.0
    with pytest.raises(PluginError, match=r"has changed since it was given.*give it again"):
        run(settings, Options(tmp_path))
    with pytest.raises(PluginError, match="has changed since it was given"):
        pack([settings.attack.corruption])
    assert text_of(attack) != settings.attack.corruption


def test_a_text_of_another_process_says_what_to_do(tmp_path: Path) -> None:
    text = "__main__:backwards@0123456789"
    with pytest.raises(ValueError, match=r"notebook or a script.*put it into a module"):
        run(settings_of(corruption=text, rho=0.3), Options(tmp_path))
    with pytest.raises(PluginError, match="give the object itself from there"):
        settings_of(aggregator=text)


def test_a_store_with_runs_of_a_notebook_serves_others(tmp_path: Path) -> None:
    """How long others take is learned from all runs of a store."""
    out = tmp_path / "out"
    start(tmp_path, "run")
    assert len(plan_work([settings_of()], Options(out)).todo) == 1


def test_nothing_defined_goes_to_flower() -> None:
    settings = settings_of(corruption=text_of(attack_by(1.5)), rho=0.3)
    with pytest.raises(ValueError, match="code does not travel to the nodes"):
        check(settings, Where(Path("out")))


@dataclasses.dataclass(frozen=True)
class Stuck(UpdateCorruption):
    """An attack that cannot be sent, or not be made where it arrives."""

    sends: bool = False

    def __reduce__(self) -> Any:
        if not self.sends:
            msg = "no way out"
            raise TypeError(msg)
        return int, ("no number",)

    def __fingerprint__(self) -> Any:
        return self.sends


def test_what_cannot_be_sent_is_named(tmp_path: Path) -> None:
    stuck = Stuck(tiny.backwards.forge)
    settings = settings_of(corruption=define(stuck, "stuck"), rho=0.3)
    with pytest.raises(PluginError, match=r"__main__:stuck@.* cannot be sent .*no way out.*module"):
        run(settings, Options(tmp_path, workers=1))
    lost = define(dataclasses.replace(stuck, sends=True), "lost")
    settings = settings_of(corruption=lost, rho=0.3)
    with pytest.raises(WorkerError, match=r"__main__:lost@.* cannot be made in a worker process"):
        run(settings, Options(tmp_path, workers=1))


def test_what_is_received_keeps_its_text_and_is_sent_on_as_it_came() -> None:
    text = text_of(attack_by(7.0))
    packed = pack([text, "alie:z=2"])
    assert list(packed) == [text]
    other = text[:-10] + "0" * 10
    unpack({other: packed[text]})
    assert text_of(defined(other)) == other
    assert pack([f"{other}:a=1"]) == {other: packed[text]}


def test_pickle_is_used_in_a_single_place() -> None:
    """The secure sum, Flower, checkpoints and stores have no use for it."""
    users = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "rfa").rglob("*.py")
        if re.search(r"(import|module\(\W*)\s*(cloud)?pickle|from (cloud)?pickle", path.read_text())
    }
    assert users == {"rfa/lab/objects.py"}
