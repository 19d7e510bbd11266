"""Ports that are free, and processes that must be gone in the end."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

HOST = "127.0.0.1"
PROGRAMS = Path(sys.executable).parent
MARK = "RFA_FEDERATION"
"""The variable by whose value the processes of a test are known."""


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody listens on."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]


def kill_marked(mark: str) -> list[int]:
    """Kills the processes with this mark in their environment, and tells which there were."""
    wanted, found = f"{MARK}={mark}".encode(), list[int]()
    for entry in Path("/proc").glob("[0-9]*"):  # elsewhere than on Linux there is none
        with suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
                os.kill(found[-1], signal.SIGKILL)
    return found


@contextmanager
def simulation_environment(folder: Path) -> Generator[dict[str, str]]:
    """An environment of its own for Flower's simulation, whose processes are gone at the end."""
    (port,), mark = free_ports(1), str(folder)
    try:
        yield {
            **os.environ,
            MARK: mark,
            "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(port),
            "RFA_HOME": str(folder / "home"),
        }
    finally:
        while kill_marked(mark):
            time.sleep(0.05)
