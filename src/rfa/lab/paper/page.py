"""The page of results in the repository: pictures, numbers and verdicts, from the store.

Text above the mark is written by hand and kept; everything below it is generated.
"""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from rfa.lab.paper.claims import judge
from rfa.lab.paper.datatable import largest_classes
from rfa.lab.paper.evidence import Evidence
from rfa.lab.paper.reproduce import Experiment
from rfa.lab.paper.scale import Scale
from rfa.lab.paper.statements import ABSENT
from rfa.lab.report.exhibit import Exhibit, Table, Value, group
from rfa.lab.report.gather import INTERVAL, LABELS, find_results
from rfa.lab.report.markdown import rows, section
from rfa.lab.runs.store import Store
from rfa.lab.settings.fields import ConfigError

MARK = "<!-- made by `rfa reproduce --page`: what follows is replaced -->"
NUMBERS = "numbers.csv"
PAPER = "paper (%)"
TOLD = ("lowest", "highest", *INTERVAL, "rounds", "seeds")
CLAIM = (
    "What the paper says in its own words, what is tested of it, and what comes out. Differences "
    "are paired by seed. Confirmed: the 95 % interval lies beyond the bound; for equality, two "
    "one-sided tests at 5 % put the difference within the margin. Refuted: the interval lies on "
    "the other side. Inconclusive: neither. Open: fewer than three seeds, fewer rounds than the "
    "paper, or a model that has not learned without corruption."
)
NO_VERDICTS = (
    "What the paper says, and the numbers at hand. This scale is too short to conclude from, and "
    "all methods have the same number of rounds: there are no verdicts."
)


def collect(experiments: Sequence[Experiment], exhibits: Sequence[Exhibit], out: Path) -> Evidence:
    """The runs of the experiments, and what they show."""
    with Store(out) as store:
        results = {each.name: find_results(store, each.with_data.cells) for each in experiments}
    tasks = {result.cell.settings.task for some in results.values() for result in some}
    data = experiments[0].data if experiments else None
    return Evidence(results, {each.name: each for each in exhibits}, largest_classes(tasks, data))


def statements(evidence: Evidence, scale: Scale) -> Exhibit:
    """The verdicts on the paper's statements, as an exhibit of their own."""
    return Exhibit(
        name="statements",
        title="The paper's statements, one by one",
        claim=CLAIM if scale.verdicts else NO_VERDICTS,
        tables=[
            judge(evidence, verdicts=scale.verdicts),
            paper_numbers([each for each in evidence.exhibits.values() if _compares(each)]),
        ],
        scale=scale.words,
    )


def paper_numbers(exhibits: Sequence[Exhibit]) -> Table:
    """Return all numbers of the paper next to ours."""
    head = ["experiment", "place", "paper (%)", "here (%)", *TOLD]
    rows: list[list[Value]] = []
    for exhibit in exhibits:
        for table in exhibit.tables:
            if not {PAPER, "panel", "line"} <= set(table.head):
                continue
            for cells in (dict(zip(table.head, row, strict=True)) for row in table.rows):
                if cells[PAPER] is not None:
                    place = f"{cells['panel']}, {cells.get(LABELS['rho'])}: {cells['line']}"
                    first = table.head[table.head.index("lowest") - 1]  # the accuracy that is drawn
                    ours = [cells.get(name) for name in (first, *TOLD)]
                    rows.append([exhibit.title, place, cells[PAPER], *ours])
    return Table("Numbers of the paper", head, rows)


def check_page(page: Path) -> None:
    """Refuse a page that would replace what it did not make.

    Raises:
        ConfigError: naming the file or folder, and what to do.
    """
    folder = page.with_suffix("")
    if page.suffix != ".md":
        msg = f"the page must be a Markdown file: {page} does not end in .md"
    elif page.exists() and MARK not in page.read_text(encoding="utf-8"):
        msg = f"{page} was not made by `rfa reproduce --page`: name another file"
    elif folder.exists() and not (folder / NUMBERS).exists():
        msg = f"the pictures would go to {folder}, which holds something else: name another page"
    else:
        return
    raise ConfigError(msg)


