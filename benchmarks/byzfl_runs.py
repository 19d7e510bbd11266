"""A run of the lab by byzfl: the same examples, first model, batches and settings."""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.peers import load_byzfl, load_torch
from rfa._specs import parse_spec
from rfa.lab.randomness import stream
from rfa.lab.settings.settings import Settings
from rfa.lab.training.batches import draw_batches
from rfa.lab.training.devices import Devices

ATTACKS = {
    "ipm:epsilon=1": "SignFlipping",
    "ipm-optimized:goal=distance": "Optimal_InnerProductManipulation",
    "alie-optimized:goal=distance": "Optimal_ALittleIsEnough",
}
"""What byzfl calls our attacks."""
MODEL = "linear_digits"
EVALUATED = 4096
"""Test examples in a batch."""


@dataclass(frozen=True)
class Course:
    """How a run went: the accuracies in per cent by round, and the seconds of processor."""

    accuracies: dict[int, float]
    seconds: float

    @property
    def last(self) -> float:
        """The accuracy at the end."""
        return self.accuracies[max(self.accuracies)]

    @property
    def best(self) -> float:
        """The best accuracy of all evaluations."""
        return max(self.accuracies.values())


def run_byzfl(devices: Devices) -> Course:
    """Train with byzfl's clients, attack, aggregator and server, as its benchmark does.

    byzfl's momentum starts at zero and ours at the first gradient; here it is given the first
    gradient, too, and the model and the batches that our devices have.
    """
    settings = devices.settings
    framework = _open()
    training = settings.training
    server = framework.Server({**_common(settings), **_defense(settings), **_test(devices)})
    server.set_parameters(load_torch().from_numpy(devices.initial()))
    clients = [_client(framework, devices, device) for device in range(devices.count)]
    attack = framework.ByzantineClient(_attack(settings))
    every, accuracies = settings.evaluation.every, dict[int, float]()
    start = time.process_time()
    _send_model(server, clients)
    for t in range(settings.rounds):
        if t % every == 0:
            accuracies[t] = 100 * server.compute_test_accuracy()
        for client in clients:
            client.compute_gradients()
            if t == 0 and training.worker_momentum:
                client.momentum_gradient = client.get_flat_gradients().clone()
        honest = [client.get_flat_gradients_with_momentum() for client in clients]
        server.update_model_with_gradients(honest + attack.apply_attack(honest))
        _send_model(server, clients)
    accuracies[settings.rounds] = 100 * server.compute_test_accuracy()
    return Course(accuracies, time.process_time() - start)


def pre_aggregators(clip_norm: float, corrupted: int) -> list[dict[str, Any]]:
    """What byzfl does with gradients before it aggregates them."""
    return [
        {"name": "Clipping", "parameters": {"c": clip_norm}},
        {"name": "NNM", "parameters": {"f": corrupted}},
    ]


def _open() -> Any:
    """Load byzfl's framework."""
    load_byzfl()
    torch = load_torch()
    torch.set_num_threads(1)
    return importlib.import_module("byzfl.fed_framework")


def _common(settings: Settings) -> dict[str, Any]:
    return {
        "model_name": MODEL,
        "device": "cpu",
        "optimizer_name": "SGD",
        "learning_rate": settings.training.learning_rate,
        "weight_decay": 0.0,
        "milestones": [],
        "learning_rate_decay": 1.0,
    }


def _defense(settings: Settings) -> dict[str, Any]:
    """The defense on gradients, which are our updates over the learning rate."""
    given, rate = parse_spec(settings.aggregator).parameters, settings.training.learning_rate
    median = {"nu": given["nu"] / rate, "T": given["budget"]}
    return {
        "aggregator_info": {"name": "GeometricMedian", "parameters": median},
        "pre_agg_list": pre_aggregators(given["clip_norm"] / rate, settings.attack.sybils),
    }


def _attack(settings: Settings) -> dict[str, Any]:
    count = settings.attack.sybils
    parameters = {**_defense(settings), "f": count}
    return {"name": ATTACKS[settings.attack.corruption], "f": count, "parameters": parameters}


def _test(devices: Devices) -> dict[str, Any]:
    spans = zip(_listed(devices.trains), _listed(devices.stops), strict=True)
    rows = np.concatenate([np.arange(start, stop) for start, stop in spans])
    loader = importlib.import_module("torch.utils.data").DataLoader
    return {"test_loader": loader(_examples(devices, rows), batch_size=EVALUATED)}


def _client(framework: Any, devices: Devices, device: int) -> Any:
    """A client with the examples of a device, in the batches that the device has."""
    rows = np.arange(_listed(devices.starts)[device], _listed(devices.trains)[device])
    settings = devices.settings
    batches: Sequence[Any] = [
        draw_batches(len(rows), settings.training, stream(settings.seed, "batches", t, device))[0]
        for t in range(settings.rounds)
    ]
    data = importlib.import_module("torch.utils.data")
    ordered = [batch.tolist() for batch in batches]
    return framework.Client(
        {
            **_common(settings),
            "loss_name": "CrossEntropyLoss",
            "LabelFlipping": False,
            "nb_labels": devices.learner.classes,
            "momentum": settings.training.worker_momentum,
            "training_dataloader": data.DataLoader(_examples(devices, rows), batch_sampler=ordered),
            "store_per_client_metrics": False,
        }
    )


def _listed(places: Any) -> list[int]:
    return [int(place) for place in places]


def _examples(devices: Devices, rows: Any) -> Any:
    torch, population = load_torch(), devices.population
    x = np.asarray(devices.task.prepare(np.asarray(population.x)[rows]), np.float32)
    y = np.asarray(population.y)[rows].astype(np.int64)
    data = importlib.import_module("torch.utils.data")
    return data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))


def offer_model(features: int, classes: int) -> None:
    """Give byzfl softmax regression without a bias; its models are known by name."""
    load_byzfl()
    models = importlib.import_module("byzfl.fed_framework.models")
    torch = load_torch()
    setattr(models, MODEL, lambda: torch.nn.Linear(features, classes, bias=False))


def _send_model(server: Any, clients: Sequence[Any]) -> None:
    state = server.get_dict_parameters()
    for client in clients:
        client.set_model_state(state)
