"""All settings that determine the outcome of a run, in one immutable value.

    >>> settings = Settings.of("emnist-linear", aggregator="rfa", corruption="omniscient", rho=0.25)
    >>> settings.training.learning_rate, settings.attack.rho, settings.rounds
    (0.08, 0.25, 2000)

The default of a setting is the value of the task, which is that of the paper. Every setting has one
name in `Settings.of`, in `Settings.replace`, on the command line and in TOML files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import types
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rfa._checks import check_count
from rfa._specs import parse_spec
from rfa._texts import text_of
from rfa.aggregators import Layout, SumAggregator
from rfa.aggregators.registry import (
    ENTRIES,
    Aggregator,
    Context,
    build,
    build_private,
    find,
    spec_of,
)
from rfa.errors import InvalidValueError, PluginError
from rfa.lab.attacks.corruption import NoSuchAttackError
from rfa.lab.attacks.liars import check_sums
from rfa.lab.attacks.registry import BACKDOOR, BUILT_IN, NONE, POISONS, find_corruption
from rfa.lab.datasets.partition import Partition
from rfa.lab.settings.fields import ConfigError, Setting, setting, settings_of
from rfa.lab.settings.groups import GROUPS, OFF, Attack, Evaluation, Secure, Server, Training
from rfa.lab.settings.parameters import PARAMETERS, is_open, with_options, without_options
from rfa.lab.settings.privacy import Privacy, implied
from rfa.lab.tasks.registry import TASKS, canonical_task, find_task
from rfa.planning import check_fit

SECURE_CLIP_NORM = 100.0
"""Where secure means clip updates, unless told."""
OBJECTS = ("task", "aggregator", "corruption", "partition")
"""Settings that an object may be given for."""
EARLY_STOP = 1e-6
"""The improvement at which rfa's steps end where the server sees it, unless told."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A run: the same settings give the same numbers. `Settings.of` makes them."""

    task: str = setting("", "The task to learn; `rfa tasks` lists them.")
    aggregator: str = setting(
        "rfa",
        f"How the server aggregates: {', '.join(ENTRIES)}, or your own module:NAME. Parameters may "
        "follow, as in rfa:budget=4,nu=0.5.",
    )
    seed: int = setting(1, "The seed of all random choices.")
    rounds: int = setting(100, "Number T of communication rounds.")
    training: Training
    attack: Attack
    server: Server
    secure: Secure
    privacy: Privacy
    evaluation: Evaluation

    @classmethod
    def of(cls, task: Any = None, **given: Any) -> Settings:
        """Return the settings of a run: those given, and the defaults of the task for the rest.

        Args:
            task: the task: a name, or an object.
            **given: settings by name, and parameters of the aggregator that have an option.

        Raises:
            ConfigError: if a setting is wrong; the message names it and a valid value.
        """
        _check_names(given)
        if task is None:
            msg = "no task is given: `rfa tasks` lists them"
            raise ConfigError(msg)
        with _errors_of_settings():
            values = {"task": task, "aggregator": FIELDS["aggregator"].default} | given
            values = {name: Settings.text_of(name, value) for name, value in values.items()}
            for name in ("task", "aggregator"):
                FIELDS[name].check(values[name])
            values["task"] = canonical_task(values["task"])
            _check_level(given)
            usual = _usual(values["task"], values["aggregator"])
            options = {name: value for name, value in values.items() if name in PARAMETERS}
            values["aggregator"] = with_options(values["aggregator"], options)
            return cls._nested(usual | implied(usual | values) | values).checked()

    @classmethod
    def where_taken(cls, task: Any = None, **given: Any) -> Settings:
        """The same, but options that are no parameters of the aggregator are left out.

        For what several aggregators share, such as the settings of a sweep.

        Raises:
            ConfigError: if a setting is wrong; the message names it and a valid value.
        """
        _check_names(given)
        with _errors_of_settings():
            aggregator = Settings.text_of(
                "aggregator", given.get("aggregator", FIELDS["aggregator"].default)
            )
            fitting = {
                name: value
                for name, value in given.items()
                if name not in PARAMETERS or is_open(name, aggregator)
            }
        return cls.of(task, **fitting)

    def replace(self, **changes: Any) -> Settings:
        """The same settings with some changed, by name; all others stay, the task's too.

        Raises:
            ConfigError: if a setting is wrong; the message names it.
        """
        _check_names(changes)
        with _errors_of_settings():
            values = {name: Settings.text_of(name, value) for name, value in changes.items()}
            options = {name: value for name, value in values.items() if name in PARAMETERS}
            before = values.get("aggregator", without_options(self.aggregator, options))
            values["aggregator"] = with_options(before, options)
            brought = implied(self.flat | values)
            if self.secure.mode != OFF:
                brought.pop("secure", None)
            return self._nested(self.flat | brought | values).checked()

    @classmethod
    def _nested(cls, flat: Mapping[str, Any]) -> Settings:
        given: dict[str, dict[str, Any]] = {group: {} for group in ("", *GROUPS)}
        for name, value in flat.items():
            if name in FIELDS:
                given[FIELDS[name].group][FIELDS[name].attribute] = value
        top = given.pop("")
        groups: dict[str, Any] = {name: GROUPS[name](**given[name]) for name in GROUPS}
        return cls(**top, **groups)

    @staticmethod
    def text_of(name: str, value: Any) -> Any:
        """The text that names an object of the user's own, or one that comes with rfa."""
        if name == "corruption" and value is None:
            return NONE
        is_plain = type(value).__module__ == "builtins"
        is_code = isinstance(value, types.FunctionType | type)
        if name not in OBJECTS or (is_plain and not is_code):
            return value
        if name == "aggregator":
            return str(spec_of(value))
        if isinstance(value, Partition) and value.kind:
            return str(value)
        built_in: dict[str, Any] = {**TASKS, **BUILT_IN, **POISONS}
        known = [text for text, other in built_in.items() if other is value]
        return known[0] if known else text_of(value)

    @property
    def flat(self) -> dict[str, Any]:
        """All settings by the names that options have."""
        return {
            name: getattr(getattr(self, field.group) if field.group else self, field.attribute)
            for name, field in FIELDS.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """All settings as tables in a table, for JSON and TOML."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return values | {name: values[name].to_dict() for name in GROUPS}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Settings:
        """The settings that `to_dict` made, which were checked then: code of users is not loaded.

        Raises:
            InvalidValueError: if this version has other settings, or a value is wrong.
        """
        try:
            groups: dict[str, Any] = {name: GROUPS[name](**values[name]) for name in GROUPS}
            return cls(**{**values, **groups})
        except (TypeError, KeyError) as error:
            msg = f"these settings are not those of this version: {error}"
            raise InvalidValueError(msg) from None

    def __post_init__(self) -> None:
        """Check each value; `checked` sees whether they go together."""
        for name in ("task", "aggregator", "seed", "rounds"):
            object.__setattr__(self, name, FIELDS[name].check(getattr(self, name)))
        check_count("seed", self.seed, least=0)
        check_count("rounds", self.rounds)

    def checked(self) -> Settings:
        """The same settings, whose aggregator and attack were found to exist and to go with them.

        Raises:
            InvalidValueError, PluginError, NoSuchAttackError: saying what does not.
        """
        self.training.check_rates(self.rounds)
        self.privacy.check_fits(self.flat)
        corruption = find_corruption(self.attack.corruption, find_task(self.task).poisons)
        self.attack.check_sybils(corruption, self.secure.mode != OFF or self.privacy.is_on)
        check_sums(corruption, self.secure.mode)
        self._check_aggregator()
        if self.secure.mode != OFF:
            check_fit(
                build_private(self.aggregation),
                self.secure.terms,
                devices=self.training.devices_per_round,
                max_share=self.secure.max_share,
                weights=self.training.weights,
            )
        if self.privacy.is_on:
            build_private(self.aggregation).check_noise()
        return self

    def _check_aggregator(self) -> None:
        """Check that the aggregator can be made, and what it asks of the other settings."""
        entry, steps = find(self.aggregator), self.training.local_steps
        if entry.local_steps not in {None, steps}:
            msg = f"{entry.name} takes {entry.local_steps} local step a round: "
            msg += f"give local_steps={entry.local_steps}, not {steps}"
            raise InvalidValueError(msg)
        cohort, parts = self.training.devices_per_round, self.layout.parts
        if parts > cohort:
            msg = f"{cohort} devices per round cannot form {parts} parts: give fewer parts"
            raise InvalidValueError(msg)
        self.secure.check_ledger(self.aggregation)

    @cached_property
    def aggregation(self) -> Aggregator:
        """The aggregator, with its parameters."""
        in_clear = self.secure.mode == OFF and not self.privacy.is_on
        context = Context(
            corrupted=self.attack.assumed_fraction(self.training.devices_per_round),
            clip_norm=math.inf if in_clear else SECURE_CLIP_NORM,
            early_stop=EARLY_STOP if in_clear else None,
            max_groups=self._max_groups,
            noise=self.privacy.is_on,
        )
        return (build if in_clear else build_private)(self.aggregator, context=context)

    @cached_property
    def aggregator_text(self) -> str:
        """The aggregator with every parameter that makes it, those not given too."""
        try:
            return str(spec_of(self.aggregation, define=False))
        except PluginError:  # the user's own, of parameters that no text tells
            return self.aggregator

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Return the settings that apply to the run; they distinguish it from other runs.

        So `rfa:budget=4` and `rfa` with budget=4 are the same run. Settings of secure aggregation
        are not part of a run without it. A group that does not apply is left out.
        """
        groups = {name: getattr(self, name).applied() for name in GROUPS}
        values = self.to_dict() | {"aggregator": self.aggregator_text} | groups
        return {name: value for name, value in values.items() if value != {}}

    @cached_property
    def run_name(self) -> str:
        """The name of the run: what gives the same numbers has the same name."""
        text = json.dumps(self.identity, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        parts = (self.task, parse_spec(self.aggregator).name, digest)
        return ".".join(part.replace(":", "-") for part in parts)  # the name of a folder, too

    @cached_property
    def layout(self) -> Layout:
        """How the aggregator asks a cohort."""
        if isinstance(self.aggregation, SumAggregator):
            return self.aggregation.layout(self.training.devices_per_round)
        return Layout()

    def _max_groups(self) -> int:
        """As many groups as have a secure sum each, which may lose a device, where any is lost."""
        terms = self.secure.terms
        count = terms.smallest()
        while self.secure.max_dropout_fraction and terms.parameters(count).num_dropouts < 1:
            count += 1
        return max(1, self.training.devices_per_round // count)

    @property
    def can_be_secure(self) -> bool:
        """Whether secure sums are enough for the aggregator, with parts as large as these.

        It is about what the aggregator needs to see, so not about how many honest devices several
        sums take.
        """
        if self.secure.mode != OFF:
            return True
        try:
            self.replace(secure="unmasked", honest_per_query=0)
        except InvalidValueError:
            return False
        return True


_ALL = [settings_of(group, kind) for group, kind in {"": Settings, **GROUPS}.items()]
FIELDS: dict[str, Setting] = {name: known for some in _ALL for name, known in some.items()}
"""All settings by name, those of the run as such first."""


@contextlib.contextmanager
def _errors_of_settings() -> Generator[None]:
    """Make wrong values errors of settings; that there is no such attack has its own."""
    try:
        yield
    except NoSuchAttackError:
        raise
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _check_level(given: Mapping[str, Any]) -> None:
    """Refuse a corruption without a level, which would do nothing; a backdoor is tried anyway."""
    corruption = given.get("corruption", NONE)
    if not {"rho", "sybils"} & set(given) and corruption not in (None, NONE, BACKDOOR):
        msg = f"corruption={Settings.text_of('corruption', corruption)!r} needs a level: give rho"
        raise ConfigError(msg)


def _usual(task: str, aggregator: str) -> dict[str, Any]:
    """The settings that a task has for an aggregator."""
    usual = find_task(task).settings_for(aggregator)
    for name in usual:
        if name not in FIELDS or name in {"task", "aggregator"}:
            known = ", ".join(other for other in FIELDS if other not in {"task", "aggregator"})
            msg = f"task {task} has settings, but not {name!r}: these are {known}"
            raise ConfigError(msg)
    return {name: Settings.text_of(name, value) for name, value in usual.items()}


def _check_names(given: Mapping[str, Any]) -> None:
    for name in given:
        if name not in FIELDS and name not in PARAMETERS:
            msg = f"no setting is called {name!r}: there are {', '.join([*FIELDS, *PARAMETERS])}"
            raise ConfigError(msg)
