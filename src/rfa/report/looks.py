"""How lines look, on the page and in pictures: the same for a label wherever it comes up."""

from __future__ import annotations

from rfa.report.exhibit import Exhibit

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d31")
"""Okabe and Ito's, which colour-blind readers can tell apart; the style sheet has the same."""
FIXED = {"RFA": 0, "FedAvg": 1, "one-step RFA": 2}
"""Lines that look the same in every exhibit."""


def looks(exhibit: Exhibit) -> dict[str, int]:
    """A number for each label of an exhibit, which decides colour and mark.

    A bound has the number of the line that it bounds, if its name begins with that line's.
    """
    dashed = {line.label: line.dashed for panel in exhibit.panels for line in panel.lines}
    found = {label: FIXED[label] for label in dashed if label in FIXED}
    free = iter(n for n in range(len(dashed) + len(FIXED)) if n not in found.values())
    for label, bound in dashed.items():
        owner = next((name for name in found if label.startswith(f"{name}, ")), None)
        if label not in found:
            found[label] = found[owner] if bound and owner else next(free)
    return found
