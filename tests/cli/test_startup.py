"""Every command imports only what it needs: a single estimate should not wait for pages and frames."""

import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import ARGUMENTS
from tests.helpers import ROOT

HEAVY = {"rich", "yaml", "pandas", "shtab", "psutil", "matplotlib", "numpy.ma"}
"""Modules that take long to load, and that few commands need."""


MOST = 205
"""Modules of this package that ``llm`` may load; the aim is 130."""


def modules(folder: Path, *codes: str) -> list[set[str]]:
    """Return the modules that are loaded after each of some pieces of code, which a process runs in their order."""
    marked = "".join(f"{code}\nprint(end='\\nmodules:'); print(*sys.modules)\n" for code in codes)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{marked}"],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
    )
    lines = (line.partition("modules:") for line in done.stdout.splitlines())
    return [
        set(names.split()) for before, mark, names in lines if (before, mark) == ("", "modules:")
    ]


def test_the_package_loads_the_standard_library_and_numpy_when_used(tmp_path):
    codes = ("", "import calculon", "calculon.estimate")
    bare, package, function = modules(
        tmp_path, *codes
    )  # the first: what this environment loads by itself
    for found, needed in ((package, set()), (function, {"numpy"})):
        names = {name.partition(".")[0] for name in found - bare} - sys.stdlib_module_names
        assert {name for name in names if not name.startswith("_")} == {"calculon"} | needed


CALLS = (
    ["llm", *ARGUMENTS, "stats.json.gz", "-l", "-p", "peers.json"],
    ["lpc", "megatron-1T"],
    ["--help"],
    ["describe", "stats"],
    ["catalog", "systems"],
    ["loe", "megatron-22B", "8", "4", "float16", "a100_80g", "best.json", "--fix", "tensor_par=8"],
    ["llm", *ARGUMENTS, "-"],
    ["completion", "bash"],
)
"""In an order in which each loads no less than those before it."""


def test_a_command_loads_what_it_uses(tmp_path):
    start = "from calculon.cli.main import main"
    found = modules(tmp_path, start, *(f"main({call!r})" for call in CALLS))[1:]
    heavy = [names & HEAVY for names in found]
    assert len(heavy) == len(CALLS)
    assert heavy[:6] == [set()] * 6
    assert heavy[6] <= {"rich"}
    assert heavy[7] <= {"rich", "shtab"}
    assert sum(name.startswith("calculon") for name in found[0]) <= MOST
    searches = ("calculon.search", "calculon.study")
    assert not [name for name in found[0] if name.startswith(searches)]
