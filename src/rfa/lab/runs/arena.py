"""An arena: every attack against every defense, at some levels of corruption, as one sweep.

    tasks = { emnist-linear = "EMNIST linear" }      # with their titles
    levels = [0.1, 0.25]
    attacks = ["data", "omniscient", "mine:attack"]  # left out: all that the tasks have
    defenses = ["fedavg", "rfa", "rfa,nu=0.5,label=wide RFA"]  # left out: all

A panel of the sweep is a task at a level, a line is a defense, and x is the attack; the first of
its values is no corruption at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from rfa.lab.attacks.corruption import NoSuchAttackError
from rfa.lab.attacks.registry import BUILT_IN, POISONS, find_corruption
from rfa.lab.runs.sweep import make_sweep, settle
from rfa.lab.settings.config import ConfigError
from rfa.lab.settings.settings import AGGREGATORS, FIELDS, NONE, SUMMED, Settings
from rfa.lab.tasks.registry import find_task

LEVELS = (0.1, 0.25)
NO_DEFENSES = ("sgd",)
"""Aggregators that change what devices compute, and average it as FedAvg does."""
TAKEN = ("task", "aggregator", "corruption", "rho", "seed")
"""Settings that the arena itself decides."""
OWN = ("tasks", "levels", "attacks", "defenses")
LABEL = "label"
WORDS = {"yes": True, "true": True, "no": False, "false": False}


def arena_plan(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The sweep of an arena, in the form of a sweep's file.

    Raises:
        ConfigError: naming what is wrong, and what would be right.
    """
    tasks, shared = values["tasks"], values.get("settings", {})
    levels = _levels(values.get("levels", LEVELS))
    attacks = _attacks(values.get("attacks", ()), list(tasks))
    _check_twice("seed", values.get("seeds", ()))
    usual = usual_defenses(shared)
    defenses = [parse_defense(text) for text in _texts(values, "defenses") or usual]
    defenses.sort(key=lambda defense: defense["aggregator"] not in SUMMED)
    plan = {key: value for key, value in values.items() if key not in OWN}
    plan |= {
        "x": "corruption",
        "values": [NONE, *attacks],
        "panels": [
            {"title": f"{title}, level {level:g}", "task": task, "rho": level}
            for task, title in tasks.items()
            for level in levels
        ],
        "lines": defenses,
    }
    _check_defenses(defenses, {**shared, "task": next(iter(tasks))})
    make_sweep(name, plan)
    return plan


def usual_attacks(tasks: Sequence[str]) -> list[str]:
    """The attacks that come with rfa and that all of these tasks have."""
    own = [find_task(task).poisons for task in tasks]
    shared = (name for name in own[0] if all(name in some for some in own))
    return [*shared, *POISONS, *BUILT_IN]


def usual_defenses(settings: Mapping[str, Any]) -> list[str]:
    """The aggregators that defend, and that these settings allow."""
    known = SUMMED if settings.get("secure", "off") != "off" else AGGREGATORS
    return [name for name in known if name not in NO_DEFENSES]


def usual_rounds(task: str) -> int:
    """The rounds that all defenses have on a task: the fewest of the paper's."""
    defaults = (find_task(task).settings_for(aggregator) for aggregator in AGGREGATORS)
    return min(values.get("rounds", FIELDS["rounds"].default) for values in defaults)


def parse_defense(text: str) -> dict[str, Any]:
    """A defense as the line of a sweep: an aggregator, settings of its own, and a label.

    >>> parse_defense("rfa,nu=0.5,start=current")
    {'label': 'rfa nu=0.5 start=current', 'aggregator': 'rfa', 'nu': 0.5, 'start': 'current'}
    >>> parse_defense("krum, assumed-corrupted=0.3, label=strict Krum")
    {'label': 'strict Krum', 'aggregator': 'krum', 'assumed_corrupted': 0.3}

    Raises:
        ConfigError: naming the part that makes no sense.
    """
    aggregator, *rest = (part.strip() for part in text.split(","))
    if aggregator not in AGGREGATORS:
        known = ", ".join(AGGREGATORS)
        msg = f"no defense is called {aggregator!r}: give one of {known}, with settings of its own "
        msg += "behind it if you like, as in rfa,nu=0.5"
        raise ConfigError(msg)
    own = dict(_setting(part, text) for part in rest)
    label = own.pop(LABEL, " ".join([aggregator, *(part for part in rest)]))
    return {LABEL: label, "aggregator": aggregator, **own}


