"""`rfa tune`: search the learning rate as the authors of the paper did.

FedAvg without corruption, on a validation set of 20 % of the training data, over a grid of rates
and decays with a fixed number of rounds; the pair with the highest validation accuracy wins.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from rfa.cli.options import (
    GroupedCommand,
    given,
    json_option,
    numbers_of,
    running_options,
    settings_options,
)
from rfa.cli.running import do_run
from rfa.lab.runs.headline import percent
from rfa.lab.runs.store import row_to_json
from rfa.lab.settings.settings import FIELDS, Settings
from rfa.lab.tasks.registry import find_task

HOLDOUT = 0.2
RATES = numbers_of(float, "0.01,0.1")
STEPS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""The learning rates to try, as multiples of the paper's."""
TUNED = ("learning_rate", "lr_decay", "holdout")
"""Settings that are the search's own."""


@click.command(cls=GroupedCommand)
@click.argument("task")
@click.option(
    "--learning-rates",
    callback=RATES,
    help="Learning rates to try.  [default: around the paper's]",
)
@click.option("--lr-decays", callback=RATES, help="Decays C to try.  [default: 1 and 0.5]")
@json_option
@settings_options("task")
@running_options
def tune(task: str, learning_rates: list[float], lr_decays: list[float], **options: Any) -> None:
    """Search the learning rate of TASK on held-out training data.

    The search uses no attack. Every trial is a run in the folder of results, so that an interrupted
    search continues where it stopped.
    """
    values = {"aggregator": "fedavg", "holdout": HOLDOUT} | given(options) | {"task": task}
    if values.get("corruption", "none") != "none":
        msg = "the learning rate is tuned without an attack: remove --corruption"
        raise click.UsageError(msg)
    horizon = find_task(task).settings_for("rfa").get("rounds")  # the one the authors tuned for
    values = {"rounds": horizon or FIELDS["rounds"].default} | values
    usual = Settings.of(**values).training.learning_rate
    rates = learning_rates or [round(usual * step, 6) for step in STEPS]
    grid = list(itertools.product(rates, lr_decays or [1.0, 0.5]))
    trials: list[dict[str, Any]] = []
    for number, (rate, decay) in enumerate(grid, start=1):
        settings = Settings.of(**values, learning_rate=rate, lr_decay=decay)
        label = f"{number}/{len(grid)} learning rate {rate:g}, decay {decay:g}"
        row = do_run(settings, options, label=label).row
        trials.append(row_to_json(row) | {"learning_rate": rate, "lr_decay": decay})
    best = max(trials, key=lambda trial: (not trial["diverged"], trial["test_accuracy"] or 0))
    if options["as_json"]:
        click.echo(json.dumps({"task": task, "best": best, "trials": trials}))
    else:
        _show(task, trials, best, given(options))


def _show(
    task: str, trials: list[dict[str, Any]], best: dict[str, Any], chosen: dict[str, Any]
) -> None:
    table = Table(title=f"{task}: accuracy on held-out training data")
    for column in ("learning rate", "decay", "rounds", "accuracy", ""):
        table.add_column(column, justify="right")
    for trial in trials:
        mark = "best" if trial is best else "diverged" if trial["diverged"] else ""
        numbers = (f"{trial['learning_rate']:g}", f"{trial['lr_decay']:g}", str(trial["rounds"]))
        table.add_row(*numbers, percent(trial["test_accuracy"]), mark)
    console = Console(markup=False)
    console.print(table)
    kept = {name: value for name, value in chosen.items() if name not in TUNED}
    options = "".join(f" --{name.replace('_', '-')} {value}" for name, value in kept.items())
    options += f" --learning-rate {best['learning_rate']:g} --lr-decay {best['lr_decay']:g}"
    console.print(f"rfa run {task}{options}", soft_wrap=True)
