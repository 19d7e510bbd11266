"""The rules on several sums of the same updates, which a server with other terms may break.

A receipt of such a round is valid, because it records what was done. But the sums may reveal single
devices, so the verification warns its reader.
"""

from __future__ import annotations

from rfa.receipts.parts import CheckedPart
from rfa.receipts.receipt import sum_name
from rfa.secagg.errors import ExposingSumError
from rfa.secagg.security.parameters import HONEST_PER_QUERY, Parameters, honest_needed
from rfa.secagg.security.rules import Answered, require_many_beyond


def broken_rules(part: CheckedPart) -> list[str]:
    """Return in words which rules on several sums a part breaks."""
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
