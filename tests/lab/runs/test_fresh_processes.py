"""Runs one after another in one process: each as if it were the first, with nothing to carry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
HEAVY = (
    "torch", "matplotlib", "pyarrow", "cryptography", "flwr", "rich", "click", "pandas", "scipy",
    "PIL", "datasets",
)  # fmt: skip
"""What a run of a linear model has no use for."""
PLUG = """
from rfa.lab.attacks.corruption import corrupts_data

FACTOR = {factor}
runs = set()

@corrupts_data
def plug(x, y, attack):
    runs.add(attack.model.tobytes())  # the first model, which is another for each seed
    return FACTOR * len(runs) * x, y
"""
"""An attack that remembers in how many runs it was."""
RUNS = """
import importlib, json, sys
from pathlib import Path
from rfa import lab

def numbers(out, how, seeds):
    settings = dict(corruption="plug:plug", rho=0.3, rounds=2, out=out, progress=False)
    if how == "sweep":
        results = lab.sweep("digits-linear", seed=seeds, **settings).results
    else:
        results = [lab.run("digits-linear", seed=seed, workers=1, **settings) for seed in seeds]
    return [result.row["model_sha256"] for result in results]

how, seeds, *changed = sys.argv[1:]
found = numbers("out", how, json.loads(seeds))
for path in changed:
    Path("plug.py").write_text(Path(path).read_text())
    importlib.reload(sys.modules["plug"])
    found += numbers("another", how, json.loads(seeds))
print(json.dumps(found))
"""


def start(folder: Path, code: str, *arguments: str, **variables: str) -> Any:
    """What a script prints, in a process of its own."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"} | variables
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def plugged(folder: Path, factor: float) -> Path:
    """A folder with the attack in it."""
    folder.mkdir()
    (folder / "plug.py").write_text(PLUG.format(factor=factor))
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What runs end with that are alone in their process: with the old code, and with the new."""
    where = tmp_path_factory.mktemp("alone")
    folders = [plugged(where / name, factor) for name, factor in (("old", 1.0), ("new", 2.0))]
    return [start(folder, RUNS, "run", f"[{seed}]")[0] for folder in folders for seed in (1, 2, 3)]


@pytest.mark.parametrize("how", ["run", "sweep"])
def test_no_run_meets_the_code_or_the_memory_of_another(
    how: str, tmp_path: Path, alone: list[str]
) -> None:
    """A worker that did a second run would remember the first, and its code as it was then."""
    changed = plugged(tmp_path / "new", 2.0) / "plug.py"
    together = start(plugged(tmp_path / "together", 1.0), RUNS, how, "[1, 2, 3]", str(changed))
    assert together == alone
    assert len(set(alone)) == len(alone)


LOOK = """
import json, os, sys
from rfa.lab.attacks.corruption import corrupts_data

@corrupts_data
def look(x, y, attack):
    who = "job" if "rfa.lab.runs.job" in sys.modules else "worker"
    loaded = sorted(name for name in os.environ["HEAVY"].split() if name in sys.modules)
    with open(os.environ["SEEN"], "a") as file:
        file.write(json.dumps([who, loaded]) + "\\n")
    return x, y
"""
LINEAR = """
import json, os, sys
from rfa import lab
settings = dict(corruption="look:look", rho=0.3, rounds=2, progress=False)
lab.run("digits-linear", out="out", **settings)
lab.sweep("digits-linear", seed=[2, 3], out="out", **settings)
print(json.dumps([name for name in os.environ["HEAVY"].split() if name in sys.modules]))
"""


def test_linear_models_load_nothing_heavy_in_any_process(tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text(LOOK)
    seen = tmp_path / "seen"
    loaded = start(tmp_path, LINEAR, HEAVY=" ".join(HEAVY), SEEN=str(seen))
    assert loaded == [], "the main process"
    looks = [json.loads(line) for line in seen.read_text().splitlines()]
    assert {who for who, _ in looks} == {"worker", "job"}
    for who, loaded in looks:
        assert loaded == [], who
