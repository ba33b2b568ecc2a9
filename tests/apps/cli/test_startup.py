"""Every command imports only what it needs: a single estimate should not wait for pages and frames."""

import subprocess
import sys

import pytest

from tests.apps.cli.conftest import ARGUMENTS
from tests.helpers import ROOT

HEAVY = {"rich", "yaml", "pandas", "shtab", "psutil", "matplotlib", "numpy.ma"}
"""Modules that take long to load, and that few commands need."""


def modules(code: str, folder: object) -> set[str]:
    """Return the modules that are loaded after some code."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("code", "needed"),
    [("import calculon", set()), ("import calculon; calculon.estimate", {"numpy"})],
    ids=["the package", "a function of it"],
)
def test_the_package_loads_the_standard_library_and_numpy_when_used(tmp_path, code, needed):
    bare = modules("", tmp_path)  # what this environment loads by itself
    found = {name.partition(".")[0] for name in modules(code, tmp_path) - bare}
    others = {name for name in found - sys.stdlib_module_names if not name.startswith("_")}
    assert others == {"calculon"} | needed


SEARCH = ("loe", "megatron-22B", "8", "16", "float16", "a100_80g")


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (["lpc", "megatron-1T"], set()),
        (["--help"], set()),
        (["llm", *ARGUMENTS, "-"], {"rich"}),
        ([*SEARCH, "best.json"], set()),
        (["describe", "stats"], set()),
        (["catalog", "systems"], set()),
        pytest.param(["completion", "bash"], {"rich", "shtab"}, marks=pytest.mark.large),
    ],
    ids=lambda value: " ".join(value[:1]) if isinstance(value, list) else "",
)
def test_a_command_loads_what_it_uses(tmp_path, arguments, allowed):
    found = modules(f"from calculon.apps.cli.main import main; main({arguments!r})", tmp_path)
    assert found & HEAVY <= allowed


def test_an_estimate_loads_no_search(tmp_path):
    call = ["llm", *ARGUMENTS, "stats.json.gz", "-l", "-p", "peers.json"]
    found = modules(f"from calculon.apps.cli.main import main; main({call!r})", tmp_path)
    searches = ("calculon.search", "calculon.apps.study")
    assert not [name for name in found if name.startswith(searches) or name in HEAVY]
