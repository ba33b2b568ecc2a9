"""What several tests share: the reference results, and how numbers are compared."""

import gzip
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import calculon
from calculon.errors import CalculonError

REFERENCE = Path(__file__).resolve().parent / "reference"
RELATIVE = 1e-9
"""How closely the published numbers are met."""

FLOORS = {"fw_offload_exposed_time": 1e-15, "bw_offload_exposed_time": 1e-15}
"""Differences of nearly equal times, clamped at 0: seconds that do not count."""

NAMES = tuple(calculon.estimate("megatron-126M", "3072_t4_p64_d12_mbs4_full", "a100_80e").stats) \
    if False else ()
