"""Corruptions as functions of the data or of the updates: those of the paper, and yours.

A corruption of data changes the examples that a device trains on (static and adaptive data
poisoning). A corruption of updates decides what corrupted devices send (update poisoning). Each is
one function with a decorator:

    @corrupts_data
    def all_zeros(x, y, attack):          # y may depend on attack.scores(x): adaptive=True
        return x, y * 0

    @corrupts_updates
    def backwards(attack):                # one row for each corrupted device
        return -attack.updates[attack.corrupted]

`--corruption my_module:backwards` on the command line runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, overload

import numpy as np

from rfa._plugins import describe_failure
from rfa._types import Floats, Floats32, Ints
from rfa.errors import InvalidValueError
from rfa.lab.attacks import limits
from rfa.lab.errors import LabError
from rfa.lab.learners.learner import are_finite
from rfa.lab.randomness import stream


@dataclass(frozen=True)
class DataAttack:
    """The knowledge of a device that poisons its data.

    Attributes:
        round: the round t; 0 unless the corruption is adaptive.
        device: the device.
        classes: the number of classes.
        model: the current model w^(t), flat; the first one unless the corruption is adaptive.
        scores: returns the scores that this model gives to examples.
        rng: a generator for random choices; the same in each round unless the corruption is
            adaptive.
    """

    round: int
    device: int
    classes: int
    model: Floats32
    scores: Callable[[Any], Floats32]
    rng: np.random.Generator


def _no_defense(_: Any) -> Floats:
    msg = "this attack does not know what the server does: give UpdateAttack its aggregate"
    raise AttackError(msg)


@dataclass(frozen=True)
class UpdateAttack:
    """The knowledge of devices that poison their updates together: everything.

    Attributes:
        round: the round t.
        model: the current model w^(t), flat.
        updates: the updates that all devices of the round would send, one row each; do not change
            them.
        weights: the weights alpha_i of the devices of the round.
        corrupted: the rows of the corrupted devices.
        rng: a generator for random choices.
        aggregate: returns the step of the server if the corrupted devices sent these rows; zero if
            the server would reject it. Calling it changes nothing.
    """

    round: int
    model: Floats32
    updates: Floats32
    weights: Floats
    corrupted: Ints
    rng: np.random.Generator
    aggregate: Callable[[Any], Floats] = _no_defense


Poison: TypeAlias = Callable[..., tuple[Any, Any]]
"""(x, y, attack) -> (x, y); keyword-only parameters may follow."""
Forge: TypeAlias = Callable[..., Any]
"""(attack) -> rows; keyword-only parameters may follow."""


Totals: TypeAlias = dict[str, float]
"""The totals of a sum beside the push, by name."""


@dataclass(frozen=True)
class Trigger:
    """The trigger of a backdoor."""

    stamp: Callable[[Any], Any]  # puts the trigger on examples, which it may change
    target: int  # the class that the model is to predict for them


@dataclass(frozen=True)
class DataCorruption:
    """A corruption of data."""

    poison: Poison  # returns the examples and labels that the device trains on
    adaptive: bool = False  # whether it is called again in each round
    trigger: Trigger | None = None  # the trigger of a backdoor, which every evaluation tries
    forge: Forge | None = None  # changes the updates that were trained on such data


@dataclass(frozen=True)
class UpdateCorruption:
    """A corruption of updates."""

    forge: Forge


@dataclass(frozen=True)
class SumCorruption:
    """A corruption of secure sums: how liars in a sum change its total."""

    lie: Callable[..., tuple[Floats, Totals]]  # (honest sum, honest mean) -> push, other totals
    forge: Forge | None = None  # None: they train like honest devices


Corruption: TypeAlias = DataCorruption | UpdateCorruption | SumCorruption


@overload
def corrupts_data(poison: Poison) -> DataCorruption: ...
@overload
def corrupts_data(*, adaptive: bool) -> Callable[[Poison], DataCorruption]: ...
def corrupts_data(poison: Poison | None = None, *, adaptive: bool = False) -> Any:
    """Mark a function (x, y, attack) -> (x, y) as a corruption of data.

    Its keyword-only parameters can be given by name: `module:function:scale=2`.

    Args:
        poison: the function; `attack` is a `DataAttack`.
        adaptive: whether to call it again in each round, with the current model.
    """

    def mark(function: Poison) -> DataCorruption:
        return DataCorruption(function, adaptive)

    return mark if poison is None else mark(poison)


def corrupts_updates(forge: Forge) -> UpdateCorruption:
    """Mark a function (attack) -> rows as a corruption of updates.

    Its keyword-only parameters can be given by name: `module:function:scale=2`.

    Args:
        forge: the function; `attack` is an `UpdateAttack`, and it returns one row for each
            corrupted device.
    """
    return UpdateCorruption(forge)


def corrupts_sums(lie: Callable[..., tuple[Floats, Totals]]) -> SumCorruption:
    """Mark a function (honest sum, honest mean) -> push, totals as a corruption of secure sums."""
    return SumCorruption(lie)


class AttackError(LabError):
    """A corruption fails, or returns an invalid value."""


class NoSuchAttackError(AttackError, InvalidValueError):
    """No corruption has that name."""


@corrupts_updates
def gaussian(attack: UpdateAttack, *, scale: Annotated[float, limits.finite] = 1.0) -> Floats32:
    """Send the device's own update plus noise of `scale` times the deviation of its components."""
    return attack.updates[attack.corrupted] + _noise(attack, scale)


