"""What the documents name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md"), *ROOT.glob("examples/**/*.md")])


def named_in(name: str) -> set[str]:
    """The tests in files of that name, wherever they are."""
    found = [path for path in ROOT.glob("tests/**/test_*.py") if path.name == Path(name).name]
    assert found, f"there is no {name}"
    return {
        test for path in found for test in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    name = ""
    for file, test in re.findall(
        r"`(?:[\w/]*?(test_\w+\.py))?(?:::(test_\w+))?`", page.read_text()
    ):
        name = file or name
        if file or test:
            assert not test or test in named_in(name), f"{name}::{test}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_page_that_a_page_links_to_exists(page: Path) -> None:
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", prose):
        meant = (page.parent / target).resolve()
        assert meant.exists(), target
