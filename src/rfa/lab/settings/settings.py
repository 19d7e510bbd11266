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
    from rfa.secagg.security.terms import Terms

AGGREGATORS = {
    "fedavg": "the weighted mean (FedAvg)",
    "rfa": "the geometric median by smoothed Weiszfeld steps (Algorithms 1 and 2)",
    "rfa-one-step": "one Weiszfeld step from the current model (Algorithm 3)",
    "sgd": "minibatch SGD: one local step on a share of the data, then the mean",
    "centered-clipping": "steps by the mean of what updates lie off the last one, cut to nu",
    "adaptive-clipping": "the mean of the updates, cut to a length that is learned from sums",
    "bucketing": "the geometric median of the means of random groups",
    "coordinate-median": "the median of each coordinate; sees single updates",
    "trimmed-mean": "the mean of each coordinate without its extremes; sees single updates",
    "norm-clipping": "the mean of updates cut to a length; sees single updates",
    "krum": "the update with the nearest neighbors; sees single updates",
    "multi-krum": "the mean of the updates with the nearest neighbors; sees single updates",
    "meamed": "the mean of each coordinate's values near its median; sees single updates",
    "bulyan": "the same of updates that Krum chose one by one; sees single updates",
    "nnm": "nearest-neighbor mixing, then the trimmed mean; sees single updates",
}
STARTS = ("mean", "zero")
WEISZFELD = ("plain", "accelerated", "sub-cohorts")
ATTACKERS = ("fixed", "random")
SERVERS = ("sgd", "adam")
COMPUTE = ("cpu", "cuda")
SECURE = ("off", "ring", "on")
TRUST = ("curious", "lying")
SECURE_ONLY = ("trust", "colluders", "max_dropouts", "dropouts", "radius", "weight_limit")
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
    rho: float = _field(0.0, "The share of the training data on corrupted devices.")
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
    batch_share: float = _field(0.0, "Instead, the share of a device's examples in a batch.")
    rate: float = _field(0.1, "The learning rate gamma_0 of the devices.")
    decay: float = _field(1.0, "The factor C of gamma_t = gamma_0 C^floor(t / t_0).")
    decay_every: int = _field(100, "The rounds t_0 between two decays.")
    tail_average: bool = _field(False, "Send the average of the later half of the iterates.")
    personalize: bool = _field(False, "Keep parameters u_i on each device (Algorithm 4).")
    budget: int = _field(3, "Calls of the oracle that rfa may make in a round, R.")
    nu: float = _field(
        0.0,
        "The smoothing radius of Weiszfeld's algorithm, to which clipping cuts, too; 0: half the "
        "median distance of the updates, learned from sums. The paper has 1e-6.",
    )
    start: str = _field(
        "zero",
        "Where Weiszfeld's algorithm starts: zero (the current model) or mean (itself one call, "
        "as in the paper's runs; weak against huge updates).",
    )
    weiszfeld: str = _field(
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
    trim: float = _field(0.0, "What trimmed-mean cuts on each side; 0: rho.")
    clip: float = _field(0.5, "The quantile of the norms to which norm-clipping cuts.")
    krum_share: float = _field(0.0, "The corrupted share that Krum and its kin expect; 0: rho.")
    server: str = _field("sgd", "The server's optimizer on the aggregate: sgd or adam.")
    server_rate: float = _field(0.0, "The server's learning rate; 0: 1 for sgd, 0.01 for adam.")
    server_momentum: float = _field(0.0, "The server's momentum (adam: its beta_1).")
    secure: str = _field(
        "off",
        "Sums over devices: off (plain floats), ring (the whole numbers of the secure sum, without "
        "masks), or on (the real protocol; the same numbers as ring).",
    )
    trust: str = _field("curious", "The server of the secure sum: curious, or lying (signed keys).")
    colluders: float = _field(0.1, "The share of a cohort that may collude with the server.")
    max_dropouts: float = _field(0.2, "The share of a cohort that may drop out of a round.")
    dropouts: float = _field(0.0, "The share of devices that do, each at a random moment.")
    radius: float = _field(100.0, "Where secure means (and the start at the mean) cut updates.")
    weight_limit: float = _field(0.0, "The most that a device may weigh in a step; 0: anything.")
    max_norm: float = _field(1000.0, "Reject an aggregate of this norm or more; 0: never.")
    max_rejected: int = _field(20, "End the run as diverged after so many rejected rounds.")
    max_loss: float = _field(3.0, "Diverged when the loss is so many times the first; 0: never.")
    eval_every: int = _field(10, "Rounds between two evaluations.")
    eval_examples: int = _field(0, "Evaluate on at most so many examples a device; 0: all.")
    holdout: float = _field(0.0, "Test on this share of the training data instead (to tune).")
    compute: str = _field("cpu", "Where devices train: cpu or cuda.")

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
            msg = "budget=1 leaves no Weiszfeld step after the mean: give 2 or more, or start=zero"
            raise InvalidValueError(msg)
        if self.uses_nu and self.nu and not RADII[0] <= self.nu <= RADII[1]:
            msg = f"nu must be 0, or from {RADII[0]:g} to {RADII[1]:g}, not {self.nu}"
            raise InvalidValueError(msg)
        for reason in self._parts_reasons():
            raise InvalidValueError(reason)
        if self.aggregator == "sgd" and self.local_steps != 1:
            msg = f"sgd takes one local step a round: give local_steps=1, not {self.local_steps}"
            raise InvalidValueError(msg)
        if self.aggregator == "trimmed-mean" and self.trim_share >= 1 / 2:
            msg = f"trimmed-mean cannot cut {self.trim_share} on each side: give trim below 0.5"
            raise InvalidValueError(msg)

    def _check_names(self) -> None:
        choices = {
            "aggregator": tuple(AGGREGATORS),
            "attackers": ATTACKERS,
            "start": STARTS,
            "weiszfeld": WEISZFELD,
            "server": SERVERS,
            "compute": COMPUTE,
            "secure": SECURE,
            "trust": TRUST,
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
        sizes = ("rounds", "devices_per_round", "batch_size", "decay_every", "eval_every")
        for name in (*sizes, "budget", "max_rejected", "local_epochs"):
            check_count(name, getattr(self, name))
        for name in ("seed", "devices", "local_steps", "eval_examples", "groups"):
            check_count(name, getattr(self, name), least=0)
        for name in ("rate", "decay", "radius"):
            check_number(name, getattr(self, name), positive=True)
        for name in ("nu", "early_stop", "max_norm", "max_loss", "server_rate"):
            check_number(name, getattr(self, name))
        shares = ("colluders", "max_dropouts", "dropouts", "weight_limit")
        for name in ("rho", "server_momentum", "holdout", "batch_share", *shares):
            self._check_share(name, below=1)
        for name in ("trim", "krum_share"):
            self._check_share(name, below=1 / 2)
        check_number("clip", self.clip, positive=True)
        if self.clip > 1:
            msg = f"clip is a quantile, from above 0 to 1, not {self.clip}"
            raise InvalidValueError(msg)

    def _check_secure(self) -> None:
        if self.secure == "off":
            for name in SECURE_ONLY:
                if getattr(self, name) != FIELDS[name].default:
                    msg = f"{name}={getattr(self, name)} needs secure=ring or secure=on"
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
        from rfa.secagg.security.parameters import MAX_MASKED_SUMS  # noqa: PLC0415

        if self.trust == "lying" and self.questions > 1:
            yield (
                f"trust=lying promises nothing for the {self.questions} questions of a round of "
                f"{self.aggregator}: choose rfa-one-step, or weiszfeld=sub-cohorts"
            )
        if self.dropouts > self.max_dropouts:
            yield f"dropouts={self.dropouts} exceeds max_dropouts={self.max_dropouts}"
        together = self.devices_per_round // self.parts
        if 0 < self.weight_limit < 1 / together:
            least = math.ceil(1000 / together) / 1000
            yield (
                f"weight_limit={self.weight_limit} cannot hold for {together} devices: "
                f"give {least} or more"
            )
        turns = self.questions * (2 if self.weight_limit else 1)
        if turns > MAX_MASKED_SUMS:
            yield f"budget={self.budget} takes {turns} secure sums, more than {MAX_MASKED_SUMS}"
        means = self.aggregator in ("fedavg", "sgd", "bucketing") or self.takes_mean
        low, high = RADII
        if means and not low <= self.radius <= high:
            yield f"radius must be from {low:g} to {high:g} for secure sums"

    def _parts_reasons(self) -> Iterator[str]:
        """Why a cohort cannot be asked in parts, or in another way, as these settings say."""
        if self.weiszfeld != "plain" and self.aggregator != "rfa":
            yield f"weiszfeld={self.weiszfeld} is for rfa, not for {self.aggregator}"
        if self.weiszfeld == "sub-cohorts" and self.start != "zero":
            yield f"sub-cohorts start at the current model: give start=zero, not {self.start}"
        if self.groups > 1 and self.aggregator not in GROUPED:
            yield f"groups={self.groups} is for {', '.join(GROUPED)}, not for {self.aggregator}"
        if self.groups > 1 and self.weiszfeld == "sub-cohorts":
            yield "a cohort is asked in groups or in sub-cohorts, not both: give groups=0"
        if self.parts > self.devices_per_round:
            yield f"{self.devices_per_round} devices a round make no {self.parts} parts: give less"

    def _check_share(self, name: str, *, below: float) -> None:
        value = getattr(self, name)
        check_number(name, value)
        if value >= below:
            msg = f"{name} must be below {below}, not {value!r}"
            raise InvalidValueError(msg)

    @property
    def terms(self) -> Terms:
        """What the secure sum offers to devices."""
        from rfa.secagg.security.parameters import ServerModel  # noqa: PLC0415
        from rfa.secagg.security.terms import Terms  # noqa: PLC0415 the command line starts fast

        return Terms(
            colluder_fraction=self.colluders,
            max_dropout_fraction=self.max_dropouts,
            min_honest_fraction=max(0.0, min(0.25, 1 - self.colluders - self.max_dropouts)),
            server_model=ServerModel.MALICIOUS
            if self.trust == "lying"
            else ServerModel.SEMI_HONEST,
        )

    @property
    def parts(self) -> int:
        """Into how many disjoint parts, each with sums of its own, a cohort is split."""
        if self.weiszfeld == "sub-cohorts":
            return self.budget
        if self.groups or self.aggregator != "bucketing":
            return self.groups or 1
        return max(1, self.devices_per_round // self._smallest_group)

    @property
    def _smallest_group(self) -> int:
        """The smallest that a secure sum takes; one that may lose a device, where any is lost."""
        count = self.terms.smallest()
        while self.max_dropouts and self.terms.parameters(count).num_dropouts < 1:
            count += 1
        return count

    @property
    def can_be_secure(self) -> bool:
        """Whether secure sums are enough for the aggregator, with parts as large as these."""
        if self.secure != "off":
            return True
        try:
            dataclasses.replace(self, secure="ring")
        except ValueError:
            return False
        return True

    @property
    def questions(self) -> int:
        """How many sums a device takes part in, in a round."""
        stepped = self.aggregator in STEPPED and self.weiszfeld != "sub-cohorts"
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
    def trim_share(self) -> float:
        """What trimmed-mean cuts on each side: the corruption level, unless told."""
        return self.trim or self.rho

    @property
    def expected_share(self) -> float:
        """The corrupted share that Krum and its kin expect: the corruption level, unless told."""
        return self.krum_share or self.rho

    @property
    def server_step(self) -> float:
        """The server's learning rate."""
        return self.server_rate or {"sgd": 1.0, "adam": 0.01}[self.server]

    def rate_in(self, t: int) -> float:
        """The learning rate gamma_t in round t."""
        return self.rate * self.decay ** (t // self.decay_every)


FIELDS = {field.name: field for field in dataclasses.fields(Settings)}
