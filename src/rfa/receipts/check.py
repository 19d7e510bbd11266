"""Verification of receipts: each by itself, and each as what follows the one before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rfa.aggregators import SumAggregator
from rfa.aggregators.base import pack_state
from rfa.receipts.charges import Charges
from rfa.receipts.errors import ReceiptError
from rfa.receipts.models import Model, apply_step, digest_of
from rfa.receipts.parts import CheckedPart, check_part
from rfa.receipts.receipt import FIRST, Receipt, Signed, read_receipt, state_bytes
from rfa.receipts.replay import build_recorded, replay
from rfa.receipts.rules import broken_rules
from rfa.receipts.sent import check_sent
from rfa.secagg.device.sent import SentInput
from rfa.secagg.security.cohort import Identities


@dataclass(frozen=True)
class Expected:
    """The expectations of a verifier, from a channel other than the receipts.

    Attributes:
        signer: the public key of the server, which must have signed.
        identities: the public identities of the devices: every part must be signed by them.
        aggregator: the aggregator, as a text.
        models: models that must be those of the rounds, by where they come from.
        sent: the list of what a device sent.
    """

    signer: bytes | None = None
    identities: Identities | None = None
    aggregator: str | None = None
    models: tuple[tuple[str, Model], ...] = ()
    sent: Sequence[SentInput] | None = None


@dataclass(frozen=True)
class Verified:
    """A receipt that holds.

    Attributes:
        signed: the receipt, and who signed it.
        parts: its parts.
        chain: what it follows, in words.
        computed: whether the model after the round was computed, and not only its digest compared.
        sent: how many masked inputs of the verifying device are in its sums; None if none verifies.
        warnings: the rules on several sums that the round did not keep, in words.
        rho: what the round was charged to the most charged device, in zCDP; infinite without noise.
        total_rho: the same, of all receipts so far.
        noisy: whether any sum of the receipts so far has noise.
    """

    signed: Signed
    parts: tuple[CheckedPart, ...]
    chain: str
    computed: bool
    sent: int | None
    warnings: tuple[str, ...]
    rho: float
    total_rho: float
    noisy: bool


@dataclass
class Verifier:
    """Verifies the receipts of a run, in order.

    Attributes:
        expected: the expectations, from another channel.
    """

    expected: Expected = field(default_factory=Expected)
    _last: Signed | None = None
    _sessions: set[bytes] = field(default_factory=set[bytes])
    _computed: tuple[bytes, Model] | None = None
    _seen: set[bytes] = field(default_factory=set[bytes])
    _charges: Charges = field(default_factory=Charges)

    def __post_init__(self) -> None:
        """Take the digests of the models that are known."""
        self._known = {digest_of(model): model for _, model in self.expected.models}

    def check(self, path: Path) -> Verified:
        """Verify the next receipt.

        Raises:
            ReceiptError: saying what does not hold. Those after it can still be verified.
        """
        before, self._last = self._last, None
        signed = read_receipt(path)
        self._last, receipt = signed, signed.receipt
        self._seen |= {receipt.model_before, receipt.model_after}
        self._check_signer(signed)
        aggregator = build_recorded(receipt.aggregator, self.expected.aggregator)
        chain = _check_chain(before, signed, aggregator)
        parts = self._check_parts(receipt, aggregator)
        replay(receipt, parts, aggregator)
        computed = self._check_model(receipt)
        known = self.expected.sent
        sent = None if known is None else check_sent(parts, known)
        warnings = tuple(words for part in parts for words in broken_rules(part))
        alone = Charges()
        alone.add(parts)
        self._charges.add(parts)
        charged = alone.largest, self._charges.largest, self._charges.noisy
        return Verified(signed, parts, chain, computed, sent, warnings, *charged)

    def check_models(self) -> None:
        """Check that each model that is known is one of the rounds.

        Raises:
            ReceiptError: naming one that is not.
        """
        for name, model in self.expected.models:
            if digest_of(model) not in self._seen:
                msg = f"{name} is the model before or after none of these rounds"
                raise ReceiptError(msg)

    def unrecorded(self) -> tuple[SentInput, ...]:
        """Return what the verifying device sent in sessions that are in none of these receipts."""
        return tuple(
            entry for entry in self.expected.sent or () if entry.session not in self._sessions
        )

    def _check_signer(self, signed: Signed) -> None:
        wanted = self.expected.signer
        if wanted is not None and signed.signer != wanted:
            msg = f"it is signed by {signed.signer.hex()}, and not by {wanted.hex()}"
            raise ReceiptError(msg)

    def _check_parts(
        self, receipt: Receipt, aggregator: SumAggregator[Any]
    ) -> tuple[CheckedPart, ...]:
        """Check the parts: as many as the aggregator asks, and no device in two."""
        layout = aggregator.layout(max(1, receipt.devices))
        if len(receipt.parts) != layout.parts:
            msg = f"{len(receipt.parts)} parts are recorded, and the aggregator asks {layout.parts}"
            raise ReceiptError(msg)
        parts = tuple(
            check_part(number, part, self.expected.identities)
            for number, part in enumerate(receipt.parts)
        )
        for part in parts:
            opening = part.opening
            if (opening.queries, opening.dim) != (layout.queries, receipt.dim):
                msg = f"part {part.number} was opened for {opening.queries} queries about "
                msg += f"{opening.dim} numbers, and not {layout.queries} about {receipt.dim}"
                raise ReceiptError(msg)
            if opening.session in self._sessions:
                msg = f"part {part.number} is of a session that was there before"
                raise ReceiptError(msg)
        self._sessions |= {part.opening.session for part in parts}  # parts may share one
        devices = [keys.device for part in parts for keys in part.keys]
        if len(set(devices)) < len(devices) or len(devices) > receipt.devices:
            msg = f"a device is in two parts, or {len(devices)} are in the sums of "
            msg += f"{receipt.devices} that were ready"
            raise ReceiptError(msg)
        return parts

    def _check_model(self, receipt: Receipt) -> bool:
        """Check the model after the round, where the model before is known."""
        model = self._known.get(receipt.model_before)
        if model is None and self._computed and self._computed[0] == receipt.model_before:
            model = self._computed[1]
        if model is None:
            return False
        after = apply_step(model, receipt.step)
        if digest_of(after) != receipt.model_after:
            msg = "the model after the round is not the model before it plus the step"
            raise ReceiptError(msg)
        self._computed = receipt.model_after, after
        return True


def _check_chain(before: Signed | None, signed: Signed, aggregator: SumAggregator[Any]) -> str:
    """Return in words which receipt this one follows."""
    receipt = signed.receipt
    if receipt.previous == FIRST:
        first = pack_state(aggregator.init())
        if receipt.state_before and state_bytes(receipt.state_before) != state_bytes(first):
            msg = "the first receipt does not begin with the aggregator's first state"
            raise ReceiptError(msg)
    if before is None:
        return "the first of its run" if receipt.previous == FIRST else "the one before is not here"
    last = before.receipt
    if receipt.round <= last.round:
        msg = f"it is of round {receipt.round}, after one of round {last.round}: they are out of "
        msg += "order, or of two runs"
        raise ReceiptError(msg)
    if receipt.previous != before.digest:
        msg = f"it does not follow the receipt of round {last.round}: one between them is missing, "
        msg += "or they are of two runs"
        raise ReceiptError(msg)
    for same, what in (
        (signed.signer == before.signer, "it is signed by another key"),
        (receipt.aggregator == last.aggregator, f"it was aggregated by {receipt.aggregator}"),
        (
            state_bytes(receipt.state_before) == state_bytes(last.state_after),
            "its aggregator carried another state",
        ),
        (receipt.model_before == last.model_after, "it starts from another model"),
    ):
        if not same:
            msg = f"{what} than the round before, {last.round}, left"
            raise ReceiptError(msg)
    return f"follows round {last.round}"
