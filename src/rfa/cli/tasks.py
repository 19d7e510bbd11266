"""`rfa tasks`: what can be learned."""

from __future__ import annotations

import inspect

import click
from rich.console import Console

from rfa.lab.tasks.registry import TASKS


@click.command()
def tasks() -> None:
    """List the tasks and their settings in the paper."""
    console = Console(markup=False, highlight=False)
    for task in TASKS.values():
        values = task.defaults
        steps = values.get("local_steps")
        work = f"{steps} batches" if steps else f"{values['local_epochs']} epochs of batches"
        console.print(f"{task.name}: {task.title}", soft_wrap=True)
        console.print(
            f"    {task.devices} devices, {values['devices_per_round']} a round, "
            f"{work} of {values['batch_size']}, "
            f"learning rate {values['learning_rate']}, {values['rounds']} rounds of FedAvg",
            soft_wrap=True,
        )
        if task.vary:
            _, *names = inspect.signature(task.vary).parameters
            console.print(f"    parameters: {', '.join(names)}", soft_wrap=True)
