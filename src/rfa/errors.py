"""All errors of rfa, with one base class.

    RfaError
    ├── InvalidValueError           a value that is out of range; also a ValueError
    │   └── ConfigError             settings that contradict each other, or a file of them
    ├── InvalidTypeError            a value of the wrong kind; also a TypeError
    ├── PluginError                 nothing can be loaded as module:NAME
    ├── MissingExtraError           a package of an extra is not installed; also an ImportError
    ├── OracleStoppedError          an oracle gives no more sums in this round
    │   ├── AbortError              rfa.secagg: a sum that cannot be opened
    │   ├── RoundSkippedError       rfa.flower: too few nodes are there
    │   │   └── AllRefusedError     every node that was asked refused
    │   └── RoundStoppedError       rfa.lab: a round gave too few sums; what they cost stays spent
    ├── SecAggError                 rfa.secagg: drawn in rfa.secagg.errors
    ├── ReceiptError                rfa.receipts: a receipt that is invalid, or none at all
    ├── FlowerError                 rfa.flower: a run on Flower failed
    │   ├── RecordError             a message that is none of ours, or a refusal
    │   │   └── RefusedError        a node says itself that it does not do what it was asked
    │   ├── ArraysError             arrays that do not fit each other
    │   ├── AppFailedError          the app failed; its text stays on the device
    │   ├── UnequalMessagesError    nodes are to be sent different things; also an InvalidValueError
    │   ├── TooFewNodesError        too few nodes for any round
    │   └── RunFailedError          a run that did nothing, or cannot continue
    │       ├── NodesRefusedError   all nodes refuse the round
    │       │   └── NodesSpentError too few nodes with a privacy budget left for any round
    │       └── NothingDoneError    no round of a run gave anything
    └── LabError                    rfa.lab
        ├── DataError               data that is missing or damaged
        │   └── DownloadError       a file that could not be downloaded
        ├── TransientError          a request that may well succeed the next time
        ├── AttackError             an attack that fails
        │   └── NoSuchAttackError   no attack has that name; also an InvalidValueError
        ├── AggregatorError         a user's own aggregator fails
        ├── NothingToAggregateError no device of a cohort sent a finite update
        ├── BudgetSpentError        a round would cost a device more than its privacy budget
        ├── CheckpointError         a checkpoint that cannot be read or written
        ├── StoreError              a store that cannot be read or written
        ├── ModelError              a trained model that cannot be loaded or saved
        ├── LockedError             another process is doing this run
        ├── WorkerError             a worker process died, or failed
        ├── ServerGoneError         what forks processes has ended; they are started plainly then
        ├── TrackingError           a tracker cannot log a run
        ├── SweepError              some runs of a sweep failed; the others are kept
        ├── LaunchError             a run on Flower could not be started, or failed
        ├── AbsentError             results that a statement of the paper needs
        ├── NumbersError            files of numbers that cannot be read
        └── ExhibitError            results that cannot be shown

Each message names the wrong value and a valid one.
"""

from __future__ import annotations


class RfaError(Exception):
    """The root of all errors that rfa raises on purpose."""


class InvalidValueError(RfaError, ValueError):
    """A value without a meaning; the message names it and what would be right."""


class InvalidTypeError(RfaError, TypeError):
    """A value of the wrong kind; the message names it and what would be right."""


class PluginError(RfaError):
    """Nothing can be loaded as module:NAME; the message says why."""


class MissingExtraError(RfaError, ImportError):
    """A package that only an extra brings is not installed; the message names the extra."""


class OracleStoppedError(RfaError):
    """An oracle gives no more sums in this round; the sums it gave before stand."""
