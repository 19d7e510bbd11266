"""`rfa arena`: attacks against defenses, drawn as a matrix."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from rfa.cli.options import given, many_runs_options, out_option, settings_options_without
from rfa.cli.running import do_runs, need_lab
from rfa.lab.datasets.cache import data_dir, locate
from rfa.lab.report.arena import bouts, gather_arena
from rfa.lab.report.gather import find_results
from rfa.lab.report.report import keep
from rfa.lab.report.terminal_table import leaders, to_plain
from rfa.lab.runs.arena import LEVELS, TAKEN, arena_plan, usual_rounds
from rfa.lab.runs.store import Store
from rfa.lab.runs.sweep import Cell, Sweep, cells, make_sweep
from rfa.lab.tasks.registry import find_task


def _seeds(_context: Any, _option: Any, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        msg = f"seeds are whole numbers with commas between, as in 1,2,3, not {text!r}"
        raise click.BadParameter(msg) from None


@click.command()
@click.argument("task")
@click.option(
    "--attack",
    "attacks",
    multiple=True,
    help="A corruption, or your own module:function; again for more.  [default: all]",
)
@click.option(
    "--defense",
    "defenses",
    multiple=True,
    help='An aggregator, with settings of its own if need be: "rfa:nu=0.5,label=wide RFA"; again '
    "for more.  [default: all]",
)
@click.option(
    "--level",
    "levels",
    type=float,
    multiple=True,
    default=LEVELS,
    show_default=True,
    help="The share of the training data on corrupted devices; again for more.",
)
@click.option(
    "--seeds", default="1", show_default=True, callback=_seeds, help="Seeds, as in 1,2,3."
)
@out_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end, no more.")
@many_runs_options
@settings_options_without(*TAKEN)
def arena(task: str, out: Path, as_json: bool, **options: Any) -> None:
    """Let attacks on TASK meet defenses, and draw who stands.

    Each attack at each level meets each defense in a run of its own, with the same settings and
    seeds. Runs that are done already are not done again, and interrupted ones go on. The worst case
    of a defense is the attack under which it ends lowest.

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
    runs = list(cells(plan))
    if not options["dry_run"]:
        need_lab()
        locate(find_task(task).reader, data_dir(options["data_dir"]))  # or all runs would fail
    problems = do_runs([cell.settings for cell in runs], out, options)
    if not options["dry_run"]:
        _show(plan, runs, out, _command(task, values, settings), as_json=as_json)
    if problems:
        sys.exit(1)


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


def _show(plan: Sweep, runs: list[Cell], out: Path, command: str, *, as_json: bool) -> None:
    with Store(out) as store:
        results = find_results(store, runs)
    absent = len(runs) - len(results)
    missing = [f"{absent} of {len(runs)} runs are not done"] if absent else []
    pictures = keep(gather_arena(plan, results, command=command, missing=missing), out)
    levels = bouts(plan, results)
    if as_json:
        content = {"task": runs[0].settings.task, "levels": [to_plain(bout) for bout in levels]}
        click.echo(json.dumps(content, allow_nan=False))
        return
    console = Console(markup=False, highlight=False)
    for bout in levels:
        console.print(leaders(bout, console.width))
    for picture in pictures:
        console.print(f"Picture: {picture}", soft_wrap=True)
    console.print(f"Page: rfa report --out {out}", soft_wrap=True)
