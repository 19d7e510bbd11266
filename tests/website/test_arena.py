"""The tables of docs/beyond.md are those of the numbers that come with it."""

from __future__ import annotations

import re

from website.arena import PAGES, TABLES, levels_of, renew, worst_table


def test_the_pages_have_the_numbers_of_today() -> None:
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    marks = [mark for text in texts for mark in re.findall(r"<!-- table: ([\w -]+) -->", text)]
    assert sorted(marks) == sorted(TABLES)
    assert [renew(text) for text in texts] == texts, "run `python -m website.arena`"


def test_a_table_shows_only_defenses_that_met_every_attack() -> None:
    (level, *_) = levels_of("arena-linear")["sent140-linear"]
    shown = worst_table("sent140-linear")[2:]
    whole = [name for name in level.defenses if len(level.known(name)) == len(level.attacks)]
    assert len(shown) == len(whole) > 0


def test_a_number_that_was_changed_by_hand_is_replaced() -> None:
    for text in (page.read_text(encoding="utf-8") for page in PAGES):
        changed = re.sub(r"(<!-- table: [\w -]+ -->\n)", r"\1| 99.9 |\n", text)
        assert changed != text
        assert renew(changed) == text
