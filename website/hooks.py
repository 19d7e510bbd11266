"""What MkDocs calls while it builds the site (`hooks` in mkdocs.yml)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from website import formulas, links, offline, pictures
from website.generated import GENERATED

ROOT = Path(__file__).parents[1]


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code, and files of the repository that pages link to."""
    for path, make in GENERATED.items():
        files.append(File.generated(config, path, content=make()))
    pages = {f"docs/{file.src_uri}" for file in files.documentation_pages()}
    for path in sorted(links.linked_outside(ROOT, pages)):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Let links between docs/ and the rest of the repository lead to the pages of the site."""
    path = page.file.src_uri
    elsewhere = page.file.generated_by is not None and path not in GENERATED
    home = path if elsewhere else f"docs/{path}"
    return links.rewrite(ROOT, markdown, home)


def on_page_content(html: str, **_: Any) -> str:
    """Turn formulas into MathML, which needs no script, and put pictures into the page."""
    return pictures.inline(formulas.to_mathml(html))


def on_post_build(*, config: MkDocsConfig) -> None:
    """Refuse a site that would load anything from elsewhere."""
    offline.check(Path(config.site_dir))
