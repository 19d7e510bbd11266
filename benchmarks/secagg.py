"""The secure sum: processor time and bytes, against Flower's SecAgg+ and against the cohort."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import flower_secagg
from benchmarks.flower_secagg import DIMS, REPEATS, SERVER, Meter, median, show, update_of
from benchmarks.measure import extra_memory
from benchmarks.peers import load_flower
from rfa._types import Floats32
from rfa.secagg.crypto import graph, shares
from rfa.secagg.crypto.keys import identity_of
from rfa.secagg.device.machine import Device
from rfa.secagg.device.profile import Identity, Profile
from rfa.secagg.errors import ParameterError
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.messages import round as messages
from rfa.secagg.messages.decoding import decode_as
from rfa.secagg.messages.opening import Message, OpenRound
from rfa.secagg.messages.round import DeviceKeys
from rfa.secagg.messages.values import write_bitmap
from rfa.secagg.oracle import open_round
from rfa.secagg.security import odds
from rfa.secagg.security.cohort import in_order
from rfa.secagg.security.parameters import Parameters, ServerModel, derive
from rfa.secagg.security.terms import Terms
from rfa.secagg.server.machine import Server
from rfa.secagg.server.requests import Outbox
from rfa.secagg.transcript import leaf_of

PICTURE = Path(__file__).parent.parent / "docs" / "secagg-cost.png"
COHORT = 50
SMALL, LARGE = DIMS
RING = Parameters(COHORT, num_colluders=4, num_dropouts=5, min_honest=3, degree=10, threshold=5)
COMPLETE = Parameters(
    COHORT, num_colluders=20, num_dropouts=20, min_honest=3, degree=49, threshold=26
)
GRAPHS = [("ring", RING, 11), ("complete", COMPLETE, 50)]
"""Graphs: our parameters, and Flower's number of shares, which counts the device itself."""
COHORTS = [30, 50, 100, 200, 300, 500, 1000, 2000, 3000, 5000, 10_000]
RADIUS = 1.0
COLORS = ["#0072b2", "#d55e00", "#555555"]


@dataclass(frozen=True)
class Fixed(Terms):
    """Terms that come to given parameters."""

    exact: Parameters = RING

    def parameters(self, cohort: int, queries: int = 1) -> Parameters:  # noqa: ARG002
        """The given parameters."""
        if cohort != self.exact.cohort:
            msg = f"these are terms for {self.exact.cohort} devices, not {cohort}"
            raise ParameterError(msg)
        return self.exact


def play(exact: Parameters, update: Floats32, gone: int = 0, v: Floats32 | None = None) -> Meter:
    """A round of one sum in which all have the same update, and some leave after the deal."""
    forget()
    terms, dim = Fixed(server_model=exact.server_model, exact=exact), len(update)
    secrets = {number: os.urandom(32) for number in range(exact.cohort)}
    known = {number: identity_of(secret) for number, secret in secrets.items()}
    contribution = Contribution(update)
    devices = {
        number: Device(contribution, Profile(number, identity=Identity(secret, known)))
        for number, secret in secrets.items()
    }
    server = Server(open_round(1, terms, queries=1, dim=dim), terms, known)
    meter, point = Meter(gone=frozenset(range(gone))), np.zeros(dim) if v is None else v
    _carry(meter, server, devices, lambda: server.open(devices))
    _carry(meter, server, devices, server.roster)
    for number in meter.gone:
        del devices[number]
    _carry(meter, server, devices, lambda: server.ask(point, RADIUS))
    if exact.server_model == ServerModel.MALICIOUS:
        _carry(meter, server, devices, server.survivors)
    _carry(meter, server, devices, server.unmask)
    total = meter.charge(SERVER, server.total).sum
    wanted = len(devices) * (update - point) / max(RADIUS, float(np.linalg.norm(update - point)))
    assert np.allclose(total.push, wanted, atol=1e-4)
    return meter


def _carry(
    meter: Meter, server: Server, devices: dict[int, Device], stage: Callable[[], Outbox]
) -> None:
    """Let the server ask, and each device that is there answer."""
    outbox = meter.charge(SERVER, stage)
    while sent := meter.charge(SERVER, lambda: next(outbox, None)):
        number, request = sent
        if number in devices:
            reply = meter.charge(number, devices[number].receive, request)
            assert meter.charge(SERVER, server.take, number, reply)
            meter.got[number] += len(request)
            meter.sent[number] += len(reply)


def forget() -> None:
    """Empty the caches: no round is to profit from another one."""
    for module in (graph, odds, shares):
        for value in vars(module).values():
            getattr(value, "cache_clear", bool)()
    gc.collect()


