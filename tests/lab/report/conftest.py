"""What tests of the page share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.report import browser as browsers
from tests.lab.report.browser import Browser


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A window of a browser, if one is installed."""
    found = browsers.programs()
    if not found:
        pytest.skip("needs a browser: install chromium (or google-chrome) and chromedriver")
    with browsers.start(*found, tmp_path_factory.mktemp("profile")) as window:
        window.tell("url", url="about:blank")
        yield window
