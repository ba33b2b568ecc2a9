"""The share of the peak that the state of linear attention reaches, from measured kernels."""

import csv

import numpy as np
import pytest

from calculon import inputs
from tests.helpers import ROOT

CHUNK = 64
SYSTEMS = {
    "H100-SXM5-80GB": "h100_80g_sxm",
    "H200-SXM5-141GB": "h200_141g_sxm",
    "B200-SXM-180GB": "b200_sxm",
    "B300-SXM-288GB": "b300_sxm",
    "GB200": "gb200_nvl72",
    "GB300": "gb300_nvl72",
}


def _share(row, peak):
    """Return FLOP of a forward pass (arXiv 2412.06464, section 3.3) over measured time and peak."""
    keys, values = int(row["dim_k"]), int(row["dim_v"])
    flops = 8 * keys * values + CHUNK * (5 * keys + 3 * values)
    return int(row["tokens"]) * int(row["heads_v"]) * flops / (float(row["time_s"]) * peak)


@pytest.mark.parametrize(("gpu", "name"), SYSTEMS.items())
def test_the_state_of_linear_attention_reaches_the_measured_share(gpu, name):
    system = inputs.system(name)
    peak = system.product_engine("bfloat16").peak
    text = (ROOT / "systems/measured/state.csv").read_text()
    rows = [row for row in csv.DictReader(text.splitlines()) if row["gpu"] == gpu]
    assert len(rows) >= 3
    share = np.median([_share(row, peak) for row in rows])
    assert system.ext.linear_efficiency == pytest.approx(share, rel=0.15)
