"""Links of files in the repository lead to pages of the site."""

from __future__ import annotations

from pathlib import Path

import pytest

from website import links


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    (tmp_path / "examples" / "one").mkdir(parents=True)
    (tmp_path / "docs" / "lab.md").write_text("[one](../examples/one) [x](../examples/book.ipynb)")
    (tmp_path / "examples" / "one" / "README.md").write_text(
        "[lab](../../docs/lab.md) [l](../LICENSE)"
    )
    (tmp_path / "examples" / "book.ipynb").write_text("{}")
    (tmp_path / "examples" / "LICENSE").write_text("free")
    return tmp_path


@pytest.mark.parametrize(
    ("home", "written", "led"),
    [
        ("docs/lab.md", "[a](../examples/one)", "[a](examples/one/README.md)"),
        ("docs/deep/page.md", "![a](../lab.md#top)", "![a](../lab.md#top)"),
        ("examples/one/README.md", "[a](../../docs/lab.md#x)", "[a](../../lab.md#x)"),
        ("docs/lab.md", "[a](https://example.org/a) [b](#c)", "[a](https://example.org/a) [b](#c)"),
        ("docs/lab.md", "```\n[a](../examples/one)\n```", "```\n[a](../examples/one)\n```"),
    ],
)
def test_links_as_they_are_on_the_site(root: Path, home: str, written: str, led: str) -> None:
    assert links.rewrite(root, written, home) == led


def test_what_pages_link_to_is_on_the_site_and_what_that_links_to(root: Path) -> None:
    found = links.linked_outside(root, {"docs/lab.md", "docs/generated.md"})
    assert found == {"examples/one/README.md", "examples/book.ipynb", "examples/LICENSE"}


def test_every_page_has_an_address_of_its_own() -> None:
    """`a.md` and `a/index.md` would both be `a/`, and the site would have one of them."""
    docs = Path(__file__).parents[2] / "docs"
    pages = [path.relative_to(docs) for path in docs.rglob("*.md")]
    same = {page.parent for page in pages if page.name in ("index.md", "README.md")}
    assert not [page for page in pages if page.with_suffix("") in same]
