"""The matrix of an arena for each level, and the ranks of its defenses.

The worst case of a defense is the attack with its lowest mean over seeds; `worst_case` computes its
interval, and the best defenses. A rank is one plus the number of defenses ahead; defenses that show
the same number share a rank.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rfa.aggregators import RFA, OneStepRFA
from rfa.aggregators.registry import find
from rfa.lab.attacks.registry import NONE
from rfa.lab.report.exhibit import Entry, Exhibit, Matrix, Spread, Table, Value, group
from rfa.lab.report.gather import INTERVAL, LABELS, Result, gather, height, told_first
from rfa.lab.report.worst_case import WorstCase, best_defenses, worst_case
from rfa.lab.runs.headline import ALL, HONEST
from rfa.lab.runs.sweep import Part, Sweep

BACKDOOR, MEAN = "backdoor", "fedavg"
CLEAN, WORST = "no corruption", "worst case"
LOST = "\u00d7"
BEST = "Bold: ahead in its row"
TESTED = f"{BEST}; in the worst case, behind no other, and ahead of fedavg if any is (5 % level)"
PRIVATE, SEEING = "under the secure sum", "see single updates"
SHOWN = 1
"""The decimals of an accuracy."""
OURS = (RFA, OneStepRFA)
"""The aggregators of the paper, whose ranks are shown."""


@dataclass(frozen=True)
class Score:
    """The final results of one attack against one defense."""

    spread: Spread  # their accuracies: over all devices, or over honest ones (`Bout.measure`)
    diverged: int = 0  # the number of runs that diverged
    backdoor: float = math.nan  # the mean success of a backdoor, in per cent
    overall: float = math.nan  # the mean accuracy over all devices
    honest: float = math.nan  # the mean accuracy over honest devices
    by_seed: Mapping[int, float] = dataclasses.field(default_factory=dict[int, float])
    """The accuracies by seed."""
    fooled: Mapping[int, float] = dataclasses.field(default_factory=dict[int, float])
    """The success of a backdoor by seed, in per cent."""

    @property
    def note(self) -> str:
        """A note for the reader."""
        count = len(self.spread.values)
        lost = f"{self.diverged} of {count} diverged" if self.diverged else ""
        band = f"{self.spread.low:.1f} to {self.spread.high:.1f}" if count > 1 else ""
        return ", ".join(filter(None, (band, lost)))


@dataclass(frozen=True)
class Bout:
    """One level of an arena."""

    panel: Part
    attacks: Sequence[str]
    defenses: Mapping[str, str]  # the aggregator of each, by its label, in the order of columns
    scores: Mapping[tuple[str, str], Score]  # by attack (or none) and defense
    private: Sequence[str]  # the defenses that can run under the secure sum, set up as they are
    measure: str = ALL  # what is shown: the accuracy over all devices, or that over honest ones

    @property
    def ours(self) -> list[str]:
        """The defenses of the paper."""
        return [label for label, text in self.defenses.items() if find(text).kind in OURS]

    def score(self, attack: str, defense: str) -> Score:
        """Return the results under an attack, or in the worst case; empty if there were no runs."""
        which = self.worst(defense) if attack == WORST else attack
        return self.scores.get((which, defense), Score(Spread()))

    def heights(self, attack: str) -> dict[str, float]:
        """Return the accuracies of all defenses under an attack, or in their worst cases."""
        return {defense: self.score(attack, defense).spread.mean for defense in self.defenses}

    def beside(self, attack: str, defense: str) -> float:
        """Return the mean accuracy that the matrix does not show."""
        score = self.score(attack, defense)
        return score.overall if self.measure == HONEST else score.honest

    def known(self, defense: str) -> dict[str, float]:
        """Return the accuracies of a defense under the attacks that were run."""
        means = {attack: self.score(attack, defense).spread.mean for attack in self.attacks}
        return {attack: mean for attack, mean in means.items() if math.isfinite(mean)}

    def worst(self, defense: str) -> str:
        """Return the attack that harms a defense most; empty if there were no runs."""
        known = self.known(defense)
        return min(known, key=known.__getitem__, default="")

    def by_seed(self, defense: str) -> dict[str, Mapping[int, float]]:
        """Return the accuracies of a defense under each attack, by seed."""
        return {attack: self.score(attack, defense).by_seed for attack in self.attacks}

    def case(self, defense: str) -> WorstCase:
        """Return the worst case of a defense, with its interval."""
        return worst_case(self.by_seed(defense))

    def backdoor_case(self, defense: str) -> WorstCase:
        """Return the backdoor that works best against a defense, with its interval."""
        tried = {attack: self.score(attack, defense).fooled for attack in self.attacks}
        least = worst_case({a: {s: -v for s, v in by.items()} for a, by in tried.items()})
        return WorstCase(least.attack, -least.mean, -least.high, -least.low, least.seeds)

    @cached_property
    def best(self) -> set[str] | None:
        """The defenses that are not shown to be behind another; None if there is no test."""
        return self._best(self.defenses)

    @cached_property
    def best_private(self) -> set[str] | None:
        """The same among the private ones."""
        return self._best(self.private)

    def _best(self, among: Iterable[str]) -> set[str] | None:
        mean = next((label for label, text in self.defenses.items() if text == MEAN), "")
        return best_defenses({defense: self.by_seed(defense) for defense in among}, mean)


def rank(heights: Mapping[str, float], name: str, among: Iterable[str] | None = None) -> int | None:
    """Return one plus the number of defenses ahead; None if its height is unknown."""
    if not math.isfinite(heights[name]):
        return None
    shown = {other: round(accuracy, SHOWN) for other, accuracy in heights.items()}
    return 1 + sum(shown[other] > shown[name] for other in among or heights)


def bouts(sweep: Sweep, results: Sequence[Result]) -> list[Bout]:
    """Return the levels of an arena for which there are runs."""
    defenses = {line.name: str(line.settings["aggregator"]) for line in sweep.lines}
    attacks = [str(value) for value in sweep.values if value != NONE]
    by_panel = group(results, lambda result: result.cell.panel)
    levels: list[Bout] = []
    for panel in sweep.panels:
        runs = by_panel.get(panel.name, [])
        if runs:
            one_of = {run.cell.line: run.cell.settings for run in runs}
            private = [name for name in defenses if name in one_of and one_of[name].can_be_secure]
            scores = _scores(runs, told_first(sweep))
            levels.append(Bout(panel, attacks, defenses, scores, private, told_first(sweep)))
    return levels


def _scores(results: Sequence[Result], measure: str) -> dict[tuple[str, str], Score]:
    by_place = group(results, lambda result: (str(result.cell.value), result.cell.line))
    return {place: _score(runs, measure) for place, runs in by_place.items()}


def _score(runs: Sequence[Result], measure: str) -> Score:
    names = (BACKDOOR, ALL, HONEST)
    fooled, overall, honest = (Spread([run.at_end(name) for run in runs]).mean for name in names)
    return Score(
        Spread([run.at_end(measure) for run in runs]),
        sum(run.diverged for run in runs),
        fooled,
        overall,
        honest,
        by_seed={run.cell.settings.seed: run.at_end(measure) for run in runs},
        fooled={run.cell.settings.seed: run.at_end(BACKDOOR) for run in runs},
    )


def gather_arena(sweep: Sweep, results: Sequence[Result], **about: Any) -> Exhibit:
    """Return the exhibit of an arena: a matrix for each level, ranks, and tables."""
    sweep_exhibit = gather(sweep, results, **about)
    horizons = {panel.title: panel.note for panel in sweep_exhibit.panels}
    levels = bouts(sweep, results)
    several = len({panel.settings["task"] for panel in sweep.panels}) > 1
    matrices = [_matrix(bout, horizons[bout.panel.name], several=several) for bout in levels]
    tables = [_ranks(levels), _worst_cases(levels), *_backdoors(sweep, results)]
    tables += [*_backdoor_cases(levels), *sweep_exhibit.tables]
    return dataclasses.replace(sweep_exhibit, panels=(), matrices=matrices, tables=tables)


def _matrix(bout: Bout, horizon: str, *, several: bool) -> Matrix:
    entries = [_row(bout, attack) for attack in (NONE, *bout.attacks, WORST)]
    ranks = [f"{label} {place}" for label in bout.ours if (place := _place(bout, WORST, label))]
    lost = any(entry.mark for row in entries for entry in row)
    bold = BEST if bout.best is None else TESTED
    notes = [
        f"Rank in the worst case: {'; '.join(ranks)}" if ranks else "",
        f"{bold}, {LOST}: runs diverged" if lost else bold,
        horizon,
    ]
    return Matrix(
        title=bout.panel.name,
        label=LABELS[bout.measure],
        rows=[CLEAN, *bout.attacks, WORST],
        columns=list(bout.defenses),
        entries=entries,
        groups=[PRIVATE if defense in bout.private else SEEING for defense in bout.defenses],
        summary=1,
        view=str(bout.panel.settings["task"]) if several else "",
        note=". ".join(filter(None, notes)) + ".",
    )


def _row(bout: Bout, attack: str) -> list[Entry]:
    heights = bout.heights(attack)
    entries: list[Entry] = []
    for defense, accuracy in heights.items():
        score = bout.score(attack, defense)
        note = _worst_note(bout, defense) if attack == WORST else score.note
        note = ", ".join(filter(None, (note, _beside_note(bout, attack, defense))))
        best = rank(heights, defense) == 1
        if attack == WORST and bout.best is not None:
            best = defense in bout.best
        entries.append(Entry(accuracy, LOST if score.diverged else "", note, best))
    return entries


def _worst_note(bout: Bout, defense: str) -> str:
    """Return the name of the worst attack, and of how many attacks if some were not run."""
    known, total = len(bout.known(defense)), len(bout.attacks)
    some = f"of {known} of {total} attacks" if known < total else ""
    case = bout.case(defense)
    band = f"95 % {case.low:.1f} to {case.high:.1f}" if math.isfinite(case.low) else ""
    return ", ".join(filter(None, (bout.worst(defense), band, some)))


def _beside_note(bout: Bout, attack: str, defense: str) -> str:
    """Return the accuracy that the matrix does not show, if some devices are corrupted."""
    other = bout.beside(attack, defense)
    if attack == NONE or not math.isfinite(other):
        return ""
    return f"{'all' if bout.measure == HONEST else 'honest'} devices {other:.{SHOWN}f}"


def _place(bout: Bout, attack: str, label: str) -> str:
    """Return a rank among all, and among the private ones if not all are private."""
    heights = bout.heights(attack)
    known = [name for name, accuracy in heights.items() if math.isfinite(accuracy)]
    among = [name for name in bout.private if name in known]
    if label not in known:
        return ""
    words = f"{rank(heights, label)} of {len(known)}"
    if len(among) < len(known):
        words += f" ({rank(heights, label, among)} of {len(among)} private)"
    return words


def _ranks(levels: Sequence[Bout]) -> Table:
    """Return the table of the best defense under each attack, and the ranks of the paper's."""
    ours = levels[0].ours if levels else []
    head = ["panel", "attack", "ahead", "accuracy (%)", *(f"rank of {label}" for label in ours)]
    rows: list[list[Value]] = []
    for bout in levels:
        for attack in (NONE, *bout.attacks, WORST):
            heights = bout.heights(attack)
            ahead = [name for name in heights if rank(heights, name) == 1]
            best = heights[ahead[0]] if ahead else None
            places = [_place(bout, attack, label) or None for label in ours]
            names = ", ".join(ahead) or None
            rows.append([bout.panel.name, _attack_name(attack), names, best, *places])
    return Table("Who is ahead", head, rows)


