"""The command `rfa`: a group that imports the module of a command when that command runs."""

from __future__ import annotations

import importlib
from typing import Any

import click

from rfa.cli.errors import user_errors

COMMANDS = {
    "run": "Train TASK across devices, some of them corrupted.",
    "tasks": "List the tasks and their default settings.",
    "aggregators": "List the aggregators and their parameters.",
    "tune": "Search the learning rate of TASK on held-out training data.",
    "runs": "List the runs in a folder of results; `show` one or `export` all.",
    "data": "List the data sets: their state, size, source and license.",
    "sweep": "Do the runs that FILE describes, several at the same time, and plot them.",
    "arena": "Run every attack on TASK against every defense, and rank the defenses.",
    "report": "Write the results in a folder, or those of RUNS, to one HTML page.",
    "reproduce": "Reproduce the figures and tables of the paper: all, or those in NAMES.",
    "plan": "Plan a federation: how many devices, what it tolerates, what it costs.",
    "verify": "Check receipts offline: does each model follow from the recorded sums?",
    "demo": "Show how FedAvg fails under attack and RFA does not; no download.",
}
"""Each command, in the module of its name, with the first line of its help."""


class LazyGroup(click.Group):
    """The commands of `COMMANDS`; their mistakes and failures end in one line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, from its module."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        return getattr(importlib.import_module(f"rfa.cli.{cmd_name}"), cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command: the one place where errors become messages."""
        with user_errors():
            return super().invoke(ctx)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rfa")
def main() -> None:
    """Robust and private aggregation for federated learning."""
