"""The house: who may import whom, how long things may be, and what a plain import loads."""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from scripts.changed_tests import imports_of
from tests.helpers import ROOT
from tests.store import cache

PACKAGE = ROOT / "calculon"
MODULES = sorted(PACKAGE.rglob("*.py"))

ROOMS = (
    ("frozen",),
    ("units", "errors", "version", "display"),
    ("arrays", "records"),
    ("spec",),
    ("statistics", "run_figures", "serving_figures", "expression"),
    ("hardware", "presets", "launch"),
    ("inputs",),
    ("editions",),
    ("architecture",),
    ("plan",),
    ("parallel",),
    ("cost",),
    ("evaluate",),
    ("inspect",),
    ("estimate", "sweep"),
    ("campaign",),
    ("serving",),
    ("search",),
    ("planner",),
)
"""The rooms of the model, from the ground up: each imports from itself and from what is above it in this list."""

APPLICATIONS = (
    ("output", "report"),
    ("validate", "calibrate"),
    ("study",),
    ("views",),
    ("notebook",),
    ("explore",),
    ("cli",),
)
"""The rooms behind the wall, likewise; a report is made of records and plain data only."""

ROOF = {"__init__", "__main__"}
"""Import everything, and nothing imports them."""

DOOR = "display.py"
"""The only module of the model that calls an application: by name, when a notebook looks at a result."""

LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
APPLICATION_LEVEL = {room: level for level, rooms in enumerate(APPLICATIONS) for room in rooms}
REPORT_MAY_IMPORT = {
    *("apps", "display", "frozen", "records", "units", "run_figures", "serving_figures"),
    *("statistics", "errors", "spec", "presets"),
}
HEAVY = {"scipy", "pandas", "pyarrow", "yaml", "rich", "psutil", "shtab", "matplotlib"}
LONGEST_MODULE, LONGEST_FUNCTION = 600, 60  # lines: an alarm, not a measure of good modules


def _name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def _room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def _imports(path: Path) -> set[str]:
    """Return the dotted names of what a module imports, anywhere in it."""
    found = imports_of(_text(path))
    assert not any(module.startswith(".") for module, _ in found), "imports are absolute"
    return {f"{module}.{name}" for module, names in found for name in names or ("",)}


def _used(path: Path, *start: str) -> set[str]:
    """Return the packages below ``start`` that a module imports from."""
    names = [name.split(".") for name in _imports(path)]
    return {name[len(start)] for name in names if tuple(name[: len(start)]) == start} - {""}


def _rooms_used(path: Path) -> set[str]:
    return _used(path, "calculon")


def _violations(find, modules=MODULES) -> dict[str, object]:
    """Return what a search finds in each module where it finds anything."""
    return {_name(path): found for path in modules if (found := find(path))}


def _application(path: Path) -> str:
    """Return the application that a module belongs to; empty outside of them."""
    parts = path.relative_to(PACKAGE).parts
    return parts[1] if parts[0] == "apps" and len(parts) > 2 else ""


def _applications_used(path: Path) -> set[str]:
    return _used(path, "calculon", "apps")


APPS = [path for path in MODULES if _application(path)]
CORE = [path for path in MODULES if _room(path) in LEVEL]


def test_every_room_has_its_place_in_the_order():
    assert {_room(path) for path in MODULES} - ROOF == {*LEVEL, "apps"}
    assert {_application(path) for path in APPS} == set(APPLICATION_LEVEL)


def test_a_room_imports_only_from_itself_and_the_rooms_below():
    def forbidden(path):
        level = LEVEL[_room(path)]
        return sorted(r for r in _rooms_used(path) if LEVEL.get(r, len(ROOMS)) > level)

    assert _violations(forbidden, CORE) == {}


