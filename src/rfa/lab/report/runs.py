"""Single runs as an exhibit: one panel per task, one line for runs that differ only in the seed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rfa.errors import InvalidValueError
from rfa.lab.report.exhibit import Exhibit
from rfa.lab.report.gather import Result, gather
from rfa.lab.runs.attackers import attackers_text
from rfa.lab.runs.headline import headline
from rfa.lab.runs.store import Store
from rfa.lab.runs.sweep import AXES, Cell, Part, Sweep
from rfa.lab.settings.settings import Settings


def show_runs(store: Store, rows: Sequence[Mapping[str, Any]], command: str) -> Exhibit:
    """Return the exhibit of runs, against calls of the oracle and against rounds."""
    labels = _labels(rows)
    results = [
        Result(
            Cell(row["task"], labels[row["run"]], None, _settings(row)),
            row,
            store.table("evaluations", run=row["run"]),
        )
        for row in rows
    ]
    sweep = Sweep(
        name="runs",
        title="Runs",
        panels=[Part(task, {}) for task in dict.fromkeys(row["task"] for row in rows)],
        lines=[Part(label, {}) for label in dict.fromkeys(labels.values())],
        seeds=sorted({row["seed"] for row in rows}),
        axes=AXES[:2],
        measures=(headline(personalized=any(row["personalized"] for row in rows)), "train_loss"),
    )
    return gather(sweep, results, command=command)


def _settings(row: Mapping[str, Any]) -> Settings:
    try:
        return Settings.from_dict(json.loads(row["settings"]))
    except InvalidValueError as error:
        msg = f"{row['run']} cannot be shown: {error}"
        raise InvalidValueError(msg) from None


def _labels(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return a name for each run; runs that differ in more than the seed have different ones."""
    kinds: dict[str, str] = {}
    labels: dict[str, str] = {}
    for row in rows:
        values = json.loads(row["settings"])
        values.pop("seed")
        kind = json.dumps(values, sort_keys=True)
        attackers = attackers_text(row)
        level = f", {row['corruption']} {attackers}" if attackers else ""
        noise = f", {row['privacy']}" if row["privacy"] else ""
        brief = f"{row['aggregator']}{level}{noise}"
        if kind not in kinds:
            twin = brief in kinds.values()
            kinds[kind] = f"{brief} ({row['run'].rsplit('.', 1)[-1]})" if twin else brief
        labels[row["run"]] = kinds[kind]
    return labels
