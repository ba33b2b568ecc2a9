"""``calculon llm-validation``: the published tables, and every study in every format."""

import itertools
import json
import re
import shutil

import pytest

from calculon.cli.commands import validation
from calculon.declarations.named_values import EDITION_NAMES
from calculon.documents.validation_tables import sections
from calculon.validate import error_summary
from calculon.validate.published_study import Library
from calculon.validate.source_scores import class_scores
from tests.documents.drawing import drawn_lines
from tests.helpers import ROOT, csv_rows
from tests.shipped_studies import compare_once, compared, shipped

NAMES = Library.at().names()


FEW = (
    *("bigscience", "campaign/bloom", "mt_nlg", "sc21/table1", "seqsel/fig1", "seqsel/fig7"),
    *("seqsel/tab5", "serving/nim", "vtrain/multi"),
)
"""Studies with every kind of table, without those that take long: what ``lv`` shows in the full suite."""


SCORES = {}
"""Results, and the scores of their classes, by the identities of the results."""


def scores_once(results):
    """Score the same results once: each table in each format asks for them again."""
    same = tuple(map(id, results))
    SCORES[same] = SCORES.get(same) or (results, class_scores(results))
    return SCORES[same][1]


@pytest.fixture(autouse=True)
def _few(monkeypatch, request):
    shipped()  # before its studies become few
    studies = Library.studies

    def some(library, name=""):
        if name or library.names() != NAMES:
            return studies(library, name)
        return [shipped()[one] for one in FEW]

    monkeypatch.setattr(error_summary, "class_scores", scores_once)
    monkeypatch.setattr(validation, "compare", compare_once)
    if request.node.get_closest_marker("large") is None:
        monkeypatch.setattr(Library, "studies", some)


@pytest.mark.parametrize("names", [FEW, pytest.param(NAMES, marks=pytest.mark.large)], ids=len)
def test_prints_the_four_published_tables_and_a_line_per_study(run, output_of, names):
    out = output_of("llm-validation")
    lines = out.splitlines()
    titles = ("*Params & Opt", "*Activations", "Activations", "End-to-end")
    assert [line for line in lines if line in titles] == list(titles)
    assert all(f"\n{name} " in out for name in names)
    out = run("lv", "--format", "markdown").out
    assert out.startswith(
        "Edition of the cost model: sc23; corrected from studies that exist only there"
    )
    assert all(f"\n| {name} | " in out for name in names)


def test_a_group_of_studies(run):
    found = json.loads(run("lv", "--study", "seqsel", "--format", "json").out)
    assert [study["name"] for study in found["studies"]] == [n for n in NAMES if "seqsel/" in n]


def test_json_holds_every_value(run):
    (study,) = json.loads(run("lv", "--study", "tab5", "--format", "json").out)["studies"]
    (quantity,) = study["quantities"]
    assert (quantity["n"], quantity["unit"], study["passes"]) == (8, "s", True)
    assert quantity["values"][0]["row"] == "megatron-22B full"
    assert quantity["values"][0]["measured"] == 1.42
    assert quantity["values"][0]["estimated"] == pytest.approx(1.3955953652)


def _comparisons(name, edition):
    return compared(name, edition).own.comparisons


def test_csv_has_a_line_per_value(run):
    rows = csv_rows(run("lv", "--format", "csv").out)
    usual = {study.name: study.usual_edition for study in Library.at().studies()}
    represented = {n for n in FEW if any(one.rows for one in _comparisons(n, usual[n]))}
    assert {row["study"] for row in rows} == represented
    assert {"seqsel/tab5", "bigscience"} < represented
    assert sum(row["study"] == "vtrain/multi" for row in rows) == 62


def test_says_what_it_does_when_asked(run):
    out = run("lv", "--study", "tab5", "--verbose").out
    assert out.startswith("Now running test: seqsel/tab5\nAnalyzing megatron-22B full\n")


def own_study(tmp_path, file, pattern, text):
    """Copy a study into a folder for ``-b``, with another text in one of its files; return the folder."""
    folder = tmp_path / "own" / "validation" / "tab5"
    shutil.copytree(ROOT / "validation" / "seqsel" / "tab5", folder)
    (folder / file).write_text(re.sub(pattern, text, (folder / file).read_text()))
    return tmp_path / "own"


