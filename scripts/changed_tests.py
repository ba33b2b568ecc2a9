"""Print the tests that a change can break: the test modules that reach a changed file through imports.

The checkout is compared with a revision (``HEAD`` by default). Three rules keep the selection small:

* A name imported from a package leads to the module that defines it, not to everything the package exports.
* Imports for type checkers do not count: they are not executed.
* A change of comments and docstrings selects the examples of the module and the tests that read source code.

A data file selects the tests of its kind (:data:`DATA`); any other file selects all tests.
"""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Set
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = "tests/test_pages.py"
HOUSE = ("tests/test_architecture.py", "tests/test_completeness.py")
"""Read the source of every module."""
SOURCE_READERS = ("tests/test_architecture.py", "tests/spec/test_schema.py")
"""Look at docstrings and comments, too."""
SCRIPTS = ("tests/test_bootstrap.py", "tests/test_measure.py", "tests/test_scripts.py")
EVERYTHING = ("calculon", "tests")

DATA = {
    "systems/": ("tests/hardware", "tests/spec", "tests/apps/cli/test_catalog.py"),
    "models/": ("tests/architecture", "tests/spec", "tests/apps/cli/test_catalog.py"),
    "examples/presets/": ("tests/test_presets.py", "tests/spec", "tests/test_examples.py"),
    "examples/": ("tests/test_examples.py", "tests/test_pages.py", "tests/test_notebook.py"),
    "validation/": ("tests/apps/validate", "tests/campaign"),
    "calculon/apps/explore/assets/": ("tests/apps/explore",),
    "calculon/apps/report/": ("tests/apps/report",),
    "tests/reference/": ("tests/reference",),
}
"""Tests of each kind of data file, by the folder of the file; the first match counts."""


def main() -> int:
    """Print a path a line; nothing when nothing has changed."""
    revision = sys.argv[1] if sys.argv[1:] else "HEAD"
    print("\n".join(sorted(selected(changed(revision), lambda path: committed(revision, path)))))
    return 0


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
    command = ("git", *arguments)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=check).stdout


def selected(paths: set[str], before: Callable[[str], str]) -> set[str]:
    """Return what to give to pytest for some changed paths.

    Parameters
    ----------
    paths
        Changed files, relative to the root of the checkout.
    before
        Returns the text of a file before the change.
    """
    python = {path for path in paths if path.endswith(".py")}
    reworded = {path for path in python if same_code(before(path), now(path))}
    reached = reached_from(python - reworded)
    tests = {path for path in reached | reworded if is_tested(path)}
    if any(path.startswith("calculon/") for path in python - reworded):
        tests |= set(HOUSE)
    if reworded:
        tests |= set(SOURCE_READERS)
    if any(path.startswith("calculon/") for path in reached):
        tests.add(PAGES)
    if any(path.startswith("scripts/") for path in reached):
        tests |= set(SCRIPTS)
    for path in paths - python:
        tests |= set(tests_of_data(path))
    return tests


def tests_of_data(path: str) -> tuple[str, ...]:
    """Return the tests of a file that is not Python."""
    if path.endswith(".md"):
        return (PAGES,)
    if path.startswith(("scripts/", "bin/")) and not path.endswith(".txt"):
        return SCRIPTS
    for folder, tests in DATA.items():
        if path.startswith(folder):
            return tests
    if path.startswith("tests/"):
        return (test_folder(path),)
    return EVERYTHING


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
    return ast.dump(without_docstrings(old)) == ast.dump(without_docstrings(new))


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


def reached_from(paths: set[str]) -> set[str]:
    """Return these files and all that import them, directly or through others."""
    users = importers()
    reached, pending = set(paths), list(paths)
    while pending:
        new = users[pending.pop()] - reached
        reached |= new
        pending += new
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
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in modules.items()}
    exported = {
        name: exports(trees[name], modules.keys())
        for name, path in modules.items()
        if path.name == "__init__.py"
    }
    users: defaultdict[str, set[str]] = defaultdict(set)
    for name, path in modules.items():
        own = relative(path)
        used = set(mentioned(trees[name], modules.keys(), exported))
        if own.startswith("calculon/apps/"):  # commands, pages and charts are loaded by name
            used |= set(named(trees[name], modules.keys()))
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


def exports(tree: ast.Module, known: Set[str]) -> dict[str, str]:
    """Return the module that defines each name which a package imports to export it."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                module = inner if inner in known else node.module
                if module in known:
                    found[alias.asname or alias.name] = module
    return found


def mentioned(
    tree: ast.Module, known: Set[str], exported: dict[str, dict[str, str]]
) -> Iterator[str]:
    """Yield the known modules that a module imports, by the names that it takes from them."""
    for node in executed(tree):
        if isinstance(node, ast.Import):
            yield from known & {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield from known & {inner if inner in known else node.module}
                yield from known & {exported.get(node.module, {}).get(alias.name, "")}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield from known & {exported.get(node.value.id, {}).get(node.attr, "")}
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and ">>> " in node.value
        ):
            yield from in_examples(node.value, known, exported)


def named(tree: ast.Module, known: Set[str]) -> Iterator[str]:
    """Yield the modules whose names are strings of a module, as in the table of commands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and str(node.value).startswith("calculon."):
            yield from known & {node.value}
            if node.value.endswith("."):  # the rest of the name follows
                yield from (name for name in known if name.startswith(node.value))


def in_examples(text: str, known: Set[str], exported: dict[str, dict[str, str]]) -> Iterator[str]:
    """Yield the modules of the public names that examples of a docstring use."""
    for package, name in re.findall(r"\b(\w+)\.(\w+)", text):
        yield from known & {exported.get(package, {}).get(name, "")}


def executed(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree, except what only type checkers look at."""
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            pending += node.orelse
        else:
            pending += ast.iter_child_nodes(node)


if __name__ == "__main__":
    sys.exit(main())
