"""What MkDocs calls while it builds the site (`hooks` in mkdocs.yml)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from website import formulas, generated, links, markdown, offline, pictures

LOG = logging.getLogger("mkdocs.hooks.website")
ROOT = Path(__file__).parents[1]
BOOSTS = {
    "tutorials/": 2.0,
    "how-to/": 2.0,
    "reference/": 2.0,
    "glossary": 2.0,
    "decisions/": 0.2,
    "CHANGELOG": 0.2,
    "beyond-results": 0.2,
}
"""How far up a search lists pages whose path begins so: pages of use before those of record."""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the files of the repository that pages link to, and say which pages are out of date."""
    for path in generated.stale():
        LOG.warning("docs/%s is not of today's code: run `python -m website.generated`", path)
    pages = {f"docs/{file.src_uri}" for file in files.documentation_pages()}
    for path in sorted(links.linked_outside(ROOT, pages)):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Let links between docs/ and the rest of the repository lead to the pages of the site.

    Says as well how far up a search lists the page.
    """
    path = page.file.src_uri
    boost = next((much for start, much in BOOSTS.items() if path.startswith(start)), 1.0)
    page.meta.setdefault("search", {"boost": boost})
    home = f"docs/{path}" if page.file.generated_by is None else path
    return links.rewrite(ROOT, markdown, home)


def on_page_content(html: str, **_: Any) -> str:
    """Turn formulas into MathML, which needs no script, put pictures in, and mark names."""
    return markdown.mark_names(pictures.inline(formulas.to_mathml(html)))


def on_post_build(*, config: MkDocsConfig) -> None:
    """Refuse a site that would load anything from elsewhere."""
    offline.check(Path(config.site_dir))
