"""The commands of the lab: `rfa run`, `rfa tasks`, `rfa tune`."""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from rfa.cli.options import given, settings_options

DIVERGED, LOCKED, INTERRUPTED = 3, 4, 130
OUT = Path("out")

EPILOG = """\b
Exit codes:
  0    the run finished
  1    it failed; the message says why, and starting it again goes on
  2    the command line makes no sense
  3    the run diverged (its results are kept)
  4    another process is doing this very run
  130  it was interrupted; starting it again goes on
"""

how_to_run = [
    click.option(
        "--data-dir",
        type=click.Path(path_type=Path, file_okay=False),
        help="The folder of data sets.  [default: RFA_DATA]",
    ),
    click.option(
        "--out",
        type=click.Path(path_type=Path, file_okay=False),
        default=OUT,
        show_default=True,
        help="The folder of results: runs.sqlite, and checkpoints.",
    ),
    click.option(
        "--workers",
        type=click.IntRange(1),
        help="Worker processes; the numbers do not depend on it.  [default: one a processor]",
    ),
    click.option(
        "--checkpoint-every",
        type=click.IntRange(1),
        default=10,
        show_default=True,
        help="Rounds between two checkpoints: what a kill can cost.",
    ),
    click.option("--fresh", is_flag=True, help="Start anew, whatever is there."),
]


def running_options(command: Any) -> Any:
    """Give a command the options of how to run, which make no difference to the numbers."""
    for option in reversed(how_to_run):
        command = option(command)
    return command


@click.command(epilog=EPILOG)
@click.argument("task", required=False)
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Take settings from a TOML file; options override it.",
)
@click.option(
    "--save-config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write all settings to a TOML file, and run.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end, no more.")
@click.option(
    "--engine",
    type=click.Choice(["lab", "flower"]),
    default="lab",
    show_default=True,
    help="Where devices train: in processes of this machine, or on the nodes of Flower.",
)
@click.option(
    "--federation",
    help="With --engine flower: a connection of Flower's configuration.  [default: simulation]",
)
@settings_options
@running_options
def run(task: str | None, **options: Any) -> None:
    """Train TASK across devices, some of them corrupted.

    A run is decided by its settings; the same settings give the same numbers, to the bit. Started
    again after an interruption it goes on from its last checkpoint; a run that is done is shown,
    not done again.

    \b
    The paper's headline, on data that needs no download:
      rfa run glyphs-linear --aggregator fedavg --corruption omniscient --rho 0.25 --rounds 50
      rfa run glyphs-linear --aggregator rfa    --corruption omniscient --rho 0.25 --rounds 50
    """  # noqa: D301 click reads the backspace
    from rfa.lab.settings import config  # noqa: PLC0415

    with user_errors():
        settings = config.resolve(_collect(task, options))
        if options["save_config"]:
            config.write_toml(settings, options["save_config"])
        if options["federation"] and options["engine"] != "flower":
            msg = "--federation names where Flower runs: give --engine flower, too"
            raise click.UsageError(msg)
        if options["engine"] == "flower":
            row = do_on_flower(settings, options)
        else:
            row = do(settings, options, quiet=options["as_json"])
        if options["as_json"]:
            click.echo(json.dumps(report(row), allow_nan=False))
        else:
            show(row)
    if row["status"] == "diverged":
        sys.exit(DIVERGED)


@click.command()
def tasks() -> None:
    """List the tasks and their settings in the paper."""
    from rfa.lab.tasks.registry import TASKS  # noqa: PLC0415

    console = Console(markup=False, highlight=False)
    for task in TASKS.values():
        values = task.defaults
        console.print(f"{task.name}: {task.title}", soft_wrap=True)
        console.print(
            f"    {task.devices} devices, {values['devices_per_round']} a round, "
            f"{values['local_epochs']} epochs of batches of {values['batch_size']}, "
            f"learning rate {values['learning_rate']}, {values['rounds']} rounds of FedAvg",
            soft_wrap=True,
        )


def do(settings: Any, options: dict[str, Any], *, quiet: bool, label: str = "") -> dict[str, Any]:
    """Do a run with a progress bar, and return its row of the store."""
    from rfa.lab.runs.progress import Bar  # noqa: PLC0415
    from rfa.lab.runs.run import Options, run  # noqa: PLC0415

    how = Options(
        out=options["out"],
        data=options["data_dir"],
        workers=options["workers"] or 0,
        checkpoint_every=options["checkpoint_every"],
        fresh=options["fresh"],
    )
    bar = Bar(label or settings.aggregator, quiet=quiet)
    with bar, contextlib.redirect_stdout(sys.stderr):  # the user's own code may print
        row = run(settings, how, bar)
    if not bar.began:
        click.echo(f"{row['run']} was done before: --fresh does it again", err=True)
    return row


