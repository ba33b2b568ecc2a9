"""Print the tests that a change can break: the test modules that reach a changed file through imports.

The checkout is compared with a revision (``HEAD`` by default). Three rules keep the selection small:

* A name imported from a package leads to the module that defines it, not to everything the package exports.
* Imports for type checkers do not count: they are not executed.
* A change of comments and docstrings selects the examples of the module and the tests that read source code.

A data file selects the tests of its kind (:data:`DATA`); any other file selects the quick tests. Of more than can run
in :data:`SECONDS`, the nearest are printed: the tests of the same package, then by the number of imports in between.
"""

import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Set
from functools import cache
from pathlib import Path

from tests import times

ROOT = Path(__file__).resolve().parent.parent
PAGES = "tests/test_pages.py"
HOUSE = ("tests/test_architecture.py", "tests/test_completeness.py")
"""Read the source of every module."""
SOURCE_READERS = ("tests/test_architecture.py", "tests/declarations/test_schema.py")
"""Look at docstrings and comments, too."""
SCRIPTS = ("tests/test_bootstrap.py", "tests/test_measure.py", "tests/test_scripts.py")
EVERYTHING = ("calculon", "tests")

LOADED_BY_NAME = ("calculon/cli/", "calculon/documents/", "calculon/explore/", "calculon/study/")

Import = tuple[str, list[str]]
IMPORTED = re.compile(
    r"^[ \t]*(?:import ([\w.]+)|from ([\w.]+) import (\([^)]*\)|[^(\n]+))", re.MULTILINE
)
FOR_TYPES = re.compile(r"^if (?:\w+\.)?TYPE_CHECKING:\n(?:[ \t]+.*\n|\n)+", re.MULTILINE)
"""Imports by their text: to parse a thousand modules takes seven seconds."""

DATA = {
    "systems/": (
        *("tests/hardware", "tests/declarations", "tests/cli/test_catalog.py"),
        "tests/cli/test_screens.py",
    ),
    "models/": ("tests/architecture", "tests/declarations", "tests/cli/test_catalog.py"),
    "examples/presets/": ("tests/test_presets.py", "tests/declarations", "tests/test_examples.py"),
    "examples/engines/": ("tests/serving/records", "tests/serving/test_engine_scripts.py"),
    "examples/": ("tests/test_examples.py", "tests/test_pages.py", "tests/test_notebook.py"),
    "validation/": ("tests/validate", "tests/campaign"),
    "tests/times.txt": ("tests/test_mutants.py",),
}
"""Tests of each kind of data file, the nearest first, by the folder of the file; the first match counts."""


SECONDS = 80.0
"""Processor time of what is printed, by tests/times.txt: 40 s on two cores."""
OF_A_FILE = 0.6
"""Processor time of a test file beyond its listed functions, its imports included."""


def main() -> int:
    """Print arguments of pytest, one a line; nothing when nothing has changed."""
    if sys.argv[2:]:
        return refused(f"expected one revision, found {' '.join(sys.argv[1:])}")
    revision = sys.argv[1] if sys.argv[1:] else "HEAD"
    try:
        found = selected(changed(revision), lambda path: committed(revision, path))
    except subprocess.CalledProcessError as error:
        return refused(error.stderr.splitlines()[0])
    if "tests" in found:
        print("All tests can notice the change; running the quick ones.", file=sys.stderr)
        print("-m", "not slow", "tests", sep="\n")
        return 0
    try:
        nearest = within(sorted(found, key=lambda path: (found[path], path)), SECONDS)
    except (OSError, ValueError) as error:  # of tests/times.txt
        return refused(str(error))
    if len(nearest) < len(found):
        print(
            f"{len(found)} files can notice the change; running the nearest {len(nearest)}. "
            "scripts/test runs all tests.",
            file=sys.stderr,
        )
    print("\n".join(nearest))
    return 0


def refused(message: str) -> int:
    """Say what is wrong, and return the exit code of bad input."""
    print(f"scripts/test --changed: {message}", file=sys.stderr)
    return 2


def within(paths: Iterable[str], seconds: float) -> list[str]:
    """Return the first of some tests that take no longer than this in all, at least one."""
    chosen = []
    for path in paths:
        cost = seconds_of(path)
        if cost <= seconds or not chosen:
            chosen.append(path)
            seconds -= cost
    return chosen


