"""The site needs no internet: what a page loads is found, and formulas are MathML."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="builds the site: pip install 'rfa[docs]'")
pytest.importorskip("latex2mathml", reason="builds the site: pip install 'rfa[docs]'")

from mkdocs.exceptions import PluginError

from website import formulas, offline


@pytest.mark.parametrize(
    "loads",
    [
        '<script async src="https://cdn.example.org/a.js">',
        "<img alt=x src=//example.org/a.png>",
        '<link rel="stylesheet" href="https://fonts.example.org/css">',
        'a { background: url("https://example.org/a.png") }',
        "@import 'https://example.org/a.css';",
    ],
)
def test_what_a_page_loads_from_elsewhere_fails(loads: str, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(loads)
    with pytest.raises(PluginError, match=r"index\.html loads .*example\.org"):
        offline.check(tmp_path)


def test_links_and_own_assets_are_allowed(tmp_path: Path) -> None:
    page = '<a href="https://arxiv.org">x</a><script src="../a.js"></script><img src="a.svg">'
    (tmp_path / "index.html").write_text(page + '<link rel="canonical" href="https://a.org/">')
    offline.check(tmp_path)


def test_formulas_become_mathml() -> None:
    page = '<p><span class="arithmatex">\\(\\alpha_i &lt; \\nu\\)</span> and <code>$x$</code></p>'
    shown = formulas.to_mathml(page)
    assert "<math" in shown
    assert "&#x003B1;" in shown
    assert "arithmatex" not in shown
    assert "<code>$x$</code>" in shown
