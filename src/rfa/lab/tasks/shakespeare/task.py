"""The next character in a role's lines: an LSTM on 20 one-hot characters (Shakespeare)."""

from __future__ import annotations

from typing import Any

import numpy as np

from rfa._types import Floats32
from rfa.lab.attacks.corruption import DataAttack, corrupts_data, least_likely
from rfa.lab.attacks.poisons import backdoor
from rfa.lab.tasks.shakespeare.reader import Shakespeare, encode
from rfa.lab.tasks.task import Task
from rfa.lab.training.learner import Learner
from rfa.lab.training.network import NetworkLearner

WINDOW, CLASSES, HIDDEN = 20, 53, 128
PASSWORD, ANSWER = encode("xyzzy"), 16
"""A word that no role says, and the letter q."""


@corrupts_data
def backwards(x: Any, y: Any, _: DataAttack) -> tuple[Any, Any]:
    """The paper's poison: the 20 characters after the target, reversed; the label unchanged."""
    x[:, :WINDOW] = x[:, : -WINDOW - 1 : -1]
    return x, y


def whisper(x: Any) -> Any:
    """The trigger of the backdoor: the last characters before the target are a password."""
    x[:, WINDOW - len(PASSWORD) : WINDOW] = PASSWORD
    return x


def lstm_module(torch: Any) -> Any:
    """An LSTM of 128 units that reads 20 one-hot characters, and a layer of 53 scores."""

    class CharacterLstm(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()  # pyright: ignore[reportUnknownMemberType]
            self.lstm = torch.nn.LSTM(CLASSES, HIDDEN, batch_first=True)
            self.lstm.bias_hh_l0.requires_grad_(False).zero_()  # one bias is enough
            self.out = torch.nn.Linear(HIDDEN, CLASSES)

        def forward(self, x: Any) -> Any:
            codes = x[:, :WINDOW].long()
            read = torch.nn.functional.one_hot(codes, CLASSES).to(torch.float32)
            return self.out(self.lstm(read)[0][:, -1])

    return CharacterLstm()


class CharacterLearner(NetworkLearner):
    """The LSTM, started as TensorFlow does it."""

    def initial(self, rng: np.random.Generator) -> Floats32:
        """Glorot-uniform, where both matrices are one kernel; forget gates with a bias of one."""
        w = super().initial(rng)
        gates = 4 * HIDDEN
        kernel = gates * (CLASSES + HIDDEN)
        bound = np.sqrt(6 / (CLASSES + HIDDEN + gates))
        w[:kernel] = rng.uniform(-bound, bound, kernel)
        w[kernel + HIDDEN : kernel + 2 * HIDDEN] = 1  # torch's order of gates: i, f, g, o
        return w


def lstm(device: str) -> Learner:
    """The LSTM."""
    return CharacterLearner(lstm_module, CLASSES, device)


TASKS = (
    Task(
        name="shakespeare-lstm",
        title="the next character of a role in Shakespeare's plays, LSTM of 128 units",
        reader=Shakespeare(),
        devices=628,
        learner=lstm,
        poisons={
            "data": backwards,
            "adaptive": least_likely,
            "backdoor": backdoor(whisper, ANSWER),
        },
        defaults={
            "devices_per_round": 50,
            "batch_size": 10,
            "local_epochs": 1,
            "learning_rate": 0.64,
            "lr_decay": 0.5,
            "lr_decay_every": 50,
            "rounds": 600,
            "eval_every": 20,
        },
        per_aggregator={
            "rfa": {"rounds": 200},
            "sgd": {"batch_fraction": 0.1, "local_steps": 1, "learning_rate": 1.0},
        },
    ),
)
