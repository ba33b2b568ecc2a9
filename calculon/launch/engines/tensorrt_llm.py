"""TensorRT-LLM: the options of ``trtllm-serve`` and of its YAML configuration.

Sources: nvidia.github.io/TensorRT-LLM, *trtllm-serve*, *LLM API reference* (``LlmArgs``, ``KvCacheConfig``) and *How to
Change KV Cache Behavior*, of release 1.0: names and defaults; ``tokens_per_block`` 32 and the policy
``GUARANTEED_NO_EVICT`` are recalled. ``free_gpu_memory_fraction`` is a share of the memory that weights and buffers
leave free, like our ``memory_fraction``. Weight types are the checkpoint's. The PyTorch backend has CUDA graphs for
passes that only decode.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from calculon.launch.dialect import Dialect, Fields, Reading, Writing, plain
from calculon.launch.engines.engine_batches import (
    sequences_of_ranks,
    written_budget,
    written_sequences,
)
from calculon.launch.engines.engine_drafts import TENSORRT_LLM_DRAFTS
from calculon.launch.engines.engine_files import (
    COMMENTED,
    commented_fields,
    parse_server,
    render_server,
)
from calculon.launch.engines.engine_rows import (
    OF_EXPERTS,
    OF_HOST,
    Degrees,
    TypeNames,
    always,
    largest_graph,
    number,
    only_read,
    overlapped_host,
    passed_on,
    row,
    share_in,
)
from calculon.launch.engines.engine_words import TENSORRT_LLM_NO_EFFECT, TENSORRT_LLM_NOT_MODELLED
from calculon.launch.texts.tree import nested
from calculon.launch.texts.yaml_config import yaml_lines

_TP, _PP, _EP = "tensor_parallel_size", "pipeline_parallel_size", "moe_expert_parallel_size"
_SEQUENCES, _TOKENS, _CHUNKED = "max_batch_size", "max_num_tokens", "enable_chunked_prefill"
_ATTENTION_DP = "enable_attention_dp"
_SHARE = "kv_cache_config.free_gpu_memory_fraction"
_POLICY = "scheduler_config.capacity_scheduler_policy"
_GRAPHS = "cuda_graph_config"

_FLAGS = {
    "tp_size": _TP,
    "pp_size": _PP,
    "ep_size": _EP,
    "kv_cache_free_gpu_memory_fraction": _SHARE,
    "free_gpu_memory_fraction": _SHARE,
    "kv_cache_dtype": "kv_cache_config.dtype",
}
"""Flags that are named differently in the configuration."""

CONFIGURATION = "--extra_llm_api_options"
"""Flag that names the configuration."""

_ON_THE_LINE = {_TP: "--tp_size", _PP: "--pp_size", _EP: "--ep_size"} | {
    name: f"--{name}" for name in (_SEQUENCES, _TOKENS, "host", "port")
}
"""Settings that are written as flags; all others are written into the configuration."""

_POLICIES = {"GUARANTEED_NO_EVICT": "reserve", "MAX_UTILIZATION": "mean"}
_SEQUENCES_DEFAULT, _TOKENS_DEFAULT, _SHARE_DEFAULT = 2048, 8192, 0.9

_PROGRAM = re.compile(r"trtllm-serve|serve|trtllm-llmapi-launch")
_SIGN = re.compile(r"\btrtllm-serve\b")
_KEYS = re.compile(
    r"^(kv_cache_config|cuda_graph_config|max_num_tokens|enable_attention_dp|"
    r"moe_expert_parallel_size|max_batch_size|tensor_parallel_size)\s*:",
    re.MULTILINE,
)
_SURE = 3
"""Least number of known keys in a configuration without a command."""

_TYPES = TypeNames(
    dtype="dtype",
    weights="",
    cache="kv_cache_config.dtype",
    quantized={},
    caches={"float8": "fp8", "int8": "int8"},
)


def _read_split(reading: Reading, ranks: int, copies: int) -> tuple[int, int, int, int]:
    """Return ranks of a stage, attention ranks with their own requests, expert groups, and copies of the model."""
    groups = reading.count(_EP, default=1) or 1
    attention = ranks if reading.switch(_ATTENTION_DP) else 1
    return ranks, attention, 1 if groups < 0 else groups, copies


def _write_split(writing: Writing) -> Fields:
    split, attention = writing["tensor_par"], writing["attn_data_par"]
    if attention not in (1, split):
        raise writing.refuse("attn_data_par", f"1, {split}", f"--set attn_data_par={split}")
    found: Fields = {_TP: split}
    found |= {_EP: writing["expert_par"]} if writing["expert_par"] > 1 else {}
    return found | ({_ATTENTION_DP: True} if attention > 1 else {})


def _read_budget(reading: Reading) -> Fields:
    if not reading.switch(_CHUNKED):
        reading.notes.append(f"{_CHUNKED} is off: prompts longer than {_TOKENS} are refused")
    return {"token_budget": reading.count(_TOKENS, default=_TOKENS_DEFAULT) or _TOKENS_DEFAULT}


def _read_sequences(reading: Reading) -> Fields:
    return sequences_of_ranks(reading, _SEQUENCES, _SEQUENCES_DEFAULT)


def _read_admission(reading: Reading) -> Fields:
    found = reading.stated(_POLICY, default="GUARANTEED_NO_EVICT")
    return {"admission": _POLICIES[reading.choice(found, _POLICIES)]}


def _read_graphs(reading: Reading) -> Fields:
    return {"graphs": reading.get(_GRAPHS, default=True) is not None}


def _read_graph_sizes(reading: Reading) -> Fields:
    found = reading.setting(f"{_GRAPHS}.batch_sizes")
    sizes = found.value if found is not None and isinstance(found.value, (list, tuple)) else ()
    known = [one for one in sizes if type(one) is int and one > 0]
    return {"graph_tokens": max(known)} if known else {}


def _read_share(reading: Reading) -> Fields:
    share = share_in(reading, reading.stated(_SHARE, default=_SHARE_DEFAULT))
    kept = reading.get(f"{COMMENTED}reserve_gib")
    return {"memory_fraction": share, **({} if kept is None else {"reserve_gib": kept})}


ROWS = (
    Degrees(_TP, _PP, "", (_EP, _ATTENTION_DP), _read_split, _write_split).row(),
    _TYPES.row(),
    TENSORRT_LLM_DRAFTS,
    row(
        "token_budget",
        f"{_TOKENS} {_CHUNKED}",
        _read_budget,
        lambda writing: written_budget(writing, _TOKENS) | {_CHUNKED: True},
    ),
    row(
        "max_batch",
        _SEQUENCES,
        _read_sequences,
        lambda writing: written_sequences(writing, _SEQUENCES),
    ),
    row(
        "admission",
        _POLICY,
        _read_admission,
        lambda writing: {} if writing["admission"] == "reserve" else {_POLICY: "MAX_UTILIZATION"},
    ),
    number("kv_cache_config.tokens_per_block", "kv_block", 32),
    row(
        "graphs",
        _GRAPHS,
        _read_graphs,
        lambda writing: {} if writing["graphs"] else {_GRAPHS: None},
    ),
    always("prefill_graphs", value=False),
    row(
        "memory_fraction",
        f"{_SHARE} {COMMENTED}reserve_gib",
        _read_share,
        lambda writing: {_SHARE: writing["memory_fraction"]},
    ),
    largest_graph(f"{_GRAPHS}.max_batch_size"),
    only_read(f"{_GRAPHS}.batch_sizes", _read_graph_sizes),
    overlapped_host("", "disable_overlap_scheduler"),
    passed_on("engine", "price", *OF_EXPERTS, *OF_HOST),
)

_KNOWN = frozenset(name for one in ROWS for name in one.settings)


def name_of(word: str) -> str:
    """Return the name of a flag's setting in the configuration.

    >>> name_of("--tp_size=4"), name_of("--max-num-tokens")
    ('tensor_parallel_size', 'max_num_tokens')
    """
    name = word.partition("=")[0].lstrip("-").replace("-", "_")
    return _FLAGS.get(name, name)


def recognizes(text: str, file: str) -> bool:
    """Return true if a text starts TensorRT-LLM, or is its configuration."""
    if file.endswith((".yaml", ".yml")):
        # Single keys occur in YAML files of other tools; several of them only in this one.
        return len({found[1] for found in _KEYS.finditer(text)}) >= _SURE
    return _SIGN.search(text) is not None


def _value(value: object) -> str:
    return "null" if value is None else plain(value)


def flags_and_configuration(settings: Mapping[str, Any]) -> tuple[Fields, Fields]:
    """Return the settings that are flags of ``trtllm-serve``, and the others as its nested configuration."""
    flags = {_ON_THE_LINE[n]: value for n, value in settings.items() if n in _ON_THE_LINE}
    inside = {
        name: value
        for name, value in settings.items()
        if name not in _ON_THE_LINE and not name.startswith(COMMENTED)
    }
    return flags, nested(inside)


def render(settings: Mapping[str, Any], processors: int, head: Sequence[str]) -> str:
    """Return a script that writes the configuration and starts a replica."""
    del processors
    flags, inside = flags_and_configuration(settings)
    document = ["cat > config.yaml << 'EOF'", *yaml_lines(inside, _value), "EOF", ""]
    flags[CONFIGURATION] = "config.yaml"
    return render_server(
        'trtllm-serve "$CHECKPOINT"', flags, head, commented_fields(settings), document
    )


TENSORRT_LLM = Dialect(
    name="tensorrt-llm",
    title="TensorRT-LLM",
    version="release 1.0 (2025-09)",
    preset="",
    rows=ROWS,
    no_effect=TENSORRT_LLM_NO_EFFECT,
    not_modelled=TENSORRT_LLM_NOT_MODELLED,
    parse=partial(
        parse_server,
        program=_PROGRAM,
        name_of=name_of,
        known=_KNOWN.__contains__,
        key_of=lambda key: _FLAGS.get(key, key),
    ),
    render=render,
    recognizes=recognizes,
    subject="deployment",
)