def _worst_cases(levels: Sequence[Bout]) -> Table:
    """Return the table of worst cases with intervals, the best first, and the best defenses."""
    head = ["panel", "defense", "private", "worst attack", "accuracy (%)", *INTERVAL, "seeds"]
    head += ["among the best", "among the best private"]
    rows: list[list[Value]] = []
    for bout in levels:
        cases = {defense: bout.case(defense) for defense in bout.defenses}
        known = [defense for defense, case in cases.items() if case.attack]
        for defense in sorted(known, key=lambda name: -cases[name].mean):
            private = defense in bout.private
            best = [_yes(defense, bout.best), _yes(defense, bout.best_private) if private else None]
            told = [bout.panel.name, defense, "yes" if private else "no"]
            rows.append([*told, *_case_cells(cases[defense]), *best])
    return Table("Worst cases", head, rows)


def _backdoor_cases(levels: Sequence[Bout]) -> list[Table]:
    """Return the backdoor that works best against each defense, with its interval."""
    head = ["panel", "defense", "private", "worst attack", "success (%)", *INTERVAL, "seeds"]
    rows: list[list[Value]] = []
    for bout in levels:
        cases = {defense: bout.backdoor_case(defense) for defense in bout.defenses}
        known = [defense for defense, case in cases.items() if case.attack]
        for defense in sorted(known, key=lambda name: cases[name].mean):
            private = "yes" if defense in bout.private else "no"
            rows.append([bout.panel.name, defense, private, *_case_cells(cases[defense])])
    return [Table("The backdoor that works best", head, rows)] if rows else []


