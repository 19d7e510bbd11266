"""A ledger of suspicion: evidence over many rounds of devices that lie in sums or end rounds.

A sum over a group reveals that someone in it lied, and not who. But groups are drawn again in each
round: a persistent liar is in bad groups in every round, and other devices only by chance. For each
device the ledger keeps a likelihood ratio: that of a device that almost always spoils its group, to
that of an honest one, whose group is bad with probability p. It is mixed with the ratio for a
device that does so in 7 of 10 rounds, and over the round in which the device may have begun. So
neither pausing nor waiting helps a liar.

Formal guarantees (tests/secagg/test_suspicion.py):
    The ratio of an honest device is a supermartingale of mean at most 1, as long as p is at least
    its chance of a bad group. By Ville's inequality it ever reaches n / b with probability at most
    b / n. So with probability at most b, any honest device among n is ever left out for lying, over
    any number of rounds. b is 0.95 a; the rest of a is for stopping rounds, and holds for
    devices that are lost in no more than a tolerated fraction of their rounds.
    p is the fraction of devices in bad groups, and at least the chance of sharing a group with one
    of `num_liars` others. So that many liars cannot frame an honest device by lying only beside
    it, whatever they know about each other and about the groups.
    No rule that counts how often a device's groups were bad is faster: if `num_liars` liars always
    lie, an honest device has only bad groups for T rounds with probability p^T, so n p^T <= a takes
    T >= ln(n / a) / ln(1 / p) rounds (`soonest`). A liar that always lies is left out after that
    many rounds.
    A device is left out for faults if it broke the rules in three rounds (with a message that no
    honest device sends). It is left out for disputes if they are with more devices than can be
    liars, counted over all rounds and among all devices, not only those of one group. Two
    honest devices are in no dispute that counts, so an honest one has no more rivals than
    there are liars, and a liar that complains about many devices has all of them as rivals.
    No more than `max_fraction` of the devices are ever left out.

Without groups there is no evidence about liars, only about devices that stop rounds.

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
"""How often the offenders in question spoil their group, or are lost: almost always, or mostly."""
MIXED = (0.9, 0.1)
"""The weight of each of these in the mixture."""
AT_ONCE = 0.93
"""The weight of the case that a device begins in its first round, and not later."""
FOR_LYING = 0.95
"""The share of all false alarms that is for lies; the rest is for stopping rounds."""
STRIKES = 3
"""A device that breaks the rules in this many rounds is left out."""


@dataclass(frozen=True)
class GroupReport:
    """The evidence from one sum about its devices.

    Attributes:
        members: the devices whose inputs are in it.
        bad: what was wrong with it, if no single device is known to be at fault; empty for nothing.
    """

    members: frozenset[int]
    bad: str = ""


@dataclass(frozen=True)
class RoundReport:
    """The evidence from one round about its devices.

    Attributes:
        groups: its sums; one, if there were no groups.
        joined: the devices that joined, if they differ from those in the groups.
        lost: the devices that joined and did not answer a later stage.
        faults: the devices that broke the rules, and how.
        disputes: pairs of devices, one of which broke the rules.
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
        ratios: the likelihoods of persistent offenders that began in one of the rounds so far, one
            for each of PERSISTENT, divided by that of an honest device.
        rounds: the rounds that counted.
        hits: the rounds in which the device was in a bad group, or lost.
    """

    ratios: tuple[float, float] = (0.0, 0.0)
    rounds: int = 0
    hits: int = 0

    @property
    def total(self) -> float:
        """The ratio including offenders that begin later: 1 on average for an honest device."""
        mixed = sum(share * ratio for share, ratio in zip(MIXED, self.ratios, strict=True))
        return mixed + _later(self.rounds)

    def after(self, chance: float, *, hit: bool) -> Evidence:
        """Return the evidence after a round.

        Args:
            chance: the largest probability with which an honest device is hit.
            hit: whether the device was hit.
        """
        rounds = self.rounds + 1
        begins = _later(self.rounds) - _later(rounds)
        first, second = (
            (ratio + begins) * _factor(persistent, chance, hit=hit)
            for ratio, persistent in zip(self.ratios, PERSISTENT, strict=True)
        )
        return Evidence((first, second), rounds, self.hits + hit)


def _later(rounds: int) -> float:
    """Return the weight of the case that a device begins after `rounds` rounds: 1 for 0 rounds."""
    return 2 * (1 - AT_ONCE) / (rounds + 1) if rounds else 1.0


def _factor(persistent: float, chance: float, *, hit: bool) -> float:
    """Return the likelihood ratio of a round for a persistent offender to an honest device."""
    offends = persistent + (1 - persistent) * chance
    return offends / chance if hit else (1 - offends) / (1 - chance)


@dataclass(frozen=True)
class Record:
    """The evidence about a device.

    Attributes:
        lying: evidence that it lies in sums.
        stopping: evidence that it is lost again and again.
        faults: the number of rounds in which it broke the rules.
        last_fault: how it last did.
        rivals: the devices with which it was in dispute, and the number of forgers of each dispute,
            as in `Dispute`.
    """

    lying: Evidence = Evidence()
    stopping: Evidence = Evidence()
    faults: int = 0
    last_fault: str = ""
    rivals: Mapping[int, int] = field(default_factory=dict[int, int])

    def against(self, rival: int, forgers: int) -> Record:
        """Return the record after a dispute; of several with a rival, most forgers count, or 0."""
        before = self.rivals.get(rival, forgers)
        most = max(before, forgers) if before and forgers else 0
        return dataclasses.replace(self, rivals={**self.rivals, rival: most})

    def count_rivals(self, devices: Collection[int], num_liars: int) -> int:
        """Return the number of its rivals among devices, without disputes that liars can forge."""
        rivals = ((rival, forgers) for rival, forgers in self.rivals.items() if rival in devices)
        return sum(not forgers or forgers > num_liars for _, forgers in rivals)

    def reason(self, limits: tuple[float, float], rivals: int, num_liars: int) -> str:
        """Return why to leave the device out, in words; empty if there is no reason.

        Args:
            limits: the ratios at which evidence is enough, for lying and for stopping.
            rivals: the number of devices with which it was in dispute.
            num_liars: the number of devices that may lie.
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
        """Return the weight of the evidence, to leave out the worst devices first."""
        return self.faults + rivals, max(self.lying.total, self.stopping.total)


