"""Formulas as MathML: browsers show it, so that the site needs no script for them."""

from __future__ import annotations

import html as entities
import re

from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(span|div) class="arithmatex">(\\[(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def to_mathml(html: str) -> str:
    """The page with each formula of the extension `arithmatex` as MathML."""
    return _FORMULA.sub(_convert, html)


def _convert(match: re.Match[str]) -> str:
    display = "inline" if match[2] == r"\(" else "block"
    return convert(entities.unescape(match[3]), display=display)
