"""Everything that can go wrong in a secure sum, as one tree.

    SecAggError
    ├── ParameterError              parameters that would not be safe, or cannot be met
    │   └── NotFiniteError          an update or a metric that is no number: the device abstains
    ├── MessageError                bytes that are no message
    │   ├── TruncatedError          they end too soon
    │   ├── OversizedError          they are longer than the message may be, or than it says
    │   ├── UnknownVersionError     they are not of this version of the protocol
    │   ├── UnknownKindError        they are of no kind that is known
    │   └── NotCanonicalError       a value that a canonical message cannot hold
    ├── RefusalError                a device does not do what it was asked
    │   ├── OutOfStageError         a message at the wrong time, or for the wrong masked sum
    │   ├── OtherSessionError       a message of another session
    │   ├── ReplayedRoundError      a round that is not newer than the last one it joined
    │   ├── AskedTwiceError         a second, different request where one is answered
    │   ├── NoKeysAheadError        no keys of its own are left that were sent for this round
    │   ├── WeakTermsError          less protection than the device insists on
    │   ├── TooManyQueriesError     more queries than its own cap
    │   ├── TooManyNeighborsError   more neighbors than its own cap
    │   ├── SmallRadiusError        a radius nu below its own floor
    │   ├── ChosenQueryError        a point or radius that a malicious server could have chosen
    │   ├── WrongDimensionError     a request about another number of coordinates
    │   ├── OtherBasisError         a round about another model, or other settings, than its own
    │   ├── UnequalWeightError      a round of equal weights, and it was to weigh by examples
    │   ├── CohortError             a list of devices that it does not accept
    │   │   ├── DuplicateKeyError   a key, or a device, that is there twice
    │   │   ├── MissingKeysError    its own keys are missing, or changed
    │   │   ├── LowOrderPointError  a public key that would make every secret known
    │   │   ├── SmallCohortError    fewer devices than its own minimum
    │   │   ├── TooFewHonestError   too few honest devices for as many sums about one update
    │   │   └── SignatureError      keys or lists that their owner did not sign
    │   ├── TooManyDropoutsError    more drop-outs claimed than the parameters allow
    │   ├── SurvivorsError          survivors who cannot be, or changed since the last query
    │   ├── DisagreementError       too few devices signed the same survivors
    │   ├── ShareLimitError         its share of the sum would exceed max_share
    │   └── PrivacySpentError       its budget of privacy does not bear the charge of the sums
    ├── AbortError                  the server ends the round; the sums before stand
    │   ├── TooFewDevicesError      fewer devices are left than the parameters ask for
    │   ├── SurvivorsChangedError   the survivors changed between queries: v stays as it is
    │   ├── ExposingSumError        another sum would tell of the few devices beyond the radius
    │   ├── BadShareError           a secret cannot be put together from its shares
    │   │   └── ComplaintsError     more devices complain of a dealer than can collude in a cohort
    │   └── ImplausibleSumError     a total that no honest devices can have
    └── VaultError                  a device's own store cannot be used
        └── SpentUpdateError        what it is to bring was in a sum before

A refusal says what was refused and why; it holds no secret. An abort names who was at fault where
that is known.
"""

from __future__ import annotations

from rfa.errors import InvalidValueError, OracleStoppedError, RfaError


class SecAggError(RfaError):
    """A secure sum cannot be had."""


class ParameterError(SecAggError, InvalidValueError):
    """Parameters that would not be safe, or cannot be met; the message says why."""


class NotFiniteError(ParameterError):
    """An update or a metric that is no number: the device must abstain."""


class MessageError(SecAggError):
    """Bytes that are no message."""


class TruncatedError(MessageError):
    """The bytes end too soon."""


class OversizedError(MessageError):
    """The bytes are longer than the message may be, or than it says."""


class UnknownVersionError(MessageError):
    """The bytes are not of this version of the protocol."""


class UnknownKindError(MessageError):
    """The bytes are of no kind that is known."""


class NotCanonicalError(MessageError):
    """A value that a canonical message cannot hold."""


class RefusalError(SecAggError):
    """A device does not do what it was asked."""


class OutOfStageError(RefusalError):
    """A message at the wrong time, or for the wrong masked sum."""


class OtherSessionError(RefusalError):
    """A message of another session."""


class ReplayedRoundError(RefusalError):
    """A round that is not newer than the last one that the device joined."""


class AskedTwiceError(RefusalError):
    """A second, different request where one is answered already."""


class NoKeysAheadError(RefusalError):
    """The device has no keys left that it has sent ahead for such a round."""


class WeakTermsError(RefusalError):
    """Less protection than the device insists on."""


class TooManyQueriesError(RefusalError):
    """More queries than the device's own cap."""


class TooManyNeighborsError(RefusalError):
    """More neighbors than the device's own cap."""


class SmallRadiusError(RefusalError):
    """A radius nu below the device's own floor."""


class ChosenQueryError(RefusalError):
    """A point or a radius that a malicious server could have chosen to single out an update."""


class WrongDimensionError(RefusalError):
    """A request about another number of coordinates."""


class OtherBasisError(RefusalError):
    """A round about something else than what the device trained or evaluated from."""


class UnequalWeightError(RefusalError):
    """A round of equal weights, and the device was to weigh by its examples, whatever that is."""


class CohortError(RefusalError):
    """A list of devices that the device does not accept."""


class DuplicateKeyError(CohortError):
    """A key, or a device, that is there twice."""


class MissingKeysError(CohortError):
    """The device's own keys are missing, or changed."""


class LowOrderPointError(CohortError):
    """A public key that would make every secret agreed with it known."""


class SmallCohortError(CohortError):
    """Fewer devices than the device's own minimum."""


class TooFewHonestError(CohortError):
    """Too few honest devices for as many sums: together they would tell of single updates."""


class SignatureError(CohortError):
    """Keys or lists that their owner did not sign."""


class TooManyDropoutsError(RefusalError):
    """More drop-outs claimed than the parameters allow."""


class SurvivorsError(RefusalError):
    """Survivors who cannot be, or who changed since the last query."""


class DisagreementError(RefusalError):
    """Too few devices signed the same survivors."""


class ShareLimitError(RefusalError):
    """The device's share of the sum would exceed max_share."""


class PrivacySpentError(RefusalError):
    """The device's budget of privacy does not bear the charge of the sums."""


class AbortError(SecAggError, OracleStoppedError):
    """The server ends the round; the sums before stand."""


class TooFewDevicesError(AbortError):
    """Fewer devices are left than the parameters ask for."""


class SurvivorsChangedError(AbortError):
    """The survivors changed between queries, so the next sum would tell on those who left."""


class ExposingSumError(AbortError):
    """Another sum would tell of the few devices that are beyond the radius."""


class BadShareError(AbortError):
    """A secret cannot be put together from its shares."""


class ComplaintsError(BadShareError):
    """More devices complain of a dealer of shares than can collude in a cohort: no proof alone."""


class ImplausibleSumError(AbortError):
    """A total that no honest devices can have."""


class VaultError(SecAggError):
    """A device's own store cannot be used."""


class SpentUpdateError(VaultError):
    """What the device is to bring was in a sum before."""
