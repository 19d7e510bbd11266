"""What MkDocs calls while it builds the site (`hooks` in mkdocs.yml)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from website import formulas, links, offline

ROOT = Path(__file__).parents[1]


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the files of the repository that pages link to."""
    pages = {f"docs/{file.src_uri}" for file in files.documentation_pages()}
    for path in sorted(links.linked_outside(ROOT, pages)):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Let links between docs/ and the rest of the repository lead to the pages of the site."""
    generated = page.file.generated_by is not None
    home = page.file.src_uri if generated else f"docs/{page.file.src_uri}"
    return links.rewrite(ROOT, markdown, home)


def on_page_content(html: str, **_: Any) -> str:
    """Turn formulas into MathML, which browsers show without a script."""
    return formulas.to_mathml(html)


def on_post_build(*, config: MkDocsConfig) -> None:
    """Refuse a site that would load anything from elsewhere."""
    offline.check(Path(config.site_dir))
