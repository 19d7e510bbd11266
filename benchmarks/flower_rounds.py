"""Seconds per round on Flower: of its FedAvg, of one secure sum and of three, by turns in one run.

    python -m benchmarks.flower_rounds
    python -m benchmarks.flower_rounds --simulation --nodes 10 100
    python -m benchmarks.flower_rounds --deployment

It prints a table for docs/flower.md, "What an exchange takes". In simulation nodes are those of
Flower's engine on Ray (`make simulation`, or `pip install 'flwr[simulation]'`), with one processor
each; a deployment has five SuperNodes on loopback. The app is in benchmarks/flower_app: it imports
numpy, training adds random numbers, and messages to a node are counted. Each case plays two rounds
a turn, of which the second is timed: in the first nodes send their keys ahead. The first turn is a
warm-up, and what is reported is the median of the others.

Three sums take 35 honest nodes. Where there are fewer, that rule is off for these rows, which are
marked by a star; over five nodes their terms also say that none drops out.

It needs `pip install 'rfa[flower]'`, what tests on Flower need (`make` brings all of it), a machine
at rest, and Linux: by /proc the last processes are found. All that it starts ends with it, also on
Ctrl-C, and what they write is in a temporary folder that goes with them.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.flower.federation import Federation, Value
from tests.flower.processes import PROGRAMS, simulation_environment

from benchmarks.flower_app.timed.server_app import FEWEST
from rfa.flower import Terms

APP = Path(__file__).parent / "flower_app"
DIM = 100_000
SIMULATED, DEPLOYED = (10, 100), 5
SIMULATED_ROUNDS, DEPLOYED_ROUNDS = 3, 2
LIMIT = 7200.0
"""Seconds that a run may take."""
HEAD = (
    "| | nodes | strategy | evaluation | messages to a node | s per round | times FedAvg |",
    "|---|---:|---|---|---:|---:|---:|",
)


@dataclass(frozen=True)
class Timing:
    """What the rounds of a case took, the warm-up first.

    Attributes:
        name: the strategy.
        evaluates: whether nodes evaluate the model of each round.
        seconds: those of each round.
        messages: those to each node in each round.
    """

    name: str
    evaluates: bool
    seconds: Sequence[float]
    messages: Sequence[int]

    @property
    def median(self) -> float:
        """Seconds of a round after the warm-up."""
        return statistics.median(self.seconds[1:])


def config_of(folder: Path, nodes: int, rounds: int, dim: int = DIM) -> dict[str, Value]:
    """The run configuration for so many rounds after the warm-up."""
    return {
        "result": str(folder / "result.json"),
        "nodes": nodes,
        "dim": dim,
        "turns": 1 + rounds,
        "rule-off": is_rule_off(nodes),
    }


def is_rule_off(nodes: int) -> bool:
    """Whether nodes are too few for three sums, so that the rule must be off."""
    return nodes < Terms().smallest(3)


def read_timings(folder: Path, said: str) -> list[Timing]:
    """What a run has written down.

    Raises:
        SystemExit: if it came to nothing, with what it said.
    """
    result = folder / "result.json"
    if not result.exists():
        sys.exit(f"{said}\nthe run came to nothing: what it said is above")
    return [Timing(**case) for case in json.loads(result.read_text())]


def simulate(nodes: int, rounds: int) -> list[Timing]:
    """Time all cases in Flower's simulation engine."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name,
        simulation_environment(Path(name)) as environment,
    ):
        config = config_of(Path(name), nodes, rounds)
        words = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        done = subprocess.run(  # noqa: S603 - a program of this environment
            [
                *(str(PROGRAMS / "flwr"), "run", str(APP), "local", "--stream"),
                *("--run-config", words, "--federation-config"),
                f"num-supernodes={nodes} client-resources-num-cpus=1",
            ],
            env={**environment, "RAY_TMPDIR": name},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        return read_timings(Path(name), done.stdout)


def deploy(nodes: int, rounds: int) -> list[Timing]:
    """Time all cases on a SuperLink and SuperNodes of this machine."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with Federation(folder, nodes) as federation:
            outcome = federation.run(APP, LIMIT, **config_of(folder, nodes, rounds))
        return read_timings(folder, outcome.text)


def rows(where: str, nodes: int, timings: Sequence[Timing]) -> Iterator[str]:
    """The rows of a table, each beside the FedAvg that evaluates as it does."""
    plain = {each.evaluates: each.median for each in timings if each.name == "FedAvg"}
    for each in timings:
        star = " *" if is_rule_off(nodes) and each.name.startswith("RFA") else ""
        evaluation = "federated" if each.evaluates else "none"
        counts = " or ".join(str(count) for count in sorted({*each.messages[1:]}))
        yield (
            f"| {where} | {nodes} | {each.name}{star} | {evaluation} | {counts} | "
            f"{each.median:.2f} | {each.median / plain[each.evaluates]:.1f} |"
        )


def parse(words: Sequence[str]) -> argparse.Namespace:
    """What the command line asks for; without a mode, both."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.flower_rounds", description="Seconds per round on Flower."
    )
    parser.add_argument("--simulation", action="store_true", help="in Flower's simulation engine")
    parser.add_argument("--deployment", action="store_true", help="on five SuperNodes")
    parser.add_argument("--nodes", type=int, nargs="+", default=SIMULATED, help="of simulations")
    parser.add_argument("--rounds", type=int, help="measured ones of each case")
    asked = parser.parse_args(words)
    if not asked.simulation and not asked.deployment:
        asked.simulation = asked.deployment = True
    if min(asked.nodes) < (least := FEWEST.smallest(3)):
        parser.error(f"--nodes {min(asked.nodes)}: three sums take {least} even with the rule off")
    if asked.rounds is not None and asked.rounds < 1:
        parser.error(f"--rounds {asked.rounds}: at least 1")
    if asked.simulation and importlib.util.find_spec("ray") is None:
        parser.error("--simulation needs Ray: pip install 'flwr[simulation]'")
    return asked


def main(words: Sequence[str]) -> None:
    """Print a table, and what it was measured on."""
    asked = parse(words)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it cleans up like Ctrl-C
    print(*HEAD, sep="\n", flush=True)
    for nodes in asked.nodes if asked.simulation else ():
        timings = simulate(nodes, asked.rounds or SIMULATED_ROUNDS)
        print(*rows("simulation", nodes, timings), sep="\n", flush=True)
    if asked.deployment:
        timings = deploy(DEPLOYED, asked.rounds or DEPLOYED_ROUNDS)
        print(*rows("deployment", DEPLOYED, timings), sep="\n", flush=True)
    print(f"\nd = {DIM}, {os.cpu_count()} cores. * With the rule of 35 honest nodes off.")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit("interrupted: all that was started is gone")
