"""Restrict a space to some values of a field, or widen it by values that the published enumeration leaves out."""

from collections.abc import Mapping, Sequence
from typing import Any

from calculon.errors import Problem, SpecError, nearest
from calculon.plan.plan import FIELDS
from calculon.search.space import LOOPS, Values

FIXABLE = (*LOOPS, "data_par")
"""Fields that a search can be restricted in."""

ADDABLE = {
    "attention_type": "multiquery beside multihead",
    "activations_offload": "true: also with full recomputation",
    "pipeline_par": "pipeline degrees that leave stages uneven",
    "batch_size": "batch sizes below the largest",
    "attn_impl": "flash beside eager attention",
    "ce_impl": "fused beside eager cross-entropy",
    "grad_buffer": "full beside sharded gradients",
    "grad_comm_dtype": "types in which gradients are reduced",
    "optimizer": "optimizers beside adam",
    "optimizer_impl": "foreach and loop beside a fused step",
    "optimizer_state_dtype": "bfloat16 beside float32 moments",
    "grad_dtype": "types in which gradients are added up",
    "main_grad": "true: a 4-byte copy of smaller gradients",
    "grad_clip": "true: gradients scaled to a largest norm",
    "latency_per_step": "true: latency in every step of a collective",
    "fusion": "none, compile or max beside the published kernels",
    "matmul_dtype": "types of matrix arithmetic",
    "vocab_pad_multiple": "multiples that the vocabulary is filled up to",
    "zero_stage": "natural forms of data parallelism: 0, 1, 2, 3, fsdp, owner",
    "dp_shard": "ranks that share what zero_stage splits",
    "fsdp_unit": "blocks that are gathered together",
    "fsdp_prefetch": "units that are gathered ahead",
    "reshard_after_forward": "false: gathered weights stay until the backward pass",
    "ddp_bucket_mib": "sizes of gradient buckets",
    "no_sync": "false: gradients reduced after every microbatch",
    "overlap_param_gather": "true: new weights gathered beside the next forward pass",
    "mem_reserved_mib": "memory that is not the model's",
    "coll_algo": "algorithms of collectives",
    "tp_impl": "allgather beside megatron",
    "tp_async": "true: gradients of inputs reduced behind those of weights",
    "bias_after_reduce": "true: biases in a pass after the reduction",
    "matmul_impl": "mul_sum or mul_sum_fused beside gemm",
    "pp_schedule": "gpipe or zb_h1 beside 1f1b",
    "pp_layout": "balanced beside uniform pipeline stages",
    "first_stage_blocks": "blocks of the first pipeline stage",
    "last_stage_blocks": "blocks of the last pipeline stage",
    "p2p_overlap": "true: pipeline transfers beside other passes",
}
"""Fields that a search can be widened in, and how."""

_ARGUMENTS = {
    "datatype": "the datatype is an argument of its own",
    "num_procs": "the processor count is an argument of its own",
    "training": "a search is of training only",
    "mesh_order": "ranks are numbered in one way, or in none: --fix mesh_order=tp-dp-pp",
    "edition": "the edition is an option of its own: --edition, or edition=... in Python",
}
"""Why other fields are no matter of restriction."""

_DECLARED = {field.name: field for field in FIELDS}


def checked(option: str, values: Mapping[str, Any]) -> dict[str, Values]:
    """Check the values of ``fix`` or ``add`` against the declarations of their fields.

    Parameters
    ----------
    option : str
        ``fix`` or ``add``, as the caller calls it: with dashes on the command line.
    values : mapping
        One value or a sequence of values by field.

    Raises
    ------
    SpecError
        With every field that the option does not know and every value that its field does not take.
    """
    allowed = FIXABLE if option.lstrip("-") == "fix" else tuple(ADDABLE)
    problems = []
    result: dict[str, Values] = {}
    for name, given in values.items():
        if name not in allowed:
            hint = _ARGUMENTS.get(name) or nearest(name, allowed)
            hint = hint or "known are " + ", ".join(allowed)
            problems.append(Problem(name, f"a field that {option} knows", repr(name), hint))
            continue
        several = isinstance(given, Sequence) and not isinstance(given, str)
        field = _DECLARED[name]
        values_given = given if several else (given,)
        result[name] = tuple(field.declaration.plain(value) for value in values_given)
        found = (field.declaration.problem(field.annotation, v, name) for v in result[name])
        problems += [problem for problem in found if problem is not None]
    if problems:
        raise SpecError(option, problems)
    return result


def parse(option: str, texts: Sequence[str]) -> dict[str, Values]:
    """Read ``FIELD=VALUE[,VALUE...]`` texts; a field may be given several times.

    Raises
    ------
    SpecError
        As :func:`checked`, and for a text without ``=``.
    """
    values: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        if not equals or not rest:
            raise SpecError(f"--{option}", Problem(text, "FIELD=VALUE[,VALUE...]", repr(text)))
        name = name.strip()
        values.setdefault(name, []).extend(_typed(name, item.strip()) for item in rest.split(","))
    return checked(f"--{option}", values)


def _typed(name: str, text: str) -> Any:
    """Return a value as the field's type reads it; text where it cannot."""
    kind = _DECLARED[name].annotation if name in _DECLARED else str
    if kind is bool and text.lower() in ("true", "false", "t", "f", "1", "0"):
        return text.lower() in ("true", "t", "1")
    if kind is int:
        try:
            return int(text)
        except ValueError:
            return text
    return text