def test_the_model_calls_an_application_through_one_door_only():
    def named(path):
        if "calculon.apps" not in _text(path):
            return []
        nodes = ast.walk(ast.parse(_text(path)))
        constants = [node.value for node in nodes if isinstance(node, ast.Constant)]
        return [text for text in constants if isinstance(text, str) and "calculon.apps" in text]

    rooms = ["calculon.apps.notebook", "calculon.apps.explore.interactive"]
    assert _violations(named, CORE) == {DOOR: rooms}


def test_an_application_imports_only_from_itself_and_the_applications_below():
    def forbidden(path):
        level = APPLICATION_LEVEL[_application(path)]
        return sorted(a for a in _applications_used(path) if APPLICATION_LEVEL[a] > level)

    assert _violations(forbidden, APPS) == {}


def test_a_report_knows_only_declarations_records_and_plain_data():
    reports = [path for path in APPS if _application(path) == "report"]
    assert _violations(lambda path: _rooms_used(path) - REPORT_MAY_IMPORT, reports) == {}
    assert _violations(lambda path: _applications_used(path) - {"report"}, reports) == {}


def test_no_two_modules_have_one_name():
    """But for the commands, which are named as people call them, and the fits, as what they fit."""
    rooms = ("commands", "calibrate/kernels")
    named = [
        p for p in MODULES if p.name != "__init__.py" and not p.parent.as_posix().endswith(rooms)
    ]
    assert [name for name, n in Counter(path.name for path in named).items() if n > 1] == []


def test_no_import_goes_in_a_circle():
    """Not even between modules of one room, or in a function."""
    graph = {_dotted(path): _modules_used(path) for path in MODULES}
    circles = []
    state: dict[str, int] = {}

    def visit(module, trail):
        state[module] = 1
        for used in sorted(graph[module]):
            if state.get(used) == 1:
                circles.append([*trail[trail.index(used) :], used])
            elif used not in state:
                visit(used, [*trail, used])
        state[module] = 2

    for module in graph:
        if module not in state:
            visit(module, [module])
    assert circles == []


def _dotted(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


KNOWN = {_dotted(module) for module in MODULES}


def _modules_used(path: Path) -> set[str]:
    """Return the modules of the package that a module imports, anywhere in it; of a package, not its own parts."""
    found = set()
    for name in _imports(path):
        module = name
        while module and module not in KNOWN:
            module = module.rpartition(".")[0]
        if module and module != _dotted(path):
            found.add(module)
    return found - {"calculon"}


def test_modules_are_short():
    lines = {_name(path): _text(path).count("\n") for path in MODULES}
    assert {name: count for name, count in lines.items() if count > LONGEST_MODULE} == {}


def _functions(path: Path) -> dict[str, int]:
    """Return the lines of each function, which ends before the next line that is indented as it is or less."""
    text, lines = _text(path), {}
    for start in re.finditer(r"^( *)(?:async )?def (\w+)", text, re.MULTILINE):
        next_line = re.compile(rf"^ {{0,{len(start[1])}}}[^\s)\]]", re.MULTILINE)
        end = next_line.search(text, start.end())
        count = text[start.start() : end and end.start()].rstrip().count("\n") + 1
        lines[start[2]] = max(count, lines.get(start[2], 0))
    return lines


def test_functions_are_short():
    lines = {f"{_name(path)}: {n}": k for path in MODULES for n, k in _functions(path).items()}
    assert {name: count for name, count in lines.items() if count > LONGEST_FUNCTION} == {}


def test_the_core_imports_heavy_libraries_where_they_are_used():
    at_start = re.compile(r"^(?:from|import) (\w+)", re.MULTILINE)
    assert _violations(lambda path: HEAVY & {*at_start.findall(_text(path))}, CORE) == {}


@pytest.mark.parametrize(
    "statement",
    [
        "import calculon.apps.cli.main",
        "import calculon; calculon.estimate("
        "'megatron-1T', '3072_t4_p64_d12_mbs4_full', 'a100_80g', layers=True).to_dict()",
    ],
    ids=["the command line", "an estimate"],
)
def test_loads_nothing_heavy_for(statement):
    code = f"{statement}; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.decode().split()}
    assert loaded & HEAVY == set()
