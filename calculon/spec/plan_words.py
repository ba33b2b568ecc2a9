"""A plan in the words of the field: how an execution is split, and what it trades for what."""

from collections.abc import Iterator, Mapping
from typing import Any

from calculon.spec.axes import AXES
from calculon.spec.execution import Execution
from calculon.spec.fields import Declaration, optional_defaults, spec_fields

_RECOMPUTED = {
    "norm": "norms",
    "activation": "activations",
    "norm_activation": "norms and activations",
    "mlp": "MLPs",
}
_STAGES = {
    "balanced": "balanced stages",
    "embedding_as_block": "embedding as a block",
    "head_as_block": "head as a block",
    "both_as_blocks": "embedding and head as blocks",
}
_SCHEDULES = {"gpipe": "GPipe", "zb_h1": "ZB-H1"}
SHARDING = {
    "0": "DDP",
    "1": "ZeRO-1",
    "2": "ZeRO-2",
    "3": "ZeRO-3",
    "fsdp": "FSDP",
    "owner": "owned layers",
}
"""What replicas share, by ``zero_stage``."""

_OFFLOADS = {
    "weight_offload": "weights",
    "activations_offload": "activations",
    "optimizer_offload": "optimizer",
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
    "matmul_dtype",
    "float8_scaling",
    "preset",
    *(name for axis in AXES for name in (axis.degree, axis.network)),
}
"""Optional fields that have words of their own, or none."""

_LONGEST_LIST = 8
"""Stages whose blocks are listed; of more, the fewest and the most are told."""

_NOTHING: Mapping[str, Any] = {}
_DEFAULTS = optional_defaults(Execution)


def degrees_words(execution: Mapping[str, Any]) -> str:
    """Write the degrees of parallelism above 1, and the chunks of a pipeline stage.

    >>> one = {"tensor_par": 4, "pipeline_par": 4, "data_par": 64, "pipeline_interleaving": 5}
    >>> degrees_words(one)
    'TP 4, PP 4 x 5, DP 64'
    """
    return ", ".join(_degrees(execution)) or "one processor"


def plan_words(execution: Mapping[str, Any], usual: Mapping[str, Any] = _NOTHING) -> str:
    """Write a plan in the words of the field, as far as it matters.

    Parameters
    ----------
    execution : mapping
        Fields of a whole execution.
    usual : mapping
        Values that need no word: those of its preset (:meth:`calculon.presets.Preset.usual`); a field that is not
        there is compared with its default.

    Returns
    -------
    str
        Such as ``TP 4, PP 4 x 5 chunks, DP 64, microbatch 1, ZeRO-1, sequence parallel, recompute norms``.
    """
    degrees = list(_degrees(execution, " chunks")) or ["one processor"]
    return ", ".join((*degrees, *choices_words(execution, usual)))


def choices_words(
    execution: Mapping[str, Any], usual: Mapping[str, Any] = _NOTHING
) -> tuple[str, ...]:
    """Return the words of a plan beside its degrees: arguments as for :func:`plan_words`."""

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


def _degrees(execution: Mapping[str, Any], unit: str = "") -> Iterator[str]:
    for axis in AXES:
        degree = execution.get(axis.degree, 1)
        chunks = execution["pipeline_interleaving"] if axis.name == "pp" else 1
        if degree > 1:
            each = f" x {chunks}{unit}" if chunks > 1 else ""
            yield f"{axis.name.upper()} {degree:,}{each}"


def _pipeline(of: Any) -> Iterator[str]:
    """Name stages that are not alike, and a schedule other than 1F1B."""
    if of("pipeline_par") == 1:
        return
    if listed := of("stage_blocks"):
        counts = [int(count) for count in str(listed).split("-")]
        if len(counts) > _LONGEST_LIST:
            per = "chunk" if len(counts) > of("pipeline_par") else "stage"
            yield f"{min(counts)} to {max(counts)} blocks per {per}"
        else:
            yield f"stages of {listed} blocks"
    elif of("pp_layout") in _STAGES:
        yield _STAGES[of("pp_layout")]
    for place in ("first", "last"):
        if blocks := of(f"{place}_stage_blocks"):
            yield f"{place} stage {blocks} block{'s' * (blocks > 1)}"
    if of("pp_schedule") in _SCHEDULES:
        yield _SCHEDULES[of("pp_schedule")]


