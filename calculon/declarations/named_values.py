"""Named values of the fields of an execution, and how many bytes their types of numbers have."""

from collections.abc import Mapping
from typing import Final

from calculon.declarations.recipes import FLOAT4, FLOAT4_BYTES, FLOAT8, NO_RECIPE, RECIPES

DATATYPE_BYTES = {"float8": 1, "float16": 2, "bfloat16": 2, "float32": 4}
"""Bytes per element of each datatype."""

MATMUL_BYTES = DATATYPE_BYTES | {"tfloat32": 4}
"""Bytes per operand element of each type of matrix arithmetic; TF32 reads 4-byte operands."""

ENGINE_BYTES: Mapping[str, float] = MATMUL_BYTES | {FLOAT4: FLOAT4_BYTES}
"""Those of each type that matrix engines have: arithmetic in 4 bits needs a recipe."""

OPTIMIZERS = ("adam", "adam_8bit", "lion", "sgd_momentum", "sgd", "adafactor", "muon")
"""Optimizers whose step is known."""

MASTER_BYTES: Final = 4
"""Bytes of a master copy of a weight, and of a gradient in the arithmetic of a step."""

LEAST_RESULT_BYTES = 2
"""8-bit products have 16-bit results (Micikevicius et al., arXiv 2209.05433, section 3)."""


def arithmetic_type(datatype: str, matmul_dtype: str) -> str:
    """Return the type in which products with weights are computed."""
    return datatype if matmul_dtype == "same" else matmul_dtype


def multiplied(matmul_dtype: str, fp8_recipe: str) -> str:
    """Return the ``matmul_dtype`` by which all else has its type: operands of every recipe are at most of 8 bits."""
    return matmul_dtype if fp8_recipe == NO_RECIPE else FLOAT8


PRODUCT_FIELDS = ("datatype", "matmul_dtype", "fp8_recipe")
"""Fields of an execution that say the type of products: the arguments of :func:`product_type`."""


def product_type(datatype: str, matmul_dtype: str, fp8_recipe: str) -> str:
    """Return the type in which products with weights are computed, under a recipe as without one."""
    if fp8_recipe != NO_RECIPE:
        return RECIPES[fp8_recipe].product
    return arithmetic_type(datatype, matmul_dtype)


def result_bytes(datatype: str, matmul_dtype: str) -> int:
    """Return the bytes per element of results of products, and of the operators between them."""
    operand = min(DATATYPE_BYTES[datatype], MATMUL_BYTES[arithmetic_type(datatype, matmul_dtype)])
    return min(DATATYPE_BYTES[datatype], max(operand, LEAST_RESULT_BYTES))


ATTENTION_KERNELS = ("flash1", "triton", "flash2", "flash3", "cudnn")
"""Kernels of fused attention: FlashAttention 1 to 3, the first one in Triton (Dao's of 2022), and that of cuDNN."""

SHARDING = {
    "0": "DDP",
    "1": "ZeRO-1",
    "2": "ZeRO-2",
    "3": "ZeRO-3",
    "fsdp": "FSDP",
    "owner": "owned layers",
}
"""What replicas share, and its name in the field."""

ZERO_STAGES = ("auto", *SHARDING)
"""Data-parallel strategies: DDP, ZeRO-n, FSDP, layer-wise sharding; auto is the published one."""

SPLIT_WEIGHTS = ("3", "fsdp", "owner")
"""Data-parallel strategies with which a rank keeps its share of the weights only."""

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
"""Layouts of pipelines in which embedding and output head count as so many blocks."""

PP_LAYOUTS = ("uniform", "balanced", *ENDS_AS_BLOCKS)
"""How blocks are laid out over the stages of a pipeline."""

SCHEDULE_NAMES = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "zb_h1": "ZB-H1",
    "zb_h2": "ZB-H2",
    "zbv": "ZBV",
    "dualpipe": "DualPipe",
    "dualpipev": "DualPipeV",
}
"""What papers call the orders of passes of a pipeline that trains."""

PP_SCHEDULES = tuple(SCHEDULE_NAMES)
"""These orders; the first is that of an execution that states none."""

OTHER_SCHEDULES = {name: SCHEDULE_NAMES[name] for name in PP_SCHEDULES[1:]}
"""The names of those that are worth a word."""

TURNING_SCHEDULES = ("zbv", "dualpipev")
"""Those of which microbatches go through the ranks and back: in a V, each rank has two chunks of the model."""

PAIRED_SCHEDULES = ("dualpipe", "dualpipev")
"""Those that run forward and backward passes beside each other by themselves."""

FOLDED_SCHEDULES = (*TURNING_SCHEDULES, "dualpipe")
"""Those of which a rank has two parts that lie opposite each other in the model: its first and last are on one rank."""

SIMULATED_SCHEDULES = ("zb_h2", *FOLDED_SCHEDULES)
"""Those whose time is simulated where stages are not alike."""

EP_OVERLAPS = ("none", "1f1b", "two_batch")
"""What runs beside dispatch and combine of experts: nothing, another microbatch, or the other half of the same one."""

LAUNCH_MODES = ("eager", "compile", "graph", "blocking")
"""Ways in which a host launches kernels."""

PUBLISHED, CORRECTED = "sc23", "corrected"
EDITION_NAMES = (PUBLISHED, CORRECTED)
"""Editions of the cost model; the first is that of an execution that names none."""

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
)
"""Presets of the catalog (:mod:`calculon.declarations.presets`): published forms, what all frameworks share,
frameworks."""

CP_EXCHANGES = ("p2p", "all_gather", "a2a", "a2a_p2p")
"""Ways in which ranks with parts of a sequence come to the keys and values of all of it."""

RINGS = ("p2p", "a2a_p2p")
"""Those in which keys and values go round a ring."""

HEAD_EXCHANGES = ("a2a", "a2a_p2p")
"""Those in which ranks exchange heads for parts of sequences."""

BETWEEN_PARTS = tuple(name for name in CP_EXCHANGES if name != "a2a")
"""Those in which a rank has queries of its own part of a sequence only, whatever it has of the keys."""

CP_BALANCES = ("zigzag", "contiguous", "striped")
"""Which tokens of a sequence a rank has."""

MOE_DISPATCHERS = ("alltoall", "allgather", "deepep", "hybridep")
"""Ways in which rows come to experts on other ranks."""

EXCHANGING = tuple(name for name in MOE_DISPATCHERS if name != "allgather")
"""Those that send rows to their experts, which may run beside other work."""

EXCHANGED = ("same", "float8", "bfloat16")
"""Types of rows on their way."""

_EXCHANGED_BYTES = {"float8": 1 + 4 / 128, "bfloat16": 2}
"""Bytes per element of rows that are sent; 128 of 8 bits share a scale of 4 bytes (arXiv 2412.19437, section 3.3.2)."""


def exchanged_bytes(dtype: str, result: float) -> float:
    """Return the bytes per element of rows that are sent to experts, where results of products have so many."""
    return _EXCHANGED_BYTES.get(dtype, result)
