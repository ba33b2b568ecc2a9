"""Every result has HTML that says what its page in a terminal says."""

import io
import re

import pytest
from rich.console import Console

import calculon
from calculon import inputs
from calculon.base.display import Displayed
from calculon.base.errors import in_words
from calculon.base.units import scaled
from calculon.documents.batch_page import batch_page
from calculon.documents.campaign_page import campaign_page
from calculon.documents.deployments_page import deployments_page
from calculon.documents.estimate_result import result_of
from calculon.documents.fleet_page import fleet_page
from calculon.documents.page import estimate_page
from calculon.documents.plan_page import plan_page
from calculon.documents.result_pages import DOCUMENTS, ROWS, document_of
from calculon.documents.sensitivity_page import sensitivity_page
from calculon.documents.serving_page import serving_page
from calculon.documents.why_page import why_page
from calculon.render import terminal
from tests.documents import results
from tests.helpers import ROOT, document
from tests.render.test_html import HOSTILE, checked

LLAMA = ("llama3-8B", "llama3-8B_h100x64_p4", "h100_80g_sxm")
PUBLISHED = ("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g")

ROOM = 140
"""Columns in which nothing is left out, and parts are not yet side by side."""


def words(text):
    return re.findall(r"[\w.,%/+<-]+", text)


def words_of(page):
    """Return the words of a page in a terminal."""
    console = Console(width=ROOM, record=True, file=io.StringIO(), force_terminal=True)
    console.print(terminal.page(page))
    return words(re.sub(r"[█▏▎▍▌▋▊▉░]+", " ", console.export_text()))


def unsaid(result, page):
    """Return the words of a page in a terminal that the HTML of a result does not have."""
    told = set(words(checked(result._repr_html_()).text))
    return [word for word in words_of(page) if word not in told]


def test_estimates_say_all_of_their_page():
    for estimate in (results.estimate_of(), calculon.estimate(*PUBLISHED)):
        assert unsaid(estimate, estimate_page(result_of(estimate))) == []


def test_answers_say_all_of_their_pages():
    answer, fleets = results.answer(), results.fleets()
    assert unsaid(answer, plan_page(answer)) == []
    assert unsaid(fleets, fleet_page(fleets)) == []


def test_a_whole_run_says_all_of_its_page():
    run = calculon.campaign("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm", tokens="1T")
    assert unsaid(run, campaign_page(run)) == []


def test_deployments_say_all_of_their_pages():
    lengths = {"prompt": 1000, "output": 200}
    one = calculon.serve("llama3-8B", 1, "h100", lengths)
    both = calculon.compare(one, calculon.serve("llama3-8B", 1, "a100_80g_sxm", lengths))
    few = {"tensor_par": 1, "token_budget": 2048}
    best = calculon.search_deployments("llama3-8B", 1, "h100", lengths, fix=few)
    curve = calculon.by_batch(one)
    assert unsaid(one, serving_page(one.record)) == []
    assert unsaid(best, deployments_page(best)) == []
    assert unsaid(curve, batch_page(curve)) == []
    text = checked(both._repr_html_()).text
    assert "h100_80g_sxm" in text
    assert " differ, " in text
    limits = lengths | {"tpot_limit": 1e-6}
    nothing = calculon.search_deployments("llama3-8B", 1, "h100", limits, fix=few)
    assert "none of" in checked(nothing._repr_html_()).text


def test_an_answer_without_a_plan_says_why():
    text = checked(results.no_answer()._repr_html_()).text
    assert "No plan fits" in text


def test_a_search_has_its_first_winners():
    found = results.found()
    text = checked(found._repr_html_()).text
    assert "and 7 more" in text
    assert f"{found.counts.total:,} executions, {found.counts.good:,} feasible" in text
    assert text.count("samples/s") == 1


def test_a_search_that_found_nothing_has_reasons():
    nothing = results.found_nothing()
    text = checked(nothing._repr_html_()).text
    (reason, count), *_ = nothing.counts.reasons.most_common(1)
    assert in_words(reason) in text
    assert f"{count:,}" in text


