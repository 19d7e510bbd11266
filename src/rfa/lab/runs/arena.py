"""An arena: every attack against every defense, at some levels of corruption, as one sweep.

    tasks = { emnist-linear = "EMNIST linear" }      # with their titles
    levels = [0.1, 0.25]
    attacks = ["data", "omniscient", "mine:attack"]  # left out: all that the tasks have
    defenses = ["fedavg", "rfa", "rfa:nu=0.5,label=wide RFA"]  # left out: all

A panel of the sweep is a task at a level, a line is a defense, and x is the attack; the first of
its values is no corruption at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from rfa._specs import Spec, parse_spec
from rfa.aggregators.registry import ENTRIES, find
from rfa.errors import InvalidValueError, PluginError
from rfa.lab.attacks.corruption import NoSuchAttackError
from rfa.lab.attacks.registry import BACKDOOR, BACKDOORS, BUILT_IN, NONE, POISONS, find_corruption
from rfa.lab.runs.sweep import make_sweep, repeated, settle
from rfa.lab.settings.fields import ConfigError
from rfa.lab.settings.parameters import PARAMETERS
from rfa.lab.settings.settings import FIELDS
from rfa.lab.tasks.registry import find_task

LEVELS = (0.1, 0.25)
TAKEN = ("task", "aggregator", "corruption", "rho", "seed")
"""Settings that the arena itself decides."""
OWN = ("tasks", "levels", "attacks", "defenses")
LABEL = "label"


def arena_plan(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The sweep of an arena, in the form of a sweep's file.

    Raises:
        ConfigError: naming the mistake and the remedy.
    """
    tasks, shared = _tasks(name, values.get("tasks")), values.get("settings", {})
    levels = _levels(values.get("levels", LEVELS))
    attacks = _attacks(values.get("attacks", ()), list(tasks))
    _check_twice("seed", values.get("seeds", ()))
    usual = usual_defenses(shared)
    defenses = [parse_defense(text) for text in _texts(values, "defenses") or usual]
    defenses.sort(key=lambda defense: not find(defense["aggregator"]).is_private)
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
    shared = [name for name in own[0] if all(name in some for some in own)]
    planted = BACKDOORS if BACKDOOR in shared else ()
    return [*shared, *planted, *POISONS, *BUILT_IN]


def usual_defenses(settings: Mapping[str, Any]) -> list[str]:
    """The aggregators that defend, and that these settings allow."""
    secure = settings.get("secure", "off") != "off"
    return [
        entry.name
        for entry in ENTRIES.values()
        if entry.defends and (entry.is_private or not secure)
    ]


def usual_rounds(task: str) -> int:
    """The rounds that all defenses have on a task: the fewest of the paper's."""
    defaults = (find_task(task).settings_for(aggregator) for aggregator in ENTRIES)
    return min(values.get("rounds", FIELDS["rounds"].default) for values in defaults)


def parse_defense(text: str) -> dict[str, Any]:
    """A defense as the line of a sweep: an aggregator, settings of its own, and a label.

    >>> parse_defense("rfa:nu=0.5,start=current")
    {'label': 'rfa:nu=0.5,start=current', 'aggregator': 'rfa:nu=0.5,start=current'}
    >>> parse_defense("krum: server_momentum=0.9, label=slow Krum")
    {'label': 'slow Krum', 'aggregator': 'krum', 'server_momentum': 0.9}

    Raises:
        ConfigError: naming the part that makes no sense.
    """
    try:
        spec = parse_spec(text)
        known = find(text).parameters
    except (InvalidValueError, PluginError) as error:
        msg = f"the defense {text!r} makes no sense: {error}"
        raise ConfigError(msg) from None
    own = {name: value for name, value in spec.parameters.items() if name not in known}
    parameters = {name: value for name, value in spec.parameters.items() if name in known}
    label = str(own.pop(LABEL, text))
    for name in own:
        _check_setting(name, text, known)
    return {LABEL: label, "aggregator": str(Spec(spec.name, parameters)), **own}


def _check_setting(name: str, text: str, parameters: Sequence[str]) -> None:
    if name in TAKEN:
        msg = f"the defense {text!r} cannot have its own {name}: the arena decides about it"
        raise ConfigError(msg)
    if name not in {*FIELDS, *PARAMETERS}:
        free = ", ".join(field for field in [*FIELDS, *PARAMETERS] if field not in TAKEN)
        msg = f"{name!r} in the defense {text!r} is no parameter of it "
        msg += f"({', '.join(parameters)}) and no setting: there are {free}"
        raise ConfigError(msg)


def _tasks(name: str, given: Any) -> dict[str, str]:
    if isinstance(given, dict) and given:
        return cast("dict[str, str]", given)
    msg = f"the arena {name} needs tasks with their titles, as in "
    raise ConfigError(msg + 'tasks = { glyphs-linear = "Glyphs" }')


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
    seen: dict[str, str] = {}
    for defense in defenses:
        own = {key: value for key, value in defense.items() if key != LABEL}
        run = settle({**shared, **own}).run_name
        if run in seen:
            msg = f"the defenses {seen[run]!r} and {defense[LABEL]!r} are the same"
            raise ConfigError(msg)
        seen[run] = defense[LABEL]


def _texts(values: Mapping[str, Any], key: str) -> list[str]:
    given = values.get(key, ())
    if isinstance(given, list | tuple) and all(
        isinstance(text, str) for text in cast("Sequence[Any]", given)
    ):
        return list(cast("Sequence[str]", given))
    msg = f"{key} must be a list of names, not {given!r}"
    raise ConfigError(msg)


def _check_twice(kind: str, entries: Sequence[Any]) -> None:
    for entry in repeated(entries):
        msg = f"the {kind} {entry!r} is given twice"
        raise ConfigError(msg)
