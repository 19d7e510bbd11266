"""The runs on real data behind docs/results.md: `make results`.

Every run is one `rfa run` command, so an interrupted `make results` goes on where it was, and what
is done already is not done again.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

from rfa.data.cache import load
from rfa.data.dataset import DataError
from rfa.experiments.cli import user_errors
from rfa.experiments.config import resolve, run_name
from rfa.experiments.progress import Bar
from rfa.experiments.run import Options, run
from rfa.experiments.store import Store
from rfa.tasks import find_task

OUT = Path("out/results")
PAGE = Path(__file__).parent.parent / "docs" / "results.md"
SEEDS = (1, 2, 3)
LAST = 5
"""The evaluations at the end of a run over which accuracy is averaged."""


@dataclass(frozen=True)
class Part:
    """A table of results: the same settings with several aggregators."""

    title: str
    settings: dict[str, Any]
    aggregators: tuple[str, ...]
    comment: str = ""
    seeds: tuple[int, ...] = field(default=SEEDS)


ROBUST = ("fedavg", "rfa", "rfa-one-step")
EMNIST = {"task": "emnist-linear", "rounds": 400}
OMNISCIENT = {"corruption": "omniscient", "rho": 0.25}
DATA = {"corruption": "data", "rho": 0.25}
PARTS = (
    Part("EMNIST linear, no corruption", EMNIST, ("fedavg", "rfa")),
    Part("EMNIST linear, omniscient corruption 1/4", EMNIST | OMNISCIENT | {"rounds": 300}, ROBUST),
    Part("EMNIST linear, data corruption 1/4", EMNIST | DATA, ROBUST),
    Part(
        "Sent140 linear, no corruption",
        {"task": "sent140-linear", "rounds": 1000},
        ("fedavg", "rfa"),
    ),
    Part(
        "Shakespeare LSTM, no corruption, 20 local steps a round",
        {
            "task": "shakespeare-lstm",
            "rounds": 120,
            "local_steps": 20,
            "eval_every": 10,
            "eval_examples": 50,
        },
        ("fedavg", "rfa"),
        "Evaluated on at most 50 examples a device.",
        seeds=(1,),
    ),
    Part(
        "EMNIST ConvNet, no corruption, 10 devices a round, one local epoch",
        {
            "task": "emnist-convnet",
            "rounds": 60,
            "devices_per_round": 10,
            "local_epochs": 1,
            "eval_every": 5,
            "eval_examples": 10,
        },
        ("fedavg", "rfa"),
        "Evaluated on at most 10 examples a device.",
        seeds=(1,),
    ),
)


def measure(part: Part) -> Iterator[str]:
    """Do the runs of a part, and yield its table."""
    yield f"## {part.title}"
    yield ""
    note, rows = "", list[str]()
    for aggregator in part.aggregators:
        found = [_one(part, aggregator, seed) for seed in part.seeds]
        note = found[0]["note"]
        rows.append(_row(aggregator, found))
    yield "| aggregator | test accuracy | lowest - highest seed | worst tenth | calls | seconds |"
    yield "|---|---|---|---|---|---|"
    yield from rows
    yield ""
    yield f"The largest class makes {100 * majority(part.settings['task']):.1f} % of the test data."
    yield from (text for text in (part.comment, note and f"Data: {note}.") if text)
    yield ""
    yield "```"
    yield command(part)
    yield "```"
    yield ""


def command(part: Part) -> str:
    """The commands of the part's runs."""
    options = [f"--{name.replace('_', '-')} {value}" for name, value in part.settings.items()]
    flags = " ".join(option for option in options if not option.startswith("--task"))
    flags = flags.replace("--personalize True", "--personalize")
    names, seeds = " ".join(part.aggregators), " ".join(str(seed) for seed in part.seeds)
    return (
        f"for a in {names}; do for s in {seeds}; do\n"
        f"  rfa run {part.settings['task']} {flags} --aggregator $a --seed $s\n"
        "done; done"
    )


def majority(task: str) -> float:
    """The share of the largest class in the test data."""
    population = load(find_task(task).reader)
    rows = [
        population.y[start + train : stop]
        for start, train, stop in zip(
            population.offsets[:-1], population.train, population.offsets[1:], strict=True
        )
    ]
    counts = np.bincount(np.concatenate(rows))
    return float(counts.max() / counts.sum())


def _one(part: Part, aggregator: str, seed: int) -> dict[str, Any]:
    settings = resolve(part.settings | {"aggregator": aggregator, "seed": seed})
    with Bar(f"{part.title}: {aggregator}, seed {seed}") as bar:
        row = run(settings, Options(OUT), bar)
    with Store(OUT) as store:
        evaluations = store.table("evaluations", run=run_name(settings))
    last = [evaluation["test_accuracy"] for evaluation in evaluations[-LAST:]]
    print(part.title, aggregator, seed, row["status"], f"{statistics.mean(last):.4f}", flush=True)
    return row | {
        "mean": row["test_accuracy"] if row["status"] == "diverged" else statistics.mean(last)
    }


def _row(aggregator: str, found: list[dict[str, Any]]) -> str:
    means = [100 * row["mean"] for row in found]
    worst = statistics.mean(100 * row["worst_tenth"] for row in found)
    ended = sum(row["status"] == "diverged" for row in found)
    name = aggregator + (f" (diverged {ended} of {len(found)})" if ended else "")
    calls = round(statistics.mean(row["oracle_calls"] for row in found))
    seconds = statistics.mean(row["seconds"] for row in found)
    return (
        f"| {name} | **{statistics.mean(means):.1f}** | {min(means):.1f} - {max(means):.1f} | "
        f"{worst:.1f} | {calls} | {seconds:.0f} |"
    )


MARK = "<!-- made by `make results`: what follows is replaced -->"
PREFACE = f"""# What the lab finds

{MARK}
"""


def write(tables: list[str]) -> None:
    """Put the tables on the page, after what was written by hand."""
    page = PAGE.read_text() if PAGE.exists() else PREFACE
    kept = page.partition(MARK)[0] if MARK in page else PREFACE.partition(MARK)[0]
    PAGE.write_text(f"{kept}{MARK}\n\n" + "\n".join(tables).rstrip() + "\n")


@click.command()
def main() -> None:
    """Do all runs and write the page."""
    tables: list[str] = []
    for part in PARTS:
        with user_errors():
            try:
                tables += measure(part)
            except DataError as error:
                print(f"{part.title}: left out: {error}", file=sys.stderr)
                continue
        write(tables)
    print(f"written to {PAGE}")


if __name__ == "__main__":
    main()
