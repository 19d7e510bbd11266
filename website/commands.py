"""The page of all commands, made from the commands themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from rfa.cli.main import main
from rfa.lab.settings.parameters import PARAMETERS
from rfa.lab.settings.settings import FIELDS
from website.markdown import code, table

INTRO = """# Commands

Generated from the commands. `rfa COMMAND --help` shows the same in a terminal. Commands that train
also take [settings of a run](settings.md) as options: `devices_per_round` is
`--devices-per-round`.
"""
EXITS = "Exit codes:"
SETTINGS = {*FIELDS, *PARAMETERS} - {"task"}  # which is an argument


def commands_page() -> str:
    """The page, as Markdown."""
    return INTRO + "".join(_section(command, names) for names, command in all_commands())


def all_commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with its names, groups before what is in them."""
    yield from _below(("rfa",), main)


def _below(
    names: tuple[str, ...], group: click.Group
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group, info_name=" ".join(names))
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None:
            continue
        yield (*names, name), command
        if isinstance(command, click.Group):
            yield from _below((*names, name), command)


def _section(command: click.Command, names: tuple[str, ...]) -> str:
    name = " ".join(names)
    context = click.Context(command, info_name=name)
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [f"\n## {name}\n", f"```text\n{name} {usage}\n```\n", prose(command.help or "")]
    own, settings = _options(command, context)
    if own:
        parts.append(
            table(
                ("option", "meaning"),
                [(code(flags.removesuffix(" RANGE")), text) for flags, text in own],
            )
        )
    if settings:
        known = len(SETTINGS)
        many = f"All {known}" if settings == known else f"{settings} of the {known}"
        parts.append(f"{many} [settings of a run](settings.md) are options, too.\n")
    if command.epilog:
        parts.append(prose(command.epilog))
    return "\n".join(parts)


def _options(command: click.Command, context: click.Context) -> tuple[list[tuple[str, str]], int]:
    """The options of a command to list, and how many others are settings of a run.

    A command with a few options of such names, as `rfa plan`, gives them meanings of its own.
    """
    options = [known for known in command.params if isinstance(known, click.Option)]
    own = [known for known in options if known.name not in SETTINGS]
    if len(options) - len(own) < len(SETTINGS) / 2:
        own = options
    records = [known.get_help_record(context) for known in own]
    return [record for record in records if record], len(options) - len(own)


def prose(text: str) -> str:
    """A help text as Markdown: what click keeps as it is becomes a block."""
    parts = re.split(r"\n\s*\n", inspect.cleandoc(text))
    return "\n".join(map(_paragraph, parts))


def _paragraph(text: str) -> str:
    if not text.startswith("\b"):
        return " ".join(text.split()) + "\n"
    lines = text.removeprefix("\b").strip("\n").splitlines()
    head = [line for line in lines if not line.startswith("  ")]
    block = [line[2:] for line in lines if line.startswith("  ")]
    return f"{' '.join(head)}\n\n```text\n" + "\n".join(block) + "\n```\n"
