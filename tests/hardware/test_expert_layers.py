"""A layer of experts in training compared with measured fused layers of one rank.

The measured layers are of inference (``systems/measured/moe.csv``): permutation, both products, activation and the sum
of the rows of each token, without router. No law is fitted to them, so that all rows are held out.
"""

import csv
from functools import cache

import numpy as np
import pytest

from calculon import inputs
from calculon.editions import EDITIONS
from calculon.estimate.layer_list import operator_tables
from calculon.plan.plan import Plan
from tests.helpers import ROOT

GPUS = {"H100-SXM5-80GB": "h100_80g_sxm", "H200-SXM5-141GB": "h200_141g_sxm"}
LAYERS = ("Permute", "Experts1", "SwiGLU", "Experts2", "Unpermute")
LEAST_ROWS = 32
"""Rows of an expert below which the layers only read weights, as no training step does."""

MOST_RANKS = 4
"""Largest group of experts: the measured layers of a rank touch the tokens of all ranks, a training step its own."""


@cache
def _layers():
    """Return measured layers with even loads in 16 bits."""
    text = (ROOT / "systems/measured/moe.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    return [
        row
        for row in rows
        if row["gpu"] in GPUS
        and (row["dtype"], row["distribution"]) == ("bfloat16", "balanced")
        and int(row["tokens"]) % int(row["ep"]) == 0
        and int(row["ep"]) <= MOST_RANKS
        and int(row["topk"]) * int(row["ep"]) <= int(row["experts"])
        and int(row["tokens"]) * int(row["topk"]) >= LEAST_ROWS * int(row["experts"])
    ]


def _time(row):
    """Return the predicted seconds of the layer; one kernel multiplies the rows of all experts, as in the engines."""
    ranks = int(row["ep"])
    tokens, experts = int(row["tokens"]) // ranks, int(row["experts"]) // ranks
    model = inputs.model(
        {"hidden": int(row["hidden"]), "feedforward": 1024, "seq_size": tokens, "attn_heads": 8}
        | {"attn_size": 128, "num_blocks": 1, "activation": "swiglu", "norm": "rmsnorm"}
        | {"dropout": False, "vocab": 1024, "num_experts": experts}
        | {"experts_per_token": int(row["topk"])}
        | {"expert_feedforward": int(row["ffn"]) // int(row["tp"])}
    )
    system = inputs.system(GPUS[row["gpu"]])
    execution = inputs.execution(
        {"preset": "megatron-lm", "num_procs": 1, "tensor_par": 1, "pipeline_par": 1}
        | {"batch_size": 1, "datatype": "bfloat16", "launch_mode": "graph"},
        model=model,
        system=system,
    )
    table = next(operator_tables(model, system, Plan.of(execution), EDITIONS["corrected"]))
    times = table.cost.times.processing[0, :, 0]
    names = [f"MlpBlock_{name}" for name in LAYERS]
    return sum(
        time
        for layer, time in zip(table.layout.table.layers, times, strict=True)
        if layer.name in names
    )


@pytest.mark.parametrize("gpu", GPUS)
def test_layers_of_experts_take_about_as_long_as_measured_ones(gpu):
    """The median is at most a fifth too fast, and few layers take less than half of the measured time."""
    rows = [row for row in _layers() if row["gpu"] == gpu]
    ratios = np.array([_time(row) / float(row["time_s"]) for row in rows])
    for row, ratio in zip(rows, ratios, strict=True):
        print(*(row[name] for name in ("tokens", "hidden", "ffn", "topk", "experts", "ep")), ratio)
    assert len(rows) >= 5
    assert 0.8 < np.median(ratios) < 1.05
    assert np.log(ratios).std() < 0.35
