"""Operators in words: their arithmetic, their bound, and the model of their rate."""

from collections.abc import Callable, Mapping
from typing import Any

from calculon.estimate.operator_passes import OperatorPass
from calculon.hardware.kernels.kernel import EngineRate, Rate
from calculon.hardware.kernels.laws import FusedAttention, Gemm
from calculon.hardware.kernels.stated_rates import (
    ExpertCalls,
    MeasuredTable,
    ShareOfPeak,
    StatedCurve,
    Stream,
)

_OVER = {"flops": "FLOP of a pass", "keys": "keys per query", "bytes": "bytes of a pass"}

_RATES: Mapping[type, Callable[[Any], str]] = {
    EngineRate: lambda rate: "the efficiency curve of the engine by FLOP of a pass",
    StatedCurve: lambda rate: f"the efficiency curve of its kind of kernel by {_OVER[rate.over]}",
    MeasuredTable: lambda rate: (
        f"a table of {len(rate.rates):,} measured kernels, interpolated between them"
    ),
    ShareOfPeak: lambda rate: f"{100 * rate.share:g} % of the peak for any size",
    Gemm: lambda rate: (
        "a model of tiles and waves on the multiprocessors, with alignment and depth (K), fitted "
        "to measured products"
    ),
    FusedAttention: lambda rate: (
        f"the law of fused attention for the kernel {rate.default}: head width, keys and "
        "tiles of queries, with constants fitted to measured kernels"
    ),
    Stream: lambda rate: (
        f"bandwidth alone: {100 * rate.efficiency:g} % of the memory bandwidth, after a start-up of "
        f"{rate.start * 1e6:.1f} us"
    ),
    ExpertCalls: lambda rate: (
        f"one product for each expert, {rate.together:,} at a time, each launched by the host"
    ),
}


def rate_words(rate: Rate) -> str:
    """Describe the rate model of a kind of kernel."""
    return _RATES[type(rate)](rate)


def product_words(one: OperatorPass) -> str:
    """Return the sizes of a matrix product, or the keys of attention; empty for other operators."""
    if one.product is not None:
        batch, rows, columns, depth = (f"{size:,.0f}" for size in one.product)
        many = f"{batch} x " if one.product[0] != 1 else ""
        return f"{many}{rows} x {columns} x {depth}"
    return f"{one.keys:,.0f} keys for each query" if one.keys else ""


def kernel_words(one: OperatorPass) -> str:
    """Return the kind of kernel, and the engine and datatype that compute it."""
    engine = "vector" if one.engine == "vector" else "matrix"
    return f"{one.kernel.replace('_', ' ')}, {engine} engine in {one.datatype}"
