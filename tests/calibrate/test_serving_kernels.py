"""Constants of serving fitted to measured kernels: what the catalog states, and how far held-out rows are off."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from calculon import inputs
from calculon.calibrate.kernels.engine_kernels import engine_kernels
from calculon.calibrate.kernels.experts import (
    GROUP,
    dense_law,
    grouped_law,
    grouped_products,
    layer_times,
    layers_of,
    processor_of,
)
from calculon.calibrate.kernels.fitted_part import PROCESSORS, held_out
from calculon.calibrate.kernels.serving import FLOOR, fit
from calculon.hardware.kernels.laws import Processor, alignment
from calculon.hardware.serving import DecodeAttention, LatencyByRanks, SmallReduce
from tests.calibrate import measured
from tests.calibrate.measured import table
from tests.draws import some
from tests.helpers import document

TABLES = {
    name: table(name) for name in ("attention", "collectives", "launches", "moe", "moe_engines")
}
A100 = inputs.system("a100_80g_sxm")
GPUS = measured.GPUS | {"a100_40g_sxm": "A100-SXM4-80GB"}
GROUPS = "serving, attention of one new token", "serving, all-reduce up to 4 MiB"


def fitted(name):
    """Return the fit to the tables for a system, as the command makes it."""
    return fit(TABLES, GPUS[name], inputs.system(name))


@pytest.mark.parametrize("name", some(GPUS, 2))
def test_the_catalog_has_what_the_fit_gives(name):
    part = fitted(name)
    stated, found = document("systems", name)["ext"]["serving"], part.fragment["ext"]["serving"]
    assert stated.keys() == found.keys()
    for key, value in found["decode_attention"].items():
        assert stated["decode_attention"][key] == pytest.approx(value, rel=0.02), key
    assert stated["attention_floor"] == pytest.approx(found["attention_floor"], rel=0.02)
    for mine, fresh in zip(
        stated["small_reduce"]["latency"], found["small_reduce"]["latency"], strict=True
    ):
        assert mine == pytest.approx(fresh, rel=0.02)
    assert stated["routing_floor"] == pytest.approx(found["routing_floor"], rel=0.02)
    assert stated["grouped"].keys() == found["grouped"].keys()
    engines = found.get("expert_kernels", {})
    assert stated.get("expert_kernels", {}).keys() == engines.keys()
    for engine, kernels in engines.items():
        assert stated["expert_kernels"][engine]["grouped"].keys() == kernels["grouped"].keys()
    told = document("systems", name)["about"]["kernels"]
    off = 100 * abs(part.rows.predicted / part.rows.measured - 1)
    for group in (*GROUPS, GROUP, *(f"{GROUP} of {engine}" for engine in engines)):
        hidden = part.rows.held_out & (part.rows.group == group)
        if not hidden.any():
            assert group not in told
            continue
        assert told[group]["n"] == hidden.sum()
        assert told[group]["median"] == pytest.approx(off[hidden].median(), abs=0.3)


def test_rows_that_the_fit_did_not_see_are_as_far_off_as_promised():
    for name in GPUS:
        told = document("systems", name)["about"]["kernels"]
        assert all(told[group]["median"] <= 10 for group in GROUPS), name
        assert told[GROUP]["median"] <= 17, name
        of_engines = [told[group]["median"] for group in told if group.startswith(f"{GROUP} of ")]
        assert all(median <= 25 for median in of_engines), name


@pytest.mark.parametrize("name", measured.GPUS)
def test_the_law_of_training_predicts_products_of_few_rows(name):
    """At most 10 % in the mean over shapes of up to 256 rows that no fit saw: its start is the floor of serving."""
    products, sources = table("gemm"), table("sources")
    sure = products.source.isin(sources.source[sources.certainty == "high"])
    own = products[sure & (products.gpu == GPUS[name]) & (products.dtype == "bfloat16")]
    rows = own[(own.layout == "TN") & (own.m <= 256) & ~own.kernel.str.contains("grouped")]
    rows = rows[held_out(rows[["n", "k"]])]
    batch, m, n, k = (rows[size].to_numpy(float) for size in ("batch", "m", "n", "k"))
    system = inputs.system(name)
    law, peak = system.gemm("bfloat16"), system.product_engine("bfloat16").peak
    on = Processor(peak, PROCESSORS[GPUS[name]].bandwidth, 2)
    aligned = alignment([rows.n.to_numpy(), rows.k.to_numpy()], 2)
    time = replace(law, sustained=1.0).seconds(batch, m, n, k, aligned, on)
    assert len(rows) > 40
    assert abs(time / rows.time_s - 1).mean() <= 0.10
    assert 0 < law.start < rows.time_s.min()


@pytest.fixture(scope="module")
def tables():
    """Return tables whose times follow a law of decode attention and one of small reductions."""
    attention = DecodeAttention(efficiency=0.8, key_tile=64, tail=0.3, multiprocessors=132)
    reduce = SmallReduce(latency=LatencyByRanks((2, 4, 8), (2e-6, 3e-6, 5e-6)), efficiency=0.6)
    shapes = [
        (batch, 8 * heads, heads, keys)
        for batch in (1, 8, 64, 512)
        for heads in (1, 2, 8)
        for keys in (16, 128, 2048, 32768)
    ]
    rows = pd.DataFrame(shapes, columns=["batch", "heads_q", "heads_kv", "seq_kv"]).assign(
        gpu="H100-SXM5-80GB", kernel="made", source="made", dim_qk=128, dim_v=128
    )
    rows["pass"] = "decode"
    batch, heads, kv_heads, keys = (rows[one].to_numpy(float) for one in rows.columns[:4])
    beside = batch * heads * 512
    rows["time_s"] = 8e-6 + attention.reading(batch, keys, kv_heads, 512, beside, 3350e9)
    sizes = [(ranks, 2.0**power) for ranks in (2, 4, 8) for power in range(9, 23)]
    collectives = pd.DataFrame(sizes, columns=["num_gpus", "bytes"]).assign(
        gpu="H100-SXM5-80GB", op="all_reduce", nodes=1, source="made"
    )
    collectives["library"] = "SGLang_CustomAllReduce_graph"
    size, ranks = (collectives[one].to_numpy(float) for one in ("bytes", "num_gpus"))
    collectives["time_s"] = reduce.time(size, ranks, 450e9)
    launches = pd.DataFrame({"gpu": ["H100-SXM5-80GB"], "what": [FLOOR], "time_s": [1.5e-6]})
    return {"attention": rows, "collectives": collectives, "launches": launches}


def test_constants_come_back_from_their_own_times(tables):
    found = fit(tables, "H100-SXM5-80GB", inputs.system("h100_80g_sxm")).fragment["ext"]["serving"]
    assert found["attention_floor"] == pytest.approx(8e-6, rel=0.01)
    law = {"efficiency": 0.8, "key_tile": 64, "tail": 0.3, "multiprocessors": 132}
    assert found["decode_attention"] == pytest.approx(law, rel=0.01)
    assert found["vector_floor"] == 1.5e-6
    assert found["small_reduce"]["efficiency"] == pytest.approx(0.6, rel=0.01)
    latency = np.array(found["small_reduce"]["latency"])
    assert latency == pytest.approx(np.array([[2, 2e-6], [4, 3e-6], [8, 5e-6]]), rel=0.01)


def test_held_out_times_change_nothing(tables):
    system = inputs.system("h100_80g_sxm")
    part = fit(tables, "H100-SXM5-80GB", system)
    rows = tables["attention"].copy()
    hidden = held_out(rows[["heads_q", "heads_kv", "dim_qk", "dim_v", "seq_kv"]])
    assert 0 < hidden.sum() < len(rows)
    rows.loc[hidden, "time_s"] *= 2
    again = fit({**tables, "attention": rows}, "H100-SXM5-80GB", system)
    assert again.fragment == part.fragment


def test_a_message_that_took_longer_than_larger_ones_does_not_count(tables):
    system, rows = inputs.system("h100_80g_sxm"), tables["collectives"].copy()
    rows.loc[(rows.bytes == 1024) & (rows.num_gpus == 8), "time_s"] = 4e-5
    part = fit({"collectives": rows}, "H100-SXM5-80GB", system)
    assert len(part.rows) == len(rows) - 1
    assert "1 that took longer" in part.sources["ext.serving.small_reduce.*"]
    latency = dict(part.fragment["ext"]["serving"]["small_reduce"]["latency"])
    assert latency[8] == pytest.approx(5e-6, rel=0.01)


def test_layers_of_experts_give_their_law_back():
    rows = TABLES["moe"][TABLES["moe"].gpu == "A100-SXM4-80GB"]
    law = grouped_law(0.6, 40.0, 400.0, 0.7, A100.rate("product", "bfloat16"))
    serving = replace(A100.ext.serving, routing_floor=6e-6, grouped={"bfloat16": law})
    own = replace(A100, ext=replace(A100.ext, serving=serving))
    made = rows.assign(time_s=layer_times(rows, own))
    found, _, _, fitted_rows = grouped_products(made, "A100-SXM4-80GB", A100)
    assert found["routing_floor"] == pytest.approx(6e-6, rel=0.02)
    assert found["grouped"]["bfloat16"]["memory_efficiency"] == pytest.approx(0.7, rel=0.02)
    np.testing.assert_allclose(fitted_rows.predicted, fitted_rows.measured, rtol=0.03)
    assert grouped_products(rows, "L40S", A100) is None


def test_layers_of_an_engine_give_its_law_back():
    """Layers made with a law are predicted by the fit to them, also layers that the fit did not see."""
    table = TABLES["moe_engines"]
    rows = table[(table.gpu == "B200-SXM-180GB") & (table.kernel == "moe_torch_flow_cutlass")]
    rows = rows[rows.dtype == "bfloat16"].reset_index(drop=True)
    system = inputs.system("b200_sxm")
    law = replace(grouped_law(0.5, 20.0, 300.0, 0.7, dense_law(system, "bfloat16")), start=6e-6)
    layers, on = layers_of(rows, system), processor_of(system, "bfloat16")
    times = layers.times(law, system.ext.serving.routing_floor, np.arange(len(rows)), on)
    stated, sources, _, found = engine_kernels(rows.assign(time_s=times), "B200-SXM-180GB", system)
    assert stated["expert_kernels"].keys() == {"tensorrt-llm"}
    assert list(sources) == ["ext.serving.expert_kernels.tensorrt-llm.*"]
    np.testing.assert_allclose(found.predicted, found.measured, rtol=0.05)
    assert engine_kernels(rows, "L40S", system) is None
