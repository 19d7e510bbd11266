"""FedAvg and RFA on a Flower app, without and with its attacker: prints a table.

    python examples/compare.py examples/flower-numpy

The real ServerApp and ClientApps run in this process, on a grid without a network. The column of
FedAvg is the same app with each line that ends in `# before: ...` as it was before.
`[tool.compare]` in the app's pyproject.toml says how many nodes there are, and what the attacker
does.
"""

import argparse
import contextlib
import importlib
import io
import json
import logging
import os
import random
import re
import shutil
import sys
import tempfile
import time
import tomllib
import uuid
from pathlib import Path

# Nodes take turns in this process, and their batches are small: one thread is fastest. Libraries
# read this when they are loaded, so it comes before Flower, which brings numpy.
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

from flwr.app import Context, Error, Message, RecordDict  # noqa: E402
from flwr.serverapp import Grid  # noqa: E402
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402

BEFORE = re.compile(r"^( *)(?! |#).*  # before: (.+)$", re.MULTILINE)
ACCURACY = re.compile(r"^round (\d+): .*?accuracy (\S+) %", re.MULTILINE)
RUN, SERVER = 7, 1
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108
"""Nodes write each answer to their disk before it leaves; here memory is enough, and faster."""


class CompareError(Exception):
    """The app cannot be compared; the text says why."""


class InProcessGrid(Grid):
    """Nodes in this process: a message is answered at once, by the real ClientApp."""

    def __init__(self, app, contexts):
        self.app, self.contexts, self.replies = app, contexts, {}
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = RUN, SERVER, 1

    run = None

    def set_run(self, run):
        """There is only one."""

    def create_message(self, *arguments, **named):
        """Messages are made by their own class."""
        raise NotImplementedError

    def get_node_ids(self):
        """The numbers of all nodes."""
        return list(self.contexts)

    def push_messages(self, messages):
        """Let each node answer, and tell by which numbers to ask for the answers."""
        return [self._push(message) for message in messages]

    def pull_messages(self, message_ids):
        """The answers."""
        return [self.replies.pop(name) for name in list(message_ids) if name in self.replies]

    def send_and_receive(self, messages, *, timeout=None):
        """Both."""
        del timeout
        return self.pull_messages(self.push_messages(messages))

    def _push(self, message):
        node, name = message.metadata.dst_node_id, uuid.uuid4().hex
        message.metadata.__dict__.update(_message_id=name, _src_node_id=SERVER)
        try:
            reply = self.app(message, self.contexts[node])
        except Exception as error:  # as a SuperNode does
            logging.getLogger("flwr").exception("node %s fails", node)
            reply = Message(Error(0, str(error)), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = node
        self.replies[name] = reply
        return name


def undo(folder, target):
    """Copy an app with the lines that say `# before: ...` as they were; `nothing` is no line."""

    def old(line):
        return "" if line[2] == "nothing" else line[1] + line[2]

    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("__pycache__"))
    changed = 0
    for path in target.rglob("*.py"):
        text, count = BEFORE.subn(old, path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")
        changed += count
    if not changed:
        msg = f"no line of {folder} ends in `# before: ...`: there is no FedAvg to compare with"
        raise CompareError(msg)
    return target


@contextlib.contextmanager
def imported(folder, components):
    """The ServerApp and the ClientApp of a folder, whose modules are forgotten afterwards."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield [_component(components[name]) for name in ("serverapp", "clientapp")]
    finally:
        sys.path.remove(str(folder))
        packages = {text.partition(".")[0] for text in components.values()}
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in packages:
                del sys.modules[name]


def _component(reference):
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def run(folder, about, **changes):
    """The accuracies that the app prints, in percent: before the first round and after each."""
    app, nodes = about["tool"]["flwr"]["app"], about["tool"]["compare"]["nodes"]
    config, said = {**app["config"], **changes}, io.StringIO()
    random.seed(RUN)  # by which Flower shuffles nodes
    with (
        tempfile.TemporaryDirectory(dir=MEMORY) as home,
        imported(folder, app["components"]) as (server, client),
    ):
        contexts = {
            100 + part: Context(
                RUN, 100 + part, _node(part, nodes, home), RecordDict(), dict(config)
            )
            for part in range(nodes)
        }
        with contextlib.redirect_stdout(said):
            server(InProcessGrid(client, contexts), Context(RUN, SERVER, {}, RecordDict(), config))
    rounds = [(int(t), float(share)) for t, share in ACCURACY.findall(said.getvalue())]
    if [t for t, _ in rounds] != list(range(config["num-server-rounds"] + 1)):
        msg = f"{folder} did not print `round 1: accuracy 50.0 %` for each round, but:\n"
        msg += said.getvalue()
        raise CompareError(msg)
    return [share for _, share in rounds]


def _node(part, nodes, home):
    return {"partition-id": part, "num-partitions": nodes, "rfa-home": home}


def compare(folder, rounds=None):
    """The accuracies by row (honest, attacked) and strategy (FedAvg, RFA)."""
    folder = Path(folder).resolve()
    path = folder / "pyproject.toml"
    if not path.is_file():
        msg = f"{folder} is no Flower app: it has no pyproject.toml"
        raise CompareError(msg)
    about = tomllib.loads(path.read_text(encoding="utf-8"))
    if "compare" not in about.get("tool", {}):
        msg = f"{path} has no [tool.compare]: it says how many nodes there are, and what attacks"
        raise CompareError(msg)
    changes = {} if rounds is None else {"num-server-rounds": rounds}
    try:
        return _rows(folder, about, changes)
    except ModuleNotFoundError as error:
        needs = [f'"{name}"' for name in about["project"]["dependencies"] if name[:4] != "rfa["]
        msg = f"{folder.name} needs {error.name}: pip install {' '.join(needs)}"
        raise CompareError(msg) from None


def _rows(folder, about, changes):
    settings = about["tool"]["compare"]
    with tempfile.TemporaryDirectory() as work:
        fedavg = settings.get("fedavg-config", {})
        before = folder if fedavg else undo(folder, Path(work) / folder.name)
        rows = {}
        for row, attack in (
            ("every node is honest", {}),
            (settings["attack"], settings["attack-config"]),
        ):
            rows[row] = {
                "FedAvg": run(before, about, **changes, **fedavg, **attack),
                "RFA": run(folder, about, **changes, **attack),
            }
    return rows


def table(rows):
    """The last accuracies, as Markdown."""
    lines = ["| | FedAvg | RFA |", "|---|---:|---:|"]
    for row, cells in rows.items():
        last = [f"{cells[name][-1]:.1f} %" for name in ("FedAvg", "RFA")]
        lines.append(f"| {row} | {' | '.join(last)} |")
    return "\n".join(lines)


def main():
    """Compare the apps of some folders."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="+", type=Path, help="the folder of a Flower app")
    parser.add_argument("--rounds", type=int, help="in place of num-server-rounds")
    parser.add_argument("--json", action="store_true", help="the accuracies of all rounds")
    parser.add_argument("--log", action="store_true", help="show Flower's log")
    given = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.INFO if given.log else logging.ERROR)
    for folder in given.folder:
        began = time.monotonic()
        try:
            rows = compare(folder, given.rounds)
        except CompareError as error:
            sys.exit(f"compare: {error}")
        if given.json:
            print(json.dumps(rows))
        else:
            print(
                f"{folder.resolve().name}, in {time.monotonic() - began:.0f} s:\n\n{table(rows)}\n"
            )


if __name__ == "__main__":
    main()
