"""Plans in words: the split of an execution and its trade-offs, such as ``TP 8, PP 4, DP 16, ZeRO-1``."""

from collections.abc import Iterator, Mapping
from typing import Any

from calculon.declarations.axes import AXES
from calculon.declarations.execution import Execution
from calculon.declarations.fields import Declaration, optional_defaults, spec_fields
from calculon.declarations.lists_of_counts import ListsOfCounts
from calculon.declarations.module_sets import MODULES, modules_of, written
from calculon.declarations.named_values import OTHER_SCHEDULES, SHARDING
from calculon.declarations.recipes import NO_RECIPE

_RECOMPUTED = {
    "core_attn": "attention",
    "norm": "norms",
    "activation": "activations",
    "mla_up_proj": "latent heads",
    "mlp": "MLPs",
    "moe_act": "expert activations",
    "shared_experts": "shared experts",
    "moe": "experts",
}
"""Words for recomputed modules, in the order of pages."""
RECOMPUTED = {words.replace(" ", "-").lower(): name for name, words in _RECOMPUTED.items()}
"""Modules by their words on pages."""


def recomputed_modules(words: str) -> str:
    """Return the value of ``recompute_modules`` for words of a page or names of modules; empty if unknown.

    >>> recomputed_modules("norms"), recomputed_modules("norms+expert-activations"), recomputed_modules("full")
    ('norm', 'norm+moe_act', '')
    """
    names = [RECOMPUTED.get(word.replace("_", "-"), word) for word in words.lower().split("+")]
    return written(names) if {*names} <= {*MODULES} else ""


_STAGES = {
    "balanced": "balanced stages",
    "embedding_as_block": "embedding counts as a layer",
    "head_as_block": "head counts as a layer",
    "both_as_blocks": "embedding and head count as layers",
}

SWITCHED_ON = {
    "seq_par_ag_redo": "repeated all-gather",
    "data_par_overlap": "DP overlap",
    "optimizer_sharding": "optimizer sharding",
    "fused_activation": "fused activation",
}
"""Words for published switches that are on."""

OFFLOADED = {
    "weight_offload": "weights",
    "activations_offload": "activations",
    "optimizer_offload": "optimizer",
}
"""Words for the parts that fields offload to tier 2."""

_RECIPES = {
    "delayed": "FP8 matmuls (delayed scaling)",
    "tensorwise": "FP8 matmuls (tensorwise scaling)",
    "blockwise": "FP8 matmuls (blockwise scaling)",
    "mxfp8": "MXFP8 matmuls",
    "nvfp4": "NVFP4 matmuls",
    "nvfp4_plain": "NVFP4 matmuls (without rotation)",
}
_TYPES = {"float8": "FP8", "float16": "FP16", "bfloat16": "BF16", "float32": "FP32"}

_TOLD = {
    "pp_layout",
    "first_stage_blocks",
    "last_stage_blocks",
    "stage_blocks",
    "pp_schedule",
    "zero_stage",
    "dp_shard",
    "recompute_modules",
    "recompute_every",
    "recompute_blocks",
    "matmul_dtype",
    "float8_scaling",
    "fp8_recipe",
    "preset",
    *(name for axis in AXES for name in (axis.degree, axis.network)),
}
"""Optional fields with dedicated words, or without any."""

NO_RECOMPUTE = "no recompute"

_LONGEST_LIST = 8
"""Most stages whose blocks are listed individually; for more, only the smallest and largest count are given."""

_NOTHING: Mapping[str, Any] = {}
_DEFAULTS = optional_defaults(Execution)


def degrees_words(execution: Mapping[str, Any]) -> str:
    """Return the degrees of parallelism above 1, and the chunks of a pipeline stage, in words.

    >>> one = {"tensor_par": 4, "pipeline_par": 4, "data_par": 64, "pipeline_interleaving": 5}
    >>> degrees_words(one)
    'TP 4, PP 4 x 5, DP 64'
    """
    return ", ".join(_degrees(execution)) or "one processor"


_OF_REPLICAS = {
    "tensor_par": "TP",
    "pipeline_par": "PP",
    "attn_data_par": "attention DP",
    "context_par": "CP",
    "expert_par": "EP",
}


def replica_words(pool: Mapping[str, Any]) -> str:
    """Return the split of a serving replica in words: tensor parallelism, and other degrees above 1.

    >>> replica_words(dict.fromkeys(_OF_REPLICAS, 1) | {"tensor_par": 8, "attn_data_par": 4})
    'TP 8 attention DP 4'
    """
    return " ".join(
        f"{word} {pool[name]}"
        for name, word in _OF_REPLICAS.items()
        if pool[name] > 1 or name == "tensor_par"
    )


