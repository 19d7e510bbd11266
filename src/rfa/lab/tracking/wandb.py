"""Runs in Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rfa.lab.datasets.dataset import lab_module
from rfa.lab.runs.callback import RunView
from rfa.lab.tracking.tracker import Tracker, flat_settings, tracked_id


class WandB(Tracker):
    """Log runs to a project of Weights & Biases, or offline to a folder for `wandb sync`.

    A resumed run continues the same run there. Offline, each start has a separate folder with the
    same id.

    Args:
        project: the project.
        mode: "online", "offline" and so on; by default WANDB_MODE.
        folder: the folder of its files; by default `wandb` in the working directory.
        init: further arguments of `wandb.init`, such as entity, group or tags.
    """

    def __init__(
        self,
        project: str = "rfa",
        *,
        mode: str | None = None,
        folder: str | Path | None = None,
        **init: Any,
    ) -> None:
        super().__init__()
        self._library = lab_module("wandb", "wandb")
        where = None if folder is None else str(folder)
        self._init = {"project": project, "mode": mode, "dir": where, **init}
        self._run: Any = None

    def _open(self, run: RunView) -> None:
        if self._init["dir"] is not None:  # or it falls back to the system's folder in silence
            Path(self._init["dir"]).mkdir(parents=True, exist_ok=True)
        same = {"id": tracked_id(run), "name": run.name, "config": flat_settings(run.settings)}
        how = {"resume": "allow", "reinit": "create_new"}
        self._run = self._library.init(**{**same, **how, **self._init})

    def _log(self, scalars: Mapping[str, float], step: int) -> None:
        if step >= self._run.starting_step:  # what it has already, it refuses with a warning
            self._run.log(dict(scalars), step=step)

    def _close(self, run: RunView, status: str) -> None:
        del run
        self._run.summary["status"] = status
        self._run.finish(exit_code=int(status == "interrupted"))
