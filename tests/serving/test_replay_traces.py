"""Traces of requests: every format gives the same requests, and a wrong line is named."""

import json

import numpy as np
import pytest

from calculon.base.errors import SpecError
from calculon.serving.replay.traces import HASHED, read_trace

ARRIVALS, PROMPTS, OUTPUTS = (0.0, 0.5, 2.0), (600, 40, 1000), (5, 70, 12)
ROWS = [*zip(ARRIVALS, PROMPTS, OUTPUTS, strict=True)]


def lines(names, second=1.0):
    """Write requests as JSON lines with the names of a format."""
    rows = ((second * (7 + a), p, o) for a, p, o in ROWS)
    return "\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in rows)


def table(header, dates):
    """Write requests as CSV."""
    rows = (f"{date},{p},{o}" for date, (_, p, o) in zip(dates, ROWS, strict=True))
    return "\n".join((header, *rows)) + "\n"


DATES = [f"2023-11-16 18:15:{second}" for second in ("46.6805900", "47.1805900", "48.6805900")]
BENCH = {"start_times": [7.0, 7.5, 8.0, 9.0], "input_lens": [600, 40, 9, 1000]}
FILES = {
    "plain": lines(("arrival", "prompt", "output")),
    "mooncake": lines(("timestamp", "input_length", "output_length"), 1000),
    "array": "[" + lines(("arrival", "prompt", "output")).replace("\n", ",") + "]",
    "azure": table("TIMESTAMP,ContextTokens,GeneratedTokens", DATES),
    "burst": table("Timestamp,Request tokens,Response tokens", (3, 3.5, 5)),
    # a failed request without an output is left out
    "bench": json.dumps({**BENCH, "output_lens": [5, 70, 0, 12]}, indent=1),
    "bom": "\ufeff\n" + lines(("arrival", "prompt", "output")) + "\n\n",
}


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_requests(name, tmp_path):
    path = tmp_path / name
    path.write_text(FILES[name], encoding="utf-8")
    found = read_trace(str(path))
    np.testing.assert_allclose(found.arrival, ARRIVALS, atol=1e-6)
    assert found.prompt.tolist() == [*PROMPTS]
    assert found.output.tolist() == [*OUTPUTS]
    assert found.rate == pytest.approx(2 / ARRIVALS[-1])
    assert found.workload["prompt"] == round(np.mean(PROMPTS))


def test_requests_are_sorted_and_share_hashed_blocks(tmp_path):
    rows = [
        {"timestamp": 900, "input_length": 3 * HASHED, "output_length": 1, "hash_ids": [1, 2, 9]},
        {"timestamp": 0, "input_length": 2 * HASHED, "output_length": 2, "hash_ids": [1, 2]},
        {"timestamp": 950, "input_length": 2 * HASHED, "output_length": 0, "hash_ids": [1, 2]},
    ]
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    found = read_trace(str(path))
    assert found.arrival.tolist() == pytest.approx([0, 0.9, 0.95])
    # at least one token of a prompt is computed
    assert found.cached.tolist() == [0, 2 * HASHED, 2 * HASHED - 1]
    assert found.output.tolist() == [2, 1, 1]


def test_text_without_counts_has_a_token_per_four_characters(tmp_path):
    path = tmp_path / "sharegpt.json"
    turns = [{"from": "human", "value": "x" * 40}, {"from": "gpt", "value": "y" * 80}]
    path.write_text(json.dumps([{"conversations": turns}]))
    found = read_trace(str(path))
    assert (found.arrival, found.prompt.tolist(), found.output.tolist()) == (None, [10], [20])
    assert found.rate is None


PLAIN = '{"arrival": 1, "prompt": 2, "output": 3}\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an empty file"),
        (PLAIN + "\n{broken\n", "line 3"),
        (PLAIN + '{"arrival": 1, "prompt": -2, "output": 3}', "line 2, prompt"),
        (PLAIN + '{"arrival": 1, "prompt": 2.5, "output": 3}', "line 2, prompt"),
        (PLAIN + '{"arrival": 1, "prompt": true, "output": 3}', "line 2, prompt"),
        (PLAIN + '{"arrival": "soon", "prompt": 2, "output": 3}', "line 2, arrival"),
        (PLAIN + '{"arrival": 1, "prompt": 2}', "no such field"),
        (PLAIN + "[1, 2]", "line 2"),
        ('{"tokens": 3}', "fields tokens"),
        ("a,b\n1,2\n", "line 1"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,2,3\n1,x,3\n", "line 3, ContextTokens"),
        ('{"input_lens": [1, 2], "output_lens": [3]}', "equal lengths"),
        ('{"input_lens": [1, 2]}', "--save-detailed"),
        ('{"conversations": [{"value": "one"}]}', "line 1, conversations"),
        ("[]", "no request"),
    ],
)
def test_the_first_wrong_line_is_named(text, message, tmp_path):
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(SpecError, match="trace") as caught:
        read_trace(str(path))
    assert message in str(caught.value)
