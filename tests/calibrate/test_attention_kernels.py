"""The fit of fused attention: it finds the constants of made-up kernels, and the shipped ones are its output."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from calculon import inputs
from calculon.calibrate.kernels.attention import GPUS, fit
from calculon.calibrate.kernels.attention_kernel import FEW_WAVES, OLDER, Kernels, older
from calculon.calibrate.kernels.clocks import CONTINUOUS
from calculon.calibrate.kernels.fitted_part import held_out
from calculon.hardware.kernels.laws import (
    AttentionKernel,
    AttentionPass,
    FusedAttention,
    Widths,
)
from tests.calibrate import measured
from tests.draws import some
from tests.helpers import document
from tests.store import cache

SYSTEMS = {gpu: name for name, gpu in measured.GPUS.items()}
TYPE = "bfloat16"
KERNEL = AttentionKernel(
    forward=AttentionPass(
        shares=Widths((64.0, 128.0), (64 / 0.5, 128 / 0.7)), lead=40.0, causal_lead=60.0
    ),
    backward=AttentionPass(
        shares=Widths((64.0, 128.0), (64 / 0.4, 128 / 0.55)), lead=90.0, causal_lead=150.0
    ),
    tail=0.8,
    start=8e-6,
    sustained=0.9,
)


@pytest.fixture(scope="module")
def tables():
    return {"attention": measured.table("attention")}


@pytest.fixture(scope="module")
def fitted(tables):
    """Return what fits the tables for a processor, once."""
    return cache(lambda gpu: fit(tables, gpu, inputs.system(SYSTEMS[gpu])))


def made_up(gpu, kernel, name):
    """Return rows of a kernel as it would be measured, of shapes over the whole range."""
    system = inputs.system(SYSTEMS[gpu])
    rows = pd.DataFrame(
        [
            {
                "gpu": gpu, "source": "made up", "kernel": name, "dtype": TYPE, "causal": causal, "batch": batch,
                "heads_q": heads, "heads_kv": 8, "seq_q": keys, "seq_kv": keys, "dim_qk": width, "dim_v": width,
                "pass": which, "time_s": 1.0,
            }
            for batch, heads in ((1, 8), (1, 32), (4, 32), (16, 64))
            for keys in (256, 512, 1024, 4096, 16384)
            for width in (64, 128)
            for causal in (0, 1)
            for which in ("fwd", "bwd")
        ]
    )  # fmt: skip
    law = FusedAttention(
        default="flash2", multiprocessors=GPUS[gpu].multiprocessors, kernels={"flash2": kernel}
    )
    kernels = Kernels.of(rows, {gpu: 1.0})
    return rows.assign(time_s=kernels.times(law, system, system.product_engine(TYPE)))


def test_the_fit_finds_the_constants_of_made_up_kernels():
    gpu = "H100-SXM5-80GB"
    table = made_up(gpu, KERNEL, "FA2")
    part = fit({"attention": table}, gpu, inputs.system(SYSTEMS[gpu]))
    constants = part.fragment["ext"]["kernels"]["attention"][TYPE]["kernels"]["flash2"]
    assert dict(constants["forward"]["shares"]) == pytest.approx({64: 0.5, 128: 0.7}, rel=0.02)
    assert dict(constants["backward"]["shares"]) == pytest.approx({64: 0.4, 128: 0.55}, rel=0.02)
    assert constants["tail"] == pytest.approx(0.8, rel=0.1)
    assert constants["start"] == pytest.approx(8e-6, rel=0.1)
    errors = np.log(part.rows.predicted / part.rows.measured)
    assert errors.abs().max() < 0.03
    kept = held_out(table[["heads_q", "heads_kv", "dim_qk", "dim_v", "seq_kv"]])
    np.testing.assert_array_equal(part.rows.held_out, kept)


FITTED = {"B200-SXM-180GB", *some(SYSTEMS, 0)}
"""The processors whose kernels are fitted again."""


def test_unseen_shapes_are_predicted_within_7_percent_in_the_median(fitted):
    for gpu in FITTED:
        rows = fitted(gpu).rows
        errors = np.log(rows.predicted / rows.measured).abs()
        assert errors[rows.held_out].median() < 0.07, gpu
        assert 0.15 < rows.held_out.mean() < 0.35, gpu
        assert errors.groupby(rows.group).median().max() < 0.07, gpu


def test_the_system_file_has_what_was_fitted(fitted):
    for gpu in FITTED:
        part, raw = fitted(gpu), document("systems", SYSTEMS[gpu])
        kept = raw["ext"]["kernels"]["attention"]
        kernels = part.fragment["ext"]["kernels"]["attention"]
        assert {name: kept[name] for name in kernels} == kernels, gpu
        assert part.sources.items() <= raw["about"]["sources"].items(), gpu
        assert set(part.assumed) <= set(raw["about"]["assumed"]), gpu


def test_narrow_values_and_8_bits_have_their_own_measured_rates(tables, fitted):
    """Heads of 192 with values of 128 (MLA) on the chip of a B200; rows of another source agree in 16 bits."""
    gpu, table = "B200-SXM-180GB", tables["attention"]
    system, part = inputs.system(SYSTEMS[gpu]), fitted(gpu)
    groups = part.rows.group
    assert {f"attention, cudnn in 8 bits, {one}" for one in ("forward", "backward")} <= {*groups}
    chips = table[(table.kernel == "cudnn") & (table.gpu == "GB200") & (table.dim_qk > table.dim_v)]
    for name, dtype in (("bfloat16", "bfloat16"), ("float8", "fp8")):
        rows = Kernels.of(chips[chips.dtype == dtype], {"GB200": 2500 / 2250})
        law = system.rate("attention", name).running("cudnn")
        kernel = replace(law.kernels["cudnn"], sustained=0.887)  # as in calls of this length
        law = replace(law, kernels={"cudnn": kernel})
        errors = rows.times(law, system, system.product_engine(name)) / rows.rows.time_s - 1
        for which, error in errors.groupby(rows.rows["pass"]):
            assert len(error) == 16
            assert error.abs().median() < 0.06, (name, which)
            assert error.std() < 0.07, (name, which)


def test_continuous_work_is_as_slow_as_the_longest_calls(tables):
    gpu, system = "B200-SXM-180GB", inputs.system("b200_sxm")
    table = tables["attention"]
    long = table[
        (table.source == CONTINUOUS[gpu]) & (table.seq_q == 131072) & (table.dim_qk == table.dim_v)
    ]
    law = system.rate("attention", TYPE)
    rows = Kernels.of(long, {gpu: 1.0})
    predicted = rows.times(law, system, system.product_engine(TYPE))
    assert len(long) == 2
    assert predicted / rows.rows.time_s.to_numpy() == pytest.approx([1, 1], abs=0.05)


@pytest.mark.parametrize("name", ["gb200_nvl72", "b300_sxm", "gb300_nvl72"])
def test_a_sibling_is_faster_by_the_median_over_equal_shapes(tables, name):
    system = inputs.system(name)
    gpu, table = system.provenance.processor, tables["attention"]
    ours = (table.gpu == gpu) & (table.kernel == "trtllm_mha") & (table["pass"] == "fwd")
    slower = table.assign(time_s=table.time_s.where(~ours, 1.25 * table.time_s))
    shares = []
    for one in (table, slower):
        kernels = fit({"attention": one}, gpu, system).fragment["ext"]["kernels"]["attention"]
        shares.append(kernels[TYPE]["kernels"]["cudnn"]["backward"]["shares"][0][1])
    assert shares[0] / shares[1] == pytest.approx(1.25, rel=0.01)
    stated = system.rate("attention", TYPE).kernels["cudnn"].backward.shares
    assert 128 / stated.cost(128.0) == pytest.approx(shares[0], rel=1e-3)


def test_older_kernels_are_slower_than_the_second_by_what_is_published():
    for name, widths in OLDER.items():
        slower = older(KERNEL, name)
        for width, (forward, backward) in widths.items():
            for one, other, times in (
                (KERNEL.forward, slower.forward, forward),
                (KERNEL.backward, slower.backward, backward),
            ):
                ratio = other.shares.cost(np.array(width)) / one.shares.cost(np.array(width))
                assert ratio == pytest.approx(times, rel=5e-3)
    assert FEW_WAVES > 1
