"""Every command imports only what it needs: a single estimate should not wait for pages and frames."""

import subprocess
import sys

import pytest

from tests.apps.cli.conftest import ARGUMENTS
from tests.helpers import ROOT

LOADED = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"


def modules(code: str, folder: object) -> set[str]:
    """Return the top-level modules that are loaded after some code."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{LOADED}"],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
    )
    return set(done.stdout.splitlines()[-1].split())


def test_the_package_loads_numpy_and_the_standard_library(tmp_path):
    bare = modules("", tmp_path)  # what this environment loads by itself
    found = modules("import calculon", tmp_path) - bare - sys.stdlib_module_names
    assert {name for name in found if not name.startswith("_")} == {"calculon", "numpy"}


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (["llm", *ARGUMENTS, "stats.json"], set()),
        (["llm", *ARGUMENTS, "stats.json.gz", "-l", "-p", "peers.json"], set()),
        (["lpc", "megatron-1T"], set()),
        (["version"], set()),
        (["--help"], set()),
        (["llm", *ARGUMENTS, "-"], {"rich"}),
        (["describe", "stats"], {"rich"}),
        (["completion", "bash"], {"rich", "shtab"}),
    ],
    ids=lambda value: " ".join(value[:1]) if isinstance(value, list) else "",
)
def test_a_command_loads_what_it_uses(tmp_path, arguments, allowed):
    found = modules(f"from calculon.apps.cli.main import main; main({arguments!r})", tmp_path)
    assert found & {"rich", "yaml", "pandas", "shtab", "psutil"} <= allowed
