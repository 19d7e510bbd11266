"""`rfa run --engine flower`: build the app of a run, start it with `flwr run`, and take its result.

For the local simulation Flower keeps a SuperLink in the background, as after any `flwr run`. In a
named federation, every node and the machine of the SuperLink need rfa and the data of the task.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rfa._plugins import is_defined_here
from rfa.errors import InvalidValueError
from rfa.lab.errors import LabError
from rfa.lab.objects import names_of
from rfa.lab.settings.settings import Settings

LOCAL = "local"
"""Flower's name of the local simulation."""
DONE, FAILED = "RFA-DONE ", "RFA-FAILED "
"""What begins the last line of a run."""
STARTED = re.compile(r"Successfully started run (\d+)")
MODULE = """from rfa.lab.on_flower.client import app as client_app
from rfa.lab.on_flower.server import app as server_app

__all__ = ["client_app", "server_app"]
"""
PROJECT = """[project]
name = "rfa-lab"
version = "1.0.0"
description = "A run of the lab of rfa"
license = {{ file = "LICENSE" }}
dependencies = ["rfa[flower,lab]"]

[tool.flwr.app]
publisher = "rfa"

[tool.flwr.app.components]
serverapp = "rfa_lab.apps:server_app"
clientapp = "rfa_lab.apps:client_app"

[tool.flwr.app.config]
{config}
"""


class LaunchError(LabError):
    """A run on Flower failed; the message says why."""


@dataclass(frozen=True)
class Where:
    """Where a run on Flower is done.

    Attributes:
        out: the folder of results, on the machine of the ServerApp.
        data: the folder of data sets on all machines; by default RFA_DATA on each.
        federation: the name of a connection in Flower's configuration.
        timeout: seconds to wait for the answer of a node.
        fresh: do the run again, even if it is done.
    """

    out: Path
    data: Path | None = None
    federation: str = LOCAL
    timeout: float = 600.0
    fresh: bool = False


def launch(settings: Settings, where: Where, tell: Callable[[str], None]) -> dict[str, Any]:
    """Do a run on Flower, and return its report.

    Args:
        settings: the settings.
        where: where it is done.
        tell: is called with each line of the log of Flower.

    Raises:
        LaunchError: if it cannot be done.
        ValueError: if Flower cannot run such settings.
    """
    check(settings, where)
    with tempfile.TemporaryDirectory(prefix="rfa-flower-") as folder:
        project = Path(folder) / "rfa-lab"
        build(settings, where, project)
        command = _command(settings, where, project)
        return _follow(command, where.federation, tell)


def check(settings: Settings, where: Where) -> None:
    """See that Flower is there, and can run such settings.

    Raises:
        LaunchError, ValueError: if not.
    """
    if settings.secure.mode == "unmasked":
        msg = "secure=unmasked is arithmetic in one process: on Flower give secure=on, or off"
        raise InvalidValueError(msg)
    if settings.attack.sybils:
        msg = f"sybils={settings.attack.sybils} are no nodes of Flower: run them in the lab"
        raise InvalidValueError(msg)
    for name in filter(is_defined_here, names_of(settings)):
        msg = f"{name!r} was defined in a notebook or a script, and code does not travel to the "
        msg += "nodes of a federation: put it into a module that they have, and give module:NAME"
        raise InvalidValueError(msg)
    if importlib.util.find_spec("flwr") is None:
        msg = "Flower is not installed: pip install 'rfa[flower]'"
        raise LaunchError(msg)
    if where.federation == LOCAL and importlib.util.find_spec("ray") is None:
        msg = (
            "the local simulation of Flower needs Ray: pip install 'flwr[simulation]', or name a "
            "federation with --federation"
        )
        raise LaunchError(msg)


def build(settings: Settings, where: Where, project: Path) -> None:
    """Write the app of a run into a folder."""
    package = project / "rfa_lab"
    package.mkdir(parents=True)
    values = {
        "settings": json.dumps(settings.to_dict()),
        "out": str(where.out.resolve()),
        "data-dir": str(where.data.resolve()) if where.data else "",
        "timeout": float(where.timeout),
        "fresh": where.fresh,
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    (project / "pyproject.toml").write_text(PROJECT.format(config="\n".join(lines)))
    (project / "LICENSE").write_text("Apache-2.0\n")
    (project / "README.md").write_text("A run of the lab of rfa.\n")
    (package / "__init__.py").write_text("")
    (package / "apps.py").write_text(MODULE)


def _command(settings: Settings, where: Where, project: Path) -> list[str]:
    command = ["flwr", "run", str(project), where.federation, "--stream"]
    if where.federation == LOCAL:
        nodes = f"num-supernodes={settings.training.devices_per_round} client-resources-num-cpus=1"
        command += ["--federation-config", nodes]
    return command


def _follow(command: list[str], federation: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Start `flwr run`, pass its log on, and find the result in it; stop the run if interrupted."""
    started: list[str] = []

    def listen(line: str) -> None:
        started.extend(STARTED.findall(line))
        tell(line)

    with subprocess.Popen(  # noqa: S603 our own command
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=_environment()
    ) as process:
        try:
            return _result(process.stdout or (), listen)
        except KeyboardInterrupt:
            if started:
                _stop(["flwr", "stop", started[0], federation], tell)
            raise


def _stop(command: list[str], tell: Callable[[str], None]) -> None:
    """Stop a run, whatever else is pressed meanwhile."""
    tell(f"stopping the run: {' '.join(command)}")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        subprocess.run(command, env=_environment(), check=False, timeout=60)  # noqa: S603
    finally:
        signal.signal(signal.SIGINT, before)


def _environment() -> dict[str, str]:
    """Return the environment of the commands of Flower: those of this Python only."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "PYTHONUNBUFFERED": "1",
    }


def _result(lines: Iterable[str], tell: Callable[[str], None]) -> dict[str, Any]:
    """Return the content of the last line of a run.

    Raises:
        LaunchError: if the run failed.
    """
    for raw in lines:
        line = raw.rstrip()
        if DONE in line:
            return json.loads(line[line.index(DONE) + len(DONE) :])
        if FAILED in line:
            raise LaunchError(json.loads(line[line.index(FAILED) + len(FAILED) :]))
        tell(line)
    msg = "the run ended without a result: Flower's log says why"
    raise LaunchError(msg)
