"""The tables and pictures of the pages are those of the numbers that come with them."""

from __future__ import annotations

import re

import pytest

from website.arena import levels_of
from website.pictures import FOLDER, PICTURES
from website.tables import PAGES, TABLES, renew


def test_the_pages_have_the_numbers_of_today() -> None:
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    marks = [mark for text in texts for mark in re.findall(r"<!-- table: ([\w -]+) -->", text)]
    assert sorted(marks) == sorted(TABLES)
    assert [renew(text) for text in texts] == texts, "run `python -m website.tables`"


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_have_the_numbers_of_today(name: str) -> None:
    kept = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert kept == PICTURES[name]().finish(), "run `python -m website.pictures`"


@pytest.mark.parametrize("experiment", ["arena-linear", "arena-backdoors"])
def test_every_number_has_the_same_seeds(experiment: str) -> None:
    for levels in levels_of(experiment).values():
        seeds = {tuple(score.by_seed) for bout in levels for score in bout.scores.values()}
        assert len(seeds) == 1
        assert all(
            len(bout.known(name)) == len(bout.attacks) for bout in levels for name in bout.defenses
        )


def test_a_number_that_was_changed_by_hand_is_replaced() -> None:
    for text in (page.read_text(encoding="utf-8") for page in PAGES):
        changed = re.sub(r"(<!-- table: [\w -]+ -->\n)", r"\1| 99.9 |\n", text)
        assert changed != text
        assert renew(changed) == text
