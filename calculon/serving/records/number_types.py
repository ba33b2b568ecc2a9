"""Data types of a deployment: bytes of weights and KV caches, and the arithmetic of matrix products with them."""

from collections.abc import Mapping
from typing import NamedTuple

from calculon.declarations.named_values import DATATYPE_BYTES
from calculon.declarations.recipes import FLOAT4, FLOAT8
from calculon.hardware.collectives.dispatch import SCALED_BYTES
from calculon.hardware.system import System

WIDE = "bfloat16"
"""Type of activations, and of arithmetic with weights whose type no engine supports."""

WIDE_TYPES = (WIDE, "float16")
"""The 16-bit types."""

ACTIVATION_BYTES = DATATYPE_BYTES[WIDE]
"""Bytes of an element of the residual stream, and of the results of matrix products."""


class WeightType(NamedTuple):
    """Bytes of a weight including its share of the scales, and the engine that multiplies this type natively."""

    bytes: float
    engine: str


WEIGHT_TYPES: Mapping[str, WeightType] = {
    "bfloat16": WeightType(2, WIDE),
    "float16": WeightType(2, "float16"),
    "float8": WeightType(1, FLOAT8),
    "float8_block": WeightType(1 + 4 / 128**2, FLOAT8),
    "int8": WeightType(1, WIDE),
    "int4_g128": WeightType((128 * 4 + 16 + 4) / 8 / 128, WIDE),
    "mxfp4": WeightType((32 * 4 + 8) / 8 / 32, FLOAT4),
    "mxfp4_mxfp8": WeightType((32 * 4 + 8) / 8 / 32, FLOAT8),
    "nvfp4": WeightType((16 * 4 + 8) / 8 / 16, FLOAT4),
}
"""Types of weights by name.

Scales: float8_block, 4 bytes for 128 x 128 weights (DeepSeek-V3, arXiv 2412.19437, section 3.3.2); int4_g128, 16 bits
and a zero point of 4 bits for 128 weights (AWQ, arXiv 2306.00978); mxfp4, 8 bits for 32 weights (OCP Microscaling
Formats, version 1.0); nvfp4, 8 bits for 16 weights (NVIDIA, *Introducing NVFP4*, 2025). Weights in mxfp4_mxfp8 are
multiplied with 8-bit inputs, by the 8-bit engine (gpt-oss on Blackwell: vLLM, pull request 23696; TensorRT-LLM,
W4A8_MXFP4_MXFP8).
"""

CACHE_TYPES: Mapping[str, float] = {"bfloat16": 2.0, "float16": 2.0, "float8": 1.0, "int8": 1.0}
"""Bytes of a cached element by type."""

QUANTISED = (FLOAT8, FLOAT4)
"""Engines that need inputs in their own type, to which a separate kernel converts them."""


SENT_BYTES: Mapping[str, float] = {FLOAT8: SCALED_BYTES, FLOAT4: WEIGHT_TYPES["nvfp4"].bytes}
"""Bytes per element of tokens that are sent in a type of :data:`QUANTISED`, including the share of the scales."""


class NumberTypes(NamedTuple):
    """Data types of a deployment, as a rank computes with them.

    Attributes:
        weights, experts, head: Types of weights, by the names of :data:`WEIGHT_TYPES`.
        cache: Bytes of a cached element.
        engines: Types of the arithmetic with weights, experts and head on this machine.
        wide: The 16-bit type of the machine.
        dispatch: Bytes per element of a token that is sent to its experts, including its share of the scales.
    """

    weights: str
    experts: str
    head: str
    cache: float
    engines: tuple[str, str, str]
    wide: str
    dispatch: float

    @classmethod
    def of(
        cls,
        system: System,
        weights: str,
        experts: str,
        head: str,
        cache: str,
        dispatch: str = "same",
    ) -> "NumberTypes":
        """Return the types on a machine."""
        engines = (engine_of(system, weights), engine_of(system, experts), engine_of(system, head))
        wide = engine_of(system, WIDE)
        sent = SENT_BYTES.get(engines[1] if dispatch == "same" else dispatch, ACTIVATION_BYTES)
        return cls(weights, experts, head, CACHE_TYPES[cache], engines, wide, sent)


def engine_of(system: System, weights: str) -> str:
    """Return the type of the arithmetic with weights: their own type if the machine supports it, else a 16-bit type.

    In the latter case only the weights are narrow; the kernel that multiplies them converts them. Source: Frantar et
    al., *MARLIN*, arXiv 2408.11743, section 3.
    """
    # `known` as the last resort: a machine may have neither of the 16-bit types
    known = (*system.matrix, *(system.ext.matrix or {}))
    return next(
        one for one in (WEIGHT_TYPES[weights].engine, WIDE, "float16", *known) if one in known
    )
