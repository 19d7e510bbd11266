"""Aggregators by name: one entry each, for the lab, the command line, Flower and the planner.

A text names an aggregator and its parameters, and each value has one such text:

    >>> build("rfa:budget=4,nu=0.5")
    RFA(budget=4, nu=0.5, start='current', schedule='plain', clip_norm=100.0, early_stop=None)
    >>> build("rfa:budget=4,schedule=sub-cohorts").layout(100)
    Layout(parts=4, queries=1, sequential=True)
    >>> str(spec_of(Groups(Mean(), 7)))
    'fedavg:clip_norm=100.0,groups=7'

The name of your own aggregator is `module:NAME`, where NAME is a class or a value, and
`module:NAME:a=1,b=2` with parameters of the class. Every private aggregator with one part takes
`groups`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

from rfa._plugins import load_plugin
from rfa._specs import Spec, call_with, parse_spec, signature_of
from rfa._texts import text_of
from rfa.aggregators.base import SumAggregator
from rfa.aggregators.block_clipping import BlockClipping
from rfa.aggregators.clear import (
    FLAME,
    Bulyan,
    ClearAggregator,
    CoordinateMedian,
    DnC,
    FLTrust,
    Krum,
    MeaMed,
    MixedMedian,
    MultiKrum,
    NearestNeighborMixing,
    NormClipping,
    ServerAlone,
    SignGuard,
    TrimmedMean,
)
from rfa.aggregators.clipping import CenteredClipping, Mean
from rfa.aggregators.context import Context
from rfa.aggregators.entry import CONTEXT, GROUPS, Aggregator, Entry
from rfa.aggregators.partition import SUB_COHORTS, Groups, SubCohorts, compose_rfa, grouped
from rfa.aggregators.rfa import RFA, OneStepRFA
from rfa.errors import InvalidTypeError, InvalidValueError, PluginError


def find(text: str) -> Entry:
    """Return the entry that a text names.

    Raises:
        InvalidValueError: if there is none; the message lists all names.
        PluginError: if a module:NAME cannot be loaded.
    """
    name = parse_spec(text).name
    first, colon, second = name.partition(":")
    if first in ENTRIES and colon:
        msg = f"{second!r} in {text!r} is no parameter: write name=value"
        raise InvalidValueError(msg)
    if colon:
        return _own_entry(name)
    if name not in ENTRIES:
        msg = f"no aggregator is called {name!r}: give one of {', '.join(ENTRIES)}, "
        msg += "or your own module:NAME"
        raise InvalidValueError(msg)
    return ENTRIES[name]


def build(
    text: str | Aggregator,
    defaults: Mapping[str, Any] | None = None,
    context: Context | None = None,
) -> Aggregator:
    """Return the aggregator that a text names; a value is returned unchanged.

    Args:
        text: a name with parameters, such as "rfa:budget=4", or a value.
        defaults: parameters for aggregators that take them, if the text does not give them.
        context: decides parameters that are still missing.

    Raises:
        InvalidValueError: if there is no such aggregator or parameter, or a value is wrong.
        InvalidTypeError: if it is neither a text nor an aggregator.
        PluginError: if a module:NAME cannot be loaded.
    """
    if isinstance(text, SumAggregator | ClearAggregator):
        return text
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"an aggregator is a value such as RFA(), or a text such as 'rfa', not {text!r}"
        raise InvalidTypeError(msg)
    entry, given = find(text), parse_spec(text).parameters
    unknown = sorted(set(given) - set(entry.parameters))
    if unknown:
        known = ", ".join(entry.parameters) or "none"
        msg = f"{entry.name} has no parameter {unknown[0]!r}, as in {text!r}: it has {known}"
        raise InvalidValueError(msg)
    values = {key: value for key, value in (defaults or {}).items() if key in entry.parameters}
    values |= given
    taken = signature_of(entry.make).parameters
    groups = 0 if GROUPS in taken else values.pop(GROUPS, 0)
    if CONTEXT in taken:
        values[CONTEXT] = context or Context()
    aggregator = call_with(entry.make, values, entry.name)
    return grouped(cast("Any", aggregator), groups or 1)


def build_private(text: str | Aggregator, **options: Any) -> SumAggregator[Any]:
    """Return the private aggregator that a text names.

    Raises:
        InvalidValueError: if it must see single updates, or if `build` raises it.
    """
    aggregator = build(text, **options)
    if not isinstance(aggregator, SumAggregator):
        names = ", ".join(entry.name for entry in ENTRIES.values() if entry.is_private)
        msg = f"{text} must see single updates, and secure sums show none to the server: "
        msg += f"give one of {names}, or a SumAggregator of your own"
        raise InvalidValueError(msg)
    return aggregator


def spec_of(aggregator: Aggregator | type[Any], *, define: bool = True) -> Spec:
    """Return the name and parameters that build an aggregator.

    Args:
        aggregator: a value, or a class.
        define: whether to register your own aggregator for this process if no module has it under a
            name, as `rfa._texts.text_of` does.

    Raises:
        PluginError: if no text names it.
    """
    if isinstance(aggregator, Groups):
        inner = cast("Aggregator", aggregator.inner)
        return spec_of(inner, define=define).with_parameters(groups=aggregator.count)
    if isinstance(aggregator, SubCohorts):
        inner = cast("Aggregator", aggregator.inner)
        return spec_of(inner, define=define).with_parameters(schedule=SUB_COHORTS)
    if isinstance(aggregator, Mean) and aggregator.clip_norm is None:
        return Spec("adaptive-clipping", {})
    for entry in ENTRIES.values():
        if aggregator is entry.kind:
            return Spec(entry.name, {})
        if type(aggregator) is entry.kind:
            return _spec_of_entry(cast("Aggregator", aggregator), entry)
    return parse_spec(text_of(aggregator, define=define))


_CONTEXTS = (Context(), Context(corrupted=0.3, clip_norm=7, early_stop=0.1, max_groups=lambda: 9))
"""Two that share no value: an aggregator that a text makes in both is decided by the text alone."""


def _spec_of_entry(aggregator: Aggregator, entry: Entry) -> Spec:
    """Return every parameter of an aggregator, so that no default can change it; 0 means None."""
    values: dict[str, Any] = {}
    for name, parameter in signature_of(entry.make).parameters.items():
        value = getattr(aggregator, name, None)
        if name in entry.parameters and not (value is None and parameter.default is None):
            values[name] = 0 if value is None else value
    spec = Spec(entry.name, values)
    if any(build(str(spec), context=context) != aggregator for context in _CONTEXTS):
        msg = f"{aggregator!r} has parameters that no text gives: name it in a module of yours"
        raise PluginError(msg)
    return spec


def _own_entry(name: str) -> Entry:
    """Return an entry for a user's own class or value."""
    kinds = (SumAggregator, ClearAggregator)
    wanted = "a SumAggregator or a ClearAggregator, or a class of them"
    loaded: Any = load_plugin(name, (type, *kinds), wanted)
    kind: Any = loaded if isinstance(loaded, type) else type(loaded)
    if not issubclass(kind, kinds):
        msg = f"{name!r} must be {wanted}, but it is the class {kind.__name__}"
        raise InvalidValueError(msg)
    make = loaded if isinstance(loaded, type) else lambda: loaded
    return Entry(name, f"your own: {kind.__name__}", make, cast("type[Any]", kind))


