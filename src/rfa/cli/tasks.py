"""`rfa tasks`: the tasks that a run can learn."""

from __future__ import annotations

import inspect

import click

from rfa.cli.show import say_labeled
from rfa.lab.tasks.registry import TASKS

INDENT = 4


@click.command()
def tasks() -> None:
    """List the tasks and their default settings."""
    for task in TASKS.values():
        values, epochs = task.defaults, task.defaults.get("local_epochs", 1)
        steps = values.get("local_steps")
        work = (
            f"{steps} batch{'es' * (steps > 1)} of"
            if steps
            else f"{epochs} epoch{'s' * (epochs > 1)} with batches of"
        )
        click.echo(task.name)
        _say(task.title)
        _say(
            f"{task.devices} devices, {values['devices_per_round']} per round, "
            f"{work} {values['batch_size']}, "
            f"learning rate {values['learning_rate']}, {values['rounds']} rounds of FedAvg"
        )
        if task.vary:
            _, *names = inspect.signature(task.vary).parameters
            _say(f"parameters: {', '.join(names)}")
    click.echo("module:NAME")
    _say("a task of your own, from the working directory")


def _say(text: str) -> None:
    say_labeled("", text, INDENT)