def test_an_evaluation_names_plans_and_reasons():
    found = results.found()
    row = found.plan.to_frame().to_dict("records")[0]
    rows = [row, row | {"microbatch_size": 7}, row | {"microbatch_size": "x"}]
    odd = calculon.evaluate("megatron-22B", "a100_80g", rows)
    text = checked(odd._repr_html_()).text
    assert in_words(str(odd.reason[1])) in text
    assert odd.reason[1] != ""
    assert "invalid_microbatch_size" in text  # what no field can be has no words
    assert "3 executions" in text
    assert checked(odd.plan._repr_html_()).tags.count("tr") == 1 + len(rows)
    assert f"{len(found):,} executions" in checked(found.plan._repr_html_()).text
    whole = found.evaluation._repr_html_()
    assert "why not" not in whole
    assert "and 7 more" in whole


def test_specs_have_their_figures():
    model, system = inputs.model("llama3-8B"), inputs.system("h100_80g_sxm")
    shape = checked(model._repr_html_()).text
    assert scaled(results.estimate_of().stats["parameters"]) in shape
    assert all(name in shape for name in document("models", "llama3-8B") if name != "about")
    machine = checked(system._repr_html_()).text
    assert "80 GiB at 3,350 GB/s" in machine
    assert machine.count("processors at") == len(system.networks)
    execution = results.estimate_of().execution
    plan = checked(execution._repr_html_()).text
    assert "TP 2, PP 4" in plan
    assert "optimizer_sharding" in plan


def test_packing_is_a_mapping_with_meanings():
    fields = calculon.packing([4096, 2048, 2048], seq_length=4096)
    text = checked(fields._repr_html_()).text
    assert all(f"{name}" in text and str(value) in text for name, value in fields.items())
    assert fields == dict(fields)


def test_a_sweep_has_units_and_reasons():
    swept = calculon.sweep(
        *LLAMA[::2], LLAMA[1], set={"microbatch_size": [1, 3], "mem1.GBps": range(1000, 2000, 100)}
    )
    text = checked(swept._repr_html_()).text
    assert "mem1.GBps (GB/s)" in text
    assert f"and {len(swept) - ROWS} more" in text
    assert "Sweep of 20 rows" in text


def test_a_comparison_has_the_differences():
    one, other = results.estimate_of(), results.estimate_of(results.ONE)
    both = calculon.compare(mine=one, best=other)
    text = checked(both._repr_html_()).text
    assert re.search(r"A\s+mine \(edition corrected\)\s+B\s+best \(edition corrected\)", text)
    assert all(line.name in text for line in both.time)
    assert "Statistics:" not in text


def test_names_of_users_are_texts():
    model = document("models", "megatron-126M")
    shape = inputs.model(model)
    object.__setattr__(shape, "name", HOSTILE)
    assert "<script>" not in shape._repr_html_()
    assert HOSTILE in "".join(checked(shape._repr_html_()).words)


def test_every_public_result_is_shown():
    kinds = [getattr(calculon, name) for name in calculon.__all__ if name[0].isupper()]
    shown = [kind for kind in kinds if not issubclass(kind, Exception)]
    assert len(shown) > 10
    assert [kind.__name__ for kind in shown if not hasattr(kind, "_repr_html_")] == []
    others = [kind for kind in shown if "_repr_html_" not in vars(kind)]
    assert [kind.__name__ for kind in others if kind not in DOCUMENTS] == []


def test_advice_says_all_of_its_page():
    why = calculon.why(*PUBLISHED)
    assert unsaid(why, why_page(why)) == []
    plan = document("examples", PUBLISHED[1]) | {"activation_recompute": "none"}
    text = checked(calculon.why(PUBLISHED[0], plan, PUBLISHED[2])._repr_html_()).text
    assert "cannot run" in text
    assert "What would make it fit" in text
    told = calculon.sensitivity(*LLAMA)
    bars = re.compile(r"[^\w.,%/+<-]+")
    missing = unsaid(told, sensitivity_page(told))
    assert [word for word in missing if not bars.fullmatch(word)] == []


def test_a_launch_file_has_its_settings():
    folder = ROOT / "tests" / "launch" / "scripts" / "megatron_lm"
    launch = calculon.import_flags(min(folder.glob("*llama3*.sh")))
    text = checked(launch._repr_html_()).text
    assert launch.dialect.title in text
    assert all(setting.name in text for setting in launch.used)


def test_every_displayed_result_has_a_document():
    for name in calculon.__all__:
        getattr(calculon, name)  # imports its module
    kinds = [Displayed]
    while kinds:
        kind = kinds.pop()
        kinds += (inside := kind.__subclasses__())
        assert inside or issubclass(kind, tuple(DOCUMENTS)), kind
    with pytest.raises(TypeError, match="int has no line in DOCUMENTS"):
        document_of(1)
