"""The options that several commands have: of settings, made from the settings, and of running."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from rfa.lab.settings.fields import Setting
from rfa.lab.settings.parameters import PARAMETERS
from rfa.lab.settings.settings import FIELDS
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
    help="The folder of results: runs.sqlite and checkpoints.",
)
data_option = click.option(
    "--data-dir", type=FOLDER, help="The folder of data sets.  [default: RFA_DATA]"
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print only one JSON object, at the end."
)
_RUNNING = [
    data_option,
    out_option,
    click.option(
        "--workers",
        type=click.IntRange(1),
        help="Worker processes.  [default: one per processor]",
    ),
    click.option(
        "--checkpoint-every",
        type=click.IntRange(1),
        default=10,
        show_default=True,
        help="Rounds between two checkpoints; a kill loses no more than these.",
    ),
    click.option(
        "--fresh", is_flag=True, help="Start the run again, even if it is done or interrupted."
    ),
]
_MANY_RUNS = [
    click.option(
        "-j",
        "--jobs",
        type=click.IntRange(1),
        help="Runs at the same time.  [default: one per core]",
    ),
    data_option,
    click.option("--fresh", is_flag=True, help="Do all runs again, even those that are done."),
    click.option("--dry-run", is_flag=True, help="Only say how long it will take."),
]


def running_options(command: Command) -> Command:
    """Give a command the options of how to do a run, which make no difference to the numbers."""
    return _with(_RUNNING, command)


def many_runs_options(command: Command) -> Command:
    """Give a command the options of how to do many runs."""
    return _with(_MANY_RUNS, command)


def settings_options(*left_out: str) -> Callable[[Command], Command]:
    """Give a command one option for each setting, except some; the default of all is None."""
    known = [*FIELDS.values(), *PARAMETERS.values()]
    options: list[Callable[[Any], Any]] = [
        _option(setting) for setting in known if setting.name not in left_out
    ]
    return lambda command: _with(options, command)


def _with(options: Sequence[Callable[[Command], Command]], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def numbers_of(kind: type[Numbers], example: str) -> Callable[..., list[Numbers]]:
    """Return a callback that parses numbers separated by commas; [] if none are given."""

    def parse(_context: click.Context, _option: click.Parameter, text: str | None) -> list[Numbers]:
        try:
            return [kind(part) for part in text.split(",")] if text else []
        except ValueError:
            msg = f"{text!r} is not a list of numbers such as {example}"
            raise click.BadParameter(msg) from None

    return parse


def given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that are settings and were given."""
    known = {*FIELDS, *PARAMETERS}
    return {name: value for name, value in options.items() if name in known and value is not None}


SECTIONS = {
    "common": "Common options",
    "attack": "Attack",
    "aggregator": "Parameters of the aggregator",
    "training": "Training on devices",
    "server": "Server",
    "secure": "Secure aggregation",
    "privacy": "Differential privacy",
    "evaluation": "Evaluation",
    "": "Execution (does not change the numbers)",
}
"""The sections of a help page, by the group of its options."""
COMMON = (
    *("aggregator", "corruption", "rho", "rounds", "seed", "secure", "epsilon"),
    *("config", "as_json", "out"),
)
"""Options that come first."""


class GroupedCommand(click.Command):
    """A command whose help page has sections, the common options first."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of each group under its title."""
        groups = {known.name: known.group for known in (*FIELDS.values(), *PARAMETERS.values())}
        sections: dict[str, list[tuple[str, str]]] = {group: [] for group in SECTIONS}
        order = {name: place for place, name in enumerate(COMMON)}
        options = [known for known in self.get_params(ctx) if isinstance(known, click.Option)]
        shown = sorted(options, key=lambda known: order.get(known.name or "", 99))
        for parameter in shown:
            record = parameter.get_help_record(ctx)
            if record is not None:
                name = parameter.name or ""
                sections["common" if name in COMMON else groups.get(name, "")].append(record)
        for group, title in SECTIONS.items():
            if sections[group]:
                with formatter.section(title):
                    formatter.write_dl(sections[group])


def _option(setting: Setting) -> Callable[[Command], Command]:
    flag = setting.name.replace("_", "-")
    text = f"{setting.help}  [default: {_default(setting)}]"
    if setting.kind == "bool":
        return click.option(f"--{flag}/--no-{flag}", setting.name, default=None, help=text)
    kind = click.Choice(setting.choices) if setting.choices else _KINDS[setting.kind]
    return click.option(f"--{flag}", setting.name, type=kind, default=None, help=text)


def _default(setting: Setting) -> str:
    if setting.name in PAPERS:
        return "the paper's, by task"
    if setting.name in PARAMETERS:
        return "the aggregator's"
    if setting.kind == "bool":
        return "yes" if setting.default else "no"
    return str(setting.default)
