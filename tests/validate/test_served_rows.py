"""Published rows of served models: their ratios and classes, and how many of them ranges hold."""

import math

import pytest

from calculon.declarations.named_values import CORRECTED
from calculon.estimate.served_errors import Evidence, published_rows
from calculon.validate.served_rows import class_scores, publisher, served_rows
from tests.shipped_studies import compared


@pytest.fixture(scope="module")
def nim():
    return compared("serving/nim", CORRECTED)


def test_ratios_are_those_of_the_rows(nim):
    rows = [row for row in served_rows([nim]) if row.figure == "tpot"]
    (one,) = (c for c in nim.own.comparisons if c.quantity.estimate.text == "tpot")
    assert [row.ratio for row in rows] == [
        m / p for m, p in zip(one.measured, one.estimated, strict=True)
    ]
    assert {(row.source, row.study) for row in rows} == {("docs.nvidia.com", "serving/nim")}


def test_classes_follow_from_model_engine_system_and_users(nim):
    rows = [row.of_class for row in served_rows([nim]) if row.figure == "tpot"]
    found = {(one.kind, one.engine, one.generation) for one in rows}
    assert found == {("dense", "nim", "NVIDIA Hopper")}
    users = [row.cells["users"] for row in nim.rows]
    assert [one.load == "single stream" for one in rows] == [number == 1 for number in users]
    assert rows[users.index(250)].load == "saturated"


def test_engines_before_2024_and_libraries_are_not_counted():
    for name, left_out in (("misc", "Triton FasterTransformer"), ("trtllm_static", "0.5.0")):
        result = compared(f"serving/{name}", CORRECTED)
        rows = [row for one in result.own.comparisons for row in one.rows]
        counted = [
            row
            for row in rows
            if not any(
                word in row.cells["engine"]
                for word in (left_out, "0.6", "0.7", "2023", "online", "Hugging")
            )
        ]
        assert any(left_out in row.cells["engine"] for row in rows)
        assert len(served_rows([result])) == len(counted)


def test_a_source_is_who_published_it():
    for source, name in (
        ("mlcommons/inference_results_v5.1:summary_results.json@965182b03376", "mlcommons"),
        ("docs.nvidia.com/nim/benchmarking", "docs.nvidia.com"),
        ("InferenceX:ai-dynamo/aiconfigurator:silicon_sample.csv@095f58a", "InferenceX"),
    ):
        assert publisher(source) == name


def test_rows_are_judged_by_the_range_of_all_other_sources(nim):
    """With rows of the catalog of studies that are not among the results."""
    rows = [row for row in served_rows([nim]) if row.figure == "output_rate"]
    others = tuple(
        row
        for row in published_rows()
        if row.figure == "output_rate" and row.source != "docs.nvidia.com"
    )
    ends = [Evidence(others).ends(row.of_class) for row in rows]
    ratios = [row.ratio for row in rows]
    inside = [one.low <= math.log(v) <= one.high for one, v in zip(ends, ratios, strict=True)]
    (score,) = (one for one in class_scores([nim]) if (one.figure, one.part) == ("output_rate", ""))
    assert score.coverage == pytest.approx(100 * sum(inside) / len(inside))
    assert (score.rows, score.sources) == (len(rows), 1)


def test_parts_of_a_kind_of_model_have_all_of_its_rows():
    results = [compared(f"serving/{name}", CORRECTED) for name in ("nim", "aiconfigurator", "mtp")]
    scores = class_scores(results)
    assert {(one.figure, one.kind) for one in scores} == {
        *((figure, "dense") for figure in ("ttft", "tpot", "output_rate")),
        ("output_rate", "latent attention"),
    }
    rows = served_rows(results)
    for whole in (one for one in scores if not one.part):
        own = [row for row in rows if (row.figure, row.of_class.kind) == (whole.figure, whole.kind)]
        parts = {
            name: sum(
                one.rows
                for one in scores
                if (one.figure, one.kind) == (whole.figure, whole.kind) and one.part in names
            )
            for name, names in {
                "engine": ("NIM", "SGLang", "TensorRT-LLM", "vLLM"),
                "load": ("single stream", "latency-bound", "saturated"),
            }.items()
        }
        assert whole.rows == len(own)
        assert set(parts.values()) <= {0, len(own)}
        assert whole.coverage + whole.below + whole.above == pytest.approx(100)