def write_page(
    page: Path, shown: Sequence[tuple[Exhibit, Sequence[Path]]], verdicts: Exhibit
) -> None:
    """Write the Markdown page, copies of the pictures in a folder of its name, and all numbers.

    Raises:
        ConfigError: if that would replace what it did not make.
    """
    check_page(page)
    folder = page.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    _write_numbers(folder / NUMBERS, [exhibit for exhibit, _ in shown])
    for old in folder.glob("*.png"):
        old.unlink()
    kept = page.read_text(encoding="utf-8").partition(MARK)[0] if page.exists() else "# Results\n\n"
    paper = any(exhibit.paper for exhibit, _ in shown)
    lines = [MARK, ""]
    if paper:
        scale = f"All runs are at this scale: {verdicts.scale}."
        lines += [f"## {verdicts.title}", "", scale, ""]
        judged, numbers = verdicts.tables
        lines += [*_judged(judged), *rows(numbers)]
    apart = [_left_out(exhibit) for exhibit, _ in shown if not _compares(exhibit)]
    if apart:
        why = "Left out, because most of their runs, or all of the line in the title, are not done"
        lines += [f"{why}: {'; '.join(apart)}.", ""]
    for exhibit, pictures in shown:
        if not _compares(exhibit):
            continue
        copies = [shutil.copy(path, folder) for path in pictures]
        lines += section(exhibit, [f"{folder.name}/{Path(copy).name}" for copy in copies])
    page.write_text(kept + "\n".join(lines).rstrip() + "\n", encoding="utf-8")


def _judged(table: Table) -> Iterator[str]:
    """Yield the statements: the paper's words, the test of them, and a row per setting.

    Settings without runs come in a list at the end.
    """
    absent: list[str] = []
    for tested, settings in group(table.rows, lambda row: str(row[1])).items():
        quote = settings[0][0]
        judged = [row for row in settings if not str(row[-1]).startswith(ABSENT)]
        if judged:
            yield from (f"> {quote}", "", f"Tested: {tested}", "")
            yield from rows(Table(tested, table.head[2:], [row[2:] for row in judged]))
        if left := [str(row[2]) for row in settings if row not in judged]:
            words = "" if judged else f' The paper: "{quote}"'
            absent.append(f"- {tested} Without runs: {', '.join(left)}.{words}")
    if absent:
        yield from ("Open, because there are no runs at this scale yet:", "", *absent, "")


def _left_out(exhibit: Exhibit) -> str:
    """The title of an exhibit, and which of its lines are absent if others are there."""
    lines = ", ".join(exhibit.absent)
    return f"{exhibit.title} ({lines})" if lines and exhibit.panels else exhibit.title


def _compares(exhibit: Exhibit) -> bool:
    """Whether an exhibit is complete, or has something to compare: two lines, or a table.

    The line after which it is named must be there.
    """
    if not exhibit.missing:
        return True
    if exhibit.panels:
        is_named = any(line.lower() in exhibit.title.lower() for line in exhibit.absent)
        return not is_named and any(len(panel.lines) > 1 for panel in exhibit.panels)
    return any(table.rows for table in exhibit.all_tables)


def _write_numbers(path: Path, exhibits: Sequence[Exhibit]) -> None:
    """Every number of every table, one a row."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["experiment", "table", "row", "column", "value"])
        for exhibit in exhibits:
            for table in exhibit.all_tables:
                for number, row in enumerate(table.rows, start=1):
                    for name, value in zip(table.head, row, strict=True):
                        shown = f"{value:.6g}" if isinstance(value, float) else value
                        writer.writerow([exhibit.name, table.title, number, name, shown])
