"""The example notebooks run from first to last cell, as Jupyter runs them, and show what they promise."""

import ast
import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.cli.conftest import unrendered, unvalidated
from tests.helpers import ROOT

__all__ = ["unrendered", "unvalidated"]

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


@pytest.fixture(
    scope="module", params=["notebook", pytest.param("explore", marks=pytest.mark.large)]
)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def document(name):
    return json.loads(NOTEBOOKS[name].read_text(encoding="utf-8"))


def code_of(document):
    return [cell for cell in document["cells"] if cell["cell_type"] == "code"]


def test_it_shows_every_kind_of_advice_and_stores_no_output(name, document):
    assert not any(one["outputs"] or one["execution_count"] for one in code_of(document))
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


@pytest.mark.large
@pytest.mark.filterwarnings("default")  # of Jupyter
def test_every_cell_shows_its_result_in_jupyter(name, private, tmp_path):
    for cell in run(name, private, tmp_path):
        (output,) = cell["outputs"]  # nothing printed, no warning
        assert output["output_type"] == "execute_result" or CHART in output["data"]
        last = cell["source"].splitlines()[-1]
        if "interactive=True" in last:
            assert output["data"][CHART]["data"]
        elif last.endswith(")") and ".plot(" in last:
            assert len(output["data"]["image/png"]) > 10_000
        elif re.fullmatch(r"\w+|calculon\.\w+\(.*\)", last):
            assert output["data"]["text/html"].startswith('<div class="calculon">')


def value_of(source, names):
    """Run a cell, and return the value of its last line."""
    *before, last = ast.parse(source).body
    exec(compile(ast.Module(before, []), "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


@pytest.mark.usefixtures("unrendered", "unvalidated")
def test_every_cell_runs_and_shows_its_result(name, document, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    charts, names = 0, {}
    for cell in code_of(document):
        value, last = value_of("".join(cell["source"]), names), cell["source"][-1]
        if "interactive=True" in last:
            assert value.to_dict()["data"]
            charts += 1
        elif ".plot(" in last:
            assert hasattr(value, "_repr_png_")  # Jupyter draws it, above
        elif re.fullmatch(r"\w+|calculon\.\w+\(.*\)", last):
            assert value._repr_html_().startswith('<div class="calculon">')
    assert capsys.readouterr() == ("", "")
    if name == "notebook":
        assert "Side by side" in Path("report.html").read_text(encoding="utf-8")
    else:
        assert charts == 8
