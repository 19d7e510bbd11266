"""`rfa sweep`: a user's own experiment, many runs for one picture or arena, from one TOML file."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rfa.cli.options import FILE, many_runs_options, out_option
from rfa.cli.running import do_sweep
from rfa.lab.runs.sweep import make_sweep
from rfa.lab.settings.fields import ConfigError
from rfa.lab.settings.files import read_toml

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rfa.lab.report.gather import Result

SWEEP, ARENA = KINDS = ("sweep", "arena")
OF_REPRODUCE = ("order", "beyond", "stand_in")
"""What a file says for `rfa reproduce` alone."""


@click.command()
@click.argument("file", type=FILE)
@out_option
@many_runs_options
def sweep(file: Path, **options: Any) -> None:
    """Do the runs that FILE describes, several at the same time, and plot them.

    Runs that are done are not repeated, and interrupted runs are resumed. `rfa report` shows the
    results on one page. docs/reproduce.md describes the format of the file. With kind = "arena"
    it has attacks and defenses, and they are ranked as by `rfa arena`.

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
    values = read_toml(file)
    kind, name = values.pop("kind", SWEEP), file.stem
    command = f"rfa sweep {shlex.quote(str(file))}"
    if kind not in KINDS:
        msg = f"{file} has kind = {kind!r}, and rfa sweep does {' and '.join(KINDS)}: take "
        raise ConfigError(msg + f"rfa reproduce {name} --from {file.parent}")
    values = {key: value for key, value in values.items() if key not in OF_REPRODUCE}
    if kind == ARENA:
        _do_arena(name, values, options, command)
    else:
        do_sweep(make_sweep(name, values), options, command)


def _do_arena(name: str, values: dict[str, Any], options: dict[str, Any], command: str) -> None:
    """Do the runs of an arena; unless its file says how many, all have the same rounds."""
    from rfa.cli.arena import show_levels  # noqa: PLC0415 other sweeps have no arena
    from rfa.lab.report.arena import bouts, gather_arena  # noqa: PLC0415
    from rfa.lab.runs.arena import arena_plan, usual_rounds  # noqa: PLC0415

    plan = arena_plan(name, values)
    if not {"rounds", "calls"} & set(plan.get("settings", {})):
        plan["panels"] = [
            {"rounds": usual_rounds(panel["task"])} | panel for panel in plan["panels"]
        ]
    sweep = make_sweep(name, plan)

    def show(results: Sequence[Result]) -> None:
        show_levels(bouts(sweep, results))

    do_sweep(sweep, options, command, gather_arena, show)
