"""`rfa runs`: list, show and export what the runs left in the store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from rfa.cli.options import FILE, out_option
from rfa.cli.runs_table import runs_lines
from rfa.cli.show import say_labeled, show_run
from rfa.errors import InvalidValueError
from rfa.lab.runs.headline import percent
from rfa.lab.runs.store import DONE, SHOWN, STOPPED, Store, current_status, find_run, row_to_json
from rfa.lab.runs.tables import RESULT_TABLES
from rfa.lab.table import Table as ResultTable

STATUS = ("running", *DONE, STOPPED, "interrupted")
EVALUATIONS = {
    "round": "round",
    "oracle_calls": "calls",
    "test_accuracy": "accuracy",
    "honest_accuracy": "honest",
    "median_device": "median device",
    "train_loss": "train loss",
}
"""The columns of evaluations, and what they are called in the terminal."""
SPENT = {"epsilon_server": "epsilon server", "epsilon_readers": "readers"}
SHARES = ("test_accuracy", "honest_accuracy", "median_device")
"""Columns that are shown as percentages."""
SHORT = 10
"""How many evaluations are shown of a run."""


@click.group(invoke_without_command=True, subcommand_metavar="[COMMAND] [ARGS]...")
@out_option
@click.option("--task", help="Only runs of this task.")
@click.option("--aggregator", help="Only runs with this aggregator, including its parameters.")
@click.option("--corruption", help="Only runs with this corruption.")
@click.option("--rho", type=float, help="Only runs at this corruption level.")
@click.option("--seed", type=int, help="Only runs with this seed.")
@click.option("--status", type=click.Choice(STATUS), help="Only runs with this status.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@click.pass_context
def runs(context: click.Context, out: Path, **options: Any) -> None:
    """List the runs in a folder of results; `show` one or `export` all."""
    if context.invoked_subcommand:
        return
    wanted = options["status"]
    with Store(out, create=False) as store:
        rows = store.runs(**{name: options[name] for name in SHOWN})
    rows = [row | {"status": current_status(out, row)} for row in rows]
    rows = [row for row in rows if wanted in (None, row["status"])]
    if options["as_json"]:
        click.echo(json.dumps([row_to_json(row) for row in rows]))
        return
    if not rows:
        click.echo("no run matches")
        return
    header, *lines = runs_lines(rows, Console().width)
    click.secho(header, bold=True)
    for line in lines:
        click.echo(line)


@runs.command()
@click.argument("name")
@out_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(name: str, out: Path, as_json: bool) -> None:
    """Show the run NAME: its id, its full name, or an unambiguous part of these."""
    with Store(out, create=False) as store:
        row = find_run(store.runs(), name)
        row["status"] = current_status(out, row)
        evaluations = store.table("evaluations", run=row["run"])
    if as_json:
        click.echo(json.dumps(row_to_json(row) | {"evaluations": [_brief(e) for e in evaluations]}))
        return
    show_run(row)
    click.echo(f"\nThe last {min(SHORT, len(evaluations))} evaluations")
    Console(markup=False).print(
        _evaluations(evaluations[-SHORT:], EVALUATIONS | (SPENT if row["privacy"] else {}))
    )
    click.echo("\nSettings")
    for group, values in _grouped(json.loads(row["settings"])).items():
        text = ", ".join(f"{key}={value}" for key, value in values.items())
        say_labeled(f"  {group}", text)


@runs.command()
@click.argument("file", type=FILE)
@click.option(
    "--table",
    type=click.Choice(list(RESULT_TABLES)),
    default="evaluations",
    show_default=True,
    help="The table to export; devices has the accuracy of each device at each evaluation.",
)
@click.option("--last", is_flag=True, help="Only the last round or evaluation of each run.")
@out_option
def export(file: Path, table: str, last: bool, out: Path) -> None:
    """Write a table of results to FILE, which ends in .csv or .parquet.

    Each row has the run, task, aggregator, parameters, corruption, rho and seed.
    """
    writers = {".csv": ResultTable.to_csv, ".parquet": ResultTable.to_parquet}
    if file.suffix not in writers:
        msg = f"{file} must end in .csv or .parquet"
        raise click.UsageError(msg)
    if last and table == "runs":
        msg = "--last needs --table evaluations, rounds or devices: runs has one row per run"
        raise click.UsageError(msg)
    with Store(out, create=False) as store:
        results = RESULT_TABLES[table](store, **({"last": True} if last else {}))
    if not len(results):
        msg = f"there is nothing to export: the table {table} is empty"
        raise InvalidValueError(msg)
    writers[file.suffix](results, file)
    click.echo(f"{len(results)} rows of {table} written to {file}", err=True)


def _evaluations(evaluations: list[dict[str, Any]], columns: dict[str, str]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in columns.values():
        table.add_column(name, justify="right", no_wrap=True)
    for evaluation in evaluations:
        table.add_row(*(_cell(name, evaluation[name]) for name in columns))
    return table


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name in SHARES:
        return percent(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _grouped(settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Settings by their groups; those without a group are first, and called "run"."""
    plain = {key: value for key, value in settings.items() if not isinstance(value, dict)}
    return {"run": plain} | {key: settings[key] for key in settings if key not in plain}


def _brief(evaluation: dict[str, Any]) -> dict[str, Any]:
    accuracies = json.loads(evaluation["device_accuracy"])
    return {name: value for name, value in evaluation.items() if name != "run"} | {
        "device_accuracy": accuracies
    }
