"""Attention alone in a ring, as measured: its efficiency beside attention of one rank. Nothing is fitted to these rows.

The rows (``systems/measured/ring_attention.csv``) are the table of zhuzilin/ring-flash-attention: attention of
Llama-3.1-8B with 8,192 tokens on each of 8 ranks, over an eighth of the rate of FlashAttention-2 on the tokens of one.
Its ``benchmark/benchmark_varlen_kvpacked_func.py`` has the lengths of packed documents, in turns; those on all ranks
are eight times as long. The table of ``systems/calibration.md`` has what these functions give.
"""

import csv

import pytest

from calculon import inputs
from calculon.estimate.operators import block
from tests.helpers import CORRECTED_FLASH, ROOT, document
from tests.store import cache

RANKS, TOKENS = 8, 8192
PACKED = ((8192,), (256, 7392, 544), (4096, 4096), (3104, 3200, 1600, 160, 128))
SYSTEMS = {"A100": "a100_80g_sxm", "H800": "h800_80g_sxm"}
WAYS = {
    "ring, contiguous chunks": {"cp_balance": "contiguous"},
    "ring, zigzag chunks": {"cp_balance": "zigzag"},
    "ring, striped tokens": {"cp_balance": "striped"},
    "all-gather of K and V by heads (Llama 3)": {
        "cp_comm": "all_gather",
        "cp_balance": "contiguous",
    },
}
MODEL = document("models", "llama3-8B")
NEAR = 0.05
"""How near an efficiency has to come for a row to count as met."""


def rows():
    with (ROOT / "systems" / "measured" / "ring_attention.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@cache
def machine(name):
    """Return a system with enough memory for any sequence."""
    raw = document("systems", name)
    return inputs.system(raw | {"mem1": raw.get("mem1", {}) | {"GiB": 10_000}})


@cache
def seconds(name, ranks, percent, way=None):
    """Return forward and backward seconds of attention, what it waits for included."""
    execution = CORRECTED_FLASH | {
        "num_procs": ranks,
        "attn_kernel": "flash2",
        "coll_algo": "auto",
        "seq_length": ranks * TOKENS,
        "packed_percent": percent,
    }
    if ranks > 1:
        execution |= {"context_par": ranks} | WAYS[way]
    names = ("AttnBlock_Flash", "AttnBlock_KV_", "AttnBlock_Ring_")
    found = [0.0, 0.0]
    for one in block(MODEL, execution, machine(name)).operators:
        if one["name"].startswith(names):
            passes = (("forward",), ("activation_grad", "weight_grad"))
            for number, some in enumerate(passes):
                found[number] += sum(one["time"][which] for which in some)
                sent = (each for each in one["collectives"] if each["pass"] == some[0])
                found[number] += sum(each["exposed"] for each in sent)
    return found


def predicted(row):
    """Return the efficiency of a row."""
    system = SYSTEMS[row["gpu"][:4]]
    both = row["pass"] == "fwd+bwd"
    mean = TOKENS * TOKENS
    percents = [100]
    if row["api"] == "varlen":
        percents = [round(100 * sum(length**2 for length in one) / mean) for one in PACKED]

    def time(*split):
        each = [seconds(system, split[0], percent, *split[1:]) for percent in percents]
        return sum(forward + both * backward for forward, backward in each)

    return RANKS * time(1) / time(RANKS, row["algorithm"])


def errors(kind):
    """Return predicted less measured efficiency of the rows of an algorithm, by machine, documents and passes."""
    return {
        (row["gpu"][:4], row["api"], row["pass"]): predicted(row) - float(row["efficiency"])
        for row in rows()
        if kind in row["algorithm"]
    }


@pytest.mark.parametrize("kind", ["contiguous", "all-gather"])
def test_what_ranks_wait_for_is_as_measured(kind):
    assert max(map(abs, errors(kind).values())) < NEAR


def test_training_with_zigzag_is_as_measured():
    found = errors("zigzag")
    for gpu in SYSTEMS:
        assert abs(found[gpu, "batch", "fwd+bwd"]) < NEAR


def test_split_kernels_of_the_source_cost_more():
    """Where steps are even, kernels of the source are what is left: forward zigzag, packed zigzag, stripes."""
    missed = {
        (kind, *key): error
        for kind in ("zigzag", "striped")
        for key, error in errors(kind).items()
        if abs(error) >= NEAR
    }
    assert all(error > 0 for error in missed.values())
    assert len(missed) == 10
    whole = [error for key, error in missed.items() if key[0] == "zigzag" and key[2] == "batch"]
    assert max(whole) < 0.08


def test_the_page_has_these_efficiencies():
    page = (ROOT / "systems" / "calibration.md").read_text(encoding="utf-8")
    for row in rows():
        passes = {"fwd": "forward", "fwd+bwd": "both"}[row["pass"]]
        api = {"batch": "whole", "varlen": "packed"}[row["api"]]
        name = row["algorithm"].split(" of ")[0].removeprefix("ring, ").split()[0]
        both = f"{float(row['efficiency']):.2f} | {predicted(row):.2f}"
        line = f"| {row['gpu'][:4]} | {api} | {passes} | {name} | {both} |"
        assert line in page, line
