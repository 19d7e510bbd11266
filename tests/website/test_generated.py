"""The pages that are made from the code are in the repository, as of today."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'rfa[flower]'")
pytest.importorskip("torch", reason="needs the lab: pip install 'rfa[lab]'")

from website.generated import DOCS, GENERATED, stale, write


def test_the_pages_are_those_of_the_code_of_today() -> None:
    assert stale() == [], "run `python -m website.generated`"


def test_they_say_how_they_are_renewed_and_name_no_place_of_a_machine() -> None:
    for name in GENERATED:
        text = (DOCS / name).read_text(encoding="utf-8")
        assert "\n<!-- written by `python -m website.generated` -->\n" in text
        assert not re.search(r"(?<![\w.])/(?:home|root|tmp|work|Users|dev)/", text)


def test_a_build_of_the_site_warns_of_pages_that_are_out_of_date(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With --strict it fails."""
    pytest.importorskip("mkdocs", reason="builds a site: pip install 'rfa[docs]'")
    from mkdocs.config.defaults import MkDocsConfig  # noqa: PLC0415
    from mkdocs.structure.files import Files  # noqa: PLC0415

    from website.hooks import on_files  # noqa: PLC0415

    config: Any = MkDocsConfig()
    on_files(Files([]), config=config)
    assert not caplog.records
    monkeypatch.setattr("website.generated.stale", lambda: ["reference/errors.md"])
    on_files(Files([]), config=config)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.name.startswith("mkdocs.")
    assert record.getMessage().endswith("run `python -m website.generated`")


def test_a_page_that_was_changed_by_hand_is_found_and_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    docs = tmp_path_factory.mktemp("docs")
    monkeypatch.setattr("website.generated.DOCS", docs)
    for name in set(GENERATED) - {"reference/errors.md", "reference/wire-format.md"}:
        monkeypatch.delitem(GENERATED, name)  # they take longer to make
    assert stale() == list(GENERATED)
    write()
    assert stale() == []
    page = docs / "reference" / "errors.md"
    page.write_text(page.read_text(encoding="utf-8") + "by hand", encoding="utf-8")
    assert stale() == ["reference/errors.md"]
    write()
    assert page.read_bytes() == (DOCS / "reference" / "errors.md").read_bytes()
