"""One page of exhibits: a single self-contained HTML file.

All text is in the document itself; the page's own script draws the lines and makes them
interactive.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

from rfa.lab.report.exhibit import Exhibit
from rfa.lab.report.frames import panel_data, paragraph, pictures
from rfa.lab.report.grid import grid
from rfa.lab.report.html_matrix import html_matrices

TITLE = "rfa: the paper, reproduced"
SCRIPTS = ("numbers.js", "chart.js", "save.js", "page.js")
"""The script of the page, in order."""
IDS = ("page-data", "contents", "main")
"""Identifiers of the page itself, which no exhibit can take."""
BADGES = {"synthetic": "synthetic data", "artificial devices": "artificial devices"}
COPY = '<button type="button" class="copy" aria-live="polite">Copy</button>'


def page(exhibits: Sequence[Exhibit], *, title: str = TITLE, made: str = "") -> str:
    """Return a self-contained HTML document of exhibits; `made` says when and with what."""
    style, script = _asset("page.css"), "".join(_asset(name) for name in SCRIPTS)
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    names = _identifiers(exhibits)
    body = "\n".join(map(_section, exhibits, names)) or '<p class="notice">Nothing to show.</p>'
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the results</a>
<header class="top">
<h1>{escape(title)}</h1>
{paragraph("made", made)}
</header>
<div class="layout">
{_contents(exhibits, names)}
<main id="main">
<noscript><p class="notice">Pictures need JavaScript, which is switched off here.
The claims, tables and commands below do not.</p></noscript>
{body}
</main>
</div>
<script type="application/json" id="page-data">{panel_data(exhibits)}</script>
<script>{script}</script>
</body>
</html>
"""


def _asset(name: str) -> str:
    return resources.files("rfa.lab.report").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """Return a text's digest for a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _identifiers(exhibits: Iterable[Exhibit]) -> list[str]:
    """Return a different name for each exhibit that can be part of an address."""
    names: list[str] = []
    for exhibit in exhibits:
        stem = re.sub(r"[^a-z0-9]+", "-", exhibit.name.lower()).strip("-") or "exhibit"
        name, number = stem, 2
        while name in names or name in IDS:
            name, number = f"{stem}-{number}", number + 1
        names.append(name)
    return names


def _contents(exhibits: Iterable[Exhibit], names: Iterable[str]) -> str:
    entries = "\n".join(map(_contents_entry, exhibits, names))
    return f"""<nav id="contents" aria-label="Contents">
<details open>
<summary>Contents</summary>
<ol>
{entries}
</ol>
</details>
</nav>"""


def _contents_entry(exhibit: Exhibit, name: str) -> str:
    about = ", ".join(filter(None, (exhibit.paper, "incomplete" if exhibit.missing else "")))
    small = f" <small>{escape(about)}</small>" if about else ""
    return f'<li><a href="#{name}">{escape(exhibit.title)}{small}</a></li>'


def _section(exhibit: Exhibit, name: str) -> str:
    drawn = exhibit.panels or exhibit.matrices
    parts = [
        paragraph("paper", exhibit.paper),
        f'<h2 id="{name}-title">{escape(exhibit.title)}</h2>',
        paragraph("claim", exhibit.caption),
        _missing(exhibit),
        pictures(exhibit, name),
        *html_matrices(exhibit.matrices),
        *(grid(table, shown=not drawn) for table in exhibit.tables),
        _origin(exhibit),
    ]
    inside = "\n".join(filter(None, parts))
    start = f'<section class="exhibit" id="{name}" aria-labelledby="{name}-title">'
    return f"{start}\n{inside}\n</section>"


def _missing(exhibit: Exhibit) -> str:
    """Return the notice about missing results."""
    missing = list(exhibit.missing)
    if not (missing or exhibit.panels or exhibit.matrices or exhibit.tables):
        missing = ["There is nothing to show yet."]
    entries = "".join(f"<li>{escape(text)}</li>" for text in missing)
    notice = f'<div class="notice" role="note"><strong>Missing</strong><ul>{entries}</ul></div>'
    return notice if missing else ""


def _origin(exhibit: Exhibit) -> str:
    """Return how the exhibit was made: the command, its scale, the data, the settings."""
    code = f'<pre tabindex="0"><code>{escape(exhibit.command)}</code></pre>{COPY}'
    data = "".join(f"<li>{_badge(text)}{escape(text)}</li>" for text in exhibit.data)
    made = "".join(f"<li>{escape(text)}</li>" for text in exhibit.origins)
    rows = {
        "Command": f'<div class="command">{code}</div>' if exhibit.command else "",
        "Scale": escape(exhibit.scale),
        "Data": f"<ul>{data}</ul>" if data else "",
        "Made by": f"<ul>{made}</ul>" if made else "",
        "Settings": _settings(exhibit.settings),
    }
    parts = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in rows.items() if text)
    return f'<h3>How it was made</h3>\n<dl class="origin">{parts}</dl>' if parts else ""


def _settings(text: str) -> str:
    """Return the files behind an exhibit, to open and to copy from."""
    if not text:
        return ""
    code = f'<pre tabindex="0"><code>{escape(text)}</code></pre>'
    return f"<details><summary>TOML</summary>{code}</details>"


def _badge(sentence: str) -> str:
    """Return a mark before a sentence about data that the paper did not use."""
    kinds = [kind for words, kind in BADGES.items() if words in sentence.lower()]
    return f'<strong class="badge">{kinds[0]}</strong> ' if kinds else ""
