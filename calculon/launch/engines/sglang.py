"""SGLang: the flags of ``python -m sglang.launch_server``.

Sources: docs.sglang.io, *Server Arguments* and *Hyperparameter Tuning*, of 2025-10: names and defaults.
``--mem-fraction-static`` is a share of total memory, for weights and KV cache: ``s * capacity = weights + cache``;
without it the server computes the share. Prefill runs in separate passes, in chunks of ``--chunked-prefill-size``
tokens, unless ``--enable-mixed-chunk`` mixes in sequences that decode. With ``--enable-dp-attention`` attention ranks
share these tokens and ``--max-running-requests`` (recalled). CUDA graphs cover passes that only decode.
"""

import re
from functools import partial

from calculon.launch.dialect import Dialect, Fields, Reading, Writing
from calculon.launch.engines.engine_drafts import SGLANG_DRAFTS
from calculon.launch.engines.engine_files import (
    CHECKPOINT,
    parse_server,
    render_flags,
    written_out,
)
from calculon.launch.engines.engine_rows import (
    OF_EXPERTS,
    OF_HOST,
    Degrees,
    TypeNames,
    always,
    largest_graph,
    memory_share,
    number,
    option,
    overlapped_host,
    passed_on,
    row,
)
from calculon.launch.engines.engine_words import SGLANG_NO_EFFECT, SGLANG_NOT_MODELLED
from calculon.launch.rows import by_name

_TP, _PP, _DP, _EP = "--tp-size", "--pp-size", "--dp-size", "--ep-size"
_DP_ATTENTION = "--enable-dp-attention"
_CHUNK, _MIXED = "--chunked-prefill-size", "--enable-mixed-chunk"
_SEQUENCES = "--max-running-requests"
_SHARE = "--mem-fraction-static"

_ALIASES = by_name(
    {
        _TP: "--tp --tensor-parallel-size",
        _PP: "--pp --pipeline-parallel-size",
        _DP: "--dp --data-parallel-size",
        _EP: "--ep --expert-parallel-size",
        CHECKPOINT: "--model --model-path",
        "--quantization": "--quant",
    }
)
_PROGRAM = re.compile(r"sglang(_router)?\.launch_server|serve")
_SIGN = re.compile(r"\bsglang(_router)?\.launch_server\b|\bsglang\s+serve\b")
_CHUNK_TOKENS = 8192
"""Default chunk of chunked prefill in tokens, on GPUs with 60 to 90 GiB (recalled)."""

_TYPES = TypeNames(
    dtype="--dtype",
    weights="--quantization",
    cache="--kv-cache-dtype",
    quantized={
        ("float8", "same"): "fp8 w8a8_fp8 modelopt modelopt_fp8",
        ("int4_g128", "same"): "awq awq_marlin gptq gptq_marlin marlin",
        ("nvfp4", "same"): "modelopt_fp4 petit_nvfp4",
        ("wide", "mxfp4"): "mxfp4",
    },
    caches={"float8": "fp8_e4m3 fp8_e5m2", "bfloat16": "bf16 bfloat16"},
)


def _read_split(reading: Reading, ranks: int, copies: int) -> tuple[int, int, int, int]:
    """Return ranks of a stage, attention ranks with their own requests, expert groups, and copies of the model."""
    groups = reading.count(_EP, default=1) or 1
    return (
        (ranks, copies, groups, 1) if reading.switch(_DP_ATTENTION) else (ranks, 1, groups, copies)
    )


def _write_split(writing: Writing) -> Fields:
    result: Fields = {_TP: writing["tensor_par"]}
    result |= {_EP: writing["expert_par"]} if writing["expert_par"] > 1 else {}
    if writing["attn_data_par"] > 1:
        result |= {_DP_ATTENTION: True, _DP: writing["attn_data_par"]}
    return result


def _read_batch(reading: Reading) -> Fields:
    # Without the option the engine computes its limit, which its preset fills in.
    most = reading.count(_SEQUENCES, default=0)
    limit: Fields = {"max_batch": most} if most else {}
    chunk = reading.count(_CHUNK, default=_CHUNK_TOKENS) or 0
    if reading.switch(_MIXED):
        ranks = reading.deployment["attn_data_par"]
        return limit | {"token_budget": max(chunk, 0) // ranks}
    if chunk > 0 and _CHUNK in reading.parsed.settings:
        effect = (
            "longer prompts are chunked; separate prefill passes are modeled with complete prompts"
        )
        reading.not_modelled(_CHUNK, effect)
    return limit | {"token_budget": 0}


def _write_batch(writing: Writing) -> Fields:
    budget, most = writing["token_budget"], writing["max_batch"]
    # -1 disables chunked prefill: separate prefill passes are modeled with complete prompts.
    found: Fields = (
        {_MIXED: True, _CHUNK: budget * writing["attn_data_par"]} if budget else {_CHUNK: -1}
    )
    return found | ({_SEQUENCES: most} if most else {})


ROWS = (
    Degrees(_TP, _PP, _DP, (_EP, _DP_ATTENTION), _read_split, _write_split).row(),
    number("--ep-num-redundant-experts", "redundant_experts", 0),
    _TYPES.row(),
    row("max_batch token_budget", f"{_SEQUENCES} {_CHUNK} {_MIXED}", _read_batch, _write_batch),
    always("admission", "mean"),
    always("prefill_graphs", value=False),
    number("--page-size", "kv_block", 1),
    option("--disable-cuda-graph", "graphs", on=False, off=True),
    memory_share(
        _SHARE,
        "static",
        None,
        lambda rank, share: share * rank.capacity - rank.weights,
        lambda rank, cache: (rank.weights + cache) / rank.capacity,
    ),
    option("--enable-hierarchical-cache", "cache_offload", "host", "none"),
    option("--enable-two-batch-overlap", "overlap", "two_batches", "none"),
    SGLANG_DRAFTS,
    largest_graph("--cuda-graph-max-bs"),
    overlapped_host("", "--disable-overlap-schedule"),
    passed_on("engine", "price", *OF_EXPERTS, *OF_HOST),
)

_KNOWN = frozenset(name for one in ROWS for name in one.settings)


SGLANG = Dialect(
    name="sglang",
    title="SGLang",
    version="release 0.5 (2025-10)",
    preset="",
    rows=ROWS,
    no_effect=SGLANG_NO_EFFECT,
    not_modelled=SGLANG_NOT_MODELLED,
    parse=partial(
        parse_server,
        program=_PROGRAM,
        name_of=partial(written_out, spellings=_ALIASES),
        known=_KNOWN.__contains__,
    ),
    render=partial(
        render_flags, command='python3 -m sglang.launch_server --model-path "$CHECKPOINT"'
    ),
    recognizes=lambda text, _: _SIGN.search(text) is not None,
    subject="deployment",
)
