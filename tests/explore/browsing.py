"""Pages of ``calculon explore`` in a real browser."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

ROOT = Path(__file__).resolve().parents[2]

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

WIDTHS = {1280: 900, 390: 844, 320: 640}
"""Heights of a window by its width: a desk, a phone, a narrow phone."""

PATIENCE = 20_000
"""Milliseconds until a page must stand: machines of tests may be busy."""

SMALL = {"model": "gpt2-124M", "system": "a100_80g_sxm", "procs": 8}
SEARCH = {**SMALL, "view": "search"}
MACHINE = {**SMALL, "view": "machine"}
STAGES = 4
PIPELINE = {
    **SMALL,
    "preset": "megatron-lm",
    "batch": 32,
    "tensor_par": 2,
    "pipeline_par": STAGES,
    "microbatch_size": 1,
    "pipeline_interleaving": 1,
    "view": "pipeline",
}
"""States of the views, as addresses have them."""

NUMBER = "#slider-1-value"

SCRIPT = "text/javascript"

BUSY = "() => !document.documentElement.hasAttribute('data-busy')"


def executable() -> str | None:
    """Return the Chromium that is installed: that of ``CALCULON_BROWSER``, else one on the path."""
    found = (
        shutil.which(name) for name in (os.environ.get("CALCULON_BROWSER", ""), *NAMES) if name
    )
    return next(filter(None, found), None)


def switches() -> list[str]:
    """Return what Chromium is started with: root has no sandbox."""
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    return ["--no-sandbox"] if root else []


class Served:
    """``calculon explore`` in a process of its own.

    In a thread, its warnings would be errors of the test that runs by chance.

    Args:
        folder: Where its messages are kept.
    """

    def __init__(self, folder: Path):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        self._told = folder / "explore.txt"
        command = [sys.executable, "-m", "calculon", "explore", "--no-browser", "--port", str(port)]
        with self._told.open("wb") as told:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=told, stderr=told
            )
        self._wait()

    def _wait(self) -> None:
        end = time.monotonic() + PATIENCE / 1e3
        while time.monotonic() < end and self._process.poll() is None:
            try:
                with urlopen(f"{self.address}/assets/explore.css", timeout=5):
                    return
            except (URLError, OSError):
                time.sleep(0.05)
        self.end()
        raise AssertionError(f"the page was not served:\n{self.told}")

    @property
    def told(self) -> str:
        """What it has printed."""
        return self._told.read_text("utf-8", "replace")

    def end(self) -> None:
        """Stop it."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Visitor:
    """Opens pages, and notes what goes wrong on them.

    Args:
        browser: The browser.
        address: The beginning of every address.
    """

    def __init__(self, browser: "Browser", address: str):
        self.address = address
        self._context: BrowserContext = browser.new_context()
        self._pages: dict[tuple[bool, bool, str], Page] = {}
        self.errors: list[str] = []

    def open(
        self,
        state: Mapping[str, object] | None = None,
        *,
        charts: bool = True,
        later: bool = True,
        window: str = "",
    ) -> "Page":
        """Open a state, and wait until everything of it stands.

        To read the script of the charts takes a browser a second, the parts that come later the server as long, and a
        new window nearly so: a test goes without charts, or without both, where it can, and states have one window
        one after the other, but for those with a ``window`` of another name.
        """
        key = charts and later, later, window
        if key not in self._pages:
            self._pages[key] = self._opened(charts and later, later)
        page = self._pages[key]
        page.set_viewport_size({"width": 1280, "height": WIDTHS[1280]})
        page.emulate_media(media="screen", color_scheme="light", reduced_motion="no-preference")
        page.goto(f"{self.address}/?{urlencode(state or {})}")
        return settled(page)

    def _opened(self, charts: bool, later: bool) -> "Page":
        page = self._context.new_page()
        page.set_default_timeout(PATIENCE)
        if not charts:
            page.route(
                "**/plotly.min.js", lambda route: route.fulfill(body="", content_type=SCRIPT)
            )
        if not later:
            page.route("**/part/*", lambda route: route.fulfill(json={"html": ""}))
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.errors.append(f"{page.url}: {error}"))
        return page

    def _note(self, message: "ConsoleMessage") -> None:
        refused = "status of 400" in message.text  # Chromium tells of every answer to nonsense
        if message.type in ("error", "warning") and not refused:
            self.errors.append(f"{message.type}: {message.text}")

    def leave(self) -> None:
        """Close all windows."""
        self._context.close()


def settled(page: "Page") -> "Page":
    """Wait until everything that was asked for stands on a page."""
    page.wait_for_function(BUSY)
    return page


def entered(page: "Page", field: str, text: str) -> None:
    """Write into a field, press Enter, and wait until the answer stands."""
    page.fill(field, text)
    page.press(field, "Enter")
    settled(page)


def resized(page: "Page", width: int, *, dark: bool = False) -> "Page":
    """Look at a page in a window of another width, in light or dark colors, and wait until it stands."""
    page.set_viewport_size({"width": width, "height": WIDTHS[width]})
    page.emulate_media(color_scheme="dark" if dark else "light")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    return settled(page)


def wider_than_screen(page: "Page") -> Sequence[str]:
    """Return what sticks out of a page to the right, other than inside of what scrolls."""
    return page.evaluate(
        """() => {
          const edge = document.documentElement.clientWidth + 0.5;
          if (document.documentElement.scrollWidth <= edge) return [];
          return [...document.body.querySelectorAll("*")]
            .filter((one) => one.getBoundingClientRect().right > edge)
            .map((one) => `${one.tagName}#${one.id}.${one.className}`);
        }"""
    )
