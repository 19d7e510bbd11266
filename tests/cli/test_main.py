"""The group of commands: quick to start, its list right, errors in one line with an exit code."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from importlib import import_module
from typing import Any

import click
import pytest
from click.testing import CliRunner

from rfa.cli import main as module
from rfa.cli.main import COMMANDS, LazyGroup, main
from rfa.errors import InvalidTypeError, InvalidValueError, PluginError, RfaError
from rfa.lab.attacks.corruption import AttackError, NoSuchAttackError
from rfa.lab.lock import LockedError
from rfa.lab.settings.fields import ConfigError
from rfa.secagg.errors import ParameterError


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_says_itself(name: str) -> None:
    command: click.Command = getattr(import_module(f"rfa.cli.{name}"), name)
    assert command.name == name
    assert command.help is not None
    assert COMMANDS[name] == command.help.splitlines()[0]


def test_the_group_lists_all_commands_and_knows_no_other() -> None:
    listed = CliRunner().invoke(main, ["--help"]).output
    assert all(f"\n  {name} " in listed for name in COMMANDS)
    unknown = CliRunner().invoke(main, ["walk"])
    assert unknown.exit_code == 2
    assert "No such command 'walk'" in unknown.output


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_no_command(option: str) -> None:
    code = (
        "import sys; from rfa.cli.main import main; main([sys.argv[1]], standalone_mode=False);"
        "print([m for m in sorted(sys.modules) if m.startswith(('rfa.cli.', 'rfa.lab.', 'rich'))])"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code, option], capture_output=True, text=True, check=True
    )
    imported = done.stdout.splitlines()[-1]
    assert imported == "['rfa.cli.errors', 'rfa.cli.main', 'rfa.lab.errors', 'rfa.lab.lock']"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidValueError("what it says"), 2),
        (ConfigError("what it says"), 2),
        (ParameterError("what it says"), 2),
        (NoSuchAttackError("what it says"), 2),
        (PluginError("what it says"), 2),
        (RfaError("what it says"), 1),
        (InvalidTypeError("what it says"), 1),
        (AttackError("what it says"), 1),
        (OSError("what it says"), 1),
        (ImportError("what it says"), 1),
        (sqlite3.OperationalError("what it says"), 1),
        (LockedError("what it says"), 4),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_error_of_any_command_ends_in_one_line(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    result = _fail_with(error, monkeypatch)
    assert result.exit_code == code
    said = "interrupted: the same command resumes it" if code == 130 else "Error: what it says"
    assert result.output.splitlines()[-1] == said


def test_a_mistake_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(_fail_with(KeyError("x"), monkeypatch).exception, KeyError)


def _fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> Any:
    def fail() -> None:
        raise error

    def get_command(*_: object) -> click.Command:
        return click.Command("tasks", callback=fail)

    monkeypatch.setattr(LazyGroup, "get_command", get_command)
    return CliRunner().invoke(module.main, ["tasks"])


def test_a_reader_that_stops_early_is_no_error() -> None:
    command = [sys.executable, "-m", "rfa", "plan"]
    with subprocess.Popen(  # noqa: S603
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()  # as `| head -0` does
        assert process.stderr.read() == b""


def test_one_batch_is_no_batches() -> None:
    shown = CliRunner().invoke(module.main, ["tasks"]).output
    assert "1 batch of 25" in shown
    assert "1 batches" not in shown
    assert "5 epochs with batches of 50" in shown
