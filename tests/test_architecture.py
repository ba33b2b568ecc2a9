"""The house: who may import whom, how long things may be, and what a plain import loads."""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from scripts.changed_tests import FOR_TYPES, imports_of
from tests.helpers import ROOT
from tests.store import cache

PACKAGE = ROOT / "calculon"
MODULES = sorted(PACKAGE.rglob("*.py"))

PACKAGES = (
    *(
        "version",
        "base",
        "declarations",
        "hardware",
        "launch",
        "inputs",
        "editions",
        "architecture",
    ),
    *("plan", "cost", "estimate", "campaign", "serving", "search", "advise"),
    *("render", "calibrate", "validate", "documents", "study", "explore", "cli"),
)
"""The packages in the order of imports: each imports from itself and from those before it."""

MODEL = PACKAGES[: PACKAGES.index("render")]
"""What computes results; what presents and writes them comes after."""

ROOF = {"__init__", "__main__"}
"""Import everything, and nothing imports them."""

DOOR = "base/display.py"
"""The only module of the model that calls what presents it: by name, when a notebook looks at a result."""

OPTIONAL = {"launch", "calibrate", "validate", "study", "explore"}
"""Packages that an estimate, a plan, a search and a deployment do without: loaded at the moment of their use."""

LAUNCHERS = {
    *("advise/launch_flags.py", "advise/launch_text.py", "advise/engine_flags.py"),
    "advise/deployed.py",
    *("serving/engine_scripts.py", "serving/benchmark_scripts.py"),
}
"""Modules of the core about launch files, which others of the core import where they are given one."""

EXTRAS = ("dask", "distributed", "jinja2", "matplotlib", "plotly", "polars", "pyarrow", "scipy")
EXTRAS += ("starlette", "uvicorn")

LEVEL = {name: level for level, name in enumerate(PACKAGES)}
HEAVY = {"scipy", "pandas", "pyarrow", "yaml", "rich", "psutil", "shtab", "matplotlib"}
LONGEST_MODULE, LONGEST_FUNCTION = 600, 60  # lines: an alarm, not a measure of good modules


def _name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def _package(path: Path) -> str:
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


def _packages_used(path: Path) -> set[str]:
    return _used(path, "calculon")


def _violations(find, modules=MODULES) -> dict[str, object]:
    """Return what a search finds in each module where it finds anything."""
    return {_name(path): found for path in modules if (found := find(path))}


CORE = [path for path in MODULES if _package(path) in MODEL]


def test_every_package_has_its_place_in_the_order():
    assert {_package(path) for path in MODULES} - ROOF == {*PACKAGES}


def test_a_package_imports_only_from_itself_and_the_packages_before_it():
    def forbidden(path):
        level = LEVEL[_package(path)]
        return sorted(name for name in _packages_used(path) if LEVEL.get(name, 0) > level)

    assert _violations(forbidden, [path for path in MODULES if _package(path) in LEVEL]) == {}


def test_the_model_calls_what_presents_it_through_one_door_only():
    presenting = tuple(f"calculon.{name}" for name in PACKAGES[len(MODEL) :])

    def named(path):
        if not any(name in _text(path) for name in presenting):
            return []
        nodes = ast.walk(ast.parse(_text(path)))
        texts = [node.value for node in nodes if isinstance(node, ast.Constant)]
        return [text for text in texts if isinstance(text, str) and text.startswith(presenting)]

    pages = ("documents.result_pages", "documents.result_pictures", "explore.interactive")
    modules = [f"calculon.{name}" for name in (*pages, "render.frames")]
    assert _violations(named, CORE) == {DOOR: modules}


def _loaded_at_once(path: Path) -> set[str]:
    """Return the modules and packages that the import of a module imports."""
    text = FOR_TYPES.sub("", _text(path))
    found = re.findall(r"^from calculon\.([\w.]+) import", text, re.MULTILINE)
    return {name.replace(".", "/") + ".py" for name in found} | {
        name.split(".")[0] for name in found
    }


def test_the_core_loads_optional_packages_where_they_are_used():
    """Documents and commands of an optional package load it; others are run without, below."""
    core = [path for path in MODULES if _package(path) in {*MODEL, "render"} - OPTIONAL]
    doors = OPTIONAL | LAUNCHERS
    found = _violations(lambda path: _loaded_at_once(path) & doors, core)
    assert {name: used for name, used in found.items() if name not in LAUNCHERS} == {}


@pytest.mark.parametrize(
    "command",
    [
        "llm llama3-8B llama3-8B_h100x64 h100_80g_sxm -",
        "plan llama3-8B 8 h100_80g_sxm",
        "loe llama3-8B 8 16 bfloat16 h100_80g_sxm - --fix tensor_par=8",
        "serve llama3-8B 1 h100_80g_sxm --prompt 1000 --output 200",
        "why llama3-8B llama3-8B_h100x64 h100_80g_sxm",
    ],
)
def test_core_commands_need_no_optional_package_and_no_extra(command):
    absent = [*EXTRAS, *(f"calculon.{name}" for name in sorted(OPTIONAL))]
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({absent})); sys.argv[1:] = {command.split()}"
    )
    code += "; from calculon.cli.main import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_no_two_modules_have_one_name():
    """But for the commands, which are named as people call them, and the fits, as what they fit."""
    folders = ("commands", "calibrate/kernels")
    named = [
        p for p in MODULES if p.name != "__init__.py" and not p.parent.as_posix().endswith(folders)
    ]
    assert [name for name, n in Counter(path.name for path in named).items() if n > 1] == []


def test_no_import_goes_in_a_circle():
    """Not even between modules of one package, or in a function."""
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
        "import calculon.cli.main",
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


def test_the_modules_of_costs_are_listed_in_the_order_of_computation():
    """The docstring of the package names each module once, after all that it imports from."""
    package = PACKAGE / "cost"
    text = ast.get_docstring(ast.parse(_text(package / "__init__.py")))
    order = [
        f"calculon.cost.{name}"
        for name in re.findall(r"``([a-z_.]+)``", text.split("\n\nSteps")[0])
    ]
    modules = {_dotted(path) for path in package.rglob("*.py") if path.stem != "__init__"}
    assert sorted(order) == sorted(modules)
    place = {name: number for number, name in enumerate(order)}
    late = {
        name: wrong
        for path in package.rglob("*.py")
        if (name := _dotted(path)) in place
        and (wrong := [used for used in _modules_used(path) if place.get(used, -1) > place[name]])
    }
    assert late == {}


def test_only_one_module_writes_into_caches_by_name():
    found = _violations(lambda path: re.findall(r"__dict__(?:\[| \|=|\.pop|\.update)", _text(path)))
    assert found == {"base/arrays.py": ["__dict__["]}
