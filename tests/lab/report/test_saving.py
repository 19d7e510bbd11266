"""What a browser saves of the page, and how pictures change by switches."""

from __future__ import annotations

import csv
import io
from xml.etree import ElementTree as ET

import pytest

from rfa.lab.report.exhibit import Exhibit, Line, Panel, Spread, Table
from rfa.lab.report.html import page
from rfa.lab.runs.statistics import mean_interval
from tests.lab.report.browser import Browser

SEEDS = ([60.0, 61.0, 65.0], [50.0, 40.0, 30.0])
PANEL = Panel(
    title='EMNIST, "data"',
    x_label="corruption level",
    y_label="test accuracy (%)",
    lines=[Line.over_seeds("RFA", [0.0, 0.25], [Spread(values) for values in SEEDS])],
    note="20 rounds; seeds 1, 2, 3",
)
SHOWN = Exhibit(
    "figure",
    "A figure",
    paper="Figure 2",
    panels=[PANEL],
    tables=[Table("Ends", ["line", "note"], [["RFA", "a, b"]])],
    data=["emnist-linear, 447 devices"],
    settings='title = "<x>"\n',
    origins=["6 runs: rfa 1, code ab"],
)
PROBE = """
  const find = (selector) => document.querySelector(selector);
  const told = [], blobs = [];
  URL.createObjectURL = (blob) => (blobs.push(blob), "blob:none");
  HTMLAnchorElement.prototype.click = function () { told.push(this.download); };
  const shape = (kind) => find(`.chart .${kind}`).getAttribute("d");
  const range = shape("band");
  told.push(shape("dot").split("M").length - 1);
  find(".switches .points").click();
  told.push(shape("dot").length);
  find(".switches .interval").click();
  told.push(shape("band") !== range);
  const even = shape("line");
  find(".switches .log").click();
  told.push(shape("line") !== even);
  [".csv", ".svg", ".save"].forEach((kind) => find(kind).click());
  return Promise.all([told.join("\\n"), ...blobs.map((blob) => blob.text())]);
"""


@pytest.fixture(scope="module")
def probed(window: Browser, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the probe says: names and switches, then the text of each file."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(page([SHOWN]), encoding="utf-8")
    window.open(path)
    window.until("document.querySelector('.chart .line')")
    return window.run(PROBE)


def test_switches_change_the_picture(probed: list[str]) -> None:
    dots, without, interval, logarithmic, *names = probed[0].splitlines()
    assert int(dots) == 6
    assert int(without) == 0
    assert (interval, logarithmic) == ("true", "true")
    assert names == ["figure-emnist-data.csv", "figure-emnist-data.svg", "figure-ends.csv"]


def test_the_numbers_of_a_picture_are_saved(probed: list[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(probed[1])))
    assert [row["panel"] for row in rows] == ['EMNIST, "data"'] * 2
    for row, values in zip(rows, SEEDS, strict=True):
        assert [float(row[f"seed {n}"]) for n in (1, 2, 3)] == values
        interval = mean_interval(values)
        saved = [float(row[name]) for name in ("mean", "95 % from", "95 % to")]
        assert saved == pytest.approx([interval.mean, interval.low, interval.high], rel=1e-5)


def test_the_picture_is_saved_with_its_looks_and_legend(probed: list[str]) -> None:
    root = ET.fromstring(probed[2])  # noqa: S314 made by the page itself
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {'EMNIST, "data"', "RFA", "test accuracy (%)"} <= set(texts)
    lines = [e for e in root.iter() if e.get("class", "").startswith("line")]
    assert lines
    assert all(e.get("stroke", "").startswith("rgb") for e in lines)


def test_tables_are_saved(probed: list[str]) -> None:
    assert list(csv.reader(io.StringIO(probed[3]))) == [["line", "note"], ["RFA", "a, b"]]


def test_figures_have_addresses_captions_settings_and_origins() -> None:
    text = page([SHOWN])
    assert '<figure class="panel" id="figure-1">' in text
    assert '<a href="#figure-1">EMNIST, &quot;data&quot;</a>' in text
    caption = "A figure (after the paper&#x27;s Figure 2): test accuracy (%) by corruption level. "
    caption += "Lines are means of 3 seeds; bands reach from the lowest to the highest. "
    caption += "20 rounds; seeds 1, 2, 3. Data: emnist-linear, 447 devices."
    assert f'<p class="caption">{caption}</p>' in text
    assert "title = &quot;&lt;x&gt;&quot;" in text
    assert "<li>6 runs: rfa 1, code ab</li>" in text


def test_tables_of_prose_are_read_row_by_row_on_a_narrow_screen() -> None:
    long, short = (Table("t", ["a"], [["x" * count]]) for count in (80, 10))
    assert '<table class="prose">' in page([Exhibit("a", "a", tables=[long])])
    assert 'class="prose"' not in page([Exhibit("a", "a", tables=[short])])
    assert '<td data-label="a">' in page([Exhibit("a", "a", tables=[short])])
