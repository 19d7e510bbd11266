"""One of several processes that do runs side by side, asked as `rfa.lab.processes` has it.

A request has the settings of a run and how to do it; progress is the share of its rounds that is
done. A run that ends with its process, because nobody waits for it, goes on from its checkpoint
another time.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from rfa.errors import RfaError
from rfa.lab.objects import unpack
from rfa.lab.processes import ERROR, Answer, Request, Tell, serve
from rfa.lab.runs.run import Options, RunObserver, run
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.rounds import Facts, State
from rfa.lab.training.devices import Devices

FAILURES = (RfaError, ImportError, OSError, sqlite3.Error)
"""What can go wrong with a run, each with a message for the user."""


class ProgressReporter(RunObserver):
    """An observer of a run that tells the share of its rounds to who asked for it."""

    def __init__(self, tell: Tell, rounds: int) -> None:
        self._tell, self._rounds = tell, rounds

    def on_begin(self, settings: Settings, devices: Devices, state: State) -> None:
        """Tell where the run begins."""
        del settings, devices
        self._tell(state.round / self._rounds)

    def on_round(self, state: State, facts: Facts) -> None:
        """Tell that a round is done."""
        del facts
        self._tell(state.round / self._rounds)


def do_run(request: Request, tell: Tell) -> Answer:
    """Do a run, and return how it ended."""
    paths = {name: path and Path(path) for name, path in request["paths"].items()}
    options = Options(**paths, **request["options"])
    try:
        unpack(request["objects"])
        settings = Settings.from_dict(request["settings"])
        row = run(settings, options, ProgressReporter(tell, settings.rounds))
    except FAILURES as error:
        return {ERROR: str(error) or type(error).__name__}
    return {"status": row["status"]}


if __name__ == "__main__":
    serve(do_run)
