"""The results of all runs in one SQLite file, safe with several processes writing.

runs         one row per run: its settings, version, status and last evaluation
populations  one row for all runs with the same data: the names of the devices
evaluations  one row an evaluation
rounds       one row a round: who took part, who was corrupted, what the aggregator did
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rfa._specs import parse_spec
from rfa.errors import InvalidValueError
from rfa.lab.errors import LabError
from rfa.lab.lock import LockedError, hold_lock
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.rounds import Evaluation, Facts

FILE, LOCK = "runs.sqlite", "lock"
BUSY = 60.0
"""Seconds to wait for another process that is writing."""
PAUSE = 0.01
"""Seconds between two looks whether it still is."""
SCHEMA = """
CREATE TABLE runs (
    run TEXT PRIMARY KEY, task TEXT, aggregator TEXT, corruption TEXT, rho REAL, seed INTEGER,
    status TEXT, rounds INTEGER, oracle_calls INTEGER, test_accuracy REAL, train_loss REAL,
    median_device REAL, worst_tenth REAL, devices INTEGER, corrupted_devices INTEGER,
    dropped_updates INTEGER, rejected_rounds INTEGER, seconds REAL, started TEXT, version TEXT,
    note TEXT, model_sha256 TEXT, settings TEXT, stopped_rounds INTEGER, certificate REAL,
    stopped TEXT, data TEXT, backdoor REAL, honest_accuracy REAL, honest_median_device REAL,
    honest_worst_tenth REAL, corrupted TEXT, parameters TEXT, personalized INTEGER,
    stop_reason TEXT, epsilon_server REAL, epsilon_readers REAL, privacy TEXT,
    noise_multiplier REAL, origin TEXT
);
CREATE TABLE populations (data TEXT PRIMARY KEY, names TEXT);
CREATE TABLE evaluations (
    run TEXT, round INTEGER, oracle_calls INTEGER, test_accuracy REAL, test_loss REAL,
    train_loss REAL, median_device REAL, worst_tenth REAL, seconds REAL, device_accuracy TEXT,
    backdoor REAL, honest_accuracy REAL, honest_median_device REAL, honest_worst_tenth REAL,
    epsilon_server REAL, epsilon_readers REAL,
    PRIMARY KEY (run, round)
);
CREATE TABLE rounds (
    run TEXT, round INTEGER, devices TEXT, corrupted TEXT, dropped TEXT, oracle_calls INTEGER,
    objective REAL, norm REAL, rejected INTEGER, weights TEXT,
    lost TEXT, certificate REAL, stopped TEXT, epsilon_server REAL,
    PRIMARY KEY (run, round)
);
"""
SCHEMA_VERSION = 4
"""What changes when the tables do: stores of other versions are refused."""
MEASURES = (
    "test_accuracy",
    "honest_accuracy",
    "train_loss",
    "median_device",
    "honest_median_device",
    "worst_tenth",
    "honest_worst_tenth",
    "backdoor",
    "epsilon_server",
    "epsilon_readers",
)
"""The measures of an evaluation, and of the last one with its run."""
SPENT = "spent"
"""How a run ends whose next round would cost a device more than its privacy budget."""
DONE = ("finished", "diverged", SPENT)
"""How a run ends for good."""
STOPPED = "stopped"
"""How a run ends that a callback stopped: it can go on."""
TABLES = ("runs", "evaluations", "rounds")
JSON_COLUMNS = ("settings", "corrupted", "origin")
"""Columns of runs that hold JSON."""
SHOWN = ("task", "aggregator", "corruption", "rho", "seed")
"""Settings with a column of their own."""


class StoreError(LabError):
    """The file of results cannot be used."""


class Store:
    """The results in a folder."""

    def __init__(self, folder: Path, *, create: bool = True) -> None:
        self.path = folder / FILE
        if not create and not self.path.exists():
            msg = f"there are no results in {folder}: `rfa run TASK --out {folder}` makes some"
            raise StoreError(msg)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self.path, timeout=BUSY, isolation_level=None)
            self._connection.row_factory = sqlite3.Row
            _write_ahead(self._connection)
            self._connection.execute("PRAGMA synchronous = FULL")
            version = self._prepare()
        except (OSError, sqlite3.Error) as error:
            msg = f"the results in {self.path} cannot be used: {error}"
            raise StoreError(msg) from None
        if version != SCHEMA_VERSION:
            self._connection.close()
            msg = f"the results in {self.path} have tables of version {version}, and this version "
            msg += f"of rfa keeps version {SCHEMA_VERSION}: give another --out, or delete the file"
            raise StoreError(msg)

    def _prepare(self) -> int:
        """Make the tables where there are none, and return the version of those that are there."""
        with self._writing():
            if not self._connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                for statement in SCHEMA.split(";"):
                    self._connection.execute(statement)
                self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            return self._connection.execute("PRAGMA user_version").fetchone()[0]

    def __enter__(self) -> Store:
        """Begin to use it."""
        return self

    def __exit__(self, *_: object) -> None:
        """End its use."""
        self._connection.close()

    def begin(
        self, run: str, settings: Settings, facts: dict[str, Any], names: Sequence[str] = ()
    ) -> None:
        """Record a new run, and delete the data of an earlier one with its name.

        Args:
            run: its name.
            settings: its settings.
            facts: further values, by columns of runs.
            names: the names of the devices, if they are known.
        """
        row = {
            "run": run,
            "status": "running",
            "settings": json.dumps(settings.to_dict()),
            **{name: settings.flat[name] for name in SHOWN},
            "parameters": aggregator_parameters(settings),
            "privacy": privacy_text(settings),
            **facts,
        }
        with self._writing():
            for table in TABLES:
                self._connection.execute(f"DELETE FROM {table} WHERE run = ?", (run,))  # noqa: S608
            self._insert("runs", row)
            if names:
                population = {"data": row["data"], "names": json.dumps(list(names))}
                self._insert("populations", population)

    def rewind(self, run: str, done: int) -> None:
        """Delete the data after the checkpoint from which a run resumes."""
        with self._writing():
            for table in ("evaluations", "rounds"):
                query = f"DELETE FROM {table} WHERE run = ? AND round > ?"  # noqa: S608
                self._connection.execute(query, (run, done))
            self._set(run, {"status": "running", "stop_reason": None})

    def add(
        self,
        run: str,
        rounds: Sequence[Facts],
        evaluations: Sequence[tuple[Evaluation, float]],
        update: dict[str, Any],
    ) -> None:
        """Keep what happened since the last time, all of it or nothing."""
        with self._writing():
            for facts in rounds:
                self._insert("rounds", _round_row(run, facts))
            for evaluation, seconds in evaluations:
                self._insert("evaluations", _evaluation_row(run, evaluation, seconds))
            self._set(run, update)

    def adopt(
        self,
        run: str,
        settings: Settings,
        facts: dict[str, Any],
        evaluations: Sequence[Mapping[str, Any]],
    ) -> None:
        """Store a run that was done elsewhere, with its evaluations."""
        self.begin(run, settings, {"data": facts["data"]})
        with self._writing():
            for evaluation in evaluations:
                row = {**evaluation, "run": run, "seconds": 0.0, "device_accuracy": "[]"}
                self._insert("evaluations", row)
            self._set(run, facts)

    def runs(self, **where: Any) -> list[dict[str, Any]]:
        """The runs, the oldest first, filtered by columns."""
        return self.table("runs", order="started, run", **where)

    def table(self, table: str, order: str = "run, round", **where: Any) -> list[dict[str, Any]]:
        """The rows of a table."""
        if table not in TABLES:
            msg = f"no table is called {table!r}: there are {', '.join(TABLES)}"
            raise StoreError(msg)
        wanted = {name: value for name, value in where.items() if value is not None}
        clause = " AND ".join(f"{name} = :{name}" for name in wanted) or "1"
        query = f"SELECT * FROM {table} WHERE {clause} ORDER BY {order}"  # noqa: S608
        return [dict(row) for row in self._connection.execute(query, wanted)]

    def names(self, data: str) -> list[str]:
        """The names of the devices of runs with that data; none where they are not known."""
        query = "SELECT names FROM populations WHERE data = ?"
        row = self._connection.execute(query, (data,)).fetchone()
        return json.loads(row["names"]) if row else []

    @contextlib.contextmanager
    def _writing(self) -> Generator[None]:
        """A transaction that waits for its turn, and is undone by any error."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def _insert(self, table: str, row: dict[str, Any]) -> None:
        names = ", ".join(row)
        places = ", ".join(f":{name}" for name in row)
        query = f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({places})"  # noqa: S608
        self._connection.execute(query, row)

    def _set(self, run: str, update: dict[str, Any]) -> None:
        changes = ", ".join(f"{name} = :{name}" for name in update)
        query = f"UPDATE runs SET {changes} WHERE run = :run"  # noqa: S608
        self._connection.execute(query, {**update, "run": run})


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Let readers and a writer work at the same time. SQLite does not wait here, so we do.

    Raises:
        sqlite3.Error: if another process has been writing for too long.
    """
    end = time.monotonic() + BUSY
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(PAUSE)
        else:
            return


def is_imported(row: Mapping[str, Any]) -> bool:
    """Whether a run was done elsewhere: `adopt` does not know which devices were corrupted."""
    return row["corrupted"] is None


def aggregator_parameters(settings: Settings) -> str:
    """The parameters of the aggregator as text, all of them: "budget=3,nu=0,start=current"."""
    spec = parse_spec(settings.aggregator_text)
    return str(spec).removeprefix(spec.name).removeprefix(":")


def privacy_text(settings: Settings) -> str | None:
    """The noise that a run asks for as text: "epsilon=8.0,delta=1e-05"; None for none."""
    applied = settings.privacy.applied()
    return ",".join(f"{name}={value}" for name, value in applied.items()) or None


def find_run(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the one run with this name, or with a name that has it at an end, or in the middle.

    Raises:
        InvalidValueError: if no run matches, or several do.
    """
    fits = (str.__eq__, _begins_or_ends, str.__contains__)
    found = ([row for row in rows if fit(row["run"], name)] for fit in fits)
    matching = next(filter(None, found), list[dict[str, Any]]())
    if len(matching) != 1:
        count = "no run matches" if not matching else f"{len(matching)} runs match"
        msg = f"{count} {name!r}: `rfa runs` lists them"
        raise InvalidValueError(msg)
    return matching[0]


