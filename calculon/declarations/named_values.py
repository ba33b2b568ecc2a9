"""Named values of execution fields, and the number of bytes of their data types."""

from collections.abc import Mapping
from typing import Final

from calculon.declarations.recipes import FLOAT4, FLOAT4_BYTES, FLOAT8, NO_RECIPE, RECIPES

DATATYPE_BYTES = {"float8": 1, "float16": 2, "bfloat16": 2, "float32": 4}
"""Bytes per element of each datatype."""

MATMUL_BYTES = DATATYPE_BYTES | {"tfloat32": 4}
"""Bytes per operand element of each type of matrix arithmetic; TF32 reads 4-byte operands."""

ENGINE_BYTES: Mapping[str, float] = MATMUL_BYTES | {FLOAT4: FLOAT4_BYTES}
"""Bytes per operand element of each type that matrix engines support; arithmetic in 4 bits needs a recipe."""

OPTIMIZERS = ("adam", "adam_8bit", "lion", "sgd_momentum", "sgd", "adafactor", "muon")
"""Supported optimizers."""

MASTER_BYTES: Final = 4
"""Bytes of a master copy of a weight, and of a gradient in the arithmetic of a step."""

MIN_RESULT_BYTES = 2
"""8-bit products have 16-bit results (Micikevicius et al., arXiv 2209.05433, section 3)."""


def arithmetic_type(datatype: str, matmul_dtype: str) -> str:
    """Return the type in which products with weights are computed."""
    return datatype if matmul_dtype == "same" else matmul_dtype


def multiplied(matmul_dtype: str, fp8_recipe: str) -> str:
    """Return the ``matmul_dtype`` that determines all other types: float8 under every recipe (at most 8 bits)."""
    return matmul_dtype if fp8_recipe == NO_RECIPE else FLOAT8


PRODUCT_FIELDS = ("datatype", "matmul_dtype", "fp8_recipe")
"""Execution fields that determine the type of products: the arguments of :func:`product_type`."""


def product_type(datatype: str, matmul_dtype: str, fp8_recipe: str) -> str:
    """Return the type in which products with weights are computed, with or without a recipe."""
    if fp8_recipe != NO_RECIPE:
        return RECIPES[fp8_recipe].product
    return arithmetic_type(datatype, matmul_dtype)


def result_bytes(datatype: str, matmul_dtype: str) -> int:
    """Return the bytes per element of results of products, and of the operators between them."""
    operand = min(DATATYPE_BYTES[datatype], MATMUL_BYTES[arithmetic_type(datatype, matmul_dtype)])
    return min(DATATYPE_BYTES[datatype], max(operand, MIN_RESULT_BYTES))


ATTENTION_KERNELS = ("flash1", "triton", "flash2", "flash3", "cudnn")
"""Fused attention kernels: FlashAttention 1 to 3, FlashAttention 1 in Triton (Dao, 2022), and cuDNN's kernel."""

SHARDING = {
    "0": "DDP",
    "1": "ZeRO-1",
    "2": "ZeRO-2",
    "3": "ZeRO-3",
    "fsdp": "FSDP",
    "owner": "owned layers",
}
"""State sharded over replicas, and its common name."""

ZERO_STAGES = ("auto", *SHARDING)
"""Data-parallel strategies: DDP, ZeRO-n, FSDP, layer-wise sharding; auto is the published one."""

SPLIT_WEIGHTS = ("3", "fsdp", "owner")
"""Data-parallel strategies in which a rank keeps only its share of the weights."""

COLLECTIVES = (
    "published",
    "auto",
    "ring",
    "tree",
    "nvls",
    "nvls_tree",
    "hierarchical",
    "pipelined",
    "collnet",
)
"""Algorithms of collectives."""

MESH_ORDERS = ("stated", "tp-dp-pp", "tp-pp-dp")
"""Numberings of ranks: process groups on explicit networks, or dimensions fastest first."""

ENDS_AS_BLOCKS = {
    "embedding_as_block": (1, 0),
    "head_as_block": (0, 1),
    "both_as_blocks": (1, 1),
}
"""Pipeline layouts in which embedding and output head count as a number of blocks."""

PP_LAYOUTS = ("uniform", "balanced", *ENDS_AS_BLOCKS)
"""Layouts of blocks over pipeline stages."""

