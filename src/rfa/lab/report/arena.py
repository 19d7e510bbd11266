"""From the runs of an arena to a matrix for each level, and who is ahead in it.

The worst case of a defense is the attack under which it ends lowest; a rank counts who is ahead of
it, and those who are shown with the same number share a rank.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rfa.aggregators import RFA, OneStepRFA
from rfa.aggregators.registry import find
from rfa.lab.report.exhibit import Entry, Exhibit, Matrix, Spread, Table, Value
from rfa.lab.report.gather import LABELS, Result, gather
from rfa.lab.runs.sweep import Part, Sweep
from rfa.lab.settings.settings import NONE

ACCURACY, BACKDOOR = "test_accuracy", "backdoor"
CLEAN, WORST = "no corruption", "worst case"
LOST = "\u00d7"
BEST = "Bold: ahead in its row"
PRIVATE, SEEING = "under the secure sum", "see single updates"
SHOWN = 1
"""The decimals of an accuracy that are shown."""
OURS = (RFA, OneStepRFA)
"""The aggregators of the paper, whose ranks are told."""


@dataclass(frozen=True)
class Score:
    """The end of the runs of one attack against one defense.

    Attributes:
        spread: their accuracies.
        diverged: how many diverged.
        backdoor: the mean success of a backdoor, in per cent; NaN where there is none.
    """

    spread: Spread
    diverged: int = 0
    backdoor: float = math.nan

    @property
    def note(self) -> str:
        """What a reader should know of it."""
        count = len(self.spread.values)
        lost = f"{self.diverged} of {count} diverged" if self.diverged else ""
        band = f"{self.spread.low:.1f} to {self.spread.high:.1f}" if count > 1 else ""
        return ", ".join(filter(None, (band, lost)))


@dataclass(frozen=True)
class Bout:
    """One level of an arena.

    Attributes:
        panel: the panel of the sweep.
        attacks: the attacks.
        defenses: the aggregator of each defense, by its label, in the order of the columns.
        scores: what came out, by attack (or none) and defense.
        private: the defenses that can run under the secure sum, set up as they are.
    """

    panel: Part
    attacks: Sequence[str]
    defenses: Mapping[str, str]
    scores: Mapping[tuple[str, str], Score]
    private: Sequence[str]

    @property
    def ours(self) -> list[str]:
        """The defenses of the paper."""
        return [label for label, text in self.defenses.items() if find(text).kind in OURS]

    def height(self, attack: str, defense: str) -> float:
        """The mean accuracy, in per cent; NaN where nothing was run."""
        score = self.scores.get((attack, defense))
        return score.spread.mean if score else math.nan

    def heights(self, attack: str) -> dict[str, float]:
        """The accuracies of all defenses under an attack, or in their worst cases."""
        if attack == WORST:
            return {defense: self.worst(defense)[1] for defense in self.defenses}
        return {defense: self.height(attack, defense) for defense in self.defenses}

    def worst(self, defense: str) -> tuple[str, float]:
        """The attack that hurts a defense most, and its accuracy under it."""
        known = {attack: self.height(attack, defense) for attack in self.attacks}
        known = {attack: value for attack, value in known.items() if math.isfinite(value)}
        least = min(known, key=lambda attack: known[attack], default="")
        return least, known.get(least, math.nan)

    def note_of_worst(self, defense: str) -> str:
        """Which attack it is, and of how many, where some were not run."""
        attack, _ = self.worst(defense)
        known = sum(math.isfinite(self.height(one, defense)) for one in self.attacks)
        some = f"of {known} of {len(self.attacks)} attacks" if known < len(self.attacks) else ""
        return ", ".join(filter(None, (attack, some)))


def rank(heights: Mapping[str, float], name: str, among: Iterable[str] | None = None) -> int | None:
    """One more than are ahead of it; None where its height is not known."""
    if not math.isfinite(heights[name]):
        return None
    shown = {other: round(height, SHOWN) for other, height in heights.items()}
    return 1 + sum(shown[other] > shown[name] for other in among or heights)


def bouts(sweep: Sweep, results: Sequence[Result]) -> list[Bout]:
    """The levels of an arena for which there are runs."""
    defenses = {line.name: str(line.settings["aggregator"]) for line in sweep.lines}
    attacks = [str(value) for value in sweep.values if value != NONE]
    found: list[Bout] = []
    for panel in sweep.panels:
        own = [result for result in results if result.cell.panel == panel.name]
        if own:
            private = {one.cell.line for one in own if one.cell.settings.can_be_secure}
            ordered = [label for label in defenses if label in private]
            found.append(Bout(panel, attacks, defenses, _scores(own), ordered))
    return found


def _scores(results: Sequence[Result]) -> dict[tuple[str, str], Score]:
    places: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        places.setdefault((str(result.cell.value), result.cell.line), []).append(result)
    return {
        place: Score(
            Spread([result.at_end(ACCURACY) for result in found]),
            sum(result.diverged for result in found),
            Spread([result.at_end(BACKDOOR) for result in found]).mean,
        )
        for place, found in places.items()
    }


def gather_arena(sweep: Sweep, results: Sequence[Result], **about: Any) -> Exhibit:
    """What an arena shows: a matrix for each level, who is ahead, and the table behind them."""
    whole = gather(sweep, results, **about)
    horizons = {panel.title: panel.note for panel in whole.panels}
    found = bouts(sweep, results)
    several = len({panel.settings["task"] for panel in sweep.panels}) > 1
    matrices = [_matrix(bout, horizons[bout.panel.name], several=several) for bout in found]
    tables = [_ranks(found), *_backdoors(found, results), *whole.tables]
    return dataclasses.replace(whole, panels=(), matrices=matrices, tables=tables)


def _matrix(bout: Bout, horizon: str, *, several: bool) -> Matrix:
    entries = [_row(bout, attack) for attack in (NONE, *bout.attacks, WORST)]
    lost = any(entry.mark for row in entries for entry in row)
    marks = f"{BEST}, {LOST}: runs diverged" if lost else BEST
    notes = [_summary(bout), marks, horizon]
    private = bout.private
    return Matrix(
        title=bout.panel.name,
        label=LABELS[ACCURACY],
        rows=[CLEAN, *bout.attacks, WORST],
        columns=list(bout.defenses),
        entries=entries,
        groups=[PRIVATE if defense in private else SEEING for defense in bout.defenses],
        summary=1,
        view=str(bout.panel.settings["task"]) if several else "",
        note=". ".join(filter(None, notes)) + ".",
    )


def _row(bout: Bout, attack: str) -> list[Entry]:
    heights = bout.heights(attack)
    return [
        _entry(bout, attack, defense, height, best=rank(heights, defense) == 1)
        for defense, height in heights.items()
    ]


def _entry(bout: Bout, attack: str, defense: str, height: float, *, best: bool) -> Entry:
    source = bout.worst(defense)[0] if attack == WORST else attack
    score = bout.scores.get((source, defense), Score(Spread()))
    note = bout.note_of_worst(defense) if attack == WORST else score.note
    return Entry(height, LOST if score.diverged else "", note, best)


def _summary(bout: Bout) -> str:
    """The ranks of the paper's aggregators in the worst case, in words."""
    parts = [f"{label} {place}" for label in bout.ours if (place := _place(bout, WORST, label))]
    return f"Rank in the worst case: {'; '.join(parts)}" if parts else ""


