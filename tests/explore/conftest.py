"""A server of pages and a browser for the tests in files ``test_browser_*.py``."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.explore.browsing import Served, Visitor

MISSING = "no browser: install Chromium (apt-get install chromium), or name one in CALCULON_BROWSER"


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the browser."""
    from tests.explore.browsing import executable

    path = executable()
    if path is None:
        pytest.skip(MISSING)
    return path


@pytest.fixture(scope="session")
def served(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator["Served"]:
    """``calculon explore``; a defect that it tells of in its terminal is a failure."""
    from tests.explore.browsing import Served

    server = Served(tmp_path_factory.mktemp("explore"))
    yield server
    server.end()
    assert "Traceback" not in server.told, server.told


@pytest.fixture(scope="module")  # while it runs, no other test can start an event loop
def browser(chromium: str) -> Iterator["Browser"]:
    """Chromium, without a window."""
    from playwright.sync_api import sync_playwright

    from tests.explore.browsing import switches

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=switches())
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def windows(browser: "Browser", served: "Served") -> Iterator["Visitor"]:
    """Whoever looks at the pages of all tests of a file, one after the other."""
    from tests.explore.browsing import Visitor

    someone = Visitor(browser, served.address)
    yield someone
    someone.leave()


@pytest.fixture
def visitor(windows: "Visitor") -> Iterator["Visitor"]:
    """Whoever looks at pages; an error in the browser's console is a failure."""
    windows.errors.clear()
    yield windows
    assert not windows.errors, "\n".join(windows.errors)
