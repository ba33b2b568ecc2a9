"""The report: one file, everything in it, nothing asked of a network; and a browser that sorts its tables."""

import hashlib
import html.parser
import re
import shutil
import subprocess

import pytest

from calculon.apps.cli.main import main
from calculon.apps.report.figures_group import NO_VOCABULARY
from calculon.apps.report.html.assumptions import ASSUMPTIONS, EDITIONS, assumptions
from calculon.apps.report.html.html_bars import Piece, bar
from calculon.apps.report.html.tags import Html, element
from calculon.records import columns
from calculon.spec.execution import EDITION_NAMES
from calculon.statistics import CorrectedStats
from tests.helpers import NAMES, ROOT

EXAMPLE = "megatron-1T,3072_t4_p64_d12_mbs4_full,a100_80g"
TODAY = "llama3-8B,llama3-8B_h100x64,h100_80g_sxm"
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
VOID = {"meta", "br"}


class Reader(html.parser.HTMLParser):
    """Reads a page: its elements, whether they are closed, and what they refer to."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.references = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.references += [value for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Reports of an estimate, of a search with its specs, of files without them, and of the corrected edition."""
    folder = tmp_path_factory.mktemp("reports")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        search = ["loe", "megatron-22B", "8", "4", "float16", "a100_80g", "best.json", "-t", "5"]
        assert main(search) == 0
        assert main(["llm", *EXAMPLE.split(","), "stats.json"]) == 0
        assert main(["report", EXAMPLE, "-o", "one.html"]) == 0
        specs = ["--model", "megatron-22B", "--system", "a100_80g"]
        assert main(["report", "best.json", *specs, "-o", "search.html"]) == 0
        assert main(["report", "stats.json", "<i>=best.json#1", "-o", "files.html"]) == 0
        assert main(["report", TODAY, "-o", "today.html"]) == 0
        both = ["--edition", "sc23,corrected"]
        assert main(["report", EXAMPLE, *both, "-o", "both.html"]) == 0
    return folder


@pytest.mark.parametrize("name", ["one", "search", "files", "today", "both"])
def test_is_well_formed_and_needs_nothing_else(folder, name):
    text = (folder / f"{name}.html").read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert all(reference.startswith("#") for reference in reader.references)
    assert not re.search(r"@import|url\(|https?://(?!doi)", text)
    places = set(re.findall(r'id="([^"]+)"', text))
    assert {reference[1:] for reference in reader.references} <= places


def test_says_what_went_in(folder):
    text = (folder / "one.html").read_text(encoding="utf-8")
    for kind, name in zip(("models", "examples", "systems"), EXAMPLE.split(","), strict=True):
        content = (ROOT / kind / f"{name}.json").read_bytes()
        assert hashlib.sha256(content).hexdigest() in text
    assert "Made by calculon" in text
    assert "1.008 T parameters" in text


def test_holds_statistics_layers_validation_and_assumptions(folder):
    text = (folder / "one.html").read_text(encoding="utf-8")
    assert all(f'data-value="{name}"' in text for name in NAMES)
    assert '<td data-value="Attn LayerNorm">' in text
    assert "seqsel/tab5" in text
    assert "Edition sc23 is the published model" in text
    assert "Not counted in time or memory: embeddings" in text
    assert "<b>131.9 s</b>" in text
    assert text.count("<svg") > 2


def test_the_corrected_edition_shows_its_figures_and_says_what_they_count(folder):
    text = (folder / "today.html").read_text(encoding="utf-8")
    assert all(f'data-value="{c.name}"' in text for c in columns(CorrectedStats))
    assert "<dt>edition</dt><dd>corrected</dd>" in text
    assert "ranks that work together" in text
    assert ">0, 2, ..., 62<" in text
    for words in ("MFU, full attention", "MFU, causal", "HFU", "head and loss", "SwiGLU"):
        assert words in text
    assert NO_VOCABULARY not in text
    assert "Edition corrected is the published model with its defects mended" in text
    assert "attention counted in full" in text
    assert "embeddings, the output projection and the loss" not in text


def test_two_editions_stand_side_by_side(folder):
    text = (folder / "both.html").read_text(encoding="utf-8")
    assert "A: edition sc23" in text
    assert "B: edition corrected" in text
    assert NO_VOCABULARY in text
    assert ">A sc23</th>" in text
    assert "Edition sc23: Not counted in time or memory: embeddings" in text
    assert "Edition corrected: Embedding, output head and loss count" in text
    assert "a100_80g, edition corrected" in text  # its own validation


