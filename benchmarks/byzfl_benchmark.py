"""ByzFL's benchmark by rfa and by byzfl in turns: accuracies cell by cell, and seconds of both.

    python -m benchmarks.byzfl_benchmark            # some 25 minutes of one processor
    python -m benchmarks.byzfl_benchmark --quick    # half a minute: does it work?

The runs are those of experiments/byzfl.toml. Those that docs/byzfl/numbers.csv has are not done
again, so that what was interrupted goes on; `--page` writes docs/byzfl.md from it.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.byzfl_page import write_page
from benchmarks.byzfl_runs import Course, offer_model, run_byzfl
from rfa.lab import load_run
from rfa.lab.datasets.cache import data_dir
from rfa.lab.paper.reproduce import find_experiments
from rfa.lab.runs.run import Options
from rfa.lab.runs.run import run as do_run
from rfa.lab.runs.sweep import Cell
from rfa.lab.tasks.registry import find_task
from rfa.lab.training.devices import Devices
from rfa.lab.training.pool import one_blas_thread

DOCS = Path(__file__).parents[1] / "docs"
NUMBERS = DOCS / "byzfl" / "numbers.csv"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Row:
    """One run, done twice. Accuracies in per cent at the end and at best, seconds of processor."""

    task: str
    rounds: int
    seed: int
    corrupted: int
    gamma: str
    attack: str
    rfa: float
    byzfl: float
    rfa_best: float
    byzfl_best: float
    rfa_seconds: float
    byzfl_seconds: float

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells it from others."""
        return (self.task, self.rounds, self.seed, self.corrupted, self.gamma, self.attack)


def read_rows(path: Path) -> list[Row]:
    """The rows of a file, if there is one."""
    if not path.exists():
        return []
    kinds = {field.name: field.type for field in dataclasses.fields(Row)}
    casts: dict[Any, Any] = {"str": str, "int": int, "float": float}
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Row(**{name: casts[kinds[name]](text) for name, text in entry.items()})
            for entry in csv.DictReader(file)
        ]


def append(row: Row, path: Path) -> None:
    """Add a row, by one write, so that two processes may do it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = [f"{value:.4f}" if isinstance(value, float) else value for value in _values(row)]
    head = "" if path.exists() else ",".join(field.name for field in dataclasses.fields(Row)) + "\n"
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(head + ",".join(map(str, values)) + "\n")


def _values(row: Row) -> tuple[Any, ...]:
    return dataclasses.astuple(row)


def do_cell(cell: Cell, out: Path) -> Row:
    """Do a run by rfa, then by byzfl."""
    settings = cell.settings
    devices = _devices(cell)
    ours = _run_rfa(cell, out)
    theirs = run_byzfl(devices)
    return Row(
        task=settings.task,
        rounds=settings.rounds,
        seed=settings.seed,
        corrupted=settings.attack.sybils,
        gamma=cell.line,
        attack=cell.panel,
        rfa=ours.last,
        byzfl=theirs.last,
        rfa_best=ours.best,
        byzfl_best=theirs.best,
        rfa_seconds=ours.seconds,
        byzfl_seconds=theirs.seconds,
    )


def _devices(cell: Cell) -> Devices:
    settings, task = cell.settings, find_task(cell.settings.task)
    population = task.load(
        data_dir(None),
        partition=settings.training.partition,
        devices=settings.training.devices,
    )
    devices = Devices(settings, task, population)
    offer_model(devices.dim // devices.learner.classes, devices.learner.classes)
    return devices


def _run_rfa(cell: Cell, out: Path) -> Course:
    """A run of the lab in this process, with all that belongs to it: evaluations, checkpoint."""
    options = Options(out, checkpoint_every=cell.settings.rounds, fresh=True, in_process=True)
    start = time.process_time()
    with one_blas_thread():
        row = do_run(cell.settings, options)
    seconds = time.process_time() - start
    table = load_run(row["run"], out).evaluations
    pairs = zip(table["round"], table["test_accuracy"], strict=True)
    return Course({int(t): 100 * float(accuracy) for t, accuracy in pairs}, seconds)


def do_all(cells: Iterable[Cell], done: Iterable[Row], path: Path) -> None:
    """Do the runs that are not done yet, and keep each as soon as it is."""
    known = {row.key for row in done}
    with tempfile.TemporaryDirectory() as out:
        for cell in cells:
            settings = cell.settings
            names = (settings.attack.sybils, cell.line, cell.panel)
            if (settings.task, settings.rounds, settings.seed, *names) in known:
                continue
            row = do_cell(cell, Path(out))
            append(row, path)
            print(
                f"seed {row.seed}, {row.corrupted} corrupted, {row.gamma}, {row.attack}: "
                f"rfa {row.rfa:.1f} % in {row.rfa_seconds:.1f} s, "
                f"byzfl {row.byzfl:.1f} % in {row.byzfl_seconds:.1f} s",
                flush=True,
            )


def main() -> None:
    """Do the runs, and write the page unless it is a trial."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small version, kept nowhere")
    parser.add_argument(
        "--share", type=int, nargs=2, metavar=("I", "N"), help="every N-th run from I on, no page"
    )
    parser.add_argument("--page", action="store_true", help="no runs: the page of what there is")
    given = parser.parse_args()
    if any(os.environ.get(name) != "1" for name in THREADS):  # libraries read it when they load
        os.environ |= dict.fromkeys(THREADS, "1")
        command = [sys.executable, "-m", "benchmarks.byzfl_benchmark", *sys.argv[1:]]
        os.execv(sys.executable, command)  # noqa: S606 this script
    scale = "quick" if given.quick else "short"
    ready = find_experiments(["byzfl"], scale, None)[0].with_data
    first, step = given.share or (0, 1)
    cells = ready.cells[first::step]
    if given.quick:
        with tempfile.TemporaryDirectory() as folder:
            do_all(cells, (), Path(folder) / "numbers.csv")
        return
    if not given.page:
        do_all(cells, read_rows(NUMBERS), NUMBERS)
    if not given.share:
        write_page(DOCS, read_rows(NUMBERS), ready.cells)


if __name__ == "__main__":
    main()
