"""Figures of published models and machines, as formulas by hand and as the passes give them."""

from dataclasses import replace

import numpy as np
import pytest

from calculon import inputs
from calculon.campaign.money import quote
from calculon.hardware.extension import Extension
from calculon.hardware.serving import Serving
from calculon.serving.passes.expert_load import touched_experts
from calculon.serving.records.asked import read_workload
from calculon.serving.records.number_types import WEIGHT_TYPES
from calculon.serving.states.all_replicas import AllReplicas
from tests.serving.given import H100, LLAMA_70B, rows_of, timed

DEEPSEEK = inputs.model("deepseek-v3")


def decode_row(model, **given):
    """Return decode attention of a pass."""
    (row,) = [row for row in rows_of(model, **given) if row.name == "decode attention"]
    return row


def test_touched_experts_of_deepseek_v3():
    tokens = np.array([16.0, 128])
    touched = touched_experts(DEEPSEEK, np.ones(2), np.zeros(2), tokens, "balanced")
    assert np.round(touched).tolist() == [102, 252]
    rows = rows_of(DEEPSEEK, decoded=tokens, context=10)
    each = 3 * 7168 * 2048 * 2
    read = sum(row.times * row.weights for row in rows if row.name == "experts" and row.times == 58)
    expected = 58 * each * 256 * (1 - (1 - 8 / 256) ** tokens)
    np.testing.assert_allclose(read, expected, rtol=1e-12)


def test_bytes_of_a_weight_with_its_share_of_the_scales():
    found = {name: one.bytes for name, one in WEIGHT_TYPES.items()}
    assert round(found["int4_g128"], 4) == 0.5195
    assert found["mxfp4"] == 0.53125
    assert found["nvfp4"] == 0.5625
    assert found["float8_block"] == 1 + 4 / 16384
    assert (found["bfloat16"], found["float8"]) == (2, 1)


def test_floors_of_a_70b_model_are_longer_than_its_weights_are_read():
    """80 blocks of 4 products, attention, 4 small kernels and 2 reductions: 37 us each, with weights of 2.63 ms."""
    machine = replace(H100, ext=Extension(serving=Serving(), networks=H100.ext.networks))
    found = timed(LLAMA_70B, machine, decoded=1, context=1, tensor_par=8)
    blocks = [row for row in found.rows if row.stage == "block"]
    floors = sum(row.floor[0] for row in blocks)
    assert floors == pytest.approx(80 * (4 * 3 + 10 + 4 * 2) * 1e-6)
    reductions = sum(row.network[0] for row in blocks)
    wire = 8192 * 2 * 7 / (0.5 * H100.networks[0].bandwidth)  # in one shot
    assert reductions == pytest.approx(160 * (3.5e-6 + wire), rel=1e-9)
    assert round(1e3 * (floors + 160 * 3.5e-6), 1) == 3.0


def test_price_of_a_million_tokens():
    """An H800 at 2 dollars an hour and 1,850 tokens a second: 0.30 dollars."""
    load = read_workload(None, {"prompt": 1000, "output": 100})
    rate = np.full(1, 1850 / 100)
    one = np.ones(1)
    found = AllReplicas.of(load, rate, rate, one, one, quote(None, given=2.0), None)
    assert found.usd_per_mtoken[0] == pytest.approx(2 / 3600 / 1850 * 1e6)
    assert round(found.usd_per_mtoken[0], 2) == 0.30
    tokens = (load.prompt + load.output) / load.output
    assert found.usd_per_mtoken_blended[0] * tokens == pytest.approx(found.usd_per_mtoken[0])
