"""The model and the data: logistic regression on tumors, in nine hospitals of very unequal size.

Nothing here has to do with how updates are aggregated: put a model and data of yours in its place.
"""

import numpy as np
from flwr.app import Array, ArrayRecord
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import SGDClassifier

SIZES = (165, 112, 78, 54, 37, 25, 16, 10, 3)
"""Patients of each site: 500 in all, of whom the smallest has 0.6 %. The other 69 are for tests."""
CLASSES, EPOCHS = np.array([0, 1]), 2


def load_site(site):
    """The patients of a site."""
    x, y = _load()
    start = sum(SIZES[:site])
    return x[start : start + SIZES[site]], y[start : start + SIZES[site]]


def load_test():
    """The patients of no site."""
    x, y = _load()
    return x[sum(SIZES) :], y[sum(SIZES) :]


def _load():
    """All patients in an order that is fixed, each feature on a scale that all sites know."""
    x, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(17).permutation(len(y))
    x = np.log(x + 1e-2)
    return ((x - x.mean(axis=0)) / x.std(axis=0))[order], y[order]


def first_arrays():
    """The model as it begins: all zeros."""
    return ArrayRecord({"coef": Array(np.zeros((1, 30))), "intercept": Array(np.zeros(1))})


def load_model(arrays):
    """The model that Flower brought."""
    model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.01)
    model.classes_, model.n_features_in_ = CLASSES, 30
    model.coef_, model.intercept_ = arrays["coef"].numpy(), arrays["intercept"].numpy()
    return model


def train_model(model, x, y, seed):
    """Some epochs of SGD; the same seed gives the same model."""
    rng = np.random.default_rng(seed)
    for _ in range(EPOCHS):
        order = rng.permutation(len(y))
        model.partial_fit(x[order], y[order], classes=CLASSES)
    return model


def to_record(model):
    """The model as Flower sends it."""
    return ArrayRecord({"coef": Array(model.coef_), "intercept": Array(model.intercept_)})


def backwards(before, after, times):
    """What an attacker sends: its update, turned around and made large."""
    return ArrayRecord(
        {
            name: Array(old.numpy() - times * (after[name].numpy() - old.numpy()))
            for name, old in before.items()
        }
    )
