"""Everything that decides the outcome of a run, in one frozen value.

The names of the fields are those of the command line and of TOML files; their help texts are here,
so that there is one place that explains them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rfa._checks import check_count, check_number
from rfa.errors import InvalidValueError

if TYPE_CHECKING:
    from rfa.secagg.security.parameters import Terms

AGGREGATORS = {
    "fedavg": "the weighted mean (FedAvg)",
    "rfa": "the geometric median by smoothed Weiszfeld steps (Algorithms 1 and 2)",
    "rfa-one-step": "one Weiszfeld step from the current model (Algorithm 3)",
    "sgd": "minibatch SGD: one local step on a fraction of the data, then the mean",
    "centered-clipping": "steps by the mean of what updates lie off the last one, clipped to nu",
    "adaptive-clipping": "the mean of the updates, clipped to a norm that is learned from sums",
    "bucketing": "the geometric median of the means of random groups",
    "coordinate-median": "the median of each coordinate; sees single updates",
    "trimmed-mean": "the mean of each coordinate without its extremes; sees single updates",
    "norm-clipping": "the mean of updates clipped to a norm; sees single updates",
    "krum": "the update with the nearest neighbors; sees single updates",
    "multi-krum": "the mean of the updates with the nearest neighbors; sees single updates",
    "meamed": "the mean of each coordinate's values near its median; sees single updates",
    "bulyan": "the same of updates that Krum chose one by one; sees single updates",
    "nnm": "nearest-neighbor mixing, then the trimmed mean; sees single updates",
}
STARTS = ("mean", "current")
SCHEDULES = ("plain", "accelerated", "sub-cohorts")
ATTACKERS = ("fixed", "random")
SERVER_OPTIMIZERS = ("sgd", "adam")
DEVICE_KINDS = ("cpu", "cuda")
SECURE = ("off", "unmasked", "on")
SERVER_MODELS = ("semi-honest", "malicious")
OF_COHORT = ("colluder_fraction", "max_dropout_fraction", "dropout_rate", "max_share")
SECURE_ONLY = ("server_model", *OF_COHORT, "clip_norm")
RADII = (1e-12, 1e9)
"""The radii for which sums in a ring keep their digits."""
CLIPPING = ("centered-clipping", "adaptive-clipping")
SUMMED = ("fedavg", "rfa", "rfa-one-step", "sgd", *CLIPPING, "bucketing")
"""Aggregators that need sums only; the others must see single updates."""
GROUPED = ("rfa", "rfa-one-step", "bucketing")
"""Aggregators that may be taken in groups."""
STEPPED = ("rfa", "centered-clipping")
"""Aggregators that take as many sums as the budget allows; the others take one."""
NONE, BACKDOOR = "none", "backdoor"
LARGEST = 2**62
"""The largest whole number that a setting may be."""


def _field(default: Any, text: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class Settings:
    """A run: the same settings give the same numbers."""

    task: str = dataclasses.field(metadata={"help": "What is learned; `rfa tasks` lists them."})
    aggregator: str = _field("rfa", "How the server aggregates.")
    corruption: str = _field(
        NONE,
        "What corrupted devices do: none, data, adaptive, label-flip, backdoor, gaussian, "
        "gaussian-replace, omniscient, omniscient-parameters, nan, sign-flip, zero-update, ipm, "
        "ipm-optimized, alie, alie-optimized, mimic, min-max, min-sum, anchor, anti-median, or "
        "your own module:function.",
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
        "The smoothing radius of Weiszfeld's algorithm, to which updates are clipped, too; 0: half "
        "the median distance of the updates, learned from sums. The paper has 1e-6.",
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
    clip_norm: float = _field(100.0, "Secure means (and the start at the mean) clip updates to it.")
    max_share: float = _field(0.0, "The most that a device may weigh in a step; 0: no limit.")
    max_norm: float = _field(1000.0, "Reject an aggregate of this norm or more; 0: never.")
    max_rejected: int = _field(20, "End the run as diverged after so many rejected rounds.")
    divergence_factor: float = _field(3.0, "Diverged at a loss so many times the first; 0: never.")
    eval_every: int = _field(10, "Rounds between two evaluations.")
    eval_examples: int = _field(0, "Evaluate on at most so many examples a device; 0: all.")
    holdout: float = _field(0.0, "Test on this fraction of the training data instead (to tune).")
    device: str = _field("cpu", "Where devices train: cpu or cuda.")

    def __post_init__(self) -> None:
        """Refuse values without a meaning."""
        self._check_names()
        self._check_sizes()
        self._check_numbers()
        self._check_secure()
        if self.corruption == NONE and self.rho > 0:
            msg = f"rho={self.rho} needs a corruption: give one, such as data or omniscient"
            raise InvalidValueError(msg)
        if self.takes_mean and self.budget == 1:
            msg = "budget=1 leaves no Weiszfeld step after the mean: give more, or start=current"
            raise InvalidValueError(msg)
        if self.uses_nu and self.nu and not RADII[0] <= self.nu <= RADII[1]:
            msg = f"nu must be 0, or from {RADII[0]:g} to {RADII[1]:g}, not {self.nu}"
            raise InvalidValueError(msg)
        for reason in self._parts_reasons():
            raise InvalidValueError(reason)
        if self.aggregator == "sgd" and self.local_steps != 1:
            msg = f"sgd takes one local step a round: give local_steps=1, not {self.local_steps}"
            raise InvalidValueError(msg)
        if self.aggregator == "trimmed-mean" and self.effective_trim_fraction >= 1 / 2:
            fraction = self.effective_trim_fraction
            msg = f"trimmed-mean cannot trim {fraction} on each side: give trim_fraction below 0.5"
            raise InvalidValueError(msg)

    def _check_names(self) -> None:
        choices = {
            "aggregator": tuple(AGGREGATORS),
            "attackers": ATTACKERS,
            "start": STARTS,
            "schedule": SCHEDULES,
            "server_optimizer": SERVER_OPTIMIZERS,
            "device": DEVICE_KINDS,
            "secure": SECURE,
            "server_model": SERVER_MODELS,
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                msg = f"{name} must be one of {', '.join(known)}, not {getattr(self, name)!r}"
                raise InvalidValueError(msg)

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
        for name in ("learning_rate", "lr_decay", "clip_norm"):
            check_number(name, getattr(self, name), positive=True)
        for name in ("nu", "early_stop", "max_norm", "divergence_factor", "server_learning_rate"):
            check_number(name, getattr(self, name))
        for name in ("rho", "server_momentum", "holdout", "batch_fraction", *OF_COHORT):
            self._check_fraction(name, below=1)
        for name in ("trim_fraction", "assumed_corrupted"):
            self._check_fraction(name, below=1 / 2)
        check_number("clip_quantile", self.clip_quantile, positive=True)
        if self.clip_quantile > 1:
            msg = f"clip_quantile must be from above 0 to 1, not {self.clip_quantile}"
            raise InvalidValueError(msg)

    def _check_secure(self) -> None:
        if self.secure == "off":
            for name in SECURE_ONLY:
                if getattr(self, name) != FIELDS[name].default:
                    msg = f"{name}={getattr(self, name)} needs secure=unmasked or secure=on"
                    raise InvalidValueError(msg)
            return
        if self.aggregator not in SUMMED:
            msg = (
                f"{self.aggregator} must see single updates, and the secure sum shows none to the "
                f"server: choose one of {', '.join(SUMMED)}, or secure=off"
            )
            raise InvalidValueError(msg)
        self.terms.parameters(self.devices_per_round // self.parts)
        for reason in self._reasons():
            raise InvalidValueError(reason)

    def _reasons(self) -> Iterator[str]:
        """Why secure sums under these settings would give nothing, or promise nothing."""
        from rfa.secagg.security.parameters import MOST_TURNS  # noqa: PLC0415

        if self.server_model == "malicious" and self.questions > 1:
            yield (
                f"server_model=malicious promises nothing for the {self.questions} questions of a "
                f"round of {self.aggregator}: choose rfa-one-step, or schedule=sub-cohorts"
            )
        if self.dropout_rate > self.max_dropout_fraction:
            most = self.max_dropout_fraction
            yield f"dropout_rate={self.dropout_rate} exceeds max_dropout_fraction={most}"
        together = self.devices_per_round // self.parts
        if 0 < self.max_share < 1 / together:
            least = math.ceil(1000 / together) / 1000
            yield (
                f"max_share={self.max_share} cannot hold for {together} devices: "
                f"give {least} or more"
            )
        turns = self.questions * (2 if self.max_share else 1)
        if turns > MOST_TURNS:
            yield f"budget={self.budget} takes {turns} secure sums a round, more than {MOST_TURNS}"
        means = self.aggregator in ("fedavg", "sgd", "bucketing") or self.takes_mean
        low, high = RADII
        if means and not low <= self.clip_norm <= high:
            yield f"clip_norm must be from {low:g} to {high:g} for secure sums"

    def _parts_reasons(self) -> Iterator[str]:
        """Why a cohort cannot be asked in parts, or in another way, as these settings say."""
        if self.schedule != "plain" and self.aggregator != "rfa":
            yield f"schedule={self.schedule} is for rfa, not for {self.aggregator}"
        if self.schedule == "sub-cohorts" and self.start != "current":
            yield f"sub-cohorts start at the current model: give start=current, not {self.start}"
        if self.groups > 1 and self.aggregator not in GROUPED:
            yield f"groups={self.groups} is for {', '.join(GROUPED)}, not for {self.aggregator}"
        if self.groups > 1 and self.schedule == "sub-cohorts":
            yield "a cohort is asked in groups or in sub-cohorts, not both: give groups=0"
        if self.parts > self.devices_per_round:
            yield f"{self.devices_per_round} devices a round make no {self.parts} parts: give less"

    def _check_fraction(self, name: str, *, below: float) -> None:
        value = getattr(self, name)
        check_number(name, value)
        if value >= below:
            msg = f"{name} must be below {below}, not {value!r}"
            raise InvalidValueError(msg)

    @property
    def terms(self) -> Terms:
        """What the secure sum offers to devices."""
        from rfa.secagg.security.parameters import Terms, Trust  # noqa: PLC0415 the command line starts fast

        return Terms(
            colluders=self.colluder_fraction,
            dropouts=self.max_dropout_fraction,
            honest=max(0.0, min(0.25, 1 - self.colluder_fraction - self.max_dropout_fraction)),
            trust=Trust.LYING if self.server_model == "malicious" else Trust.CURIOUS,
        )

    @property
    def parts(self) -> int:
        """Into how many disjoint parts, each with sums of its own, a cohort is split."""
        if self.schedule == "sub-cohorts":
            return self.budget
        if self.groups or self.aggregator != "bucketing":
            return self.groups or 1
        return max(1, self.devices_per_round // self._smallest_group)

    @property
    def _smallest_group(self) -> int:
        """The smallest that a secure sum takes; one that may lose a device, where any is lost."""
        count = self.terms.smallest()
        while self.max_dropout_fraction and self.terms.parameters(count).dropouts < 1:
            count += 1
        return count

    @property
    def can_be_secure(self) -> bool:
        """Whether secure sums are enough for the aggregator, with parts as large as these."""
        if self.secure != "off":
            return True
        try:
            dataclasses.replace(self, secure="unmasked")
        except ValueError:
            return False
        return True

    @property
    def questions(self) -> int:
        """How many sums a device takes part in, in a round."""
        stepped = self.aggregator in STEPPED and self.schedule != "sub-cohorts"
        return self.budget if stepped else 1

    @property
    def takes_mean(self) -> bool:
        """Whether Weiszfeld's algorithm spends a call on the mean, to start there."""
        return self.aggregator == "rfa" and self.start == "mean"

    @property
    def uses_nu(self) -> bool:
        """Whether the aggregator has a radius to learn."""
        return self.aggregator in ("rfa", "rfa-one-step", *CLIPPING)

    @property
    def effective_trim_fraction(self) -> float:
        """The fraction that trimmed-mean trims on each side: rho, unless told."""
        return self.trim_fraction or self.rho

    @property
    def effective_assumed_corrupted(self) -> float:
        """The corrupted fraction that Krum and its kin assume: rho, unless told."""
        return self.assumed_corrupted or self.rho

    @property
    def effective_server_learning_rate(self) -> float:
        """The server's learning rate: that of its optimizer, unless told."""
        return self.server_learning_rate or {"sgd": 1.0, "adam": 0.01}[self.server_optimizer]

    def learning_rate_in(self, t: int) -> float:
        """The learning rate gamma_t in round t."""
        return self.learning_rate * self.lr_decay ** (t // self.lr_decay_every)


FIELDS = {field.name: field for field in dataclasses.fields(Settings)}
