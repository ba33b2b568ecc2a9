"""Results in files: what is written is read as the record that the result itself has."""

import pytest

import calculon
from calculon.cli.result_files import results_in
from calculon.declarations.files import read_document, write_json
from calculon.documents.estimate_result import result_of
from calculon.serving.served_record import read_served

TODAY = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")
PUBLISHED = ("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g")
ASKED = {"prompt": 900, "output": 300}
ESTIMATES = {"corrected": TODAY, "published": PUBLISHED}
SERVED = {
    "limits": ({}, {"tpot_limit": 0.02}),
    "drafts": ({"draft": "ngram", "draft_tokens": 2, "acceptance": 0.5}, {}),
    "without end": ({}, {"rate": 900}),
    "users": ({"max_batch": 8}, {"users": 16, "requests": 100}),
    "pools": ({"num_procs": 2, "prefill.num_procs": 1}, {"rate": 2}),
}


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("kind", ESTIMATES)
def test_an_estimate_is_read_as_it_was_written(kind):
    made = calculon.estimate(*ESTIMATES[kind], layers=True)
    write_json("one.json", made.to_dict())
    read, live = next(results_in("one.json")), result_of(made)
    for name in ("stats", "edition", "interval", "question"):
        assert getattr(read, name) == getattr(live, name), name
    assert read.execution == (None if kind == "published" else live.execution)
    columns = [*read.layers[0]]
    assert read.layers == [{name: one[name] for name in columns} for one in live.layers]


@pytest.mark.usefixtures("run", "without_help")
@pytest.mark.parametrize("kind", SERVED)
def test_a_deployment_is_read_as_it_was_written(kind):
    changes, load = SERVED[kind]
    procs = changes.get("num_procs", 1)
    found = calculon.serve("llama3-8B", procs, "h100", ASKED, changes=changes, **load)
    write_json("one.json", found.to_dict())
    assert read_served(read_document("one.json"), "one.json") == found.record
