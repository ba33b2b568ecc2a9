"""``calculon dispatch``: a row for each dispatcher, as the laws say; and what is wrong with a question."""

import json

import numpy as np
import pytest

from calculon import inputs
from calculon.hardware.collectives.algorithm_times import AUTO, group_time
from calculon.hardware.collectives.dispatch import Routing, exchange_time, exchange_volume
from calculon.hardware.collectives.placement import place

MODEL, SYSTEM = "qwen3-235B-a22B", "h800_80g_sxm"


def found(output_of, *arguments):
    rows = json.loads(output_of("dispatch", *arguments, "--format", "json"))
    return {row["dispatcher"]: row for row in rows}


def test_a_row_is_what_the_laws_say(output_of):
    model, system = inputs.model(MODEL), inputs.system(SYSTEM)
    rows = found(output_of, MODEL, 32, SYSTEM, "-t", 1024, "-d", "float8", "-i", 150)
    assert list(rows) == ["allgather", "alltoall", "deepep", "hybridep"]
    row = np.array((1 + 4 / 128) * model.hidden)
    asked = 1024, row, Routing.of(model), place(system, 32)
    for name in ("alltoall", "deepep", "hybridep"):
        moved = exchange_volume(system, name, *asked, imbalance=1.5)
        assert rows[name]["seconds"] == exchange_time(system, name, *asked, imbalance=1.5)
        assert [rows[name][f"network_{i}_bytes"] for i in range(2)] == moved.tolist()
    whole = 32 * 1024 * row
    gathered = group_time(system, "all_gather", whole, place(system, 32), AUTO)
    assert rows["allgather"]["seconds"] == pytest.approx(float(gathered))
    assert rows["deepep"]["engine"] == 24 / 132


def test_limits_of_groups_save_copies_between_nodes(output_of):
    limits = ("--set", "router_groups=8", "--set", "router_group_topk=2")
    assert "to 8 of 128 experts in 2 of 8 groups" in output_of(
        "dispatch", MODEL, 32, SYSTEM, *limits
    )
    free, limited = (
        found(output_of, MODEL, 32, SYSTEM),
        found(output_of, MODEL, 32, SYSTEM, *limits),
    )
    assert limited["alltoall"] == free["alltoall"]
    assert limited["deepep"]["network_1_bytes"] < free["deepep"]["network_1_bytes"]


def test_one_rank_sends_nothing_and_a_torus_has_no_libraries(output_of):
    rows = found(output_of, MODEL, 1, SYSTEM)
    assert {row["seconds"] for row in rows.values()} == {0}
    assert list(found(output_of, "mixtral-8x7B", 8, "tpu_v5p")) == ["allgather", "alltoall"]


def test_what_is_wrong_is_said(refuses):
    rows = [
        (f"llama3-8B 8 {SYSTEM}", "num_experts: expected 1 or more, found 0"),
        (f"{MODEL} 8 {SYSTEM} -i 99", "expected at least 100"),
        (f"{MODEL} 0 {SYSTEM}", "RANKS"),
        (f"{MODEL} 8 {SYSTEM} -g 3", "--per-node"),
        (f"{MODEL} 8 {SYSTEM} -d bf16", "bfloat16"),
    ]
    refuses(("dispatch",), rows)
    uneven = f"128 experts of {MODEL} are not split evenly among 3 ranks"
    refuses(("dispatch",), [(f"{MODEL} 3 {SYSTEM}", uneven)], code=1)
