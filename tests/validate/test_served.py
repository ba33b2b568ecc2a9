"""Studies of served models: rows are deployments, which editions know or do not, and errors by group."""

import numpy as np
import pytest

from calculon.serving.serve import serve
from calculon.validate import error_summary as summary
from calculon.validate.measured_and_predicted import pooled

STUDY = {
    "title": "a study of a served model",
    "source": "a page",
    "evidence": "measured",
    "calibration": "none",
    "measured": "measured.csv",
    "by": ["engine"],
    "system": "h100_80g_sxm",
    "model": "llama3-8B",
    "deployment": {
        "num_procs": "gpus",
        "tensor_par": "gpus",
        "weights_dtype": "float8",
        "kv_dtype": "kv or 'float16'",
    },
    "workload": {"prompt": 1000, "output": "output", "users": "users"},
    "quantities": [
        {
            "name": "time per token",
            "measured": "seconds",
            "unit": "ms",
            "estimate": "tpot",
            "bound": 900,
        },
        {
            "name": "tokens",
            "measured": "rate",
            "unit": "tokens/s",
            "estimate": "output_rate",
            "bound": 900,
        },
    ],
}
CSV = (
    "id,engine,gpus,kv,output,users,seconds,rate\n"
    "a,old,1,float8,200,4,5,\n"
    "b,new,1,,200,4,6,700\n"
    "c,new,2,float8,200,,7,9000\n"
)


def served(gpus, kv, **workload):
    """Return the figures of a row."""
    deployment = {"num_procs": gpus, "tensor_par": gpus, "weights_dtype": "float8", "kv_dtype": kv}
    return serve("llama3-8B", deployment, "h100_80g_sxm", {"prompt": 1000, **workload})


def test_rows_are_compared_with_the_figures_of_their_deployments(result):
    one, other = result(STUDY, CSV, "corrected").own.comparisons
    asked = ((1, "float8", {"users": 4}), (1, "float16", {"users": 4}), (2, "float8", {}))
    figures = [served(gpus, kv, output=200, **load) for gpus, kv, load in asked]
    assert one.estimated == pytest.approx([1e3 * each["tpot"] for each in figures])
    assert [row.label for row in other.rows] == ["b", "c"]  # the others have no value
    assert other.estimated == pytest.approx([each["output_rate"] for each in figures[1:]])


def test_a_pool_for_prefill_is_stated_by_columns_and_absent_where_they_are_blank(result):
    pool = {"num_procs": "pool", "tensor_par": "pool"}
    study = STUDY | {"deployment": STUDY["deployment"] | {"tensor_par": 1, "prefill": pool}}
    rows = CSV.replace("rate\n", "rate,pool\n").replace("700\n", "700,\n")
    found = result(study, rows.replace(",\nb", ",,\nb").replace("9000\n", "9000,1\n"), "corrected")
    apart = {"num_procs": 2, "weights_dtype": "float8", "kv_dtype": "float8"}
    apart["prefill"] = {"num_procs": 1, "tensor_par": 1}
    expected = serve("llama3-8B", apart, "h100_80g_sxm", {"prompt": 1000, "output": 200})
    (one,) = (c for c in found.own.comparisons if c.quantity.name == "tokens")
    figures = [served(1, "float16", output=200, users=4)["output_rate"], expected["output_rate"]]
    assert one.estimated == pytest.approx(figures)


def test_the_published_edition_has_no_deployments(result):
    found = result(STUDY, CSV, "sc23")
    assert found.rows == ()
    assert list(found.excluded.values()) == [3]
    assert found.passes


def test_errors_are_told_by_group(result):
    found = result(STUDY, CSV, "corrected")
    errors = found.own.comparisons[0].errors
    rows = [row for row in summary.groups([found]) if row["quantity"] == "time per token"]
    assert [(row["group"], row["n"]) for row in rows] == [("old", 1), ("new", 2)]
    assert rows[1]["mean"] == pytest.approx(np.abs(errors[1:]).mean())


def test_steps_and_totals_of_training_leave_them_out(result):
    found = result(STUDY, CSV, "corrected")
    assert found.steps is None
    assert pooled([found]) == {}


def test_a_row_that_does_not_fit_is_counted_with_its_reason(result):
    long = {**STUDY, "workload": {"prompt": "20000000", "output": 10}}
    found = result(long, CSV, "corrected")
    assert found.own.unrepresented == {"mem1_capacity": 3}


def test_an_alternative_changes_the_deployment(result):
    whole = {"name": "passes of their own", "why": "to see", "deployment": {"token_budget": 0}}
    found = result(STUDY | {"alternatives": [whole]}, CSV, "corrected")
    (other,) = found.alternatives
    assert (other.comparisons[0].estimated != found.own.comparisons[0].estimated).any()


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"execution": {}, "quantities": [STUDY["quantities"][0] | {"estimate": "total_time"}]},
         "quantities[0].estimate", "figures of deployments"),
        ({"deployment": {"tensor_parr": 2}}, "deployment.tensor_parr", "tensor_par"),
        ({"deployment": {"num_procs": "gpu"}}, "deployment.num_procs", "gpus"),
    ],
)  # fmt: skip
def test_a_wrong_study_names_file_and_field(refuses, change, field, words):
    refuses("study.yaml", field, words, STUDY | change, CSV, "corrected")


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        ("a,old,1,float8", "a,old,1,float7", "line 2 (a), deployment.kv_dtype"),
        ("b,new,1,,200", "b,new,1,,0", "line 3 (b), workload.output"),
        ("b,new,1,,200,4", "b,new,1,,200,-1", "line 3 (b), workload.users"),
    ],
)
def test_a_wrong_row_names_file_row_and_field(refuses, before, after, field):
    refuses("measured.csv", field, "expected", STUDY, CSV.replace(before, after), "corrected")