def _data(of: Any, usually: Any) -> Iterator[str]:
    """Name what replicas share, and overlap that is not usual."""
    if not of("training"):
        yield "inference"
        return
    if of("data_par") == 1:
        return
    stage = str(of("zero_stage"))
    stage = ("1" if of("optimizer_sharding") else "0") if stage == "auto" else stage
    yield SHARDING[stage] + (f" over groups of {of('dp_shard'):,}" if of("dp_shard") else "")
    if of("data_par_overlap") != usually("data_par_overlap", False):
        yield "DP overlap" if of("data_par_overlap") else "no DP overlap"


def _tensor(of: Any, usually: Any) -> Iterator[str]:
    """Name the form of tensor parallelism, its overlap, and what it gathers again."""
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
        yield "gathers again" if of("seq_par_ag_redo") else "keeps gathered inputs"


def _recomputed(of: Any, usually: Any) -> Iterator[str]:
    """Name what the backward pass computes again."""
    whole, modules = of("activation_recompute"), of("recompute_modules")
    every = f" in 1 of {of('recompute_every')} blocks" if of("recompute_every") > 1 else ""
    if whole == "full":
        yield f"full recompute{every}"
        return
    parts = [
        *(("attention",) if whole == "attn_only" else ()),
        *((_RECOMPUTED[modules],) if modules in _RECOMPUTED else ()),
    ]
    if modules == "ops":
        yield f"selective recompute{every}"
    if parts:
        yield f"recompute {' and '.join(parts)}{every}"
    unusual = (
        usually("activation_recompute", "none") != "none"
        or usually("recompute_modules", "none") != "none"
    )
    if not parts and modules == "none" and of("training") and unusual:
        yield "no recompute"


def _offloaded(of: Any) -> Iterator[str]:
    if parts := [words for name, words in _OFFLOADS.items() if of(name)]:
        yield f"offload {' + '.join(parts)}"


def _arithmetic(of: Any) -> Iterator[str]:
    """Name arithmetic of fewer bits than is stored, and 8-bit tensors."""
    if of("datatype") == "float8":
        yield "FP8 tensors"
    matmul = of("matmul_dtype")
    if matmul not in ("same", of("datatype")):
        scaling = f" ({of('float8_scaling')} scaling)" if matmul == "float8" else ""
        yield f"{_TYPES.get(matmul, 'TF32')} products{scaling}"


def _published(of: Any, usually: Any) -> Iterator[str]:
    """Name published fields that only a word of their own can tell."""
    if of("attention_type") != usually("attention_type", "multihead"):
        yield f"{of('attention_type')} attention"
    if of("fused_activation") != usually("fused_activation", False):
        yield "fused activation" if of("fused_activation") else "activation not fused"


def _others(of: Any, usually: Any) -> Iterator[str]:
    """Name optional fields that are not as usual, by their marks."""
    for field in spec_fields(Execution):
        declaration, value = field.declaration, of(field.name)
        if not declaration.mark or field.name in _TOLD:
            continue
        if value != usually(field.name, field.default):
            yield marked(declaration, field.name, value, field.default)


def marked(declaration: Declaration, name: str, value: Any, default: Any) -> str:
    """Return a few words for the value of an optional field."""
    mark = declaration.mark
    if value != default:
        return mark.format(value) if isinstance(mark, str) else str(mark[value])
    if value is False and isinstance(mark, str):
        return f"no {mark}"
    if isinstance(value, str) and value not in ("auto", "same", "published", "stated", "none"):
        return (mark if isinstance(mark, str) else declaration.label).format(value)
    return f"{name}={str(value).lower()}"
