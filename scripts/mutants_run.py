"""Change single expressions of the program, one at a time, and report which tests fail because of it.

scripts/mutants                        20 changes of any module
scripts/mutants -n 100 calculon/cost   100 changes of one package
scripts/mutants --fast                 only the tests of scripts/test --fast
scripts/mutants -n 3000 --choose 15    choose the slow tests that scripts/test --fast runs, 15 s of them: those that
                                       reach the most changes; writes tests/times.txt

All changes are compiled into the program behind switches, so that it is imported and its tests are collected once.
Then the tests run without any change, to record which of them reach each switch, be it in a result that they share;
each change is switched on in a process of its own, where the tests that reach it run until one fails: those of
scripts/test --fast first, the shortest first. Programs that tests start are unchanged.
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
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, ClassVar

import pytest

from tests import store, times

ROOT = Path(__file__).resolve().parent.parent
SWITCHES = "calculon_mutants"
"""The module that the changed program asks which change is on."""

KINDS = {
    "tests/properties": "laws",
    "tests/twin": "twin",
    "tests/reference": "reference results",
    "tests/apps": "commands and pages",
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

    Attributes
    ----------
    path, line : str, int
        Where the expression is.
    before, after : str
        The expression, and what replaces it.
    tests : list of str
        Node names of the tests that reach it.
    failed : str
        The first test that failed with the change; empty for a survivor.
    quickly : bool
        Whether a test of ``scripts/test --fast`` failed.
    stopped : bool
        Whether the time was up before all tests that reach it had run.
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


class Reaching(float):
    """The seconds that a shared result took, with the switches that it reached."""

    reached: frozenset[int]


class Shared:
    """Lets tests reach what the results that they share have reached, whichever of them was the first."""

    def __init__(self, switches: Switches) -> None:
        self.switches = switches
        self.compute, self.use = store.timed, store.used
        self.fixtures: dict[Any, set[int]] = {}

    def timed(self, compute: Any, *args: Any, **kwargs: Any) -> tuple[Any, Reaching]:
        """Compute a result as :func:`tests.store.timed` does, and keep what it reaches."""
        outer, self.switches.reached = self.switches.reached, set()
        result, seconds = self.compute(compute, *args, **kwargs)
        cost = Reaching(seconds)
        cost.reached = frozenset(self.switches.reached)
        self.switches.reached |= outer
        return result, cost

    def used(self, result: Any, cost: Reaching) -> Any:
        """Use a result again."""
        self.switches.reached |= cost.reached
        return self.use(result, cost)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        """Keep what a fixture reaches that tests share."""
        outer, self.switches.reached = self.switches.reached, set()
        result = yield
        if fixturedef.scope != "function":
            self.fixtures[fixturedef] = self.switches.reached.copy()
        self.switches.reached |= outer
        return result

    def by_fixtures(self, item: pytest.Item) -> set[int]:
        """Return what the fixtures of a test have reached."""
        return {
            number
            for definitions in store.fixtures_of(item)
            for one in definitions
            for number in self.fixtures.get(one, ())
        }


class Run:
    """Runs the collected tests: once without changes, then those that reach each change."""

    def __init__(
        self, mutants: Sequence[Mutant], seconds: float, jobs: int, choose: float = 0.0
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
        for reached in in_processes([lambda part=part: self.reach(items, part) for part in parts]):
            for test, seconds, numbers in reached:
                taken[test] = seconds
                for number in numbers:
                    self.mutants[number].tests.append(test)
        if self.choose:
            listed = times.listed()
            times.write(
                times.with_fast(listed, strongest(self.mutants, items, listed, self.choose))
            )
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
    ) -> list[tuple[str, float, list[int]]]:
        """Run tests without changes; return the seconds of each that passes, and the switches that it reaches."""
        found = []
        new_store()
        for test, following in zip(tests, [*tests[1:], None], strict=True):
            forget()
            self.switches.reached.clear()
            begin = store.owed()
            passed = self.passes(items[test], items[following] if following else None)
            reached = self.switches.reached | self.shared.by_fixtures(items[test])
            if reached and passed:
                found.append((test, store.owed() - begin, sorted(reached)))
        return found

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


def strongest(
    mutants: Sequence[Mutant],
    items: Mapping[str, pytest.Item],
    listed: Mapping[str, times.Listed],
    seconds: float,
) -> list[str]:
    """Return slow test functions that reach, in some seconds, the most changes that no quick function reaches."""
    reaching: defaultdict[str, set[int]] = defaultdict(set)
    for number, mutant in enumerate(mutants):
        for test in mutant.tests:
            reaching[times.function(test)].add(number)
    marked = {
        times.function(name): {mark.name for mark in item.iter_markers()}
        for name, item in items.items()
    }
    left = set(range(len(mutants)))
    possible = {}
    for name, numbers in reaching.items():
        if name not in listed or "quick" in marked[name]:
            left -= numbers
        elif name.startswith("tests/") and not marked[name] & {"docs", "browser"}:
            possible[name] = listed[name].seconds
    found = []
    while possible := {name: cost for name, cost in possible.items() if cost <= seconds}:
        best = max(possible, key=lambda name: len(reaching[name] & left) / possible[name])
        if not reaching[best] & left:
            break
        left -= reaching[best]
        seconds -= possible.pop(best)
        found.append(best)
    reached = len(mutants) - len(left)
    print(
        f"{len(found)} slow functions chosen; with all quick ones they reach {reached} of {len(mutants)} changes"
    )
    return found


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
            here.close()
            there.send(task())
            os._exit(0)
        there.close()
        waiting.append((child, here))
    for child, here in waiting:
        try:
            yield here.recv()
        except EOFError:  # the change ended the process
            yield "the process ended", False
        os.waitpid(child, 0)


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
    parser.add_argument("-n", "--number", type=int, default=20, help="changes; default: 20")
    parser.add_argument("--seed", type=int, help="default: a new one in each run")
    parser.add_argument("--fast", action="store_true", help="only the tests of scripts/test --fast")
    parser.add_argument("--tests", nargs="*", default=[], help="only these tests")
    parser.add_argument(
        "--seconds", type=float, default=120, help="processor time for a change; default: 120"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes; default: 2")
    parser.add_argument(
        "--choose",
        type=float,
        metavar="SECONDS",
        default=0.0,
        help="choose the slow tests of scripts/test --fast, of this processor time in all",
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
    pytest.main(options, plugins=[run])
    if arguments.choose:
        return 0
    print("\n".join(summary(mutants)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
