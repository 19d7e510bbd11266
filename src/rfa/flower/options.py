"""What speaks against the options of a strategy, before a round is played."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rfa._checks import check_count, check_number
from rfa.errors import InvalidValueError
from rfa.flower import records as wire
from rfa.lab.settings.settings import RADII, STARTS, WEISZFELD
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.security.policy import MAX_QUERIES
from rfa.secagg.security.terms import Terms

if TYPE_CHECKING:
    from rfa.flower.strategy import RFA


def check_own(strategy: RFA) -> None:
    """Refuse options without a meaning.

    Raises:
        ValueError: naming the option.
    """
    if strategy.nu is not None:
        check_number("nu", strategy.nu, positive=True)
    for name in ("radius", "example_cap", "stage_timeout"):
        check_number(name, getattr(strategy, name), positive=True)
    check_number("node_timeout", strategy.node_timeout)
    for reason in _reasons(strategy):
        raise InvalidValueError(reason)


def _reasons(strategy: RFA) -> Iterator[str]:
    for name, radius in (("nu", strategy.nu), ("radius", strategy.radius)):
        if radius is not None and not RADII[0] <= radius <= RADII[1]:
            yield f"{name} must be from {RADII[0]:g} to {RADII[1]:g}"
    if strategy.budget > MAX_QUERIES:
        yield f"budget={strategy.budget}: devices answer at most {MAX_QUERIES} sums a round"
    if wire.KEY in (strategy.arrayrecord_key, strategy.configrecord_key):
        yield f"{wire.KEY!r} is the key of rfa's own record: give another"
    if strategy.personal and not wire.NAME.fullmatch(str(strategy.personal)):
        yield f"personal must be letters, digits and _.-, not {strategy.personal!r}"
    yield from _algorithm_reasons(strategy)
    yield from _trust_reasons(strategy)


def _algorithm_reasons(strategy: RFA) -> Iterator[str]:
    start, how = strategy.start_at, strategy.weiszfeld
    for name, value, known in (("start", start, STARTS), ("weiszfeld", how, WEISZFELD)):
        if value not in known:
            yield f"{name} must be one of {', '.join(known)}, not {value!r}"
    if how != "plain" and not strategy.stepped:
        yield f"weiszfeld={how} is for RFA, not for {type(strategy).__name__}"
    if start == "mean" and strategy.budget == 1:
        yield "budget=1 leaves no Weiszfeld step after the mean: give 2 or more, or start=zero"
    if how == "sub-cohorts" and start != "zero":
        yield f"sub-cohorts start at the current model: give start=zero, not {start}"
    if how == "sub-cohorts" and strategy.groups > 1:
        yield "a cohort is asked in groups or in sub-cohorts, not both: give groups=1"


def _trust_reasons(strategy: RFA) -> Iterator[str]:
    if strategy.terms.server_model != ServerModel.MALICIOUS:
        return
    if strategy.sums > 1:
        yield (
            "nodes that do not trust the server answer one question a round, not "
            f"{strategy.sums}: use OneStepRFA, or weiszfeld=sub-cohorts"
        )
    if not isinstance(strategy.identities, Mapping):
        yield "nodes that do not trust the server sign their keys: give identities, by node"


def check_usual(usual: dict[str, Any], terms: Terms, strategy: RFA) -> None:
    """Refuse options of FedAvg that need single nodes, and fill in the least numbers of nodes.

    These follow from the parts, so the counts that make them are looked at here, too.
    """
    for name in ("budget", "groups"):
        check_count(name, getattr(strategy, name))
    for name in ("train_metrics_aggr_fn", "evaluate_metrics_aggr_fn"):
        if usual.get(name) is not None:
            msg = f"{name} would need the metrics of single nodes, and there are only sums of them"
            raise InvalidValueError(msg)
    if not isinstance(terms, Terms):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"terms must be Terms(...), such as Terms(max_dropout_fraction=0.3), not {terms!r}"
        raise InvalidValueError(msg)
    for name in ("fraction_train", "fraction_evaluate"):
        check_number(name, usual.get(name, 1.0))
        if usual.get(name, 1.0) > 1:
            msg = f"{name} must be at most 1, not {usual[name]}"
            raise InvalidValueError(msg)
    parts = strategy.parts
    sums = {"min_train_nodes": parts, "min_evaluate_nodes": 1, "min_available_nodes": parts}
    for name, count in sums.items():
        least = count * terms.smallest()
        check_count(name, usual.setdefault(name, least))
        if usual[name] < least:
            what = "a secure sum" if count == 1 else f"{count} secure sums at once"
            msg = f"{name}={usual[name]}: {what} under {terms} needs {least} nodes or more"
            raise InvalidValueError(msg)
