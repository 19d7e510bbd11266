"""The model and the data: a convolutional network with BatchNorm on images of digits.

Nothing here has to do with how updates are aggregated: put a model and data of yours in its place.
"""

import numpy as np
import torch
from torch import nn

FONT = """
###  .#.  ###  ###  #.#  ###  ###  ###  ###  ###
#.#  ##.  ..#  ..#  #.#  #..  #..  ..#  #.#  #.#
#.#  .#.  ###  .##  ###  ###  ###  .#.  ###  ###
#.#  .#.  #..  ..#  ..#  ..#  #.#  .#.  #.#  ..#
###  ###  ###  ###  ..#  ###  ###  .#.  ###  ###
"""
ROWS = [line.split() for line in FONT.split("\n") if line]
DIGITS = np.array([[[dot == "#" for dot in row[k]] for row in ROWS] for k in range(10)])
LARGE = DIGITS.repeat(2, axis=1).repeat(2, axis=2)
SIDE, NOISE, BATCH, EPOCHS = 12, 0.15, 32, 2
SERVER = 1000
"""The part of the data that no node has."""

torch.set_num_threads(1)  # small models are fastest so, and nodes share a machine here


def load_part(part, test=False):
    """Images and labels of a part: each node has a brightness and a contrast of its own."""
    rng = np.random.default_rng([17, part, test])
    size = 1000 if part == SERVER else rng.integers(150, 350)
    y, x = rng.integers(0, 10, size), np.zeros((size, SIDE, SIDE))
    for image, digit in zip(x, y, strict=True):
        top, left = rng.integers(0, SIDE - 9), rng.integers(0, SIDE - 5)
        image[top : top + 10, left : left + 6] = LARGE[digit]
    camera = rng if part == SERVER else np.random.default_rng([17, part])
    shape = (size, 1, 1) if part == SERVER else ()  # the server's images are of many cameras
    x = camera.uniform(-0.1, 0.1, shape) + camera.uniform(0.8, 1.2, shape) * x
    x += NOISE * rng.standard_normal(x.shape)
    return torch.tensor(x[:, None], dtype=torch.float32), torch.tensor(y)


def build_model():
    """The network."""
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten()),
        nn.Linear(16 * 3 * 3, 10),
    )


def first_model():
    """The network as it begins: the same one whenever it is asked for."""
    torch.manual_seed(17)
    return build_model()


def load_model(arrays):
    """The network that Flower brought."""
    state = arrays.to_torch_state_dict()
    for name, values in state.items():
        if name.endswith("running_var"):  # an attacker can push a variance a little below 0
            values.clamp_(min=1e-3)
    model = build_model()
    model.load_state_dict(state)
    return model


def train_model(model, x, y, rate, seed):
    """Some epochs of SGD, and the mean loss of the last; the same seed gives the same model."""
    torch.manual_seed(int(np.random.default_rng(seed).integers(2**63)))
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9), []
    model.train()
    for _ in range(EPOCHS):
        losses = []
        for rows in torch.randperm(len(y)).split(BATCH):
            if len(rows) == BATCH:  # the rest are too few for BatchNorm
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    return float(np.mean(losses))


@torch.no_grad()
def test_model(model, x, y):
    """The share of images that are recognized."""
    model.eval()
    return float((model(x).argmax(dim=1) == y).float().mean())


def random_numbers(state):
    """What an attacker sends in place of a model."""
    return {
        name: torch.randn_like(values) if values.is_floating_point() else values
        for name, values in state.items()
    }
