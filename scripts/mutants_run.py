"""Change single expressions of the program, one at a time, and report which tests fail because of it.

scripts/mutants                        20 changes of any module
scripts/mutants -n 100 calculon/cost   100 changes of one package
scripts/mutants --fast                 only the tests of scripts/test --fast
scripts/mutants -n 3000 --choose 8     choose 8 s of slow tests for scripts/test --fast, the tests that are estimated to
                                       notice the most changes; writes tests/times.txt

All changes are compiled into the program behind switches, so the program is imported and its tests are collected only
once. The tests first run without any change, to record which of them reach each switch, also through shared results.
Then each change is switched on in a separate process, where the tests that reach it run until one fails, starting with
the tests of scripts/test --fast, shortest first. Programs that tests start are unchanged.
"""

import argparse
import ast
import copy
import functools
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import os
import random
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

from tests import store, times

ROOT = Path(__file__).resolve().parent.parent
SWITCHES = "calculon_mutants"
"""The module that the changed program asks which change is on."""

APPLICATIONS = ("cli", "documents", "render", "explore", "calibrate", "validate", "study")
KINDS = {
    "tests/properties": "laws",
    "tests/twin": "twin",
    "tests/reference": "reference results",
    **{f"tests/{name}": "commands and pages" for name in APPLICATIONS},
    "tests/search": "searches",
    "tests/test_": "whole program",
    "calculon/": "examples of docstrings",
}
"""Kinds of tests by place; the first match counts, all others are unit tests."""

ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


@dataclass
class Mutant:
    """A change of one expression.

    Attributes:
        path, line: Where the expression is.
        before, after: The expression, and what replaces it.
        tests: Node names of the tests that reach it.
        failed: The first test that failed with the change; empty for a survivor.
        quickly: Whether a test of ``scripts/test --fast`` failed.
        stopped: Whether the time was up before all tests that reach it had run.
    """

    path: str
    line: int
    before: str
    after: str
    tests: list[str] = field(default_factory=list)
    failed: str = ""
    quickly: bool = False
    stopped: bool = False

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before}  ->  {self.after}"


def changed(node: ast.expr) -> ast.expr | None:
    """Return what replaces an expression; nothing where it has no part that this script changes."""
    new = copy.deepcopy(node)
    if isinstance(new, ast.BinOp) and type(new.op) in ARITHMETIC and not is_text(new):
        new.op = ARITHMETIC[type(new.op)]()
    elif isinstance(new, ast.Compare) and type(new.ops[0]) in COMPARISONS:
        new.ops[0] = COMPARISONS[type(new.ops[0])]()
    elif isinstance(new, ast.BoolOp):
        new.op = ast.Or() if isinstance(new.op, ast.And) else ast.And()
    elif isinstance(new, ast.UnaryOp) and isinstance(new.op, ast.Not | ast.USub):
        return new.operand
    elif isinstance(new, ast.IfExp):
        new.body, new.orelse = new.orelse, new.body
    elif isinstance(new, ast.Constant) and type(new.value) in (int, float):
        new.value = new.value + 1 if isinstance(new.value, int) else new.value * 1.5 + 0.5
    elif isinstance(new, ast.Call) and called(new) in ("minimum", "maximum", "min", "max"):
        swap = {"minimum": "maximum", "maximum": "minimum", "min": "max", "max": "min"}
        if isinstance(new.func, ast.Name):
            new.func.id = swap[new.func.id]
        elif isinstance(new.func, ast.Attribute):
            new.func.attr = swap[new.func.attr]
    else:
        return None
    return new


def is_text(node: ast.BinOp) -> bool:
    """Return whether an operation joins or formats texts."""
    sides = (node.left, node.right)
    return any(
        isinstance(one, ast.JoinedStr) or isinstance(getattr(one, "value", 0), str) for one in sides
    )


def called(node: ast.Call) -> str:
    """Return the last name of what is called."""
    return str(getattr(node.func, "id", getattr(node.func, "attr", "")))


