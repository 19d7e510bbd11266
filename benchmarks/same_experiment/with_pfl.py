"""Sign-flipping by a quarter of 20 clients against the geometric median, with pfl.

pfl has no attacks and no robust aggregators: both are written here, as a postprocessor.
"""

import itertools
import sys

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from pfl.postprocessor.base import Postprocessor
from pfl.stats import MappedVectorStatistics


class Regression(torch.nn.Linear):
    def loss(self, x, y):
        return torch.nn.functional.cross_entropy(self(x), y)

    def metrics(self, x, y):
        return {}


class SignFlipAgainstMedian(Postprocessor):
    def __init__(self):
        self.updates = []

    def postprocess_one_user(self, *, stats, user_context):
        sign = -1 if user_context.user_id < 5 else 1
        self.updates.append(sign * stats["weight"])
        return stats, Metrics()

    def postprocess_server(self, *, stats, central_context, aggregate_metrics):
        updates, self.updates = torch.stack(self.updates), []
        median = torch.zeros_like(updates[0])
        for _ in range(3):
            distances = (updates - median).flatten(1).norm(dim=1)
            weights = 1 / distances.clamp(min=0.1)
            median = torch.tensordot(weights, updates, 1) / weights.sum()
        return MappedVectorStatistics({"weight": median}, weight=1), Metrics()


torch.manual_seed(int(sys.argv[1]))
digits = np.load("digits.npz")
x = torch.tensor(digits["x"] / 16, dtype=torch.float32)
y = torch.tensor(digits["y"], dtype=torch.int64)
order = torch.randperm(len(y))
parts = order[360:].tensor_split(20)
users = [PyTorchTensorDataset((x[rows], y[rows]), user_id=k) for k, rows in enumerate(parts)]
data = FederatedDataset(users.__getitem__, itertools.cycle(range(20)).__next__)
module = Regression(64, 10, bias=False)
sgd = torch.optim.SGD
FederatedAveraging().run(
    NNAlgorithmParams(
        central_num_iterations=100,
        evaluation_frequency=1000,
        train_cohort_size=20,
        val_cohort_size=0,
    ),
    SimulatedBackend(data, data, [SignFlipAgainstMedian()]),
    PyTorchModel(module, sgd, sgd(module.parameters(), lr=1.0)),
    NNTrainHyperParams(local_batch_size=10, local_num_epochs=2, local_learning_rate=0.3),
    send_metrics_to_platform=False,
)
print((module(x[order[:360]]).argmax(1) == y[order[:360]]).float().mean().item())
