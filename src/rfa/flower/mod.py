"""The device's side: a mod that keeps the update, and answers the stages of the secure sum.

The app trains and evaluates as always. What it returns stays here: in a file of the device's own,
which only its owner may read, until the round is over. What leaves are the names of metrics, the
length of the update, and the messages of the secure sum.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MessageType, RecordDict

from rfa._checks import check_choice
from rfa._types import Floats32
from rfa.errors import InvalidValueError
from rfa.flower import records
from rfa.flower.arrays import ArraysError, difference, moved, size_of
from rfa.flower.basis import basis_of, model_of, run_of, sent_of
from rfa.flower.contribution import Start, prepare
from rfa.flower.errors import FlowerError
from rfa.flower.histograms import BINS, histograms_of
from rfa.flower.metrics import metrics_of
from rfa.flower.storage import DeviceStorage, read_personal, storage_of, write_personal
from rfa.secagg.device.profile import Profile
from rfa.secagg.device.vault import DurableDevice
from rfa.secagg.errors import SecAggError, SpentUpdateError
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.security.policy import Policy
from rfa.secagg.weights import EXAMPLES, MODES, cap_fault

Next = Callable[[Message, Context], Message]
LOG = logging.getLogger("flwr")


class AppFailedError(FlowerError):
    """The app failed; what it said stays on the device."""


@dataclass(frozen=True)
class RobustMod:
    """The mod of a device: `ClientApp(mods=[robust_mod])`, or one with demands of its own.

    It answers nothing in the clear: a strategy that does not ask for sums gets an error. Queries
    alone go to the app, as they are; what it answers to them is the app's own business.

    Attributes:
        policy: what the device insists on, whatever the server says.
        folder: the folder of the device's files; by default what the node config `rfa-home` or the
            environment's RFA_HOME says, else ~/.rfa.
        weight: the metric that counts examples, where the server is not trusted to name it.
        cap: the most examples that count, where the server is not trusted to say it: one that
            tells each device another cap could make all but one count for nothing.
        weights: how examples make a weight, where the server is not trusted to say it: "examples",
            "buckets" or "equal"; `SecureOptions` says what each tells.
        robust_metrics: the metrics whose histograms may be asked for, with their bounds, where the
            server is not trusted to choose them.
        metric_bins: how many bins these have.
        personal: the name of personal parameters u_i that may be asked for, where the server is not
            trusted to ask for any. Each training changes them, and no sum need follow: a malicious
            server could have all nodes but one ruin theirs, by other messages before a round, and
            read that one's update off the sum. So name them only if that risk is yours to take.
    """

    policy: Policy = field(default_factory=Policy)
    folder: Path | None = None
    weight: str = "num-examples"
    cap: float = 1024.0
    weights: str = EXAMPLES
    robust_metrics: Mapping[str, tuple[float, float]] | None = None
    metric_bins: int = BINS
    personal: str = ""

    def __post_init__(self) -> None:
        """Check how the device weighs and votes."""
        check_choice("weights", self.weights, MODES)
        if fault := cap_fault(self.cap, self.weights):
            raise InvalidValueError(fault)
        histograms_of(self.robust_metrics, self.metric_bins)

    def __call__(self, message: Message, context: Context, call_next: Next) -> Message:
        """Answer a message of the strategy."""
        if message.metadata.message_type.partition(".")[0] == MessageType.QUERY:
            return call_next(message, context)
        try:
            storage = self.storage(message, context)
            try:
                return self._answer(message, storage, _App(call_next, context))
            except (SecAggError, FlowerError) as error:
                LOG.warning("this device does not do what it is asked: %s", error)
                why = str(error).replace(str(storage.root), "its folder")
                return records.refuse(message, f"{type(error).__name__}: {why}")
        except Exception as error:
            LOG.exception("this device fails to do what it is asked")
            what = type(error).__name__  # its text may be private
            return records.refuse(message, f"{what}: the log of the node says more")

    def _answer(self, message: Message, storage: DeviceStorage, app: _App) -> Message:
        match records.read_order(message):
            case records.Work() as work:
                storage.tidy()
                return self._work(work, message, storage, app)
            case records.Stage(task, request):
                with self.vault(task, message, storage) as vault:
                    return records.reply(message, _receive(vault, request))
            case records.Over(task, number, opened):
                with self.vault(task, message, storage) as vault:
                    vault.end(number, opened=opened)
                return records.reply(message, b"")
            case None:
                msg = "this device gives nothing in the clear: use a strategy of rfa.flower"
                raise records.RecordError(msg)

    def storage(self, message: Message, context: Context) -> DeviceStorage:  # noqa: ARG002 others need it
        """Where the device's files are that a message is for."""
        return storage_of(context, self.folder)

    def vault(self, task: str, message: Message, storage: DeviceStorage) -> DurableDevice:  # noqa: ARG002
        """The device that a message is for, in the secure sum over a task."""
        profile = Profile(storage.node, self.policy, storage.identity())
        return DurableDevice(
            storage.vault(task), profile, spent=storage.spent(task), sent=storage.sent(task)
        )

    def told(self, message: Message) -> RecordDict:
        """What of a message all devices are told, to which the sum is bound: all of it."""
        return message.content

    def _work(
        self, work: records.Work, message: Message, storage: DeviceStorage, app: _App
    ) -> Message:
        """Let the app train or evaluate, and keep what it returns for the sums to come."""
        self.check_work(work)
        told, run = self.told(message), app.settle_run()
        mark = model_of(told) if work.task == records.EVALUATE else None
        start = Start(basis_of(sent_of(message, told), run), mark)
        personal = storage.personal(work.personal) if work.personal else None
        if work.task == records.TRAIN:
            answer, update = _train(message, app, personal)
        else:
            answer, update = _evaluate(message, app, personal)
        layout, brought = prepare(work, update, metrics_of(answer), storage.weights(), start)
        with self.vault(work.task, message, storage) as vault:
            _bring(vault, brought)
        return records.ready(message, records.Ready(layout, len(update), run))

    def check_work(self, work: records.Work) -> None:
        """Where the server is not trusted, how updates are weighted is the device's to say."""
        malicious = self.policy.server_model == ServerModel.MALICIOUS
        asked, own = (work.weights, work.weight, work.cap), (self.weights, self.weight, self.cap)
        if malicious and asked != own:
            msg = (
                f"updates are to be weighted by {asked}, and this device weighs by {own}: say the "
                "same on both sides (weights, the name of the weight, example_cap)"
            )
            raise records.RecordError(msg)
        wanted = histograms_of(self.robust_metrics, self.metric_bins)
        if malicious and work.histograms.names and work.histograms != wanted:
            msg = (
                f"{work.histograms} are asked for, and this device votes in {wanted}: say the same "
                "robust_metrics and metric_bins on both sides"
            )
            raise records.RecordError(msg)
        if malicious and work.personal not in {"", self.personal}:
            msg = (
                f"personal parameters {work.personal!r} are asked for, which a malicious server "
                "could ruin on all devices but one: RobustMod(personal=...) allows them"
            )
            raise records.RecordError(msg)


