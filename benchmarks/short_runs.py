"""Seconds for runs of a second or less: what starting them takes, and what they import."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from rfa.lab import forkserver
from rfa.lab.runs.jobs import do_work, plan_work
from rfa.lab.runs.run import Options
from rfa.lab.runs.run import run as do_run
from rfa.lab.settings.settings import Settings

TASKS = {"digits-linear": 10, "digits-mlp": 4}
"""Tasks, a linear one and a network, and how many runs of each make a sweep."""
ROUNDS, TURNS = 10, 2
COMMANDS = {
    "import rfa": ["-c", "import rfa"],
    "import rfa.lab": ["-c", "import rfa.lab"],
    "rfa.lab.run": ["-c", "from rfa.lab import run"],
    "rfa --help": ["-m", "rfa", "--help"],
    "rfa run --help": ["-m", "rfa", "run", "--help"],
    "import numpy": ["-c", "import numpy"],
}
HEAVY = ("torch", "matplotlib", "pyarrow", "cryptography", "flwr", "rich", "pandas", "scipy")
LOOK = f"""
import json, os, sys
from rfa.lab.attacks.corruption import corrupts_data

@corrupts_data
def look(x, y, attack):
    who = "job" if "rfa.lab.runs.job" in sys.modules else "worker"
    with open(os.environ["SEEN"], "a") as file:
        file.write(json.dumps([who, [name for name in {HEAVY} if name in sys.modules]]) + "\\n")
    return x, y
"""
RUN = f"""
import json, sys
from rfa import lab
settings = dict(corruption="look:look", rho=0.3, rounds=2, progress=False, out="out")
lab.run("digits-linear", **settings)
lab.sweep("digits-linear", seed=[2, 3], **settings)
print(json.dumps([name for name in {HEAVY} if name in sys.modules]))
"""


class Quiet:
    """An observer that keeps quiet."""

    def on_begin(self, settings: Settings) -> None:
        """A run begins."""

    def on_progress(self, settings: Settings, done: float) -> None:
        """A share of a run is done."""

    def on_end(self, settings: Settings, problem: str) -> None:
        """A run has ended."""
        del settings
        assert not problem, problem


def starting() -> Iterator[str]:
    """How long commands and imports take, in fresh processes that take turns."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(5):
        for name, arguments in COMMANDS.items():
            taken[name].append(_process_seconds([sys.executable, *arguments]))
    yield "| | seconds | seconds of processors |"
    yield "|---|---|---|"
    for name, each in taken.items():
        wall, used = (statistics.median(column) for column in zip(*each, strict=True))
        yield f"| `{name}` | {wall:.2f} | {used:.2f} |"
    yield ""


def sweeps() -> Iterator[str]:
    """A sweep of short runs, by copies and by processes that start from nothing, in turns."""
    yield "| | seconds per run | with processes that import everything | ratio |"
    yield "|---|---|---|---|"
    for task, count in TASKS.items():
        runs = [Settings.of(task, seed=seed, rounds=ROUNDS) for seed in range(count)]
        yield _row(f"{task}, sweep of {count} runs", lambda out, runs=runs: _sweep(runs, out))
        yield _row(
            f"{task}, {len(runs) // 2} runs one after another",
            lambda out, runs=runs: _one_by_one(runs[: len(runs) // 2], out),
        )
    yield ""
    yield (
        f"Runs of {ROUNDS} rounds, with all that belongs to them: processes, data, evaluations,"
        " checkpoints, results. The second column starts each process from nothing. The first"
        " copies a process that has imported everything; the turn that starts it does not count."
    )
    yield ""


def imports() -> Iterator[str]:
    """What runs of a linear model import."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "look.py").write_text(LOOK)
        seen = Path(folder) / "seen"
        path = os.pathsep.join(part or str(Path.cwd()) for part in sys.path)
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", RUN],
            cwd=folder,
            env=os.environ | {"SEEN": str(seen), "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        found = {"main": set[str](json.loads(done.stdout)), "job": set[str](), "worker": set[str]()}
        for line in seen.read_text().splitlines():
            who, names = json.loads(line)
            found[who].update(names)
    yield f"Of {', '.join(HEAVY)}, a linear run and a sweep of such import:"
    yield ""
    for who, names in found.items():
        yield f"- the {who} process: {', '.join(sorted(names)) or 'none'}"
    yield ""


def _row(title: str, work: Callable[[Path], float]) -> str:
    """Seconds per run in both ways: the median of some turns, after one that does not count."""
    taken: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(TURNS + 1):
        for forks in (True, False):
            with (
                mock.patch.object(forkserver, "CAN_FORK", forks and forkserver.CAN_FORK),
                tempfile.TemporaryDirectory() as out,
            ):
                seconds = work(Path(out))
            taken[forks] += [seconds] if turn else []
    copies, anew = (statistics.median(taken[forks]) for forks in (True, False))
    return f"| {title} | {copies:.3f} | {anew:.3f} | {anew / copies:.1f} |"


def _sweep(runs: list[Settings], out: Path) -> float:
    options = Options(out)
    start = time.perf_counter()
    do_work(plan_work(runs, options), options, Quiet())
    return (time.perf_counter() - start) / len(runs)


def _one_by_one(runs: list[Settings], out: Path) -> float:
    start = time.perf_counter()
    for settings in runs:
        do_run(settings, Options(out))
    return (time.perf_counter() - start) / len(runs)


def _process_seconds(command: list[str]) -> tuple[float, float]:
    """The time of a process, and that of all processors in it."""
    before, start = os.times(), time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)  # noqa: S603
    wall, after = time.perf_counter() - start, os.times()
    used = after.children_user + after.children_system
    return wall, used - before.children_user - before.children_system


def run() -> Iterator[str]:
    """The whole report, line by line."""
    yield "## Short runs"
    yield ""
    yield from starting()
    yield from sweeps()
    yield from imports()


if __name__ == "__main__":
    for line in run():
        print(line, flush=True)
