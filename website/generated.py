"""The pages that are made from the code at each build."""

from __future__ import annotations

from website.commands import commands_page
from website.errors import errors_page
from website.lab_pages import names_page, settings_page
from website.messages import messages_page

GENERATED = {
    "reference/commands.md": commands_page,
    "reference/settings.md": settings_page,
    "reference/names.md": names_page,
    "reference/errors.md": errors_page,
    "reference/wire-format.md": messages_page,
}
"""What makes each page, by where it is on the site."""
