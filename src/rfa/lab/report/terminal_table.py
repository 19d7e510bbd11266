"""A level of an arena in the terminal and as JSON: the defences, by their worst cases."""

from __future__ import annotations

import math
from typing import Any

from rich.table import Table

from rfa.lab.report.arena import CLEAN, LOST, WORST, Bout, rank
from rfa.lab.settings.settings import NONE

NARROW = 55
"""The letters of a line beside the attacks."""


def leaders(bout: Bout, width: int) -> Table:
    """The defences of a level, the best in the worst case first; attacks, where they fit."""
    attacks = [*bout.attacks]
    names = [*attacks, max(attacks, key=len), max(bout.defences, key=len)]
    if NARROW + sum(len(name) + 2 for name in names) > width:
        attacks.clear()
    worst = bout.heights(WORST)
    order = sorted(worst, key=lambda name: -worst[name] if math.isfinite(worst[name]) else 1.0)
    table = Table(title=bout.panel.name, box=None, title_justify="left", title_style="bold")
    for name in ("rank", "defence", "private", CLEAN, *attacks, WORST, "by"):
        table.add_column(name, justify="left" if name in ("defence", "by") else "right")
    for defence in order:
        shown = [_number(bout, attack, defence) for attack in (NONE, *attacks)]
        attack, _ = bout.worst(defence)
        place = rank(worst, defence)
        table.add_row(
            "-" if place is None else str(place),
            defence,
            "yes" if defence in bout.private else "no",
            *shown,
            _number(bout, attack, defence),
            attack or "-",
        )
    table.caption = backdoors(bout)
    table.caption_justify = "left"
    return table


def backdoors(bout: Bout) -> str | None:
    """How often backdoors work, where there are such: accuracy does not tell."""
    known = {
        defence: score.backdoor
        for (attack, defence), score in bout.scores.items()
        if attack != NONE and math.isfinite(score.backdoor)
    }
    if not known:
        return None
    parts = (f"{defence} {share:.0f} %" for defence, share in known.items())
    return f"The backdoor works: {', '.join(parts)}"


def _number(bout: Bout, attack: str, defence: str) -> str:
    score = bout.scores.get((attack, defence))
    return f"{score.spread.mean:.1f}{LOST if score.diverged else ''}" if score else "-"


def to_plain(bout: Bout) -> dict[str, Any]:
    """A level as `--json` prints it, accuracies as shares."""
    worst = bout.heights(WORST)
    return {
        "level": bout.panel.settings["rho"],
        "runs": [
            {
                "attack": attack,
                "defence": defence,
                "test_accuracy": _share(score.spread.mean),
                "lowest": _share(score.spread.low),
                "highest": _share(score.spread.high),
                "seeds": len(score.spread.values),
                "diverged": score.diverged,
                "backdoor": _share(score.backdoor),
            }
            for (attack, defence), score in bout.scores.items()
        ],
        "worst": [
            {
                "defence": defence,
                "private": defence in bout.private,
                "attack": bout.worst(defence)[0] or None,
                "test_accuracy": _share(height),
                "rank": rank(worst, defence),
            }
            for defence, height in worst.items()
        ],
    }


def _share(percent: float) -> float | None:
    return percent / 100 if math.isfinite(percent) else None
