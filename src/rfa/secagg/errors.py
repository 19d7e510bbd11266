"""All errors of a secure sum, as one tree.

    SecAggError
    ├── ParameterError              parameters that are not safe, or cannot be met
    │   └── NotFiniteError          an update or a metric is not finite: the device abstains
    ├── MessageError                bytes that are not a valid message
    │   ├── TruncatedError          the bytes end too early
    │   ├── OversizedError          the bytes are longer than the message may be, or than it says
    │   ├── UnknownVersionError     the bytes belong to another version of the protocol
    │   ├── UnknownKindError        the kind of the message is unknown
    │   └── NotCanonicalError       a value that a canonical message cannot hold
    ├── RefusalError                a device refuses a request
    │   ├── OutOfStageError         a message at the wrong time, or for the wrong masked sum
    │   ├── OtherSessionError       a message of another session
    │   ├── ReplayedRoundError      a round that is not newer than the last one it joined
    │   ├── AskedTwiceError         a second request after one that it answered
    │   ├── NoKeysAheadError        it has no unused keys that it sent ahead for this round
    │   ├── WeakTermsError          less protection than its policy demands
    │   ├── TooManyQueriesError     more queries than its policy allows
    │   ├── TooManyNeighborsError   more neighbors than its policy allows
    │   ├── SmallRadiusError        a radius nu below the minimum of its policy
    │   ├── ChosenQueryError        a point or radius that a malicious server could have chosen
    │   ├── WrongDimensionError     a request for another number of coordinates
    │   ├── OtherBasisError         a round about another model, or other settings, than its own
    │   ├── UnequalWeightError      a round of equal weights, but it was told to weigh by examples
    │   ├── CohortError             a list of devices that it does not accept
    │   │   ├── DuplicateKeyError   a key or a device that is listed twice
    │   │   ├── MissingKeysError    its own keys are missing, or changed
    │   │   ├── LowOrderPointError  a public key that would make every secret known
    │   │   ├── SmallCohortError    fewer devices than its policy demands
    │   │   ├── TooFewHonestError   too few honest devices for the number of sums about one update
    │   │   └── SignatureError      keys or lists that their owner did not sign
    │   ├── TooManyDropoutsError    more drop-outs claimed than the parameters allow
    │   ├── SurvivorsError          survivors that are impossible, or changed since the last query
    │   ├── DisagreementError       too few devices signed the same survivors
    │   ├── ShareLimitError         its share of the sum would exceed max_share
    │   └── PrivacySpentError       the charge of the sums would exceed its privacy budget
    ├── AbortError                  the server ends the round; the earlier sums stay valid
    │   ├── TooFewDevicesError      fewer devices are left than the parameters require
    │   ├── SurvivorsChangedError   the survivors changed between queries: v stays as it is
    │   ├── ExposingSumError        another sum would reveal the few devices beyond the radius
    │   ├── BadShareError           the shares of a secret do not recover it
    │   │   └── ComplaintsError     more devices complain about a dealer than can collude
    │   └── ImplausibleSumError     a total that honest devices cannot have
    └── VaultError                  a device cannot use its own store
        └── SpentUpdateError        the device's update was in a sum before

A refusal names the request and the reason, and contains no secret. An abort names the device at
fault where the server knows it.
"""

from __future__ import annotations

from rfa.errors import InvalidValueError, OracleStoppedError, RfaError


class SecAggError(RfaError):
    """The root of all errors of a secure sum."""


class ParameterError(SecAggError, InvalidValueError):
    """The parameters are not safe, or cannot be met; the message says why."""


class NotFiniteError(ParameterError):
    """An update or a metric is not finite, so the device must abstain."""


class MessageError(SecAggError):
    """The bytes are not a valid message."""


class TruncatedError(MessageError):
    """The bytes end too early."""


class OversizedError(MessageError):
    """The bytes are longer than the message may be, or than it says."""


class UnknownVersionError(MessageError):
    """The bytes belong to another version of the protocol."""


class UnknownKindError(MessageError):
    """The kind of the message is unknown."""


class NotCanonicalError(MessageError):
    """A message holds a value that no canonical message can hold."""


class RefusalError(SecAggError):
    """A device refuses a request."""


class OutOfStageError(RefusalError):
    """A message comes at the wrong time, or for the wrong masked sum."""


class OtherSessionError(RefusalError):
    """A message belongs to another session."""


class ReplayedRoundError(RefusalError):
    """The round is not newer than the last one that the device joined."""


class AskedTwiceError(RefusalError):
    """A second request comes after one that the device has answered."""


class NoKeysAheadError(RefusalError):
    """The device has no unused keys that it sent ahead for this round."""


class WeakTermsError(RefusalError):
    """The round offers less protection than the policy of the device demands."""


class TooManyQueriesError(RefusalError):
    """The round has more queries than the policy of the device allows."""


class TooManyNeighborsError(RefusalError):
    """The device would have more neighbors than its policy allows."""


class SmallRadiusError(RefusalError):
    """The radius nu is below the minimum in the policy of the device."""


class ChosenQueryError(RefusalError):
    """A malicious server could have chosen this point or radius to single out an update."""


class WrongDimensionError(RefusalError):
    """The request is for another number of coordinates."""


class OtherBasisError(RefusalError):
    """The round has another basis than the one that the device trained or evaluated from."""


class UnequalWeightError(RefusalError):
    """The round has equal weights, but the device was told to weigh by its examples."""


class CohortError(RefusalError):
    """The device does not accept the list of devices."""


class DuplicateKeyError(CohortError):
    """A key or a device is listed twice."""


class MissingKeysError(CohortError):
    """The device's own keys are missing, or changed."""


class LowOrderPointError(CohortError):
    """A public key has low order: it would make every secret agreed with it known."""


class SmallCohortError(CohortError):
    """The cohort has fewer devices than the policy of the device demands."""


class TooFewHonestError(CohortError):
    """Too few honest devices take part for these sums, which would reveal single updates."""


class SignatureError(CohortError):
    """Keys or lists are not signed by their owner."""


class TooManyDropoutsError(RefusalError):
    """The server claims more drop-outs than the parameters allow."""


class SurvivorsError(RefusalError):
    """The survivors are impossible, or changed since the last query."""


class DisagreementError(RefusalError):
    """Too few devices signed the same survivors."""


class ShareLimitError(RefusalError):
    """The device's share of the sum would exceed max_share."""


class PrivacySpentError(RefusalError):
    """The charge of the sums would exceed the privacy budget of the device."""


class AbortError(SecAggError, OracleStoppedError):
    """The server ends the round; the earlier sums stay valid."""


class TooFewDevicesError(AbortError):
    """Fewer devices are left than the parameters require."""


class SurvivorsChangedError(AbortError):
    """The survivors changed between queries, so the next sum would reveal those who left."""


class ExposingSumError(AbortError):
    """Another sum would reveal the few devices that are beyond the radius."""


class BadShareError(AbortError):
    """The shares of a secret do not recover it."""


class ComplaintsError(BadShareError):
    """More devices complain about a dealer than can collude; that alone proves nothing."""


class ImplausibleSumError(AbortError):
    """A total is one that honest devices cannot have."""


class VaultError(SecAggError):
    """A device cannot use its own store."""


class SpentUpdateError(VaultError):
    """The device's update was in a sum before."""