class Places(ast.NodeVisitor):
    """Finds the expressions inside of functions that can be changed, by line and column."""

    def __init__(self) -> None:
        self.found: list[ast.expr] = []
        self.depth = 0

    def visit(self, node: ast.AST) -> None:
        """Visit a node; annotations, defaults, patterns and messages do not count."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self.depth += 1
            for one in node.body:
                self.visit(one)
            self.depth -= 1
        elif isinstance(node, ast.AnnAssign):
            if node.value:
                self.visit(node.value)
        elif not isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.match_case):
            if self.depth and isinstance(node, ast.expr) and changed(node) is not None:
                self.found.append(node)
            self.generic_visit(node)


class Switching(ast.NodeTransformer):
    """Puts switches around some expressions: ``after if on(number) else before``."""

    def __init__(self, numbers: dict[tuple[int, int, str], int]) -> None:
        self.numbers = numbers

    def visit(self, node: ast.AST) -> Any:
        """Return a node with its switch."""
        key = place(node)
        inner = self.generic_visit(node)
        if key not in self.numbers:
            return inner
        after = changed(node)  # type: ignore[arg-type]
        assert after is not None
        test = ast.parse(f"__import__({SWITCHES!r}).on({self.numbers[key]})", mode="eval").body
        new = ast.IfExp(test=test, body=after, orelse=inner)
        return ast.fix_missing_locations(ast.copy_location(new, node))


def place(node: ast.AST) -> tuple[int, int, str]:
    """Return where a node is, and of which kind."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0), ast.dump(node)


