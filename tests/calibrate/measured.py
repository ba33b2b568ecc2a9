"""Measured kernels that are shipped, the systems whose laws are fitted to them, and fits to one file of rows."""

import pandas as pd

from calculon.calibrate.fit import calibrate
from calculon.calibrate.fit_result import Measurements
from calculon.calibrate.readers import Row
from tests.helpers import ROOT
from tests.store import cache

GPUS = {
    "a100_80g_sxm": "A100-SXM4-80GB",
    "b200_sxm": "B200-SXM-180GB",
    "h100_80g_sxm": "H100-SXM5-80GB",
    "h200_141g_sxm": "H200-SXM5-141GB",
}
"""Systems, and the names that tables have for their processors."""


@cache
def table(name):
    """Return a table of the catalog."""
    return pd.read_csv(ROOT / "systems" / "measured" / f"{name}.csv")


def row(size=1.0, seconds=1.0, group="", message=0.0):
    """Return a row of a memory."""
    return Row("mem1", f"{size:g} bytes", size, seconds, group, message, "x.csv", "line 2")


def calibrated(raw, rows, stated=(), hold_out=0.0, **options):
    """Return a system fitted to the rows of a file, and to what the file says beside them."""
    measured = [Measurements("x.csv", rows, dict(stated))]
    return calibrate(raw, "test.json", measured, hold_out=hold_out, date="2026-01-02", **options)
