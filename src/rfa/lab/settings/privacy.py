"""The settings of noise: how private the sums of a run are, and who adds the noise.

Noise implies two settings unless they are given: secure sums, and equal weights for all devices, so
that no sum reveals how many examples a device has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rfa.errors import InvalidValueError
from rfa.lab.settings.fields import Group, setting
from rfa.privacy.zcdp import check_delta
from rfa.secagg.weights import EQUAL

OFF, UNMASKED, ON = "off", "unmasked", "on"
DISTRIBUTED, CENTRAL = "distributed", "central"


@dataclass(frozen=True)
class Privacy(Group):
    """Noise in the sums: differential privacy of devices."""

    epsilon: float = setting(
        0.0,
        "The privacy budget of a device: adds the noise with which all rounds together spend it. "
        "With --noise as well, the run stops when the budget is spent. 0: no budget.",
    )
    delta: float = setting(1e-5, "The delta of (epsilon, delta)-differential privacy.")
    noise: float = setting(
        0.0,
        "The noise multiplier z: the standard deviation of the noise in a sum, divided by what one "
        "device can add to it. 0: as much as epsilon needs, or none.",
    )
    noise_cohort: int = setting(
        0,
        "Simulate larger rounds: scale the noise as if this number of devices took part in a "
        "round, and compute epsilon for them. 0: the devices that do take part.",
    )
    noise_model: str = setting(
        DISTRIBUTED,
        "Who adds the noise: distributed (each device, before the secure sum) or central (once, by "
        "a server that sees every update and must be trusted). With central noise, epsilon holds "
        "against readers of the models only.",
        choices=(DISTRIBUTED, CENTRAL),
    )

    def __post_init__(self) -> None:
        """Check each value, and that there is noise that they apply to."""
        self._check_types()
        self._check_numbers("epsilon", "noise")
        self._check_counts("noise_cohort", least=0)
        check_delta(self.delta)
        if not self.is_on:
            usual = Privacy.__dataclass_fields__
            for name in ("delta", "noise_cohort", "noise_model"):
                if getattr(self, name) != usual[name].default:
                    msg = f"{name}={getattr(self, name)} needs noise: give epsilon or noise"
                    raise InvalidValueError(msg)
        if self.is_central and self.epsilon and self.noise:
            msg = f"noise_model=central takes one of epsilon={self.epsilon:g} and noise="
            raise InvalidValueError(msg + f"{self.noise:g}: a trusted server charges no devices")

    @property
    def is_on(self) -> bool:
        """Whether sums hold noise."""
        return bool(self.epsilon or self.noise)

    @property
    def is_central(self) -> bool:
        """Whether a trusted server adds the noise."""
        return self.noise_model == CENTRAL

    def applied(self) -> dict[str, Any]:
        """The values that make a difference: none without noise."""
        if not self.is_on:
            return {}
        values = super().applied()
        usual = Privacy.__dataclass_fields__
        return {
            name: value
            for name, value in values.items()
            if name == "delta" or value != usual[name].default
        }

    def check_fits(self, values: Mapping[str, Any]) -> None:
        """Check that noise goes with the other settings, which are given by name.

        Raises:
            InvalidValueError: naming the one that it does not go with, and what to give instead.
        """
        if not self.is_on:
            return
        secure, weights = values["secure"], values["weights"]
        max_share, cohort = values["max_share"], values["devices_per_round"]
        what = f"epsilon={self.epsilon:g}" if self.epsilon else f"noise={self.noise:g}"
        if self.is_central and secure != OFF:
            msg = f"noise_model=central is of a server that sees every update, and secure={secure} "
            raise InvalidValueError(msg + "hides them: give secure=off, or remove it")
        if not self.is_central and secure == OFF:
            msg = f"{what} needs sums to which devices add noise: give secure=unmasked or "
            raise InvalidValueError(msg + "secure=on, or remove secure")
        if weights != EQUAL:
            msg = f"{what} needs weights=equal, not {weights}: what a device can add to a sum must "
            raise InvalidValueError(msg + "not depend on its data; or remove weights")
        if max_share:
            msg = f"{what} goes without max_share={max_share:g}: devices check shares in exact sums"
            raise InvalidValueError(msg + ", and noise leaves none: remove max_share")
        if 0 < self.noise_cohort < cohort:
            msg = f"noise_cohort={self.noise_cohort} is fewer than the {cohort} devices of a round"
            msg += f": give at least {cohort}, or 0"
            raise InvalidValueError(msg)


def implied(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that noise brings with it, by name, unless others are given."""
    if not (values.get("epsilon") or values.get("noise")):
        return {}
    sums = {} if values.get("noise_model") == CENTRAL else {"secure": UNMASKED}
    return {"weights": EQUAL, **sums}


def implied_on_flower(values: Mapping[str, Any]) -> dict[str, Any]:
    """What else noise brings with it on Flower: sums by the real protocol, unless others are given.

    Args:
        values: the settings that are given, by name.
    """
    brought = {} if "secure" in values else implied(values)
    return {"secure": ON} if brought.get("secure") == UNMASKED else {}
