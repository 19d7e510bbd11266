"""The command `rfa`: a group that imports a command's module when that command is asked for."""

from __future__ import annotations

import importlib
from typing import Any

import click

from rfa.cli.errors import user_errors

COMMANDS = {
    "run": "Train TASK across devices, some of them corrupted.",
    "tasks": "List the tasks and their settings in the paper.",
    "aggregators": "List the aggregators, and the parameters that can follow a name.",
    "tune": "Search the learning rate of TASK on held-out training data, without corruption.",
    "runs": "List the runs in a folder of results; `show` one, or `export` all.",
    "data": "List the data sets: what is here, how large it is, and where it comes from.",
    "sweep": "Do the runs that FILE describes, several at once, and draw them.",
    "arena": "Let attacks on TASK meet defenses, and draw who stands.",
    "report": "Write one HTML page with the results in a folder: all, or RUNS.",
    "reproduce": "Reproduce the paper: all of its figures and tables, or those NAMED.",
    "plan": "Plan a federation: how many devices, what it tolerates, what it costs.",
    "verify": "Check receipts offline: that the model follows from what was summed.",
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
