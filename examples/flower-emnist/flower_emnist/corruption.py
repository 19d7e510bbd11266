"""What corrupted nodes return in place of the model that they trained: for the demonstration."""

import numpy as np

from flower_emnist.task import load_part, train_model


def corrupt(model, trained, config, parts, seed):
    """A model that does harm.

    Args:
        model: what the server sent.
        trained: what the node made of it.
        config: the run config, whose corruption is none, nan, huge or omniscient.
        parts: how many nodes there are.
        seed: what everyone's training depends on, but for the node.
    """
    kind = config["corruption"]
    if kind == "none":
        return trained
    if kind == "nan":
        return {name: np.full_like(values, np.nan) for name, values in trained.items()}
    if kind == "huge":
        return {name: model[name] + 1e8 * (trained[name] - model[name]) for name in model}
    if kind == "omniscient":
        return omniscient(model, config, parts, seed)
    msg = f"corruption must be none, nan, huge or omniscient, not {kind!r}"
    raise ValueError(msg)


def omniscient(model, config, parts, seed):
    """What turns the mean of all updates into its negative.

    The corrupted nodes know everyone's data here, and how they train, so they know every update.
    """
    push, weight = dict.fromkeys(model, 0.0), 0.0
    for part in range(parts):
        x, y = load_part(config, part, parts)
        trained = train_model(model, x, y, config, seed=[*seed, part])
        honest = part >= config["corrupted"]
        weight += 0 if honest else len(y)
        for name in model:
            push[name] += (1 + honest) * len(y) * (trained[name] - model[name])
    return {name: (model[name] - push[name] / weight).astype(np.float32) for name in model}
