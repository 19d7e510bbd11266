"""Sign-flipping by a quarter of 20 clients against the geometric median, with byzfl."""

import random
import sys

import numpy as np
import torch
from byzfl.fed_framework import ByzantineClient, Client, DataDistributor, Server, models
from torch.utils.data import DataLoader, TensorDataset

random.seed(int(sys.argv[1]))
torch.manual_seed(int(sys.argv[1]))
digits = np.load("digits.npz")
x = torch.tensor(digits["x"] / 16, dtype=torch.float32)
y = torch.tensor(digits["y"], dtype=torch.int64)
order = torch.randperm(len(y))
train = TensorDataset(x[order[360:]], y[order[360:]])
test = TensorDataset(x[order[:360]], y[order[:360]])
train.targets = train.tensors[1]
models.digits = lambda: torch.nn.Linear(64, 10, bias=False)  # a model is given by its name
common = {
    "model_name": "digits",
    "device": "cpu",
    "optimizer_name": "SGD",
    "learning_rate": 0.3,
    "weight_decay": 0.0,
    "milestones": [],
    "learning_rate_decay": 1.0,
}
server = Server(
    {
        **common,
        "test_loader": DataLoader(test, batch_size=360),
        "aggregator_info": {"name": "GeometricMedian", "parameters": {"nu": 0.1, "T": 3}},
        "pre_agg_list": [],
    }
)
distributor = DataDistributor(
    {
        "data_distribution_name": "iid",
        "nb_honest": 20,
        "data_loader": DataLoader(train),
        "batch_size": 10,
    }
)
clients = [
    Client(
        {
            **common,
            "loss_name": "CrossEntropyLoss",
            "LabelFlipping": False,
            "nb_labels": 10,
            "momentum": 0.0,
            "training_dataloader": loader,
            "store_per_client_metrics": False,
        }
    )
    for loader in distributor.split_data()[:15]  # the other five are corrupted
]
attack = ByzantineClient({"name": "SignFlipping", "f": 5, "parameters": {}})
for _ in range(100):
    model = server.get_flat_parameters()
    updates = []
    for client in clients:
        client.set_parameters(model)
        client.compute_model_update(16)  # two epochs
        updates.append(client.get_flat_parameters() - model)
    server.set_parameters(model + server.aggregate(updates + attack.apply_attack(updates)))
print(server.compute_test_accuracy())
