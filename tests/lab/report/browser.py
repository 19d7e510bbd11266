"""A browser for tests: the W3C WebDriver protocol, spoken to chromedriver."""

from __future__ import annotations

import base64
import contextlib
import http
import http.client
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

WAIT = 60.0
"""Seconds until a browser that says nothing has failed: machines can be busy."""
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
)
KEYS = {"Escape": "\ue00c", "ArrowRight": "\ue014", "ArrowLeft": "\ue012", "End": "\ue010"}


class BrowserError(Exception):
    """The browser could not do what it was told."""


def browser() -> str | None:
    """The browser, if one is installed."""
    names = ("chromium", "google-chrome", "chromium-browser")
    return next(filter(None, map(shutil.which, names)), None)


def programs() -> tuple[str, str] | None:
    """The browser and its driver, if both are installed."""
    found, driver = browser(), shutil.which("chromedriver")
    return (found, driver) if found and driver else None


class Browser:
    """One window of a browser."""

    def __init__(self, port: int, session: str = "") -> None:
        self.port = port
        self.session = session

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send one command and return its value."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)
        with contextlib.closing(connection):
            text = json.dumps(body or {}) if method == "POST" else None
            connection.request(method, path, text, {"Content-Type": "application/json"})
            response = connection.getresponse()
            value = json.loads(response.read())["value"]
        if response.status != http.HTTPStatus.OK:
            raise BrowserError(value["message"])
        return value

    def tell(self, path: str, **body: Any) -> Any:
        """Send one command to the window."""
        return self.ask("POST", f"/session/{self.session}/{path}", body)

    def open(self, path: Path) -> None:
        """Load a file."""
        self.tell("url", url=path.resolve().as_uri())

    def run(self, script: str, *arguments: Any) -> Any:
        """The value of a script's return statement."""
        return self.tell("execute/sync", script=script, args=list(arguments))

    def until(self, condition: str) -> Any:
        """Wait until an expression is true."""
        end = time.monotonic() + WAIT
        while not (value := self.run(f"return {condition}")):
            if time.monotonic() > end:
                msg = f"never true: {condition}"
                raise BrowserError(msg)
            time.sleep(0.05)
        return value

    def find(self, selector: str) -> dict[str, str]:
        """The first element that fits."""
        return self.tell("element", using="css selector", value=selector)

    def click(self, selector: str) -> None:
        """Click the first element that fits."""
        element = self.find(selector)
        self.run(_CENTER, element)
        self.tell(f"element/{element[ELEMENT]}/click")

    def press(self, selector: str, key: str) -> None:
        """Press a key on an element."""
        self.tell(f"element/{self.find(selector)[ELEMENT]}/value", text=KEYS.get(key, key))

    def type(self, key: str) -> None:
        """Press a key, wherever the focus is."""
        value = KEYS.get(key, key)
        steps = [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self.tell("actions", actions=[{"type": "key", "id": "keys", "actions": steps}])

    def hover(self, x: float, y: float) -> None:
        """Move the mouse to a point of the window."""
        self._mouse(_move(x, y))

    def drag(self, start: Sequence[float], end: Sequence[float]) -> None:
        """Drag the mouse from one point of the window to another."""
        half = [(a + b) / 2 for a, b in zip(start, end, strict=True)]
        self._mouse(_move(*start), _DOWN, _move(*half), _move(*end), _UP)

    def double_click(self, x: float, y: float) -> None:
        """Click twice on a point of the window."""
        self._mouse(_move(x, y), _DOWN, _UP, _DOWN, _UP)

    def _mouse(self, *steps: dict[str, Any]) -> None:
        mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}}
        self.tell("actions", actions=[{**mouse, "actions": list(steps)}])

    def devtools(self, command: str, **parameters: Any) -> Any:
        """A command of the browser's own protocol."""
        return self.tell("goog/cdp/execute", cmd=command, params=parameters)

    def size(self, width: int, height: int) -> None:
        """Give the page so many pixels, which can be fewer than a window's least."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def media(self, kind: str = "", **features: str) -> None:
        """Pretend to be on paper (`print`), or that the reader prefers something."""
        named = [{"name": name.replace("_", "-"), "value": v} for name, v in features.items()]
        self.devtools("Emulation.setEmulatedMedia", media=kind, features=named)

    def log(self, kind: str) -> list[dict[str, Any]]:
        """What is new in a log: `browser` or `performance`."""
        return self.tell("se/log", type=kind)

    def requests(self) -> list[str]:
        """The addresses asked for since the log was read last."""
        messages = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Save a picture of what is seen, or of the whole page."""
        more: dict[str, Any] = {"captureBeyondViewport": True} if whole else {}
        if whole:
            size = self.devtools("Page.getLayoutMetrics")["cssContentSize"]
            more["clip"] = {**size, "scale": 1}
        path.write_bytes(base64.b64decode(self.devtools("Page.captureScreenshot", **more)["data"]))

    def print(self, path: Path) -> None:
        """Save the page as it is printed."""
        found = self.devtools("Page.printToPDF", preferCSSPageSize=False, printBackground=False)
        path.write_bytes(base64.b64decode(found["data"]))


_CENTER = "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})"
_DOWN = {"type": "pointerDown", "button": 0}
_UP = {"type": "pointerUp", "button": 0}


def _move(x: float, y: float) -> dict[str, Any]:
    return {"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)}


@contextlib.contextmanager
def start(browser: str, driver: str, folder: Path) -> Generator[Browser]:
    """A browser with a fresh profile in a folder, until the block ends."""
    port = _free_port()
    command = [driver, f"--port={port}"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:  # noqa: S603
        try:
            window = Browser(port)
            _wait(window, process)
            window.session = window.ask("POST", "/session", _wanted(browser, folder))["sessionId"]
            yield window
            window.ask("DELETE", f"/session/{window.session}")
        finally:
            process.terminate()


def _wanted(browser: str, folder: Path) -> dict[str, Any]:
    options = {"binary": browser, "args": [*FLAGS, f"--user-data-dir={folder}"]}
    wanted = {
        "browserName": "chrome",
        "goog:chromeOptions": options,
        "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
    }
    return {"capabilities": {"alwaysMatch": wanted}}


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _wait(window: Browser, process: subprocess.Popen[bytes]) -> None:
    """Wait until the driver answers."""
    end = time.monotonic() + WAIT
    while time.monotonic() < end and process.poll() is None:
        try:
            if window.ask("GET", "/status")["ready"]:
                return
        except OSError:
            time.sleep(0.05)
    msg = "chromedriver does not answer"
    raise BrowserError(msg)
