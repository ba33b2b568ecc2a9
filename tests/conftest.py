"""Settings of the whole suite: how many examples hypothesis draws, and the marks of each test."""

import os
import random
import resource
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers

ROOT = Path(__file__).resolve().parent.parent
"""Not from ``tests.helpers``, which imports much: what this file imports, every test does."""

settings.register_profile(
    "suite",
    derandomize=True,  # the same examples in every run
    deadline=None,
    max_examples=int(os.environ.get("CALCULON_EXAMPLES", "20")),
    database=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),  # failures without minutes of explaining
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")

# Hypothesis mixes constants of all modules that happen to be imported into what it draws, so that
# examples would depend on the tests before. It has no setting for that: let no module count.
assert hasattr(providers, "is_local_module_file"), "where does hypothesis look for constants now?"
setattr(providers, "is_local_module_file", lambda path: False)  # noqa: B010

PLACES = {
    "tests/test_pages.py": "docs",
    "tests/test_scripts.py": "docs",
    "tests/test_examples.py": "docs",
    "tests/test_notebook.py": "docs",
    "tests/apps": "apps",
    "calculon/apps": "apps",
    "tests/test_bootstrap.py": "apps",
    "tests/search": "search",
    "tests/reference/test_searches.py": "search",
    "calculon/search": "search",
}
"""The mark of each place; every other test is of the model."""

BROWSED = "test_browser_"
"""How the files begin whose tests need a browser."""

SLOW = Path(__file__).with_name("slow_tests.txt")
SLOW_FROM = 0.2
"""Seconds of CPU that all cases of a slow test take together on a slow machine."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that write the list of slow tests and that shuffle the tests."""
    parser.addoption(
        "--record-slow",
        action="store_true",
        help=f"write {SLOW.name} anew, from a run of all tests in one process",
    )
    parser.addoption(
        "--shuffle",
        metavar="SEED",
        help="run the files, and the tests of each file, in random order",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Take the time of tests when it is asked for."""
    if config.getoption("--record-slow"):
        config.pluginmanager.register(Stopwatch())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test by its place, and the slow ones by the list; shuffle them if asked to."""
    slow = set(SLOW.read_text(encoding="utf-8").split())
    for item in items:
        path = item.path.relative_to(ROOT).as_posix()
        marks = (mark for place, mark in PLACES.items() if path.startswith(place))
        item.add_marker(next(marks, "model"))
        if item.path.name.startswith(BROWSED):
            item.add_marker("browser")
        if function(item) in slow:
            item.add_marker("slow")
    if seed := config.getoption("--shuffle"):
        items[:] = shuffled(items, seed)


def shuffled(items: list[pytest.Item], seed: str) -> list[pytest.Item]:
    """Return the tests in random order; those of a file stay together and share its fixtures."""
    draw = random.Random(seed)  # seeded: all workers must see the same order
    files = {item.path: draw.random() for item in items}
    return sorted(items, key=lambda item: (files[item.path], draw.random()))


def function(item: pytest.Item) -> str:
    """Return the name of a test without its case."""
    return item.nodeid.split("[")[0].replace(" ", "_")


class Stopwatch:
    """Takes the CPU time of each test, of the processes that it starts too."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Add the time of one case."""
        begin = cpu_seconds()
        result = yield
        self.seconds[function(item)] += cpu_seconds() - begin
        return result

    def pytest_sessionfinish(self) -> None:
        """Write the list."""
        slow = sorted(name for name, seconds in self.seconds.items() if seconds >= SLOW_FROM)
        SLOW.write_text("\n".join(slow) + "\n", encoding="utf-8")


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its ended children."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)