@dataclass(frozen=True)
class _App:
    """The app, as it is called with a message."""

    call_next: Next
    context: Context

    def __call__(self, message: Message) -> Message:
        return self.call_next(message, self.context)

    def settle_run(self) -> bytes:
        """Give the app its run config by name, so that no order tells it more than the digest."""
        self.context.run_config = dict(sorted(self.context.run_config.items()))
        return run_of(self.context.run_config)


robust_mod = RobustMod()


def _bring(vault: DurableDevice, contribution: Contribution | None) -> None:
    """Bring it; or abstain if it was in a sum before, so that nobody learns that it was."""
    try:
        vault.bring(contribution)
    except SpentUpdateError as error:
        LOG.warning("this device abstains: %s", error)
        vault.bring(None)


def _receive(vault: DurableDevice, request: bytes) -> bytes:
    """What the device answers; as one that has left if another run has what it brought."""
    try:
        return vault.receive(request)
    except SpentUpdateError as error:
        LOG.warning("this device leaves the round: %s", error)
        return vault.receive(request)  # refused like all that it is asked from now on


def _train(message: Message, app: _App, personal: Path | None) -> tuple[Message, Floats32]:
    """What the app answers, and what it changed (lines 4 to 9 of Algorithm 1; Algorithm 4)."""
    w = _arrays(message)
    if personal is not None:
        u = read_personal(personal, size_of(w))
        u = difference(_arrays(_call(app, _with(message, moved(w, u)))), w)
        if np.isfinite(u).all():
            write_personal(personal, u)
        w = moved(w, u)
    answer = _call(app, _with(message, w))
    return answer, difference(_arrays(answer), w)


def _evaluate(message: Message, app: _App, personal: Path | None) -> tuple[Message, Floats32]:
    """What the app answers, and zeros in place of an update, which tell nothing."""
    if personal is not None:
        w = _arrays(message)
        u = read_personal(personal, size_of(w))
        message = _with(message, moved(w, u))
    return _call(app, message), np.zeros(records.STAND_IN, np.float32)


def _call(app: _App, message: Message) -> Message:
    """What the app answers to a message as it would be without rfa.

    Raises:
        AppFailedError: if it fails; what it says may be private, and is logged here only.
    """
    bare = copy.copy(message)
    bare.content = RecordDict({k: v for k, v in message.content.items() if k != records.KEY})
    try:
        answer: Any = app(bare)
    except Exception as error:
        LOG.exception("the app failed")
        msg = f"the app raised {type(error).__name__}: the log of the node says more"
        raise AppFailedError(msg) from None
    if not isinstance(answer, Message) or answer.has_error():
        LOG.error("the app returned %s", answer)
        msg = "the app returned an error, or no Message: the log of the node says more"
        raise AppFailedError(msg)
    return answer


def _with(message: Message, arrays: ArrayRecord) -> Message:
    """The message with other arrays in place of its own."""
    (name,) = message.content.array_records
    other = copy.copy(message)
    other.content = RecordDict({**message.content, name: arrays})
    return other


def _arrays(message: Message) -> ArrayRecord:
    array_records = list(message.content.array_records.values())
    if len(array_records) != 1:
        msg = f"a message has {len(array_records)} ArrayRecords, and just one can be aggregated"
        raise ArraysError(msg)
    return array_records[0]