def _place(bout: Bout, attack: str, label: str) -> str:
    """A rank among all, and among those that are private, where not all are."""
    heights, private = bout.heights(attack), bout.private
    known = [name for name, height in heights.items() if math.isfinite(height)]
    among = [name for name in private if name in known]
    if label not in known:
        return ""
    words = f"{rank(heights, label)} of {len(known)}"
    if len(among) < len(known):
        words += f" ({rank(heights, label, among)} of {len(among)} private)"
    return words


def _ranks(found: Sequence[Bout]) -> Table:
    """Who is ahead under each attack, and where the paper's aggregators are."""
    ours = found[0].ours if found else []
    head = ["panel", "attack", "ahead", "accuracy (%)", *(f"rank of {label}" for label in ours)]
    rows: list[list[Value]] = []
    for bout in found:
        for attack in (NONE, *bout.attacks, WORST):
            heights = bout.heights(attack)
            ahead = [name for name in heights if rank(heights, name) == 1]
            name = CLEAN if attack == NONE else attack
            best = heights[ahead[0]] if ahead else None
            places = [_place(bout, attack, label) or None for label in ours]
            rows.append([bout.panel.name, name, ", ".join(ahead) or None, best, *places])
    return Table("Who is ahead", head, rows)


def _backdoors(found: Sequence[Bout], results: Sequence[Result]) -> list[Table]:
    """How often a backdoor works, where attacks plant one: by attack and defense, in per cent."""
    shares: dict[tuple[str, str], dict[str, list[float]]] = {}
    for result in results:
        last = result.evaluations[-1].get(BACKDOOR) if result.evaluations else None
        if last is not None and math.isfinite(last):
            place = result.cell.panel, str(result.cell.value)
            shares.setdefault(place, {}).setdefault(result.cell.line, []).append(100 * last)
    if not shares:
        return []
    defenses = list(found[0].defenses)
    rows: list[list[Value]] = []
    for (panel, attack), by_defense in shares.items():
        means = {defense: Spread(values).mean for defense, values in by_defense.items()}
        name = CLEAN if attack == NONE else attack
        rows.append([panel, name, *(means.get(defense) for defense in defenses)])
    return [Table("How often the backdoor works (%)", ["panel", "attack", *defenses], rows)]
