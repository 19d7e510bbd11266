"""A ledger of suspicion: who lies inside of sums, or ends rounds, told from many rounds.

A sum over a group says that someone in it lied, and not who. But groups are drawn anew in each
round, so that a persistent liar is in bad groups in every round, and others are so by chance. For
each device the ledger keeps a likelihood ratio: that of a device that spoils its group almost
always, over that of an honest one, whose group is bad with probability p. It is mixed with one that
does so in 7 of 10 rounds, and over the round in which the device may have begun, so that neither
pausing nor waiting helps a liar.

Formal guarantees (tests/secagg/test_suspicion.py):
    The ratio of an honest device is a martingale of mean 1 or less, as long as p is no less than
    its chance of a bad group. By Ville's inequality it ever reaches n / b with probability b / n
    at most, so that some honest device among n is ever left out for lying with probability b at
    most, however many rounds there are: b is 0.95 a, and the rest of a is for stopping rounds, for
    devices that are lost in no more than a tolerated share of their rounds.
    p is the share of devices in bad groups, and at least the chance of being in a group with one of
    `num_liars` others: that many liars cannot frame an honest device by lying only beside it,
    whatever they know of each other and of the groups.
    No rule that goes by how often a device's groups were bad is faster: beside so many liars who
    always lie, each honest device has bad groups only for T rounds with probability p^T, so that
    n p^T <= a takes T >= ln(n / a) / ln(1 / p) rounds (`soonest`). A liar that always lies is left
    out after as many.
    A device is left out for faults if it broke the rules in three rounds (a message that no
    honest device sends), and for disputes if these are with more devices than can be liars: with
    different devices of those that there are, over all rounds, and not only of one group. Two
    honest devices are in no dispute that counts, so that an honest one has no more rivals than
    there are liars, and liars who complain of many have all of these.
    No more than `max_fraction` of the devices are ever left out.

Without groups there is no evidence about liars, only about those who stop rounds.

    >>> ledger = Suspicion()
    >>> for t in range(9):
    ...     others = [(t + first) % 12 for first in range(12)]
    ...     groups = [GroupReport(frozenset({12, *others[:2]}), bad="its sum was implausible")]
    ...     groups += [GroupReport(frozenset(others[i : i + 3])) for i in (2, 5, 8)]
    ...     ledger = ledger.after(RoundReport(tuple(groups)))
    >>> list(ledger.excluded(range(13)))
    [12]
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rfa._checks import check_count, check_number
from rfa.errors import InvalidValueError
from rfa.secagg.server.complaints import Dispute

PERSISTENT = (0.98, 0.7)
"""How often a device that is looked for spoils its group, or is lost: almost always, or mostly."""
MIXED = (0.9, 0.1)
"""How much each of these counts."""
AT_ONCE = 0.93
"""How much it counts that a device begins in its first round, and not later."""
FOR_LYING = 0.95
"""The share of all false alarms that is for lies; the rest is for stopping rounds."""
STRIKES = 3
"""In so many rounds a device may break the rules before it is left out."""


@dataclass(frozen=True)
class GroupReport:
    """What one sum tells of the devices in it.

    Attributes:
        members: the devices whose inputs are in it.
        bad: what was wrong with it that cannot be told to be one device's fault; empty for nothing.
    """

    members: frozenset[int]
    bad: str = ""


@dataclass(frozen=True)
class RoundReport:
    """What one round tells of its devices.

    Attributes:
        groups: its sums; one, where there were no groups.
        joined: those who joined, if others than those in the groups did.
        lost: those who joined and did not answer a later stage.
        faults: those who broke the rules, and how.
        disputes: pairs of whom one broke them.
    """

    groups: tuple[GroupReport, ...] = ()
    joined: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()
    faults: Mapping[int, str] = field(default_factory=dict[int, str])
    disputes: frozenset[Dispute] = frozenset()

    @property
    def everyone(self) -> frozenset[int]:
        """All devices of the round."""
        members = frozenset[int]().union(*(group.members for group in self.groups))
        return members | self.joined | self.lost | frozenset(self.faults)


@dataclass(frozen=True)
class Evidence:
    """A likelihood ratio over rounds, and the counts behind it.

    Attributes:
        ratios: those of persistent offenders that began in one of the rounds so far, one for each
            of PERSISTENT, over that of an honest device.
        rounds: the rounds that counted.
        hits: those in which the device was where an offender is.
    """

    ratios: tuple[float, float] = (0.0, 0.0)
    rounds: int = 0
    hits: int = 0

    @property
    def total(self) -> float:
        """The ratio with what is kept for later rounds: 1 on average for an honest device."""
        mixed = sum(share * ratio for share, ratio in zip(MIXED, self.ratios, strict=True))
        return mixed + _later(self.rounds)

    def after(self, chance: float, *, hit: bool) -> Evidence:
        """The evidence after a round in which an honest device is hit with this chance at most."""
        rounds = self.rounds + 1
        begins = _later(self.rounds) - _later(rounds)
        first, second = (
            (ratio + begins) * _factor(persistent, chance, hit=hit)
            for ratio, persistent in zip(self.ratios, PERSISTENT, strict=True)
        )
        return Evidence((first, second), rounds, self.hits + hit)


def _later(rounds: int) -> float:
    """How much it counts that a device begins after so many rounds: 1 before the first."""
    return 2 * (1 - AT_ONCE) / (rounds + 1) if rounds else 1.0


def _factor(persistent: float, chance: float, *, hit: bool) -> float:
    """The likelihood of a round for a persistent offender, over that for an honest device."""
    offends = persistent + (1 - persistent) * chance
    return offends / chance if hit else (1 - offends) / (1 - chance)


@dataclass(frozen=True)
class Record:
    """What is known of a device.

    Attributes:
        lying: evidence that it lies inside of sums.
        stopping: evidence that it is lost again and again.
        faults: in how many rounds it broke the rules.
        last_fault: how it last did.
        rivals: the devices with which it was in dispute, and how many forgers each dispute takes,
            as `Dispute` says.
    """

    lying: Evidence = Evidence()
    stopping: Evidence = Evidence()
    faults: int = 0
    last_fault: str = ""
    rivals: Mapping[int, int] = field(default_factory=dict[int, int])

    def against(self, rival: int, forgers: int) -> Record:
        """The record after a dispute; the one that takes most forgers counts, 0 being for none."""
        before = self.rivals.get(rival, forgers)
        most = max(before, forgers) if before and forgers else 0
        return dataclasses.replace(self, rivals={**self.rivals, rival: most})

    def count_rivals(self, devices: Collection[int], num_liars: int) -> int:
        """How many of these devices are its rivals, where no dispute is one that liars forged."""
        rivals = ((rival, forgers) for rival, forgers in self.rivals.items() if rival in devices)
        return sum(not forgers or forgers > num_liars for _, forgers in rivals)

    def reason(self, limits: tuple[float, float], rivals: int, num_liars: int) -> str:
        """Why the device is to be left out, in words; empty if it is not.

        Args:
            limits: the ratios from which on evidence is enough, for lying and for stopping.
            rivals: how many devices there are with which it was in dispute.
            num_liars: how many of all may lie.
        """
        if self.faults >= STRIKES:
            return f"it broke the rules in {self.faults} rounds, last: {self.last_fault}"
        if rivals > num_liars:
            return f"it is in dispute about shares with {rivals} devices"
        if self.lying.total >= limits[0]:
            hits, rounds = self.lying.hits, self.lying.rounds
            return f"{hits} of {rounds} of its groups gave sums that no honest group gives"
        if self.stopping.total >= limits[1]:
            return f"it was lost in {self.stopping.hits} of {self.stopping.rounds} rounds it joined"
        return ""

    def weight(self, rivals: int) -> tuple[int, float]:
        """How much speaks against it, to leave out the worst first."""
        return self.faults + rivals, max(self.lying.total, self.stopping.total)


@dataclass(frozen=True)
class Suspicion:
    """The ledger: state in and out, no randomness.

    Attributes:
        records: what is known of each device.
        num_liars: how many devices may lie together; None for as many as the groups of a round
            withstand, fewer than half of them. Fewer are found sooner, and can frame nobody.
        liar_fraction: the share of all devices that may lie about shares.
        tolerated_loss: the share of its rounds in which an honest device may be lost.
        false_alarm: the probability a that an honest device is ever left out.
        max_fraction: the most devices that are left out, below 1/2.
    """

    records: Mapping[int, Record] = field(default_factory=dict[int, Record])
    num_liars: int | None = None
    liar_fraction: float = 0.1
    tolerated_loss: float = 0.2
    false_alarm: float = 0.05
    max_fraction: float = 0.3

    def __post_init__(self) -> None:
        """Check the limits."""
        if self.num_liars is not None:
            check_count("num_liars", self.num_liars)
        for name in ("liar_fraction", "tolerated_loss", "false_alarm", "max_fraction"):
            check_number(name, getattr(self, name), positive=name != "liar_fraction")
            if getattr(self, name) >= 1 / 2:
                msg = f"{name} must be below 1/2, not {getattr(self, name)}"
                raise InvalidValueError(msg)

    def after(self, report: RoundReport) -> Suspicion:
        """The ledger after a round."""
        records = {device: self.records.get(device, Record()) for device in report.everyone}
        joined = report.joined or report.everyone
        missing = max(self.tolerated_loss, len(report.lost & joined) / max(1, len(joined)))
        chance, bad = self._chance(report.groups)
        for group in report.groups if chance else ():
            for device in group.members:
                lying = records[device].lying.after(chance, hit=group in bad)
                records[device] = dataclasses.replace(records[device], lying=lying)
        for device in joined if missing < 1 else ():
            stopping = records[device].stopping.after(missing, hit=device in report.lost)
            records[device] = dataclasses.replace(records[device], stopping=stopping)
        for device, fault in report.faults.items():
            count = records[device].faults + 1
            records[device] = dataclasses.replace(records[device], faults=count, last_fault=fault)
        for dispute in report.disputes:
            for one, other in ((dispute.dealer, dispute.holder), (dispute.holder, dispute.dealer)):
                known = records.get(one, self.records.get(one, Record()))
                records[one] = known.against(other, dispute.forgers)
        return dataclasses.replace(self, records={**self.records, **records})

    def excluded(self, devices: Iterable[int], least: int = 1) -> dict[int, str]:
        """Whom to leave out of these devices, the worst first, and why.

        Args:
            devices: all devices that there are.
            least: how many must be left.
        """
        known = dict.fromkeys(sorted(set(devices)))
        count = max(len(known), len(self.records))
        parts = FOR_LYING * self.false_alarm, (1 - FOR_LYING) * self.false_alarm
        limits = count / parts[0], count / parts[1]
        room = max(0, min(len(known) - least, int(self.max_fraction * len(known))))
        liars = max(self.num_liars or 0, math.ceil(self.liar_fraction * len(known)))
        records = {device: self.records[device] for device in known if device in self.records}
        rivals = {d: record.count_rivals(known, liars) for d, record in records.items()}
        told = {d: record.reason(limits, rivals[d], liars) for d, record in records.items()}
        out = [device for device, reason in told.items() if reason]
        out.sort(key=lambda device: records[device].weight(rivals[device]), reverse=True)
        return {device: told[device] for device in out[:room]}

    def forgive(self, device: int) -> Suspicion:
        """The ledger without what it holds against a device, say after it was repaired."""
        records = {other: record for other, record in self.records.items() if other != device}
        return dataclasses.replace(self, records=records)

    def _chance(self, groups: Collection[GroupReport]) -> tuple[float, list[GroupReport]]:
        """The chance of an honest device to be in a bad group, and the bad groups.

        It is 0, which is no evidence, where half of the groups or more are bad, or there is one.
        """
        bad = [group for group in groups if group.bad]
        if len(groups) <= 1 or 2 * len(bad) >= len(groups):
            return 0.0, []
        count = sum(len(group.members) for group in groups)
        among = sum(len(group.members) for group in bad) / max(1, count)
        most = (len(groups) - 1) // 2 if self.num_liars is None else self.num_liars
        beside = beside_liars(count, max(len(group.members) for group in groups), most)
        chance = max(among, beside)
        return (chance, bad) if chance < 1 else (0.0, [])


def beside_liars(count: int, group: int, liars: int) -> float:
    """The chance that a random group with some device in it holds one of some others.

    >>> round(beside_liars(30, 5, 1), 3), round(beside_liars(30, 5, 3), 3)
    (0.138, 0.371)
    """
    spared = 1.0
    for other in range(min(liars, count - 1)):
        spared *= max(0, count - group - other) / (count - 1 - other)
    return 1 - spared


def soonest(count: int, group: int, liars: int, false_alarm: float = 0.05) -> int:
    """The fewest rounds after which a rule that counts bad groups can leave a liar out.

    >>> soonest(30, 5, 2), soonest(30, 5, 1), soonest(1000, 40, 12)
    (5, 4, 11)
    """
    chance = beside_liars(count, group, liars)
    return math.ceil(math.log(count / false_alarm) / -math.log(chance))


def pack_suspicion(ledger: Suspicion) -> list[dict[str, Any]]:
    """The records as plain values, for a checkpoint."""
    return [
        {**dataclasses.asdict(record), "device": device, "rivals": sorted(record.rivals.items())}
        for device, record in sorted(ledger.records.items())
    ]


def unpack_suspicion(ledger: Suspicion, packed: Iterable[Mapping[str, Any]]) -> Suspicion:
    """A ledger with the records that `pack_suspicion` packed.

    Raises:
        ValueError, KeyError, TypeError: if these are none.
    """
    records: dict[int, Record] = {}
    for row in packed:
        values = {name: value for name, value in row.items() if name != "device"}
        values |= {name: _unpack_evidence(values[name]) for name in ("lying", "stopping")}
        values["rivals"] = {int(rival): int(forgers) for rival, forgers in values["rivals"]}
        records[int(row["device"])] = Record(**values)
    return dataclasses.replace(ledger, records=records)


def _unpack_evidence(packed: Mapping[str, Any]) -> Evidence:
    first, second = map(float, packed["ratios"])
    return Evidence((first, second), int(packed["rounds"]), int(packed["hits"]))
