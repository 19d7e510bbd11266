"""Everything that decides the outcome of a run, in one frozen value.

The names of the fields are those of the command line and of TOML files; their help texts are here,
so that there is one place that explains them.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from rfa._checks import check_choice, check_count, check_number
from rfa.aggregators import ClearAggregator, Layout, SumAggregator
from rfa.aggregators.partition import ALL_SCHEDULES
from rfa.aggregators.registry import (
    ENTRIES,
    Aggregator,
    Context,
    build,
    build_private,
    find,
    spec_of,
)
from rfa.aggregators.rfa import STARTS
from rfa.errors import InvalidValueError, PluginError
from rfa.planning import check_fit, make_terms
from rfa.secagg.security.terms import Terms

CHOICES = {
    "attackers": ("fixed", "random"),
    "start": STARTS,
    "schedule": ALL_SCHEDULES,
    "server_optimizer": ("sgd", "adam"),
    "device": ("cpu", "cuda"),
    "secure": ("off", "unmasked", "on"),
    "server_model": ("semi-honest", "malicious"),
}
"""Settings with a few values, and these."""
OF_COHORT = ("colluder_fraction", "max_dropout_fraction", "dropout_rate", "max_share")
SECURE_ONLY = ("server_model", *OF_COHORT)
AGGREGATOR_SETTINGS = {
    "budget": "budget",
    "nu": "nu",
    "start": "start",
    "schedule": "schedule",
    "groups": "groups",
    "clip_norm": "clip_norm",
    "trim_fraction": "fraction",
    "clip_quantile": "quantile",
    "assumed_corrupted": "corrupted_fraction",
}
"""Settings that are parameters of aggregators, with the names of these."""
SECURE_CLIP_NORM = 100.0
"""Where secure means clip updates, unless told."""
NONE, BACKDOOR = "none", "backdoor"
LARGEST = 2**62
"""The largest whole number that a setting may be."""


def _field(default: Any, text: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": text})


def text_of(aggregator: Any) -> Any:
    """The text that makes an aggregator that is given as a value; anything else as it is.

    Raises:
        PluginError: if no text makes it.
    """
    if isinstance(aggregator, SumAggregator | ClearAggregator):
        return str(spec_of(cast("Aggregator", aggregator)))
    return aggregator


@dataclass(frozen=True)
class Settings:
    """A run: the same settings give the same numbers."""

    task: str = dataclasses.field(metadata={"help": "What is learned; `rfa tasks` lists them."})
    aggregator: str = _field(
        "rfa",
        f"How the server aggregates: {', '.join(ENTRIES)}, or your own module:NAME. Parameters may "
        "follow, as in rfa:budget=4,nu=0.5.",
    )
    corruption: str = _field(
        NONE,
        "What corrupted devices do: none, data, adaptive, label-flip, backdoor, gaussian, "
        "gaussian-replace, omniscient, omniscient-parameters, nan, sign-flip, zero-update, ipm, "
        "ipm-optimized, alie, alie-optimized, mimic, min-max, min-sum, anchor, anti-median, or "
        "your own module:function. Parameters may follow, as in alie:z=1.5.",
    )
    rho: float = _field(0.0, "The fraction of the training data on corrupted devices.")
    attackers: str = _field(
        "fixed", "Which devices are corrupted: fixed (the same always) or random (anew each round)."
    )
    seed: int = _field(1, "Decides every random choice.")
    rounds: int = _field(100, "Rounds of communication T.")
    devices_per_round: int = _field(100, "Devices m that take part in a round.")
    devices: int = _field(0, "Devices n in the population; 0 for as many as the paper has.")
    iid: bool = _field(False, "Deal the examples out at random instead of by device.")
    local_epochs: int = _field(1, "Passes over a device's data in a round.")
    local_steps: int = _field(0, "Local steps tau; 0 for what the epochs make.")
    batch_size: int = _field(50, "Examples in a batch.")
    batch_fraction: float = _field(0.0, "Instead, the fraction of a device's examples in a batch.")
    learning_rate: float = _field(0.1, "The learning rate gamma_0 of the devices.")
    lr_decay: float = _field(1.0, "The factor C of gamma_t = gamma_0 C^floor(t / t_0).")
    lr_decay_every: int = _field(100, "The rounds t_0 between two decays.")
    tail_average: bool = _field(False, "Send the average of the later half of the iterates.")
    personalize: bool = _field(False, "Keep parameters u_i on each device (Algorithm 4).")
    budget: int = _field(3, "Calls of the oracle that rfa may make in a round, R.")
    nu: float = _field(
        0.0,
        "The smoothing radius of Weiszfeld's algorithm; 0: half the median distance of the "
        "updates, learned from sums. The paper has 1e-6.",
    )
    start: str = _field(
        "current",
        "Where Weiszfeld's algorithm starts: current (the current model) or mean (itself one call, "
        "as in the paper's runs; weak against huge updates).",
    )
    schedule: str = _field(
        "plain",
        "How rfa spends its budget: plain steps, accelerated (the last sum at an extrapolation), "
        "or sub-cohorts (each step asks another part of the cohort, so that devices answer once).",
    )
    groups: int = _field(
        0,
        "Random groups of a cohort, each with sums of its own: the aggregate is the geometric "
        "median of theirs; 0: one group (bucketing: as many as can be).",
    )
    early_stop: float = _field(1e-6, "Stop when a step improves the objective by less; 0: never.")
    trim_fraction: float = _field(0.0, "The fraction trimmed-mean trims on each side; 0: rho.")
    clip_quantile: float = _field(0.5, "The quantile of the norms to which norm-clipping clips.")
    assumed_corrupted: float = _field(0.0, "The corrupted fraction that Krum assumes; 0: rho.")
    server_optimizer: str = _field("sgd", "The server's optimizer on the aggregate: sgd or adam.")
    server_learning_rate: float = _field(0.0, "The server's; 0: 1 for sgd, 0.01 for adam.")
    server_momentum: float = _field(0.0, "The server's momentum (adam: its beta_1).")
    secure: str = _field(
        "off",
        "Sums over devices: off (plain floats), unmasked (the integers of the secure sum, without "
        "masks), or on (the real protocol; the same numbers as unmasked).",
    )
    server_model: str = _field("semi-honest", "A semi-honest or a malicious server (signed keys).")
    colluder_fraction: float = _field(0.1, "The fraction that may collude with the server.")
    max_dropout_fraction: float = _field(0.2, "The fraction that may drop out of a round.")
    dropout_rate: float = _field(0.0, "How likely a device drops out, at a random moment.")
    clip_norm: float = _field(
        0.0,
        "The length to which means (and the start at the mean) clip updates; 0: 100 for secure "
        "sums, learned for centered-clipping, and no clipping elsewhere.",
    )
    max_share: float = _field(0.0, "The most that a device may weigh in a step; 0: no limit.")
    max_norm: float = _field(1000.0, "Reject an aggregate of this norm or more; 0: never.")
    max_rejected: int = _field(20, "End the run as diverged after so many rejected rounds.")
    divergence_factor: float = _field(3.0, "Diverged at a loss so many times the first; 0: never.")
    eval_every: int = _field(10, "Rounds between two evaluations.")
    eval_examples: int = _field(0, "Evaluate on at most so many examples a device; 0: all.")
    holdout: float = _field(0.0, "Test on this fraction of the training data instead (to tune).")
    device: str = _field("cpu", "Where devices train: cpu or cuda.")

    def __post_init__(self) -> None:
        """Check each value, and that they go together."""
        object.__setattr__(self, "aggregator", text_of(self.aggregator))
        self._check_names()
        self._check_sizes()
        self._check_numbers()
        if self.corruption == NONE and self.rho > 0:
            msg = f"rho={self.rho} needs a corruption: give one, such as data or omniscient"
            raise InvalidValueError(msg)
        self._check_aggregator()
        self._check_secure()

    def _check_names(self) -> None:
        for name, known in CHOICES.items():
            check_choice(name, getattr(self, name), known)

    def _check_sizes(self) -> None:
        for name, field in FIELDS.items():
            if field.type == "int" and getattr(self, name) > LARGEST:
                msg = f"{name} must be at most {LARGEST}, not {getattr(self, name)}"
                raise InvalidValueError(msg)

    def _check_numbers(self) -> None:
        sizes = ("rounds", "devices_per_round", "batch_size", "lr_decay_every", "eval_every")
        for name in (*sizes, "budget", "max_rejected", "local_epochs"):
            check_count(name, getattr(self, name))
        for name in ("seed", "devices", "local_steps", "eval_examples", "groups"):
            check_count(name, getattr(self, name), least=0)
        for name in ("learning_rate", "lr_decay"):
            check_number(name, getattr(self, name), positive=True)
        limits = ("clip_norm", "max_norm", "divergence_factor")
        for name in ("nu", "early_stop", "server_learning_rate", *limits):
            check_number(name, getattr(self, name))
        for name in ("rho", "server_momentum", "holdout", "batch_fraction", *OF_COHORT):
            self._check_fraction(name, below=1)
        for name in ("trim_fraction", "assumed_corrupted"):
            self._check_fraction(name, below=1 / 2)
        check_number("clip_quantile", self.clip_quantile, positive=True)
        if self.clip_quantile > 1:
            msg = f"clip_quantile must be from above 0 to 1, not {self.clip_quantile}"
            raise InvalidValueError(msg)

    def _check_aggregator(self) -> None:
        """Check that the aggregator can be made, and what it asks of the other settings."""
        entry = find(self.aggregator)
        for name in ("schedule", "groups"):
            value = getattr(self, name)
            if value != FIELDS[name].default and name not in entry.parameters:
                msg = f"{name}={value} is not for {entry.name}, which has "
                raise InvalidValueError(msg + (", ".join(entry.parameters) or "no parameters"))
        if entry.local_steps not in {None, self.local_steps}:
            msg = f"{entry.name} takes {entry.local_steps} local step a round: "
            msg += f"give local_steps={entry.local_steps}, not {self.local_steps}"
            raise InvalidValueError(msg)
        if self.layout.parts > self.devices_per_round:
            msg = f"{self.devices_per_round} devices a round make no {self.layout.parts} parts: "
            raise InvalidValueError(msg + "give fewer parts")

    def _check_secure(self) -> None:
        if self.secure == "off":
            for name in SECURE_ONLY:
                if getattr(self, name) != FIELDS[name].default:
                    msg = f"{name}={getattr(self, name)} needs secure=unmasked or secure=on"
                    raise InvalidValueError(msg)
            return
        check_fit(
            build_private(self.aggregation),
            self.terms,
            devices=self.devices_per_round,
            max_share=self.max_share,
        )
        if self.dropout_rate > self.max_dropout_fraction:
            most = self.max_dropout_fraction
            msg = f"dropout_rate={self.dropout_rate} exceeds max_dropout_fraction={most}"
            raise InvalidValueError(msg)

    def _check_fraction(self, name: str, *, below: float) -> None:
        value = getattr(self, name)
        check_number(name, value)
        if value >= below:
            msg = f"{name} must be below {below}, not {value!r}"
            raise InvalidValueError(msg)

    @cached_property
    def terms(self) -> Terms:
        """What the secure sum offers to devices."""
        fractions = self.colluder_fraction, self.max_dropout_fraction
        return make_terms(*fractions, self.server_model)

    @cached_property
    def aggregation(self) -> Aggregator:
        """The aggregator, with its parameters."""
        given = {
            parameter: getattr(self, name)
            for name, parameter in AGGREGATOR_SETTINGS.items()
            if getattr(self, name) != FIELDS[name].default
        }
        in_clear = self.secure == "off"
        context = Context(
            corrupted=self.rho,
            clip_norm=math.inf if in_clear else SECURE_CLIP_NORM,
            early_stop=self.early_stop or None if in_clear else None,
            max_groups=self._max_groups,
        )
        make = build if in_clear else build_private
        return make(self.aggregator, defaults=given, context=context)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """The settings that tell a run from others, with all that makes the aggregator in its text.

        So `rfa:budget=4` and `rfa` with budget=4 are the same run, and so is krum whatever the
        budget.
        """
        values = dataclasses.asdict(self)
        try:
            text = str(spec_of(self.aggregation, define=False))
        except PluginError:  # the user's own, of parameters that no text tells
            return values
        taken = {*AGGREGATOR_SETTINGS, "early_stop"}
        kept = {name: value for name, value in values.items() if name not in taken}
        return kept | {"aggregator": text}

    @cached_property
    def layout(self) -> Layout:
        """How the aggregator asks a cohort."""
        if isinstance(self.aggregation, SumAggregator):
            return self.aggregation.layout(self.devices_per_round)
        return Layout()

    def _max_groups(self) -> int:
        """As many groups as have a secure sum each, which may lose a device, where any is lost."""
        count = self.terms.smallest()
        while self.max_dropout_fraction and self.terms.parameters(count).num_dropouts < 1:
            count += 1
        return max(1, self.devices_per_round // count)

    @property
    def can_be_secure(self) -> bool:
        """Whether secure sums are enough for the aggregator, with parts as large as these."""
        if self.secure != "off":
            return True
        try:
            dataclasses.replace(self, secure="unmasked")
        except InvalidValueError:
            return False
        return True

    @property
    def effective_server_learning_rate(self) -> float:
        """The server's learning rate: that of its optimizer, unless told."""
        return self.server_learning_rate or {"sgd": 1.0, "adam": 0.01}[self.server_optimizer]

    def learning_rate_in(self, t: int) -> float:
        """The learning rate gamma_t in round t."""
        return self.learning_rate * self.lr_decay ** (t // self.lr_decay_every)


FIELDS = {field.name: field for field in dataclasses.fields(Settings)}
