"""Laws of intra-node collectives, fitted to nccl-tests tables.

Only NCCL measurements count. Kernels of inference frameworks and times with microsecond resolution are left out, except
for transfers between two processors, which have no other source.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from calculon.base.units import Array
from calculon.calibrate.kernels.fitted_part import FittedPart, held_out
from calculon.calibrate.networks import HUBER
from calculon.calibrate.steps import rounded
from calculon.declarations.fields import spec_fields
from calculon.hardware.collectives.algorithm_times import bus_factor
from calculon.hardware.extension import Link
from calculon.hardware.stated_networks import MEASURABLE, CollectiveLaw, GroupRates
from calculon.hardware.system import System

COPY_SHARE = 0.845
"""Largest share of a port's bandwidth that any transfer reaches.

Source: github.com/NVIDIA/nccl/issues/1264: copies from an H100 to another, one direction, 380 of 450 GB/s.
"""

SAME_LINKS = {
    "A100-SXM4-40GB": ("A100-SXM4-80GB",),
    "H200-SXM5-141GB": ("H200-SXM5-141GB", "H100-SXM5-80GB"),
    "B200-SXM-180GB": ("B200-SXM-180GB", "GB200", "H100-SXM5-80GB"),
    "B300-SXM-288GB": ("B300-SXM-288GB", "B200-SXM-180GB", "GB200", "H100-SXM5-80GB"),
    **dict.fromkeys(("GB200", "GB300"), ("B200-SXM-180GB", "GB200", "H100-SXM5-80GB")),
}
"""GPUs whose tables are used for another GPU, in order of preference: the first with rows of an operation counts.

Tables of the GB200 and GB300 end at 4 ranks.
"""

_OPERATIONS = {"alltoall": "all_to_all", "send_recv": "p2p"}
_PORTS = {"NVLink3": 300e9, "NVLink4": 450e9, "NVLink5": 900e9}
_MIN_ROWS = 8
_START = (1e-5, 1e-6, 0.7, 3e-6)
"""Start of the search: latency, latency per rank, and share and ramp of each group size."""


def fit(tables: Mapping[str, pd.DataFrame], gpu: str, system: System) -> FittedPart | None:
    """Fit the collectives of a system's first network; None if no table covers its links.

    Args:
        tables: Measured kernels by table name; only ``collectives`` is used.
        gpu: Name of the processor in the tables.
        system: System whose networks are kept; only the operations of the first network are replaced.
    """
    if "collectives" not in tables:
        return None
    table = _of_one_node(tables["collectives"])
    laws: dict[str, Any] = {}
    sources: dict[str, str] = {}
    assumed: list[str] = []
    rows = []
    for operation in MEASURABLE:
        for source_gpu in SAME_LINKS.get(gpu, (gpu,)):
            measured = table[(table.gpu == source_gpu) & (table.op == operation)]
            if len(measured) >= _MIN_ROWS:
                break
        else:
            continue
        reduces = operation == "all_reduce" and system.reduces_in_network(0)
        law, seen = _fit_operation(measured, switched=reduces)
        laws[operation] = law
        path = f"ext.networks[0].operations.{operation}.*"
        keys = ", ".join(sorted(measured.source.unique()))
        sources[path] = f"fitted to systems/measured/collectives.csv: {keys}"
        if source_gpu != gpu:
            assumed.append(f"{path}: port shares and latencies measured on {source_gpu}")
        rows.append(seen)
    if not laws:
        return None
    links = [_document(link) for link in system.ext.networks] or [{}]
    links[0]["operations"] = laws
    return FittedPart({"ext": {"networks": links}}, sources, assumed, pd.concat(rows))


def _of_one_node(table: pd.DataFrame) -> pd.DataFrame:
    """Return intra-node NCCL rows with our names of operations and a column `wire`: seconds at full port bandwidth."""
    by_tests = table.library.str.match("NCCL|nccl-tests") | (table.op == "send_recv")
    some = table[by_tests & (table.nodes == 1)].copy()
    some["op"] = some.op.replace(_OPERATIONS)
    port = some.link.str.extract(r"^(NVLink\d)")[0].map(_PORTS)
    factors = [bus_factor(op, n) for op, n in zip(some.op, some.num_gpus, strict=True)]
    some["wire"] = np.array(factors) * some.bytes / port
    return some[port.notna()]


def _fit_operation(rows: pd.DataFrame, *, switched: bool) -> tuple[dict[str, Any], pd.DataFrame]:
    """Return the law of an operation as in a system file, and the measured and predicted times of its rows."""
    hidden = held_out(
        pd.DataFrame({"op": rows.op, "bytes": np.log2(rows.bytes).round().astype(int)})
    )
    ranks = np.array(sorted(rows.num_gpus.unique()), dtype=float)
    wire, members, seconds = (rows[name].to_numpy(float) for name in ("wire", "num_gpus", "time_s"))
    seen = ~hidden
    # In-network reduction: the bus bandwidth may exceed the link bandwidth by up to 2 (n - 1) / (n + 1).
    bus = 2 * (ranks - 1) / (ranks + 1) if switched else np.ones_like(ranks)
    most = COPY_SHARE * np.maximum(1.0, bus)
    several = len(ranks) > 1
    start = [*_START[:2], *([_START[2]] * len(ranks)), *([_START[3]] * len(ranks))]
    # With a single group size the latency per rank cannot be separated from the latency: pin it near 0.
    high = [1e-3, 1e-4 if several else 1e-12, *most, *([1e-3] * len(ranks))]
    low = [1e-7, 1e-13, *([0.1] * len(ranks)), *([1e-10] * len(ranks))]
    found = least_squares(
        lambda logs: np.log(
            _law(np.exp(logs), ranks).time(wire[seen], members[seen]) / seconds[seen]
        ),
        np.log(np.clip(start, np.multiply(low, 1.01), np.multiply(high, 0.99))),
        bounds=(np.log(low), np.log(high)),
        loss="huber",
        f_scale=HUBER,
    )
    law = _law(np.exp(found.x), ranks)
    stated = {
        "latency": rounded(law.latency, 4),
        **({"rank_latency": rounded(law.rank_latency, 4)} if several else {}),
        "rates": [
            [int(n), rounded(share, 4), rounded(ramp, 3)]
            for n, share, ramp in zip(ranks, law.rates.shares, law.rates.ramps, strict=True)
        ],
    }
    result = {
        "group": "collectives, " + rows.op,
        "measured": seconds,
        "predicted": law.time(wire, members),
    }
    return stated, pd.DataFrame({**result, "held_out": hidden})


def _law(values: Array, ranks: Array) -> CollectiveLaw:
    """Return the law at given values: two latencies, then the shares and ramps by group size."""
    shares, ramps = values[2:].reshape(2, -1)
    return CollectiveLaw(
        latency=float(values[0]),
        rank_latency=float(values[1]),
        rates=GroupRates(*(tuple(column.tolist()) for column in (ranks, shares, ramps))),
    )


def _document(link: Link) -> dict[str, Any]:
    """Return the values that a link states, as in a system file."""
    stated = {
        one.key: getattr(link, one.name) for one in spec_fields(Link) if one.name != "operations"
    }
    return {key: value for key, value in stated.items() if value not in (None, 0.0)}
