"""The device's side of a secure sum: bytes in, bytes out.

A device trusts only its own code. It answers each request of a round once, in order. It refuses
everything else with a named error, and a refusal leaves its state unchanged.
"""

from __future__ import annotations

import dataclasses
import os

from rfa.secagg.blocks import asked_radius
from rfa.secagg.crypto.keys import sign
from rfa.secagg.crypto.masks import add_masks
from rfa.secagg.crypto.shares import SHARE_SIZE
from rfa.secagg.device.adding import check_share, encode_part, masks_of, room_for
from rfa.secagg.device.ahead import (
    RoundSecrets,
    check_ahead,
    draw_secrets,
    public_keys,
    split_secrets,
    take_secrets,
)
from rfa.secagg.device.joining import check_brought
from rfa.secagg.device.membership import Membership, accept_roster, read_parameters
from rfa.secagg.device.memory import GONE, Memory, forget
from rfa.secagg.device.profile import Profile
from rfa.secagg.device.sharing import Entropy, complain, deal, unseal_shares
from rfa.secagg.errors import (
    AskedTwiceError,
    OtherSessionError,
    OutOfStageError,
    ReplayedRoundError,
    SecAggError,
    ShareLimitError,
    SignatureError,
)
from rfa.secagg.fixed_point import Contribution, EncodedInput
from rfa.secagg.messages.decoding import decode, decode_as
from rfa.secagg.messages.opening import Message, OpenRound
from rfa.secagg.messages.round import (
    Abstain,
    AdvertiseKeys,
    DeviceKeys,
    FirstSum,
    OpenFirstSum,
    Roster,
    ShareKeys,
    SumRequest,
    SurvivorList,
    SurvivorSignature,
    Unmask,
    UnmaskShares,
)
from rfa.secagg.messages.stages import LEFT, START, Moment, Stage, moment_of
from rfa.secagg.messages.values import NO_SHARE
from rfa.secagg.noise import least_charge
from rfa.secagg.security.cohort import form_cohort
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.transcript import (
    SIZE,
    context_of,
    leaf_of,
    point_of,
    request_digest,
    survivors_statement,
)
from rfa.secagg.words import Words


