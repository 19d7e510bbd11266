"""One of several processes that do runs side by side, with requests of `rfa.lab.processes`.

A request has the settings of a run and how to do it; progress is the fraction of its rounds that is
done. With one worker the process trains devices itself. A run that ends with its process, because
nobody waits for it, resumes from its checkpoint another time.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from rfa.errors import RfaError
from rfa.lab.objects import unpack
from rfa.lab.processes import ERROR, Answer, Request, Tell, serve
from rfa.lab.runs.callback import Callback, RunView
from rfa.lab.runs.run import Options, run
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.rounds import Facts

FAILURES = (RfaError, ImportError, OSError, sqlite3.Error)
"""What can go wrong with a run, each with a message for the user."""


class ProgressReporter(Callback):
    """Tells the share of a run's rounds that is done to who asked for it."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def on_begin(self, run: RunView) -> None:
        """Tell where the run begins."""
        self._tell(run.round / run.rounds)

    def on_round(self, run: RunView, facts: Facts) -> None:
        """Tell that a round is done."""
        del facts
        self._tell(run.round / run.rounds)


def do_run(request: Request, tell: Tell) -> Answer:
    """Do a run, and return how it ended."""
    paths = {name: path and Path(path) for name, path in request["paths"].items()}
    options = Options(**paths, **request["options"])
    try:
        unpack(request["objects"])
        settings = Settings.from_dict(request["settings"])
        row = run(settings, options, [ProgressReporter(tell)])
    except FAILURES as error:
        return {ERROR: str(error) or type(error).__name__}
    return {"status": row["status"]}


def main() -> None:
    """Do runs until nobody is left to ask."""
    serve(do_run)


if __name__ == "__main__":
    main()
