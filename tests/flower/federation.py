"""A real Flower deployment on loopback: a SuperLink, SuperNodes, and runs of an app on them.

    with Federation(tmp_path, nodes=5, tls=True) as federation:
        outcome = federation.run(app, timeout=300, rounds=1)
        assert outcome.completed, outcome.text

Every process writes to a log of its own in the folder, and none outlives the `with`. An error that
leaves it takes the end of every log along.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from tests.flower.certificates import NodeKey, ServerFiles, write_node_key, write_server_files
from tests.flower.processes import HOST, MARK, PROGRAMS, free_ports, kill_marked

CONNECTION = "loopback"
PAUSE = 0.05
RESTART_PAUSE = 3.0
LISTENING = re.compile(r"Uvicorn running on")
NODE_ID = re.compile(r"SuperNode ID: (\d+)")
RUN_ID = re.compile(r"Successfully started run (\d+)")

Value = bool | int | float | str


class FederationError(RuntimeError):
    """The deployment did not get where it should; the message ends with the logs."""


class Daemon:
    """A process that leads a group of its own and writes to a log of its own."""

    def __init__(
        self, name: str, command: Sequence[str | Path], environment: Mapping[str, str], log: Path
    ) -> None:
        self.name, self.log = name, log
        with log.open("wb") as sink:
            self.process = subprocess.Popen(  # noqa: S603 - the harness chose the program
                [str(PROGRAMS / command[0]), *map(str, command[1:])],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self.process.poll() is not None

    def text(self) -> str:
        """All it has written so far."""
        return self.log.read_text(errors="replace")

    def tail(self, lines: int = 25) -> str:
        """The end of the log under a heading, for an error message."""
        state = f"exit code {self.process.returncode}" if self.ended else "running"
        end = "\n".join(self.text().splitlines()[-lines:])
        return f"--- {self.name} ({state}), {self.log.name} ---\n{end}"

    def kill(self) -> None:
        """SIGKILL to the whole process group, at once."""
        if not self.ended:  # or else its number may be that of a stranger by now
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Outcome(NamedTuple):
    """How a run ended: the state Flower keeps of it, and what the ServerApp said."""

    run_id: str
    status: str
    details: str
    exit_code: int
    text: str

    @property
    def completed(self) -> bool:
        """Whether the ServerApp came to its end without an error."""
        return self.status == "finished:completed"


class Admission(NamedTuple):
    """What became of a SuperNode that nobody registered; no exit code is one that runs."""

    admitted: bool
    exit_code: int | None
    text: str


class Run:
    """A run that was submitted, with its log as it streams in."""

    def __init__(self, federation: Federation, stream: Daemon) -> None:
        self._federation, self._stream = federation, stream

    def text(self) -> str:
        """The log so far."""
        return self._stream.text()

    def wait_for(self, words: str, timeout: float) -> None:
        """Waits until the ServerApp has said these words; an end without them is an error."""
        if not self._federation.said(self._stream, re.compile(re.escape(words)), timeout):
            self._federation.fail(f"the run ended and did not say {words!r}")

    def wait(self, timeout: float) -> Outcome:
        """Waits for the end of the run and asks the SuperLink how it went."""
        self._federation.until(lambda: self._stream.ended, timeout, "the run to end")
        text, code = self.text(), self._stream.process.returncode
        if not (started := RUN_ID.search(text)):
            return Outcome("", "not started", "", code, text)
        told = self._federation.flwr("list", CONNECTION, "--run-id", started[1], "--format", "json")
        run = json.loads(told[told.index("{") :])["runs"][0]
        return Outcome(started[1], run["status"], run["status-details"], code, text)


class Federation:
    """A SuperLink and its SuperNodes; the environments are those of SuperNode 0, 1, ...

    With `tls` the SuperLink serves TLS and takes registered SuperNodes only. `timeout` bounds
    each step of the start.
    """

    def __init__(
        self,
        folder: Path,
        nodes: int,
        *,
        tls: bool = False,
        environments: Sequence[Mapping[str, str]] = (),
        server_environment: Mapping[str, str] | None = None,
        timeout: float = 180.0,
    ) -> None:
        if len(environments) not in (0, nodes):
            message = f"environments is for {len(environments)} SuperNodes, not for {nodes}"
            raise ValueError(message)
        self.folder, self.size, self.timeout = folder.resolve(), nodes, timeout
        self.node_ids: dict[int, int] = {}
        self._environments = [*environments]
        self._server_environment = server_environment or {}
        self._mark = secrets.token_hex(8)
        self._port, *self._node_ports = free_ports(nodes + 2)
        self._server: ServerFiles | None = None
        self._keys: list[NodeKey | None] = [None] * nodes
        if tls:
            self._server = write_server_files(self.folder / "keys")
            self._keys = [self._new_key(i) for i in range(nodes)]
        self._nodes: dict[int, Daemon] = {}
        self._started: list[Daemon] = []

    def __enter__(self) -> Federation:
        try:
            self._start_server()
            for i, key in enumerate(self._keys):
                if key:
                    self.flwr("supernode", "register", key.public, CONNECTION)
                self._start_node(i, key)
            for i in range(self.size):
                if not self._joined(i, self.timeout):
                    self.fail(f"SuperNode {i} could not connect")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error and not isinstance(error, FederationError):
            error.add_note(self.tails())
        self.close()

    def close(self) -> None:
        """Kills every process of the deployment and stays until none is left."""
        for daemon in self._started:
            daemon.kill()
        # The SuperLink's executor has a session of its own: found by the mark it inherited.
        self.until(lambda: not kill_marked(self._mark), self.timeout, "the last process to go")

    def start(self, app: Path, **run_config: Value) -> Run:
        """Submits the app; `local_steps=2` overrides `local-steps` of its run configuration."""
        overrides = [
            f"{name.replace('_', '-')}={json.dumps(value)}" for name, value in run_config.items()
        ]
        options = ["--run-config", " ".join(overrides)] if overrides else []
        command = ["flwr", "run", app.resolve(), CONNECTION, "--stream", *options]
        return Run(self, self._launch("flwr", command))

    def run(self, app: Path, timeout: float, **run_config: Value) -> Outcome:
        """Submits the app and waits for its end."""
        return self.start(app, **run_config).wait(timeout)

    def kill(self, i: int) -> None:
        """SIGKILL to SuperNode i and the processes it started."""
        self._nodes[i].kill()
        self.node_ids.pop(i, None)

    def revive(self, i: int, timeout: float = 180.0) -> int:
        """Starts SuperNode i again in its folder, with its key if it has one; tells the node id.

        The SuperLink refuses an authenticated node while it still believes the old process
        alive, about a minute: the start is repeated until it takes it.
        """
        deadline = time.monotonic() + timeout
        self._start_node(i, self._keys[i])
        while not self._joined(i, deadline - time.monotonic()):
            time.sleep(RESTART_PAUSE)
            self._start_node(i, self._keys[i])
        return self.node_ids[i]

    def admits_outsider(self, timeout: float = 180.0, *, with_key: bool = True) -> Admission:
        """Starts one more SuperNode that nobody registered and tells whether it got in."""
        i = self.size
        self._start_node(i, self._new_key(i) if self._server and with_key else None)
        admitted = self._joined(i, timeout)
        code, text = self._nodes[i].process.returncode, self.node_text(i)
        self.kill(i)
        return Admission(admitted, code, text)

    def node_text(self, i: int) -> str:
        """The log of SuperNode i, of its last start."""
        return self._nodes[i].text()

    def home(self, i: int) -> Path:
        """The folder of SuperNode i, its `RFA_HOME`; it outlives `kill` and `revive`."""
        return self.folder / f"supernode-{i}"

    def flwr(self, *arguments: str | Path) -> str:
        """What a `flwr` command said; an exit code other than 0 is an error."""
        command = self._launch("flwr", ["flwr", *arguments])
        self.until(lambda: command.ended, self.timeout, f"flwr {arguments[0]}")
        if command.process.returncode:
            self.fail(f"flwr {arguments[0]} failed")
        return command.text()

    def until(self, done: Callable[[], object], timeout: float, what: str) -> None:
        """Asks again and again until the answer is yes."""
        deadline = time.monotonic() + timeout
        while not done():
            if time.monotonic() > deadline:
                self.fail(f"waited {timeout:g} s for {what}")
            time.sleep(PAUSE)

    def said(self, daemon: Daemon, words: re.Pattern[str], timeout: float) -> re.Match[str] | None:
        """Waits for words in a log; None is a process that ended without them."""

        def settled() -> bool:
            return daemon.ended or words.search(daemon.text()) is not None

        self.until(settled, timeout, f"{daemon.name} to say {words.pattern!r}")
        return words.search(daemon.text())

    def fail(self, message: str) -> NoReturn:
        """Raises an error with the end of every log."""
        raise FederationError("\n".join([message, self.tails()]))

    def tails(self) -> str:
        """The end of every log."""
        return "\n".join(each.tail() for each in self._started)

    def _start_server(self) -> None:
        transport, trust = ["--insecure"], "insecure = true"
        if files := self._server:
            transport = ["--ssl-ca-certfile", str(files.authority), "--enable-supernode-auth"]
            transport += ["--ssl-certfile", str(files.certificate), "--ssl-keyfile", str(files.key)]
            trust = f"root-certificates = {json.dumps(str(files.authority))}"
        config = f'[superlink.{CONNECTION}]\naddress = "{HOST}:{self._port}"\n{trust}\n'
        (self._home("flwr") / "config.toml").write_text(config)
        command = ["flower-superlink", *transport, "--host", HOST, "--port", str(self._port)]
        command.append("--disable-runtime-dependency-installation")
        link = self._launch("superlink", command, self._server_environment)
        if not self.said(link, LISTENING, self.timeout):
            self.fail("the SuperLink ended at its start")

    def _start_node(self, i: int, key: NodeKey | None) -> None:
        transport = ["--insecure"]
        if self._server:
            transport = ["--root-certificates", str(self._server.authority)]
        if key:
            transport += ["--auth-supernode-private-key", str(key.private)]
        command = ["flower-supernode", *transport, "--superlink", f"{HOST}:{self._port}"]
        command += ["--host", HOST, "--port", str(self._node_ports[i])]
        command += ["--node-config", f"partition-id={i} num-partitions={self.size}"]
        given = {"RFA_HOME": str(self.home(i))}
        if i < len(self._environments):
            given.update(self._environments[i])
        self._nodes[i] = self._launch(f"supernode-{i}", command, given)

    def _joined(self, i: int, timeout: float) -> bool:
        """Whether SuperNode i got a node id; False is a process that ended without one."""
        if found := self.said(self._nodes[i], NODE_ID, timeout):
            self.node_ids[i] = int(found[1])
        return found is not None

    def _launch(
        self, name: str, command: Sequence[str | Path], given: Mapping[str, str] | None = None
    ) -> Daemon:
        environment = {
            **os.environ,
            "PATH": f"{PROGRAMS}{os.pathsep}{os.environ.get('PATH', '')}",
            "NO_PROXY": HOST,
            "PYTHONUNBUFFERED": "1",
            "FLWR_HOME": str(self._home(name)),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            MARK: self._mark,
            **(given or {}),
        }
        log = self.folder / f"{len(self._started):02d}-{name}.log"
        self._started.append(Daemon(name, command, environment, log))
        return self._started[-1]

    def _home(self, name: str) -> Path:
        home = self.folder / name / "flwr"
        home.mkdir(parents=True, exist_ok=True)
        return home

    def _new_key(self, i: int) -> NodeKey:
        return write_node_key(self.folder / "keys", f"supernode-{i}")
