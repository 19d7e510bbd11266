"""One of several processes that do runs side by side: orders come in by lines, answers go out.

An order is a line of JSON with the settings of a run and how to do it; the answers are lines that
tell how far it is, and at last that it is done, or why it is not. When nobody is left to give
orders, the process ends, in the middle of a run if need be: the run goes on from its checkpoint
another time.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Any, TextIO

from rfa.errors import RfaError
from rfa.lab.runs.run import Options, run
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.rounds import Evaluation, Facts, State
from rfa.lab.training.devices import Devices

FAILURES = (RfaError, ImportError, OSError, sqlite3.Error)
"""What can go wrong with a run, each with a message for the user."""


class Teller:
    """A watcher that tells the round to whoever gave the order."""

    def __init__(self, answers: TextIO) -> None:
        self._answers = answers

    def say(self, answer: dict[str, Any]) -> None:
        """Send a line."""
        print(json.dumps(answer), file=self._answers, flush=True)

    def on_status(self, text: str) -> None:
        """Pass on what is being prepared."""
        self.say({"status": text})

    def on_begin(self, settings: Settings, devices: Devices, state: State) -> None:
        """Tell where the run begins."""
        del settings, devices
        self.say({"round": state.round})

    def on_round(self, state: State, facts: Facts) -> None:
        """Tell that a round is done."""
        del facts
        self.say({"round": state.round})

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Evaluations are in the store."""


def obey(order: dict[str, Any], teller: Teller) -> None:
    """Do a run, and say how it ended."""
    options = Options(
        out=Path(order["out"]),
        data=order["data"] and Path(order["data"]),
        workers=order["workers"],
        checkpoint_every=order["checkpoint_every"],
        fresh=order["fresh"],
    )
    try:
        row = run(Settings(**order["settings"]), options, teller)
    except FAILURES as error:
        teller.say({"error": str(error) or type(error).__name__})
    else:
        teller.say({"done": row["status"]})


def main() -> None:
    """Obey until there are no more orders; an interruption is the affair of who gives them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)  # the user's own code, and what it starts, may print
        while True:
            obey(json.loads(orders.get()), Teller(answers))


def _listen(orders: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        orders.put(line)
    os._exit(0)  # whoever gave orders is gone, and nobody waits for the run


if __name__ == "__main__":
    main()