class Device:
    """A device in one round.

    Formal guarantees (tests/secagg/test_refusals.py, test_adversary.py): the device masks one
    answer per masked sum. It releases one share of each neighbor's secrets per masked sum, of one
    kind or the other and never both. It does so only for cohorts, radii, queries and survivors that
    its policy and the parameters allow.
    """

    def __init__(  # noqa: PLR0913
        self,
        contribution: Contribution | None,
        profile: Profile,
        *,
        rounding: bytes | None = None,
        noise: bytes | None = None,
        entropy: Entropy = os.urandom,
        memory: Memory | None = None,
    ) -> None:
        """Create a device with its input to a round.

        Args:
            contribution: its update, weight and metrics; None to abstain, if they are not finite.
            profile: its number, policy and identity.
            rounding: the key of the random choices in rounding; fresh by default.
            noise: the secret of its noise, 32 bytes; fresh by default. Give another one in each
                round, or the noise is the same.
            entropy: the source of its secrets.
            memory: its state before a restart, or only the last round that it joined.
        """
        self._contribution = contribution
        self._device = int(profile.device)
        self._policy, self._elsewhere = profile.policy, profile.spent_elsewhere
        self._identity = profile.identity
        self._rounding, self._noise = rounding, noise
        self._entropy = entropy
        self._membership: Membership | None = None
        self._size = 4 * len(contribution.update) if contribution else 0
        self.memory = memory or Memory()

    @property
    def due(self) -> Moment:
        """The moment of the request that the device expects next."""
        return self.memory.due

    @property
    def spent_rho(self) -> float:
        """The charges of all sums with noise that the device was in, in zCDP."""
        return self.memory.rho + self._elsewhere

    @property
    def over(self) -> bool:
        """Whether the device has answered all requests of a round."""
        due = self.memory.due
        return due > START and due >= Moment(self._opening().masked_sums, Stage.SUM)

    def receive(self, request: bytes) -> bytes:
        """Answer a request; the same request again gets the same bytes.

        Args:
            request: the bytes of the request.

        Returns:
            The bytes of the reply.

        Raises:
            RefusalError, MessageError: if the device refuses; its state is unchanged. A refusal
                that depends on its update, by the limit on shares, ends the round for the device,
                so the server learns that bit only once.
        """
        message = decode(request, self._policy.max_message_bytes + self._size)
        asked = request_digest(request)
        if asked == self.memory.request:
            return self.memory.reply
        self._check_stage(message)
        try:
            after, reply = self._answer(message, request)
        except SecAggError as error:
            self._membership = None  # it may belong to a roster that the device did not accept
            if isinstance(error, ShareLimitError):
                self.memory = self.memory.left()
            raise
        self.memory = dataclasses.replace(after, request=asked, reply=reply)
        return reply

    def _answer(self, message: Message, request: bytes) -> tuple[Memory, bytes]:
        match message:
            case OpenRound():
                return self._join(message, request)
            case OpenFirstSum():
                return self._join_ahead(message)
            case Roster() | FirstSum():
                return self._enter(message, request)
            case SumRequest():
                return self._mask(message, self.memory)
            case SurvivorList():
                return self._consent(message)
            case Unmask():
                return self._open(message)
            case _:  # _check_stage has refused it
                raise AssertionError

    def _check_stage(self, message: Message) -> None:
        """Check that a message is of this session, due now, and new."""
        name, due, asked = type(message).__name__, self.memory.due, moment_of(message)
        if isinstance(message, OpenRound) and due == Moment(0, Stage.ROSTER):
            return  # only keys were sent in the round before: `_join` checks that this one is later
        if asked is None:
            msg = f"{name} is not a request to a device"
            raise OutOfStageError(msg)
        if due > START and message.session != self._opening().session:
            msg = f"{name} of session {message.session.hex()}, which is not that of this round"
            raise OtherSessionError(msg)
        if due == LEFT:
            msg = f"{name} is asked of a device that has left the round"
            raise OutOfStageError(msg)
        if asked < due:
            msg = f"{name} was asked before, with another request"
            raise AskedTwiceError(msg)
        late = asked > due and not self._may_regroup(asked)
        wrong = due > START and isinstance(message, FirstSum) != self._is_first(asked)
        if late or wrong or self.over or (due > START and self._contribution is None):
            msg = f"{name} is asked out of order: it is at {asked}, and {due} is due"
            raise OutOfStageError(msg)

    def _may_regroup(self, asked: Moment) -> bool:
        """Return whether a roster may replace that of a fast sum, which is then never opened."""
        if self.memory.due != Moment(0, Stage.UNMASK):
            return False
        opening = self._opening()
        return bool(opening.fast) and asked == Moment(opening.each_roster, Stage.ROSTER)

    def _is_first(self, asked: Moment) -> bool:
        """Return whether a roster comes with the first sum, as in fast rounds."""
        return asked == Moment(0, Stage.ROSTER) and bool(self._opening().fast)

    def _opening(self) -> OpenRound:
        return decode_as(OpenRound, self.memory.opening)

    def _member(self) -> Membership:
        """Return the device's membership in the cohort, from its memory after a restart."""
        if self._membership is None:
            self._membership = self._accept(decode_as(Roster, self.memory.roster))
        return self._membership

    def _accept(self, roster: Roster, before: Membership | None = None) -> Membership:
        """Return the membership that a roster gives, perhaps in place of an earlier one.

        It checks the parameters before any key.
        """
        opening, keys = self._opening(), decode_as(AdvertiseKeys, self.memory.advert).keys
        parameters = read_parameters(roster, opening)
        if before:
            before.check_regroup(roster, parameters)
        elif not roster.masked_sum:  # the first roster decides about a second, also after a restart
            self._policy.check_cohort(parameters.cohort)
        self._policy.check_parameters(parameters, opening.queries)
        cohort = form_cohort(opening, parameters, roster.nonce, roster.leaves)
        return accept_roster(roster, cohort, keys, self._identity.known if self._identity else None)

    def _join(
        self, opening: OpenRound, request: bytes, secrets: RoundSecrets = ()
    ) -> tuple[Memory, bytes]:
        """Make the secrets of a round, unless they are given, and advertise their public halves."""
        if opening.round <= self.memory.round:
            msg = f"round {opening.round} is not after round {self.memory.round}, the last joined"
            raise ReplayedRoundError(msg)
        joined = dataclasses.replace(
            self.memory.between_rounds(),
            round=opening.round,
            due=Moment(0, Stage.ROSTER),
            opening=request,
        )
        if self._contribution is None:
            return joined, Abstain(opening.session, self._device).encode()
        self._policy.check_opening(
            opening, len(self._contribution.update), len(self._contribution.metrics)
        )
        check_brought(opening, self._contribution)
        charge = least_charge(opening.noise)
        self._policy.check_charge(self.spent_rho, charge, opening.each_roster)
        secrets = secrets or draw_secrets(self._entropy, opening)
        sealing, masks, seeds = split_secrets(secrets)
        advert = AdvertiseKeys(opening.session, self._keys(secrets, opening)).encode()
        after = dataclasses.replace(
            joined,
            advert=advert,
            sealing=sealing,
            masks=masks,
            seeds=seeds,
            rounding=self._rounding or self._entropy(SIZE),
            noise=(self._noise or self._entropy(SIZE)) if opening.noise else GONE,
        )
        return after, advert

    def _join_ahead(self, message: OpenFirstSum) -> tuple[Memory, bytes]:
        """Join with the keys that were sent ahead, which are then used up, and answer at once."""
        opening = decode_as(OpenRound, message.opening)
        first = decode_as(FirstSum, message.first)
        if not message.session == opening.session == first.session:
            msg = "the first sum is of another session than the opening that it comes with"
            raise OtherSessionError(msg)
        if self._contribution is None:
            msg = "a device that abstains takes part in no sum"
            raise OutOfStageError(msg)
        before, secrets = self.memory, take_secrets(self.memory.ahead, opening)
        try:
            self.memory, _ = self._join(opening, message.opening, secrets)
            return self._enter(first, message.first)
        finally:
            self.memory = before

    def _keys(self, secrets: RoundSecrets, opening: OpenRound) -> DeviceKeys:
        keys = public_keys(self._device, secrets)
        if opening.server_model != ServerModel.MALICIOUS:
            return keys
        return dataclasses.replace(keys, signature=self._sign(leaf_of(opening, keys)))

    def _sign(self, statement: bytes) -> bytes:
        if self._identity is None:
            msg = f"device {self._device} has no identity to sign with: give it one"
            raise SignatureError(msg)
        return sign(self._identity.secret, statement)

    def _deal(self, roster: Roster, request: bytes) -> tuple[Memory, ShareKeys]:
        """Check the cohort, and deal shares of all secrets to the neighbors."""
        memory, first = self.memory, roster.masked_sum
        member = self._accept(roster, self._member() if first else None)
        opening, spent = member.opening, self.spent_rho - memory.charged
        self._policy.check_charge(spent, member.charge, opening.each_roster)
        incoming, shares = deal(member, memory, first, self._entropy)
        after = dataclasses.replace(
            memory,
            due=Moment(first, Stage.SUM),
            roster=request,
            incoming=incoming,
            alive=b"",
        )
        if not opening.is_first(first):
            after = after.only_for(opening.sums_from(first))
        self._membership = member
        return after, shares

    def _enter(self, message: Roster | FirstSum, request: bytes) -> tuple[Memory, bytes]:
        """Deal shares; in a fast round also mask, before anyone has the shares of others."""
        if isinstance(message, Roster):
            memory, dealt = self._deal(message, request)
            return memory, dealt.encode()
        roster = message.roster
        memory, dealt = self._deal(roster, roster.encode())
        return self._mask(message.sum_request, memory, dealt)

    def _mask(
        self, sum_request: SumRequest, memory: Memory, dealt: ShareKeys | None = None
    ) -> tuple[Memory, bytes]:
        """Compute and mask the device's input at v; in a fast sum, add the shares that it deals."""
        member, masked_sum, opening = self._member(), sum_request.masked_sum, self._opening()
        self._policy.check_query(sum_request.v, asked_radius(opening, sum_request), memory.nu)
        charge = max(0.0, member.charge - memory.charged)
        self._policy.check_charge(memory.rho + self._elsewhere, charge)
        point = point_of(sum_request.v, sum_request.nu, sum_request.levels)
        alive = member.check_request(sum_request, point, memory)
        context = context_of(member.cohort.digest, sum_request, point)
        shares = () if dealt else unseal_shares(member, memory, sum_request, alive)
        complaints = b"" if dealt else complain(member, alive, shares)
        masked = room_for(opening, sum_request, dealt, complaints)
        part = self._part(member, sum_request, masked.words())
        add_masks(part.words, part.tail, masks_of(member, memory, masked_sum, alive, context))
        tail = part.tail
        del part  # it holds the words
        to_sign = opening.server_model == ServerModel.MALICIOUS and not dealt
        after = dataclasses.replace(
            memory,
            due=Moment(masked_sum, Stage.SURVIVORS if to_sign else Stage.UNMASK),
            masks=forget(memory.masks, masked_sum),
            seeds=forget(memory.seeds, masked_sum),
            shares=shares,
            context=context,
            asked=point,
            alive=sum_request.alive,
            nu=memory.nu if sum_request.levels else sum_request.nu,
            rho=memory.rho + charge,
            charged=charge if dealt else 0.0,
            noise=GONE if opening.is_last(masked_sum) and not dealt else memory.noise,
        )
        return after, masked.finish(tail)

    def _part(self, member: Membership, sum_request: SumRequest, words: Words) -> EncodedInput:
        """Return the input of the device, if its share is within the limit."""
        if self._contribution is None:
            msg = "a device that abstained has nothing to add"
            raise OutOfStageError(msg)
        part = encode_part(self._contribution, member, self.memory, sum_request, words)
        check_share(member, part, sum_request, self._policy.max_share)
        return part

    def _consent(self, message: SurvivorList) -> tuple[Memory, bytes]:
        """Sign the survivors, once."""
        self._member().check_survivors(message.survivors, message.masked_sum, self.memory)
        signature = self._sign(survivors_statement(self.memory.context, message.survivors))
        due = Moment(message.masked_sum, Stage.UNMASK)
        after = dataclasses.replace(self.memory, due=due, signed=message.survivors)
        return after, SurvivorSignature(message.session, message.masked_sum, signature).encode()

    def _open(self, unmask: Unmask) -> tuple[Memory, bytes]:
        """Release one share for each neighbor: of its self-mask if it survived, else of its key."""
        member, memory = self._member(), self.memory
        opening, masked_sum = member.opening, unmask.masked_sum
        survivors = member.check_survivors(unmask.survivors, masked_sum, memory)
        first, signature = opening.is_first(masked_sum), b""
        check_ahead(unmask, opening)
        member.check_sealed(unmask.sealed, survivors if first else frozenset())
        if opening.server_model == ServerModel.MALICIOUS and first:
            signature = self._sign(survivors_statement(memory.context, unmask.survivors))
        elif opening.server_model == ServerModel.MALICIOUS:
            member.check_quorum(unmask, memory, self._identity.known if self._identity else {})
        shares = unseal_shares(member, memory, unmask, survivors) if first else memory.shares
        others = member.among(member.members(memory.alive))
        released = tuple(
            (share[:SHARE_SIZE] if other in survivors else share[SHARE_SIZE:]) or NO_SHARE
            for other, share in zip(others, shares, strict=True)
        )
        after = dataclasses.replace(
            memory,
            due=Moment(masked_sum + 1, Stage.SUM),
            shares=(),
            survivors=unmask.survivors,
            signed=b"",
        )
        if first:
            after = dataclasses.replace(after.only_for(opening.sums_from(0)), charged=0.0)
        if opening.is_last(masked_sum):
            due = Moment(opening.masked_sums, Stage.SUM)
            after = dataclasses.replace(after, due=due, incoming=(), rounding=GONE, noise=GONE)
        keys: tuple[DeviceKeys, ...] = ()
        if unmask.ahead:
            after = dataclasses.replace(after, ahead=draw_secrets(self._entropy, opening))
            keys = (public_keys(self._device, after.ahead),)
        return after, UnmaskShares(unmask.session, masked_sum, released, signature, keys).encode()
