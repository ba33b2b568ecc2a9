"""The example notebook runs from first to last cell, as Jupyter runs it, and shows what it promises."""

import json
import os
import re
import shutil
import tempfile

import pytest

from tests.helpers import ROOT

NOTEBOOK = ROOT / "examples" / "notebook.ipynb"


@pytest.fixture(scope="module")
def document():
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))


def code_of(document):
    return [cell for cell in document["cells"] if cell["cell_type"] == "code"]


def test_outputs_are_not_stored(document):
    for cell in code_of(document):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None


def test_it_shows_every_kind_of_advice(document):
    text = "\n".join("".join(cell["source"]) for cell in code_of(document))
    calls = set(re.findall(r"calculon\.(\w+)\(|\.(plot|pareto)\(", text))
    assert {name for pair in calls for name in pair} >= {
        *("plan", "waterfall", "search", "pareto", "sweep", "sensitivity", "compare"),
        *("report", "plot"),
    }


@pytest.fixture
def private(monkeypatch):
    """A folder for what Jupyter writes; its name is short, as names of sockets must be."""
    place = tempfile.mkdtemp(prefix="nb")
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, os.path.join(place, name[-5:]))  # noqa: PTH118
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    monkeypatch.setenv("MPLCONFIGDIR", os.environ.get("MPLCONFIGDIR", place))
    yield place
    shutil.rmtree(place)


@pytest.mark.filterwarnings("default")  # of Jupyter
def test_every_cell_runs_and_shows_its_result(private, tmp_path):
    import nbformat
    from nbclient import NotebookClient

    whole = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(
        whole, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.create_kernel_manager()
    client.km.transport, client.km.ip = "ipc", f"{private}/kernel"  # no port of the machine
    client.execute()
    for cell in code_of(whole):
        (output,) = cell["outputs"]  # nothing printed, no warning
        assert output["output_type"] == "execute_result"
        last = cell["source"].splitlines()[-1]
        if last.endswith(")") and ".plot(" in last:
            assert len(output["data"]["image/png"]) > 10_000
        elif re.fullmatch(r"\w+|calculon\.\w+\(.*\)", last):
            assert output["data"]["text/html"].startswith('<div class="calculon">')
    assert "Side by side" in (tmp_path / "report.html").read_text(encoding="utf-8")