def _begins_or_ends(run: str, name: str) -> bool:
    run_id = run.rsplit(".", 1)[-1]
    return run.startswith(name) or run.endswith(name) or run_id.startswith(name)


def current_status(out: Path, row: dict[str, Any]) -> str:
    """Return the status of a run; a running one without a process is interrupted."""
    lock = out / row["run"] / LOCK
    if row["status"] != "running":
        return row["status"]
    if not lock.exists():
        return "interrupted"
    try:
        with hold_lock(lock, LockedError(row["run"])):
            return "interrupted"
    except LockedError:
        return "running"


def row_to_json(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table of runs as `rfa run --json` prints it."""
    finite = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }
    decoded = {name: json.loads(row[name] or "null") for name in JSON_COLUMNS}
    known = {"diverged": row["status"] == "diverged", "personalized": bool(row["personalized"])}
    return finite | known | decoded


def _round_row(run: str, facts: Facts) -> dict[str, Any]:
    outcome = facts.outcome
    weights = None if outcome is None or outcome.weights is None else outcome.weights.tolist()
    lists = ("devices", "corrupted", "dropped", "lost")
    return {
        "run": run,
        "round": facts.round,
        **{name: json.dumps(getattr(facts, name)) for name in lists},
        "oracle_calls": outcome.calls if outcome else 1,
        "objective": outcome.objective if outcome else None,
        "certificate": outcome.certificate if outcome else None,
        "norm": facts.norm,
        "rejected": int(facts.rejected),
        "stopped": facts.stopped,
        "epsilon_server": facts.epsilon_server,
        "weights": None if weights is None else json.dumps([float(f"{w:.6g}") for w in weights]),
    }


def _evaluation_row(run: str, evaluation: Evaluation, seconds: float) -> dict[str, Any]:
    accuracies = [round(float(accuracy), 6) for accuracy in evaluation.device_accuracy]
    return {
        "run": run,
        "oracle_calls": evaluation.calls,
        **{name: getattr(evaluation, name) for name in ("round", "test_loss", *MEASURES)},
        "seconds": seconds,
        "device_accuracy": json.dumps(accuracies),
    }
