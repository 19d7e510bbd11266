"""A device's membership in the cohort of its round, and its checks of requests there."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rfa.secagg.crypto.keys import is_signed
from rfa.secagg.device.memory import Memory
from rfa.secagg.errors import (
    AskedTwiceError,
    CohortError,
    DisagreementError,
    DuplicateKeyError,
    MissingKeysError,
    NotCanonicalError,
    OutOfStageError,
    ParameterError,
    SurvivorsError,
    TooManyDropoutsError,
    WeakTermsError,
    WrongDimensionError,
)
from rfa.secagg.fixed_point import Encoding
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.round import DeviceKeys, Roster, SumRequest, Unmask
from rfa.secagg.messages.values import read_bitmap
from rfa.secagg.noise import noisy_sum
from rfa.secagg.security.cohort import SPLIT, Cohort, Identities, check_device_keys
from rfa.secagg.security.parameters import Parameters, ServerModel
from rfa.secagg.security.rules import Members, are_enough, may_follow
from rfa.secagg.statistics import MASS_BITS
from rfa.secagg.transcript import leaf_of, survivors_statement


@dataclass(frozen=True)
class Membership:
    """A device in a cohort.

    Attributes:
        opening: the opening of the round.
        cohort: the cohort.
        position: the device's position.
        keys: the keys of other devices that it received, by position.
    """

    opening: OpenRound
    cohort: Cohort
    position: int
    keys: dict[int, DeviceKeys]

    @functools.cached_property
    def encoding(self) -> Encoding:
        """The encoding of the round, for the cohort."""
        return Encoding.of(self.opening, self.cohort.parameters)

    @property
    def charge(self) -> float:
        """The charge of each sum of the round; 0 without noise."""
        return self.encoding.noise.rho if self.encoding.noise else 0.0

    @functools.cached_property
    def neighbors(self) -> list[int]:
        """The positions of its neighbors, in the order in which they hold its shares."""
        return self.cohort.neighbors(self.position)

    def members(self, bitmap: bytes) -> Members:
        """Return the positions in a bitmap."""
        return read_bitmap(bitmap, self.cohort.parameters.cohort)

    def among(self, members: Members) -> list[int]:
        """Return the neighbors of the device that are among these."""
        return [other for other in self.neighbors if other in members]

    def check_request(self, sum_request: SumRequest, point: bytes, memory: Memory) -> Members:
        """Check a request, and return the devices in its masked sum.

        Raises:
            RefusalError, MessageError: if the round does not allow the request.
        """
        if len(sum_request.v) not in (0, self.opening.dim):
            msg = (
                f"v has {len(sum_request.v)} coordinates, and the round is about {self.opening.dim}"
            )
            raise WrongDimensionError(msg)
        if len(sum_request.v) and not (np.isfinite(sum_request.v).all() and sum_request.v.any()):
            msg = "v must be finite, and empty where it is zero"
            raise NotCanonicalError(msg)
        self._check_phase(sum_request, point, memory)
        alive = self.members(sum_request.alive)
        if sum_request.mass > len(alive) << MASS_BITS:
            msg = f"{len(alive)} devices cannot have the total mass that is claimed"
            raise NotCanonicalError(msg)
        before = self._before(memory)
        if self.position not in alive or not (before is None or alive <= before):
            msg = f"the list of devices in masked sum {sum_request.masked_sum} is impossible"
            raise SurvivorsError(msg)
        self._check_enough(alive)
        later = self.opening.is_first(sum_request.masked_sum)
        self.check_sealed(sum_request.sealed, frozenset() if later else alive)
        return alive

    def check_sealed(self, sealed: Sequence[bytes], dealers: Members) -> None:
        """Check that there is one sealed share of each neighbor among these.

        Raises:
            NotCanonicalError: if there are more, or fewer.
        """
        if len(sealed) != len(self.among(dealers)):
            msg = f"{len(sealed)} sealed shares do not match the neighbors who are alive"
            raise NotCanonicalError(msg)

    def check_regroup(self, roster: Roster, parameters: Parameters) -> None:
        """Check that a second roster, after a fast sum, reveals no more than the first.

        The masked input of the fast sum has been sent, and others can open that sum, over the whole
        first roster, with t shares of each secret. At least n - f devices of the first roster open
        a sum over the second. So at most f others are left to open the first, and with c colluders
        they are fewer than t where the server is malicious.

        Raises:
            CohortError: if there is anyone else in it.
            TooManyDropoutsError: if fewer could survive in it than in the first.
            WeakTermsError: if it withstands less.
        """
        first = self.cohort.parameters
        if not set(roster.leaves) <= set(self.cohort.leaves):
            msg = "a roster that replaces another has devices that the first did not have"
            raise CohortError(msg)
        if parameters.survivors < first.survivors:
            msg = (
                f"{parameters.survivors} devices may be left in a sum over a second roster, and at "
                f"least {first.survivors} must be, as in the first: {first} and {parameters}"
            )
            raise TooManyDropoutsError(msg)
        promised = (first.num_colluders, first.min_honest, -first.statistical)
        offered = (parameters.num_colluders, parameters.min_honest, -parameters.statistical)
        if any(now < before for now, before in zip(offered, promised, strict=True)):
            msg = f"a second roster withstands less than the first: {parameters}, not {first}"
            raise WeakTermsError(msg)

    def check_survivors(self, bitmap: bytes, masked_sum: int, memory: Memory) -> Members:
        """Check the survivors of a masked sum, and return them.

        Raises:
            RefusalError: if they are impossible, too few, or would reveal the devices that left.
        """
        survivors, alive = self.members(bitmap), self.members(memory.alive)
        if self.position not in survivors or not survivors <= alive:
            msg = "the list of survivors of the masked sum is impossible"
            raise SurvivorsError(msg)
        if self.opening.is_first(masked_sum) and survivors != alive:
            msg = (
                f"{len(alive - survivors)} of the roster are said to be lost, and the first sum of "
            )
            msg += "a fast round is over all of it or not opened"
            raise SurvivorsError(msg)
        self._check_enough(survivors)
        before = self._before(memory)
        same = self.opening.is_second(masked_sum)
        if not may_follow(self.cohort.parameters, before, survivors, same_query=same):
            gone = len(before or ()) - len(survivors)
            msg = f"{gone} devices left since the last query: their inputs could be revealed"
            raise SurvivorsError(msg)
        return survivors

    def check_quorum(self, unmask: Unmask, memory: Memory, known: Identities) -> None:
        """Check that a quorum signed the same survivors of the same masked sum.

        Raises:
            DisagreementError: if it did not.
        """
        if unmask.survivors != memory.signed:
            msg = "the survivors are not those that this device signed"
            raise DisagreementError(msg)
        statement = survivors_statement(memory.context, unmask.survivors)
        survivors = self.members(unmask.survivors)
        positions = [position for position, _ in unmask.signatures]
        if any(first >= second for first, second in itertools.pairwise(positions)):
            msg = "signatures must be in the order of the cohort, one for each device"
            raise NotCanonicalError(msg)
        signers, quorum = {self.position}, self.cohort.parameters.quorum
        for position, signature in unmask.signatures:
            if len(signers) < quorum and position in survivors and position not in signers:
                public = known[self.keys[position].device]
                if is_signed(public, statement, signature):
                    signers.add(position)
        if len(signers) < quorum:
            msg = f"{len(signers)} devices signed these survivors, and {quorum} are needed"
            raise DisagreementError(msg)

    def _check_phase(self, sum_request: SumRequest, point: bytes, memory: Memory) -> None:
        """Check that a masked sum asks for the right phase of a query, at the same v and nu.

        With a limit on shares, a query takes a masked sum for the scalars and then one for the
        vectors. A second roster gets the same query as the first.
        """
        second = self.opening.is_second(sum_request.masked_sum)
        vector = second or not self.opening.max_share
        if sum_request.vector != vector or bool(sum_request.mass) != second:
            msg = f"masked sum {sum_request.masked_sum} asks for the wrong phase of a query"
            raise OutOfStageError(msg)
        if second and point != memory.asked:
            msg = f"v or nu changed within a query, at masked sum {sum_request.masked_sum}"
            raise AskedTwiceError(msg)
        anew = self.opening.fast and sum_request.masked_sum == self.opening.each_roster
        if anew and point != memory.asked:
            msg = "v or nu changed with another roster, which is about the same query"
            raise AskedTwiceError(msg)

    def _before(self, memory: Memory) -> Members | None:
        return self.members(memory.survivors) if memory.survivors else None

    def _check_enough(self, members: Members) -> None:
        parameters = self.cohort.parameters
        if not are_enough(parameters, members):
            msg = (
                f"{parameters.cohort - len(members)} of {parameters.cohort} devices are said to "
                f"have dropped out, and at most {parameters.num_dropouts} may"
            )
            raise TooManyDropoutsError(msg)


def accept_roster(
    roster: Roster, cohort: Cohort, keys: DeviceKeys, identities: Identities | None
) -> Membership:
    """Return the membership that a roster gives to the device with these keys.

    Raises:
        CohortError, NotCanonicalError: if the device does not accept it; the message says why.
    """
    opening = cohort.opening
    leaf = leaf_of(opening, keys)
    if leaf not in roster.leaves:
        msg = f"the keys of device {keys.device} are not in the cohort, or were changed"
        raise MissingKeysError(msg)
    position = roster.leaves.index(leaf)
    everyone = opening.server_model == ServerModel.MALICIOUS
    wanted = range(len(roster.leaves)) if everyone else cohort.neighbors(position)
    sent = {leaf_of(opening, listed): listed for listed in roster.keys}
    sent.pop(leaf, None)
    others = {other: sent[roster.leaves[other]] for other in wanted if roster.leaves[other] in sent}
    for listed_leaf, listed in sent.items():
        if listed_leaf not in roster.leaves:
            msg = f"the keys of device {listed.device} are not in the cohort: {SPLIT}"
            raise CohortError(msg)
    if len(others) != len(wanted) - everyone or len(others) != len(sent):
        msg = (
            f"keys of {len(sent)} other devices were sent, {len(others)} of which the cohort "
            f"lists where they belong, and {len(wanted) - everyone} are wanted"
        )
        raise CohortError(msg)
    _check_all([keys, *others.values()], opening, identities)
    return Membership(opening, cohort, position, others)


def _check_all(listed: list[DeviceKeys], opening: OpenRound, identities: Identities | None) -> None:
    """Check that a cohort may have these keys.

    Raises:
        CohortError: if it may not; the message names the device.
    """
    _check_unique("device", (keys.device for keys in listed), str)
    _check_unique("key", (key for keys in listed for key in keys.all_keys), bytes.hex)
    for keys in listed:
        check_device_keys(keys, opening, identities)


def _check_unique(what: str, values: Iterable[object], show: Callable[..., str]) -> None:
    seen: set[object] = set()
    for value in values:
        if value in seen:
            msg = f"the {what} {show(value)} is in the cohort twice"
            raise DuplicateKeyError(msg)
        seen.add(value)


def read_parameters(roster: Roster, opening: OpenRound) -> Parameters:
    """Return the parameters of a roster, after the device has checked that they are safe.

    Raises:
        WeakTermsError: if they are not safe, do not match the opening, or do not fit its noise.
    """
    n, c, f, h, k, t, server_model, statistical = roster.parameters
    try:
        parameters = Parameters(n, c, f, h, k, t, ServerModel(server_model), bool(statistical))
    except (ParameterError, ValueError) as error:
        msg = f"the parameters are not safe: {error}"
        raise WeakTermsError(msg) from None
    if parameters.numbers != roster.parameters or parameters.server_model != opening.server_model:
        msg = f"the parameters are not those of the opening: {parameters}"
        raise WeakTermsError(msg)
    try:
        noisy_sum(opening, parameters)
    except ParameterError as error:
        msg = f"the noise does not fit the parameters: {error}"
        raise WeakTermsError(msg) from None
    return parameters
