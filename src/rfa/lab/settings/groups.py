"""The groups of settings: training, attack, server, secure sums, privacy and evaluation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rfa.aggregators.partition import Groups
from rfa.aggregators.server_optimizer import LEARNING_RATES, OPTIMIZERS
from rfa.errors import InvalidValueError
from rfa.lab.datasets.partition_registry import canonical_text, find_partition
from rfa.lab.settings.attack import Attack
from rfa.lab.settings.fields import Group, setting
from rfa.lab.settings.privacy import OFF, UNMASKED, Privacy
from rfa.planning import make_terms
from rfa.secagg.security.parameters import HONEST_PER_QUERY
from rfa.secagg.security.terms import Terms
from rfa.secagg.weights import EXAMPLES, MODES

PERSONAL, MOMENTUM = "personal", "momentum"


@dataclass(frozen=True)
class Training(Group):
    """How devices train, and which there are."""

    devices_per_round: int = setting(100, "Devices m that take part in a round.")
    devices: int = setting(0, "Devices n in the population; 0: as in the paper.")
    partition: str = setting(
        "device",
        "How devices get their examples: device (as in the data set), iid (at random), "
        "dirichlet:alpha=0.3, pathological:classes=2, similarity:gamma=0.5, size:law=linear, "
        "or your own module:NAME.",
    )
    weights: str = setting(
        EXAMPLES,
        "The weight of a device: examples (their number), buckets (a power of 1/2 near that, drawn "
        "once) or equal.",
        choices=MODES,
    )
    learning_rate: float = setting(0.1, "The local learning rate gamma_0.")
    lr_decay: float = setting(
        1.0, "Learning rate decay, the C in gamma_t = gamma_0 C^floor(t / t_0)."
    )
    lr_decay_every: int = setting(100, "Rounds t_0 between two decays of the learning rate.")
    local_epochs: int = setting(1, "Local epochs in a round.")
    local_steps: int = setting(0, "Local steps tau in a round; 0: as many as the epochs need.")
    batch_size: int = setting(50, "Examples in a batch.")
    batch_fraction: float = setting(
        0.0, "Fraction of a device's examples in a batch, instead of --batch-size; 0: off."
    )
    tail_average: bool = setting(
        False, "Send the average of the second half of the local iterates."
    )
    proximal_mu: float = setting(
        0.0, "The mu of FedProx's proximal term mu/2 |w - w_t|^2; 0: no such term."
    )
    worker_momentum: float = setting(
        0.0,
        "Momentum beta on each device, which sends m_i = beta m_i + (1 - beta) Delta_i; 0: none.",
    )
    personalize: bool = setting(False, "Keep personal parameters u_i on each device (Algorithm 4).")
    device: str = setting("cpu", "The hardware that trains: cpu or cuda.", choices=("cpu", "cuda"))

    def __post_init__(self) -> None:
        """Check each value."""
        self._check_types()
        self._check_counts("devices_per_round", "batch_size", "lr_decay_every", "local_epochs")
        self._check_counts("devices", "local_steps", least=0)
        self._check_numbers("learning_rate", "lr_decay", positive=True)
        self._check_numbers("proximal_mu")
        self._check_fractions("batch_fraction", "worker_momentum")
        if self.personalize and self.worker_momentum:
            msg = f"worker_momentum={self.worker_momentum} is not for personalize=true: a device "
            msg += "keeps either u_i or momentum, so remove one of the two"
            raise InvalidValueError(msg)
        find_partition(self.partition)

    def learning_rate_in(self, t: int) -> float:
        """The learning rate gamma_t in round t; infinite beyond the largest float."""
        try:
            return self.learning_rate * self.lr_decay ** (t // self.lr_decay_every)
        except OverflowError:
            return math.inf

    def check_rates(self, rounds: int) -> None:
        """Check that the learning rates of these rounds are finite, and fit the proximal term.

        Raises:
            InvalidValueError: naming what makes a rate infinite, or the largest mu that pulls no
                step back beyond its start.
        """
        rate = max(self.learning_rate_in(0), self.learning_rate_in(rounds - 1))
        if rate == math.inf:
            msg = f"lr_decay={self.lr_decay:g} makes the learning rate of the last of {rounds} "
            msg += "rounds infinite: give an lr_decay of 1 or less, or a larger lr_decay_every"
            raise InvalidValueError(msg)
        if self.proximal_mu * rate >= 1:
            msg = f"proximal_mu={self.proximal_mu} is too large for a learning rate of {rate:g}: a "
            msg += "step multiplies what was learned by 1 - rate mu, which must be positive (below "
            msg += f"-1 it diverges): give proximal_mu below {1 / rate:g}, or a lower learning_rate"
            raise InvalidValueError(msg)

    @property
    def keeps(self) -> str:
        """The state that a device keeps between rounds: personal parameters, momentum, or none."""
        return PERSONAL if self.personalize else MOMENTUM if self.worker_momentum else ""

    def applied(self) -> dict[str, Any]:
        """Return the values that have an effect, given the others."""
        unused = {
            "local_epochs": self.local_steps > 0,
            "batch_size": self.batch_fraction > 0,
            "lr_decay_every": self.lr_decay == 1,
            "weights": self.weights == EXAMPLES,  # so that runs keep the names that they have
        }
        values = super().applied() | {"partition": canonical_text(self.partition)}
        return {name: value for name, value in values.items() if not unused.get(name)}


@dataclass(frozen=True)
class Server(Group):
    """How the server applies an aggregate, and when a run has diverged."""

    optimizer: str = setting(
        "sgd",
        "The server's optimizer on the aggregate: sgd, adam or yogi.",
        option="server_optimizer",
        choices=OPTIMIZERS,
    )
    learning_rate: float = setting(
        0.0,
        "The server's learning rate; 0: 1 for sgd, 0.01 for adam and yogi.",
        option="server_learning_rate",
    )
    momentum: float = setting(
        0.0, "The server's momentum (for adam and yogi: beta_1).", option="server_momentum"
    )
    max_norm: float = setting(
        1000.0, "Reject an aggregate with this norm or a larger one; 0: never."
    )
    max_rejected: int = setting(20, "End the run as diverged after this number of rejected rounds.")
    divergence_factor: float = setting(
        3.0, "End the run as diverged if the loss exceeds the first one by this factor; 0: never."
    )

    def __post_init__(self) -> None:
        """Check each value."""
        self._check_types()
        self._check_counts("max_rejected")
        self._check_numbers("learning_rate", "max_norm", "divergence_factor")
        self._check_fractions("momentum")

    def applied(self) -> dict[str, Any]:
        """Return the values with the effective learning rate."""
        return super().applied() | {"learning_rate": self.effective_learning_rate}

    @property
    def effective_learning_rate(self) -> float:
        """The learning rate; by default the one of the optimizer."""
        return self.learning_rate or LEARNING_RATES[self.optimizer]


@dataclass(frozen=True)
class Secure(Group):
    """How sums over devices are computed, and which terms devices accept."""

    mode: str = setting(
        OFF,
        "Secure aggregation: off (plain floating-point sums), unmasked (the integers of the secure "
        "sum, but no masks), or on (the whole protocol; the same numbers as unmasked).",
        option="secure",
        choices=(OFF, UNMASKED, "on"),
    )
    server_model: str = setting(
        "semi-honest",
        "The server against which secure aggregation protects; malicious: with signed keys.",
        choices=("semi-honest", "malicious"),
    )
    colluder_fraction: float = setting(
        0.1, "The fraction of devices that may collude with the server."
    )
    max_dropout_fraction: float = setting(
        0.2, "The largest fraction of devices that may drop out of a round."
    )
    dropout_rate: float = setting(
        0.0, "The probability that a device drops out of a round, at a random stage."
    )
    max_share: float = setting(
        0.0, "The largest share that a device may have in a step; 0: no limit."
    )
    honest_per_query: int = setting(
        HONEST_PER_QUERY,
        "Additional honest devices that each further sum of the same updates needs, so that "
        "several sums together do not reveal single updates. 0, only for research: more honest "
        "devices than sums are enough.",
    )
    exclude_liars: bool = setting(
        False, "Leave devices out whose groups, round by round, have sums that no honest group has."
    )

    def __post_init__(self) -> None:
        """Check each value, and that there are sums that they apply to."""
        self._check_types()
        fractions = ("colluder_fraction", "max_dropout_fraction", "dropout_rate", "max_share")
        self._check_fractions(*fractions)
        self._check_counts("honest_per_query", least=0)
        if self.mode == OFF:
            usual = Secure.__dataclass_fields__
            for name in ("server_model", "honest_per_query", "exclude_liars", *fractions):
                if getattr(self, name) != usual[name].default:
                    msg = f"{name}={getattr(self, name)} needs secure=unmasked or secure=on"
                    raise InvalidValueError(msg)
        if self.dropout_rate > self.max_dropout_fraction:
            most = self.max_dropout_fraction
            msg = f"dropout_rate={self.dropout_rate} exceeds max_dropout_fraction={most}"
            raise InvalidValueError(msg)

    def check_ledger(self, aggregator: Any) -> None:
        """Check that there are groups, where the server is to learn from them who lies.

        Raises:
            InvalidValueError: saying what to set.
        """
        if self.exclude_liars and not isinstance(aggregator, Groups):
            msg = "exclude_liars=True learns who lies from the groups of a cohort, and there are "
            raise InvalidValueError(msg + "none: give groups, such as groups=10")

    def applied(self) -> dict[str, Any]:
        """The values that make a difference: none without secure sums."""
        if self.mode == OFF:
            return {"mode": OFF}
        values = super().applied()
        for name in ("honest_per_query", "exclude_liars"):  # then they change no round
            if not values[name]:
                del values[name]
        return values

    @cached_property
    def terms(self) -> Terms:
        """The terms of secure aggregation."""
        return make_terms(
            self.colluder_fraction,
            self.max_dropout_fraction,
            self.server_model,
            self.honest_per_query,
        )


@dataclass(frozen=True)
class Evaluation(Group):
    """When and on what the model is evaluated."""

    every: int = setting(10, "Rounds between two evaluations.", option="eval_every")
    examples: int = setting(
        0, "Examples per device to evaluate on, at most; 0: all.", option="eval_examples"
    )
    holdout: float = setting(
        0.0, "Evaluate on this fraction of the training data instead of test data, to tune."
    )

    def __post_init__(self) -> None:
        """Check each value."""
        self._check_types()
        self._check_counts("every")
        self._check_counts("examples", least=0)
        self._check_fractions("holdout")


GROUPS: dict[str, type[Group]] = {
    "training": Training,
    "attack": Attack,
    "server": Server,
    "secure": Secure,
    "privacy": Privacy,
    "evaluation": Evaluation,
}