def do_on_flower(settings: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Do a run on Flower, with its log on standard error, and return its row of the store."""
    from rfa.lab.datasets.cache import data_dir  # noqa: PLC0415
    from rfa.lab.on_flower.launch import LOCAL, LaunchError, Where, launch  # noqa: PLC0415

    federation, data = options["federation"] or LOCAL, options["data_dir"]
    where = Where(
        options["out"] / "flower",
        data_dir(data) if federation == LOCAL else data,
        federation,
        fresh=options["fresh"],
    )
    try:
        found = launch(settings, where, lambda line: click.echo(line, err=True))
    except LaunchError as error:
        raise click.ClickException(str(error)) from None
    return found | {"settings": json.dumps(found["settings"])}


def report(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the store as `--json` prints it."""
    settings = json.loads(row["settings"])
    finite = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }
    return finite | {"diverged": row["status"] == "diverged", "settings": settings}


def show(row: dict[str, Any]) -> None:
    """The closing summary of a run."""
    console = Console(markup=False, highlight=False)
    console.print(f"{row['run']}  {row['status']} after {row['rounds']} rounds")
    if row["note"]:
        console.print(f"  data             {row['note']}")
    settings = json.loads(row["settings"])
    anew = ", drawn anew each round" if settings.get("attackers") == "random" else ""
    lines = {
        "corruption": f"{row['corruption']}, rho {row['rho']:g}: "
        f"{row['corrupted_devices']} of {row['devices']} devices{anew}",
        "oracle calls": f"{row['oracle_calls']}",
        "test accuracy": percent(row["test_accuracy"]),
        "  median device": percent(row["median_device"]),
        "  worst tenth": f"{percent(row['worst_tenth'])} (mean of the worst tenth of the devices)",
        "train loss": "-" if row["train_loss"] is None else f"{row['train_loss']:.4f}",
        "dropped updates": f"{row['dropped_updates']}",
        "rejected rounds": f"{row['rejected_rounds']}",
        "time": f"{row['seconds']:.1f} s",
    }
    if row["backdoor"] is not None:
        lines["backdoor"] = f"{percent(row['backdoor'])} of other classes fall for the trigger"
    if settings.get("secure", "off") != "off":
        lines |= secure_lines(row, settings)
    for name, value in lines.items():
        console.print(f"  {name:<16} {value}")


def secure_lines(row: dict[str, Any], settings: dict[str, Any]) -> dict[str, str]:
    """What the secure sum adds to a summary: rounds without a sum, why, and the certificate."""
    lines = {"stopped rounds": f"{row['stopped_rounds']}"}
    if row["stopped"]:
        lines["stopped rounds"] += f" (the last: {row['stopped']})"
        if settings["aggregator"] == "rfa" and settings["start"] == "mean":
            lines["  remedy"] = "--start current keeps the steps before; rfa-one-step asks once"
    if row["certificate"] is not None:
        share = min(row["certificate"], settings["max_share"] or 1.0)
        lines["largest share"] = f"at most {percent(share)} of the last step"
    return lines


def percent(value: float | None) -> str:
    """A share as a percentage, or a dash."""
    return "-" if value is None else f"{value:.1%}"


@contextlib.contextmanager
def user_errors() -> Generator[None]:
    """Turn mistakes and failures into one line and an exit code."""
    from rfa.lab.attacks.corruption import AttackError, NoSuchAttackError  # noqa: PLC0415
    from rfa.lab.datasets.dataset import DataError  # noqa: PLC0415
    from rfa.lab.report.exhibit import ExhibitError  # noqa: PLC0415
    from rfa.lab.runs.checkpoint import CheckpointError  # noqa: PLC0415
    from rfa.lab.runs.lock import LockedError  # noqa: PLC0415
    from rfa.lab.runs.store import StoreError  # noqa: PLC0415
    from rfa.lab.settings.config import ConfigError  # noqa: PLC0415
    from rfa.lab.training.pool import WorkerError  # noqa: PLC0415

    try:
        yield
    except (ConfigError, NoSuchAttackError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    except (
        DataError,
        CheckpointError,
        StoreError,
        WorkerError,
        AttackError,
        ExhibitError,
    ) as error:
        raise click.ClickException(str(error)) from None
    except (OSError, ImportError, sqlite3.Error) as error:
        raise click.ClickException(str(error)) from None
    except LockedError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(LOCKED)
    except KeyboardInterrupt:
        click.echo("interrupted: start it again to go on from its last checkpoint", err=True)
        sys.exit(INTERRUPTED)


def _collect(task: str | None, options: dict[str, Any]) -> dict[str, Any]:
    from rfa.lab.settings.config import read_toml  # noqa: PLC0415

    values = read_toml(options["config"]) if options["config"] else {}
    values |= given(options)
    if task is not None:
        values["task"] = task
    return values
