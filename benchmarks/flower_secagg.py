"""Flower's SecAgg+ in this process, without its transport: what its devices and server compute.

Both sides run Flower's own code: a device the stages of its mod, with the checks around them, and
the server the stages of its workflow. What a transport needs is replaced by stand-ins that cost
next to nothing: messages and records, the strategy, the model that is sent out with a round, and
the storing of a device's state between two messages.
"""

from __future__ import annotations

import gc
import itertools
import logging
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest import mock

import numpy as np

from benchmarks.peers import load_flower
from rfa._types import Floats32
from rfa.secagg.security.parameters import Parameters

SERVER = -1
DIMS = (100_000, 1_000_000)
LOST, REPEATS = 5, 3
EXAMPLES = 1000
"""The weight of each device: the largest that the workflow allows by default."""
T = TypeVar("T")


@dataclass
class Meter:
    """Who spent how much processor time in a round, and sent how much.

    Attributes:
        spent: seconds of processor time, of all threads, by device; the server is SERVER.
        sent: bytes that went up, by device.
        got: bytes that came down, by device.
        gone: the devices that dropped out, which do not count.
    """

    spent: dict[int, float] = field(default_factory=lambda: defaultdict[int, float](float))
    sent: dict[int, float] = field(default_factory=lambda: defaultdict[int, float](float))
    got: dict[int, float] = field(default_factory=lambda: defaultdict[int, float](float))
    gone: frozenset[int] = frozenset()

    def charge(self, who: int, call: Callable[..., T], *arguments: Any) -> T:
        """Let someone make a call, and take down the time."""
        start = time.process_time()
        answer = call(*arguments)
        self.spent[who] += time.process_time() - start
        return answer

    def cost(self, what: str) -> float:
        """Milliseconds of the "server", or of a "device" that stays, or its bytes, in the mean."""
        if what == "server":
            return 1e3 * self.spent[SERVER]
        each = {"device": self.spent, "upload": self.sent, "download": self.got}[what]
        values = [value for who, value in each.items() if who not in self.gone | {SERVER}]
        return sum(values) / len(values) * (1e3 if what == "device" else 1)


class Records:
    """What stands for the content of a message."""

    def __init__(self, records: dict[str, Any] | None = None) -> None:
        self.config_records = dict(records or {})


class Envelope:
    """What stands for a message, there and back."""

    def __init__(self, content: Records, dst_node_id: int, **_: Any) -> None:
        self.content = content
        self.metadata = SimpleNamespace(src_node_id=dst_node_id)

    def has_error(self) -> bool:
        """No message fails here: devices that drop out do not answer at all."""
        return False


class FlowerDevice:
    """A device: the state and the stages of Flower's mod."""

    def __init__(self, node: int, parameters: Any) -> None:
        """A device with its update, serialized as Flower's mod gets it."""
        self._mod = load_flower().mod
        self._state = self._mod.SecAggPlusState(nid=node)
        self._parameters = parameters

    def answer(self, configs: dict[str, Any]) -> dict[str, Any]:
        """Do what the mod does with a message, between reading its state and storing it."""
        mod, state = self._mod, self._state
        mod.check_stage(state.current_stage, configs)
        state.current_stage = configs.pop(mod.Key.STAGE)
        mod.check_configs(state.current_stage, configs)
        match state.current_stage:
            case mod.Stage.SETUP:
                return mod._setup(state, configs)
            case mod.Stage.SHARE_KEYS:
                return mod._share_keys(state, configs)
            case mod.Stage.COLLECT_MASKED_VECTORS:
                return mod._collect_masked_vectors(state, configs, EXAMPLES, self._parameters)
            case _:
                return mod._unmask(state, configs)


class Grid:
    """What stands for Flower's grid: it asks the devices, and takes their time off the server's."""

    def __init__(self, devices: dict[int, FlowerDevice], meter: Meter) -> None:
        self._devices = devices
        self._meter = meter
        self._key: str = load_flower().workflow.RECORD_KEY_CONFIGS
        self.gone: frozenset[int] = frozenset()

    def send_and_receive(self, messages: Iterable[Envelope], **_: Any) -> list[Envelope]:
        """The answers of the devices that did not drop out."""
        start = time.process_time()
        answers = [one for one in messages if one.metadata.src_node_id not in self.gone]
        for message in answers:
            node = message.metadata.src_node_id
            configs = dict(message.content.config_records[self._key])
            self._meter.got[node] += size_of(configs)
            answer = self._meter.charge(node, self._devices[node].answer, configs)
            self._meter.sent[node] += size_of(answer)
            message.content = Records({self._key: answer})
        self._meter.spent[SERVER] -= time.process_time() - start
        return answers


