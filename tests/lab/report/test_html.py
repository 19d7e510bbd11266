"""The text of the page of exhibits."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser

import pytest

from rfa.lab.report.exhibit import Exhibit, Table
from rfa.lab.report.html import page
from tests.lab.report.samples import (
    ALL,
    HOSTILE,
)


class Parts(HTMLParser):
    """The elements of a document, and the text of its styles and scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {"style": [], "script": []}
        self.open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.open = tag
        if tag in self.inside:
            self.inside[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self.open = ""

    def handle_data(self, data: str) -> None:
        if self.open in self.inside:
            self.inside[self.open][-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def parts() -> Parts:
    return Parts(page(ALL, title=HOSTILE, made=HOSTILE))


def test_is_one_document(parts: Parts) -> None:
    assert [len(parts.all(tag)) for tag in ("html", "head", "body", "main", "h1", "nav")] == [1] * 6
    assert len(parts.all("section")) == len(ALL)
    ids = [attributes["id"] for _, attributes in parts.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_asks_for_nothing(parts: Parts) -> None:
    for tag, attributes in parts.elements:
        assert not {"src", "srcset", "data", "action", "style"} & attributes.keys(), tag
        assert not [name for name in attributes if name.startswith("on")], tag
        assert (attributes.get("href") or "#").startswith("#"), tag
    assert not re.search(r"url\(|@import|https?:", parts.inside["style"][0])
    script = parts.inside["script"][1].replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|fetch\(|XMLHttp|import\(|innerHTML|eval\(", script)


def test_policy_names_style_and_script(parts: Parts) -> None:
    policy = next(m["content"] for m in parts.all("meta") if "http-equiv" in m) or ""
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for text in (parts.inside["style"][0], parts.inside["script"][1]):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_strings_are_escaped(parts: Parts) -> None:
    assert not parts.all("img")
    assert len(parts.all("script")) == 2
    labels = [
        line["label"]
        for panel in json.loads(parts.inside["script"][0])[-1]
        for line in panel["lines"]
    ]
    assert labels == [HOSTILE, HOSTILE]


def test_gaps_are_null(parts: Parts) -> None:
    lines = json.loads(parts.inside["script"][0])[1][0]["lines"]
    assert [value is None for value in lines[1]["mean"]] == [k in (2, 3) for k in range(6)]


def test_text_is_there_without_script() -> None:
    text = page(ALL)
    for exhibit in ALL[:2]:
        for part in (exhibit.title, exhibit.claim, exhibit.paper, exhibit.command, *exhibit.data):
            assert part in text
    assert "<noscript>" in text
    assert "There is nothing to show yet." in text


def test_badges() -> None:
    text = page(ALL)
    assert '<strong class="badge">synthetic data</strong> synthetic glyphs' in text
    assert '<strong class="badge">artificial devices</strong> Shakespeare' in text
    assert "</strong> EMNIST" not in text


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([0.0, 0.1, 0.25], ["0.00", "0.10", "0.25"]),
        ([83.42371, 9.5, math.nan], ["83.42", "9.50", "–"]),  # noqa: RUF001
        ([0.83333, -0.5], ["0.8333", "-0.5000"]),
        ([1e-7, 2.5], ["1e-07", "2.5"]),
        ([200, 12345, None], ["200", "12,345", "–"]),  # noqa: RUF001
        ([200.0, 1.0], ["200", "1"]),
    ],
)  # fmt: skip
def test_digits(values: list[float | None], shown: list[str]) -> None:
    text = page([Exhibit("a", "a", tables=[Table("t", ["n"], [[value] for value in values])])])
    assert re.findall(r'<td data-label="n" class="number">(.*?)</td>', text) == shown


def test_names_are_addresses() -> None:
    same = [Exhibit("main", "a"), Exhibit("Main!", "b"), Exhibit("<>", "c")]
    assert [s["id"] for s in Parts(page(same)).all("section")] == ["main-2", "main-3", "exhibit"]


def test_nothing_at_all() -> None:
    assert "Nothing to show." in page([])
