"""Print the tests that a change can break: the modules that import, through however many others, a changed file.

The checkout is compared with a revision (``HEAD`` by default). Any test may read a data file: its change selects
them all.
"""

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Set
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = "tests/test_pages.py"
HOUSE = ("tests/test_architecture.py", "tests/test_completeness.py")
"""Read the source of every module."""


def main() -> int:
    """Print a path a line; nothing when nothing has changed."""
    revision = sys.argv[1] if sys.argv[1:] else "HEAD"
    print("\n".join(sorted(selected(changed(revision)))))
    return 0


def changed(revision: str) -> set[str]:
    """Return the paths that differ from a revision, new files included."""
    paths: set[str] = set()
    for command in (
        ("git", "diff", "--name-only", "--no-renames", revision),
        ("git", "ls-files", "--others", "--exclude-standard"),
    ):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        paths |= set(done.stdout.split("\n")) - {""}
    return paths


def selected(paths: set[str]) -> set[str]:
    """Return what to give to pytest for some changed paths."""
    if not paths:
        return set()
    pages = {path for path in paths if path.endswith(".md")}
    python = {path for path in paths if path.endswith(".py")}
    scripts = {path for path in paths if path.startswith(("scripts/", "bin/"))} - python
    if paths - pages - python - scripts:
        return {"tests", "calculon"}
    users = importers()
    reached, pending = set(python), list(python)
    while pending:
        new = users[pending.pop()] - reached
        reached |= new
        pending += new
    tests = {path for path in reached if (ROOT / path).is_file() and is_tested(path)}
    if any(path.startswith("calculon/") for path in python):
        tests |= set(HOUSE)
    if pages or any(path.startswith("calculon/") for path in reached):
        tests.add(PAGES)
    if scripts or any(path.startswith("scripts/") for path in reached):
        tests |= {"tests/test_scripts.py", "tests/test_bootstrap.py", "tests/test_measure.py"}
    return tests


def is_tested(path: str) -> bool:
    """Tell whether pytest finds tests in a file: a test module, or a module with examples in its docstrings."""
    if path.startswith("tests/"):
        return Path(path).name.startswith("test_")
    return path.startswith("calculon/") and ">>> " in (ROOT / path).read_text(encoding="utf-8")


@cache
def importers() -> defaultdict[str, set[str]]:
    """Return the importers of each file; a ``conftest.py`` counts as imported by the tests beside and below it."""
    files = [
        path
        for folder in ("calculon", "tests", "scripts")
        for path in (ROOT / folder).rglob("*.py")
    ]
    names = {name_of(path): path.relative_to(ROOT).as_posix() for path in files}
    users: defaultdict[str, set[str]] = defaultdict(set)
    for path in files:
        own = path.relative_to(ROOT).as_posix()
        for name in mentioned(ast.parse(path.read_text(encoding="utf-8")), names.keys()):
            users[names[name]].add(own)
        for folder in path.parents:
            if folder == ROOT:
                break
            users[(folder / "conftest.py").relative_to(ROOT).as_posix()].add(own)
    return users


def name_of(path: Path) -> str:
    """Return the dotted name of a module."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def mentioned(tree: ast.Module, known: Set[str]) -> Iterator[str]:
    """Yield the known modules that a module imports, or has as a text, as the table of commands does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from known & {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield from known & {inner if inner in known else node.module}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from known & {node.value}
            if node.value.endswith("."):  # the name of the module follows
                yield from (name for name in known if name.startswith(node.value))


if __name__ == "__main__":
    sys.exit(main())