def drawn(paths: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """Draw changes of the modules below some paths, each expression with the same chance."""
    if wrong := [path for path in paths if not (ROOT / path).exists()]:
        raise SystemExit(f"scripts/mutants: expected folders or modules, found {', '.join(wrong)}")
    files = sorted(
        file
        for path in paths
        for file in ([ROOT / path] if path.endswith(".py") else (ROOT / path).rglob("*.py"))
    )
    places = []
    for file in files:
        finder = Places()
        finder.visit(ast.parse(file.read_text(encoding="utf-8")))
        places += [(file.relative_to(ROOT).as_posix(), node) for node in finder.found]
    if not places:
        raise SystemExit(f"scripts/mutants: no expression to change in {', '.join(paths)}")
    chosen = random.Random(seed).sample(places, min(count, len(places)))
    mutants = []
    for path, node in chosen:
        after = changed(node)
        assert after is not None
        mutant = Mutant(path, node.lineno, ast.unparse(node), ast.unparse(after))
        mutants.append(mutant)
        Finder.switches[path][place(node)] = len(mutants) - 1
    return mutants


class Loader(importlib.machinery.SourceFileLoader):
    """Compiles a module with its switches."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the module; never what a cache holds."""
        del fullname
        path = Path(self.path)
        numbers = Finder.switches[path.relative_to(ROOT).as_posix()]
        tree = Switching(numbers).visit(ast.parse(path.read_text(encoding="utf-8")))
        return compile(ast.fix_missing_locations(tree), self.path, "exec")


class Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that have switches."""

    switches: ClassVar[defaultdict[str, dict[tuple[int, int, str], int]]] = defaultdict(dict)

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """Return how to load a module; nothing for all without switches."""
        del path, target
        if not name.startswith("calculon"):
            return None
        stem = ROOT.joinpath(*name.split("."))
        for file in (stem.with_suffix(".py"), stem / "__init__.py"):
            if file.is_file() and file.relative_to(ROOT).as_posix() in self.switches:
                return importlib.util.spec_from_file_location(
                    name, file, loader=Loader(name, str(file))
                )
        return None


class Switches(ModuleType):
    """What the program asks: which change is on; it remembers what was asked."""

    active = -1

    def __init__(self) -> None:
        super().__init__(SWITCHES)
        self.reached: set[int] = set()

    def on(self, number: int) -> bool:
        """Return whether a change is on."""
        self.reached.add(number)
        return number == self.active


@dataclass
class Part:
    """A result that tests share: the switches that it reached, and the numbers of the results that it needed."""

    reached: set[int] = field(default_factory=set)
    needed: set[int] = field(default_factory=set)


class Seconds(float):
    """The seconds that a shared result took, and what it reached and needed."""

    part: Part


class Shared:
    """Lets tests reach what the results that they share have reached, whichever of them was the first."""

    def __init__(self, switches: Switches) -> None:
        self.switches = switches
        self.compute, self.use = store.timed, store.used
        self.fixtures: dict[Any, Part] = {}
        self.seconds: list[float] = []
        """Processor time of each shared result, without the results that it needed."""
        self.needed: set[int] = set()
        self.inside = 0.0

    @contextmanager
    def part(self) -> Iterator[Part]:
        """Keep apart what a shared result reaches, needs and takes."""
        one, begin = Part(), store.cpu_seconds()
        outside = self.switches.reached, self.needed, self.inside
        self.switches.reached, self.needed, self.inside = one.reached, one.needed, 0.0
        yield one
        whole = store.cpu_seconds() - begin
        one.needed.add(len(self.seconds))
        self.seconds.append(whole - self.inside)
        self.switches.reached, self.needed = outside[0] | one.reached, outside[1] | one.needed
        self.inside = outside[2] + whole

    def timed(self, compute: Any, *args: Any, **kwargs: Any) -> tuple[Any, Seconds]:
        """Compute a result as :func:`tests.store.timed` does, and keep what it reaches and needs."""
        with self.part() as one:
            result, seconds = self.compute(compute, *args, **kwargs)
        found = Seconds(seconds)
        found.part = one
        return result, found

    def used(self, known: tuple[Any, Seconds]) -> Any:
        """Use a result again."""
        self.switches.reached |= known[1].part.reached
        self.needed |= known[1].part.needed
        return self.use(known)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        """Keep what a fixture reaches and needs that tests share."""
        if fixturedef.scope == "function":
            return (yield)
        with self.part() as self.fixtures[fixturedef]:
            return (yield)

    def of(self, item: pytest.Item) -> Part:
        """Return the switches and results of a test that has just run, with its fixtures."""
        parts = [
            self.fixtures[one]
            for definitions in store.fixtures_of(item)
            for one in definitions
            if one in self.fixtures
        ]
        return Part(
            self.switches.reached.union(*(one.reached for one in parts)),
            self.needed.union(*(one.needed for one in parts)),
        )


@dataclass
class Function:
    """A test function: its own seconds, the changes that it reaches, and the shared results that it needs."""

    seconds: float = 0.0
    reached: set[int] = field(default_factory=set)
    needed: set[int] = field(default_factory=set)


class Run:
    """Runs the collected tests: once without changes, then those that reach each change."""

    def __init__(
        self, mutants: Sequence[Mutant], seconds: float, jobs: int, choose: float | None = None
    ) -> None:
        self.mutants, self.seconds, self.jobs, self.choose = mutants, seconds, jobs, choose
        self.switches = Switches()
        sys.modules[SWITCHES] = self.switches
        self.shared = Shared(self.switches)
        for name in ("timed", "used"):
            setattr(store, name, getattr(self.shared, name))

    def pytest_configure(self, config: pytest.Config) -> None:
        """Watch the fixtures."""
        config.pluginmanager.register(self.shared)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Do everything in place of running the tests in order."""
        gc.unfreeze()  # :func:`kept` looks for functions among all objects
        items = {item.nodeid: item for item in session.items}
        print(f"{len(items)} tests; running them without changes", file=sys.stderr, flush=True)
        files = sorted({item.path for item in items.values()})
        parts = [
            [name for name, item in items.items() if files.index(item.path) % self.jobs == number]
            for number in range(self.jobs)
        ]
        taken: dict[str, float] = {}
        functions: defaultdict[str, Function] = defaultdict(Function)
        shared: list[float] = []
        for found, parts_of in in_processes(
            [lambda part=part: self.reach(items, part) for part in parts]
        ):
            for test, seconds, own, part in found:
                taken[test] = seconds
                for number in part.reached:
                    self.mutants[number].tests.append(test)
                one = functions[times.function(test)]
                one.seconds += own
                one.reached |= part.reached
                one.needed |= {number + len(shared) for number in part.needed}
            shared += parts_of
        if self.choose:
            quick, slow = quick_and_slow(items)
            chosen = strongest(functions, shared, quick, slow, self.choose)
            times.write(times.with_fast(times.listed(), chosen))
            return True
        for mutant in self.mutants:
            mutant.tests.sort(key=lambda test: (not is_quick(items[test]), taken[test]))
        for at in range(0, len(self.mutants), self.jobs):
            numbers = range(at, min(at + self.jobs, len(self.mutants)))
            tasks = [lambda number=number: self.attempt(items, number) for number in numbers]
            for number, (failed, stopped) in zip(numbers, in_processes(tasks), strict=True):
                mutant = self.mutants[number]
                mutant.failed, mutant.stopped = failed, stopped
                mutant.quickly = failed in items and is_quick(items[failed])
                print(outcome(mutant), flush=True)
        return True

    def reach(
        self, items: dict[str, pytest.Item], tests: Sequence[str]
    ) -> tuple[list[tuple[str, float, float, Part]], list[float]]:
        """Run tests without changes; return the tests that pass, and the seconds of the results that they share.

        For each test that passes: its seconds, shared results included and not, and what it reaches and needs.
        """
        found = []
        new_store()
        for test, following in zip(tests, [*tests[1:], None], strict=True):
            forget()
            self.switches.reached, self.shared.needed, self.shared.inside = set(), set(), 0.0
            store.begin_test()
            begin, begin_own = store.owed(), store.cpu_seconds()
            passed = self.passes(items[test], items[following] if following else None)
            own = store.cpu_seconds() - begin_own - self.shared.inside
            part = self.shared.of(items[test])
            if part.reached and passed:
                found.append((test, store.owed() - begin, own, part))
        return found, self.shared.seconds

    def attempt(self, items: dict[str, pytest.Item], number: int) -> tuple[str, bool]:
        """Return the first test that fails with a change, and whether the time was up before."""
        self.switches.active = number
        new_store()
        end = time.process_time() + self.seconds
        for test in self.mutants[number].tests:
            if not self.passes(items[test]):
                return test, False
            if time.process_time() > end:
                return "", True
        return "", False

    def passes(self, item: pytest.Item, following: pytest.Item | None = None) -> bool:
        """Run one test; tear down what it needed and the following one does not."""
        from _pytest.runner import runtestprotocol

        reports = runtestprotocol(item, log=False, nextitem=following)
        return all(report.outcome != "failed" for report in reports)


def is_quick(item: pytest.Item) -> bool:
    """Return whether ``scripts/test --fast`` runs a test."""
    return item.nodeid.startswith("tests/") and item.get_closest_marker("slow") is None


def quick_and_slow(items: Mapping[str, pytest.Item]) -> tuple[set[str], set[str]]:
    """Return the functions that scripts/test --fast always runs, and those that it may run as well."""
    listed, quick, slow = times.listed(), set(), set()
    for test, item in items.items():
        name, marks = times.function(test), {mark.name for mark in item.iter_markers()}
        if not test.startswith("tests/") or "docs" in marks:
            continue
        if name not in listed or "quick" in marks:
            quick.add(name)
        elif "browser" not in marks:
            slow.add(name)
    return quick, slow


MISSED = 0.7
"""The share of changes that a test function reaches and does not notice, as an assumption for choosing some."""


def strongest(
    functions: Mapping[str, Function],
    shared: Sequence[float],
    quick: Set[str],
    slow: Set[str],
    seconds: float,
) -> list[str]:
    """Return the slow functions that notice the most changes in addition to the quick ones, in a given time.

    One after the other, that with the most changes for its time, which includes what no other has computed before. What
    a function notices is estimated from what it reaches: of changes that several reach, each misses :data:`MISSED`.

    Args:
        functions: The test functions that reach a change.
        shared: Seconds of each result that functions share.
    """
    names = list(functions)
    changes = 1 + max((number for one in functions.values() for number in one.reached), default=0)
    reached = np.zeros((len(names), changes))
    needed = np.zeros((len(names), len(shared)))
    for row, one in enumerate(functions.values()):
        reached[row, list(one.reached)] = 1
        needed[row, list(one.needed)] = 1
    own = np.array([max(one.seconds, 1e-6) for one in functions.values()])
    to_pay = np.array(shared)
    kept = np.array([name in quick for name in names])
    left, chosen = np.array([name in slow for name in names]), []
    missed = MISSED ** reached[kept].sum(axis=0)
    to_pay[needed[kept].any(axis=0)] = 0
    while True:
        cost = own + needed @ to_pay
        gain = np.where(left & (cost <= seconds), reached @ missed, 0)
        best = int((gain / cost).argmax())
        if not gain[best]:
            break
        chosen.append(names[best])
        left[best] = False
        seconds -= cost[best]
        missed *= np.where(reached[best], MISSED, 1)
        to_pay[needed[best] > 0] = 0
    count = int((missed < 1).sum())
    print(f"{len(chosen)} slow functions chosen; with all quick ones they reach {count} changes")
    return chosen


def forget() -> None:
    """Let the program compute again what it keeps, so that the next test reaches it, too."""
    for one in kept(len(sys.modules)):
        one.cache_clear()


@functools.cache
def kept(modules: int) -> list[Any]:
    """Return the functions of the program that keep their results, once there are so many modules."""
    del modules
    return [
        one
        for one in gc.get_objects()
        if isinstance(one, functools._lru_cache_wrapper) and one.__module__.startswith("calculon")
    ]


def new_store() -> None:
    """Let this process compute what tests share, in place of reading what another computed without the change."""
    os.environ[store.STORE] = tempfile.mkdtemp(dir=os.environ[store.STORE])


def in_processes(tasks: Sequence[Any]) -> Iterator[Any]:
    """Yield what functions return, each called in a copy of this process."""
    waiting = []
    for task in tasks:
        here, there = Pipe(duplex=False)
        if not (child := os.fork()):
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # which pytest would take for one test
            here.close()
            there.send(task())
            os._exit(0)
        there.close()
        waiting.append((child, here))
    try:
        for child, here in waiting:
            try:
                yield here.recv()
            except EOFError:  # the change ended the process
                yield "the process ended", False
            os.waitpid(child, 0)
    except BaseException:
        for child, _ in waiting:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        raise


def kind(test: str) -> str:
    """Return of which kind a test is."""
    return next((name for begin, name in KINDS.items() if test.startswith(begin)), "unit tests")


def outcome(mutant: Mutant) -> str:
    """Return the line of a change in the report."""
    if mutant.failed:
        return f"caught    {mutant}  by {mutant.failed}"
    why = (
        "not reached"
        if not mutant.tests
        else "time was up"
        if mutant.stopped
        else f"{len(mutant.tests)} tests"
    )
    return f"SURVIVED  {mutant}  ({why})"


def summary(mutants: Sequence[Mutant]) -> Iterator[str]:
    """Yield the lines that count what happened."""
    caught = [mutant for mutant in mutants if mutant.failed]
    yield f"{len(caught)} of {len(mutants)} changes were caught ({len(caught) / len(mutants):.0%})"
    kinds = defaultdict(int)
    for mutant in caught:
        kinds[kind(mutant.failed)] += 1
    for name, number in sorted(kinds.items(), key=lambda one: -one[1]):
        yield f"  {number:4} first by {name}"
    quickly = sum(mutant.quickly for mutant in mutants)
    yield f"{quickly} of them by scripts/test --fast ({quickly / len(mutants):.0%} of all)"


def positive(kind: Callable[[str], float]) -> Callable[[str], float]:
    """Return a reader of an argument that is a number above 0."""

    def read(text: str) -> float:
        value = kind(text)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"expected a number above 0, found {text}")
        return value

    read.__name__ = kind.__name__  # which argparse names where there is no number
    return read


