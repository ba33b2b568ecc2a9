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

STEPPED = {"NVLink5": 2**21}
"""Links and bytes of a rank's part from which on the steps of rings take a least time.

On 4 and 8 GPUs of the B200, B300, GB200 and GB300 (NCCL 2.29), parts of 1 MiB take less than half the time of parts of
2 MiB, which hardly differ from parts of 4 MiB: 44, 104 and 107 us on 8 B200.
"""

RING_RANKS = 5
"""Largest group in which NCCL reduces on a ring, although switches could reduce.

Source: github.com/stas00/ml-engineering, network/README.md, "SHARP": nccl-tests on 4 to 8 B200 choose Ring for 4 and 5,
NVLS from 6 on.
"""

_PASSES = {"reduce_scatter": 1, "all_gather": 1, "all_reduce": 2}
"""Passes around the ring by operation.

The least step is fitted to the reduce-scatter and holds for each pass of the other operations.
"""

_OPERATIONS = {"alltoall": "all_to_all", "send_recv": "p2p"}
_PORTS = {"NVLink3": 300e9, "NVLink4": 450e9, "NVLink5": 900e9}
_MIN_ROWS = 8
_STEP = 1.4e-5
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
    least = 0.0
    for operation in sorted(MEASURABLE, key=lambda name: name != "reduce_scatter"):
        for source_gpu in SAME_LINKS.get(gpu, (gpu,)):
            measured = table[(table.gpu == source_gpu) & (table.op == operation)]
            if len(measured) >= _MIN_ROWS:
                break
        else:
            continue
        reduces = operation == "all_reduce" and system.reduces_in_network(0)
        known = _long_steps(measured, least, switched=reduces)
        law, seen = _fit_operation(measured, switched=reduces, known=known)
        least = least or law.get("least_step", 0.0)
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


def _long_steps(rows: pd.DataFrame, least: float, *, switched: bool) -> dict[str, float]:
    """Return what is known of the long ring steps of an operation, as in its law; empty without a least time.

    Args:
        rows: Measured rows of the operation.
        least: Least time of a step in seconds; 0 if it is still to be fitted.
        switched: Whether switches reduce in groups of more than :data:`RING_RANKS`.
    """
    name = str(rows.link.iloc[0]).split()[0]
    passes = _PASSES.get(rows.op.iloc[0], 0)
    if name not in STEPPED or not passes:
        return {}
    return {
        "long_step": rounded(passes * STEPPED[name] / _PORTS[name], 3),
        **({"least_step": rounded(passes * least, 4)} if least else {}),
        **({"ring_ranks": RING_RANKS} if switched else {}),
    }


def _fit_operation(
    rows: pd.DataFrame, *, switched: bool, known: Mapping[str, float] | None = None
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Return the law of an operation as in a system file, and the measured and predicted times of its rows.

    `known` has the constants of long ring steps, without their least time if that is to be fitted.
    """
    known = known or {}
    fits_step = "long_step" in known and "least_step" not in known
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
    if fits_step:
        start, low, high = [*start, _STEP], [*low, 1e-7], [*high, 1e-3]
    found = least_squares(
        lambda logs: np.log(
            _law(np.exp(logs), ranks, known).time(wire[seen], members[seen]) / seconds[seen]
        ),
        np.log(np.clip(start, np.multiply(low, 1.01), np.multiply(high, 0.99))),
        bounds=(np.log(low), np.log(high)),
        loss="huber",
        f_scale=HUBER,
    )
    law = _law(np.exp(found.x), ranks, known)
    stated = {
        "latency": rounded(law.latency, 4),
        **({"rank_latency": rounded(law.rank_latency, 4)} if several else {}),
        "rates": [
            [int(n), rounded(share, 4), rounded(ramp, 3)]
            for n, share, ramp in zip(ranks, law.rates.shares, law.rates.ramps, strict=True)
        ],
        **({"long_step": law.long_step} if known else {}),
        **({"least_step": rounded(law.least_step, 4)} if known else {}),
        **({"ring_ranks": law.ring_ranks} if law.ring_ranks else {}),
    }
    result = {
        "group": "collectives, " + rows.op,
        "measured": seconds,
        "predicted": law.time(wire, members),
    }
    return stated, pd.DataFrame({**result, "held_out": hidden})


def _law(values: Array, ranks: Array, known: Mapping[str, float]) -> CollectiveLaw:
    """Return the law at given values: two latencies, shares and ramps by group size, and the least step if unknown."""
    shares, ramps = values[2 : 2 + 2 * len(ranks)].reshape(2, -1)
    fitted = values[2 + 2 * len(ranks) :].tolist()
    least = known.get("least_step", fitted[0] if fitted else 0.0)
    return CollectiveLaw(
        latency=float(values[0]),
        rank_latency=float(values[1]),
        rates=GroupRates(*(tuple(column.tolist()) for column in (ranks, shares, ramps))),
        long_step=known.get("long_step", 0.0),
        least_step=least,
        ring_ranks=int(known.get("ring_ranks", 0)),
    )


def _document(link: Link) -> dict[str, Any]:
    """Return the values that a link states, as in a system file."""
    stated = {
        one.key: getattr(link, one.name) for one in spec_fields(Link) if one.name != "operations"
    }
    return {key: value for key, value in stated.items() if value not in (None, 0.0)}
