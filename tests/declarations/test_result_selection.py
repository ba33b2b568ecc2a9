"""Results as executions: what is selected, and everything that selects nothing."""

import json
from pathlib import Path

import pytest

import calculon
from calculon import inputs
from calculon.base.errors import SpecError
from calculon.declarations import catalog, result_selection
from tests.helpers import PLAIN, refusal

RUNS = [PLAIN | {"tensor_par": n, "num_procs": n, "preset": "common"} for n in (1, 2, 4)]
RUNS = [one | {"edition": "corrected"} for one in RUNS]
WINNERS = {str(i): {"execution": one, "stats": {}} for i, one in enumerate(RUNS)}
QUESTION = {"model": {"name": "m"}, "system": {"name": "s"}}
ESTIMATE = {"total_time": 1.0, "question": QUESTION | {"execution": {"fields": RUNS[1]}}}


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(name, document):
        text = document if isinstance(document, str) else json.dumps(document)
        Path(name).write_text(text)
        return name

    return call


TABLE = "\n".join(
    [
        ",".join(["", *RUNS[0], "total_time", "model", "system"]),
        *(",".join(map(str, [i, *one.values(), 1.5, "m", "s"])) for i, one in enumerate(RUNS)),
    ]
)


def test_a_result_is_an_execution(write):
    for name, document, selector, wanted in [
        ("best.json", WINNERS, "", 0),
        ("best.json", WINNERS, "#2", 2),
        ("many.json", {"1024": WINNERS, "64": {}}, "", 0),
        ("many.json", {"1024": WINNERS, "512": WINNERS}, "#1024", 0),
        ("many.json", {"1024": WINNERS, "512": WINNERS}, "#1024:2", 2),
        ("many.json", {"1024": WINNERS, "512": WINNERS}, "#512/1", 1),
        ("one.json", ESTIMATE, "", 1),
        ("rows.json", [{"total_time": 1.0, **one} for one in RUNS], "#1", 1),
        ("all.csv", TABLE, "", 0),
        ("all.csv", TABLE, "#2", 2),
    ]:
        source = write(name, document) + selector
        assert inputs.execution(source) == inputs.execution(RUNS[wanted]), (name, document)
        assert (
            catalog.load("execution", source)[0] == f"{Path(name).stem}{selector}"
            or name[:3] == "all"
        )


def test_what_selects_nothing_says_why(write):
    for name, document, selector, said in [
        ("best.json", WINNERS, "#3", "best.json: expected a rank from 0 to 2, found #3"),
        ("best.json", WINNERS, "#x", "expected a rank from 0 to 2, found #x"),
        ("best.json", WINNERS, "#8:1", "expected #RANK, found #8:1, but the file holds one search"),
        (
            "many.json",
            {"8": WINNERS, "4": WINNERS},
            "",
            "many.json#8, or with a rank many.json#8:0",
        ),
        ("many.json", {"8": WINNERS}, "#9", "expected #PROCS or #PROCS:RANK, found #9; the proc"),
        ("many.json", {"8": WINNERS}, "#8:7", "a rank from 0 to 2, found #7"),
        ("one.json", ESTIMATE, "#1", "found #1, but the file holds one estimate"),
        ("one.json", {"total_time": 1.0}, "", "expected a result that states its execution, found"),
        (
            "best.json",
            {"0": {"execution": 3, "stats": {}}},
            "",
            "#0.execution: expected an object, found 3",
        ),
        ("rows.json", [{"total_time": 1.0}], "", "expected a row with an execution"),
        (
            "best.yaml",
            "0: {execution: {}, stats: {}}",
            "",
            "expected the JSON of llm, loe, plan or study",
        ),
        ("all.csv", TABLE, "#9", "expected a row from 0 to 2"),
        ("all.csv", "a,b\n1,2\n", "", "a header with the columns num_procs, found no column num"),
        ("all.csv", f"{TABLE},1", "", "line 4: expected "),
        ("all.csv", TABLE.replace("multihead", "none"), "", "attention_type: expected one of"),
        ("plan.json", RUNS[0], "#1", "expected a search result, from which # selects an entry"),
        ("none.json", None, "#1", "none.json: expected an execution"),
    ]:
        source = (write(name, document) if document is not None else name) + selector
        assert said in refusal(inputs.execution, source), (name, document)


def test_a_number_sign_may_be_in_the_name_of_a_file(write):
    write("a#1.json", RUNS[0])
    assert result_selection.split("a#1.json") == ("a#1.json", "")
    assert inputs.execution("a#1.json").tensor_par == 1
    assert result_selection.split("best.json#2") == ("best.json", "2")
    assert result_selection.split("best.json") == ("best.json", "")
    write("best.json", WINNERS)
    with pytest.raises(
        SpecError, match=r"best\.json#: expected a rank or a row after #, such as best\.json#0"
    ):
        inputs.execution("best.json#")
    assert result_selection.split("nothing.json#") == ("nothing.json#", "")
    write("odd.json#", RUNS[0])
    assert result_selection.split("odd.json#") == ("odd.json#", "")


def test_an_estimate_of_a_result_is_that_of_its_execution(write):
    document = calculon.estimate("megatron-126M", RUNS[0] | {"preset": "published"}, "b200_sxm")
    write("one.json", document.to_dict())
    again = calculon.estimate("megatron-126M", "one.json", "b200_sxm")
    assert (again.execution, again.stats) == (document.execution, document.stats)
    assert again.origin.name == "one"