def size_of(value: Any) -> int:
    """The bytes of what is in a message, without names; a number takes 8."""
    match value:
        case dict():
            return sum(map(size_of, value.values()))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case list():
            return sum(map(size_of, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case bytes() | str():
            return len(value)
        case _:
            return 8


def play(update: Floats32, cohort: int, shares: int, threshold: int, gone: int) -> Meter:
    """A round in which all devices have the same update, and some drop out after sharing keys."""
    flower = load_flower()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    parameters = flower.common.ndarrays_to_parameters([update])
    nodes = range(1, cohort + 1)
    meter = Meter(gone=frozenset(nodes[:gone]))
    grid = Grid({node: FlowerDevice(node, parameters) for node in nodes}, meter)
    plan = flower.workflow.SecAggPlusWorkflow(shares, threshold)
    state, found = flower.workflow.WorkflowState(), list[Any]()
    stages = plan.setup_stage, plan.share_keys_stage, plan.collect_masked_vectors_stage
    with _stand_ins(flower.workflow):
        context = _context(flower, nodes, found)
        for stage in (*stages, plan.unmask_stage):
            if stage == plan.collect_masked_vectors_stage:
                grid.gone = meter.gone
            assert meter.charge(SERVER, stage, grid, context, state)
    (mean,) = flower.common.parameters_to_ndarrays(found[0].parameters)
    assert np.allclose(mean, update.clip(-8, 8), atol=1e-5)
    return meter


def _stand_ins(workflow: Any) -> Any:
    """The workflow's module without messages and records of its own."""
    compat = SimpleNamespace(
        arrayrecord_to_parameters=_blank,
        fitins_to_recorddict=_records,
        recorddict_to_fitres=_blank,
    )
    return mock.patch.multiple(
        workflow, Message=Envelope, ConfigRecord=dict, RecordDict=Records, compat=compat
    )


def _blank(*_: Any, **__: Any) -> SimpleNamespace:
    return SimpleNamespace(parameters=None)


def _records(*_: Any) -> Records:
    return Records()


def _context(flower: Any, nodes: Iterable[int], found: list[Any]) -> Any:
    """The round as the workflow sees it, with a strategy that only keeps the mean."""
    chosen = [(SimpleNamespace(node_id=node), None) for node in nodes]

    def choose(*_: Any) -> list[Any]:
        return chosen

    def keep(_round: int, results: list[tuple[Any, Any]], _failures: Any) -> tuple[None, None]:
        found.extend(result for _, result in results)
        return None, None

    workflow = flower.workflow
    return SimpleNamespace(
        state=SimpleNamespace(
            config_records={workflow.MAIN_CONFIGS_RECORD: {workflow.WorkflowKey.CURRENT_ROUND: 1}},
            array_records={workflow.MAIN_PARAMS_RECORD: None},
        ),
        strategy=SimpleNamespace(configure_fit=choose, aggregate_fit=keep),
        client_manager=SimpleNamespace(num_available=lambda: len(chosen)),
    )


Ours = Callable[[Parameters, Floats32, int], Meter]
"""Plays a round of ours with so many lost devices."""


def table(ours: Ours, graphs: list[tuple[str, Parameters, int]]) -> Iterator[str]:
    """Processor time and bytes of both, as ratios, for our parameters and Flower's shares."""
    yield "### One sum over 50 devices, against Flower's SecAgg+"
    yield ""
    yield (
        "| coordinates | graph | lost | device, ms | Flower, ms | ratio | server, ms | Flower, ms"
        " | ratio | upload | Flower |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    ratios: dict[str, list[float]] = {"device": [], "server": [], "upload": []}
    for dim, (name, exact, shares), gone in itertools.product(DIMS, graphs, (0, LOST)):
        both = compare(ours, exact, shares, update_of(dim), gone)
        cells = [f"{dim:,}", name, str(gone)]
        for cost in ("device", "server"):
            mine, theirs = (median(meters, cost) for meters in both)
            ratios[cost].append(theirs / mine)
            cells += [show(mine), show(theirs), f"**{theirs / mine:.0f}**"]
        upload = [median(meters, "upload") / (4 * dim) for meters in both]
        ratios["upload"].append(upload[0])
        yield f"| {' | '.join(cells)} | {upload[0]:.3f} | {upload[1]:.3f} |"
    yield ""
    yield (
        f"A device costs at least {min(ratios['device']):.1f} times less than Flower's (goal: 8),"
        f" the server {min(ratios['server']):.1f} times less (goal: 30), and a device uploads at"
        f" most {max(ratios['upload']):.3f} of what float32 takes without protection (goal: 1.05)."
    )
    yield ""


def compare(
    ours: Ours, exact: Parameters, shares: int, update: Floats32, gone: int
) -> tuple[list[Meter], list[Meter]]:
    """Rounds of both in turns; where Flower takes long, it has only one."""
    mine: list[Meter] = []
    theirs: list[Meter] = []
    for repeat in range(REPEATS):
        mine.append(ours(exact, update, gone))
        if not repeat or (shares < exact.cohort and len(update) == DIMS[0]):
            gc.collect()
            theirs.append(play(update, exact.cohort, shares, exact.threshold, gone))
    return mine, theirs


def update_of(dim: int) -> Floats32:
    """The update of every device."""
    return np.random.default_rng(0).standard_normal(dim, dtype=np.float32)


def median(meters: list[Meter], what: str) -> float:
    """The median of a cost over rounds."""
    return statistics.median(meter.cost(what) for meter in meters)


def show(value: float) -> str:
    """A number of milliseconds."""
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"
