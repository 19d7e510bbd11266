"""What trackers wrote to local files, read back without the trackers."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

Histories = dict[str, dict[int, float]]
"""The values of each name, by step."""


@dataclass
class Kept:
    """What a tracker has of a run."""

    settings: dict[str, str] = field(default_factory=dict[str, str])
    scalars: Histories = field(default_factory=dict[str, dict[int, float]])
    status: str = ""

    def add(self, name: str, step: int, value: float) -> None:
        history = self.scalars.setdefault(name, {})
        assert step not in history, f"{name} is kept twice in step {step}"
        history[step] = value


def read_tensorboard(folder: Path) -> Kept:
    """The event files of a folder, in their order, as TensorBoard shows them."""
    events: list[Any] = []
    proto = pytest.importorskip("tensorboardX.proto.event_pb2")
    for path in sorted(folder.glob("events.out.tfevents.*")):
        for data in _tf_records(path.read_bytes()):
            event = proto.Event.FromString(data)
            if event.session_log.status == proto.SessionLog.START:
                events = [other for other in events if other.step < event.step]
            events.append(event)
    kept = Kept()
    for event in events:
        for value in event.summary.value:
            if value.tag == "_hparams_/session_start_info":
                kept.settings = _hyperparameters(value.metadata.plugin_data.content)
            elif value.tag.startswith("status"):
                kept.status = value.tensor.string_val[0].decode()
            elif value.HasField("simple_value"):
                kept.add(value.tag, event.step, value.simple_value)
    return kept


def _tf_records(data: bytes) -> Iterator[bytes]:
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        yield data[12 : 12 + length]
        data = data[16 + length :]


def _hyperparameters(content: bytes) -> dict[str, str]:
    plugin = pytest.importorskip("tensorboardX.proto.plugin_hparams_pb2")
    values = plugin.HParamsPluginData.FromString(content).session_start_info.hparams
    given = {name: getattr(value, value.WhichOneof("kind"), None) for name, value in values.items()}
    return {
        name: f"{value:g}" if isinstance(value, float) else str(value)
        for name, value in given.items()
    }


def read_wandb(path: Path) -> Kept:
    """The file of an offline run."""
    kept = Kept()
    proto = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    for data in _leveldb_records(path.read_bytes()):
        record = proto.Record.FromString(data)
        for item in record.run.config.update:
            kept.settings[item.key] = str(json.loads(item.value_json))
        values = {
            item.key or ".".join(item.nested_key): json.loads(item.value_json)
            for item in record.history.item
        }
        step = values.pop("_step", None)
        for name, value in values.items():
            if not name.startswith("_"):
                kept.add(name, step, float(value))
        for item in record.summary.update:
            if (item.key or ".".join(item.nested_key)) == "status":
                kept.status = json.loads(item.value_json)
    return kept


def _leveldb_records(data: bytes, block: int = 32768) -> Iterator[bytes]:
    """The records of a LevelDB log that begins with seven bytes of W&B's."""
    assert data.startswith(b":W&B")
    place, whole = 7, b""
    while place + 7 <= len(data):
        if block - place % block < 7:
            place += block - place % block
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # all of a record, or its last part
            yield whole
            whole = b""


def read_mlflow(uri: str, experiment: str = "rfa") -> list[tuple[Any, Kept]]:
    """The runs of an experiment, the newest first."""
    client = pytest.importorskip("mlflow").MlflowClient(tracking_uri=uri)
    runs: list[tuple[Any, Kept]] = []
    for run in client.search_runs([client.get_experiment_by_name(experiment).experiment_id]):
        kept = Kept(run.data.params, status=run.data.tags["rfa.status"])
        for name in run.data.metrics:
            for metric in client.get_metric_history(run.info.run_id, name):
                kept.add(name, metric.step, metric.value)
        runs.append((run.info, kept))
    return runs
