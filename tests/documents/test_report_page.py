"""The report: one file, everything in it, nothing asked of a network; and a browser that sorts its tables."""

import base64
import hashlib
import importlib
import re
import subprocess

import pytest

from calculon.base.records import columns
from calculon.cli.main import main
from calculon.declarations.named_values import EDITION_NAMES
from calculon.declarations.statistics import CorrectedStats
from calculon.documents.assumptions import ASSUMPTIONS, EDITIONS, assumptions
from calculon.documents.figures_group import NO_VOCABULARY
from calculon.documents.report_page import report_title
from calculon.documents.result import Result
from calculon.validate.published_study import Library
from tests.cli.conftest import refuses, run, unvalidated
from tests.explore.browsing import executable
from tests.helpers import NAMES, ROOT
from tests.outline import Outline
from tests.shipped_studies import compare_once, shipped

__all__ = ["refuses", "run", "unvalidated"]

EXAMPLE = "megatron-1T,3072_t4_p64_d12_mbs4_full,a100_80g"
TODAY = "llama3-8B,llama3-8B_h100x64,h100_80g_sxm"
BROWSER = executable()
STUDIED = importlib.import_module("calculon.validate.measured_and_predicted")
RUN = ["--tokens", "1T", "--deadline", "3d", "--price", "2"]


def read_and_compare_once(patch):
    """Read the studies of the catalog and compare them once for all reports."""
    studies = [*shipped().values()]
    patch.setattr(Library, "studies", lambda self, name="": studies)
    patch.setattr(STUDIED, "compare", compare_once)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Reports of an estimate, of a search with its specs, of files without them, and of the corrected edition."""
    folder = tmp_path_factory.mktemp("reports")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        read_and_compare_once(patch)
        search = ["loe", "megatron-22B", "8", "4", "float16", "a100_80g", "best.json", "-t", "5"]
        assert main(search) == 0
        assert main(["llm", *EXAMPLE.split(","), "stats.json"]) == 0
        assert main(["report", EXAMPLE, "-o", "one.html"]) == 0
        specs = ["--model", "megatron-22B", "--system", "a100_80g"]
        assert main(["report", "best.json", *specs, "-o", "search.html"]) == 0
        assert main(["report", "stats.json", "<i>=best.json#1", "-o", "files.html"]) == 0
        assert main(["report", TODAY, *RUN, "-o", "run.html"]) == 1  # it misses its deadline
        both = ["--edition", "sc23,corrected"]
        assert main(["report", EXAMPLE, *both, "-o", "both.html"]) == 0
    return folder


@pytest.fixture(scope="module")
def pages(folder):
    """The texts of the reports by name."""
    return {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.html")}


@pytest.mark.parametrize("name", ["one", "search", "files", "both", "run"])
def test_is_well_formed_and_needs_nothing_else(pages, name):
    text = pages[name]
    attributes = Outline(text).attributes
    references = [value for _, name, value in attributes if name in ("src", "href")]
    assert all(reference.startswith("#") for reference in references)
    assert not re.search(r"@import|url\((?!#)|https?://(?!doi)", text)
    places = set(re.findall(r'id="([^"]+)"', text))
    assert {reference[1:] for reference in references} <= places


def test_a_report_runs_its_own_script_and_loads_nothing(pages):
    text = pages["one"]
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")
    assert not re.search(r"<[^>]+ on\w+=", text)  # which the policy would not run


SAID = {
    "one": (
        *("Made by calculon", "1.008 T parameters", "80 GiB at 2,048 GB/s", "seqsel/tab5"),
        *("<strong>131.9 s</strong>", "background:#0072b2", 'data-value="AttnBlock_LayerNorm">'),
        "Edition sc23 is the published model",
        "Not included in time or memory: embeddings",
        *(f'data-value="{name}"' for name in NAMES),
    ),
    "search": (
        "The best executions of the search",
        "Training of megatron-22B on 8 x a100_80g",
    ),
    "files": (
        "unknown: the file contains statistics only",
        "model and system are unknown",
        "Side by side",
        "<h1>stats, &lt;i&gt;: results of calculon</h1>",
    ),
    "both": (
        *(">edition sc23<", ">edition corrected<", NO_VOCABULARY, ">A sc23</th>"),
        "Edition sc23: Not included in time or memory: embeddings",
        "Edition corrected: Embedding, LM head and loss count",
        "a100_80g, edition corrected",  # its own validation
        "Intervals of the time (90 %): B ",
    ),
    "run": (
        *("edition corrected, megatron-lm</span>", "process groups, and bytes", "0, 2, ..., 62"),
        *(
            "MFU, full attention",
            "MFU, causal",
            "HFU",
            "head and loss",
            "SwiGLU",
            "<h3>Prediction interval: ",
        ),
        *(f'data-value="{column.name}"' for column in columns(CorrectedStats)),
        "Edition corrected is the published model with its defects fixed",
        "full attention (arXiv",
    ),
}


def test_pages_say_what_they_are_of(pages):
    assert [
        f"{page}: {text}" for page in SAID for text in SAID[page] if text not in pages[page]
    ] == []
    for page, text in (("files", "<i>"), ("run", NO_VOCABULARY), ("one", "Prediction interval")):
        assert text not in pages[page]
    for kind, name in zip(("models", "examples", "systems"), EXAMPLE.split(","), strict=True):
        content = (ROOT / kind / f"{name}.json").read_bytes()
        assert hashlib.sha256(content).hexdigest() in pages["one"]


def test_the_whole_run_has_its_page_and_pictures(pages):
    text = pages["run"]
    _, _, section = text.partition('<section id="run">')
    section, _, _ = section.partition("</section>")
    assert section.count("Training run of llama3-8B on 64 x h100_80g_sxm") == 1
    assert "Misses its deadline of 3 d by" in section
    assert section.count("<svg ") == 2
    assert 'aria-label="Days of a training run' in section
    assert 'aria-label="Goodput by processor count' in section
    assert 'id="run"' not in pages["one"]


@pytest.mark.usefixtures("unvalidated")
def test_a_whole_run_is_of_executions_of_the_corrected_edition(refuses):
    message = "expected an execution of edition corrected"
    refuses(("report", EXAMPLE, *RUN), [("-o none.html", message)])


def test_what_editions_have_in_common_is_said_once():
    found = assumptions(EDITION_NAMES)
    common = set(ASSUMPTIONS["sc23"]) & set(ASSUMPTIONS["corrected"])
    assert common
    assert all(found.count(text) == 1 for text in common)
    own = [text for text in found if text.startswith("Edition ") and ": " in text]
    assert len(found) == len(EDITIONS) + len(common) + len(
        [t for t in own if t not in EDITIONS.values()]
    )


def test_a_report_is_titled_by_its_question(pages):
    for name in ("one", "both"):
        text = pages[name]
        assert "<title>Training of megatron-1T on 3,072 x a100_80g</title>" in text
    results = [Result(stats={}, label=label) for label in ("a", "b", "c", "d")]
    assert report_title(results) == "a, b, c and 1 more: results of calculon"


def test_the_same_results_give_the_same_page_whatever_colors_the_user_wants(folder, monkeypatch):
    monkeypatch.chdir(folder)
    read_and_compare_once(monkeypatch)
    for name, value in {"NO_COLOR": "1", "COLUMNS": "40", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    assert main(["report", EXAMPLE, "-o", "plain.html"]) == 0
    assert (folder / "plain.html").read_bytes() == (folder / "one.html").read_bytes()


def test_an_output_that_is_no_page_is_refused(refuses, tmp_path):
    refuses(("report", EXAMPLE), [("-o r.pdf", "an output name that ends in .html")])
    assert list(tmp_path.iterdir()) == []


def browse(page):
    """Open a page in a browser without a window, and return what its scripts make of it."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={page}.profile"]
    command = [BROWSER, *options, "--dump-dom", page.as_uri()]
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout.decode()


