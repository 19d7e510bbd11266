"""`make docs` fails where a page links to nothing."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("mkdocs", reason="builds a site: pip install 'rfa[docs]'")

from mkdocs.__main__ import cli

from tests.website.pages import ROOT

CONFIG = """site_name: small
theme: {name: null, custom_dir: theme}
plugins: []
validation: {links: {anchors: warn}}
"""


@pytest.mark.parametrize(("link", "code"), [("#here", 0), ("#nowhere", 1), ("gone.md", 1)])
def test_the_command_of_make_docs_fails_on_a_warning(
    link: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --quiet it would not: MkDocs counts only the warnings that it prints."""
    found = re.search(r"\$\(MKDOCS\) (build .*)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert found
    (tmp_path / "docs").mkdir()
    (tmp_path / "theme").mkdir()
    (tmp_path / "theme" / "main.html").write_text("{{ page.content }}")
    (tmp_path / "mkdocs.yml").write_text(CONFIG)
    (tmp_path / "docs" / "index.md").write_text(f"# Here\n\n[a link]({link})\n")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, shlex.split(found[1]))
    assert done.exit_code == code, done.output
