"""Callbacks: how user code, progress bars and trackers observe a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from rfa._types import Floats32
from rfa.errors import InvalidTypeError
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.rounds import Evaluation, Facts, State

Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True)
class RunView:
    """A running run, as callbacks see it; only `stop` changes the run.

    Attributes:
        name: the run's name.
        settings: its settings.
        folder: the folder of its checkpoint.
        started: when the run was first started; a resumed run keeps it.
        resumed: whether it resumed from a checkpoint.
    """

    name: str
    settings: Settings
    folder: Path
    started: str
    resumed: bool
    _state: Callable[[], State]
    _stop: Callable[[str], None]

    @property
    def round(self) -> int:
        """How many rounds are done."""
        return self._state().round

    @property
    def rounds(self) -> int:
        """How many rounds there are in all."""
        return self.settings.rounds

    @property
    def model(self) -> Floats32:
        """A copy of the current model, flat."""
        return self._state().model.copy()

    def stop(self, reason: str = "") -> None:
        """End the run after this round or evaluation.

        The run is saved with the status "stopped", and resumes from there when it is started again.
        If an evaluation is due after this round, it still takes place. A run after its last round
        has nothing to stop, and ends as usual.
        """
        self._stop(reason)


class Callback:
    """Base class of objects that observe a run: override the methods that you need.

    An exception in a callback ends the run. Started again, the run resumes from its last
    checkpoint, and repeats the rounds since then, with their callbacks.
    """

    def on_status(self, text: str) -> None:
        """Something that takes time begins, such as reading data."""

    def on_begin(self, run: RunView) -> None:
        """Called when the rounds begin or resume; not for a run that is done."""

    def on_round(self, run: RunView, facts: Facts) -> None:
        """A round is done."""

    def on_evaluation(self, run: RunView, evaluation: Evaluation) -> None:
        """The model was evaluated."""

    def on_end(self, run: RunView, status: str) -> None:
        """The run has ended after it began.

        The status is "finished", "diverged", "spent" (the privacy budget is), "stopped", or
        "interrupted" by an exception.
        """


class Callbacks(Callback):
    """Several callbacks as one, in their order."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        given = cast("object", callbacks)
        if not isinstance(given, Sequence):
            msg = f"callbacks must be a list of them, not {given!r}"
            raise InvalidTypeError(msg)
        for callback in cast("Sequence[object]", given):
            if not isinstance(callback, Callback):
                msg = "a callback must be an object of a class that inherits from Callback, "
                msg += f"not {callback!r}"
                raise InvalidTypeError(msg)
            for name in dir(callback):
                if name.startswith("on_") and not hasattr(Callback, name):
                    known = ", ".join(part for part in dir(Callback) if part.startswith("on_"))
                    msg = f"{type(callback).__name__}.{name} would never be called: there are "
                    raise InvalidTypeError(msg + known)
        self._callbacks = tuple(callbacks)

    def on_status(self, text: str) -> None:
        """Tell all."""
        for callback in self._callbacks:
            callback.on_status(text)

    def on_begin(self, run: RunView) -> None:
        """Tell all."""
        for callback in self._callbacks:
            callback.on_begin(run)

    def on_round(self, run: RunView, facts: Facts) -> None:
        """Tell all."""
        outcome = facts.outcome
        if outcome is not None:
            weights = None if outcome.weights is None else _read_only(outcome.weights)
            outcome = replace(outcome, point=_read_only(outcome.point), weights=weights)
        guarded = replace(facts, outcome=outcome)
        for callback in self._callbacks:
            callback.on_round(run, guarded)

    def on_evaluation(self, run: RunView, evaluation: Evaluation) -> None:
        """Tell all."""
        guarded = replace(
            evaluation,
            device_accuracy=_read_only(evaluation.device_accuracy),
            is_honest=_read_only(evaluation.is_honest),
        )
        for callback in self._callbacks:
            callback.on_evaluation(run, guarded)

    def on_end(self, run: RunView, status: str) -> None:
        """Tell all, also when one raises; the first that does is heard."""
        errors: list[BaseException] = []
        for callback in self._callbacks:
            try:
                callback.on_end(run, status)
            except BaseException as error:  # noqa: BLE001 raised below, when all were told
                errors.append(error)
        if errors:
            for error in errors[1:]:
                errors[0].add_note(f"another callback failed, too: {error!r}")
            raise errors[0]


def _read_only(array: NDArray[Number]) -> NDArray[Number]:
    """The same numbers, which the run still needs, behind glass."""
    view = array.view()
    view.flags.writeable = False
    return view
