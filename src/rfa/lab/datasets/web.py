"""Ask a web server for a file, and tell temporary failures from permanent ones."""

from __future__ import annotations

import email.utils
import http.client
import re
import ssl
import time
import urllib.error
import urllib.request
from http import HTTPStatus
from typing import Any
from urllib.parse import urljoin, urlsplit

from rfa.lab.datasets.partial import DownloadError
from rfa.lab.errors import LabError

LONGEST_PAUSE = 60.0
TRANSIENT = {408, 416, 429, 500, 502, 503, 504}
"""Status codes after which the next attempt may succeed: timeouts, limits, server errors."""


class TransientError(LabError):
    """A request failed, but the next one may succeed.

    Attributes:
        pause: the seconds to wait before it; None for the default.
        restart: whether the bytes that arrived are useless.
    """

    def __init__(self, reason: str, pause: float | None = None, *, restart: bool = False) -> None:
        super().__init__(reason)
        self.pause = pause
        self.restart = restart


def check_url(url: str) -> None:
    """Check that an address is http or https."""
    if not _is_web(url):
        msg = f"only http and https addresses can be downloaded, not {url!r}"
        raise DownloadError(msg)


def _is_web(url: str, base: str = "") -> bool:
    """Return whether an address is http or https; https is required if `base` is https."""
    try:
        parts = urlsplit(urljoin(base, url))
    except ValueError:
        return False
    schemes = {"https"} if base.startswith("https:") else {"http", "https"}
    return parts.scheme in schemes and bool(parts.hostname)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows up to 10 redirects, only to http(s), and never from https to http."""

    def http_error_302(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any
    ) -> Any:
        place = headers.get("Location", "")
        if not _is_web(place, req.full_url):
            reason = f"redirection to {place!r} is refused"
            raise urllib.error.HTTPError(req.full_url, code, reason, headers, fp)
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def ask(url: str, headers: dict[str, str], timeout: float) -> Any:
    """Return the server's answer unchanged; `refuse_wrong` checks that it is the file.

    Raises:
        TransientError: if the next attempt may succeed.
        DownloadError: if it will not.
    """
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 download checks the address
    try:
        return urllib.request.build_opener(_Redirects).open(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        raise _status_failure(url, error) from error
    except (OSError, http.client.HTTPException) as error:
        raise _connection_failure(url, getattr(error, "reason", error)) from error
    except ValueError as error:  # a host whose name cannot be encoded
        msg = f"{url} leads to an address that is none: {error}"
        raise DownloadError(msg) from error


def _status_failure(url: str, error: urllib.error.HTTPError) -> Exception:
    said = f"the server answered {error.code} {error.reason}".replace("\n", " ")
    if error.code not in TRANSIENT:
        hint = "The file may have moved, or need an account: see the page of the data set"
        return DownloadError(f"{url}: {said}. {hint}")
    if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        return TransientError(said, 0.0, restart=True)
    wait = _retry_after(error.headers.get("Retry-After"))
    if wait is not None and wait > LONGEST_PAUSE:
        return DownloadError(f"{url}: {said} and asks to come back in {wait:.0f} s")
    return TransientError(said, wait)


def _connection_failure(url: str, reason: object) -> Exception:
    if isinstance(reason, ssl.SSLCertVerificationError):
        hint = "Check the clock and the certificates of this computer"
        return DownloadError(f"{url} cannot be trusted: {reason}. {hint}")
    return TransientError(f"the server cannot be reached or does not answer ({name_of(reason)})")


def _retry_after(value: str | None) -> float | None:
    seconds = number(value)
    if value is None or seconds is not None:
        return seconds
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def refuse_wrong(url: str, response: Any) -> None:
    """Check that an answer is the file, without a content encoding."""
    if response.status not in {HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT}:
        msg = f"{url}: the server answered {response.status} without the file"
        raise DownloadError(msg)
    if response.headers.get_content_type() == "text/html":
        raise web_page(url)
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        msg = f"{url}: the server sends the file encoded as {encoding}, though asked not to"
        raise DownloadError(msg)


def web_page(url: str) -> DownloadError:
    """Return the error for a web page in place of the file."""
    hint = "Open the address in a browser: it may ask to sign in, or say where the file went"
    return DownloadError(f"{url}: a web page (HTML) came instead of the file. {hint}")


def content_range(response: Any) -> tuple[int | None, int | None]:
    """Return the first byte of the part that came, and the size of the complete file."""
    value = response.headers.get("Content-Range", "").strip()
    match = re.fullmatch(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", value)
    if match is None:
        return None, None
    start, last, total = match.groups()
    return int(start), int(last) + 1 if total == "*" else int(total)


def validator(response: Any) -> str | None:
    """Return a value that identifies this version of the file, to the byte."""
    tag = response.headers.get("ETag")
    if tag and not tag.startswith("W/"):  # a weak tag does not promise the same bytes
        return tag
    return response.headers.get("Last-Modified")


def number(value: str | None) -> int | None:
    """Return the number in a header; None if it is not one."""
    return int(value) if value and re.fullmatch(r"[0-9]{1,18}", value.strip()) else None


def name_of(error: object) -> str:
    """Return the message of an exception, or its type."""
    return str(error) or type(error).__name__