def later_steps() -> Iterator[str]:
    """What the server pays when it sends a point."""
    costs: list[str] = []
    for dim in (SMALL, LARGE):
        update = update_of(dim)
        v = (update / 2).astype(np.float32)
        meters = [play(RING, update, v=v) for _ in range(REPEATS)]
        cost, device = median(meters, "server"), median(meters, "device")
        costs.append(f"{show(cost)} ms ({show(device)} ms per device) at {dim:,} coordinates")
    yield (
        "Those sums are at v = 0, which travels as an empty vector, as in a secure mean. When the"
        f" server sends another v, as in later Weiszfeld steps, it costs {' and '.join(costs)}"
        " (ring, nobody lost)."
    )
    yield ""


def by_itself() -> Iterator[str]:
    """Larger cohorts, and a malicious server."""
    yield f"### The secure sum by itself, {SMALL:,} coordinates"
    yield ""
    yield "| devices | server | k | t | device, ms | server, ms | upload / 4 d | download, kB |"
    yield "|---|---|---|---|---|---|---|---|"
    malicious = derive(
        COHORT,
        num_colluders=COHORT // 10,
        num_dropouts=COHORT // 10,
        server_model=ServerModel.MALICIOUS,
    )
    for exact in (by_odds(100), by_odds(1000), malicious):
        rounds = REPEATS if exact.cohort < 1000 else 1
        meters = [play(exact, update_of(SMALL)) for _ in range(rounds)]
        device, server = (show(median(meters, cost)) for cost in ("device", "server"))
        upload, download = (median(meters, cost) for cost in ("upload", "download"))
        model = exact.server_model.label
        yield (
            f"| {exact.cohort} | {model} | {exact.degree} | {exact.threshold} | {device} | {server}"
            f" | {upload / (4 * SMALL):.3f} | {download / 1e3:.1f} |"
        )
    yield ""
    yield "Colluders and drop-outs are a tenth of the devices each; v = 0, and nobody is lost.\n"


