"""A level of an arena in the terminal and as JSON: defenses ranked by their worst case."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from rfa.lab.attacks.registry import NONE
from rfa.lab.report.arena import LOST, WORST, Bout, Score, rank
from rfa.lab.runs.headline import HONEST

Columns = dict[str, list[str]]

LEFT = ("defense", "by")
"""Columns of names; all others are numbers, aligned to the right."""
LEAST = ("honest", "all", "rank")
"""Columns that a narrow terminal omits, after the attacks."""
GAP = 2


def level_table(bout: Bout, width: int) -> Table:
    """Return a level as a table: the defenses, the best in the worst case first.

    It has a column for each attack if these fit into `width`. No name is cut or broken: a narrow
    terminal shows fewer columns.
    """
    columns = _columns(bout)
    dropped = [*([bout.attacks] if bout.attacks else []), *([name] for name in LEAST)]
    while dropped and _width(columns) > width:
        for name in dropped.pop(0):
            columns.pop(name, None)
    title = bout.panel.name
    title += ": accuracy of honest devices" if bout.measure == HONEST else ": accuracy in %"
    table = Table(title=title, box=None, title_justify="left", title_style="bold")
    table.padding, table.pad_edge = (0, GAP, 0, 0), False
    for name in columns:
        table.add_column(name, justify="left" if name in LEFT else "right", no_wrap=True)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    lost = any(LOST in cell for cells in columns.values() for cell in cells)
    notes = [f"{LOST} a run diverged" if lost else None, backdoors(bout)]
    table.caption = "\n".join(filter(None, notes)) or None
    table.caption_justify = "left"
    return table


def _columns(bout: Bout) -> Columns:
    """Return the cells of a level by column, best defense first."""
    worst = bout.heights(WORST)
    order = sorted(worst, key=lambda name: -worst[name] if math.isfinite(worst[name]) else 1.0)
    beside = "all" if bout.measure == HONEST else "honest"
    return {
        "rank": [str(rank(worst, defense) or "-") for defense in order],
        "defense": order,
        "private": ["yes" if defense in bout.private else "no" for defense in order],
        "clean": [_number(bout.score(NONE, defense)) for defense in order],
        **{
            attack: [_number(bout.score(attack, defense)) for defense in order]
            for attack in bout.attacks
        },
        "worst": [_number(bout.score(WORST, defense)) for defense in order],
        **_tested(bout, order),
        beside: [_plain_number(bout.beside(WORST, defense)) for defense in order],
        "by": [bout.worst(defense) or "-" for defense in order],
    }


def _width(columns: Columns) -> int:
    return sum(GAP + max(map(len, (name, *cells))) for name, cells in columns.items()) - GAP


def _tested(bout: Bout, order: Sequence[str]) -> Columns:
    """Return the intervals of worst cases, and whether no other defense is shown to be ahead."""
    if bout.best is None:
        return {}
    cases = [bout.case(defense) for defense in order]
    return {
        "95 %": [f"{c.low:.1f} to {c.high:.1f}" if math.isfinite(c.low) else "-" for c in cases],
        "best": ["yes" if defense in bout.best else "no" for defense in order],
    }


def backdoors(bout: Bout) -> str | None:
    """Return how often the trigger of a backdoor works, which accuracy does not show."""
    cases = {defense: bout.backdoor_case(defense) for defense in bout.defenses}
    known = {defense: case.mean for defense, case in cases.items() if case.attack}
    if not known:
        return None
    parts = (f"{defense}\u00a0{share:.0f}%" for defense, share in known.items())
    return f"Inputs with the trigger that fool the model: {', '.join(parts)}"


def _number(score: Score) -> str:
    mark = LOST if score.diverged else ""
    return f"{score.spread.mean:.1f}{mark}" if score.spread.values else "-"


def _plain_number(percent: float) -> str:
    return f"{percent:.1f}" if math.isfinite(percent) else "-"


def to_plain(bout: Bout) -> dict[str, Any]:
    """Return a level as `--json` prints it, with accuracies between 0 and 1.

    Lowest, highest, worst and ranks are those of the "measure"; low and high are the 95 % interval
    of the worst case; best defenses are those that no other is shown to be ahead of, and
    that are shown to be ahead of the mean if any is.
    """
    worst = bout.heights(WORST)
    return {
        "level": bout.panel.settings["rho"],
        "measure": bout.measure,
        "runs": [
            {
                "attack": attack,
                "defense": defense,
                "test_accuracy": _share(score.overall),
                "honest_accuracy": _share(score.honest),
                "lowest": _share(score.spread.low),
                "highest": _share(score.spread.high),
                "seeds": len(score.spread.values),
                "diverged": score.diverged,
                "backdoor": _share(score.backdoor),
            }
            for (attack, defense), score in bout.scores.items()
        ],
        "worst": [
            {
                "defense": defense,
                "private": defense in bout.private,
                "attack": bout.worst(defense) or None,
                "test_accuracy": _share(bout.score(WORST, defense).overall),
                "honest_accuracy": _share(bout.score(WORST, defense).honest),
                "low": _share(bout.case(defense).low),
                "high": _share(bout.case(defense).high),
                "rank": rank(worst, defense),
                "best": None if bout.best is None else defense in bout.best,
            }
            for defense in worst
        ],
    }


def _share(percent: float) -> float | None:
    return percent / 100 if math.isfinite(percent) else None
