"""Published rows of served models: their ratios and classes, and how many of them ranges hold."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from calculon.declarations.named_values import CORRECTED
from calculon.declarations.serving_classes import KINDS, SINGLE
from calculon.estimate.served_errors import FIGURES, Evidence, published_rows
from calculon.validate.served_rows import _inside, class_scores, publisher, served_rows
from tests.shipped_studies import compared

NIM = ("docs.nvidia.com", "llama3-70B", "nim", "h100_80g_sxm", "")


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


def test_rows_that_a_fit_of_a_figure_used_are_no_evidence_for_it():
    result = compared("serving/aiconfigurator", CORRECTED)
    counted = Counter(row.figure for row in served_rows([result]))
    cells = [row.cells for row in result.own.comparisons[0].rows]
    fitted = sum(one["engine"] != "SGLang" and one["tensor_par"] == 4 for one in cells)
    assert 0 < fitted < len(cells)
    assert counted == {
        "tpot": len(cells) - fitted,
        "ttft": len(cells),
        "output_rate": len(cells) - fitted,
    }


def test_a_source_is_who_published_it():
    for source, name in (
        ("mlcommons/inference_results_v5.1:summary_results.json@965182b03376", "mlcommons"),
        ("docs.nvidia.com/nim/benchmarking", "docs.nvidia.com"),
        ("InferenceX:ai-dynamo/aiconfigurator:silicon_sample.csv@095f58a", "InferenceX"),
    ):
        assert publisher(source) == name


@pytest.mark.parametrize(
    ("share", "left_out"),
    [
        ("new_source", lambda row: row.source == "docs.nvidia.com"),
        ("new_campaign", lambda row: row.campaign == NIM),
    ],
)
def test_rows_are_judged_by_the_range_of_all_other_sources_and_campaigns(nim, share, left_out):
    """With rows of the catalog of studies that are not among the results."""
    rows = [row for row in served_rows([nim]) if row.figure == "output_rate"]
    assert all(map(left_out, rows))
    others = tuple(
        row for row in published_rows() if row.figure == "output_rate" and not left_out(row)
    )
    ends = [Evidence(others).ends(row.of_class) for row in rows]
    ratios = [row.ratio for row in rows]
    inside = [one.low <= math.log(v) <= one.high for one, v in zip(ends, ratios, strict=True)]
    (score,) = (one for one in class_scores([nim]) if (one.figure, one.part) == ("output_rate", ""))
    assert getattr(score, share) == pytest.approx(100 * sum(inside) / len(inside))
    assert (score.rows, score.campaigns, score.sources) == (len(rows), 1, 1)


def test_ranges_of_new_campaigns_hold_for_most_rows_of_every_kind_of_model():
    """A range for 90 % that contains all rows is as wrong as one that contains half of them; few campaigns widen it."""
    rows = published_rows()
    inside = np.array(_inside(rows, (), lambda row: row.campaign), float)
    for figure, kind in itertools.product(FIGURES, KINDS):
        own = [
            (row.figure, row.of_class.kind) == (figure, kind) and row.of_class.load != SINGLE
            for row in rows
        ]
        assert 0.85 <= inside[own].mean() <= 0.995, (figure, kind)


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
