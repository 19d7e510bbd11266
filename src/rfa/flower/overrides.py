"""The methods of FedAvg that are never called here, because no reply is of a single node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from flwr.app import Message
from flwr.serverapp.strategy import FedAvg

from rfa.errors import InvalidTypeError

NEVER_CALLED = ("aggregate_train", "aggregate_evaluate")


def check_overrides(strategy: type[FedAvg], base: type[FedAvg]) -> None:
    """Check that a user's class overrides no method that is never called.

    Args:
        strategy: the class.
        base: the class of rfa that it extends.

    Raises:
        InvalidTypeError: if it does; the message says what to override instead.
    """
    for name in NEVER_CALLED:
        if getattr(strategy, name) is not getattr(base, name):
            msg = (
                f"{strategy.__name__} overrides {name}, which is never called: there is no reply "
                "of a single node. To log, save or stop, override on_round(t, arrays, "
                "train_metrics, evaluate_metrics); to aggregate in another way, give "
                "SecureStrategy an aggregator of your own"
            )
            raise InvalidTypeError(msg)


def refuse_replies(server_round: int, replies: Iterable[Message]) -> NoReturn:
    """Refuse to aggregate replies of single nodes.

    Raises:
        NotImplementedError: always; the message says what to use instead.
    """
    msg = (
        f"round {server_round}: there are no replies of single nodes to aggregate "
        f"({type(replies)}): secure sums are taken in start(), so wrappers of aggregate_train "
        "cannot work here; on_round is called after each round"
    )
    raise NotImplementedError(msg)
