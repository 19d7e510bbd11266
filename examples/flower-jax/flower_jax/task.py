"""The model and the data: a network with two hidden layers that tells three spirals apart, in JAX.

Nothing here has to do with how updates are aggregated: put a model and data of yours in its place.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Array, ArrayRecord

ARMS, NOISE, BATCH, SIZES = 3, 0.05, 32, (2, 32, 32, 3)
SERVER = 1000
"""The part of the data that no node has."""


def load_part(part, test=False):
    """Points and their spirals; each node has more points at some radius than at others."""
    rng = np.random.default_rng([17, part, test])
    size = 1500 if part == SERVER else rng.integers(150, 350)
    y, inner = rng.integers(0, ARMS, size), np.random.default_rng([17, part]).uniform(0.5, 1.5)
    radius = rng.uniform(0, 1, size) ** (1 if part == SERVER else inner)
    angle = 4 * radius + 2 * np.pi * y / ARMS
    x = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return (x + NOISE * rng.standard_normal(x.shape)).astype(np.float32), y


def first_model():
    """The weights as they begin: the same ones whenever they are asked for."""
    model, keys = {}, jax.random.split(jax.random.key(17), len(SIZES) - 1)
    for k, (key, fan_in, fan_out) in enumerate(zip(keys, SIZES, SIZES[1:], strict=False)):
        model[f"w{k}"] = jax.random.normal(key, (fan_in, fan_out)) * np.sqrt(2 / fan_in)
        model[f"b{k}"] = jnp.zeros(fan_out)
    return model


def scores(model, x):
    """What the network says about points."""
    last = len(SIZES) - 2
    for k in range(last):
        x = jax.nn.relu(x @ model[f"w{k}"] + model[f"b{k}"])
    return x @ model[f"w{last}"] + model[f"b{last}"]


def loss_of(model, x, y):
    """The mean cross-entropy."""
    return -jnp.take_along_axis(jax.nn.log_softmax(scores(model, x)), y[:, None], axis=1).mean()


@jax.jit
def descend(model, batches, rate):
    """A step of SGD for each batch, and the last loss."""

    def step(model, batch):
        loss, slope = jax.value_and_grad(loss_of)(model, *batch)
        return jax.tree.map(lambda w, g: w - rate * g, model, slope), loss

    model, losses = jax.lax.scan(step, model, batches)
    return model, losses[-1]


def train_model(model, x, y, steps, rate, seed):
    """Some steps of SGD, and the last loss; the same seed gives the same model."""
    rows = np.random.default_rng(seed).integers(0, len(y), (steps, BATCH))
    model, loss = descend(model, (x[rows], y[rows]), rate)
    return model, float(loss)


def test_model(model, x, y):
    """The share of points whose spiral is told."""
    return float((scores(model, x).argmax(axis=1) == y).mean())


def nothing_but_nan(model):
    """What an attacker sends in place of a model."""
    return jax.tree.map(lambda values: jnp.full_like(values, jnp.nan), model)


def to_record(model):
    """The model as Flower sends it."""
    return ArrayRecord({name: Array(np.asarray(values)) for name, values in model.items()})


def from_record(record):
    """The model that Flower brought."""
    return {name: jnp.asarray(array.numpy()) for name, array in record.items()}
