"""vLLM: the flags of ``vllm serve``.

Sources: docs.vllm.ai, *Engine Arguments* and *Optimization and Tuning*, of release 0.11: names and defaults. Default
token and sequence limits (continuous batching), ``EngineArgs.get_batch_defaults``: 8,192 and 1,024 for an API server on
GPUs with at least 70 GiB except A100, 2,048 and 256 on all others. ``--gpu-memory-utilization`` is a share of total
memory, for weights, the largest pass and the KV cache: ``u * capacity = weights + activation + cache``. CUDA graphs
cover passes of up to 512 tokens (``--max-cudagraph-capture-size``; recalled), hence no passes with prompts.
"""

import re
from collections.abc import Mapping
from functools import partial

from calculon.base.units import GIB
from calculon.launch.dialect import Dialect, Fields, Parsed, Reading, Setting, Writing
from calculon.launch.engines.engine_batches import (
    sequences_of_ranks,
    written_budget,
    written_sequences,
)
from calculon.launch.engines.engine_drafts import VLLM_DRAFTS
from calculon.launch.engines.engine_files import parse_server, render_flags, written_out
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
from calculon.launch.engines.engine_words import VLLM_NO_EFFECT, VLLM_NOT_MODELLED

_TP, _PP, _DP = "--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size"
_EP = "--enable-expert-parallel"
_SEQUENCES, _TOKENS = "--max-num-seqs", "--max-num-batched-tokens"
_UNCUT = "--no-enable-chunked-prefill"
_SHARE = "--gpu-memory-utilization"

_SHORT = {
    "-tp": _TP,
    "-pp": _PP,
    "-dp": _DP,
    "-q": "--quantization",
    "-ep": _EP,
    "-O": "--optimization-level",
}
_PROGRAM = re.compile(r"serve|vllm\.entrypoints(\.openai)?\.api_server|(.*/)?vllm-openai(:.*)?")
_SIGN = re.compile(
    r"\bvllm\s+serve\b|vllm\.entrypoints(\.openai)?\.api_server|vllm-openai(:\S+)?\s+(-|\\)"
)

_LARGE = 70 * GIB
_DEFAULTS = {True: (8192, 1024), False: (2048, 256)}
"""Token and sequence limits of a pass, by whether the GPU is large."""

_FRACTION = 0.9

_TYPES = TypeNames(
    dtype="--dtype",
    weights="--quantization",
    cache="--kv-cache-dtype",
    quantized={
        ("float8", "same"): "fp8 fbgemm_fp8 ptpc_fp8 modelopt",
        ("int4_g128", "same"): "awq awq_marlin gptq gptq_marlin",
        ("nvfp4", "same"): "modelopt_fp4",
        ("wide", "mxfp4"): "mxfp4",  # other weights of such checkpoints (gpt-oss) have 16 bits
    },
    caches={"float8": "fp8 fp8_e4m3 fp8_e5m2", "bfloat16": "bfloat16"},
)


def _read_split(reading: Reading, ranks: int, copies: int) -> tuple[int, int, int, int]:
    """Return ranks of a stage, attention ranks with their own requests, expert groups, and copies of the model.

    With expert parallelism, the ranks of all copies share the experts and form one replica; without it, copies count as
    replicas, as for models without experts.
    """
    if not reading.switch(_EP):
        return ranks, 1, 1, copies
    # vLLM has no degree of expert parallelism: the experts are sharded over all tensor- and data-parallel ranks.
    return ranks * copies, copies, ranks * copies, 1


def _write_split(writing: Writing) -> Fields:
    split, attention, groups = (writing[f"{n}_par"] for n in ("tensor", "attn_data", "expert"))
    if groups not in (1, split):
        raise writing.refuse("expert_par", f"1, {split}", f"--set expert_par={split}")
    if attention > 1 and groups == 1:
        wanted = "1, as experts are not split (expert_par=1)"
        raise writing.refuse("attn_data_par", wanted, f"--set expert_par={split}")
    found: Fields = {_TP: split // attention}
    found |= {_DP: attention} if attention > 1 else {}
    return found | ({_EP: True} if groups > 1 else {})


def _large(reading: Reading) -> bool:
    """Return true if the defaults for large GPUs apply; they do, with a note, if the machine is not known."""
    if reading.server is not None:
        return reading.server.memory >= _LARGE and "a100" not in reading.server.system.lower()
    absent = [name for name in (_SEQUENCES, _TOKENS) if name not in reading.parsed.settings]
    if absent:
        words = "vLLM's default on GPUs with at least 70 GiB except A100 is used"
        note = f"{' and '.join(absent)} not stated: {words}"
        reading.notes += [note] if note not in reading.notes else []
    return True


def _read_budget(reading: Reading) -> Fields:
    tokens, _ = _DEFAULTS[_large(reading)]
    if reading.parsed.settings.get(_UNCUT):
        reading.not_modelled(_UNCUT, "prompts are not chunked")
    return {"token_budget": reading.count(_TOKENS, default=tokens) or tokens}


def _read_sequences(reading: Reading) -> Fields:
    _, most = _DEFAULTS[_large(reading)]
    return sequences_of_ranks(reading, _SEQUENCES, most)


ROWS = (
    Degrees(_TP, _PP, _DP, (_EP,), _read_split, _write_split).row(),
    _TYPES.row(),
    VLLM_DRAFTS,
    row(
        "token_budget",
        f"{_TOKENS} --enable-chunked-prefill {_UNCUT}",
        _read_budget,
        lambda writing: written_budget(writing, _TOKENS),
    ),
    row(
        "max_batch",
        _SEQUENCES,
        _read_sequences,
        lambda writing: written_sequences(writing, _SEQUENCES),
    ),
    always("admission", "mean"),
    always("prefill_graphs", value=False),
    number("--block-size", "kv_block", 16),
    option("--enforce-eager", "graphs", on=False, off=True),
    option("--enable-dbo", "overlap", "two_batches", "none"),
    memory_share(
        _SHARE,
        "total",
        _FRACTION,
        lambda rank, share: share * rank.capacity - rank.weights - rank.activation,
        lambda rank, cache: (rank.weights + rank.activation + cache) / rank.capacity,
    ),
    largest_graph("--max-cudagraph-capture-size"),
    overlapped_host("--async-scheduling", "--no-async-scheduling"),
    passed_on("engine", "price", *OF_EXPERTS, *OF_HOST),
)

_KNOWN = frozenset(name for one in ROWS for name in one.settings)


def parse(text: str, file: str, variables: Mapping[str, str]) -> Parsed:
    """Return the flags of a command, and of its configuration."""
    parsed = parse_server(
        text,
        file,
        variables,
        program=_PROGRAM,
        name_of=partial(written_out, spellings=_SHORT),
        known=_KNOWN.__contains__,
    )
    named = parsed.settings.get("--model")
    checkpoint = (
        {} if named is None else {"checkpoint": Setting("checkpoint", named.value, named.place)}
    )
    settings = {name: one for name, one in parsed.settings.items() if name != "--model"}
    return Parsed(file, settings | checkpoint, None, parsed.notes)


VLLM = Dialect(
    name="vllm",
    title="vLLM",
    version="release 0.11 (2025-10)",
    preset="",
    rows=ROWS,
    no_effect=VLLM_NO_EFFECT,
    not_modelled=VLLM_NOT_MODELLED,
    parse=parse,
    render=partial(render_flags, command='vllm serve "$CHECKPOINT"'),
    recognizes=lambda text, _: _SIGN.search(text) is not None,
    subject="deployment",
)