def plan_words(execution: Mapping[str, Any], usual: Mapping[str, Any] = _NOTHING) -> str:
    """Return a plan in words, leaving out usual values.

    Args:
        execution: All fields of an execution.
        usual: Values to leave out: the values of its preset (:meth:`calculon.declarations.presets.Preset.usual`); other
            fields are compared with their default.

    Returns:
        Words such as ``TP 4, PP 4 x 5 chunks, DP 64, microbatch 1, ZeRO-1, sequence parallel, recompute norms``. If
        experts are split differently from other layers, ``EP 8, ETP 1, EDP 16`` are among the degrees.
    """
    words = list(_degrees(execution, " chunks")) or ["one processor"]
    if spreads_experts(execution):
        words += [f"ETP {expert_width(execution)}", f"EDP {expert_replicas(execution):,}"]
    name = "expert_tensor_par"  # its mark would repeat the degrees
    unsaid = {**execution, name: usual.get(name, _DEFAULTS[name])}
    return ", ".join((*words, *choices_words(unsaid, usual)))


def choices_words(
    execution: Mapping[str, Any], usual: Mapping[str, Any] = _NOTHING
) -> tuple[str, ...]:
    """Return the words of a plan other than its degrees; arguments as in :func:`plan_words`."""

    def of(name: str) -> Any:
        return execution.get(name, _DEFAULTS.get(name))

    def usually(name: str, default: Any) -> Any:
        return usual.get(name, default)

    return tuple(
        word
        for words in (
            _pipeline(of),
            (f"microbatch {of('microbatch_size'):,}",),
            _data(of, usually),
            _tensor(of, usually),
            _recomputed(of, usually),
            _offloaded(of),
            _arithmetic(of),
            _published(of, usually),
            _others(of, usually),
        )
        for word in words
    )


def expert_width(execution: Mapping[str, Any]) -> int:
    """Return the ranks over which each expert is split (ETP); by default the tensor-parallel degree."""
    return int(execution.get("expert_tensor_par", 0) or execution["tensor_par"])


