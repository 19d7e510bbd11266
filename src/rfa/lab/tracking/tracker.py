"""The base of all trackers: numbers of rounds and evaluations, with the round as step."""

from __future__ import annotations

import contextlib
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from typing import Any

from rfa.errors import RfaError
from rfa.lab.errors import LabError
from rfa.lab.runs.callback import Callback, RunView
from rfa.lab.runs.store import MEASURES
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.rounds import Evaluation, Facts


class TrackingError(LabError):
    """A tracker failed to log a run; the message has the reason of its library."""


class Tracker(Callback, ABC):
    """A callback that keeps the settings and numbers of a run elsewhere.

    One object may be used for several runs, one after another. What fails ends the run, which goes
    on from its checkpoint when it is started again.
    """

    def __init__(self) -> None:
        self._is_open = False

    @abstractmethod
    def _open(self, run: RunView) -> None:
        """Begin to log a run, or resume one that was logged before."""

    @abstractmethod
    def _log(self, scalars: Mapping[str, float], step: int) -> None:
        """Keep some numbers of a round."""

    @abstractmethod
    def _close(self, run: RunView, status: str) -> None:
        """Keep how the run ended."""

    def on_begin(self, run: RunView) -> None:
        """Begin, with the settings."""
        with self._naming_failures():
            self._open(run)
        self._is_open = True

    def on_round(self, run: RunView, facts: Facts) -> None:
        """Keep the numbers of a round."""
        with self._naming_failures():
            self._log(round_scalars(facts), run.round)

    def on_evaluation(self, run: RunView, evaluation: Evaluation) -> None:
        """Keep the numbers of an evaluation."""
        with self._naming_failures():
            self._log(evaluation_scalars(evaluation), run.round)

    def on_end(self, run: RunView, status: str) -> None:
        """End, with the status."""
        if self._is_open:  # not so if another callback failed in the beginning
            self._is_open = False
            with self._naming_failures():
                self._close(run, status)

    @contextlib.contextmanager
    def _naming_failures(self) -> Generator[None]:
        """Make one error of the many that a library may raise."""
        try:
            yield
        except RfaError:
            raise
        except Exception as error:
            msg = f"{type(self).__name__} cannot keep the run: {error}"
            raise TrackingError(msg) from error


def flat_settings(settings: Settings) -> dict[str, Any]:
    """The settings of a run by their flat names, each a text, a number, or true or false."""
    return {
        name: value if isinstance(value, str | int | float) else str(value)
        for name, value in settings.flat.items()
    }


def round_scalars(facts: Facts) -> dict[str, float]:
    """Return the numbers of a round to log."""
    return {
        "norm": facts.norm,
        "rejected": float(facts.rejected),
        "dropped": float(len(facts.dropped)),
        "corrupted_fraction": len(facts.corrupted) / len(facts.devices),
        "calls": float(facts.outcome.calls if facts.outcome else 1),
    }


def evaluation_scalars(evaluation: Evaluation) -> dict[str, float]:
    """Return the numbers of an evaluation to log: those of the store that exist."""
    values = {name: getattr(evaluation, name) for name in ("test_loss", *MEASURES)}
    return {name: float(value) for name, value in values.items() if value is not None}


def tracked_id(run: RunView) -> str:
    """Return the id of a run, which differs even from that of a repeat with fresh=True."""
    return hashlib.sha256(f"{run.name} {run.started}".encode()).hexdigest()[:16]
