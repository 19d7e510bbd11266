"""Runs in MLflow."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rfa.lab.datasets.dataset import lab_module
from rfa.lab.runs.callback import RunView
from rfa.lab.tracking.tracker import Tracker, flat_settings, tracked_id

ID, STATUS = "rfa.id", "rfa.status"
"""Tags of a run there."""


class MLflow(Tracker):
    """Log runs to an experiment of MLflow, without changing its global state.

    A resumed run continues the same MLflow run, found by its tag. Repeated rounds are not logged
    twice.

    Args:
        tracking_uri: a server, or a file such as sqlite:///mlflow.db; by default
            MLFLOW_TRACKING_URI.
        experiment: the name of the experiment, which is created if needed.
    """

    def __init__(self, tracking_uri: str | Path | None = None, experiment: str = "rfa") -> None:
        super().__init__()
        self._library = lab_module("mlflow", "mlflow")
        self._uri = None if tracking_uri is None else str(tracking_uri)
        self._experiment = experiment
        self._client: Any = None
        self._run_id = ""
        self._logged: dict[str, int] = {}

    def _open(self, run: RunView) -> None:
        self._client = self._library.MlflowClient(tracking_uri=self._uri)
        experiment = self._experiment_id()
        wanted = f"tags.`{ID}` = '{tracked_id(run)}'"
        known = self._client.search_runs([experiment], filter_string=wanted)
        if known:
            self._run_id = known[0].info.run_id
            self._logged = {name: self._last_step(name) for name in known[0].data.metrics}
            self._client.update_run(self._run_id, status="RUNNING")
            return
        tags = {ID: tracked_id(run)}
        new = self._client.create_run(experiment, run_name=run.name, tags=tags)
        self._run_id, self._logged = new.info.run_id, {}
        param = self._library.entities.Param
        params = [param(name, str(value)) for name, value in flat_settings(run.settings).items()]
        self._client.log_batch(self._run_id, params=params)

    def _log(self, scalars: Mapping[str, float], step: int) -> None:
        metric, now = self._library.entities.Metric, int(1000 * time.time())
        metrics = [
            metric(name, value, now, step)
            for name, value in scalars.items()
            if step > self._logged.get(name, -1)
        ]
        self._client.log_batch(self._run_id, metrics=metrics)

    def _close(self, run: RunView, status: str) -> None:
        del run
        self._client.set_tag(self._run_id, STATUS, status)
        there = "KILLED" if status == "interrupted" else "FINISHED"
        self._client.set_terminated(self._run_id, status=there)

    def _experiment_id(self) -> str:
        known = self._client.get_experiment_by_name(self._experiment)
        if known is not None:
            return known.experiment_id
        return self._client.create_experiment(self._experiment)

    def _last_step(self, name: str) -> int:
        return max(metric.step for metric in self._client.get_metric_history(self._run_id, name))
