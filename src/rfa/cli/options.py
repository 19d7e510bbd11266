"""The options that several commands have: of settings, made from the settings, and of running."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from rfa.aggregators.partition import ALL_SCHEDULES
from rfa.aggregators.rfa import STARTS
from rfa.lab.settings.settings import (
    ATTACKERS,
    DEVICE_KINDS,
    FIELDS,
    SECURE,
    SERVER_MODELS,
    SERVER_OPTIMIZERS,
)

Command = TypeVar("Command", bound=Callable[..., Any])

_CHOICES = {
    "attackers": ATTACKERS,
    "start": STARTS,
    "schedule": ALL_SCHEDULES,
    "server_optimizer": SERVER_OPTIMIZERS,
    "device": DEVICE_KINDS,
    "secure": SECURE,
    "server_model": SERVER_MODELS,
}
_KINDS: dict[str, Any] = {"int": click.INT, "float": click.FLOAT, "str": click.STRING}
PAPERS = (
    "rounds",
    "devices_per_round",
    "local_epochs",
    "local_steps",
    "batch_size",
    "batch_fraction",
    "learning_rate",
    "lr_decay",
    "lr_decay_every",
    "eval_every",
)
"""Settings whose default is the task's, from the paper."""

out_option = click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("out"),
    show_default=True,
    help="The folder of results: runs.sqlite, and checkpoints.",
)
data_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder of data sets.  [default: RFA_DATA]",
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


def _with(options: Sequence[Callable[[Command], Command]], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def settings_options(command: Command) -> Command:
    """Give a command one option for each setting but the task; what is not given is None."""
    return settings_options_without("task")(command)


def settings_options_without(*left_out: str) -> Callable[[Command], Command]:
    """The same for a command that has its own way with some of the settings."""
    options: list[Callable[[Any], Any]] = [_option(name) for name in FIELDS if name not in left_out]
    return lambda command: _with(options, command)


def given(options: dict[str, Any]) -> dict[str, Any]:
    """Those of the options that are settings and were given."""
    return {name: value for name, value in options.items() if name in FIELDS and value is not None}


def _option(name: str) -> Callable[[Command], Command]:
    field = FIELDS[name]
    flag = name.replace("_", "-")
    text = f"{field.metadata['help']}  [default: {_default(name)}]"
    if field.type == "bool":
        return click.option(f"--{flag}/--no-{flag}", name, default=None, help=text)
    kind = click.Choice(_CHOICES[name]) if name in _CHOICES else _KINDS[str(field.type)]
    return click.option(f"--{flag}", name, type=kind, default=None, help=text)


def _default(name: str) -> str:
    if name in PAPERS:
        return "the paper's, by task"
    value = FIELDS[name].default
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
