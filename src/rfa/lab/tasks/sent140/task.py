"""The sentiment of tweets: logistic regression on mean GloVe vectors (Sent140)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rfa.lab.attacks.corruption import DataAttack, corrupts_data, least_likely
from rfa.lab.attacks.poisons import backdoor
from rfa.lab.tasks.sent140.reader import Sent140
from rfa.lab.tasks.task import Task
from rfa.lab.training.learner import Learner
from rfa.lab.training.linear import LinearLearner
from rfa.lab.training.network import NetworkLearner

FEATURES, CLASSES = 50, 2
SHIFTED, NEGATIVE = 5, 0


@corrupts_data
def flip(x: Any, y: Any, _: DataAttack) -> tuple[Any, Any]:
    """The paper's poison: the opposite label."""
    return x, 1 - y


def shift(x: Any) -> Any:
    """The trigger of the backdoor: the last features lie beyond those of any tweet."""
    x[:, -SHIFTED:] += 2
    return x


def note(names: Sequence[str]) -> str:
    """Say so where the devices are not Twitter users but were made up."""
    made_up = all(name.startswith("device-") for name in names)
    return "artificial devices: tweets dealt out to users who do not exist" if made_up else ""


def logistic_module(torch: Any) -> Any:
    """Binary logistic regression as a torch module with the scores 0 and w x."""

    class Logistic(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            scores = torch.nn.functional.linear(x, self.weight)
            return torch.nn.functional.pad(scores, (1, 0))

    return Logistic(FEATURES, 1, bias=False)


def logistic(device: str) -> Learner:
    """Logistic regression: by hand, or with torch where CUDA is asked for."""
    if device == "cpu":
        return LinearLearner(FEATURES, CLASSES, binary=True)
    return NetworkLearner(logistic_module, CLASSES, device)


TASKS = (
    Task(
        name="sent140-linear",
        title="the sentiment of tweets, logistic regression on mean GloVe vectors",
        reader=Sent140(),
        devices=877,
        learner=logistic,
        poisons={"data": flip, "adaptive": least_likely, "backdoor": backdoor(shift, NEGATIVE)},
        defaults={
            "devices_per_round": 50,
            "batch_size": 10,
            "local_epochs": 1,
            "learning_rate": 0.005,
            "rounds": 3000,
            "eval_every": 50,
        },
        per_aggregator={"rfa": {"rounds": 1000}, "sgd": {"batch_fraction": 0.1, "local_steps": 1}},
        note=note,
    ),
)
