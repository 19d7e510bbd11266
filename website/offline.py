"""The site loads nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.exceptions import PluginError

_ASSETS = (
    re.compile(r"<(?:script|img|iframe|source)[^>]*?\ssrc=[\"']?((?:https?:)?//[^\"'\s>]+)"),
    re.compile(r"<link(?![^>]*rel=[\"']?canonical)[^>]*?\shref=[\"']?((?:https?:)?//[^\"'\s>]+)"),
    re.compile(r"(?:url\(|@import )[\"']?((?:https?:)?//[^\"')\s]+)"),
)


def assets(text: str) -> list[str]:
    """What a page or a style sheet loads from the internet."""
    return [address for pattern in _ASSETS for address in pattern.findall(text)]


def check(site: Path) -> None:
    """Fail if a page or a style sheet of a site loads anything from the internet.

    Raises:
        PluginError: naming the file and what it loads.
    """
    for path in sorted([*site.rglob("*.html"), *site.rglob("*.css")]):
        for address in assets(path.read_text(encoding="utf-8")):
            msg = f"{path.relative_to(site)} loads {address}: the site must work offline"
            raise PluginError(msg)