def seconds_of(path: str) -> float:
    """Return the processor time of a test file or of a folder."""
    file = ROOT / path
    files = list(file.rglob("test_*.py")) if file.is_dir() else [file]
    return sum(OF_A_FILE + listed_seconds().get(relative(one), 0.0) for one in files)


@cache
def listed_seconds() -> dict[str, float]:
    """Return the processor time of the listed functions of each file."""
    seconds: Counter[str] = Counter()
    for name, one in times.listed().items():
        seconds[name.partition("::")[0]] += one.seconds
    return dict(seconds)


def changed(revision: str) -> set[str]:
    """Return the paths that differ from a revision, new files included."""
    return {
        *git("diff", "--name-only", "--no-renames", revision).splitlines(),
        *git("ls-files", "--others", "--exclude-standard").splitlines(),
    }


def committed(revision: str, path: str) -> str:
    """Return the text of a file at a revision; empty if it did not exist."""
    return git("show", f"{revision}:{path}", check=False)


def git(*arguments: str, check: bool = True) -> str:
    """Return what a git command prints."""
    command = ("git", "-c", "core.quotepath=off", *arguments)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=check).stdout


def selected(paths: set[str], before: Callable[[str], str]) -> dict[str, int]:
    """Return what to give to pytest for some changed paths, with its distance: how many imports away a change is.

    Args:
        paths: Changed files, relative to the root of the checkout.
        before: Returns the text of a file before the change.
    """
    python = {path for path in paths if path.endswith(".py")}
    reworded = {path for path in python if same_code(before(path), now(path))}
    changed_code = python - reworded
    reached = distances(changed_code)
    tests = {path: far for path, far in reached.items() if is_tested(path)}
    tests |= {path: 0 for path in reworded if is_tested(path)}
    packages = {package_of(path) for path in changed_code}
    tests |= {path: 1 for path in tests if package_of(path) in packages and tests[path] > 1}
    if any(path.startswith("calculon/") for path in changed_code):
        tests |= dict.fromkeys(HOUSE, 1)
    if reworded:
        tests |= dict.fromkeys(SOURCE_READERS, 0)
    if any(path.startswith("calculon/") for path in reached):
        tests |= {PAGES: max(reached.values())}
    if far := [reached[path] for path in reached if path.startswith("scripts/")]:
        tests |= dict.fromkeys(SCRIPTS, min(far))
    for path in paths - python:
        for far, place in enumerate(tests_of_data(path)):
            tests |= {one: min(far, tests.get(one, far)) for one in test_files(place)}
    return tests


def test_files(place: str) -> list[str]:
    """Return the test files of a folder; all of the suite are one place."""
    if place in EVERYTHING or place.endswith(".py"):
        return [place]
    return [relative(file) for file in sorted((ROOT / place).rglob("test_*.py"))]


def package_of(path: str) -> str:
    """Return the package that a module or its test belongs to.

    >>> package_of("calculon/cost/stage.py"), package_of("tests/cost/test_stage_memory.py")
    ('cost', 'cost')
    """
    return "/".join(path.split("/")[1:-1])


def tests_of_data(path: str) -> tuple[str, ...]:
    """Return the tests of a file that is not Python."""
    if path.endswith(".md"):
        return (PAGES,)
    if path.startswith(("scripts/", "bin/")) and not path.endswith(".txt"):
        return SCRIPTS
    for folder, tests in DATA.items():
        if path.startswith(folder):
            return tests
    if path.startswith("calculon/"):
        path = path.replace("calculon/", "tests/", 1)
    return (test_folder(path),) if path.startswith("tests/") else EVERYTHING


def test_folder(path: str) -> str:
    """Return the nearest folder above a data file that has tests."""
    folder = (ROOT / path).parent
    while not any(folder.glob("test_*.py")):
        folder = folder.parent
    return folder.relative_to(ROOT).as_posix()


def now(path: str) -> str:
    """Return the text of a file; empty if it is gone."""
    file = ROOT / path
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def same_code(old: str, new: str) -> bool:
    """Return whether two sources differ in comments and docstrings only."""
    if not old or not new:
        return False
    try:
        return ast.dump(without_docstrings(old)) == ast.dump(without_docstrings(new))
    except SyntaxError:  # which ruff tells
        return False


