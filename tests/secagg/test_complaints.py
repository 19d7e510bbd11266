"""Shares that do not unseal: who says so, who is named, and what becomes of the sum."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from rfa.secagg.crypto.shares import PRIME
from rfa.secagg.errors import (
    AbortError,
    BadShareError,
    ComplaintsError,
    NotCanonicalError,
    TooFewDevicesError,
)
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.opening import Message
from rfa.secagg.messages.round import MaskedInput, ShareKeys, Unmask, UnmaskShares
from rfa.secagg.messages.stages import Moment, Stage
from rfa.secagg.messages.values import NO_SHARE, read_bitmap, write_bitmap
from rfa.secagg.oracle import SecureOracle
from rfa.secagg.security.parameters import derive
from rfa.secagg.server.complaints import Dispute, Unopened
from rfa.secagg.server.requests import Outbox
from rfa.secagg.server.suspicion import GroupReport, RoundReport, Suspicion
from tests.secagg.party import MALICIOUS, Party, exactly, masked, party, same

NU = 1.5
COUNT = 12
PARAMETERS = derive(COUNT, num_colluders=2, num_dropouts=3, min_honest=3)
"""Each device shares with 6 neighbors, 3 of whom open a secret."""
Spoil = Callable[[int, Message], Message]


def table_of(lost: dict[int, Moment] | None = None) -> Party:
    return party(COUNT, exactly(PARAMETERS), lost=lost)


def spoilt(table: Party, spoil: Spoil) -> SecureOracle:
    """The oracle of a round in which replies are changed on the way, or by who sends them."""

    def carrying(outbox: Outbox) -> Iterable[tuple[int, bytes]]:
        for device, reply in table.carry(outbox):
            yield device, spoil(device, decode(reply)).encode()

    return SecureOracle(table.opening, table.terms, table.parts, carrying, table.known)


def garbling(dealer: int, neighbors: Iterable[int]) -> Spoil:
    """A dealer whose sealed shares for some of its neighbors, by rank, are garbage."""
    chosen = set(neighbors)

    def spoil(device: int, message: Message) -> Message:
        if device != dealer or not isinstance(message, ShareKeys):
            return message
        sealed = [bytes(len(s)) if i in chosen else s for i, s in enumerate(message.sealed)]
        return dataclasses.replace(message, sealed=tuple(sealed))

    return spoil


def complaining(complaints: dict[int, Callable[[], bytes]], *, opens: bool = False) -> Spoil:
    """Devices that complain as they like, and have no shares of those then, or open them."""

    def spoil(device: int, message: Message) -> Message:
        if device in complaints and isinstance(message, MaskedInput):
            return dataclasses.replace(message, complaints=complaints[device]())
        if device in complaints and isinstance(message, UnmaskShares) and not opens:
            return dataclasses.replace(message, shares=(NO_SHARE,) * len(message.shares))
        return message

    return spoil


def right(table: Party, ask: SecureOracle) -> bool:
    unmasked = table.unmasked()
    unmasked(np.zeros(3), NU)
    return same(ask.last, unmasked.last)


def positions(ask: SecureOracle) -> dict[int, int]:
    return ask.server._formed().positions  # pyright: ignore[reportPrivateUsage]


def neighbors(ask: SecureOracle, device: int) -> list[int]:
    """The neighbors of a device, by number."""
    table = ask.server._formed()  # pyright: ignore[reportPrivateUsage]
    return [table.names[other] for other in table.cohort.neighbors(positions(ask)[device])]


def unmasks(table: Party) -> int:
    return sum(isinstance(decode(request), Unmask) for _, request, _ in table.said)


def test_parameters_are_as_these_tests_say() -> None:
    assert (PARAMETERS.degree, PARAMETERS.threshold, PARAMETERS.num_colluders) == (6, 3, 2)


def test_a_dealer_of_garbage_to_all_is_named_before_anything_is_opened() -> None:
    table = table_of()
    dealer = min(table.devices)
    ask = spoilt(table, garbling(dealer, range(6)))
    with pytest.raises(BadShareError, match=f"6 neighbors of device {dealer} could not unseal"):
        ask(np.zeros(3), NU)
    assert set(ask.server.faults) == {dealer}
    assert "6 of its neighbors" in str(ask.server.faults[dealer])
    assert ask.server.disputes == {Dispute(dealer, other) for other in neighbors(ask, dealer)}
    assert not unmasks(table)


def test_a_dealer_of_garbage_to_more_than_can_collude_is_named_and_the_round_goes_on() -> None:
    table = table_of()
    dealer = min(table.devices)
    ask = spoilt(table, garbling(dealer, [0, 2, 5]))
    ask(np.zeros(3), NU)
    assert right(table, ask)
    assert isinstance(ask.server.faults.pop(dealer), ComplaintsError)
    assert not ask.server.faults
    around = neighbors(ask, dealer)
    assert ask.server.disputes == {Dispute(dealer, around[rank]) for rank in (0, 2, 5)}


@pytest.mark.parametrize("ranks", [[1], [1, 4]])
def test_a_dealer_of_garbage_to_as_many_as_can_collude_is_in_dispute(ranks: list[int]) -> None:
    table = table_of()
    dealer = min(table.devices)
    ask = spoilt(table, garbling(dealer, ranks))
    ask(np.zeros(3), NU)
    assert right(table, ask)
    assert not ask.server.faults
    around = neighbors(ask, dealer)
    assert ask.server.disputes == {Dispute(dealer, around[rank]) for rank in ranks}


def test_colluders_that_complain_falsely_get_nobody_named() -> None:
    """As many as there may be: the sum is right, and each of them is in all of its disputes."""
    table = table_of()
    liars = sorted(table.devices)[:2]
    asked: list[SecureOracle] = []

    def about_all(device: int) -> Callable[[], bytes]:
        def bitmap() -> bytes:
            around = {positions(asked[0])[other] for other in neighbors(asked[0], device)}
            return write_bitmap(around, COUNT)

        return bitmap

    ask = spoilt(table, complaining({liar: about_all(liar) for liar in liars}))
    asked.append(ask)
    ask(np.zeros(3), NU)
    assert right(table, ask)
    assert not ask.server.faults
    wanted = {Dispute(other, liar) for liar in liars for other in neighbors(ask, liar)}
    assert ask.server.disputes == wanted


@pytest.mark.parametrize("kind", ["nobody", "itself", "a stranger", "short", "long", "beyond"])
def test_malformed_complaints_cost_the_complainer_its_place(kind: str) -> None:
    table = table_of()
    bad = min(table.devices)
    asked: list[SecureOracle] = []

    def bitmap() -> bytes:
        here = positions(asked[0])
        around = set(neighbors(asked[0], bad))
        stranger = next(device for device in here if device not in around | {bad})
        whole = write_bitmap({here[other] for other in around}, COUNT)
        return {
            "nobody": write_bitmap((), COUNT),
            "itself": write_bitmap({here[bad]}, COUNT),
            "a stranger": write_bitmap({here[stranger]}, COUNT),
            "short": whole[:1],
            "long": whole + b"\0",
            "beyond": whole[:1] + bytes([whole[1] | 0x80]),
        }[kind]

    ask = spoilt(table, complaining({bad: bitmap}))
    asked.append(ask)
    total = ask(np.zeros(3), NU)
    assert total.count == COUNT - 1
    assert isinstance(ask.server.faults[bad], NotCanonicalError)
    assert not ask.server.disputes


def test_who_complains_and_opens_the_share_all_the_same_is_found_out() -> None:
    table = table_of()
    liar = min(table.devices)
    asked: list[SecureOracle] = []

    def bitmap() -> bytes:
        return write_bitmap({positions(asked[0])[neighbors(asked[0], liar)[0]]}, COUNT)

    ask = spoilt(table, complaining({liar: bitmap}, opens=True))
    asked.append(ask)
    ask(np.zeros(3), NU)
    assert right(table, ask)
    assert "said that it could not be unsealed" in str(ask.server.faults[liar])


@pytest.mark.parametrize("stage", [Stage.SUM, Stage.UNMASK])
def test_complaints_and_drop_outs_together(stage: Stage) -> None:
    """Garbage to one neighbor, and as many drop-outs as there may be: a right sum, or a name."""
    numbers = sorted(table_of().devices)
    table = table_of({device: Moment(0, stage) for device in numbers[-3:]})
    dealer = numbers[0]
    ask = spoilt(table, garbling(dealer, [0]))
    with contextlib.suppress(BadShareError):
        ask(np.zeros(3), NU)
        assert right(table, ask)
    assert dealer not in ask.server.faults
    assert {dispute.dealer for dispute in ask.server.disputes} <= {dealer}
    if ask.last is None:
        with pytest.raises(AbortError, match=f"device {dealer}"):
            ask(np.zeros(3), NU)


def test_a_dealer_that_drops_out_after_garbage_ends_the_round_by_name() -> None:
    """Its key would have to be opened: nobody can, and the complaints say so before."""
    dealer = min(table_of().devices)
    table = table_of({dealer: Moment(0, Stage.SUM)})
    ask = spoilt(table, garbling(dealer, range(5)))
    with pytest.raises(BadShareError, match=f"5 neighbors of device {dealer}"):
        ask(np.zeros(3), NU)
    assert set(ask.server.faults) == {dealer}


def test_complaints_name_dealers_where_the_server_is_malicious_too() -> None:
    table = party(COUNT, MALICIOUS)
    dealer = min(table.devices)
    degree = MALICIOUS.parameters(COUNT).degree
    ask = spoilt(table, garbling(dealer, range(degree)))
    with pytest.raises(BadShareError, match=f"device {dealer}"):
        ask(np.zeros(3), NU)
    assert set(ask.server.faults) == {dealer}


def test_an_honest_round_has_no_complaints_and_no_longer_messages() -> None:
    table = table_of()
    ask = table.oracle()
    ask(np.zeros(3), NU)
    sent = [decode(reply) for _, _, reply in masked(table)]
    assert {message.complaints for message in sent if isinstance(message, MaskedInput)} == {b""}
    assert len({len(reply) for _, _, reply in masked(table)}) == 1
    assert not ask.server.disputes


def test_a_complaint_has_the_length_of_the_cohort_whoever_it_is_about() -> None:
    lengths: set[int] = set()
    for ranks in ([0], [5], [0, 1, 2]):
        table = table_of()
        ask = spoilt(table, garbling(min(table.devices), ranks))
        ask(np.zeros(3), NU)
        sent = [decode(reply) for _, _, reply in masked(table)]
        told = [m.complaints for m in sent if isinstance(m, MaskedInput) and m.complaints]
        assert len(told) == len(ranks)
        assert all(len(read_bitmap(bitmap, COUNT)) == 1 for bitmap in told)
        lengths |= {len(bitmap) for bitmap in told}
    assert lengths == {(COUNT + 7) // 8}


def test_wrong_shares_are_a_dispute_of_dealer_and_holder() -> None:
    """A share that unseals and is wrong: the dealer's lie or the holder's, nobody can tell."""
    table = table_of()
    liar = min(table.devices)

    def spoil(device: int, message: Message) -> Message:
        if device != liar or not isinstance(message, UnmaskShares):
            return message
        wrong = tuple(bytes([0]) + share[:0:-1] for share in message.shares)
        return dataclasses.replace(message, shares=wrong)

    ask = spoilt(table, spoil)
    ask(np.zeros(3), NU)
    assert right(table, ask)
    assert ask.server.disputes
    assert {dispute.holder for dispute in ask.server.disputes} == {liar}
    assert {dispute.forgers for dispute in ask.server.disputes} == {5 - 3 + 2}


def test_liars_who_forge_shares_of_an_honest_dealer_are_as_many_as_the_dispute_says() -> None:
    """Four of six holders open shares of another polynomial that makes the secret, too.

    It goes through t - 2 = 1 honest share: the first holder is honest, and looks wrong.
    """
    table = table_of()
    dealer, asked, forged = min(table.devices), list[SecureOracle](), list[int]()

    def spoil(device: int, message: Message) -> Message:
        if not isinstance(message, UnmaskShares):
            return message
        around = neighbors(asked[0], dealer)
        if device not in around[1:5]:
            return message
        x = around.index(device) + 1
        i = neighbors(asked[0], device).index(dealer)
        more = x * (x - 6)  # nothing at 0, where the secret is, and at the last holder
        value = (int.from_bytes(message.shares[i], "big") + more) % PRIME
        shares = list(message.shares)
        shares[i] = value.to_bytes(len(shares[i]), "big")
        forged.append(device)
        return dataclasses.replace(message, shares=tuple(shares))

    ask = spoilt(table, spoil)
    asked.append(ask)
    ask(np.zeros(3), NU)
    assert right(table, ask)
    honest = neighbors(ask, dealer)[0]
    assert ask.server.disputes == {Dispute(dealer, honest, len(forged))}


def test_nobody_is_in_dispute_where_liars_could_have_made_the_others_look_wrong() -> None:
    """Two of six open wrong shares: four fit, and two of these might be colluders."""
    table = table_of()
    liars = set(sorted(table.devices)[:7])
    asked: list[SecureOracle] = []

    def spoil(device: int, message: Message) -> Message:
        if device not in liars or not isinstance(message, UnmaskShares):
            return message
        around = neighbors(asked[0], device)
        chosen = [sorted(set(neighbors(asked[0], other)) & liars)[:2] for other in around]
        wrong = [
            bytes([0]) + share[:0:-1] if device in pair else share
            for share, pair in zip(message.shares, chosen, strict=True)
        ]
        return dataclasses.replace(message, shares=tuple(wrong))

    ask = spoilt(table, spoil)
    asked.append(ask)
    ask(np.zeros(3), NU)
    assert right(table, ask)
    noted = {dispute.dealer for dispute in ask.server.disputes}
    for device in table.devices:
        if len(set(neighbors(ask, device)) & liars) > 1:
            assert device not in noted


def test_too_few_inputs_end_the_round_before_complaints_are_weighed() -> None:
    numbers = sorted(table_of().devices)
    table = table_of({device: Moment(0, Stage.SUM) for device in numbers[-4:]})
    ask = spoilt(table, garbling(numbers[0], range(6)))
    with pytest.raises(TooFewDevicesError, match="sent their inputs"):
        ask(np.zeros(3), NU)
    assert set(ask.server.faults) <= {numbers[0]}


def miscommitting(*dealers: int) -> Spoil:
    """Dealers of good shares of a secret that is not the one that they commit to."""

    def spoil(device: int, message: Message) -> Message:
        if device not in dealers or not isinstance(message, ShareKeys):
            return message
        wrong = tuple(bytes(len(promised)) for promised in message.commitments)
        return dataclasses.replace(message, commitments=wrong)

    return spoil


def test_a_dealer_whose_shares_make_no_secret_is_in_dispute_with_all_holders() -> None:
    """Everything unseals, nobody complains, and the round ends: it must not do so for ever."""
    table = table_of()
    dealer = min(table.devices)
    ask = spoilt(table, miscommitting(dealer))
    with pytest.raises(BadShareError, match=f"a secret of device {dealer} cannot be opened"):
        ask(np.zeros(3), NU)
    around = neighbors(ask, dealer)
    assert ask.server.disputes == {Dispute(dealer, holder, 6 - 3 + 1) for holder in around}
    assert ask.server.unopened == Unopened(dealer, 6, 6 - 3 + 1)
    ledger = Suspicion(liar_fraction=0.2)
    groups = (GroupReport(frozenset(table.devices)),)
    ledger = ledger.after(RoundReport(groups, disputes=frozenset(ask.server.disputes)))
    assert list(ledger.excluded(table.devices)) == [dealer]


def test_holders_who_forge_an_honest_dealers_shares_do_not_get_it_left_out() -> None:
    """Four of six can keep a secret shut: that many must be reckoned with, and it says so."""
    table = table_of()
    dealer, asked = min(table.devices), list[SecureOracle]()

    def spoil(device: int, message: Message) -> Message:
        around = neighbors(asked[0], dealer) if asked else []
        if device not in around[:4] or not isinstance(message, UnmaskShares):
            return message
        i = neighbors(asked[0], device).index(dealer)
        shares = list(message.shares)
        shares[i] = bytes([0]) + shares[i][:0:-1]
        return dataclasses.replace(message, shares=tuple(shares))

    ask = spoilt(table, spoil)
    asked.append(ask)
    with pytest.raises(BadShareError, match=f"a secret of device {dealer} cannot be opened"):
        ask(np.zeros(3), NU)
    groups = (GroupReport(frozenset(table.devices)),)
    for num_liars, out in ((3, [dealer]), (4, [])):
        ledger = Suspicion(num_liars=num_liars)
        ledger = ledger.after(RoundReport(groups, disputes=frozenset(ask.server.disputes)))
        assert list(ledger.excluded(table.devices)) == out


def test_who_keeps_a_share_back_and_did_not_complain_breaks_the_rules() -> None:
    """Else it could end rounds in which others drop out, and nothing would speak against it."""
    table = table_of()
    liar = min(table.devices)

    def spoil(device: int, message: Message) -> Message:
        if device != liar or not isinstance(message, UnmaskShares):
            return message
        return dataclasses.replace(message, shares=(NO_SHARE, *message.shares[1:]))

    ask = spoilt(table, spoil)
    ask(np.zeros(3), NU)
    assert right(table, ask)
    assert set(ask.server.faults) == {liar}
    assert "had not said that it could not be unsealed" in str(ask.server.faults[liar])
