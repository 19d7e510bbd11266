"""What corrupted devices do: functions of the data or of the updates, the paper's and yours.

A corruption of data changes the examples that a device trains on (static and adaptive data
poisoning); a corruption of updates decides what corrupted devices send (update poisoning). Each is
one function, which a decorator marks as what it is:

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
    """What a device that poisons its data knows.

    Attributes:
        round: the round t; 0 unless the corruption is adaptive.
        device: the device.
        classes: the number of classes.
        model: the current model w^(t), flat; the first one unless the corruption is adaptive.
        scores: the scores that this model gives to examples.
        rng: for random choices: the same in each round unless the corruption is adaptive.
    """

    round: int
    device: int
    classes: int
    model: Floats32
    scores: Callable[[Any], Floats32]
    rng: np.random.Generator


def _no_defense(_: Any) -> Floats:
    msg = "this attack was not told what the server does: give UpdateAttack its aggregate"
    raise AttackError(msg)


@dataclass(frozen=True)
class UpdateAttack:
    """What devices that poison their updates together know: everything.

    Attributes:
        round: the round t.
        model: the current model w^(t), flat.
        updates: what all devices of the round would send, one row each; not to be changed.
        weights: the weights alpha_i of the devices of the round.
        corrupted: the rows of the corrupted devices.
        rng: for random choices.
        aggregate: what the server would add to the model if the corrupted devices sent these rows:
            nothing, if it would reject what comes of them. Asking changes nothing.
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
    """What opens a backdoor."""

    stamp: Callable[[Any], Any]  # puts the trigger on examples, which it may change
    target: int  # the class that the model shall put them into


@dataclass(frozen=True)
class DataCorruption:
    """A corruption of data."""

    poison: Poison  # makes examples and labels into those that the device trains on
    adaptive: bool = False  # whether it is asked anew in each round
    trigger: Trigger | None = None  # of a backdoor, which every evaluation then tries
    forge: Forge | None = None  # what becomes of the updates that were trained on such data


@dataclass(frozen=True)
class UpdateCorruption:
    """A corruption of updates."""

    forge: Forge


@dataclass(frozen=True)
class SumCorruption:
    """A corruption of secure sums: what liars in a sum make of its total."""

    lie: Callable[..., tuple[Floats, Totals]]  # (honest sum, honest mean) -> push, other totals
    forge: Forge | None = None  # what they train, they would have sent


Corruption: TypeAlias = DataCorruption | UpdateCorruption | SumCorruption


@overload
def corrupts_data(poison: Poison) -> DataCorruption: ...
@overload
def corrupts_data(*, adaptive: bool) -> Callable[[Poison], DataCorruption]: ...
def corrupts_data(poison: Poison | None = None, *, adaptive: bool = False) -> Any:
    """Mark a function (x, y, attack) -> (x, y) as a corruption of data.

    Its keyword-only parameters can be given by name: `module:function:scale=2`.
    """

    def mark(function: Poison) -> DataCorruption:
        return DataCorruption(function, adaptive)

    return mark if poison is None else mark(poison)


def corrupts_updates(forge: Forge) -> UpdateCorruption:
    """Mark a function (attack) -> rows as a corruption of updates.

    Its keyword-only parameters can be given by name: `module:function:scale=2`.
    """
    return UpdateCorruption(forge)


def corrupts_sums(lie: Callable[..., tuple[Floats, Totals]]) -> SumCorruption:
    """Mark a function (honest sum, honest mean) -> push, totals as a corruption of secure sums."""
    return SumCorruption(lie)


class AttackError(LabError):
    """A corruption fails, or does not return what it should."""


class NoSuchAttackError(AttackError, InvalidValueError):
    """No corruption has that name."""


@corrupts_updates
def gaussian(attack: UpdateAttack, *, scale: Annotated[float, limits.finite] = 1.0) -> Floats32:
    """The device's own update plus noise of `scale` times the deviation of its components."""
    return attack.updates[attack.corrupted] + _noise(attack, scale)


@corrupts_updates
def gaussian_replace(
    attack: UpdateAttack, *, scale: Annotated[float, limits.finite] = 1.0
) -> Floats32:
    """Noise alone, of `scale` times the deviation of the components of the update."""
    return _noise(attack, scale)


@corrupts_updates
def omniscient(attack: UpdateAttack) -> Floats:
    """What turns the weighted mean of the updates into its negative."""
    return _negative_mean(attack, np.float32(0))


@corrupts_updates
def omniscient_parameters(attack: UpdateAttack) -> Floats:
    """What turns the weighted mean of the models into its negative (the paper's formula)."""
    return _negative_mean(attack, attack.model)


@corrupts_updates
def nan(attack: UpdateAttack) -> Floats:
    """A broken device: nothing but NaN."""
    return np.full((len(attack.corrupted), attack.updates.shape[1]), np.nan)


@corrupts_data(adaptive=True)
def least_likely(x: Any, y: Any, attack: DataAttack) -> tuple[Any, Any]:
    """Adaptive poisoning: label every example with the class that the model holds least likely."""
    return x, attack.scores(x).argmin(axis=1).astype(np.asarray(y).dtype)


def draw_corrupted(weights: Floats, rho: float, seed: int, *when: int) -> Ints:
    """The corrupted devices: of a random order, the first whose weight together exceeds rho.

    Those of a round, where one is named, or those of the whole run.
    """
    if rho == 0:
        return np.zeros(0, np.int64)
    order = stream(seed, "corrupted", *when).permutation(len(weights))
    share = np.cumsum(weights[order]) / weights.sum()
    return np.sort(order[: int(np.argmax(share > rho)) + 1])


def forge(corruption: Corruption, attack: UpdateAttack, name: str) -> Floats32:
    """What the corrupted devices send, checked to be numbers of the right shape.

    Those that corrupt their data alone send what they trained.

    Raises:
        AttackError: naming the corruption and what was wrong.
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
    with np.errstate(over="ignore"):  # what float32 cannot hold is sent as infinite, and dropped
        return rows.astype(np.float32)


def poison(corruption: DataCorruption, x: Any, y: Any, attack: DataAttack) -> tuple[Any, Any]:
    """The poisoned examples, checked to be of the same shape and with labels that exist.

    Raises:
        AttackError: naming what was wrong.
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
    """All corrupted devices send the same: minus the whole sum and once more the honest one.

    Honest updates that are not finite will be dropped, so they count for nothing.
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
