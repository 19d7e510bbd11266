"""Checks of the app's arguments to a strategy, before anything is sent."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord

from rfa._checks import check_count, check_number
from rfa.errors import InvalidTypeError, InvalidValueError
from rfa.flower import records
from rfa.flower.arrays import size_of

ON_ROUND = ("t", "arrays", "train_metrics", "evaluate_metrics")
"""The arguments of `on_round`."""
KEYS = ("weighted_by_key", "arrayrecord_key", "configrecord_key")
"""The options of FedAvg that name a metric, or a record of a message."""


def check_hook(name: str, hook: Any, given: tuple[str, ...]) -> None:
    """Check that a function can be called with these arguments, before the first round.

    Raises:
        InvalidValueError: if it cannot; the message names the hook and its arguments.
    """
    try:
        inspect.signature(hook).bind(*given)
    except ValueError:  # some functions in C have no signature
        return
    except TypeError as error:
        said = f"{', '.join(given[:-1])} and {given[-1]}"
        msg = f"{name} is called with {said}, and {hook!r} cannot be: {error}"
        raise InvalidValueError(msg) from None


def check_keys(fedavg: Mapping[str, Any]) -> None:
    """Check the names of metrics and records.

    Raises:
        InvalidValueError: if one is wrong; the message names the option.
    """
    for option in KEYS:
        name = fedavg.get(option, option)
        if not isinstance(name, str) or not name:
            msg = f"{option} must be a name, not {name!r}"
            raise InvalidValueError(msg)
        if name == records.KEY and option != KEYS[0]:
            msg = f"{option}: {name!r} is the key of rfa's own record: give another"
            raise InvalidValueError(msg)


def check_start(
    arrays: Any, configs: Mapping[str, Any], num_rounds: Any, timeout: Any, evaluate_fn: Any
) -> None:
    """Check the arguments of `start`.

    Args:
        arrays: the first model.
        configs: the configs for the app's training and evaluation, by the name of the argument.
        num_rounds: the total number of rounds.
        timeout: seconds to wait for nodes that train or evaluate.
        evaluate_fn: evaluates a model on the server, if there is one.

    Raises:
        InvalidTypeError, InvalidValueError: if one is wrong; the message names the argument.
    """
    _check_record("initial_arrays", arrays, ArrayRecord, "ArrayRecord(model.state_dict())")
    for name, config in configs.items():
        if config is not None:
            _check_record(name, config, ConfigRecord, "ConfigRecord({'lr': 0.1})")
    check_count("num_rounds", num_rounds, least=0)
    check_number("timeout", timeout, positive=True)
    if evaluate_fn is not None:
        check_hook("evaluate_fn", evaluate_fn, ("t", "arrays"))
    if not size_of(arrays):
        msg = "the model has no floating-point numbers: there is nothing to aggregate"
        raise InvalidValueError(msg)


def _check_record(name: str, value: Any, kind: type, such_as: str) -> None:
    if not isinstance(value, kind):
        article = "an" if kind is ArrayRecord else "a"
        msg = f"{name} must be {article} {kind.__name__}, such as {such_as}, not "
        raise InvalidTypeError(msg + type(value).__name__)