@corrupts_updates
def gaussian_replace(
    attack: UpdateAttack, *, scale: Annotated[float, limits.finite] = 1.0
) -> Floats32:
    """Send only noise, of `scale` times the deviation of the components of the update."""
    return _noise(attack, scale)


@corrupts_updates
def omniscient(attack: UpdateAttack) -> Floats:
    """Send updates that turn the weighted mean of the updates into its negative."""
    return _negative_mean(attack, np.float32(0))


@corrupts_updates
def omniscient_parameters(attack: UpdateAttack) -> Floats:
    """Send updates that turn the weighted mean of the models into its negative (paper)."""
    return _negative_mean(attack, attack.model)


@corrupts_updates
def nan(attack: UpdateAttack) -> Floats:
    """Send only NaN, like a broken device."""
    return np.full((len(attack.corrupted), attack.updates.shape[1]), np.nan)


@corrupts_data(adaptive=True)
def least_likely(x: Any, y: Any, attack: DataAttack) -> tuple[Any, Any]:
    """Label every example with the class that the model finds least likely (adaptive poisoning)."""
    return x, attack.scores(x).argmin(axis=1).astype(np.asarray(y).dtype)


def draw_corrupted(weights: Floats, rho: float, seed: int, *when: int) -> Ints:
    """Return the corrupted devices: the first of a random order whose total weight exceeds rho.

    They are those of one round if `when` names it, and otherwise those of the whole run.
    """
    if rho == 0:
        return np.zeros(0, np.int64)
    order = stream(seed, "corrupted", *when).permutation(len(weights))
    share = np.cumsum(weights[order]) / weights.sum()
    return np.sort(order[: int(np.argmax(share > rho)) + 1])


def forge(corruption: Corruption, attack: UpdateAttack, name: str) -> Floats32:
    """Return the rows of the corrupted devices: numbers of the right shape.

    Devices that corrupt only their data send the updates that they trained.

    Raises:
        AttackError: if the corruption fails; the message names it and what was wrong.
    """
    if corruption.forge is None:
        return attack.updates[attack.corrupted]
    shape = (len(attack.corrupted), attack.updates.shape[1])
    try:
        rows = np.asarray(corruption.forge(attack))
    except (Exception, SystemExit) as error:
        msg = f"corruption {name} failed in round {attack.round}: {describe_failure(error)}"
        raise AttackError(msg) from error
    if rows.shape != shape or rows.dtype.kind not in "fiu":
        msg = f"corruption {name} must return numbers of shape {shape}, not {_describe(rows)}"
        raise AttackError(msg)
    with np.errstate(over="ignore"):  # values beyond float32 become infinite, and are dropped
        return rows.astype(np.float32)


def poison(corruption: DataCorruption, x: Any, y: Any, attack: DataAttack) -> tuple[Any, Any]:
    """Return the poisoned examples, after checking their shape and labels.

    Raises:
        AttackError: if the corruption fails; the message says what was wrong.
    """
    who = f"corruption of the data of device {attack.device}"
    try:
        new_x, new_y = corruption.poison(x.copy(), y.copy(), attack)
    except (Exception, SystemExit) as error:
        msg = f"{who} failed in round {attack.round}: {describe_failure(error)}"
        raise AttackError(msg) from error
    new_x, new_y = np.asarray(new_x), np.asarray(new_y)
    if new_x.shape[1:] != x.shape[1:] or len(new_x) == 0 or new_y.shape != (len(new_x),):
        msg = f"{who} must return examples like {_describe(x)} with one label each, not "
        msg += f"{_describe(new_x)} and {_describe(new_y)}"
        raise AttackError(msg)
    if new_y.dtype.kind not in "iu" or new_y.min() < 0 or new_y.max() >= attack.classes:
        msg = f"{who} must return whole labels from 0 to {attack.classes - 1}: {_describe(new_y)}"
        raise AttackError(msg)
    return new_x.astype(x.dtype, copy=False), new_y


def _noise(attack: UpdateAttack, scale: float) -> Floats32:
    updates = attack.updates[attack.corrupted]
    noise = attack.rng.standard_normal(updates.shape, np.float32)
    noise *= updates.std(axis=1, keepdims=True)
    noise *= np.float32(scale)
    return noise


def _negative_mean(attack: UpdateAttack, model: Any) -> Floats:
    """Return equal rows: minus the sum of all and the honest updates, per corrupted weight.

    Honest updates that are not finite will be dropped, so they do not count.
    """
    finite = are_finite(attack.updates)
    weights = np.where(finite, attack.weights, 0)
    bad = attack.weights[attack.corrupted].sum()
    twice = 2 * weights
    twice[attack.corrupted] = weights[attack.corrupted]
    updates = attack.updates
    if not finite.all():
        updates = np.where(finite[:, None], updates, np.float32(0))
    push = twice.astype(np.float32) @ updates
    drag = 2 * (weights.sum() + bad - weights[attack.corrupted].sum()) * model
    row = -(push + drag) / bad
    return np.broadcast_to(row, (len(attack.corrupted), len(row)))


def _describe(array: Any) -> str:
    return f"{array.dtype} of shape {array.shape}"