def expert_replicas(execution: Mapping[str, Any]) -> int:
    """Return the number of replicas of each expert (EDP)."""
    ranks = execution.get("expert_par", 1) * expert_width(execution)
    return int(execution["tensor_par"] * replicas(execution) // ranks)


def replicas(execution: Mapping[str, Any]) -> int:
    """Return the number of ranks with the same non-expert weights: data times context parallelism."""
    return int(execution["data_par"] * execution.get("context_par", 1))


def spreads_experts(execution: Mapping[str, Any]) -> bool:
    """Return True if experts are split differently from other layers."""
    spread = execution.get("expert_par", 1) > 1
    return bool(spread or expert_width(execution) != execution["tensor_par"])


def recomputes(execution: Mapping[str, Any]) -> bool:
    """Return True if the backward pass recomputes anything."""
    modules = execution.get("recompute_modules", _DEFAULTS["recompute_modules"])
    return bool(execution["activation_recompute"] != "none" or modules != "none")


def _degrees(execution: Mapping[str, Any], unit: str = "") -> Iterator[str]:
    for axis in AXES:
        degree = execution.get(axis.degree, 1)
        chunks = execution["pipeline_interleaving"] if axis.name == "pp" else 1
        if degree > 1:
            each = f" x {chunks}{unit}" if chunks > 1 else ""
            yield f"{axis.name.upper()} {degree:,}{each}"


def _pipeline(of: Any) -> Iterator[str]:
    """Yield words for uneven stages, and for a schedule other than 1F1B."""
    if of("pipeline_par") == 1:
        return
    if listed := of("stage_blocks"):
        counts = ListsOfCounts.counts(str(listed))
        if len(counts) > _LONGEST_LIST:
            per = "chunk" if len(counts) > of("pipeline_par") else "stage"
            yield f"{min(counts)} to {max(counts)} blocks per {per}"
        else:
            yield f"stages of {str(listed).replace('m', '')} blocks"
        if (chunk := ListsOfCounts.place_of_modules(str(listed))) is not None:
            yield f"MTP modules on stage {chunk % of('pipeline_par')}"
    elif of("pp_layout") in _STAGES:
        yield _STAGES[of("pp_layout")]
    for place in ("first", "last"):
        if blocks := of(f"{place}_stage_blocks"):
            yield f"{place} stage {blocks} block{'s' * (blocks > 1)}"
    if of("pp_schedule") in OTHER_SCHEDULES:
        yield OTHER_SCHEDULES[of("pp_schedule")]


def _data(of: Any, usually: Any) -> Iterator[str]:
    """Yield words for the state sharded over replicas, and for unusual overlap."""
    if not of("training"):
        yield "inference"
        return
    if of("data_par") * of("context_par") == 1:
        return
    stage = str(of("zero_stage"))
    # auto means the published strategies: ZeRO-1 with a sharded optimizer, else plain DDP.
    stage = ("1" if of("optimizer_sharding") else "0") if stage == "auto" else stage
    yield SHARDING[stage] + (f" over groups of {of('dp_shard'):,}" if of("dp_shard") else "")
    if of("data_par_overlap") != usually("data_par_overlap", False):
        yield "DP overlap" if of("data_par_overlap") else "no DP overlap"


def _tensor(of: Any, usually: Any) -> Iterator[str]:
    """Yield words for the form of tensor parallelism, its overlap, and repeated gathers."""
    if of("tensor_par") == 1:
        return
    if of("tensor_par_comm_type") == "rs_ag":
        yield "sequence parallel"
    elif of("tensor_par_comm_type") == "p2p_rs_ag":
        yield "scattered transfers"
    elif usually("tensor_par_comm_type", "ar") == "rs_ag":
        yield "no sequence parallelism"
    if of("tensor_par_overlap") != "none":
        yield f"TP overlap ({of('tensor_par_overlap')})"
    elif usually("tensor_par_overlap", "none") != "none":
        yield "no TP overlap"
    if of("seq_par_ag_redo") != usually("seq_par_ag_redo", False):
        yield "repeated all-gather" if of("seq_par_ag_redo") else "no repeated all-gather"


def _recomputed(of: Any, usually: Any) -> Iterator[str]:
    """Yield words for activation recomputation."""
    whole, modules = of("activation_recompute"), of("recompute_modules")
    some = max(1, of("recompute_blocks"))
    every = f" in {some} of {of('recompute_every')} blocks" if of("recompute_every") > some else ""
    if whole == "full":
        yield f"full recompute{every}"
        return
    named = modules_of(modules) | ({"core_attn"} if whole == "attn_only" else set())
    parts = [words for name, words in _RECOMPUTED.items() if name in named]
    if modules == "ops":
        yield f"selective recompute{every}"
    if parts:
        yield f"recompute {' and '.join(parts)}{every}"  # not joined by commas, which separate the words of a plan
    unusual = (
        usually("activation_recompute", "none") != "none"
        or usually("recompute_modules", "none") != "none"
    )
    if not parts and modules == "none" and of("training") and unusual:
        yield NO_RECOMPUTE


def _offloaded(of: Any) -> Iterator[str]:
    if parts := [words for name, words in OFFLOADED.items() if of(name)]:
        yield f"offload {' + '.join(parts)}"


def _arithmetic(of: Any) -> Iterator[str]:
    """Yield words for low-precision arithmetic and 8-bit tensors."""
    if of("datatype") == "float8":
        yield "FP8 tensors"
    if (recipe := of("fp8_recipe")) != NO_RECIPE:
        yield _RECIPES[recipe]
        return
    matmul = of("matmul_dtype")
    if matmul not in ("same", of("datatype")):
        scaling = f" ({of('float8_scaling')} scaling)" if matmul == "float8" else ""
        yield f"{_TYPES.get(matmul, 'TF32')} matmuls{scaling}"


def _published(of: Any, usually: Any) -> Iterator[str]:
    """Yield words for published fields that differ from the usual values."""
    if of("attention_type") != usually("attention_type", "multihead"):
        yield f"{of('attention_type')} attention"
    if of("fused_activation") != usually("fused_activation", False):
        yield "fused activation" if of("fused_activation") else "activation not fused"


def _others(of: Any, usually: Any) -> Iterator[str]:
    """Yield the marks of optional fields that differ from the usual values."""
    for field in spec_fields(Execution):
        declaration, value = field.declaration, of(field.name)
        if not declaration.optional or not declaration.mark or field.name in _TOLD:
            continue
        if field.name == "data_par_slowdown" and of("data_par") * of("context_par") == 1:
            continue  # a single replica has no collectives that could slow its work
        if value != usually(field.name, field.default):
            yield field_mark(declaration, field.name, value, field.default)


def field_mark(declaration: Declaration, name: str, value: Any, default: Any) -> str:
    """Return a short text for the value of an optional field."""
    mark = declaration.mark
    if value != default:
        # The default itself is only named if a preset usually sets something else; most defaults have no mark.
        return mark.format(value) if isinstance(mark, str) else str(mark[value])
    if value is False and isinstance(mark, str):
        return f"no {mark}"
    if isinstance(value, str) and value not in ("auto", "same", "published", "stated", "none"):
        return (mark if isinstance(mark, str) else declaration.label).format(value)
    if value in declaration.words and isinstance(mark, str):
        return mark.format(declaration.words[value])
    return f"{name}={str(value).lower()}"
