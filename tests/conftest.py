"""Settings of the whole suite: how many examples hypothesis draws, and the marks of each test."""

import gc
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers

from tests import times
from tests.draws import FACTOR, draws
from tests.store import STORE, begin_test, cpu_seconds, fixtures_of, owed

ROOT = Path(__file__).resolve().parent.parent
"""Not from ``tests.helpers``, which imports much: what this file imports, every test does."""

settings.register_profile(
    "suite",
    derandomize=FACTOR == 1,  # the same examples in every run of the full suite
    deadline=None,
    max_examples=draws(20),
    database=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),  # failures without minutes of explaining
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")

# Hypothesis mixes constants of all modules that happen to be imported into what it draws, so that
# examples would depend on the tests before. It has no setting for that: let no module count.
assert hasattr(providers, "is_local_module_file"), "where does hypothesis look for constants now?"
setattr(providers, "is_local_module_file", lambda path: False)  # noqa: B010

APPLICATIONS = ("cli", "documents", "render", "explore", "calibrate", "validate", "study")
"""Packages of commands, pages and files."""

PLACES = {
    "tests/test_pages.py": "docs",
    "tests/test_scripts.py": "docs",
    "tests/test_examples.py": "docs",
    "tests/test_notebook.py": "docs",
    **{f"{tree}/{name}": "apps" for tree in ("tests", "calculon") for name in APPLICATIONS},
    "tests/test_bootstrap.py": "apps",
    "tests/search": "search",
    "tests/reference/test_searches.py": "search",
    "calculon/search": "search",
}
"""The mark of each place; every other test is of the model."""

REQUIRED = os.environ.get("CALCULON_REQUIRE_ALL") == "1"
"""Whether a test may not be skipped for want of a browser or a package: so in CI."""
ALLOWED_SKIPS = ("needs zsh", "needs tcsh", "no network beyond the node")

KINDS = (*dict.fromkeys(PLACES.values()), "model")

BROWSED = "test_browser_"
"""How the files begin whose tests need a browser."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that update the list of times and that shuffle the tests."""
    parser.addoption(
        "--record-times",
        action="store_true",
        help="update tests/times.txt, after a run of all tests",
    )
    parser.addoption(
        "--shuffle",
        metavar="SEED",
        help="run the files, and the tests of each file, in random order",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder of stored results, and measure the times of tests if asked to, in each worker."""
    # Workers have the variable, and the folder, of the process that starts them.
    if STORE not in os.environ:
        os.environ[STORE] = folder = tempfile.mkdtemp(prefix="calculon-store-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    # Registered, as hooks of this file see only what is below it.
    config.pluginmanager.register(Examples())
    if config.getoption("--record-times"):
        chosen = config.option.keyword or config.option.markexpr
        chosen = chosen or config.args_source is not pytest.Config.ArgsSource.TESTPATHS
        if chosen and not hasattr(config, "workerinput"):
            raise pytest.UsageError("--record-times goes with all tests: other times would be lost")
        config.pluginmanager.register(Stopwatch(config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test by its place, and the slow ones by the list; leave out the large ones unless asked for them."""
    if FACTOR == 1:
        config.hook.pytest_deselected(items=[item for item in items if is_large(item)])
        items[:] = [item for item in items if not is_large(item)]
    try:
        slow = {name for name, one in times.listed().items() if not one.fast}
    except (OSError, ValueError) as error:
        raise pytest.UsageError(str(error)) from None
    for item in items:
        path = item.path.relative_to(ROOT).as_posix()
        marks = (mark for place, mark in PLACES.items() if path.startswith(place))
        item.add_marker(next(marks, "model"))
        if item.path.name.startswith(BROWSED):
            item.add_marker("browser")
        is_slow = times.function(item.nodeid) in slow or item.get_closest_marker("docs") is not None
        if is_slow and item.get_closest_marker("quick") is None:
            item.add_marker("slow")
    if seed := config.getoption("--shuffle"):
        items[:] = shuffled(items, seed)


def pytest_collection_finish() -> None:
    """Spare the garbage collector the modules and tests, which stay: it would look at them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)


def is_large(item: pytest.Item) -> bool:
    """Return whether only ``scripts/test --large`` runs a test."""
    return item.get_closest_marker("large") is not None


def shuffled(items: list[pytest.Item], seed: str) -> list[pytest.Item]:
    """Return the tests in random order; those of a file stay together and share its fixtures."""
    draw = random.Random(seed)  # seeded: all workers must see the same order
    files = {item.path: draw.random() for item in items}
    return sorted(items, key=lambda item: (files[item.path], draw.random()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Make a failure of what is skipped although it is required."""
    report = yield
    return required(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    """Do the same for whole files."""
    report = yield
    return required(report)


def required(report: Any) -> Any:
    """Return the report of a test or file, failed if it was skipped and may not be."""
    if REQUIRED and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if reason not in ALLOWED_SKIPS:
            report.outcome, report.longrepr = "failed", f"skipped, but required: {reason}"
    return report


class Examples:
    """Leaves out the examples of modules that have none, which would be imported to look for them."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Iterator[None]:
        """Return what collects the tests of a file."""
        found = yield
        if file_path.suffix != ".py" or ">>> " in file_path.read_text(encoding="utf-8"):
            return found
        return [one for one in found or [] if not isinstance(one, DoctestModule)]


class Stopwatch:
    """Measures the CPU time of each test function, including the processes that it starts.

    The list of slow tests counts what they share with others as theirs: any of them may be the first to need it.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.seconds: Counter[str] = Counter()
        self.alone: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.fixtures: dict[Any, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        """Keep the time of a fixture that tests share."""
        begin = owed()
        result = yield
        if fixturedef.scope != "function":
            self.fixtures[fixturedef] = owed() - begin
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Add the time of one case."""
        known = set(self.fixtures)
        begin_test()
        begin, begin_alone = cpu_seconds(), owed()
        result = yield
        spent, alone = cpu_seconds() - begin, owed() - begin_alone
        used = {one for found in fixtures_of(item) for one in found} & known
        self.seconds[times.function(item.nodeid)] += spent
        # Cases share as well: the dearest says more than the sum.
        alone += sum(self.fixtures[one] for one in used)
        self.alone[times.function(item.nodeid)] = max(
            alone, self.alone[times.function(item.nodeid)]
        )
        self.kinds[next(mark.name for mark in item.iter_markers() if mark.name in KINDS)] += spent
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add the times that a worker measured."""
        output = getattr(node, "workeroutput", {})
        self.seconds.update(output.get("seconds", {}))
        self.alone |= Counter(output.get("alone", {}))
        self.kinds.update(output.get("kinds", {}))

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Hand the times to the process that started this worker, or update the list."""
        if hasattr(self.config, "workeroutput"):
            counters = {"seconds": self.seconds, "alone": self.alone, "kinds": self.kinds}
            self.config.workeroutput |= {name: dict(counts) for name, counts in counters.items()}
        elif exitstatus == pytest.ExitCode.OK:  # otherwise some tests have not run to their end
            times.write(times.updated(times.listed(), self.seconds | self.alone))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the CPU time by kind, and the slowest functions."""
        if hasattr(self.config, "workeroutput"):
            return
        kinds = "  ".join(f"{kind} {seconds:.0f} s" for kind, seconds in self.kinds.most_common())
        total = cpu_seconds()
        terminalreporter.section(f"{total:.0f} s of processor time, imports included")
        terminalreporter.write_line(f"by kind: {kinds}")
        for name, seconds in self.seconds.most_common(10):
            terminalreporter.write_line(f"{seconds:6.1f} s  {name}")
