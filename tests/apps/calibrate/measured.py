"""Measured kernels that are shipped, and the systems of the catalog whose laws are fitted to them."""

import pandas as pd

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