def _fedavg(context: Context, clip_norm: float = 0) -> Mean:
    return Mean(clip_norm=clip_norm_of(clip_norm, context))


def clip_norm_of(clip_norm: float, context: Context, *, used: bool = True) -> float:
    """Return the length to which a mean clips updates; 0 means the usual length.

    Raises:
        InvalidValueError: if there is noise, which would drown the usual length.
    """
    if context.noise and used and not clip_norm:
        msg = "noise is as large as the clip norm of a mean: give clip_norm, about the length "
        msg += "of an update, or take adaptive-clipping, which learns it, or rfa-one-step"
        raise InvalidValueError(msg)
    return clip_norm or context.clip_norm


def _rfa(  # noqa: PLR0913
    *,
    context: Context,
    budget: int = 3,
    nu: float = 0,
    start: str = "current",
    schedule: str = "plain",
    clip_norm: float = 0,
    early_stop: float | Literal["auto"] | None = "auto",
) -> SumAggregator[Any]:
    if early_stop == "auto":
        early_stop = context.early_stop if schedule == "plain" else None
    return compose_rfa(
        budget=budget,
        nu=nu or None,
        start=start,
        schedule=schedule,
        clip_norm=clip_norm_of(clip_norm, context, used=start == "mean"),
        early_stop=early_stop or None,
    )


def _one_step(nu: float = 0) -> OneStepRFA:
    return OneStepRFA(nu=nu or None)


def _centered_clipping(clip_norm: float = 0, budget: int = 3) -> CenteredClipping:
    return CenteredClipping(clip_norm=clip_norm or None, budget=budget)


def _adaptive_clipping() -> Mean:
    return Mean(clip_norm=None)


