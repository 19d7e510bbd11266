"""The rules on several sums about the same updates, which a server with other terms may break.

A receipt of such a round holds, for it says what was done; but the sums may tell of single devices,
and whoever reads it is to know.
"""

from __future__ import annotations

from rfa.receipts.parts import CheckedPart
from rfa.receipts.receipt import sum_name
from rfa.secagg.errors import ExposingSumError
from rfa.secagg.security.parameters import HONEST_PER_QUERY, Parameters, honest_needed
from rfa.secagg.security.rules import Answered, require_many_beyond


def broken_rules(part: CheckedPart) -> list[str]:
    """What a part does not keep of the rules on several sums, in words."""
    if part.cohort is None:
        return []
    parameters, queries = part.cohort.parameters, part.opening.queries
    needed = honest_needed(queries)
    words: list[str] = []
    if parameters.honest < needed:
        words.append(
            f"part {part.number}: fewer honest devices than {queries} sums take: "
            f"{parameters.honest}, and {needed} are needed"
        )
    return words + _exposing(part, parameters)


def _exposing(part: CheckedPart, parameters: Parameters) -> list[str]:
    """The sums that were asked for while few devices were beyond the radius."""
    words: list[str] = []
    last: Answered | None = None
    for index, opened in enumerate(part.sums):
        try:
            if not part.opening.is_second(index):
                require_many_beyond(parameters, last, opened.record.nu, HONEST_PER_QUERY)
        except ExposingSumError:
            words.append(
                f"{sum_name(part.number, index)} was asked for with too few devices beyond the "
                "radius to hide each other"
            )
        if opened.record.vector:
            last = Answered(last.queries + 1 if last else 1, opened.record.nu, opened.total.sum)
    return words
