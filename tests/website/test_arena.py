"""The tables of docs/beyond.md are those of the numbers that come with it."""

from __future__ import annotations

import re

import pytest

from website.arena import PAGE, TABLES, levels_of, renew, worst_table


def test_the_page_has_the_numbers_of_today() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"<!-- table: ([\w -]+) -->", text)) == set(TABLES)
    assert renew(text) == text, "run `python -m website.arena`"


def test_a_table_shows_only_defenses_that_met_every_attack() -> None:
    (level, *_) = levels_of("arena-linear")["sent140-linear"]
    shown = worst_table("sent140-linear")[2:]
    whole = [name for name in level.defenses if len(level.known(name)) == len(level.attacks)]
    assert len(shown) == len(whole) > 0


@pytest.mark.parametrize("mark", ["backdoors", "worst cases on Sent140"])
def test_a_number_that_was_changed_by_hand_is_replaced(mark: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    head, found, rest = text.partition(f"<!-- table: {mark} -->\n")
    assert renew(head + found + "| 99.9 |\n" + rest) == text