SCHEDULE_NAMES = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "zb_h1": "ZB-H1",
    "zb_h2": "ZB-H2",
    "zbv": "ZBV",
    "dualpipe": "DualPipe",
    "dualpipev": "DualPipeV",
}
"""Names of pipeline schedules in the literature."""

PP_SCHEDULES = tuple(SCHEDULE_NAMES)
"""Pipeline schedules of training; the first is the default."""

OTHER_SCHEDULES = {name: SCHEDULE_NAMES[name] for name in PP_SCHEDULES[1:]}
"""Names of the schedules other than the default."""

TURNING_SCHEDULES = ("zbv", "dualpipev")
"""Schedules in which microbatches pass the ranks in a V: each rank has two chunks of the model."""

PAIRED_SCHEDULES = ("dualpipe", "dualpipev")
"""Schedules that overlap forward and backward passes by themselves."""

FOLDED_SCHEDULES = (*TURNING_SCHEDULES, "dualpipe")
"""Schedules in which a rank has two opposite parts of the model: the first and last parts share a rank."""

SIMULATED_SCHEDULES = ("zb_h2", *FOLDED_SCHEDULES)
"""Schedules whose time is simulated if stages differ."""

EP_OVERLAPS = ("none", "1f1b", "two_batch")
"""Overlap of expert dispatch and combine: none, another microbatch, or the other half of the same microbatch."""

LAUNCH_MODES = ("eager", "compile", "graph", "graph_parts", "blocking")
"""Modes of launching kernels from the host."""

PUBLISHED, CORRECTED = "sc23", "corrected"
EDITION_NAMES = (PUBLISHED, CORRECTED)
"""Editions of the cost model; the first is the default."""

PRESETS = (
    "published",
    "common",
    "megatron-lm",
    "megatron-lm-ub",
    "megatron-lm-2021",
    "torchtitan",
    "deepspeed",
    "llm-foundry",
    "huggingface",
    "megatron-bridge",
    "maxtext",
)
"""Presets of the catalog (:mod:`calculon.declarations.presets`): published forms, options shared by all frameworks,
frameworks."""

CP_EXCHANGES = ("p2p", "all_gather", "a2a", "a2a_p2p")
"""Exchanges that bring the keys and values of a whole sequence to context-parallel ranks."""

RINGS = ("p2p", "a2a_p2p")
"""Exchanges in which keys and values circulate in a ring."""

HEAD_EXCHANGES = ("a2a", "a2a_p2p")
"""Exchanges of heads for parts of sequences (all-to-all)."""

BETWEEN_PARTS = tuple(name for name in CP_EXCHANGES if name != "a2a")
"""Exchanges in which a rank has only the queries of its own part of a sequence."""

CP_BALANCES = ("zigzag", "contiguous", "striped")
"""Distributions of the tokens of a sequence over ranks."""

MOE_DISPATCHERS = ("alltoall", "allgather", "deepep", "hybridep")
"""Dispatchers of tokens to experts on other ranks."""

_OF_NVIDIA = {"moe_dispatcher": ("deepep", "hybridep")}
"""Values for NVIDIA processors only: both dispatchers are written in CUDA (github.com/deepseek-ai/DeepEP)."""


def is_offered(name: str, value: object, family: str) -> bool:
    """Return whether a value is proposed for a maker and generation of processors; unknown ones exclude nothing.

    >>> [is_offered("moe_dispatcher", "deepep", one) for one in ("NVIDIA Hopper", "AMD CDNA 3", "")]
    [True, False, True]
    """
    return not family or family.startswith("NVIDIA") or value not in _OF_NVIDIA.get(name, ())


EXCHANGING = tuple(name for name in MOE_DISPATCHERS if name != "allgather")
"""Dispatchers that send rows to their experts, which can overlap other work."""

EXCHANGED = ("same", "float8", "bfloat16")
"""Types of dispatched rows."""

_EXCHANGED_BYTES = {"float8": 1 + 4 / 128, "bfloat16": 2}
"""Bytes per element of dispatched rows; 128 values of 8 bits share a 4-byte scale (arXiv 2412.19437, section 3.3.2)."""


def exchanged_bytes(dtype: str, result: float) -> float:
    """Return the bytes per element of rows sent to experts; `result` is the size of product results."""
    return _EXCHANGED_BYTES.get(dtype, result)
