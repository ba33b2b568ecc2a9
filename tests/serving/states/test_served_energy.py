"""Energy of a generated token: power of what processors do, over the rate of tokens."""

import math
from dataclasses import replace

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.campaign.energy import OVERHEAD_SHARE, STEPPING_SHARE, WAITING_SHARE
from calculon.campaign.money import quote
from calculon.hardware.extension import Power
from calculon.serving.records.read_records import read_workload
from calculon.serving.states.served_points import DECODING_SHARE, AllReplicas, energy_words

SYSTEM = inputs.system("h100_80g_sxm")
LOAD = {"prompt": 1000, "output": 200}
TDP = 700.0


def _system(power):
    return replace(SYSTEM, ext=replace(SYSTEM.ext, power=power))


def _power(**figures):
    return Power(tdp=TDP, source="a data sheet", date="2023", **figures)


def test_saturated_processors_prefill_or_decode():
    found = calculon.serve("llama3-8B", 2, _system(_power()), **LOAD)
    prompts = found["prefill_share"]
    watts = STEPPING_SHARE * TDP * (prompts + DECODING_SHARE * (1 - prompts))
    whole = 2 * watts * (1 + OVERHEAD_SHARE)
    assert found["joules_per_token"] == pytest.approx(whole / found["output_rate"])


def test_processors_without_requests_wait():
    rate = 1e-4
    found = calculon.serve("llama3-8B", 1, _system(_power()), rate=rate, **LOAD)
    waiting = WAITING_SHARE * TDP * (1 + OVERHEAD_SHARE) / (rate * LOAD["output"])
    assert found["joules_per_token"] == pytest.approx(waiting, rel=1e-3)


def test_measured_power_of_nodes_counts_for_each_processor():
    plain, nodes = (
        calculon.serve("llama3-8B", 1, _system(_power(overhead=overhead)), **LOAD)
        for overhead in (0.0, 800.0)
    )
    more = nodes["joules_per_token"] - plain["joules_per_token"]
    assert more == pytest.approx(800 / SYSTEM.networks[0].size / plain["output_rate"])


def test_processors_that_only_prefill_count():
    together = {"num_procs": 2, "tensor_par": 1}
    apart = {"num_procs": 2, "prefill": {"num_procs": 1}}
    for deployment in (together, apart):
        found = calculon.serve("llama3-8B", deployment, _system(_power()), **LOAD)
        least = 2 * WAITING_SHARE * TDP * (1 + OVERHEAD_SHARE) / found["output_rate"]
        most = 2 * STEPPING_SHARE * TDP * (1 + OVERHEAD_SHARE) / found["output_rate"]
        assert least <= found["joules_per_token"] <= most


def test_without_a_power_there_is_no_energy():
    found = calculon.serve("llama3-8B", 1, _system(None), **LOAD)
    assert math.isnan(found["joules_per_token"])
    assert found.stats["joules_per_token"] is None
    assert energy_words(_system(None)) == ""
    assert found.to_dict()["power"] == ""


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
