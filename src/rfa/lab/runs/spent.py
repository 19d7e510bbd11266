"""The privacy that a run has spent, as numbers for the store and as words for people.

Against the server, which knows who takes part in which round, it is what the device was charged
that was charged most. Readers of the models do not know it, and learn less. A cohort whose noise
was simulated is named wherever these numbers are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.rounds import State, spent
from rfa.lab.tasks.registry import find_task
from rfa.lab.training.devices import Devices
from rfa.privacy.zcdp import large_delta

if TYPE_CHECKING:
    from rfa.lab.simulation.noise import RunNoise

ACCOUNTANT = ("dp_accounting.pld.privacy_loss_distribution", "scipy.special")
"""What the accountant for readers imports, which takes a second."""
MISSING = "not known: pip install 'rfa[dp]'"
"""What there is to say where the accountant for readers is not installed."""


def plan_of(devices: Devices) -> RunNoise | None:
    """Return the noise of a run; None without noise.

    Raises:
        InvalidValueError: if no noise is enough for the budget; the message says what would help.
    """
    if not devices.settings.privacy.is_on:
        return None
    from rfa.lab.simulation.noise import noise_of  # noqa: PLC0415 it loads ciphers

    return noise_of(devices)


def libraries_of(settings: Settings) -> tuple[str, ...]:
    """Return the libraries besides numpy that a process for a run imports."""
    accountant = ACCOUNTANT if settings.privacy.is_on else ()
    return (*find_task(settings.task).libraries, *accountant)


def epsilons(noise: RunNoise | None, state: State) -> dict[str, float | None]:
    """Both epsilons of a run so far, by the names of their columns; nothing without noise."""
    if noise is None:
        return {}
    server = spent(state.charges, noise.settings)
    return {"epsilon_server": server, "epsilon_readers": noise.readers_epsilon(state.round)}


def brief(server: float | None, readers: float | None, settings: Settings) -> str:
    """Both epsilons in few words; nothing without noise."""
    privacy = settings.privacy
    if not privacy.is_on:
        return ""
    against = "trusted server" if privacy.is_central else f"{server or 0:.3g}"
    known = "" if readers is None else f", readers {readers:.3g}"
    return f"{against}{known}{_aside(simulated([privacy.noise_cohort]))}"


def simulated(cohorts: Iterable[int]) -> str:
    """That noise is of cohorts that were not there, in words; nothing where all are 0."""
    sizes = ", ".join(map(str, sorted(set(cohorts) - {0})))
    return f"noise of {sizes} devices per round, simulated" if sizes else ""


def _aside(words: str) -> str:
    return f" ({words})" if words else ""


def privacy_lines(row: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the lines of a summary about privacy, from the row and the settings of a run."""
    if not row["privacy"]:
        return {}
    privacy, drawn = settings["privacy"], settings["training"]["devices_per_round"]
    delta, readers = privacy["delta"], row["epsilon_readers"]
    cohort = simulated([privacy["noise_cohort"]])
    lines = {
        "noise": f"multiplier {row['noise_multiplier']:.4g}{_aside(cohort)}",
        "epsilon": f"{row['epsilon_server'] or 0:.3g} against the server, at delta {delta:g}",
        "  readers": f"{readers:.3g} against readers of the models" if readers is not None else "",
    }
    if privacy["noise_model"] == "central":
        lines["epsilon"] = "none against the server, which sees every update and must be trusted"
    lines["  readers"] = lines["  readers"] or MISSING
    population = row["devices"] * max(1.0, privacy["noise_cohort"] / drawn)
    if fault := large_delta(delta, population):
        lines["  delta"] = fault
    return lines