def test_a_mean_error_above_its_bound_is_exit_code_1(run, tmp_path):
    code, out, err = run("lv", "-b", own_study(tmp_path, "study.yaml", "sc23: 3.7", "sc23: 2"))
    assert code == 1
    assert "Ave,,3.65%" in out
    assert err == "calculon: validation: tab5, time: mean error 3.65 %, the bound is 2 %\n"


def test_a_folder_of_the_published_layout_replaces_models_systems_and_executions(run, tmp_path):
    base = tmp_path / "published"
    shutil.copytree(ROOT / "systems", base / "systems")
    (base / "models").symlink_to(ROOT / "models")
    for name in ("fig1", "fig7", "tab5"):
        target = base / "validation" / "seqsel" / name
        target.mkdir(parents=True)
        for file in (ROOT / "validation" / "seqsel" / name).glob("*.json"):
            shutil.copy(file, target)
    assert (
        run("lv", "--base_dir", base, "--study", "seqsel").out == run("lv", "--study", "seqsel").out
    )
    changed = json.loads((base / "systems" / "a100_80g.json").read_text())
    changed["networks"][0]["bandwidth"] = 30
    (base / "systems" / "a100_80g.json").write_text(json.dumps(changed))
    file = base / "validation" / "seqsel" / "tab5" / "megatron-22B_full.json"
    execution = json.loads(file.read_text()) | {"microbatch_size": 2}
    file.write_text(json.dumps(execution))
    found = json.loads(run("lv", "-b", base, "--study", "tab5", "--format", "json").out)
    before = json.loads(run("lv", "--study", "tab5", "--format", "json").out)
    times = [one["estimated"] for one in found["studies"][0]["quantities"][0]["values"]]
    usual = [one["estimated"] for one in before["studies"][0]["quantities"][0]["values"]]
    assert all(slow > fast for slow, fast in zip(times, usual, strict=True))


BOTH = ("--edition", "sc23,corrected")
CORRECTED_ALONE = ("--edition", "corrected")


def _tab5(run, edition):
    """Return mean and bias of the study that has a published table, as JSON has them."""
    found = json.loads(run("lv", "--study", "tab5", "--edition", edition, "--format", "json").out)
    (quantity,) = found["studies"][0]["quantities"]
    return quantity["mean"], quantity["bias"]


def test_without_an_edition_it_is_the_published_one_of_studies_that_it_knows(run):
    assert run("lv", "--study", "seqsel", "--edition", "sc23") == run("lv", "--study", "seqsel")
    found = json.loads(run("lv", "--format", "json").out)["studies"]
    beyond = {one["name"] for one in found if one["edition"] == "corrected"}
    assert beyond == {"serving/nim", "campaign/bloom"}
    assert [one["name"] for one in found] == list(FEW)


def test_studies_that_exist_in_one_edition_alone_have_errors_without_its_name(run):
    usual, stated = (run("lv", "--study", "serving/nim", *more) for more in ((), CORRECTED_ALONE))
    assert usual == stated
    mean = _comparisons("serving/nim", "corrected")[0].score.mean
    _, table = run("lv").out.split("and bias (edition corrected)\n")
    line = next(one for one in table.splitlines() if one.startswith("serving/nim"))
    assert f"{mean:.2f}" in line.split()


@pytest.mark.parametrize("names", [FEW, pytest.param(NAMES, marks=pytest.mark.large)], ids=len)
def test_editions_side_by_side_fit_into_a_terminal_of_100_columns(names):
    results = [compared(name, edition) for name in names for edition in EDITION_NAMES]
    for _, table, _ in itertools.islice(sections(results), 2):
        lines = drawn_lines(table, width=100, terminal=True)
        assert max(map(len, lines)) <= 100
        (line,) = [
            one for one in lines if one.startswith("vtrain/multi") and "corrected" not in one
        ]
        assert {"time", "62"} < set(line.split())
        kept = [column for column in table.columns if not column.drop]
        assert len(kept) <= len(line.split()) <= len(table.columns)