def _setting(part: str, whole: str) -> tuple[str, Any]:
    name, equals, value = (piece.strip() for piece in part.partition("="))
    name = name.replace("-", "_")
    if not equals or not value:
        msg = f"{part!r} in the defense {whole!r} is no setting: write name=value"
        raise ConfigError(msg)
    if name in TAKEN:
        msg = f"the defense {whole!r} cannot have its own {name}: the arena decides about it"
        raise ConfigError(msg)
    if name != LABEL and name not in FIELDS:
        free = ", ".join(field for field in FIELDS if field not in TAKEN)
        msg = f"no setting is called {name!r}, as in the defense {whole!r}: there are {free}"
        raise ConfigError(msg)
    return name, value if name == LABEL else _value(name, value)


def _value(name: str, text: str) -> Any:
    kind = str(FIELDS[name].type)
    try:
        if kind == "bool":
            return WORDS[text.lower()]
        return {"int": int, "float": float, "str": str}[kind](text)
    except (ValueError, KeyError):
        wanted = {"int": "a whole number", "float": "a number", "bool": "yes or no"}[kind]
        msg = f"{name} must be {wanted}, not {text!r}"
        raise ConfigError(msg) from None


def _levels(given: Any) -> list[float]:
    levels = list(cast("Sequence[Any]", given if isinstance(given, list | tuple) else [given]))
    for level in levels:
        if isinstance(level, bool) or not isinstance(level, int | float):
            msg = f"a level is a share of the data, not {level!r}"
            raise ConfigError(msg)
        if level == 0:
            msg = "the first row is without corruption already: give levels above 0"
            raise ConfigError(msg)
        if not 0 < level < 1 / 2:
            msg = f"a level must be between 0 and 0.5, not {level:g}: corrupted devices that are "
            msg += "the majority pass for the honest ones, whatever the defense"
            raise ConfigError(msg)
    _check_twice("level", levels)
    return levels


def _attacks(given: Any, tasks: Sequence[str]) -> list[str]:
    attacks = _texts({"attacks": given}, "attacks") or usual_attacks(tasks)
    if NONE in attacks:
        msg = f"{NONE!r} is no attack: the first row is without corruption already"
        raise ConfigError(msg)
    _check_twice("attack", attacks)
    for task in tasks:
        for name in attacks:
            try:
                find_corruption(name, find_task(task).poisons)
            except NoSuchAttackError as error:
                raise ConfigError(str(error)) from None
    return attacks


def _check_defenses(defenses: Sequence[Mapping[str, Any]], shared: Mapping[str, Any]) -> None:
    """Refuse two columns of the same name, and two that are the same."""
    _check_twice("defense", [defense[LABEL] for defense in defenses])
    seen: dict[Settings, str] = {}
    for defense in defenses:
        own = {key: value for key, value in defense.items() if key != LABEL}
        settings = settle({**shared, **own})
        if settings in seen:
            msg = f"the defenses {seen[settings]!r} and {defense[LABEL]!r} are the same"
            raise ConfigError(msg)
        seen[settings] = defense[LABEL]


def _texts(values: Mapping[str, Any], key: str) -> list[str]:
    given = values.get(key, ())
    if isinstance(given, list | tuple) and all(
        isinstance(text, str) for text in cast("Sequence[Any]", given)
    ):
        return list(cast("Sequence[str]", given))
    msg = f"{key} must be a list of names, not {given!r}"
    raise ConfigError(msg)


def _check_twice(kind: str, entries: Sequence[Any]) -> None:
    twice = [entry for number, entry in enumerate(entries) if entry in entries[:number]]
    if twice:
        msg = f"the {kind} {twice[0]!r} is given twice"
        raise ConfigError(msg)