def main() -> int:
    """Draw the changes, run the tests and print the report."""
    parser = argparse.ArgumentParser(
        prog="scripts/mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "paths", nargs="*", default=["calculon"], help="folders or modules; default: calculon"
    )
    parser.add_argument(
        "-n", "--number", type=positive(int), default=20, help="changes; default: 20"
    )
    parser.add_argument("--seed", type=int, help="default: a new one in each run")
    parser.add_argument("--fast", action="store_true", help="only the tests of scripts/test --fast")
    parser.add_argument("--tests", nargs="*", default=[], help="only these tests")
    parser.add_argument(
        "--seconds",
        type=positive(float),
        default=120,
        help="processor time for a change; default: 120",
    )
    parser.add_argument("--jobs", type=positive(int), default=2, help="processes; default: 2")
    parser.add_argument(
        "--choose",
        type=positive(float),
        metavar="SECONDS",
        help="choose the slow tests of scripts/test --fast, with this total processor time",
    )
    arguments = parser.parse_args()
    seed = random.randrange(10**6) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    os.chdir(ROOT)
    mutants = drawn(arguments.paths, arguments.number, seed)
    sys.meta_path.insert(0, Finder())
    chosen = ["-m", "not slow", "tests"] if arguments.fast else []
    options = ["-q", "-q", "-p", "no:cacheprovider", "--assert=plain", *chosen, *arguments.tests]
    run = Run(mutants, arguments.seconds, arguments.jobs, arguments.choose)
    code = pytest.main(options, plugins=[run])
    if code or arguments.choose:
        return int(code)
    print("\n".join(summary(mutants)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