def without_docstrings(source: str) -> ast.Module:
    """Return a syntax tree without the strings that are statements of their own."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if (body := getattr(node, "body", None)) and isinstance(body, list):
            node.body = [one for one in body if not is_text(one)]  # type: ignore[attr-defined]
    return tree


def is_text(statement: ast.stmt) -> bool:
    """Return whether a statement is a docstring."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def distances(paths: set[str]) -> dict[str, int]:
    """Return these files and all that import them, directly or not, with the number of imports in between."""
    users = importers()
    reached = dict.fromkeys(paths, 0)
    pending = deque(paths)
    while pending:
        path = pending.popleft()
        for user in users[path] - reached.keys():
            reached[user] = reached[path] + 1
            pending.append(user)
    return reached


def is_tested(path: str) -> bool:
    """Return whether pytest finds tests in a file: a test module, or examples in docstrings."""
    if path.startswith("tests/"):
        return Path(path).name.startswith("test_") and (ROOT / path).is_file()
    return path.startswith("calculon/") and ">>> " in now(path)


@cache
def importers() -> defaultdict[str, set[str]]:
    """Return the importers of each file; tests also depend on the ``conftest.py`` files above them."""
    folders = ("calculon", "tests", "scripts")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    modules = {name_of(path): path for path in files}
    texts = {name: path.read_text(encoding="utf-8") for name, path in modules.items()}
    imports = {name: imports_of(FOR_TYPES.sub("", text)) for name, text in texts.items()}
    exported = {
        name: exports(imports_of(texts[name]), modules.keys())
        for name, path in modules.items()
        if path.name == "__init__.py"
    }
    users: defaultdict[str, set[str]] = defaultdict(set)
    for name, path in modules.items():
        own = relative(path)
        used = set(mentioned(imports[name], modules.keys(), exported))
        public = re.findall(
            r"\bcalculon\.(\w+)(?!\.?\w)", texts[name]
        )  # in examples of docstrings, too
        used |= modules.keys() & {exported["calculon"].get(one, "") for one in public}
        if own.startswith(LOADED_BY_NAME):  # commands, pages and charts are loaded by name
            used |= set(named(texts[name], modules.keys()))
        used -= set(exported.get(name, {}).values())  # to export is not to use
        for module in used:
            users[relative(modules[module])].add(own)
        for folder in path.parents:
            if folder == ROOT:
                break
            users[relative(folder / "conftest.py")].add(own)
    return users


def relative(path: Path) -> str:
    """Return a path relative to the root of the checkout."""
    return path.relative_to(ROOT).as_posix()


def name_of(path: Path) -> str:
    """Return the dotted name of a module."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def exports(imports: Iterable[Import], known: Set[str]) -> dict[str, str]:
    """Return the module that defines each name which a package imports to export it."""
    found = {}
    for module, names in imports:
        for name in names:
            defines = f"{module}.{name}" if f"{module}.{name}" in known else module
            if defines in known:
                found[name] = defines
    return found


def mentioned(
    imports: Iterable[Import], known: Set[str], exported: dict[str, dict[str, str]]
) -> Iterator[str]:
    """Yield the known modules that a module imports, by the names that it takes from them."""
    for module, names in imports:
        yield from known & ({module} if not names else set())
        for name in names:
            inner = f"{module}.{name}"
            yield from known & {inner if inner in known else module}
            yield from known & {exported.get(module, {}).get(name, "")}


def named(text: str, known: Set[str]) -> Iterator[str]:
    """Yield the modules whose names are strings of a module, as in the table of commands."""
    for name in re.findall(r"""["'](calculon\.[\w.]*)["'{]""", text):
        yield from known & {name}
        if name.endswith("."):  # the rest of the name follows
            yield from (one for one in known if one.startswith(name))


def imports_of(text: str) -> list[Import]:
    r"""Return the modules that a source imports, also inside of functions, with the names that it takes from each.

    >>> imports_of("import a.b\ndef f():\n    from c import (d,\n e as f)")
    [('a.b', []), ('c', ['d', 'e'])]
    """
    found = []
    for whole, module, names in IMPORTED.findall(text):
        taken = re.sub(r"#.*|[()\\]", "", names).split(",")
        found.append((whole or module, [name.split()[0] for name in taken if name.strip()]))
    return found


if __name__ == "__main__":
    sys.exit(main())
