"""Systems beside those that they come from: a better machine is never slower, and products are as fast as measured."""

import csv

import numpy as np
import pytest

from calculon import estimate, inputs
from calculon.hardware.kernels.laws import Gemm, Processor
from tests.draws import some
from tests.helpers import ROOT
from tests.store import cache

SLOWER = (
    ("a100_40g_pcie", "a100_80g_pcie"),
    ("a100_80g_ethernet", "a100_80g_pcie"),
    ("a100_80g_pcie", "a100_80g_sxm"),
    ("a800_80g_sxm", "a100_80g_sxm"),
    ("h20_96g_sxm", "h100_80g_sxm"),
    ("h100_80g_pcie", "h100_94g_nvl"),
    ("h100_94g_nvl", "h100_80g_sxm"),
    ("h800_80g_sxm", "h100_80g_sxm"),
    ("h100_80g_sxm", "h200_141g_sxm"),
    ("h200_141g_sxm", "b200_sxm"),
    ("gh200_96g", "gh200_144g"),
    ("b200_sxm", "gb200_nvl72"),
    ("b200_sxm", "b300_sxm"),
    ("gb200_nvl72", "gb300_nvl72"),
    ("l4", "a10g"),
    ("a10g", "rtx4090"),
    ("l40s", "rtx_pro_6000"),
    ("rtx4090", "rtx5090"),
    ("rtx_pro_6000", "h100_80g_pcie"),
    ("aws_p4d", "azure_nd_a100_v4"),
    ("gcp_a2_ultra", "aws_p4de"),
    ("gcp_a3_high", "gcp_a3_mega"),
    ("gcp_a3_mega", "aws_p5"),
    ("aws_p5", "aws_p5en"),
    ("aws_g6", "aws_g6e"),
)
"""Each beside one that has nothing less."""

LITTLE = 0.999
"""Laws of two processors are fitted to two machines, and the B300 has a little less in 32 bits than the B200."""

PLANS = {
    "sharded": {"num_procs": 8, "data_par": 8, "optimizer_sharding": True, "zero_stage": "fsdp"},
    "tensor": {"num_procs": 8, "tensor_par": 8},
    "several nodes": {"num_procs": 16, "tensor_par": 8, "data_par": 2},
}


@cache
def seconds(system, name):
    """Return the time of a step of Llama 3.2 1B, in the way of torchtitan."""
    networks, plan = inputs.system(system).networks, PLANS[name]
    first = next(i for i, one in enumerate(networks) if one.size >= min(8, plan["num_procs"]))
    degrees = {"tensor_par": 1, "pipeline_par": 1, "data_par": 1} | plan
    of_axes = {f"{axis}_net": first for axis in ("tensor_par", "pipeline_par", "data_par")}
    if plan["num_procs"] > 8:
        of_axes["data_par_net"] = len(networks) - 1
    execution = {"batch_size": 64, "microbatch_size": 1, "datatype": "bfloat16"}
    execution |= degrees | of_axes
    return estimate("llama3.2-1B", execution, system, preset="torchtitan").stats["total_time"]


def reaches(system, name):
    """Return whether a machine has a network for all processors of a plan."""
    return inputs.system(system).networks[-1].size >= PLANS[name]["num_procs"]


def test_a_better_machine_is_not_slower():
    wrong = [
        f"{plan}: {slower} is faster than {faster}"
        for slower, faster in some(SLOWER, 3)
        for plan in PLANS
        if reaches(slower, plan) and reaches(faster, plan)
        if seconds(slower, plan) < LITTLE * seconds(faster, plan)
    ]
    assert not wrong


CARDS = {
    "A100-PCIe-40GB": "a100_40g_pcie",
    "A10G": "a10g",
    "H100-PCIe-80GB": "h100_80g_pcie",
    "H20-SXM-96GB": "h20_96g_sxm",
    "L4": "l4",
    "RTX 4090": "rtx4090",
    "RTX PRO 6000 Server": "rtx_pro_6000",
}
"""Systems by the name of their processor in ``systems/measured/squares.csv``."""

with (ROOT / "systems" / "measured" / "squares.csv").open(newline="") as file:
    SQUARES = list(csv.DictReader(file))


def shares(gpu, system):
    """Return measured rates of large square products in 16 bits beside those that the law of a system says."""
    rows = [row for row in SQUARES if row["gpu"] == gpu and row["dtype"] != "float32"]
    sizes, rates = np.array(
        [(float(row["size"]), float(row["tflops"])) for row in rows if int(row["size"]) >= 4096]
    ).T
    law = system.rate("product", "bfloat16")
    assert isinstance(law, Gemm)
    on = Processor(system.matrix["bfloat16"].peak, system.mem1.bandwidth, 2)
    one = np.ones_like(sizes)
    return rates * 1e12 / (2 * sizes**3 / law.seconds(one, sizes, sizes, sizes, 1024 * one, on))


def test_large_products_are_as_fast_as_measured():
    found = {gpu: np.median(shares(gpu, inputs.system(name))) for gpu, name in CARDS.items()}
    assert found == pytest.approx(dict.fromkeys(CARDS, 1), abs=0.02)


def test_products_stay_below_the_peak_where_more_was_measured():
    system = inputs.system("rtx5090")
    assert np.median(shares("RTX 5090", system)) > 1.1
    law = system.rate("product", "bfloat16")
    assert law.max_efficiency * law.sustained == 1


def test_every_measured_card_is_in_the_catalog():
    assert {row["gpu"] for row in SQUARES} == {*CARDS, "RTX 5090"}