@dataclass(frozen=True)
class Suspicion:
    """The ledger: an immutable value without randomness.

    Attributes:
        records: the evidence about each device.
        num_liars: the number of devices that may lie together; None for as many as the groups of a
            round withstand, fewer than half of them. Smaller numbers are found sooner, and can
            frame nobody.
        liar_fraction: the fraction of all devices that may lie about shares.
        tolerated_loss: the fraction of its rounds in which an honest device may be lost.
        false_alarm: the probability a that any honest device is ever left out.
        max_fraction: the largest fraction of devices that are left out, below 1/2.
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
        """Return the ledger after a round."""
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
        """Return the devices to leave out, the worst first, and why.

        Args:
            devices: all devices that there are.
            least: the number of devices that must be left.
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
        """Return the ledger without the evidence about a device, for example after its repair."""
        records = {other: record for other, record in self.records.items() if other != device}
        return dataclasses.replace(self, records=records)

    def _chance(self, groups: Collection[GroupReport]) -> tuple[float, list[GroupReport]]:
        """Return the chance of an honest device to be in a bad group, and the bad groups.

        It is 0, which is no evidence, if half of the groups or more are bad, or there is only one.
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
    """Return the chance that a random group with a given device contains a liar.

    >>> round(beside_liars(30, 5, 1), 3), round(beside_liars(30, 5, 3), 3)
    (0.138, 0.371)
    """
    spared = 1.0
    for other in range(min(liars, count - 1)):
        spared *= max(0, count - group - other) / (count - 1 - other)
    return 1 - spared


def soonest(count: int, group: int, liars: int, false_alarm: float = 0.05) -> int:
    """Return the fewest rounds after which a rule that counts bad groups can leave a liar out.

    >>> soonest(30, 5, 2), soonest(30, 5, 1), soonest(1000, 40, 12)
    (5, 4, 11)
    """
    chance = beside_liars(count, group, liars)
    return math.ceil(math.log(count / false_alarm) / -math.log(chance))


def pack_suspicion(ledger: Suspicion) -> list[dict[str, Any]]:
    """Return the records as plain values, for a checkpoint."""
    return [
        {**dataclasses.asdict(record), "device": device, "rivals": sorted(record.rivals.items())}
        for device, record in sorted(ledger.records.items())
    ]


def unpack_suspicion(ledger: Suspicion, packed: Iterable[Mapping[str, Any]]) -> Suspicion:
    """Return a ledger with the records that `pack_suspicion` packed.

    Raises:
        ValueError, KeyError, TypeError: if they are not such records.
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
