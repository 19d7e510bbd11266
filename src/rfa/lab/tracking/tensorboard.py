"""Runs in the event files of TensorBoard."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rfa.lab.datasets.dataset import lab_module
from rfa.lab.runs.callback import RunView
from rfa.lab.runs.store import MEASURES
from rfa.lab.tracking.tracker import Tracker, flat_settings

FLUSH_SECONDS = 10


class TensorBoard(Tracker):
    """Log each run to a folder with its name, for `tensorboard --logdir FOLDER`.

    The settings are hyperparameters. A resumed run continues in the same folder, and replaces the
    rounds that it repeats. A run with fresh=True replaces the old one.
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__()
        self._library = lab_module("tensorboardX", "tensorboard")
        self._folder = Path(folder)
        self._writer: Any = None

    def _open(self, run: RunView) -> None:
        self._writer = self._library.SummaryWriter(
            str(self._folder / run.name),
            purge_step=run.round + 1 if run.resumed else 0,
            flush_secs=FLUSH_SECONDS,
            filename_suffix=f".{time.time_ns()}",  # the name has no more than seconds
        )
        if not run.resumed:
            measures = dict.fromkeys(MEASURES, 0.0)
            summary = lab_module("tensorboardX.summary", "tensorboard")
            experiment, start, _ = summary.hparams(flat_settings(run.settings), measures)
            self._writer.file_writer.add_summary(experiment)
            self._writer.file_writer.add_summary(start)

    def _log(self, scalars: Mapping[str, float], step: int) -> None:
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)

    def _close(self, run: RunView, status: str) -> None:
        self._writer.add_text("status", status, run.round)
        self._writer.close()
