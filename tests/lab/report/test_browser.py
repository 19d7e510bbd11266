"""What a real browser makes of the page of exhibits."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from rfa.lab.report.exhibit import Exhibit, Line, Panel, Table
from rfa.lab.report.html import page
from tests.lab.report.browser import Browser
from tests.lab.report.samples import (
    ALL,
    EMPTY,
    HOSTILE,
    LOGS,
    TRAINING,
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(page(ALL, made="today"), encoding="utf-8")
    return path


@pytest.fixture
def shown(window: Browser, file: Path) -> Browser:
    """The page, fresh, on a wide screen."""
    window.media(prefers_reduced_motion="reduce")
    window.size(1300, 900)
    window.requests()
    window.log("browser")
    window.open(file)
    window.until("document.querySelectorAll('.view:not(.other) .tick').length > 20")
    return window


def texts(window: Browser, selector: str) -> list[str]:
    return window.run(
        "return [...document.querySelectorAll(arguments[0])].map((node) => node.textContent)",
        selector,
    )


def count(window: Browser, selector: str) -> int:
    return window.run("return document.querySelectorAll(arguments[0]).length", selector)


def drawn(window: Browser, selector: str) -> str:
    return window.run("return document.querySelector(arguments[0]).getAttribute('d')", selector)


def plot(window: Browser, selector: str, number: int = 0) -> tuple[float, float, float, float]:
    """Where the frame of a chart is in the window: left, top, width, height."""
    script = """
        const svg = document.querySelectorAll(arguments[0])[arguments[1]];
        svg.scrollIntoView({block: "center", behavior: "instant"});
        const {left, top} = svg.getBoundingClientRect();
        const base = svg.querySelector(".base");
        const [x1, x2, y] = ["x1", "x2", "y1"].map((name) => Number(base.getAttribute(name)));
        return [left + x1, top + 26, x2 - x1, y - 26];
    """
    left, top, width, height = window.run(script, f"{selector} .chart > svg", number)
    return left, top, width, height


def middle(frame: tuple[float, float, float, float]) -> tuple[float, float]:
    left, top, width, height = frame
    return left + width / 2, top + height / 2


def test_loads_quietly(shown: Browser, file: Path) -> None:
    assert shown.log("browser") == []
    assert set(shown.requests()) == {file.resolve().as_uri()}


def test_every_line_has_a_path(shown: Browser) -> None:
    script = """
        return [...document.querySelectorAll(".view:not(.other) .chart > svg")].map((svg) =>
          [...svg.querySelectorAll("path.line")].map((path) => path.dataset.label))
    """
    found = shown.run(script)
    panels = [p for e in ALL for p in e.panels if p.view == e.views[0]]
    assert found == [[line.label for line in panel.lines] for panel in panels]
    assert count(shown, f"{TRAINING} .view:not(.other) .chart > svg path.line:not([d^=M])") == 0


def test_color_is_not_the_only_difference(shown: Browser) -> None:
    script = """
        return [...document.querySelectorAll(`${arguments[0]} .view:not(.other) .swatch`)].map(
          (svg) => [svg.getAttribute("class"), svg.innerHTML])
    """
    looks = shown.run(script, TRAINING)
    assert len(looks) == len({name for name, _ in looks}) == len({body for _, body in looks})


def test_reading_values(shown: Browser) -> None:
    shown.hover(*middle(plot(shown, TRAINING, 1)))
    tip = shown.until(f"[...document.querySelectorAll('{TRAINING} .tip')][1].innerText")
    line = ALL[0].panels[1].lines[1]
    k = list(line.x).index(100.0)
    assert tip.startswith("round: 100")
    values = re.search(r"\bRFA\s+([\d.]+)\s+\(([\d.]+) – ([\d.]+)\)", tip)  # noqa: RUF001
    assert values
    wanted = [line.mean[k], line.low[k], line.high[k]]
    assert [float(v) for v in values.groups()] == pytest.approx(wanted, abs=0.006)
    assert count(shown, f"{TRAINING} .cross line") == 1


def test_reading_values_with_keys(shown: Browser) -> None:
    shown.press(f"{LOGS} .chart", "ArrowRight")
    tip = f"{LOGS} .tip"
    assert texts(shown, f"{tip} strong") == ["oracle calls: 10"]
    shown.type("End")
    assert texts(shown, f"{tip} strong") == ["oracle calls: 10⁶"]
    assert "one run at 1,000" in texts(shown, tip)[0]


def test_legend_switches_a_line_off(shown: Browser) -> None:
    other = f'{TRAINING} figure:nth-child(4) path.line[data-label="RFA"]'
    before = drawn(shown, other)
    shown.click(f'{TRAINING} .legend [data-label="FedAvg"]')
    lines = f'{TRAINING} .view:not(.other) .chart > svg path.line[data-label="FedAvg"]'
    assert count(shown, lines) == 0
    assert count(shown, f'{TRAINING} [data-label="FedAvg"][aria-pressed="false"]') == 2
    assert drawn(shown, other) != before  # the axis fits what is left
    shown.click(f'{TRAINING} .legend [data-label="FedAvg"]')
    assert count(shown, lines) == 4
    assert drawn(shown, other) == before


def test_all_lines_off(shown: Browser) -> None:
    for label in ("Weiszfeld", "gradient descent", "upper bound", "one run"):
        shown.click(f'{LOGS} .legend [data-label="{label}"]')
    shown.hover(*middle(plot(shown, LOGS)))
    assert count(shown, f"{LOGS} .chart > svg path.line") == 0
    assert shown.log("browser") == []


def test_drag_zooms_and_double_click_resets(shown: Browser) -> None:
    ticks = f"{TRAINING} .view:not(.other) figure:first-child .tick.x text"
    before = texts(shown, ticks)
    left, top, width, height = plot(shown, TRAINING)
    shown.drag((left + width * 0.25, top + height * 0.2), (left + width * 0.5, top + height * 0.9))
    assert texts(shown, ticks) != before
    assert all(45 <= float(tick) <= 101 for tick in texts(shown, ticks))
    shown.double_click(left + width / 2, top + height / 2)
    assert texts(shown, ticks) == before


def test_buttons_zoom(shown: Browser) -> None:
    ticks = f"{LOGS} figure:first-child .tick.x text"
    before = texts(shown, ticks)
    shown.click(f"{LOGS} .tools .in")
    assert texts(shown, ticks) != before
    shown.click(f"{LOGS} .tools .reset")
    assert texts(shown, ticks) == before


def test_wheel_zooms_with_control(shown: Browser) -> None:
    script = """
        const chart = document.querySelector(`${arguments[0]} .chart`);
        const {left, top} = chart.getBoundingClientRect();
        const place = {clientX: left + 200, clientY: top + 100, cancelable: true};
        const turn = {...place, deltaY: -100, ctrlKey: arguments[1]};
        return chart.dispatchEvent(new WheelEvent("wheel", turn));
    """
    ticks = f"{LOGS} figure:first-child .tick.x text"
    before = texts(shown, ticks)
    assert shown.run(script, LOGS, False)  # the page scrolls
    assert texts(shown, ticks) == before
    assert not shown.run(script, LOGS, True)
    assert texts(shown, ticks) != before


def test_a_finger_reads_and_does_not_zoom(shown: Browser) -> None:
    script = """
        const chart = document.querySelector(`${arguments[0]} .chart`);
        const {left, top} = chart.getBoundingClientRect();
        for (const [name, x] of [["down", 100], ["move", 300], ["up", 300], ["leave", 300]]) {
          const place = {clientX: left + x, clientY: top + 100, pointerType: "touch"};
          chart.dispatchEvent(new PointerEvent(`pointer${name}`, place));
        }
        return chart.querySelector(".tip").innerText;
    """
    assert "Weiszfeld" in shown.run(script, LOGS)
    assert count(shown, f"{LOGS} .reset:disabled") == 2


def test_other_view(shown: Browser) -> None:
    shown.click(f'{TRAINING} .chooser input[value="1"]')
    shown.until(
        f"document.querySelectorAll('{TRAINING} .view:not(.other) svg svg path.line').length === 16"
    )
    titles = texts(shown, f"{TRAINING} .view:not(.other) figure h3")
    assert titles == [panel.title for panel in ALL[0].panels if panel.view == "text data"]


def test_one_panel_large(shown: Browser) -> None:
    shown.click(f"{TRAINING} .expand")
    shown.until("document.querySelector('dialog[open] .chart').clientWidth > 700")
    shown.click('dialog[open] .legend [data-label="RFA"]')
    assert (
        count(shown, f'{TRAINING} .view:not(.other) .chart > svg path.line[data-label="RFA"]') == 0
    )
    assert count(shown, "dialog .chart > svg path.line") == 3
    shown.type("Escape")
    shown.until("!document.querySelector('dialog[open]')")
    assert count(shown, f"{TRAINING} .view:not(.other) .chart > svg") == 4
    assert shown.run("return document.activeElement.className") == "expand"


def test_phone(shown: Browser) -> None:
    shown.size(360, 740)
    shown.until("!document.querySelector('nav details').open")
    assert shown.run("return document.documentElement.scrollWidth") <= 360
    shown.click(f"{TRAINING} .expand")
    assert shown.run("return document.querySelector('dialog[open]').scrollWidth") <= 360
    shown.type("Escape")
    shown.hover(*middle(plot(shown, TRAINING)))
    assert shown.run("return document.documentElement.scrollWidth") <= 360


def test_the_head_of_a_table_of_prose_does_not_widen_a_phone(
    window: Browser, tmp_path: Path
) -> None:
    head = ["the paper", "tested", "setting", "verdict", "numbers (accuracy in %, 95 % interval)"]
    table = Table("Statements", head, [["a sentence of the paper, with many words " * 3, *"abcd"]])
    path = tmp_path / "page.html"
    path.write_text(page([Exhibit("a", "A", tables=[table])], made="today"), encoding="utf-8")
    window.size(360, 740)
    window.open(path)
    assert window.run("return document.querySelectorAll('table.prose').length") == 1
    assert window.run("return document.documentElement.scrollWidth") <= 360


def contrast(window: Browser, selector: str) -> float:
    """How much a text stands out from the page, from 1 to 21."""
    script = """
        const color = (node, name) => getComputedStyle(node)[name].match(/[0-9.]+/g).map(Number);
        const node = document.querySelector(arguments[0]);
        return [color(node, arguments[1]), color(document.body, "backgroundColor")];
    """
    name = "stroke" if "path" in selector else "fill" if "text" in selector else "color"
    pair = window.run(script, selector, name)
    light, dark = sorted((_luminance(color) for color in pair), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: list[float]) -> float:
    parts = [value / 255 for value in color[:3]]
    even = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return 0.2126 * even[0] + 0.7152 * even[1] + 0.0722 * even[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(shown: Browser, scheme: str) -> None:
    shown.media(prefers_color_scheme=scheme)
    background = shown.run("return getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
    for selector in (
        ".claim",
        ".paper",
        ".note",
        ".legend span",
        ".chart text",
        ".notice strong",
        "nav a",
    ):
        assert contrast(shown, selector) >= 4.5, selector
    for color in range(4):
        assert contrast(shown, f"path.line.c{color}") >= 3, color


def test_on_paper(shown: Browser, tmp_path: Path) -> None:
    shown.media("print", prefers_color_scheme="dark")
    for selector in ("nav", ".tools", ".chooser", ".copy"):
        assert shown.run("return document.querySelector(arguments[0]).offsetWidth", selector) == 0
    assert (
        shown.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    )
    shown.media()
    shown.click(f"{TRAINING} .expand")
    shown.print(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    shown.until("document.querySelectorAll('.view.other .chart > svg path.line').length >= 16")
    assert count(shown, f"{TRAINING} .grid .chart") == 8  # what was large is back in its place


def test_hostile_strings_do_nothing(shown: Browser) -> None:
    shown.hover(*middle(plot(shown, "section:last-of-type")))
    shown.until("document.querySelector('section:last-of-type .tip').textContent")
    assert HOSTILE in texts(shown, "section:last-of-type .tip")[0]
    assert count(shown, "img") == 0
    assert shown.run("return window.broken ?? null") is None
    assert shown.log("browser") == []


def test_gaps_and_single_points(shown: Browser) -> None:
    path = drawn(shown, f'{LOGS} path.line[data-label="gradient descent"]')
    assert path.count("M") == 2
    box = shown.run(
        "const {width, height} = document.querySelector(arguments[0]).getBBox();"
        "return [width, height]",
        f'{LOGS} path.mark[data-label="one run"]',
    )
    assert min(box) > 4


def odd(label: str, x: list[float], y: list[float]) -> Line:
    return Line(label, x, y, y, y)


def test_odd_panels_are_drawn(shown: Browser, tmp_path: Path) -> None:
    nan, inf = math.nan, math.inf
    odds = [
        [],
        [odd("empty", [], [])],
        [odd("unknown", [0, 1], [nan, nan])],
        [odd("unknown places", [nan, 1], [1, 2]), odd("infinite", [0, 1], [inf, 1])],
        [odd("huge", [0, 1], [1e300, -1e300]), odd("tiny", [0, 1], [1e-300, 1e-280])],
        [odd("flat", [0, 1, 2], [0, 0, 0])],
        [odd("negative", [-1, 0, 1], [-5, 0, 5])],
        [odd(str(k), [0, 1], [k, 2 * k]) for k in range(20)],
    ]
    panels = [
        Panel("odd", "x", "y", lines, ticks=ticks, log_x=log and not ticks, log_y=log)
        for lines in odds
        for ticks in ((), ("a", "b"))
        for log in (False, True)
    ]
    path = tmp_path / "odd.html"
    path.write_text(page([Exhibit("odd", "odd", panels=panels)]), encoding="utf-8")
    shown.open(path)
    shown.until(f"document.querySelectorAll('.base').length === {len(panels)}")
    for number in range(0, len(panels), 3):
        shown.hover(*middle(plot(shown, "main", number)))
    shown.run("document.querySelectorAll('.in').forEach((node) => node.click())")
    shown.run("document.querySelectorAll('.out').forEach((node) => node.click())")
    assert shown.log("browser") == []
    bad = "[...document.querySelectorAll('svg *')].filter((node) => [...node.attributes].some("
    bad += "({name, value}) => name !== 'data-label' && /NaN|Infinity/.test(value)))"
    assert shown.run(f"return {bad}.map((node) => node.outerHTML)") == []


def test_what_is_missing_is_said(shown: Browser) -> None:
    notices: dict[str, Any] = {
        name: texts(shown, f"#{name} .notice li") for name in ("figure-9", "nothing")
    }
    assert notices == {
        "figure-9": list(EMPTY.missing),
        "nothing": ["There is nothing to show yet."],
    }


def test_copying(shown: Browser) -> None:
    shown.click(f"{TRAINING} .copy")
    words = shown.until(
        f"document.querySelector('{TRAINING} .copy').textContent.match(/Copied|Selected/)"
    )
    if words == ["Selected"]:
        assert shown.run("return getSelection().toString()") == ALL[0].command


def test_without_script(window: Browser, file: Path) -> None:
    window.devtools("Emulation.setScriptExecutionDisabled", value=True)
    try:
        window.open(file)
        assert window.run("return document.querySelector('noscript p').offsetHeight") > 0
        assert window.run("return document.querySelector('.pictures').offsetHeight") == 0
        assert window.run("return document.querySelector('.copy').offsetHeight") == 0
        assert window.run("return document.querySelector('.scroll td').offsetHeight") > 0
    finally:
        window.devtools("Emulation.setScriptExecutionDisabled", value=False)
