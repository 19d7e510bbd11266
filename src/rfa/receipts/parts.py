"""Checks of one part of a cohort: that its sums were opened by the rules, over whom it says."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np

from rfa.receipts.errors import ReceiptError
from rfa.receipts.receipt import cohort_name, sum_name, total_name
from rfa.secagg.crypto.keys import is_signed, public_of
from rfa.secagg.device.joining import check_totals
from rfa.secagg.errors import MessageError, SecAggError
from rfa.secagg.fixed_point import Total
from rfa.secagg.messages.decoding import decode_as
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.records import CohortRecord, PartRecord, SumRecord, TotalRecord
from rfa.secagg.messages.round import DeviceKeys, SumRequest
from rfa.secagg.messages.values import read_bitmap
from rfa.secagg.noise import noisy_sum
from rfa.secagg.security.cohort import (
    Cohort,
    Identities,
    check_device_keys,
    form_cohort,
)
from rfa.secagg.security.parameters import Parameters, ServerModel, honest_needed
from rfa.secagg.security.rules import Members, require_enough, require_same
from rfa.secagg.server.masked_sum import decode_total, tail_size
from rfa.secagg.transcript import context_of, leaf_of, survivors_statement


@dataclass(frozen=True)
class OpenedSum:
    """A masked sum that was opened by the rules.

    Attributes:
        record: what the receipt has of it.
        alive: the positions of those who were asked.
        survivors: the positions of those who answered.
        context: the digest of what they were asked.
        total: the total.
    """

    record: SumRecord
    alive: Members
    survivors: Members
    context: bytes
    total: Total


@dataclass(frozen=True)
class CheckedPart:
    """A part of a cohort whose sums were opened by the rules.

    Attributes:
        number: which part it is.
        opening: the message that opened its round.
        keys: the keys of its devices, in order.
        cohort: the cohort; None if it never formed.
        sums: its masked sums.
        stopped: the error that ended its sums early; empty if none did.
        rho: what each of its sums is charged, in zCDP; 0 without noise.
    """

    number: int
    opening: OpenRound
    keys: tuple[DeviceKeys, ...]
    cohort: Cohort | None
    sums: tuple[OpenedSum, ...]
    stopped: str
    rho: float = 0.0

    def inputs(self, opened: OpenedSum) -> dict[int, bytes]:
        """The digests of the masked inputs of a sum, by device."""
        devices = [self.keys[position].device for position in sorted(opened.survivors)]
        return dict(zip(devices, opened.record.inputs, strict=True))


def check_part(number: int, part: PartRecord, identities: Identities | None) -> CheckedPart:
    """Check a part: parameters, keys in order, charges, survivors, signatures, plausible totals.

    Args:
        number: which part it is.
        part: what the receipt has of it.
        identities: the public identities of the devices, where the verifier knows them: then the
            round must be one that they sign. Else those that the receipt lists.

    Raises:
        ReceiptError: naming what does not hold.
    """
    record = part.cohort
    with _named(cohort_name(number)):
        opening = decode_as(OpenRound, record.opening)
        cohort = _check_cohort(record, opening, identities)
        _check_noise(record, opening, cohort)
    if cohort is None:
        if part.sums or not record.stopped:
            msg = f"part {number} has no cohort: it can have no sums, and must say why"
            raise ReceiptError(msg)
        return CheckedPart(number, opening, (), None, (), record.stopped.decode(errors="replace"))
    known = _known(record, identities)
    sums: list[OpenedSum] = []
    for index, (asked, total) in enumerate(zip(part.sums, part.totals, strict=True)):
        with _named(sum_name(number, index)):
            survivors = _check_asked(cohort, asked, sums)
            alive = read_bitmap(asked.alive, cohort.parameters.cohort)
            context = _context(cohort, asked)
            _check_secrets(record.keys, asked, alive, survivors)
            if opening.server_model == ServerModel.MALICIOUS:
                _check_signatures(cohort, record.keys, asked, context, survivors, known)
        with _named(total_name(number, index)):
            opened = _decode(cohort, asked, total, len(survivors))
        sums.append(OpenedSum(asked, alive, survivors, context, opened))
    stopped = record.stopped.decode(errors="replace")
    return CheckedPart(number, opening, record.keys, cohort, tuple(sums), stopped, record.rho)


@contextlib.contextmanager
def _named(what: str) -> Generator[None]:
    """Say of what an error is."""
    try:
        yield
    except (SecAggError, ReceiptError) as error:
        msg = f"{what} does not hold: {error}"
        raise ReceiptError(msg) from None


def _known(record: CohortRecord, identities: Identities | None) -> Identities:
    if identities is not None:
        return identities
    devices = [keys.device for keys in record.keys]
    return dict(zip(devices, record.identities, strict=False))


def _check_cohort(
    record: CohortRecord, opening: OpenRound, identities: Identities | None
) -> Cohort | None:
    """The cohort, with parameters that prove themselves safe, and keys in order."""
    if identities is not None and opening.server_model != ServerModel.MALICIOUS:
        # else a server that lies would record a round that nobody has to sign
        msg = "its round was opened for a semi-honest server, in which no device signs: identities "
        msg += "prove nothing of it"
        raise ReceiptError(msg)
    check_totals(opening)
    if not record.parameters:
        return None
    try:
        n, c, f, h, k, t, model, statistical = record.parameters
        parameters = Parameters(n, c, f, h, k, t, ServerModel(model), bool(statistical))
    except (ValueError, TypeError) as error:
        msg = f"its parameters {record.parameters} are not safe: {error}"
        raise ReceiptError(msg) from None
    if opening.server_model != parameters.server_model:
        msg = f"the round was opened for server model {opening.server_model}, not {parameters}"
        raise ReceiptError(msg)
    malicious = parameters.server_model == ServerModel.MALICIOUS
    if len(record.identities) != (len(record.keys) if malicious else 0):
        msg = f"{len(record.identities)} identities of {len(record.keys)} devices are listed"
        raise ReceiptError(msg)
    needed = honest_needed(opening.queries, 0)
    if parameters.honest < needed:
        msg = f"{opening.queries} sums over {parameters.honest} devices that are sure to be honest "
        msg += f"determine single updates: {needed} are needed"
        raise ReceiptError(msg)
    known = _known(record, identities)
    for keys in record.keys:
        check_device_keys(keys, opening, known)
    public = [key for keys in record.keys for key in keys.all_keys]
    if len(set(public)) < len(public) or len({keys.device for keys in record.keys}) < len(
        record.keys
    ):
        msg = "a device or a key is in it twice"
        raise ReceiptError(msg)
    leaves = tuple(leaf_of(opening, keys) for keys in record.keys)
    return form_cohort(opening, parameters, record.nonce, leaves)


def _check_noise(record: CohortRecord, opening: OpenRound, cohort: Cohort | None) -> None:
    """What sums are charged follows from the noise and the parameters, to the bit."""
    noise = noisy_sum(opening, cohort.parameters) if cohort else None
    charge = noise.rho if noise else 0.0
    if record.rho != charge:
        msg = f"its sums are said to be charged {record.rho}, and their noise makes it {charge}"
        raise ReceiptError(msg)


def _check_asked(cohort: Cohort, asked: SumRecord, before: Sequence[OpenedSum]) -> Members:
    """The survivors of a masked sum, which follow by the rules on those before."""
    parameters, opening = cohort.parameters, cohort.opening
    _check_number(opening, asked.masked_sum, [opened.record.masked_sum for opened in before])
    alive = read_bitmap(asked.alive, parameters.cohort)
    survivors = read_bitmap(asked.survivors, parameters.cohort)
    last = before[-1] if before else None
    if not survivors <= alive or (last and not alive <= last.survivors):
        msg = "devices answered that were not asked, or came back after they dropped out"
        raise ReceiptError(msg)
    require_enough(parameters, survivors, "answered")
    if opening.is_first(asked.masked_sum) and len(survivors) < parameters.cohort:
        msg = f"{len(survivors)} of {parameters.cohort} devices answered, and the first sum of a "
        msg += "fast round is over all of them or not opened"
        raise ReceiptError(msg)
    second = opening.is_second(asked.masked_sum)
    require_same(parameters, last.survivors if last else None, survivors, same_query=second)
    if len(asked.inputs) != len(survivors):
        msg = f"{len(asked.inputs)} masked inputs of {len(survivors)} survivors are listed"
        raise ReceiptError(msg)
    vector = second or not opening.max_share
    mass = last.total.mass if second and last else 0
    if (asked.vector, asked.mass) != (int(vector), mass):
        msg = "the limit on shares was asked about with another total mass than the one found"
        raise ReceiptError(msg)
    return survivors


def _check_number(opening: OpenRound, number: int, before: Sequence[int]) -> None:
    """The masked sums of one roster follow each other; a fast round has those of one of two."""
    starts = {0, opening.each_roster * opening.fast}
    first = before[0] if before else number
    if first not in starts or number not in opening.sums_from(first)[len(before) :][:1]:
        sums = opening.each_roster
        msg = f"it is called masked sum {number} of {sums}, after {list(before) or 'none'}"
        raise ReceiptError(msg)


def _context(cohort: Cohort, asked: SumRecord) -> bytes:
    """The digest of what devices were asked, which masks and signatures are bound to."""
    request = SumRequest(
        cohort.opening.session,
        asked.masked_sum,
        asked.vector,
        asked.nu,
        asked.mass,
        asked.alive,
        (),
        np.zeros(0, np.float32),
    )
    return context_of(cohort.digest, request, asked.point)


def _check_secrets(
    keys: Sequence[DeviceKeys], asked: SumRecord, alive: Members, survivors: Members
) -> None:
    """The secret of each drop-out is that of its public key."""
    if len(asked.secrets) != len(alive):
        msg = f"{len(asked.secrets)} secrets of {len(alive)} devices are listed"
        raise ReceiptError(msg)
    for position, secret in zip(sorted(alive), asked.secrets, strict=True):
        public = keys[position].mask_keys[asked.masked_sum]
        if position not in survivors and public_of(secret) != public:
            msg = f"the secret of device {keys[position].device}, which dropped out, is not its own"
            raise ReceiptError(msg)


def _check_signatures(  # noqa: PLR0913, PLR0917
    cohort: Cohort,
    keys: Sequence[DeviceKeys],
    asked: SumRecord,
    context: bytes,
    survivors: Members,
    identities: Identities,
) -> None:
    """A quorum of the survivors signed them, and what they were asked."""
    statement = survivors_statement(context, asked.survivors)
    signed: set[int] = set()
    for position, signature in asked.signatures:
        device = keys[position].device if position in survivors else None
        if device is None or not is_signed(identities.get(device, b""), statement, signature):
            who = "one that is no survivor" if device is None else f"device {device}"
            msg = f"the signature of {who} is not under these survivors and this request"
            raise ReceiptError(msg)
        signed.add(position)
    if len(signed) < cohort.parameters.quorum:
        msg = f"{len(signed)} devices signed it, and {cohort.parameters.quorum} must"
        raise ReceiptError(msg)


def _decode(cohort: Cohort, asked: SumRecord, total: TotalRecord, count: int) -> Total:
    opening = cohort.opening
    sizes = (opening.dim if asked.vector else 0, tail_size(cohort))
    if (len(total.words), len(total.tail)) != sizes:
        msg = f"it has {len(total.words)} words and {len(total.tail)} scalars, and not {sizes}"
        raise MessageError(msg)
    return decode_total(cohort, total.words, total.tail, count)
