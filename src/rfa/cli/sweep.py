"""`rfa sweep`: a user's own experiment, many runs for one picture, from one TOML file."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from rfa.cli.options import FILE, many_runs_options, out_option
from rfa.cli.running import do_sweep
from rfa.lab.runs.sweep import read_sweep


@click.command()
@click.argument("file", type=FILE)
@out_option
@many_runs_options
def sweep(file: Path, **options: Any) -> None:
    """Do the runs that FILE describes, several at the same time, and plot them.

    Runs that are done are not repeated, and interrupted runs are resumed. `rfa report` shows the
    results on one page. docs/reproduce.md describes the format of the file.

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
    do_sweep(read_sweep(file), options, f"rfa sweep {shlex.quote(str(file))}")
