"""The options that several commands have: of settings, made from the settings, and of running."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from rfa.lab.settings.settings import CHOICES, FIELDS
from rfa.lab.tasks.registry import TASKS

Command = TypeVar("Command", bound=Callable[..., Any])
Numbers = TypeVar("Numbers", int, float)

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
PAPERS = {
    name
    for task in TASKS.values()
    for settings in (task.defaults, *task.per_aggregator.values())
    for name in settings
}
"""Settings whose default is the task's, from the paper."""
_KINDS: dict[str, Any] = {"int": click.INT, "float": click.FLOAT, "str": click.STRING}

out_option = click.option(
    "--out",
    type=FOLDER,
    default=Path("out"),
    show_default=True,
    help="The folder of results: runs.sqlite, and checkpoints.",
)
data_option = click.option(
    "--data-dir", type=FOLDER, help="The folder of data sets.  [default: RFA_DATA]"
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object at the end, no more."
)
_RUNNING = [
    data_option,
    out_option,
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
_MANY_RUNS = [
    click.option("-j", "--jobs", type=click.IntRange(1), help="Runs at once.  [default: cores]"),
    data_option,
    click.option("--fresh", is_flag=True, help="Do runs anew that are done already."),
    click.option("--dry-run", is_flag=True, help="Say how long it takes, and do nothing."),
]


def running_options(command: Command) -> Command:
    """Give a command the options of how to do a run, which make no difference to the numbers."""
    return _with(_RUNNING, command)


def many_runs_options(command: Command) -> Command:
    """Give a command the options of how to do many runs."""
    return _with(_MANY_RUNS, command)


def settings_options(*left_out: str) -> Callable[[Command], Command]:
    """Give a command one option for each setting but some; what is not given is None."""
    options: list[Callable[[Any], Any]] = [_option(name) for name in FIELDS if name not in left_out]
    return lambda command: _with(options, command)


def _with(options: Sequence[Callable[[Command], Command]], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def numbers_of(kind: type[Numbers], example: str) -> Callable[..., list[Numbers]]:
    """A callback that reads numbers with commas between; none where nothing is given."""

    def parse(_context: click.Context, _option: click.Parameter, text: str | None) -> list[Numbers]:
        try:
            return [kind(part) for part in text.split(",")] if text else []
        except ValueError:
            msg = f"{text!r} is not a list of numbers such as {example}"
            raise click.BadParameter(msg) from None

    return parse


def given(options: dict[str, Any]) -> dict[str, Any]:
    """Those of the options that are settings and were given."""
    return {name: value for name, value in options.items() if name in FIELDS and value is not None}


def _option(name: str) -> Callable[[Command], Command]:
    field = FIELDS[name]
    flag = name.replace("_", "-")
    text = f"{field.metadata['help']}  [default: {_default(name)}]"
    if field.type == "bool":
        return click.option(f"--{flag}/--no-{flag}", name, default=None, help=text)
    kind = click.Choice(CHOICES[name]) if name in CHOICES else _KINDS[str(field.type)]
    return click.option(f"--{flag}", name, type=kind, default=None, help=text)


def _default(name: str) -> str:
    if name in PAPERS:
        return "the paper's, by task"
    value = FIELDS[name].default
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
