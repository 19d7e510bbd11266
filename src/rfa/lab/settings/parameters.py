"""Parameters of aggregators that have an option of their own.

`--budget 4` is short for `--aggregator rfa:budget=4`, and they make the same run. An aggregator
takes its own parameters only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rfa._specs import Spec, parse_spec
from rfa.aggregators.partition import ALL_SCHEDULES
from rfa.aggregators.registry import find
from rfa.aggregators.rfa import STARTS
from rfa.errors import InvalidValueError
from rfa.lab.settings.fields import Setting


def _parameter(
    name: str, parameter: str, kind: str, text: str, choices: tuple[str, ...] = ()
) -> Setting:
    return Setting(name, "aggregator", parameter, kind, None, text, choices)


_LISTED = (
    _parameter(
        "budget", "budget", "int", "Calls R of the sum oracle that rfa may make in a round."
    ),
    _parameter(
        "nu",
        "nu",
        "float",
        "The smoothing radius nu of Weiszfeld's algorithm; 0: half of the median distance of the "
        "updates, learned from sums. The paper uses 1e-6.",
    ),
    _parameter(
        "start",
        "start",
        "str",
        "Where Weiszfeld's algorithm starts: current (the current model) or mean (which takes one "
        "call, as in the paper's runs, and is weak against huge updates).",
        STARTS,
    ),
    _parameter(
        "schedule",
        "schedule",
        "str",
        "How rfa uses its calls: plain steps, accelerated (the last call at an extrapolated point) "
        "or sub-cohorts (each call asks another part of the cohort: a device answers once).",
        ALL_SCHEDULES,
    ),
    _parameter(
        "groups",
        "groups",
        "int",
        "Number of random groups in a cohort. Each has sums of its own, and the aggregate is the "
        "geometric median of their results; 0: one group (bucketing: as many as possible).",
    ),
    _parameter(
        "early_stop",
        "early_stop",
        "float",
        "Stop if a step improves the objective by less than this; 0: never.",
    ),
    _parameter(
        "clip_norm",
        "clip_norm",
        "float",
        "The norm to which means (and --start mean) clip updates; 0: 100 with secure aggregation, "
        "learned for centered-clipping, no clipping otherwise.",
    ),
    _parameter(
        "trim_fraction",
        "fraction",
        "float",
        "The fraction that trimmed-mean removes on each side; rho by default.",
    ),
    _parameter(
        "clip_quantile",
        "quantile",
        "float",
        "The quantile of the norms to which norm-clipping clips.",
    ),
    _parameter(
        "assumed_corrupted",
        "corrupted_fraction",
        "float",
        "The fraction of corrupted devices that krum, multi-krum, meamed, bulyan, nnm, dnc and "
        "nnm-median assume; by default rho, with sybils and --assumed-margin.",
    ),
)
PARAMETERS = {parameter.name: parameter for parameter in _LISTED}
"""Options that are parameters of aggregators, by name."""


def is_taken(option: str, aggregator: str) -> bool:
    """Whether an option is a parameter of the aggregator that a text names."""
    return PARAMETERS[option].attribute in find(aggregator).parameters


def is_open(option: str, aggregator: str) -> bool:
    """Whether an option is a parameter of an aggregator whose text leaves it open."""
    given = parse_spec(aggregator).parameters
    return is_taken(option, aggregator) and PARAMETERS[option].attribute not in given


def with_options(aggregator: str, options: Mapping[str, Any]) -> str:
    """The text of an aggregator with parameters from options.

    Raises:
        InvalidValueError: naming the option that the aggregator does not take, or that its text
            contradicts.
    """
    spec = parse_spec(aggregator)
    for option, given in options.items():
        known = PARAMETERS[option]
        value = known.check(given)
        if not is_taken(option, aggregator):
            taken = ", ".join(find(aggregator).parameters) or "none"
            msg = f"{option}={value} is not for {spec.name}: its parameters are {taken}"
            raise InvalidValueError(msg)
        if spec.parameters.get(known.attribute, value) != value:
            msg = f"{option}={value} contradicts {aggregator!r}: give it once"
            raise InvalidValueError(msg)
        spec = spec.with_parameters(**{known.attribute: value})
    return str(spec)


def without_options(aggregator: str, options: Mapping[str, Any]) -> str:
    """Return the text of an aggregator without the parameters that options replace."""
    spec = parse_spec(aggregator)
    changed = {PARAMETERS[option].attribute for option in options}
    kept = {name: value for name, value in spec.parameters.items() if name not in changed}
    return str(Spec(spec.name, kept))