def test_every_edition_has_its_assumptions():
    assert set(EDITIONS) == set(ASSUMPTIONS) == set(EDITION_NAMES)
    for edition in EDITION_NAMES:
        assert assumptions([edition]) == [EDITIONS[edition], *ASSUMPTIONS[edition]]


def test_what_editions_have_in_common_is_said_once():
    found = assumptions(EDITION_NAMES)
    common = set(ASSUMPTIONS["sc23"]) & set(ASSUMPTIONS["corrected"])
    assert common
    assert all(found.count(text) == 1 for text in common)
    own = [text for text in found if text.startswith("Edition ") and ": " in text]
    assert len(found) == len(EDITIONS) + len(common) + len(
        [t for t in own if t not in EDITIONS.values()]
    )


def test_a_search_shows_its_best(folder):
    text = (folder / "search.html").read_text(encoding="utf-8")
    assert "Best executions of the search" in text
    assert "Training of megatron-22B on 8 x a100_80g" in text


def test_files_alone_say_what_they_do_not_know(folder):
    text = (folder / "files.html").read_text(encoding="utf-8")
    assert "A file of statistics: what was asked is not known." in text
    assert "model and system are not known" in text
    assert "Side by side" in text
    assert "&lt;i&gt;" in text
    assert "<i>" not in text


def test_the_same_results_give_the_same_page(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert main(["report", EXAMPLE, "-o", "again.html"]) == 0
    assert (folder / "again.html").read_bytes() == (folder / "one.html").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["x.json", "-o", "r.html"], "x.json: expected a readable file"),
        ([EXAMPLE, "-o", "r.pdf"], "an output name that ends in .html"),
        ([EXAMPLE], "the following arguments are required: -o/--output"),
    ],
)
def test_says_what_is_wrong(arguments, expected, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["report", *arguments]) == 2
    assert expected in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_texts_are_escaped():
    assert element("p", "<b>&", Html("<i></i>"), title='"') == (
        '<p title="&quot;">&lt;b&gt;&amp;<i></i></p>'
    )


def test_a_bar_fills_its_width_and_leaves_out_what_cannot_be_seen():
    drawn = bar("x", [Piece("a", 3.0, "3", "blue"), Piece("b", 1.0, "1", "green")])
    assert re.findall(r'x="([\d.]+)%"[^>]*width="([\d.]+)%"', drawn) == [
        ("0.0000", "75.0000"),
        ("75.0000", "25.0000"),
    ]
    small = bar("x", [Piece("a", 1.0, "1", "blue"), Piece("b", 1e-9, "0", "green")], 2.0, "two")
    assert "green" not in small
    assert 'x1="100.0000%"' in small


def browse(page, *options):
    """Open a page in a browser without a window, and return what it prints."""
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={page}.profile",
    ]
    done = subprocess.run(
        [*command, *options, page.as_uri()], capture_output=True, check=True, timeout=60
    )
    return done.stdout.decode()


@pytest.mark.skipif(BROWSER is None, reason="no browser is installed (chromium)")
def test_a_browser_sorts_the_layers_and_draws_the_page(folder):
    clicks = """<script>
    const table = document.querySelector("table.sortable");
    const names = () => [...table.tBodies[0].rows].map((row) => row.cells[0].textContent).join("|");
    const out = (text) => document.body.append(Object.assign(document.createElement("pre"), {textContent: text}));
    const press = (i) => table.tHead.rows[0].cells[i].querySelector("button").click();
    out("FIRST " + names());
    press(1); out("LARGEST " + names() + " " + table.tHead.rows[0].cells[1].ariaSort);
    press(1); out("SMALLEST " + names());
    press(1); out("AGAIN " + names());
    press(0); out("NAMES " + names());
    </script></body>"""
    page = folder / "clicked.html"
    text = (folder / "one.html").read_text(encoding="utf-8")
    page.write_text(text.replace("</body>", clicks), encoding="utf-8")
    found = dict(re.findall(r"<pre>(\w+) (.*?)</pre>", browse(page, "--dump-dom")))
    assert set(found) == {"FIRST", "LARGEST", "SMALLEST", "AGAIN", "NAMES"}
    assert found["FIRST"].startswith("Attn Fork|Attn LayerNorm|")
    assert found["LARGEST"].startswith("Mlp Mlp1|Mlp Mlp2|Attn Query")
    assert found["LARGEST"].endswith(" descending")
    assert found["SMALLEST"].endswith("|Mlp Mlp1|Mlp Mlp2")
    assert found["AGAIN"] == found["FIRST"]
    assert found["NAMES"].split("|") == sorted(found["FIRST"].split("|"))
    picture = folder / "page.png"
    browse(folder / "one.html", f"--screenshot={picture}", "--window-size=1100,900")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000
