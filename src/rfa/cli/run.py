"""`rfa run`: one run, from the paper's settings and the user's."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from rfa.cli.errors import DIVERGED, EPILOG
from rfa.cli.options import (
    FILE,
    GroupedCommand,
    given,
    json_option,
    running_options,
    settings_options,
)
from rfa.lab.settings.files import read_settings, write_settings
from rfa.lab.settings.privacy import implied_on_flower
from rfa.lab.settings.settings import Settings


@click.command(cls=GroupedCommand, epilog=EPILOG)
@click.argument("task", required=False)
@click.option("--config", type=FILE, help="Read settings from a TOML file; options override them.")
@click.option("--save-config", type=FILE, help="Write all settings to a TOML file before the run.")
@json_option
@click.option(
    "--engine",
    type=click.Choice(["lab", "flower"]),
    default="lab",
    show_default=True,
    help="Where devices train: lab (processes on this machine) or flower (nodes of Flower).",
)
@click.option(
    "--federation",
    help="With --engine flower: the federation from Flower's configuration.  [default: simulation]",
)
@click.option(
    "--track",
    multiple=True,
    metavar="TRACKER",
    help="Also log to a tracker: tensorboard:DIR, wandb:PROJECT, mlflow:URI. Repeatable.",
)
@settings_options("task")
@running_options
def run(task: str | None, **options: Any) -> None:
    """Train TASK across devices, some of them corrupted.

    The same settings give the same numbers, to the bit. If a run was interrupted, the same command
    resumes it from its last checkpoint. If it is done, the command shows it and does not repeat it.

    \b
    Under this attack FedAvg fails, and RFA does not (no download needed):
      rfa run digits-linear --corruption omniscient --rho 0.25 --aggregator fedavg
      rfa run digits-linear --corruption omniscient --rho 0.25 --aggregator rfa
    """  # noqa: D301 click reads the backspace
    from rfa.cli.running import do_run  # noqa: PLC0415 what a help page does not need
    from rfa.cli.show import show_run  # noqa: PLC0415
    from rfa.lab.runs.store import row_to_json  # noqa: PLC0415

    values = read_settings(options["config"]) if options["config"] else {}
    values |= given(options) | ({"task": task} if task is not None else {})
    if options["engine"] == "flower":
        values |= implied_on_flower(values)
    settings = Settings.of(**values)
    if options["save_config"]:
        write_settings(settings, options["save_config"])
    if options["federation"] and options["engine"] != "flower":
        msg = "--federation needs --engine flower"
        raise click.UsageError(msg)
    if options["track"] and options["engine"] == "flower":
        msg = "--track does not work with --engine flower: remove one of them"
        raise click.UsageError(msg)
    result = do_run(settings, options, engine=options["engine"], federation=options["federation"])
    if options["as_json"]:
        click.echo(json.dumps(row_to_json(result.row), allow_nan=False))
    else:
        show_run(result.row)
    if result.status == "diverged":
        sys.exit(DIVERGED)
