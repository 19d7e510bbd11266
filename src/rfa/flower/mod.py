"""The device's side: a mod that keeps the update, and answers the stages of the secure sum.

The app trains and evaluates as always. Its results stay on the device, in a file that only its
owner may read, until the round is over. Only the names of metrics, the length of the update and the
messages of the secure sum leave the device.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from flwr.app import Context, Message, MessageType, RecordDict

from rfa._checks import check_choice, check_number
from rfa._files import as_path
from rfa.errors import InvalidValueError
from rfa.flower import app_calls, records
from rfa.flower.app_calls import App, Next, check_order
from rfa.flower.basis import basis_of, label_of, model_of, sent_of
from rfa.flower.contribution import Start, prepare
from rfa.flower.errors import FlowerError
from rfa.flower.histograms import BINS, histograms_of
from rfa.flower.metric_bounds import metric_bounds_of
from rfa.flower.metrics import metrics_of
from rfa.flower.personal import Personal
from rfa.flower.simulated import storage_for
from rfa.flower.storage import DeviceStorage
from rfa.secagg.device.profile import Profile
from rfa.secagg.device.vault import DurableDevice
from rfa.secagg.errors import AskedTwiceError, SecAggError, SpentUpdateError, WeakTermsError
from rfa.secagg.fixed_point import Contribution
from rfa.secagg.messages.decoding import decode_as
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.round import OpenFirstSum
from rfa.secagg.noise import least_charge
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.security.policy import Policy
from rfa.secagg.weights import EQUAL, EXAMPLE_CAP, EXAMPLES, MODES, cap_fault

LOG = logging.getLogger("flwr")


@dataclass(frozen=True)
class RobustMod:
    """The mod of a device: `ClientApp(mods=[robust_mod])`, or one with its own demands.

    It sends no result in the clear: a strategy that does not ask for sums gets an error. Only query
    messages go to the app unchanged, and the app is responsible for its answers to them.

    Attributes:
        policy: the demands of the device, whatever the server sends. With a budget, such as
            Policy(epsilon=8.0), it trains only for sums with noise, until the charges of all runs
            together reach the budget, and it evaluates nothing.
        folder: the folder of the device's files; by default the node config `rfa-home`, the
            environment variable RFA_HOME, or ~/.rfa.
        weight: the metric that counts examples, if the server is not trusted to name it.
        cap: the most examples that count, if the server is not trusted to choose it. A server that
            sends each device another cap could make all devices but one count for nothing.
        weights: how examples become a weight, if the server is not trusted to choose it:
            "examples", "buckets" or "equal"; `SecureOptions` says what each reveals. The default is
            "examples", and "equal" with a budget.
        robust_metrics: the metrics whose histograms the server may ask for, with their bounds, if
            the server is not trusted to choose them.
        metric_bins: the number of bins of these.
        metric_bounds: the bounds within which metrics count, if the server is not trusted to choose
            them.
        personal: the name of the personal parameters u_i that the server may ask for, if it is not
            trusted. Each training changes them, and no sum needs to follow. So a malicious server
            could send other messages before a round that ruin the parameters of all nodes but one,
            and read the update of that one off the sum. Name them only if you accept that risk.
    """

    policy: Policy = field(default_factory=Policy)
    folder: Path | str | None = None
    weight: str = records.WEIGHTED_BY
    cap: float = EXAMPLE_CAP
    weights: str | None = None
    robust_metrics: Mapping[str, tuple[float, float]] | None = None
    metric_bins: int = BINS
    metric_bounds: Mapping[str, tuple[float, float]] | None = None
    personal: str = ""

    def __post_init__(self) -> None:
        """Check the arguments.

        Raises:
            InvalidValueError: if one is wrong; the message names it.
        """
        if not isinstance(self.policy, Policy):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"policy must be Policy(...), such as Policy(min_cohort=9), not {self.policy!r}: "
            raise InvalidValueError(msg + "a folder is given by name, RobustMod(folder=...)")
        budget = self.policy.epsilon
        if self.weights is None:
            object.__setattr__(self, "weights", EXAMPLES if budget is None else EQUAL)
        as_path("folder", self.folder, "a folder")
        check_number("cap", self.cap, positive=True)
        check_choice("weights", self.weights, MODES)
        if not isinstance(self.weight, str) or not self.weight:  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"weight must be the name of a metric that counts examples, not {self.weight!r}"
            raise InvalidValueError(msg)
        if fault := records.personal_fault(self.personal) or cap_fault(self.cap, str(self.weights)):
            raise InvalidValueError(fault)
        metric_bounds_of(self.metric_bounds)
        asked = histograms_of(self.robust_metrics, self.metric_bins)
        if budget is not None and (self.weights != EQUAL or asked.names):
            msg = (
                f"a device with a budget of epsilon={budget:g} is in sums with noise alone, which "
            )
            msg += "have equal weights and no metrics: give no other weights, and no robust_metrics"
            raise InvalidValueError(msg)

    def __call__(self, message: Message, context: Context, call_next: Next) -> Message:
        """Answer a message of the strategy."""
        if message.metadata.message_type.partition(".")[0] == MessageType.QUERY:
            return call_next(message, context)
        try:
            storage = self.storage(message, context)
            try:
                return self._answer(message, storage, App(call_next, context))
            except (SecAggError, FlowerError) as error:
                LOG.warning("this device does not do what it is asked: %s", error)
                why = str(error).replace(str(storage.root), "its folder")
                masked = isinstance(error, AskedTwiceError)  # it has answered, so it is charged
                code = records.FAILED if masked else records.REFUSED
                return records.refuse(message, f"{type(error).__name__}: {why}", code)
        except Exception as error:
            LOG.exception("this device fails to do what it is asked")
            what = type(error).__name__  # its message may be private
            why = f"{what}: the log of the node says more"
            return records.refuse(message, why, records.FAILED)

    def _answer(self, message: Message, storage: DeviceStorage, app: App) -> Message:
        message, first = records.split_first(message)
        match records.read_order(message):
            case records.Work() as work:
                check_order()
                storage.tidy()
                return self._work(work, message, storage, app, first)
            case records.Stage(task) as stage:
                with self.vault(task, message, storage) as vault:
                    return records.reply(message, _receive(vault, stage))
            case records.Over(task, number, opened):
                with self.vault(task, message, storage) as vault:
                    vault.end(number, opened=opened)
                return records.reply(message, b"")
            case None:
                msg = "this device gives nothing in the clear: use a strategy of rfa.flower"
                raise records.RecordError(msg)

    def storage(self, message: Message, context: Context) -> DeviceStorage:  # noqa: ARG002 others need it
        """Return the storage of the device that a message is for."""
        return storage_for(context, as_path("folder", self.folder, "a folder"))

    def vault(self, task: str, message: Message, storage: DeviceStorage) -> DurableDevice:  # noqa: ARG002
        """Return the device that a message is for, in the secure sum over a task."""
        return storage.device(task, Profile(storage.node, self.policy, storage.identity()))

    def told(self, message: Message) -> RecordDict:
        """Return the part of a message that all devices get, to which the sum is bound."""
        return message.content

    def _work(
        self,
        work: records.Work,
        message: Message,
        storage: DeviceStorage,
        app: App,
        first: records.First | None,
    ) -> Message:
        """Let the app train or evaluate, and keep its result for the next sums.

        If a first sum comes with the work, the device answers it at once.
        """
        self.check_work(work)
        self._check_budget(work, message, storage)
        begins = 0
        if first:  # before the app does any work
            with self.vault(work.task, message, storage) as vault:
                begins = vault.check_ahead(first.request)
        told, run = self.told(message), app.settle_run()
        mark = model_of(told) if work.task == records.EVALUATE else None
        start = Start(basis_of(sent_of(message, told), run), mark)
        play = app_calls.train if work.task == records.TRAIN else app_calls.evaluate
        answer, update = play(message, app, _personal(work, storage, begins))
        layout, brought = prepare(work, update, metrics_of(answer), storage.weights(), start)
        with self.vault(work.task, message, storage) as vault:
            if work.unopened:
                vault.end(work.unopened, opened=False)
            bring = partial(_begin, first=first) if first else _bring
            again, reply = bring(vault, brought, label_of(work, layout), work)
        return records.ready(message, records.Ready(layout, len(update), run, again), reply)

    def _check_budget(self, work: records.Work, message: Message, storage: DeviceStorage) -> None:
        """Check that the privacy budget covers the sums of a request, before the app works.

        Raises:
            WeakTermsError: if the sums would have no noise.
            PrivacySpentError: if they would cost more than is left.
        """
        policy = self.policy
        if policy.epsilon is None:
            return
        if not work.noise:
            msg = f"{work.task} without noise: this device has a budget of epsilon="
            msg += f"{policy.epsilon:g}, which exact sums and metrics do not keep: give the "
            msg += "strategy an epsilon or a noise_multiplier"
            raise WeakTermsError(msg)
        with self.vault(work.task, message, storage) as vault:
            policy.check_charge(vault.spent_rho, least_charge(work.noise))

    def check_work(self, work: records.Work) -> None:
        """Check that the server weights updates as the device demands, if it is not trusted."""
        malicious = self.policy.server_model == ServerModel.MALICIOUS
        asked, own = (work.weights, work.weight, work.cap), (self.weights, self.weight, self.cap)
        if malicious and asked != own:
            msg = (
                f"updates are to be weighted by {asked}, but this device weighs by {own}: give the "
                "same on both sides (weights, the name of the weight, example_cap)"
            )
            raise records.RecordError(msg)
        wanted = histograms_of(self.robust_metrics, self.metric_bins)
        if malicious and work.histograms.names and work.histograms != wanted:
            msg = (
                f"{work.histograms} are asked for, but this device votes in {wanted}: give the "
                "same robust_metrics and metric_bins on both sides"
            )
            raise records.RecordError(msg)
        if malicious and work.bounds != metric_bounds_of(self.metric_bounds):
            msg = (
                f"{work.bounds} are asked for, but this device has {self.metric_bounds}: give the "
                "same metric_bounds on both sides"
            )
            raise records.RecordError(msg)
        if malicious and work.personal not in {"", self.personal}:
            msg = (
                f"personal parameters {work.personal!r} are asked for, which a malicious server "
                "could ruin on all devices but one: RobustMod(personal=...) allows them"
            )
            raise records.RecordError(msg)


robust_mod = RobustMod()


def _personal(work: records.Work, storage: DeviceStorage, begins: int) -> Personal | None:
    """The personal parameters that work asks for; None if it asks for none."""
    if not work.personal:
        return None
    unopened = work.unopened if work.task == records.TRAIN else 0  # evaluation changes nothing
    return Personal(storage, work.personal, begins, unopened)


def _bring(
    vault: DurableDevice, contribution: Contribution | None, label: bytes, work: records.Work
) -> tuple[bytes, bytes]:
    """Set the device's input; return the token of a sum that it repeats, and its keys if asked.

    A device whose input was in a sum that is not to be repeated abstains, like a device without an
    input, so nobody learns which is the case.
    """
    opening = decode_as(OpenRound, work.opening) if work.opening else None
    try:
        return b"", vault.bring(contribution, label, opening, noisy=work.noise > 0)
    except SpentUpdateError as error:
        LOG.warning("%s", error)
    try:
        if contribution and _may_repeat(work):
            return vault.repeat(contribution, label, opening)
    except SpentUpdateError as error:
        LOG.warning("%s", error)
    LOG.warning("this device abstains")
    return b"", vault.bring(None, opening=opening)


def _begin(
    vault: DurableDevice,
    contribution: Contribution | None,
    label: bytes,
    work: records.Work,
    first: records.First,
) -> tuple[bytes, bytes]:
    """Answer a first sum with the keys that were sent ahead; return no token, and the answer.

    Raises:
        SecAggError: if that is not possible: the server must ask again, for new keys.
    """
    if contribution:
        try:
            noisy, whom = work.noise > 0, first.whom
            return b"", vault.begin(contribution, label, first.request, noisy=noisy, whom=whom)
        except SpentUpdateError as error:
            LOG.warning("%s", error)
            if _may_repeat(work):  # such a round must be opened as a repeat
                raise
    LOG.warning("this device abstains")
    opening = decode_as(OpenFirstSum, first.request).opening
    return b"", vault.bring(None, opening=decode_as(OpenRound, opening))


def _may_repeat(work: records.Work) -> bool:
    """Return whether the device may reveal that its input was in a sum before.

    The server knows which models it has asked to evaluate before. It does not know that an update
    is the same as before. The device reveals that only if the server says that it may have lost the
    sum.
    """
    return work.task == records.EVALUATE or work.again


def _receive(vault: DurableDevice, stage: records.Stage) -> bytes:
    """Return the device's answer; it leaves the round if another run used its input."""
    try:
        return vault.receive(stage.request, stage.whom)
    except SpentUpdateError as error:
        LOG.warning("this device leaves the round: %s", error)
        return vault.receive(stage.request)  # refused, like all later requests
