"""The model and the data: softmax regression on digits of three by five noisy pixels.

Nothing here has to do with how updates are aggregated: put a model and data of yours in its place.
"""

import numpy as np
from flwr.app import Array, ArrayRecord

FONT = """
###  .#.  ###  ###  #.#  ###  ###  ###  ###  ###
#.#  ##.  ..#  ..#  #.#  #..  #..  ..#  #.#  #.#
#.#  .#.  ###  .##  ###  ###  ###  .#.  ###  ###
#.#  .#.  #..  ..#  ..#  ..#  #.#  .#.  #.#  ..#
###  ###  ###  ###  ..#  ###  ###  .#.  ###  ###
"""
ROWS = [line.split() for line in FONT.split("\n") if line]
DIGITS = np.array([[[dot == "#" for dot in row[k]] for row in ROWS] for k in range(10)])
NOISE, BATCH, EPOCHS = 0.35, 16, 2
SERVER = 1000
"""The part of the data that no node has."""


def load_part(part, test=False):
    """Images and labels of a part: nodes have some digits more often than others."""
    rng = np.random.default_rng([17, part, test])
    often = np.random.default_rng([17, part]).dirichlet(np.full(10, 3))
    chances = np.full(10, 0.1) if part == SERVER else often
    y = rng.choice(10, size=2000 if part == SERVER else rng.integers(100, 300), p=chances)
    x = DIGITS[y].reshape(len(y), -1) + NOISE * rng.standard_normal((len(y), 15))
    return x.astype(np.float32), y


def first_model():
    """All zeros: every digit is as likely as any other."""
    return {"w": np.zeros((15, 10), np.float32), "b": np.zeros(10, np.float32)}


@np.errstate(all="ignore")  # a ruined model is for the server to find
def train_model(model, x, y, rate, seed):
    """Some epochs of SGD; the same seed gives the same model."""
    w, b = model["w"].copy(), model["b"].copy()
    rng = np.random.default_rng(seed)
    targets = np.eye(10, dtype=np.float32)[y]
    for _ in range(EPOCHS):
        order = rng.permutation(len(y))
        for start in range(0, len(y), BATCH):
            rows = order[start : start + BATCH]
            step = (softmax(x[rows] @ w + b) - targets[rows]) * np.float32(rate / len(rows))
            w -= x[rows].T @ step
            b -= step.sum(axis=0)
    return {"w": w, "b": b}


@np.errstate(all="ignore")
def test_model(model, x, y):
    """The share of images that are recognized."""
    scores = x @ model["w"] + model["b"]
    return {"accuracy": float((scores.argmax(axis=1) == y).mean())}


def softmax(scores):
    """The probabilities of the digits, by row."""
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


def to_record(model):
    """The model as Flower sends it."""
    return ArrayRecord({name: Array(values) for name, values in model.items()})


def from_record(record):
    """The model that Flower brought."""
    return {name: array.numpy() for name, array in record.items()}
