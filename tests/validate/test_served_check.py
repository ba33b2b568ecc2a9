"""A benchmark next to its prediction: figures, parts of a request, and evidence for ranges."""

import json
import math
from dataclasses import replace

import pytest

import calculon
from calculon.base.errors import SpecError
from calculon.estimate.served_errors import FIGURES
from calculon.estimate.user_evidence import using_evidence
from calculon.validate.served_check import check_benchmark, served_evidence
from tests.store import cache


@cache
def served():
    load = {"prompt": 1000, "output": 200, "users": 16}
    return calculon.serve("llama3-8B", "tp=1", "h100", changes={"engine": "vllm"}, **load)


def measured_as(factors, **more):
    """Return a result of vLLM whose figures are the predicted ones times `factors`."""
    f, load = served(), served().workload
    found = {
        "mean_ttft_ms": 1e3 * f["ttft"],
        "mean_tpot_ms": 1e3 * f["tpot"],
        "mean_e2el_ms": 1e3 * f["request_latency"],
        "median_itl_ms": 1e3 * f["decode_time"],
        "output_throughput": f["output_rate"],
        "request_throughput": f["request_rate"],
        "completed": 160,
        "total_input_tokens": 160 * load.prompt,
        "total_output_tokens": 160 * load.output,
        "max_concurrency": load.users,
    }
    return {n: v * factors.get(n, 1) for n, v in found.items()} | more


def files(folder, factors, **more):
    (folder / "prediction.json").write_text(json.dumps(served().to_dict()))
    file = folder / "bench.json"
    file.write_text(json.dumps(measured_as(factors, **more)))
    return str(file)


def test_an_exact_measurement_differs_nowhere(tmp_path):
    found = check_benchmark(files(tmp_path, {}))
    assert [one.name for one in found.figures] == [
        *("ttft", "tpot", "request_latency", "output_rate", "request_rate")
    ]
    for one in found.figures:
        assert one.ratio == pytest.approx(1)
        assert one.inside in (True, None)
    assert all(abs(one.difference) < 1e-9 for one in found.parts)
    assert found.notes == ()


def test_parts_add_up_to_the_difference(tmp_path):
    factors = {"mean_ttft_ms": 3.0, "mean_tpot_ms": 1.5, "median_itl_ms": 1.2}
    for more in ({}, {"ttfts": [served()["ttft"]] * 100}, {"median_itl_ms": None}):
        found = check_benchmark(files(tmp_path, factors, **more))
        parts = {one.name: one for one in found.parts}
        tokens = served().workload.output - 1
        both = 2.0 * served()["ttft"] + 0.5 * tokens * served()["tpot"]
        assert sum(one.difference for one in found.parts) == pytest.approx(both)
        if not more:
            passes = parts["decode passes"].difference
            assert passes == pytest.approx(0.2 * tokens * served()["decode_time"])
        if "ttfts" in more:
            waits = parts["waiting before prefill"]
            assert waits.measured == pytest.approx(2.0 * served()["ttft"])
            assert waits.predicted == served()["queue_time"]


def test_the_largest_part_is_named(tmp_path):
    slow_start = check_benchmark(files(tmp_path, {"mean_ttft_ms": 1000.0}))
    assert slow_start.largest.name == "time to first token"
    slow_pass = check_benchmark(files(tmp_path, {"mean_tpot_ms": 2.0, "median_itl_ms": 3.0}))
    assert slow_pass.largest.name == "decode passes"


def test_prompts_in_most_passes_hide_the_decode_passes(tmp_path):
    """The median time between tokens is then no decode pass."""
    document = served().to_dict()
    document["batch"] = served().workload.output
    file = files(tmp_path, {})
    (tmp_path / "prediction.json").write_text(json.dumps(document))
    assert [one.name for one in check_benchmark(file).parts][-1] == "all further tokens"


def test_other_requests_are_noted(tmp_path):
    rows = [
        (
            {"total_input_tokens": 0.5},
            {},
            "Requests have 500 prompt tokens, the prediction is for 1,000",
        ),
        ({"total_output_tokens": 2}, {}, "Requests have 400 generated tokens"),
        ({}, {"failed": 3}, "3 requests failed"),
        ({}, {"max_concurrency": 8}, "8 concurrent requests, the prediction is for 16 users"),
        ({"request_throughput": 0.5}, {}, "On average 8 of 16 users had a request"),
    ]
    for factors, more, message in rows:
        (note,) = check_benchmark(files(tmp_path, factors, **more)).notes
        assert note.startswith(message)


def test_measurements_move_the_ranges_of_their_class(tmp_path):
    before = served().ranges
    with using_evidence(served_evidence(files(tmp_path, dict.fromkeys(_MS, 1.2)))):
        after, other = served().ranges, replace_class().ranges
    ends = [(one["tpot"].low, one["tpot"].high) for one in (before, after)]
    middles = [math.sqrt(low * high) for low, high in ends]
    # Towards the measurement of 1.2, and narrower.
    measured = math.log(1.2 * served()["tpot"])
    assert abs(math.log(middles[1]) - measured) < abs(math.log(middles[0]) - measured)
    assert ends[1][1] / ends[1][0] < ends[0][1] / ends[0][0]
    moved = abs(math.log(after["tpot"].high / before["tpot"].high))
    less = abs(math.log(other["tpot"].high / replace_class().ranges["tpot"].high))
    assert less < moved
    assert served().ranges == before


_MS = ("mean_ttft_ms", "mean_tpot_ms")


def test_more_measurements_narrow_a_range_further(tmp_path):
    file = files(tmp_path, {})
    with using_evidence(served_evidence(file)):
        one = served().ranges["tpot"]
    with using_evidence(served_evidence(*[file] * 4)):
        four = served().ranges["tpot"]
    assert four.ratio_high / four.ratio_low < one.ratio_high / one.ratio_low


def replace_class():
    """Return the same deployment under another engine, which shares less with the measurement."""
    return replace(served(), deployment=replace(served().deployment, engine="sglang"))


def test_evidence_is_relative_to_the_prediction_of_today(tmp_path):
    file = files(tmp_path, {"mean_tpot_ms": 1.5})
    path = tmp_path / "prediction.json"
    document = json.loads(path.read_text())
    document["figures"]["tpot"] *= 2  # an earlier release predicted something else
    path.write_text(json.dumps(document))
    found = {one.figure: one.ratio for one in served_evidence(file).figures}
    assert found.keys() == set(FIGURES)
    assert found["tpot"] == pytest.approx(1.5)
    document["model"] = "no such model"
    path.write_text(json.dumps(document))
    found = {one.figure: one.ratio for one in served_evidence(file).figures}
    assert found["tpot"] == pytest.approx(1.5 / 2)


def test_predictions_that_are_none(tmp_path):
    file = files(tmp_path, {})
    (tmp_path / "prediction.json").write_text("{}")
    with pytest.raises(SpecError, match="a prediction of calculon serve"):
        check_benchmark(file)
    (tmp_path / "prediction.json").unlink()
    with pytest.raises(SpecError, match=r"prediction\.json"):
        check_benchmark(file)
