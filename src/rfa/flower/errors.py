"""The root of what can go wrong on Flower."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rfa.errors import RfaError

if TYPE_CHECKING:
    from flwr.serverapp.strategy import Result


class FlowerError(RfaError):
    """Something on Flower failed; the message says what to do."""


class TooFewNodesError(FlowerError):
    """There are too few nodes for any round; the message says how many there must be."""


class RunFailedError(FlowerError):
    """A run did nothing, or cannot go on; the message says why, and what to do.

    Attributes:
        result: what it came to until then: the last model, and the metrics of the rounds before.
    """

    def __init__(self, message: str, result: Result) -> None:
        """Take the message, and what the run came to."""
        super().__init__(message)
        self.result = result


class NodesRefusedError(RunFailedError):
    """All nodes refuse what a round asks of them; the message says what they said."""


class NothingDoneError(RunFailedError):
    """No round of a run gave anything; the message says why the last one did not."""


class NodesSpentError(NodesRefusedError):
    """Too few nodes have a privacy budget left for any round; the message says what to do."""