def by_odds(cohort: int) -> Parameters:
    """The parameters for a tenth of colluders and a tenth of drop-outs in random order."""
    return derive(cohort, num_colluders=cohort // 10, num_dropouts=cohort // 10)


@dataclass
class Alone:
    """One real device in a cohort that is otherwise made up: keys and sealed shares at random.

    Attributes:
        exact: the parameters.
        contribution: what the device brings.
        noise: the multiplier of the noise; 0 for none.
        roster: the bytes of the roster.
        keys: the bytes that go up beside the vector.
    """

    exact: Parameters
    contribution: Contribution
    noise: float = 0.0

    def __post_init__(self) -> None:
        """Let it go through the round."""
        forget()
        self.meter, self.device = Meter(), Device(self.contribution, Profile(0))
        opening = open_round(
            1,
            Fixed(exact=self.exact),
            queries=1,
            dim=len(self.contribution.update),
            equal_weights=self.contribution.equal_weights,
            noise=self.noise,
        )
        everyone = write_bitmap(range(self.exact.cohort), self.exact.cohort)
        keys_of_device = decode_as(messages.AdvertiseKeys, self.ask(opening)).keys
        self.ask(roster := self._roster(opening, keys_of_device))
        self.roster = len(roster.encode())
        self.before = self.device.memory
        sealed = tuple(os.urandom(messages.SEALED_SIZE) for _ in range(self.exact.degree))
        asked = 0, 1, RADIUS, 0, everyone, sealed, np.zeros(0, np.float32)
        self.sum_request = messages.SumRequest(opening.session, *asked)
        self.ask(self.sum_request)
        self.ask(messages.Unmask(opening.session, 0, everyone, ()))
        self.keys = self.meter.cost("upload") - self.contribution.update.nbytes

    def ask(self, message: Message) -> bytes:
        """What the device answers."""
        request = message.encode()
        reply = self.meter.charge(0, self.device.receive, request)
        self.meter.got[0] += len(request)
        self.meter.sent[0] += len(reply)
        return reply

    def mask_again(self) -> bytes:
        """The most expensive answer once more, from where the device was before."""
        return Device(self.contribution, Profile(0), memory=self.before).receive(
            self.sum_request.encode()
        )

    def _roster(self, opening: OpenRound, keys_of_device: DeviceKeys) -> messages.Roster:
        others = range(1, self.exact.cohort)
        made_up = [DeviceKeys(number, _made_up(), (_made_up(),)) for number in others]
        listed = {leaf_of(opening, keys): keys for keys in (keys_of_device, *made_up)}
        nonce = os.urandom(16)
        order = in_order(nonce, list(listed))
        here = order.index(leaf_of(opening, keys_of_device))
        others = sorted(graph.neighbors(here, self.exact.cohort, self.exact.degree))
        keys = tuple(listed[order[other]] for other in others)
        return messages.Roster(opening.session, self.exact.numbers, nonce, order, keys)


def _made_up() -> bytes:
    """A public key that nobody has the secret of, in the canonical form."""
    return os.urandom(31) + bytes(1)


def memory() -> Iterator[str]:
    """The extra memory of a device that masks."""
    contribution = Contribution(update_of(LARGE))
    used = [extra_memory(Alone(exact, contribution).mask_again) for _, exact, _ in GRAPHS]
    yield (
        f"While a device masks its answer at {LARGE:,} coordinates (4 MB), it needs"
        f" {used[0]:.1f} MB beside its update with {RING.degree} neighbors, and"
        f" {used[1]:.1f} MB with {COMPLETE.degree}, the answer included."
    )
    yield ""


def picture() -> Iterator[str]:
    """The cost of one device against the cohort."""
    contribution = Contribution(update_of(SMALL))
    settings = [by_odds(cohort) for cohort in COHORTS]
    runs = [
        [Alone(exact, contribution) for exact in (*settings, *map(_only, settings))]
        for _ in range(3 * REPEATS)
    ]
    each = [median([run[index].meter for run in runs], "device") for index in range(len(runs[0]))]
    alone, times, few = runs[0][: len(COHORTS)], each[: len(COHORTS)], each[len(COHORTS) :]
    draw(alone, times, few)
    low, high = alone[COHORTS.index(100)], alone[-1]
    yield "### The cost of one device against the cohort"
    yield ""
    yield f"![Processor time, bytes and neighbors of a device over the cohort]({PICTURE.name})"
    yield ""
    yield (
        f"From 100 to {COHORTS[-1]:,} devices, with a tenth of colluders and a tenth of drop-outs,"
        f" a device gets {low.exact.degree} to {high.exact.degree} neighbors, spends"
        f" {times[COHORTS.index(100)]:.1f} to {times[-1]:.1f} ms at {SMALL:,} coordinates, and"
        f" uploads {low.keys / 1e3:.1f} to {high.keys / 1e3:.1f} kB beside its vector. Each device"
        " downloads, checks and hashes a list of all digests once per round, 32 bytes per device:"
        f" {high.roster / 1e3:.0f} kB at {COHORTS[-1]:,} devices. It causes the milliseconds above"
        " the dashed line, which is a device in a cohort of its neighbors only. One device is real;"
        " the keys and sealed shares of the others are random."
    )
    yield ""


def _only(exact: Parameters) -> Parameters:
    """As many neighbors, and nobody else."""
    return Parameters(exact.degree + 1, 0, 0, 3, exact.degree, exact.threshold)


def draw(alone: list[Alone], times: list[float], few: list[float]) -> None:
    """Three panels over the number of devices."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure: Any = Figure(figsize=(12, 4), layout="constrained")
    panels: dict[str, dict[str, tuple[str, list[float]]]] = {
        f"processor time, {SMALL:,} coordinates (ms)": {
            "a device": ("-o", times),
            "with its neighbors only": ("--X", few),
        },
        "traffic (kB)": {
            "upload beside the vector": ("-o", [one.keys / 1e3 for one in alone]),
            "download of the roster": ("--X", [one.roster / 1e3 for one in alone]),
            "the vector": (":", [4 * SMALL / 1e3 for _ in alone]),
        },
        "neighbors": {
            "neighbors k": ("-o", [one.exact.degree for one in alone]),
            "threshold t": ("--X", [one.exact.threshold for one in alone]),
        },
    }
    for axes, (title, lines) in zip(figure.subplots(1, 3), panels.items(), strict=True):
        for color, (label, (mark, values)) in zip(COLORS, lines.items(), strict=False):
            axes.plot(COHORTS, values, mark, color=color, label=label, linewidth=2, markersize=5)
        axes.set(title=title, xlabel="devices in the round", xscale="log")
        axes.set(**({"yscale": "log"} if "kB" in title else {"ylim": (0, None)}))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:,.0f}")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    figure.suptitle("One device in a round of one sum: a tenth collude, a tenth drop out", size=10)
    figure.savefig(PICTURE, dpi=150)


def run() -> Iterator[str]:
    """The whole report, line by line."""
    yield "## Secure sums"
    yield ""
    yield (
        f"flwr {load_flower().version}. Processor time of all threads, in one process. Each side"
        " runs its own code for devices and server, without a transport. In the ring each device"
        " has 10 neighbors (Flower counts itself as the eleventh), and 5 shares open a secret; in"
        " the complete graph 26 do. Lost devices leave after they shared their keys. Upload is"
        " over 4 bytes per coordinate. Flower makes masks with numpy's Mersenne Twister from seeds"
        " of 32 bits, we with AES-128 in counter mode."
    )
    yield ""
    yield from flower_secagg.table(play, GRAPHS)
    yield from later_steps()
    yield from by_itself()
    yield from memory()
    yield from picture()
