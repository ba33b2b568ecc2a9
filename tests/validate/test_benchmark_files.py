"""Results of benchmarks: every tool's names and units, and damaged files."""

import json
import math

import pytest

from calculon.base.errors import SpecError
from calculon.validate.benchmark_files import read_benchmark

VLLM = {
    "completed": 100,
    "failed": 2,
    "request_rate": "inf",
    "max_concurrency": 16,
    "total_input_tokens": 100_000,
    "total_output_tokens": 20_000,
    "request_throughput": 4.0,
    "output_throughput": 800.0,
    "mean_ttft_ms": 250.0,
    "mean_tpot_ms": 20.0,
    "median_itl_ms": 15.0,
    "mean_e2el_ms": 4230.0,
}
SGLANG = {n: v for n, v in VLLM.items() if n != "mean_e2el_ms"} | {"mean_e2e_latency_ms": 4230.0}
TRTLLM = {
    "request_info": {"num_requests": 100},
    "dataset": {"avg_isl": 1000.0, "avg_osl": 200.0},
    "performance": {
        "avg_request_latency_ms": 4230.0,
        "request_throughput_req_s": 4.0,
        "system_output_throughput_tok_s": 800.0,
    },
    "streaming_metrics": {"avg_ttft_ms": 250.0, "avg_tpot_ms": 20.0},
}
PERF = {
    "time_to_first_token": {"unit": "ms", "avg": 250.0, "p99": 400.0},
    "inter_token_latency": {"unit": "ms", "avg": 20.0},
    "request_latency": {"unit": "s", "avg": 4.23},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 800.0},
    "request_throughput": {"unit": "requests/sec", "avg": 4.0},
    "input_sequence_length": {"avg": 1000.0},
    "output_sequence_length": {"avg": 200.0},
    "request_count": {"avg": 100.0},
}
FILES = {
    "vllm.json": json.dumps(VLLM, indent=2),
    "sglang.jsonl": f"{json.dumps(SGLANG | {'mean_ttft_ms': 9e9})}\n{json.dumps(SGLANG)}\n",
    "trtllm.json": json.dumps(TRTLLM),
    "genai.json": json.dumps(PERF),
    "aiperf.json": json.dumps({"records": PERF}),
}


def written(folder, name, text):
    file = folder / name
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize("name", FILES)
def test_tools_say_the_same(name, tmp_path):
    found = read_benchmark(written(tmp_path, name, FILES[name]))
    assert (found.ttft, found.tpot) == pytest.approx((0.25, 0.02))
    assert found.request_latency == pytest.approx(4.23)
    assert (found.output_rate, found.request_rate) == (800, 4)
    assert (found.prompt, found.output, found.completed) == (1000, 200, 100)
    assert found.concurrency == pytest.approx(4.0 * 4.23)


def test_what_only_some_tools_say(tmp_path):
    found = read_benchmark(written(tmp_path, "a.json", FILES["vllm.json"]))
    assert (found.itl, found.users, found.failed, found.lowest_ttft) == (0.015, 16, 2, None)
    times = [0.1 + 0.01 * n for n in range(100)]
    broken = [*times, 10**400, math.nan, None, -1]
    one = read_benchmark(written(tmp_path, "b.json", json.dumps(VLLM | {"ttfts": broken})))
    assert one.lowest_ttft == times[10]


def test_a_whole_request_follows_from_its_parts(tmp_path):
    short = {n: v for n, v in VLLM.items() if n != "mean_e2el_ms"}
    found = read_benchmark(written(tmp_path, "a.json", json.dumps(short)))
    assert found.request_latency == pytest.approx(found.ttft + found.tpot * (found.output - 1))


def test_files_that_are_no_results(tmp_path):
    rows = [
        ("", "expected a JSON object, found nothing"),
        ("text", "expected a JSON object, found another text"),
        ("[1]", "expected a JSON object"),
        ("{}", "expected the JSON result of vllm bench serve"),
        ("[" * 100_000, "expected a JSON object"),
        (json.dumps(VLLM | {"mean_ttft_ms": "x"}), "mean_ttft_ms: expected a number of at least 0"),
        (json.dumps(VLLM | {"mean_ttft_ms": -1}), "found -1"),
        (json.dumps(VLLM | {"mean_ttft_ms": True}), "found True"),
        (json.dumps(VLLM | {"output_throughput": 10**400}), "output_throughput: expected a number"),
        (json.dumps({"output_throughput": None}), "a measured time or rate"),
        (json.dumps({"performance": {}, "streaming_metrics": []}), "a measured time or rate"),
    ]
    for text, message in rows:
        with pytest.raises(SpecError, match="expected") as error:
            read_benchmark(written(tmp_path, "a.json", text))
        assert message in str(error.value), text
    with pytest.raises(SpecError, match="a readable file"):
        read_benchmark(str(tmp_path / "none.json"))
