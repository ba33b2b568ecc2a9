"""Studies of deployments: every combination is a row with what ``serve`` says, or why there is none."""

import json

import pytest

import calculon
from calculon.study.served_questions import Answer, answer, plan_questions
from calculon.study.study_file import Study
from tests.helpers import refusal

PLAIN = {
    "models": "llama3-8B",
    "systems": ["h100_80g_sxm", {"system": "a100_80g_sxm", "mem1.GiB": [40, 80]}],
    "deployments": [1, {"num_procs": 2, "tensor_par": [1, 2, 4], "max_batch": 16}],
    "workloads": [{"prompt": 900, "output": [100, 300]}, "chat"],
}


def questions(**changes):
    return plan_questions(Study.decode(PLAIN | changes, "s.yaml")).searches


def test_every_combination_is_a_question():
    found = questions()
    assert len(found) == (1 + 2) * (1 + 3) * (2 + 1)
    assert len({json.dumps(one.values, default=str) for one in found}) == len(found)
    assert [one.search.number for one in found] == [*range(len(found))]


def test_answers_are_those_of_serve():
    asked = {"vary": {"deployment.kv_dtype": ["float8"]}, "systems": "h100_80g_sxm"}
    for one in questions(**asked, workloads=[{"prompt": 900, "output": 100}]):
        asked, got = one.search, answer(one.search)
        values = one.values
        if got.reason:
            assert values["deployment.tensor_par"] == 4
            assert "a multiple of tensor_par" in got.reason
            continue
        plain = values.get("deployment")
        fields = {"kv_dtype": "float8"}
        if plain is None:
            fields |= {"tensor_par": values["deployment.tensor_par"], "max_batch": 16}
        found = calculon.serve(
            "llama3-8B", plain or {"num_procs": 2}, asked.system, asked.workload, changes=fields
        )
        assert got.figures == found.stats
        assert (got.batch, got.cut) == (found.batch, found.cut)
        assert got.deployment == found.deployment.to_dict()


def test_a_field_that_some_lines_state_has_a_value_in_all():
    found = questions()
    assert {one.values["workload.output"] for one in found} == {100, 300, 500}
    assert {one.values["deployment.tensor_par"] for one in found} == {1, 2, 4}
    assert {one.values["deployment.max_batch"] for one in found} == {0, 16}


def test_an_answer_comes_back_from_a_journal():
    for one in questions()[:4]:
        got = answer(one.search)
        assert Answer.of_record(json.loads(json.dumps(got.to_record()))) == got


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workloads": []}, "workloads: expected a list of workloads"),
        ({"deployments": None}, "deployments: expected a list of deployments"),
        ({"num_procs": 8}, "num_procs: expected no setting of a search"),
        ({"vary": {"top": [1, 2]}}, "top: expected no setting of a search"),
        ({"campaigns": [{"tokens": "1T"}]}, "no setting of a search"),
        ({"deployments": [{"num_procs": 2, "tensor": 2}]}, "did you mean 'tensor_par'?"),
        ({"deployments": [{"num_procs": 2, "tensor_par": 4}]}, "a multiple of tensor_par"),
        ({"deployments": [{"tensor_par": 2}]}, "num_procs"),
        ({"deployments": ["nothing"]}, "nothing: expected a deployment"),
        ({"workloads": [{"prompt": 900}]}, "output"),
        ({"quantities": {"tpot": 3}}, "which is a result"),
        ({"models": ["mlp-2x1024"]}, "mlp-2x1024: part: expected block: a whole model"),
        ({"models": ["llama3-9B"]}, "llama3-9B: expected a model"),
    ],
)
def test_what_is_wrong_is_told_before_anything_runs(changes, message):
    assert message in refusal(questions, **changes)