def _bucketing(context: Context, groups: int = 0, clip_norm: float = 0) -> Groups:
    return Groups(_fedavg(context, clip_norm), groups or context.max_groups())


def _trimmed_mean(context: Context, fraction: float | None = None) -> TrimmedMean:
    return TrimmedMean(context.corrupted if fraction is None else fraction)


def _norm_clipping(quantile: float = 0, clip_norm: float = 0) -> NormClipping:
    if not quantile and not clip_norm:
        return NormClipping(quantile=0.5)
    return NormClipping(quantile=quantile or None, clip_norm=clip_norm or None)


def _mixed_median(  # noqa: PLR0913
    *,
    context: Context,
    corrupted: int | None = None,
    corrupted_fraction: float | None = None,
    clip_norm: float = 0,
    nu: float = 0,
    budget: int = 3,
) -> ClearAggregator:
    kind = functools.partial(MixedMedian, clip_norm=clip_norm or None, nu=nu or None, budget=budget)
    return _assuming(kind)(context, corrupted, corrupted_fraction)


def _assuming(kind: Callable[..., ClearAggregator]) -> Callable[..., ClearAggregator]:
    """Return a function that makes an aggregator that assumes some points to be corrupted."""

    def make(
        context: Context, corrupted: int | None = None, corrupted_fraction: float | None = None
    ) -> ClearAggregator:
        if corrupted is None and corrupted_fraction is None:
            corrupted_fraction = context.corrupted
        return kind(corrupted=corrupted, corrupted_fraction=corrupted_fraction)

    return make


_CLEAR = "; sees single updates"
ENTRIES = {
    entry.name: entry
    for entry in (
        Entry("fedavg", "the weighted mean (FedAvg)", _fedavg, Mean),
        Entry("rfa", "the geometric median by Weiszfeld steps (Algorithms 1 and 2)", _rfa, RFA),
        Entry("rfa-one-step", "one Weiszfeld step (Algorithm 3)", _one_step, OneStepRFA),
        Entry("sgd", "minibatch SGD: one local step, then the mean", _fedavg, Mean, 1, False),
        Entry(
            "centered-clipping",
            "steps by the mean of clipped differences",
            _centered_clipping,
            CenteredClipping,
        ),
        Entry("adaptive-clipping", "the mean, clipped to a learned norm", _adaptive_clipping, Mean),
        Entry(
            "block-clipping",
            "the mean, each block of coordinates clipped to a learned radius",
            BlockClipping,
            BlockClipping,
        ),
        Entry("bucketing", "the geometric median of the means of groups", _bucketing, Groups),
        Entry(
            "coordinate-median",
            f"the median of each coordinate{_CLEAR}",
            CoordinateMedian,
            CoordinateMedian,
        ),
        Entry("trimmed-mean", f"coordinates without extremes{_CLEAR}", _trimmed_mean, TrimmedMean),
        Entry("norm-clipping", f"the mean, clipped{_CLEAR}", _norm_clipping, NormClipping),
        Entry("krum", f"the update with the nearest neighbors{_CLEAR}", _assuming(Krum), Krum),
        Entry("multi-krum", f"the mean of such updates{_CLEAR}", _assuming(MultiKrum), MultiKrum),
        Entry("meamed", f"the mean around the median{_CLEAR}", _assuming(MeaMed), MeaMed),
        Entry("bulyan", f"the same over Krum's choices{_CLEAR}", _assuming(Bulyan), Bulyan),
        Entry(
            "nnm",
            f"nearest-neighbor mixing, then the trimmed mean{_CLEAR}",
            _assuming(NearestNeighborMixing),
            NearestNeighborMixing,
        ),
        Entry(
            "dnc", f"the mean without outliers along the top direction{_CLEAR}", _assuming(DnC), DnC
        ),
        Entry("flame", f"a majority by angles, clipped, with noise{_CLEAR}", FLAME, FLAME),
        Entry("signguard", f"usual lengths, usual signs, clipped{_CLEAR}", SignGuard, SignGuard),
        Entry("fltrust", f"by the angle with the server's own update{_CLEAR}", FLTrust, FLTrust),
        Entry(
            "server-alone",
            "the server's own update, whatever devices send",
            ServerAlone,
            ServerAlone,
            defends=False,
        ),
        Entry(
            "nnm-median",
            f"clipping, mixing, then the geometric median{_CLEAR}",
            _mixed_median,
            MixedMedian,
        ),
    )
}
"""The aggregators of rfa. A new one takes one file and one entry here."""
