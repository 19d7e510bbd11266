"""The options of the command line that are settings, made from the settings themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from rfa.lab.settings.settings import (
    AGGREGATORS,
    ATTACKERS,
    DEVICE_KINDS,
    FIELDS,
    SCHEDULES,
    SECURE,
    SERVER_MODELS,
    SERVER_OPTIMIZERS,
    STARTS,
)

Command = TypeVar("Command", bound=Callable[..., Any])

_CHOICES = {
    "aggregator": tuple(AGGREGATORS),
    "attackers": ATTACKERS,
    "start": STARTS,
    "schedule": SCHEDULES,
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


def settings_options(command: Command) -> Command:
    """Give a command one option for each setting but the task; what is not given is None."""
    return settings_options_without("task")(command)


def settings_options_without(*left_out: str) -> Callable[[Command], Command]:
    """The same for a command that has its own way with some of the settings."""

    def give(command: Command) -> Command:
        for name in reversed([name for name in FIELDS if name not in left_out]):
            command = _option(name)(command)
        return command

    return give


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
