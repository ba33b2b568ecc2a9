"""The house: who may import whom, how long things may be, and what a plain import loads."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

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
    "apps",
    "display",
    "frozen",
    "records",
    "units",
    "run_figures",
    "serving_figures",
    "statistics",
    "errors",
    "spec",
    "presets",
}
HEAVY = {"scipy", "pandas", "pyarrow", "yaml", "rich", "psutil", "shtab", "matplotlib"}
LONGEST_MODULE, LONGEST_FUNCTION = 600, 60  # lines: an alarm, not a measure of good modules
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def _name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def _room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _nodes(path: Path) -> list[ast.AST]:
    """Return all nodes of a module of the kinds that some test looks at."""
    kinds = (ast.Import, ast.ImportFrom, ast.Constant, ast.Call, *FUNCTION.__args__)
    return [node for node in ast.walk(_tree(path)) if isinstance(node, kinds)]


def _imports(nodes) -> set[str]:
    """Return the dotted names of the modules that some nodes import."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _top_level(tree: ast.Module):
    """Yield what an import of the module executes; not what only type checkers read."""
    pending = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, FUNCTION):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            pending += node.orelse
            continue
        yield node
        pending += ast.iter_child_nodes(node)


def _rooms_used(path: Path) -> set[str]:
    """Return the rooms that a module imports from, anywhere in it."""
    names = [name.split(".") for name in _imports(_nodes(path))]
    return {name[1] for name in names if name[0] == "calculon" and len(name) > 1}


def _violations(find, modules=MODULES) -> dict[str, object]:
    """Return what a search finds in each module where it finds anything."""
    return {_name(path): found for path in modules if (found := find(path))}


def _application(path: Path) -> str:
    """Return the application that a module belongs to; empty for the wall itself."""
    parts = path.relative_to(PACKAGE).parts
    return parts[1] if parts[0] == "apps" and len(parts) > 2 else ""


def _applications_used(path: Path) -> set[str]:
    names = [name.split(".") for name in _imports(_nodes(path))]
    return {name[2] for name in names if name[:2] == ["calculon", "apps"] and len(name) > 2}


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


def test_the_model_knows_no_application():
    assert _violations(lambda path: _rooms_used(path) & {"apps"}, CORE) == {}


def test_the_model_calls_an_application_through_one_door_only():
    def named(path):
        constants = (n.value for n in _nodes(path) if isinstance(n, ast.Constant))
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
    for name in _imports(_nodes(path)):
        module = name
        while module and module not in KNOWN:
            module = module.rpartition(".")[0]
        if module and module != _dotted(path):
            found.add(module)
    return found - {"calculon"}


def test_modules_are_short():
    def excess(path):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        return lines if lines > LONGEST_MODULE else 0

    assert _violations(excess) == {}


def test_functions_are_short():
    def long(path):
        functions = [node for node in _nodes(path) if isinstance(node, FUNCTION)]
        lines = {node.name: node.end_lineno - node.lineno + 1 for node in functions}
        return {name: count for name, count in lines.items() if count > LONGEST_FUNCTION}

    assert _violations(long) == {}


def test_only_the_command_line_prints():
    def prints(path):
        calls = [node for node in _nodes(path) if isinstance(node, ast.Call)]
        return [c.lineno for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"]

    assert _violations(prints, [path for path in MODULES if _application(path) != "cli"]) == {}


def test_the_core_imports_heavy_libraries_where_they_are_used():
    def heavy(path):
        return {name.split(".")[0] for name in _imports(_top_level(_tree(path)))} & HEAVY

    assert _violations(heavy, CORE) == {}


@pytest.mark.parametrize(
    "statement",
    [
        "import calculon",
        "import calculon.apps.cli.main",
        "import calculon; calculon.estimate("
        "'megatron-1T', '3072_t4_p64_d12_mbs4_full', 'a100_80g', layers=True).to_dict()",
    ],
    ids=["the package", "the command line", "an estimate"],
)
def test_loads_nothing_heavy_for(statement):
    code = f"{statement}; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.decode().split()}
    assert loaded & HEAVY == set()


def test_every_package_says_what_it_is_for():
    packages = [path for path in MODULES if path.name == "__init__.py"]
    assert [_name(path) for path in packages if not ast.get_docstring(_tree(path))] == []
