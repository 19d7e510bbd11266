"""`rfa runs`: list, show and export what the runs left in the store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from rfa.cli.options import FILE, out_option
from rfa.cli.show import show_run
from rfa.errors import InvalidValueError
from rfa.lab.runs.headline import headline, percent
from rfa.lab.runs.store import DONE, SHOWN, STOPPED, Store, current_status, find_run, row_to_json
from rfa.lab.runs.tables import RESULT_TABLES
from rfa.lab.table import Table as ResultTable

STATUS = ("running", *DONE, STOPPED, "interrupted")
EVALUATIONS = (
    "round",
    "oracle_calls",
    "test_accuracy",
    "honest_accuracy",
    "train_loss",
    "median_device",
)
SPENT = ("epsilon_server", "epsilon_readers")
MARK = "*"
"""Beside an accuracy over honest devices that stands where others have that over all."""
SHORT = 10
"""How many evaluations are shown of a run."""


@click.group(invoke_without_command=True)
@out_option
@click.option("--task", help="Only runs of this task.")
@click.option(
    "--aggregator", help="Only runs with this aggregator, with its parameters if it has any."
)
@click.option("--corruption", help="Only runs with this corruption.")
@click.option("--rho", type=float, help="Only runs at this corruption level.")
@click.option("--seed", type=int, help="Only runs with this seed.")
@click.option("--status", type=click.Choice(STATUS), help="Only runs that are so.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@click.pass_context
def runs(context: click.Context, out: Path, **options: Any) -> None:
    """List the runs in a folder of results; `show` one, or `export` all."""
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
        click.echo("no run fits")
        return
    Console(markup=False).print(_table(rows))


@runs.command()
@click.argument("name")
@out_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(name: str, out: Path, as_json: bool) -> None:
    """Show one run: NAME, or the beginning or end of it that fits no other."""
    with Store(out, create=False) as store:
        row = find_run(store.runs(), name)
        row["status"] = current_status(out, row)
        evaluations = store.table("evaluations", run=row["run"])
    if as_json:
        click.echo(json.dumps(row_to_json(row) | {"evaluations": [_brief(e) for e in evaluations]}))
        return
    show_run(row)
    table = Table(title=f"the last {min(SHORT, len(evaluations))} evaluations")
    columns = (*EVALUATIONS, *SPENT) if row["privacy"] else EVALUATIONS
    for column in columns:
        table.add_column(column.replace("_", " "), justify="right")
    for evaluation in evaluations[-SHORT:]:
        table.add_row(*(_cell(evaluation[column]) for column in columns))
    console = Console(markup=False)
    console.print(table)
    console.print(f"settings: {row['settings']}", soft_wrap=True)


@runs.command()
@click.argument("file", type=FILE)
@click.option(
    "--table",
    type=click.Choice(list(RESULT_TABLES)),
    default="evaluations",
    show_default=True,
    help="What to export; devices has the accuracy of each device at each evaluation.",
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
        msg = "--last is for evaluations, rounds and devices: a run has one row in runs"
        raise click.UsageError(msg)
    with Store(out, create=False) as store:
        results = RESULT_TABLES[table](store, **({"last": True} if last else {}))
    if not len(results):
        msg = f"there is nothing to export: {table} is empty"
        raise InvalidValueError(msg)
    writers[file.suffix](results, file)
    click.echo(f"{len(results)} rows of {table} written to {file}", err=True)


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    words = ("id", "task", "aggregator", "corruption", "status")
    for column in (*words, "seed", "rounds", "accuracy", "honest"):
        fixed = column in ("id", "status", "accuracy", "honest")
        side = "left" if column in words else "right"
        table.add_column(column, justify=side, overflow="fold", no_wrap=fixed)
    for row in rows:
        name = row["run"].rsplit(".", 1)[-1]
        level = f" {row['rho']:g}" if row["rho"] else ""
        cells = (name, row["task"], _how(row), row["corruption"] + level, row["status"])
        first = percent(row[headline(personalized=bool(row["personalized"]))])
        first += MARK if row["personalized"] else ""
        numbers = (row["seed"], row["rounds"], first, percent(row["honest_accuracy"]))
        table.add_row(*(_cell(cell) for cell in cells + numbers))
    if any(row["personalized"] for row in rows):
        table.caption = f"{MARK} personalized: over honest devices"
        table.caption_justify = "left"
    return table


def _how(row: dict[str, Any]) -> str:
    """The aggregator, and how it gets its sums if they are secure, or hold noise."""
    secure = json.loads(row["settings"])["secure"]["mode"]
    how = ["" if secure == "off" else secure, row["privacy"]]
    listed = ", ".join(filter(None, how))
    return row["aggregator"] + (f" ({listed})" if listed else "")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _brief(evaluation: dict[str, Any]) -> dict[str, Any]:
    accuracies = json.loads(evaluation["device_accuracy"])
    return {name: value for name, value in evaluation.items() if name != "run"} | {
        "device_accuracy": accuracies
    }