def test_every_format_says_the_editions_and_the_sources_of_whole_steps(run):
    def printed(form):
        return run("lv", *BOTH, "--study", "mt_nlg", "--format", form).out

    assert {row["edition"] for row in csv_rows(printed("csv"))} == {"sc23", "corrected"}
    found = json.loads(printed("json"))
    assert found["editions"] == ["sc23", "corrected"]
    for part in ("studies", "totals"):
        assert [one["edition"] for one in found[part]] == ["sc23", "corrected"]
    assert [(one["name"], one["rows"]) for one in found["classes"]] == [("", 3), ("mt_nlg", 3)]
    for form in ("text", "markdown", "html"):
        assert "Whole steps by class and source" in printed(form)
    assert printed("markdown").startswith("Editions of the cost model: sc23, corrected\n")
    assert "<p>Editions of the cost model: sc23, corrected</p>" in printed("html")
    assert ">edition</th>" in printed("html")


def test_a_bound_of_one_edition_counts_where_it_is_shown(run, tmp_path):
    own = own_study(tmp_path, "study.yaml", "corrected: [^}]+", "corrected: 1")
    assert run("lv", "-b", own).code == 0
    code, _, err = run("lv", "-b", own, *BOTH)
    mean, _ = _tab5(run, "corrected")
    wanted = f"tab5, time, edition corrected: mean error {mean:.2f} %, the bound is 1 %"
    assert (code, err) == (1, f"calculon: validation: {wanted}\n")


def test_a_study_that_waits_says_why(output_of):
    out = output_of("lv", "--study", "llama31_8b", "--edition", "sc23")
    assert "context parallelism" in out


def test_a_named_study_without_rows_in_the_published_edition_is_of_the_corrected_one(run):
    out = run("validate", "moonlight").out
    assert out.startswith("Edition of the cost model: corrected\n")
    assert out == run("lv", "--study", "moonlight", "--edition", "corrected").out
    assert "\nEdition of the cost model: sc23\n" in run("validate", "tab5").out


def test_wrong_arguments_are_bad_input(refuses, tmp_path):
    rows = [
        ("--edition sc23,correct", "did you mean 'corrected'?"),
        ("--study tab6", "did you mean 'tab5'"),
        ("--study moe_megatron_bridge", "in the title or source of nemo/bridge, nemo/experts"),
        (("-b", tmp_path), "expected a folder that holds the folder 'validation'"),
        ("--study mt_nlg --runs runs.csv", "expected edition corrected, found sc23"),
        ("--study mt_nlg --edition corrected --runs runs.json", "an output name that ends in .csv"),
    ]
    refuses(("lv",), rows)


def test_a_broken_study_names_file_and_field(refuses, tmp_path):
    own = own_study(tmp_path, "measured.csv", "megatron-22B,full,1.42", "gpt-5,full,1.42")
    message = "measured.csv: line 2 (gpt-5 full), model: expected the name of a model"
    refuses(("lv", "-b"), [((own,), message)])


def test_runs_are_written(run, tmp_path):
    target = tmp_path / "runs.csv"
    asked = ("lv", "--study", "mt_nlg", "--edition", "corrected")
    assert run(*asked, "--runs", str(target)).code == 0
    lines = (ROOT / "validation" / "runs.csv").read_text().splitlines()
    own = [line for line in lines if line.startswith("mt_nlg,")]
    assert target.read_text().splitlines() == [lines[0], *own]


def test_whole_runs_say_where_they_are_compared_and_how_they_are_judged(run):
    told = "exist only in edition corrected; here n is 0"
    published = ("--edition", "sc23")
    assert f"Whole runs {told}" in run("lv", "--study", "campaign/bloom", *published).out
    assert f"Served models {told}" in run("lv", "--study", "serving/nim", *published).out
    compared = run("lv", "--study", "campaign/bloom").out
    assert told not in compared
    assert "ok: hours of a whole run" in compared
    assert told not in run("lv", "--study", "tab5", *published).out


OWN = "id,model,system,num_gpus,tp,pp,gbs,mbs,iter_time_s\na,llama-3.1-8b,h100,64,2,1,128,1,{}\n"


