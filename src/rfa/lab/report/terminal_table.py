"""A level of an arena in the terminal and as JSON: the defenses, by their worst cases."""

from __future__ import annotations

import math
from typing import Any

from rich.table import Table

from rfa.lab.attacks.registry import NONE
from rfa.lab.report.arena import CLEAN, LOST, WORST, Bout, Score, rank
from rfa.lab.runs.headline import HONEST

NARROW = 84
"""The letters of a line beside the attacks."""


def level_table(bout: Bout, width: int) -> Table:
    """The defenses of a level, the best in the worst case first; attacks, where they fit."""
    attacks = [*bout.attacks]
    names = [*attacks, max(attacks, key=len), max(bout.defenses, key=len)]
    if NARROW + sum(len(name) + 2 for name in names) > width:
        attacks.clear()
    worst = bout.heights(WORST)
    order = sorted(worst, key=lambda name: -worst[name] if math.isfinite(worst[name]) else 1.0)
    personalized = bout.measure == HONEST
    title = bout.panel.name + (": accuracy of honest devices" if personalized else "")
    table = Table(title=title, box=None, title_justify="left", title_style="bold")
    beside = "all" if personalized else "honest"
    tested = () if bout.best is None else ("95 %", "best")
    for name in ("rank", "defense", "private", CLEAN, *attacks, WORST, *tested, beside, "by"):
        table.add_column(name, justify="left" if name in ("defense", "by") else "right")
    for defense in order:
        table.add_row(
            str(rank(worst, defense) or "-"),
            defense,
            "yes" if defense in bout.private else "no",
            *(_number(bout.score(attack, defense)) for attack in (NONE, *attacks, WORST)),
            *(_tested(bout, defense) if tested else ()),
            _plain_number(bout.beside(WORST, defense)),
            bout.worst(defense) or "-",
        )
    table.caption = backdoors(bout)
    table.caption_justify = "left"
    return table


def _tested(bout: Bout, defense: str) -> tuple[str, str]:
    """The interval of a worst case, and whether no other is shown to be ahead."""
    case = bout.case(defense)
    band = f"{case.low:.1f} to {case.high:.1f}" if math.isfinite(case.low) else "-"
    return band, "yes" if defense in (bout.best or ()) else "no"


def backdoors(bout: Bout) -> str | None:
    """How often backdoors work, where there are such: accuracy does not tell."""
    cases = {defense: bout.backdoor_case(defense) for defense in bout.defenses}
    known = {defense: case.mean for defense, case in cases.items() if case.attack}
    if not known:
        return None
    parts = (f"{defense} {share:.0f} %" for defense, share in known.items())
    return f"The backdoor works: {', '.join(parts)}"


def _number(score: Score) -> str:
    mark = LOST if score.diverged else ""
    return f"{score.spread.mean:.1f}{mark}" if score.spread.values else "-"


def _plain_number(percent: float) -> str:
    return f"{percent:.1f}" if math.isfinite(percent) else "-"


def to_plain(bout: Bout) -> dict[str, Any]:
    """A level as `--json` prints it, accuracies as shares.

    Lowest, highest, worst and ranks are those of the "measure"; low and high are the 95 % interval
    of the worst case, and the best are those that no other is shown to be ahead of.
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
