"""`rfa sweep`: a user's own experiment, many runs for one picture, from one TOML file."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from rfa.cli.options import many_runs_options, out_option
from rfa.cli.running import do_runs, need_lab
from rfa.lab.report.gather import find_results, gather
from rfa.lab.report.report import keep
from rfa.lab.runs.store import Store
from rfa.lab.runs.sweep import Cell, Sweep, cells, read_sweep


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@out_option
@many_runs_options
def sweep(file: Path, out: Path, **options: Any) -> None:
    """Do the runs that FILE describes, several at once, and draw them.

    Runs that are done already are not done again, and interrupted ones go on. `rfa report` shows
    the results on one page. docs/reproduce.md has the form of the file.

    \b
      title = "My attack"
      x = "rho"
      values = [0.0, 0.1, 0.25]
      seeds = [1, 2, 3]
      [settings]
      task = "glyphs-linear"
      corruption = "mine:attack"
      calls = 60
      [[lines]]
      label = "RFA"
      aggregator = "rfa"
    """  # noqa: D301 click reads the backspace
    plan = read_sweep(file)
    runs = list(cells(plan))
    if not options["dry_run"]:
        need_lab()
    problems = do_runs([cell.settings for cell in runs], out, options)
    if not options["dry_run"]:
        _show(plan, runs, out, f"rfa sweep {shlex.quote(str(file))}")
    if problems:
        sys.exit(1)


def _show(plan: Sweep, runs: list[Cell], out: Path, command: str) -> None:
    with Store(out) as store:
        results = find_results(store, runs)
    absent = len(runs) - len(results)
    missing = [f"{absent} of {len(runs)} runs are not done"] if absent else []
    pictures = keep(gather(plan, results, command=command, missing=missing), out)
    console = Console(markup=False, highlight=False)
    for picture in pictures:
        console.print(f"Picture: {picture}", soft_wrap=True)
    console.print(f"Page: rfa report --out {out}", soft_wrap=True)
