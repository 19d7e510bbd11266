"""The model and the data: softmax regression on images of 62 characters, in numpy.

Nothing here has to do with how updates are aggregated: put a model and data of yours in its place.
"""

from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord

from rfa.lab.datasets.cache import load
from rfa.lab.tasks.emnist import Emnist
from rfa.lab.tasks.glyphs import Glyphs

PIXELS, CLASSES, BATCH = 28 * 28, 62, 32


def load_part(config, part, parts, test=False):
    """The images and labels of every `parts`-th writer: to train on, or to test."""
    folder, writers = config["data-dir"], config["writers"]
    people = load(Emnist(), Path(folder)) if folder else load(Glyphs(writers))
    rows = []
    for k in range(part, min(writers, len(people)), parts):
        split = people.offsets[k] + people.train[k]
        ends = (split, people.offsets[k + 1]) if test else (people.offsets[k], split)
        rows.extend(range(*ends))
    return 1 - people.x[rows] / np.float32(255), people.y[rows]  # ink is 1, paper 0


def first_model():
    """All zeros: every character is as likely as any other."""
    return {"w": np.zeros((PIXELS, CLASSES), np.float32), "b": np.zeros(CLASSES, np.float32)}


@np.errstate(all="ignore")  # a ruined model is for the server to find
def train_model(model, x, y, config, seed):
    """Some epochs of SGD; the same seed gives the same model."""
    w, b = model["w"].copy(), model["b"].copy()
    rng = np.random.default_rng(seed)
    targets = np.eye(CLASSES, dtype=np.float32)[y]
    for _ in range(config["local-epochs"]):
        order = rng.permutation(len(y))
        for start in range(0, len(y), BATCH):
            rows = order[start : start + BATCH]
            step = softmax(x[rows] @ w + b) - targets[rows]
            step *= config["learning-rate"] / len(rows)
            w -= x[rows].T @ step
            b -= step.sum(axis=0)
    return {"w": w, "b": b}


@np.errstate(all="ignore")
def test_model(model, x, y):
    """The loss, and the share of images that are recognized."""
    chances = softmax(x @ model["w"] + model["b"])
    loss = -np.log(chances[np.arange(len(y)), y] + 1e-9).mean()
    return {"loss": float(loss), "accuracy": float((chances.argmax(axis=1) == y).mean())}


def softmax(scores):
    """The probabilities of the classes, by row."""
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


def to_record(model):
    """The model as Flower sends it."""
    return ArrayRecord({name: Array(values) for name, values in model.items()})


def from_record(record):
    """The model that Flower brought."""
    return {name: array.numpy() for name, array in record.items()}
