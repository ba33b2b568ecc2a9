"""The example notebooks run from first to last cell, as Jupyter runs them, and show what they promise."""

import json
import os
import re
import shutil
import tempfile

import pytest

from tests.helpers import ROOT

NOTEBOOKS = {name: ROOT / "examples" / f"{name}.ipynb" for name in ("notebook", "explore")}

ADVICE = {
    "notebook": {
        *("plan", "waterfall", "search", "pareto", "sweep", "sensitivity", "compare"),
        *("report", "plot"),
    },
    "explore": {"plan", "search", "sensitivity", "explore", "plot"},
}
"""What each shows."""

CHART = "application/vnd.plotly.v1+json"


@pytest.fixture(scope="module", params=NOTEBOOKS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def document(name):
    return json.loads(NOTEBOOKS[name].read_text(encoding="utf-8"))


def code_of(document):
    return [cell for cell in document["cells"] if cell["cell_type"] == "code"]


def test_outputs_are_not_stored(document):
    for cell in code_of(document):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None


def test_it_shows_every_kind_of_advice(name, document):
    text = "\n".join("".join(cell["source"]) for cell in code_of(document))
    calls = set(re.findall(r"calculon\.(\w+)\(|\.(plot|pareto)\(", text))
    assert {word for pair in calls for word in pair} >= ADVICE[name]


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


def run(name, private, folder):
    """Run a notebook in a folder, and return its cells of code."""
    import nbformat
    from nbclient import NotebookClient

    whole = nbformat.read(NOTEBOOKS[name], as_version=4)
    client = NotebookClient(
        whole, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.create_kernel_manager()
    client.km.transport, client.km.ip = "ipc", f"{private}/kernel"  # no port of the machine
    client.execute()
    return code_of(whole)


@pytest.mark.filterwarnings("default")  # of Jupyter
def test_every_cell_runs_and_shows_its_result(name, private, tmp_path):
    charts = 0
    for cell in run(name, private, tmp_path):
        (output,) = cell["outputs"]  # nothing printed, no warning
        assert output["output_type"] == "execute_result" or CHART in output["data"]
        last = cell["source"].splitlines()[-1]
        if "interactive=True" in last:
            assert output["data"][CHART]["data"]
            charts += 1
        elif last.endswith(")") and ".plot(" in last:
            assert len(output["data"]["image/png"]) > 10_000
        elif re.fullmatch(r"\w+|calculon\.\w+\(.*\)", last):
            assert output["data"]["text/html"].startswith('<div class="calculon">')
    if name == "notebook":
        assert "Side by side" in (tmp_path / "report.html").read_text(encoding="utf-8")
    else:
        assert charts == 8