@pytest.fixture
def own_rows(tmp_path):
    """Write a file of own rows with a measured time; return its path."""

    def write(seconds, rows=1):
        file = tmp_path / "mine.csv"
        head, _, row = OWN.format(seconds).strip().rpartition("\n")
        file.write_text("\n".join([head, *[row] * rows, ""]))
        return str(file)

    return write


@pytest.mark.parametrize("form", ["text", "markdown", "html", "json", "csv"])
def test_own_rows_are_shown_in_every_format(run, own_rows, form):
    found = run("lv", "--rows", own_rows(4.0), "--format", form)
    assert found.code == 0
    assert "mine.csv" in found.out
    assert "Hopper" in found.out


def test_a_limit_is_exit_code_1_and_names_the_class(run, own_rows, tmp_path):
    before = tmp_path / "before.json"
    before.write_text(run("lv", "--rows", own_rows(2.0), "--format", "json").out)
    found = run("lv", "--rows", own_rows(40.0), "--baseline", before, "--fail-above", "5%")
    assert found.code == 1
    assert found.err.startswith("calculon: validation: Dense, Hopper, Ampere: the median absolute")
    assert "Since the baseline: the 10 rows whose errors changed most" in found.out
    assert run("lv", "--rows", own_rows(40.0), "--baseline", before).code == 0
    assert run("lv", "--rows", own_rows(40.0), "--fail-above", "20").code == 1
    assert run("lv", "--rows", own_rows(40.0), "--fail-above", "99").code == 0


def test_studies_are_compared_with_a_baseline(run, tmp_path):
    asked = ("lv", "--study", "mt_nlg", *CORRECTED_ALONE, "--format", "json")
    before = tmp_path / "before.json"
    before.write_text(run(*asked).out)
    found = run(*asked, "--baseline", before, "--fail-above", "0")
    assert found.code == 0
    moves = json.loads(found.out)["moves"]
    assert moves["rows"] == []
    assert {one["change"] for one in (*moves["studies"], *moves["classes"])} == {0}


def test_options_of_own_rows_are_checked(refuses, own_rows):
    rows = [
        (("--rows", own_rows(4.0), "--study", "tab5"), "--rows: expected no study"),
        (("--rows", own_rows(4.0), "--edition", "sc23"), "--rows: expected edition corrected"),
        ("--fail-above 5%", "expected --baseline or --rows"),
        ("--fail-above much", "a number of percent, such as 5%"),
        ("--fail-above nan", "a number of percent, such as 5%"),
    ]
    refuses(("lv",), rows)


def test_a_plan_rests_on_own_rows(run, own_rows):
    asked = ("plan", "llama-3.1-8b", "64", "h100")
    found = run(*asked, "--evidence", own_rows(1.9), "-v")
    assert found.code == 0
    assert "1 measured step of your own (mine.csv)" in " ".join(found.out.split())
    assert "of your own" not in run(*asked).out
    slow = run(*asked, "--evidence", own_rows(30.0, rows=30))
    assert "the prediction is outside, because these took longer" in " ".join(slow.out.split())
    missing = run(*asked, "--evidence", "none.csv")
    assert (missing.code, missing.err[:30]) == (2, "calculon: error: none.csv: exp")


def test_validate_prints_a_summary_unless_it_is_asked_for_more(run):
    short = run("validate").out
    assert short.startswith("Predictions against published measurements (edition corrected)\n")
    titles = ("\nAll measured rows", "\nWhole steps by class and source", "\nServed models: errors")
    assert all(title in short for title in titles)
    assert f"In {len(FEW)} of {len(FEW)} studies no mean error exceeds" in short
    assert "\nEnd-to-end\n" not in short
    for words in (("lv",), ("validate", "--verbose")):
        assert "\nEnd-to-end\n" in run(*words).out


def test_a_study_may_be_named_without_its_option(run):
    assert run("validate", "tab5").out == run("lv", "--study", "tab5", "-f", "text").out
    assert "expected one study, found tab5 and fig1" in run("lv", "tab5", "--study", "fig1").err