@pytest.mark.skipif(BROWSER is None, reason="no browser is installed (chromium)")
def test_a_browser_sorts_the_layers(folder, pages):
    clicks = """<script>
    const table = [...document.querySelectorAll("details table")].at(-1);
    const names = () => [...table.tBodies[0].rows].map((row) => row.cells[0].textContent).join("|");
    const out = (text) => document.body.append(Object.assign(document.createElement("pre"), {textContent: text}));
    const press = (i) => table.tHead.rows[0].cells[i].querySelector("button").click();
    out("FIRST " + names());
    const forward = [...table.tHead.rows[0].cells].findIndex((one) => one.textContent === "fw_processing_time");
    press(forward); out("LARGEST " + names() + " " + table.tHead.rows[0].cells[forward].ariaSort);
    press(forward); out("SMALLEST " + names());
    press(forward); out("AGAIN " + names());
    press(0); out("NAMES " + names());
    </script></body>"""
    page = folder / "clicked.html"
    text = pages["one"]
    text = re.sub(r"<meta http-equiv=[^>]+>", "", text)  # which would not let these clicks run
    page.write_text(text.replace("</body>", clicks), encoding="utf-8")
    found = dict(re.findall(r"<pre>(\w+) (.*?)</pre>", browse(page)))
    assert set(found) == {"FIRST", "LARGEST", "SMALLEST", "AGAIN", "NAMES"}
    assert found["FIRST"].startswith("AttnBlock_Fork|AttnBlock_LayerNorm|")
    assert found["LARGEST"].startswith("MlpBlock_Mlp1|MlpBlock_Mlp2|AttnBlock_Query")
    assert found["LARGEST"].endswith(" descending")
    assert found["SMALLEST"].endswith("|MlpBlock_Mlp1|MlpBlock_Mlp2")
    assert found["AGAIN"] == found["FIRST"]
    assert found["NAMES"].split("|") == sorted(found["FIRST"].split("|"))
