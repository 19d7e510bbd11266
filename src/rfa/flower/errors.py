"""The errors of runs on Flower."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rfa.errors import RfaError

if TYPE_CHECKING:
    from flwr.serverapp.strategy import Result


class FlowerError(RfaError):
    """A run on Flower failed; the message says what to do."""


class TooFewNodesError(FlowerError):
    """There are too few nodes for any round; the message says how many are needed."""


class RunFailedError(FlowerError):
    """A run did nothing, or cannot continue; the message says why, and what to do.

    Attributes:
        result: the result until then: the last model, and the metrics of the rounds before.
    """

    def __init__(self, message: str, result: Result) -> None:
        """Set the message, and the result of the run."""
        super().__init__(message)
        self.result = result


class NodesRefusedError(RunFailedError):
    """All nodes refuse a round; the message quotes their reasons."""


class NothingDoneError(RunFailedError):
    """No round of a run gave a result; the message says why the last one did not."""


class NodesSpentError(NodesRefusedError):
    """Too few nodes have a privacy budget left for any round; the message says what to do."""
