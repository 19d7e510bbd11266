"""How the server applies the aggregate: adds it, or gives it to an optimizer (FedOpt).

The aggregate of the updates takes the place of a negative gradient (Reddi et al. 2021). Plain SGD
with rate 1 and no momentum adds it to the model, which is Algorithm 1 of the paper.

    >>> build_optimizer("momentum")
    ServerOptimizer(name='sgd', learning_rate=1.0, momentum=0.9)
    >>> build_optimizer("adam:learning_rate=0.05")
    ServerOptimizer(name='adam', learning_rate=0.05, momentum=0.9)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfa._checks import check_choice, check_number
from rfa._specs import call_with, parse_spec
from rfa.errors import InvalidValueError

SGD, ADAM, YOGI = "sgd", "adam", "yogi"
OPTIMIZERS = (SGD, ADAM, YOGI)
LEARNING_RATES = {SGD: 1.0, ADAM: 0.01, YOGI: 0.01}
"""The default learning rates."""
MOMENTUM = 0.9
"""The default momentum, beta_1 of Adam and Yogi."""
BETA2 = 0.99
"""The decay of the squares in Adam and Yogi."""
TAU = 1e-3
"""The adaptivity of Adam and Yogi, which is added to the roots of the squares."""
NAMES = (SGD, "momentum", ADAM, YOGI)
"""The names in texts; momentum is sgd with momentum."""
Numbers = NDArray[Any]


@dataclass(frozen=True)
class ServerState:
    """The state of an optimizer between rounds.

    Attributes:
        momentum: the running sum of aggregates; None until there is one.
        squares: the running mean of squares of Adam and Yogi.
    """

    momentum: Numbers | None = None
    squares: Numbers | None = None


@dataclass(frozen=True)
class ServerOptimizer:
    """An optimizer of the server's step: momentum, Adam or Yogi on the aggregate.

    Attributes:
        name: "sgd", "adam" or "yogi".
        learning_rate: the factor of the step.
        momentum: the fraction of the earlier steps that is kept: beta_1 of Adam and Yogi.
    """

    name: str = SGD
    learning_rate: float = 1.0
    momentum: float = 0.0

    def __post_init__(self) -> None:
        """Check each value.

        Raises:
            InvalidValueError: if one is wrong; the message names it.
        """
        check_choice("the server's optimizer", self.name, OPTIMIZERS)
        check_number("learning_rate", self.learning_rate, positive=True)
        check_number("momentum", self.momentum)
        if self.momentum >= 1:
            msg = f"momentum is a fraction, from 0 to below 1, not {self.momentum}"
            raise InvalidValueError(msg)

    def __call__(self, aggregate: Numbers, state: ServerState) -> tuple[Numbers, ServerState]:
        """Return the step, in the precision of the aggregate, and the new state."""
        number = aggregate.dtype.type
        step = aggregate
        if self.name != SGD:
            step, state = self._adaptive(aggregate, state)
        elif self.momentum:
            last = 0 if state.momentum is None else state.momentum
            step = number(self.momentum) * last + aggregate
            state = ServerState(momentum=step)
        return number(self.learning_rate) * step, state

    def _adaptive(self, aggregate: Numbers, state: ServerState) -> tuple[Numbers, ServerState]:
        """Return a step of Adam or Yogi."""
        number = aggregate.dtype.type
        beta1, beta2 = number(self.momentum), number(BETA2)
        momentum, new = (1 - beta1) * aggregate, np.square(aggregate)
        squares = (1 - beta2) * new
        if state.momentum is not None and state.squares is not None:
            momentum += beta1 * state.momentum
            if self.name == ADAM:
                squares += beta2 * state.squares
            else:
                squares = state.squares - squares * np.sign(state.squares - new)
        step = momentum / (np.sqrt(squares) + number(TAU))
        return step, ServerState(momentum, squares)


def build_optimizer(given: str | ServerOptimizer | None) -> ServerOptimizer | None:
    """Return the optimizer for a text such as "adam:learning_rate=0.05", or for a value.

    Raises:
        InvalidValueError: if there is no such optimizer, or a parameter is wrong.
    """
    if given is None or isinstance(given, ServerOptimizer):
        return given
    if not isinstance(given, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"a server's optimizer is ServerOptimizer(...), or one of {', '.join(NAMES)}, "
        msg += f"not {given!r}"
        raise InvalidValueError(msg)
    spec = parse_spec(given)
    check_choice("server_optimizer", spec.name, NAMES)
    name = spec.name if spec.name in OPTIMIZERS else SGD
    usual = {
        "learning_rate": LEARNING_RATES[name],
        "momentum": 0.0 if spec.name == SGD else MOMENTUM,
    }
    return call_with(ServerOptimizer, {"name": name, **usual, **spec.parameters}, spec.name)
