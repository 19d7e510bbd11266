"""A sweep: many runs that belong to one picture, described by one TOML file.

    title = "Accuracy against the corruption level"
    seeds = [1, 2, 3]
    x = "rho"                          # the setting on the horizontal axis; left out, the picture
    values = [0.0, 0.1, 0.25]          # shows each run from its first round to its last

    [settings]                         # of all runs; `calls` stands for rounds by oracle calls
    task = "glyphs-linear"
    calls = 60

    [[panels]]                         # one part of the picture each
    title = "poisoned data"
    corruption = "data"

    [[lines]]                          # one line in every panel each
    label = "RFA"
    aggregator = "rfa"

Each combination of a panel, a line, a value and a seed is a run, and the same settings are the same
run wherever they come up.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from rfa.lab.attacks.corruption import NoSuchAttackError
from rfa.lab.attacks.registry import NONE, TRIGGERED
from rfa.lab.runs.headline import headline
from rfa.lab.runs.store import MEASURES as RUN_MEASURES
from rfa.lab.settings.fields import ConfigError
from rfa.lab.settings.parameters import PARAMETERS, is_taken
from rfa.lab.settings.settings import FIELDS, Settings

CALLS = "calls"
OF_NOISE = frozenset(name for name, field in FIELDS.items() if field.group == "privacy")
"""The settings of noise."""
MEASURES = (*RUN_MEASURES, "test_loss", "certificate")
AXES = ("oracle_calls", "round", "uploads")


@dataclass(frozen=True)
class Part:
    """A panel or a line: its name, and the settings that make it."""

    name: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Sweep:
    """Many runs for one picture.

    Attributes:
        name: the name of its file.
        title: the title of the picture.
        panels: the parts of the picture.
        lines: the lines in each panel.
        seeds: the seeds of a line, which shows their mean.
        x: the setting on the horizontal axis; empty for curves over rounds.
        values: its values.
        axes: the horizontal axes of curves: oracle_calls, round, or uploads (the models that a
            device sends if it takes part in every round).
        measures: the vertical axes; the certificate only against a setting x. By default the
            accuracy, over honest devices if any run is personalized.
        claim: the claim that the picture should support.
        paper: where the paper has it.
        numbers: numbers of the paper, by panel, line and value.
    """

    name: str
    title: str
    panels: Sequence[Part]
    lines: Sequence[Part]
    seeds: Sequence[int]
    x: str = ""
    values: Sequence[Any] = (None,)
    axes: Sequence[str] = AXES[:1]
    measures: Sequence[str] = MEASURES[:1]
    claim: str = ""
    paper: str = ""
    numbers: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Cell:
    """One run of a sweep, and its place in the picture."""

    panel: str
    line: str
    value: Any
    settings: Settings


def make_sweep(name: str, values: Mapping[str, Any]) -> Sweep:
    """Return the sweep that these values describe.

    Raises:
        ConfigError: naming the sweep and the mistake.
    """
    try:
        sweep = _parse(name, values)
        runs = [cell.settings for cell in _each_once(sweep)]
    except (ConfigError, NoSuchAttackError, TypeError, KeyError) as error:
        msg = f"the sweep {name} is invalid: {error}"
        raise ConfigError(msg) from None
    if "measures" in values:
        return sweep
    personalized = any(settings.training.personalize for settings in runs)
    return dataclasses.replace(sweep, measures=[headline(personalized=personalized)])


def cells(sweep: Sweep) -> Iterator[Cell]:
    """Return the runs of a sweep, first seed first.

    Raises:
        ConfigError: if a setting is wrong; the message names it.
    """
    places = itertools.product(sweep.seeds, sweep.panels, sweep.lines, sweep.values)
    for seed, panel, line, value in places:
        place = {sweep.x: value} if sweep.x else {}
        _check_line(line)
        given = merge(panel.settings, line.settings, {"seed": seed}, place)
        yield Cell(panel.name, line.name, value, settle(given))


def _each_once(sweep: Sweep) -> Iterator[Cell]:
    """Return the runs of the first seed, and one run of each other seed: enough to find errors."""
    yield from cells(dataclasses.replace(sweep, seeds=sweep.seeds[:1]))
    first = {name: getattr(sweep, name)[:1] for name in ("panels", "lines", "values")}
    yield from cells(dataclasses.replace(sweep, seeds=sweep.seeds[1:], **first))


def _check_line(line: Part) -> None:
    """Refuse a line with an option that its own aggregator does not take."""
    aggregator = str(line.settings.get("aggregator", ""))
    for name in line.settings if aggregator else ():
        if name in PARAMETERS and not is_taken(name, aggregator):
            msg = f"{name}={line.settings[name]} is not for {aggregator}"
            raise ConfigError(msg)


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of several layers, of which the later win; rounds and calls replace each other.

    >>> merge({"calls": 600, "learning_rate": 0.1}, {"rounds": 20})
    {'learning_rate': 0.1, 'rounds': 20}
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        for name, other in (("rounds", "calls"), ("calls", "rounds")):
            if name in layer:
                merged.pop(other, None)
        merged |= layer
    return merged


def settle(given: Mapping[str, Any]) -> Settings:
    """Return the settings of a run, with `calls` as rounds, and no corruption at level 0.

    A backdoor stays: without corrupted devices, it shows how a clean model reacts to the trigger.
    If epsilon is 0 there is no noise, and other settings of noise do not apply.
    """
    values = dict(given)
    if values.get("epsilon", 1) in (0, None) and not values.get("noise"):
        values = {name: value for name, value in values.items() if name not in OF_NOISE}
    rho, corruption = values.get("rho"), values.get("corruption")
    clean = rho == 0 and not values.get("sybils")
    if corruption == NONE or (clean and corruption not in TRIGGERED):
        values |= {"corruption": NONE, "rho": 0.0}
    calls = values.pop(CALLS, None)
    settings = Settings.where_taken(**values)
    if calls is None:
        return settings
    if type(calls) is not int or calls < 1:
        msg = f"calls must be a whole number from 1, not {calls!r}"
        raise ConfigError(msg)
    return settings.replace(rounds=max(1, calls // calls_per_round(settings)))


def calls_per_round(settings: Settings) -> int:
    """How often a round asks the secure average oracle, if no step ends early."""
    return settings.layout.calls


def _parse(name: str, values: Mapping[str, Any]) -> Sweep:
    known = {field.name for field in dataclasses.fields(Sweep)} - {"name"} | {"settings"}
    unknown = sorted(set(values) - known)
    if unknown:
        msg = f"it has {unknown[0]!r}, and only {', '.join(sorted(known))} mean something"
        raise ConfigError(msg)
    shared = _settings("settings", values.get("settings", {}))
    plain: dict[str, Any] = {"title": name, "seeds": [1]}
    plain |= {key: values[key] for key in known - {"settings", "panels", "lines"} if key in values}
    sweep = Sweep(
        name=name,
        **plain,
        panels=_parts(values, "panels", "title", shared),
        lines=_parts(values, "lines", "label", {}),
    )
    _check(sweep)
    return sweep


def _parts(
    values: Mapping[str, Any], key: str, naming: str, shared: Mapping[str, Any]
) -> list[Part]:
    given = values.get(key, [{}])
    if not isinstance(given, list) or not given:
        msg = f"{key} must be tables, [[{key}]]"
        raise ConfigError(msg)
    parts: list[Part] = []
    for number, table in enumerate(cast("list[Any]", given), start=1):
        own = _settings(f"{key} {number}", table)
        name = own.pop(naming, "" if len(cast("list[Any]", given)) == 1 else str(number))
        parts.append(Part(str(name), merge(shared, own)))
    if len({part.name for part in parts}) < len(parts):
        msg = f"two {key} have the same {naming}"
        raise ConfigError(msg)
    return parts


def _settings(where: str, table: Any) -> dict[str, Any]:
    if not isinstance(table, dict):
        msg = f"{where} must be a table, not {table!r}"
        raise ConfigError(msg)
    named = cast("dict[str, Any]", table)
    return {key.replace("-", "_"): value for key, value in named.items()}


def _check(sweep: Sweep) -> None:
    _check_types(sweep)
    for key in ("seeds", "values", "axes", "measures"):
        entries = getattr(sweep, key)
        if not isinstance(entries, list | tuple) or not entries:
            msg = f"{key} must be a list with something in it, not {entries!r}"
            raise ConfigError(msg)
        for entry in repeated(cast("Sequence[Any]", entries)):
            msg = f"{key} has {entry!r} twice"
            raise ConfigError(msg)
    if bool(sweep.x) != (list(sweep.values) != [None]):
        msg = "x and values go together: a setting, and a list of its values"
        raise ConfigError(msg)
    if sweep.x and sweep.x not in {*FIELDS, *PARAMETERS, CALLS}:
        msg = f"x must be a setting, not {sweep.x!r}"
        raise ConfigError(msg)
    for key, known in (("axes", AXES), ("measures", MEASURES)):
        for entry in getattr(sweep, key):
            if entry not in known:
                msg = f"{key} must be among {', '.join(known)}, not {entry!r}"
                raise ConfigError(msg)


def repeated(entries: Sequence[Any]) -> list[Any]:
    """The entries that came before."""
    return [entry for number, entry in enumerate(entries) if entry in entries[:number]]


def _check_types(sweep: Sweep) -> None:
    """Refuse what the types promise but a file need not keep."""
    for key in ("title", "claim", "paper", "x"):
        value = getattr(sweep, key)
        if not isinstance(value, str):
            msg = f"{key} must be text, not {value!r}"
            raise ConfigError(msg)
    numbers: Any = sweep.numbers
    good = isinstance(numbers, list | tuple) and all(
        isinstance(entry, dict) and {"panel", "line", "paper"} <= set(cast("dict[str, Any]", entry))
        for entry in cast("Sequence[Any]", numbers)
    )
    if not good:
        msg = "numbers must be tables, [[numbers]], with panel, line, value and paper"
        raise ConfigError(msg)
