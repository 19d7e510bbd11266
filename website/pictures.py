"""The pictures in docs/assets/pictures: `python -m website.pictures` draws them again."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from website import charts, diagrams, horizon
from website.charts import NARROW, WIDE, Frame
from website.svg import STYLE, Picture

FOLDER = Path(__file__).parents[1] / "docs" / "assets" / "pictures"
CHARTS: dict[str, Callable[[Frame], Picture]] = {
    "attacks": charts.draw_attacks,
    "cost": charts.draw_cost,
    "arena": charts.draw_arena,
    "epsilon": charts.draw_epsilon,
    "tutorial-study": charts.draw_study,
    "poisoned": horizon.draw_poisoned,
    "weights": horizon.draw_weights,
    "omniscient": horizon.draw_omniscient,
}
PICTURES: dict[str, Callable[[], Picture]] = {
    "round": diagrams.draw_round,
    "round-narrow": diagrams.draw_narrow_round,
    "seam": diagrams.draw_seam,
    "seam-narrow": diagrams.draw_narrow_seam,
    "house": diagrams.draw_house,
    "house-narrow": diagrams.draw_narrow_house,
    **{name: partial(draw, WIDE) for name, draw in CHARTS.items()},
    **{f"{name}-narrow": partial(draw, NARROW) for name, draw in CHARTS.items()},
}
"""Each picture, and its narrow form for a phone."""
_IMAGE = re.compile(r'<img alt="[^"]*" src="[^"]*assets/pictures/([\w-]+)\.svg"\s*/?>')


def inline(html: str) -> str:
    """A page with its pictures as part of it, so that they have the colors of the page.

    A picture is there in its wide and in its narrow form, and the page shows the one that fits.
    """

    def load(match: re.Match[str]) -> str:
        return _span(match[1], "picture wide") + _span(f"{match[1]}-narrow", "picture narrow")

    return _IMAGE.sub(load, html)


def _span(name: str, kind: str) -> str:
    text = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    return f'<span class="{kind}">{text.replace(STYLE, "").strip()}</span>'


def main() -> None:
    """Draw all pictures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw().finish(), encoding="utf-8")


if __name__ == "__main__":
    main()
