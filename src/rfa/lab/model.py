"""The model that a run has trained: `load_model("8d40be7255").predict(x)`."""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfa._files import replace_file
from rfa._types import Array, Floats32
from rfa.errors import InvalidValueError
from rfa.lab.errors import LabError
from rfa.lab.learners.learner import Learner
from rfa.lab.runs import checkpoint as checkpoints
from rfa.lab.runs.run import CHECKPOINT, KEPT
from rfa.lab.runs.store import Store, find_run
from rfa.lab.settings.groups import PERSONAL
from rfa.lab.tasks.registry import TASKS, find_task
from rfa.lab.tasks.task import Task
from rfa.lab.training.kept import KeptFile


class ModelError(LabError):
    """A trained model cannot be loaded or saved; the message says why."""


@dataclass(frozen=True, eq=False)
class Model:
    """A trained model of a task.

    Examples are given as the data set keeps them (`population.x`: pixels as bytes, say), and are
    made into what the model reads by the task's `prepare`.

    Attributes:
        parameters: all of them in one vector, read-only.
        task: the task.
        run: the name of the run that trained it.
        round: after how many rounds.
        device: whose personal parameters are added; None if nobody's.
    """

    parameters: Floats32 = field(repr=False)
    task: Task = field(repr=False)
    run: str = ""
    round: int = 0
    device: int | None = None

    def __post_init__(self) -> None:
        """Copy the parameters, and check that they fit the task."""
        kept = np.array(self.parameters, np.float32)
        if kept.shape != (self._learner.dim,):
            msg = f"{self.task.name} has {self._learner.dim} parameters, not an array of shape "
            msg += f"{kept.shape}: is it the model of another task, or of another version of it?"
            raise InvalidValueError(msg)
        kept.flags.writeable = False
        object.__setattr__(self, "parameters", kept)

    @property
    def sha256(self) -> str:
        """The digest of the parameters; of a shared model, the one that the store has."""
        return hashlib.sha256(self.parameters.tobytes()).hexdigest()

    def scores(self, x: Any) -> Floats32:
        """The scores of all classes for each example, so that softmax gives probabilities.

        Raises:
            InvalidValueError: if the examples are not as the data set keeps them.
        """
        examples = self._examples(x)
        if not len(examples):
            return np.zeros((0, self._learner.classes), np.float32)
        return self._learner.scores(self.parameters, np.asarray(self.task.prepare(examples)))

    def predict(self, x: Any) -> Array:
        """The class of each example, as a label of the user's own data where it has such."""
        classes = self.scores(x).argmax(axis=1).astype(np.int64)
        return np.array(self.task.labels)[classes] if self.task.labels else classes

    def accuracy(self, x: Any, y: Any) -> float:
        """The share of examples x that are put into their classes y.

        Raises:
            InvalidValueError: if there are none, not as many of one as of the other, or a class
                that the task does not have.
        """
        labels = np.asarray(y)
        if labels.shape != (len(x),) or not len(x):
            msg = f"accuracy needs examples, and a class for each: there are {len(x)} examples, "
            msg += f"and classes of shape {labels.shape}"
            raise InvalidValueError(msg)
        known = self.task.labels or tuple(range(self._learner.classes))
        strange = sorted(set(labels.tolist()) - set(known))
        if strange:
            msg = f"{self.task.name} has no class {strange[0]!r}: its classes are "
            raise InvalidValueError(msg + ", ".join(map(repr, known[:10])))
        return float((self.predict(x) == labels).mean())

    def module(self) -> Any:
        """A torch module with these parameters, which reads examples that are prepared.

        Raises:
            LabError: if the task's model has none, or torch is not installed.
        """
        return self._learner.module(self.parameters)

    def save(self, path: Path | str) -> None:
        """Write the model to a .npz file without pickles, for `Model.load`.

        Raises:
            ModelError: naming the file, if it cannot be written.
        """
        about = {"task": self.task.name, "run": self.run, "round": self.round}
        about |= {"device": self.device, "sha256": self.sha256}
        target = Path(path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with replace_file(target) as file:
                np.savez(file, parameters=self.parameters, about=np.array(json.dumps(about)))
        except OSError as error:
            msg = f"{target} cannot be written: {error}"
            raise ModelError(msg) from None

    @classmethod
    def load(cls, path: Path | str, *, task: Task | None = None) -> Model:
        """The model in a file that `save` wrote; the task is found by its name unless given.

        Raises:
            ModelError: naming the file, if it is none, or damaged.
            InvalidValueError: if there is no such task, or it has another model now.
        """
        try:
            with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as content:
                parameters = content["parameters"]
                about = json.loads(str(content["about"]))
            named, digest = about["task"], about["sha256"]
            trained = {name: about[name] for name in ("run", "round", "device")}
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            msg = f"{path} cannot be read as a model: save it again ({error})"
            raise ModelError(msg) from None
        if task is None and named not in TASKS and ":" not in named:
            msg = f"{path} has a model of {named!r}, a task of your own: give it, as in "
            msg += "Model.load(path, task=task)"
            raise ModelError(msg)
        model = cls(parameters, task or find_task(named), **trained)
        if model.sha256 != digest:
            msg = f"the parameters in {path} are not those that were saved: save them again"
            raise ModelError(msg)
        return model

    @cached_property
    def _learner(self) -> Learner:
        return self.task.learner("cpu")

    def _examples(self, x: Any) -> Array:
        """Examples as the data set keeps them."""
        reader, given = self.task.reader, np.asarray(x)
        kept = np.dtype(reader.dtype)
        whole_numbers = given.dtype.kind in "iub"
        if given.shape[1:] != tuple(reader.shape) or (kept.kind in "iu" and not whole_numbers):
            msg = f"examples must be as {reader.name} keeps them, {kept} of shape "
            msg += f"(n, {', '.join(map(str, reader.shape))}), not {given.dtype} of {given.shape}"
            raise InvalidValueError(msg)
        return given.astype(kept, copy=False)


def load_model(
    run: str, out: Path | str = "out", *, device: int | None = None, task: Task | None = None
) -> Model:
    """The model of a run, as its last checkpoint has it: of one that is done, or interrupted.

    Args:
        run: the name of the run, or a part of it that fits no other.
        out: the folder of results.
        device: of a personalized run, the device whose personal parameters are added to the shared
            ones; by default the shared ones alone.
        task: the task of the run, if its name does not lead to it.

    Raises:
        StoreError: if there are no results in the folder.
        InvalidValueError: if no run matches, or several do, or there is no such device.
        ModelError, CheckpointError: if the run has no checkpoint, or none that is complete.
    """
    folder = Path(out)
    with Store(folder, create=False) as store:
        row = find_run(store.runs(), run)
    home = folder / row["run"]
    saved = checkpoints.load(home / CHECKPOINT, None)
    if saved is None:
        msg = f"{row['run']} has no checkpoint in {home}: {checkpoints.ANEW}"
        raise ModelError(msg)
    parameters = saved.state.model
    if device is not None:
        slots = saved.slots if row["personalized"] else None  # else they are of momentum
        parameters = parameters + _personal(slots, home, device, len(parameters))
    return Model(parameters, task or find_task(row["task"]), row["run"], saved.state.round, device)


def _personal(slots: NDArray[np.int8] | None, home: Path, device: int, dim: int) -> Floats32:
    """The personal parameters of a device."""
    if slots is None:
        msg = f"{home.name} keeps no personal parameters here: remove device={device} (on "
        raise InvalidValueError(msg + "Flower they stay on the nodes)")
    if not 0 <= device < len(slots):
        msg = f"device={device}: there are devices 0 to {len(slots) - 1}"
        raise InvalidValueError(msg)
    path = home / KEPT.format(PERSONAL)
    if not KeptFile.is_complete(path, len(slots), dim):
        msg = f"the personal parameters in {path} are not complete: {checkpoints.ANEW}"
        raise ModelError(msg)
    u = KeptFile.read_from(path, slots, dim, device)
    return np.zeros(dim, np.float32) if u is None else u
