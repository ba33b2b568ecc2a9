"""Speculative decoding: rows of the draft method and the number of drafted tokens; no option states the acceptance.

Sources: docs.vllm.ai, *Speculative Decoding* (``SpeculativeConfig`` of release 0.11); docs.sglang.io, *Speculative
Decoding* (``NGRAM`` is recalled); nvidia.github.io/TensorRT-LLM, *Speculative Decoding* of release 1.0.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from calculon.launch.dialect import Fields, Reading, Row, Setting, Writing
from calculon.launch.engines.engine_files import COMMENTED
from calculon.launch.engines.engine_rows import row

_FIELDS = "draft draft_tokens acceptance accepted"
_OPEN: Fields = {"draft": "none", "draft_tokens": None, "acceptance": None, "accepted": None}
_OTHER = "speculative decoding with a separate draft model is set with --set draft=model:NAME"

_CONFIG = "--speculative-config"
_VLLM_MODULES = ("mtp", "deepseek_mtp", "mimo_mtp", "glm4_moe_mtp", "ernie_mtp", "qwen3_next_mtp")

_ALGORITHM, _DRAFT_MODEL = "--speculative-algorithm", "--speculative-draft-model-path"
_STEPS, _BRANCHES = "--speculative-num-steps", "--speculative-eagle-topk"
_DRAFTED = "--speculative-num-draft-tokens"

_KIND = "speculative_config.decoding_type"
_LAYERS, _LENGTH = "speculative_config.num_nextn_predict_layers", "speculative_config.max_draft_len"

Drafted = tuple[str, int | None]
"""Draft method, and number of drafted tokens; None for the number of the model's MTP modules."""


def _drafts(
    settings: str,
    read: Callable[[Reading], Drafted],
    write: Callable[[str, int | None], Fields],
) -> Row:
    """Return the row of speculative decoding, given functions that read and write an engine's options."""
    commented = ("acceptance", "accepted")

    def read_all(reading: Reading) -> Fields:
        draft, tokens = read(reading)
        shares = {name: reading.get(COMMENTED + name) for name in commented}
        return _OPEN | {"draft": draft, "draft_tokens": tokens} | shares

    def write_all(writing: Writing) -> Fields:
        draft, tokens = writing["draft"], writing["draft_tokens"]
        if draft not in ("none", "mtp", "ngram"):
            raise writing.refuse("draft", "none, mtp, ngram")
        found = {} if draft == "none" else write(draft, tokens)
        said = {COMMENTED + name: writing[name] for name in commented if writing[name] is not None}
        return found | said

    names = " ".join((settings, *(COMMENTED + name for name in commented)))
    return row(_FIELDS, names, read_all, write_all)


def _read_vllm(reading: Reading) -> Drafted:
    stated = reading.setting(_CONFIG)
    if stated is None or stated.value is None:
        return "none", None
    config = _document(reading, stated)
    tokens = config.get("num_speculative_tokens")
    count = tokens if type(tokens) is int else None
    method = str(config.get("method", ""))
    if method in _VLLM_MODULES:
        return "mtp", count
    if method == "ngram":
        return "ngram", count
    reading.not_modelled(_CONFIG, _OTHER)
    return "none", None


def _document(reading: Reading, stated: Setting) -> Mapping[str, Any]:
    """Return the object in a JSON text."""
    try:
        result = json.loads(str(stated.value))
    except (ValueError, RecursionError):  # RecursionError: lists or objects nested too deeply
        result = None
    if not isinstance(result, Mapping):
        raise reading.error(stated, "an object in JSON")
    return result


def _write_vllm(draft: str, tokens: int | None) -> Fields:
    config: Fields = {"method": draft}
    config |= {} if tokens is None else {"num_speculative_tokens": tokens}
    return {_CONFIG: json.dumps(config)}


VLLM_DRAFTS = _drafts(_CONFIG, _read_vllm, _write_vllm)


def _read_sglang(reading: Reading) -> Drafted:
    name = str(reading.get(_ALGORITHM, default="none")).upper()
    steps, drafted = reading.count(_STEPS), reading.count(_DRAFTED)
    branches = reading.count(_BRANCHES, default=1)
    # EAGLE without a draft model uses the MTP modules of the checkpoint, like NEXTN.
    of_its_own = name == "NEXTN" or (name == "EAGLE" and reading.get(_DRAFT_MODEL) is None)
    if name == "NONE":
        return "none", None
    if name == "NGRAM":
        return "ngram", drafted
    if of_its_own:
        if branches != 1:
            reading.not_modelled(_BRANCHES, "a tree of drafted tokens: a single branch is modeled")
        return "mtp", steps
    reading.not_modelled(_ALGORITHM, _OTHER)
    return "none", None


def _write_sglang(draft: str, tokens: int | None) -> Fields:
    if draft == "ngram":
        return {_ALGORITHM: "NGRAM", _DRAFTED: tokens}
    result: Fields = {_ALGORITHM: "NEXTN"}
    if tokens is not None:
        # SGLang counts the verified token as a drafted one, hence one more.
        result |= {_STEPS: tokens, _BRANCHES: 1, _DRAFTED: tokens + 1}
    return result


SGLANG_DRAFTS = _drafts(
    f"{_ALGORITHM} {_DRAFT_MODEL} {_STEPS} {_BRANCHES} {_DRAFTED}", _read_sglang, _write_sglang
)


def _read_tensorrt_llm(reading: Reading) -> Drafted:
    kind = str(reading.get(_KIND, default="none")).upper()
    layers, length = reading.count(_LAYERS), reading.count(_LENGTH)
    if kind == "NONE":
        return "none", None
    if kind == "MTP":
        return "mtp", layers if layers is not None else length
    if kind == "NGRAM":
        return "ngram", length
    reading.not_modelled(_KIND, _OTHER)
    return "none", None


def _write_tensorrt_llm(draft: str, tokens: int | None) -> Fields:
    kind, count = {"mtp": ("MTP", _LAYERS), "ngram": ("NGram", _LENGTH)}[draft]
    return {_KIND: kind} | ({} if tokens is None else {count: tokens})


TENSORRT_LLM_DRAFTS = _drafts(
    f"{_KIND} {_LAYERS} {_LENGTH}", _read_tensorrt_llm, _write_tensorrt_llm
)
