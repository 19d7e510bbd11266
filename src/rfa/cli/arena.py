"""`rfa arena`: attacks against defenses, drawn as a matrix."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console

from rfa.cli.options import (
    GroupedCommand,
    given,
    json_option,
    many_runs_options,
    numbers_of,
    out_option,
    settings_options,
)
from rfa.cli.running import do_sweep
from rfa.lab.datasets.cache import data_dir, locate
from rfa.lab.report.arena import Bout, bouts, gather_arena
from rfa.lab.report.gather import Result
from rfa.lab.report.terminal_table import level_table, to_plain
from rfa.lab.runs.arena import LEVELS, TAKEN, arena_plan, usual_rounds
from rfa.lab.runs.sweep import make_sweep
from rfa.lab.tasks.registry import find_task


@click.command(cls=GroupedCommand)
@click.argument("task")
@click.option(
    "--attack",
    "attacks",
    multiple=True,
    help="An attack, or your own module:function. Repeatable.  [default: all]",
)
@click.option(
    "--defense",
    "defenses",
    multiple=True,
    help="An aggregator, with its own settings if needed: 'rfa:nu=0.5,label=wide RFA'. Repeatable."
    "  [default: all]",
)
@click.option(
    "--level",
    "levels",
    type=float,
    multiple=True,
    default=LEVELS,
    show_default=True,
    help="The fraction of the training data on corrupted devices. Repeatable.",
)
@click.option(
    "--seeds",
    default="1",
    show_default=True,
    callback=numbers_of(int, "1,2,3"),
    help="Seeds, such as 1,2,3.",
)
@out_option
@json_option
@many_runs_options
@settings_options(*TAKEN)
def arena(task: str, **options: Any) -> None:
    """Run every attack on TASK against every defense, and rank the defenses.

    Each attack meets each defense at each level in a run of its own, with the same settings and
    seeds. The worst case of a defense is the attack under which its accuracy is lowest. Runs that
    are done are not repeated, and interrupted runs are resumed.

    \b
      rfa arena glyphs-linear --rounds 30 --devices 100 --devices-per-round 20
      rfa arena glyphs-linear --attack omniscient --attack mine:attack --level 0.2
          --defense fedavg --defense rfa --defense "rfa:nu=0.5,label=wide RFA"
    """  # noqa: D301 click reads the backspace
    name = f"arena-{task.replace(':', '-')}"
    values = {key: list(options[key]) for key in ("attacks", "defenses", "levels", "seeds")}
    settings = {"rounds": usual_rounds(task)} | given(options)
    about = {"title": f"Attacks and defenses: {task}", "tasks": {task: task}}
    plan = make_sweep(name, arena_plan(name, values | about | {"settings": settings}))
    if not options["dry_run"]:
        locate(find_task(task).reader, data_dir(options["data_dir"]))  # or all runs would fail

    def show(results: Sequence[Result]) -> None:
        _show(bouts(plan, results), task, as_json=options["as_json"])

    do_sweep(plan, options, _command(task, values, settings), gather_arena, show)


def _command(task: str, values: dict[str, Any], settings: dict[str, Any]) -> str:
    """The command that does the same again."""
    words = ["rfa", "arena", task]
    for option in ("attack", "defense", "level"):
        words += [word for value in values[f"{option}s"] for word in (f"--{option}", str(value))]
    words += ["--seeds", ",".join(map(str, values["seeds"]))]
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", str(value)]
    return shlex.join(words)


def _show(levels: list[Bout], task: str, *, as_json: bool) -> None:
    if as_json:
        content = {"task": task, "levels": [to_plain(bout) for bout in levels]}
        click.echo(json.dumps(content, allow_nan=False))
        return
    show_levels(levels)


def show_levels(levels: Sequence[Bout]) -> None:
    """Print the defenses at each level, the best in the worst case first."""
    console = Console(markup=False, highlight=False)
    for bout in levels:
        console.print(level_table(bout, console.width))
