"""Matrices: kept and read again, as pictures, on the page and in Markdown."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from importlib import resources
from pathlib import Path

import pytest

from rfa.lab.report.draw import draw
from rfa.lab.report.exhibit import Entry, Exhibit, ExhibitError, Matrix, load, save, to_json
from rfa.lab.report.html import page
from rfa.lab.report.markdown import section
from rfa.lab.report.style import DEEP, SHADES, shading
from tests.lab.report.samples import arena


def test_an_exhibit_comes_back_as_it_was(tmp_path: Path) -> None:
    save(arena(), tmp_path / "arena.json")
    found = load(tmp_path / "arena.json")
    assert to_json(found) == to_json(arena())
    assert math.isnan(found.matrices[0].entries[0][2].value)
    assert found.matrices[1].entries[1][0] == arena().matrices[1].entries[1][0]


def test_files_with_odd_matrices(tmp_path: Path) -> None:
    values = to_json(arena())
    path = tmp_path / "arena.json"
    values["matrices"][0]["entries"][1].pop()
    path.write_text(json.dumps(values))
    with pytest.raises(ExhibitError, match="differ in length"):
        load(path)
    values["matrices"] = [{**to_json(arena())["matrices"][0], "rows": ["a", "b", 3]}]
    path.write_text(json.dumps(values))
    with pytest.raises(ExhibitError, match="no text"):
        load(path)


def of_one_row(*values: float) -> Matrix:
    names = [str(value) for value in values]
    return Matrix("t", "l", ["row"], names, [[Entry(value) for value in values]])


def test_matrices_of_a_picture_share_their_shades() -> None:
    shades = shading([of_one_row(0.0, 10.0), of_one_row(math.nan, 100.0)])
    found = [shades.of(value) for value in (0.0, 9.9, 10.0, 99.0, 100.0, math.nan)]
    assert found == [0, 0, 1, 9, 9, None]
    assert shading([of_one_row(5.0)]).of(5.0) == len(SHADES) - 1
    assert shading([of_one_row(math.nan)]).of(math.nan) is None


def test_every_number_can_be_read_on_its_shade() -> None:
    style = resources.files("rfa.lab.report").joinpath("page.css").read_text(encoding="utf-8")
    inks = dict(re.findall(r"--s: (#\w{6}); --on: (#\w{6});", style))
    assert list(inks) == list(SHADES)
    assert list(inks.values()) == ["#ffffff"] * DEEP + ["#000000"] * (len(SHADES) - DEEP)
    for paper, ink in inks.items():
        low, high = sorted((luminance(paper), luminance(ink)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, paper


def luminance(color: str) -> float:
    """As the guidelines for accessible pages define it."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_the_page_has_every_number_without_script() -> None:
    text = page([arena()])
    row = re.search(r'<tr><th scope="row">omniscient</th>(.*)</tr>', text)
    assert row is not None
    assert row[1] == (
        '<td class="s0" title="1 of 2 diverged">0.5\u00d7</td>'
        '<td class="s4">26.5</td><td class="s6"><b>33.0</b></td>'
    )
    assert '<tr class="summary"><th scope="row">worst case</th>' in text
    assert '<th scope="colgroup" colspan="2"><span>under the secure sum</span></th>' in text
    assert "There is nothing to show yet." not in text


@pytest.mark.parametrize("columns", [1, 3, 12])
def test_pictures_of_any_width(tmp_path: Path, columns: int) -> None:
    values = [float(n) for n in range(columns)]
    exhibit = Exhibit("m", "m", matrices=[of_one_row(*values), of_one_row(*values)])
    (picture,) = draw(exhibit, tmp_path)
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert picture.with_suffix(".pdf").exists()


def test_each_view_is_a_picture_and_markdown_has_its_numbers(tmp_path: Path) -> None:
    one, other = arena().matrices
    exhibit = dataclasses.replace(
        arena(), matrices=[one, dataclasses.replace(other, view="text data")]
    )
    assert [path.name for path in draw(exhibit, tmp_path)] == ["arena.png", "arena-text-data.png"]
    lines = list(section(exhibit, ["a.png", "b.png"]))
    assert "![Attacks and defenses: text data](b.png)" in lines
    assert "| omniscient | 0.5 | 26.5 | 33.0 |" in lines
    assert "| no corruption | 53.2 | 50.0 |  |" in lines
    assert "- 150 rounds" in lines
