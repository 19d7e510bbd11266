"""The device's side of a secure sum: bytes in, bytes out.

A device trusts only its own code. It answers each request of a round once, in order. It refuses
everything else with a named error, and a refusal leaves its state unchanged.
"""

from __future__ import annotations

import dataclasses
import os

from rfa.secagg.blocks import asked_radius
from rfa.secagg.crypto.masks import add_masks
from rfa.secagg.device.adding import check_share, encode_part, masks_of, room_for
from rfa.secagg.device.ahead import (
    RoundSecrets,
    check_ahead,
    draw_secrets,
    public_keys,
    split_secrets,
    take_secrets,
)
from rfa.secagg.device.forgetting import after_dealing, after_masking, after_opening
from rfa.secagg.device.joining import check_brought
from rfa.secagg.device.membership import Membership, accept_roster, read_parameters
from rfa.secagg.device.memory import GONE, Memory
from rfa.secagg.device.order import check_due, is_over, opening_of
from rfa.secagg.device.profile import Profile
from rfa.secagg.device.sharing import Entropy, complain, deal, release, unseal_shares
from rfa.secagg.errors import (
    OtherSessionError,
    OutOfStageError,
    ReplayedRoundError,
    SecAggError,
    ShareLimitError,
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
from rfa.secagg.messages.stages import Moment, Stage
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
        self._profile = profile
        self._device = int(profile.device)
        self._policy = profile.policy
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
        return self._profile.spent_elsewhere + self.memory.rho

    @property
    def over(self) -> bool:
        """Whether the device has answered all requests of a round."""
        return is_over(self.memory)

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
        check_due(message, self.memory, abstains=self._contribution is None)
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
            case _:  # check_due has refused it
                raise AssertionError

    def _member(self) -> Membership:
        """Return the device's membership in the cohort, from its memory after a restart."""
        if self._membership is None:
            self._membership = self._accept(decode_as(Roster, self.memory.roster))
        return self._membership

    def _accept(self, roster: Roster, before: Membership | None = None) -> Membership:
        """Return the membership that a roster gives, perhaps in place of an earlier one.

        It checks the parameters before any key.
        """
        opening, keys = opening_of(self.memory), decode_as(AdvertiseKeys, self.memory.advert).keys
        parameters = read_parameters(roster, opening)
        if before:
            before.check_regroup(roster, parameters)
        elif not roster.masked_sum:  # the first roster decides about a second, also after a restart
            self._policy.check_cohort(parameters.cohort)
        self._policy.check_parameters(parameters, opening.queries)
        cohort = form_cohort(opening, parameters, roster.nonce, roster.leaves)
        return accept_roster(roster, cohort, keys, self._profile.known)

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
        return dataclasses.replace(keys, signature=self._profile.sign(leaf_of(opening, keys)))

    def _deal(self, roster: Roster, request: bytes) -> tuple[Memory, ShareKeys]:
        """Check the cohort, and deal shares of all secrets to the neighbors."""
        memory, first = self.memory, roster.masked_sum
        member = self._accept(roster, self._member() if first else None)
        opening, spent = member.opening, self.spent_rho - memory.charged
        self._policy.check_charge(spent, member.charge, opening.each_roster)
        incoming, shares = deal(member, memory, first, self._entropy)
        self._membership = member
        return after_dealing(memory, opening, first, request, incoming), shares

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
        member, masked_sum = self._member(), sum_request.masked_sum
        opening = member.opening
        self._policy.check_query(sum_request.v, asked_radius(opening, sum_request), memory.nu)
        charge = max(0.0, member.charge - memory.charged)
        self._policy.check_charge(self._profile.spent_elsewhere + memory.rho, charge)
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
        after = after_masking(
            memory,
            opening,
            sum_request,
            shares=shares,
            context=context,
            asked=point,
            charge=charge,
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
        signature = self._profile.sign(survivors_statement(self.memory.context, message.survivors))
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
            signature = self._profile.sign(survivors_statement(memory.context, unmask.survivors))
        elif opening.server_model == ServerModel.MALICIOUS:
            member.check_quorum(unmask, memory, self._profile.known or {})
        shares = unseal_shares(member, memory, unmask, survivors) if first else memory.shares
        released = release(member, memory, shares, survivors)
        after = after_opening(memory, opening, unmask)
        keys: tuple[DeviceKeys, ...] = ()
        if unmask.ahead:
            after = dataclasses.replace(after, ahead=draw_secrets(self._entropy, opening))
            keys = (public_keys(self._device, after.ahead),)
        return after, UnmaskShares(unmask.session, masked_sum, released, signature, keys).encode()