def _case_cells(case: WorstCase) -> list[Value]:
    ends = [end if math.isfinite(end) else None for end in (case.low, case.high)]
    return [case.attack, case.mean, *ends, case.seeds]


def _yes(name: str, among: set[str] | None) -> str | None:
    return None if among is None else "yes" if name in among else "no"


def _backdoors(sweep: Sweep, results: Sequence[Result]) -> list[Table]:
    """Return the tables of the success of backdoors by attack and defense, in percent."""
    tried = [run for run in results if run.evaluations and math.isfinite(_last_backdoor(run))]
    defenses = [line.name for line in sweep.lines]
    rows: list[list[Value]] = []
    by_attack = group(tried, lambda run: (run.cell.panel, str(run.cell.value)))
    for (panel, attack), runs in by_attack.items():
        by_defense = group(runs, lambda run: run.cell.line)
        means = {
            name: Spread([_last_backdoor(run) for run in some]).mean
            for name, some in by_defense.items()
        }
        rows.append([panel, _attack_name(attack), *(means.get(name) for name in defenses)])
    head = ["panel", "attack", *defenses]
    return [Table("How often the backdoor works (%)", head, rows)] if rows else []


def _last_backdoor(result: Result) -> float:
    return height(result.evaluations[-1], BACKDOOR)


def _attack_name(attack: str) -> str:
    return CLEAN if attack == NONE else attack
