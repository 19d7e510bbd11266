"""Calls of the app behind the mod: it gets messages as if there were no rfa."""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict

from rfa._types import Floats32
from rfa.flower import records
from rfa.flower.arrays import ArraysError, difference, moved, own_copy, size_of
from rfa.flower.basis import run_of
from rfa.flower.errors import FlowerError
from rfa.flower.personal import Personal

Next = Callable[[Message, Context], Message]
LOG = logging.getLogger("flwr")
TAKING_ARRAYS = frozenset({"localdp_mod", "centraldp_mods"})
"""Flower's modules of mods that need arrays in a reply, and lose a reply without them."""


class AppFailedError(FlowerError):
    """The app failed; its message stays on the device."""


@dataclass(frozen=True)
class App:
    """The app, as a function of a message."""

    call_next: Next
    context: Context

    def __call__(self, message: Message) -> Message:
        """Return the app's answer to a message without rfa's records.

        Its records are copies, so no other call sees what the app changes in them.

        Raises:
            AppFailedError: if the app fails; its message may be private, and is only logged here.
        """
        bare = copy.copy(message)
        bare.content = RecordDict(
            {name: _copy(kept) for name, kept in message.content.items() if name != records.KEY}
        )
        try:
            answer: Any = self.call_next(bare, self.context)
        except Exception as error:
            LOG.exception("the app failed")
            msg = f"the app raised {type(error).__name__}: the log of the node says more"
            raise AppFailedError(msg) from None
        if not isinstance(answer, Message) or answer.has_error():
            LOG.error("the app returned %s", answer)
            msg = "the app returned an error, or no Message: the log of the node says more"
            raise AppFailedError(msg)
        return answer

    def settle_run(self) -> bytes:
        """Sort the app's run config by name, so that its order reveals no more than the digest."""
        self.context.run_config = dict(sorted(self.context.run_config.items()))
        return run_of(self.context.run_config)


def train(message: Message, app: App, personal: Personal | None) -> tuple[Message, Floats32]:
    """Return the app's answer and its update (lines 4 to 9 of Algorithm 1; Algorithm 4)."""
    w = _arrays(message)
    if personal:
        before = personal.read(size_of(w))
        u = difference(_arrays(app(_with(message, moved(w, before)))), w)
        if np.isfinite(u).all():
            personal.write(u, before)
        w = moved(w, u)
    answer = app(_with(message, w))
    return answer, difference(_arrays(answer), w)


def evaluate(message: Message, app: App, personal: Personal | None) -> tuple[Message, Floats32]:
    """Return the app's answer, and zeros in place of an update."""
    if personal:
        w = _arrays(message)
        message = _with(message, moved(w, personal.read(size_of(w))))
    return app(message), np.zeros(records.STAND_IN, np.float32)


def check_order() -> None:
    """Check that no mod before this one needs the arrays of a reply, which has none here.

    Flower's mods for differential privacy answer such a reply with an error that reaches nobody, so
    the server would wait for it until its timeout.

    Raises:
        RecordError: if there is one; the message names the mod, and the order that works.
    """
    frame = inspect.currentframe()
    while frame is not None:
        package, _, module = str(frame.f_globals.get("__name__", "")).rpartition(".")
        if module in TAKING_ARRAYS and package.startswith("flwr."):
            owner = frame.f_locals.get("self")
            name = type(owner).__name__ if owner is not None else frame.f_code.co_name
            msg = (
                f"{name} comes before robust_mod, which gives it no arrays: give the ClientApp "
                f"mods=[robust_mod, {name}]"
            )
            raise records.RecordError(msg)
        frame = frame.f_back


def _copy(record: Any) -> Any:
    """Return a copy of a record that shares the numbers of arrays, which nothing changes."""
    return ArrayRecord(dict(record)) if isinstance(record, ArrayRecord) else own_copy(record)


def _with(message: Message, arrays: ArrayRecord) -> Message:
    """Return the message with other arrays."""
    (name,) = message.content.array_records
    other = copy.copy(message)
    other.content = RecordDict({**message.content, name: arrays})
    return other


def _arrays(message: Message) -> ArrayRecord:
    array_records = list(message.content.array_records.values())
    if len(array_records) != 1:
        msg = f"a message has {len(array_records)} ArrayRecords, but only one can be aggregated"
        raise ArraysError(msg)
    return array_records[0]
