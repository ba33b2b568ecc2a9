"""Weight types of a released checkpoint (FP8, MXFP4, AWQ, GPTQ, ...), from ``quantization_config``.

A model file has no weight types; they are fields of a deployment. Therefore they become a hint with the fields to set.
Sources: Hugging Face Transformers, *Quantization* (``mxfp4``, ``fp8``, ``awq``, ``gptq``, ``compressed-tensors``);
NVIDIA Model Optimizer, ``hf_quant_config`` (``modelopt``).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from calculon.base.frozen import dataclass

KEY = "quantization_config"
_BLOCK = [128, 128]
_GROUP = 128
_ATTENTION = ("self_attn", "attention")

_TRAINED_IN = {
    "float8": ("fp8",),
    "float8_block": ("mxfp8", "fp8-blockwise"),
    "nvfp4": ("nvfp4",),
}
"""Training precisions by the type of released weights; each precision needs processors that support its recipe."""


def precisions_of(released: Mapping[str, Any]) -> tuple[str, ...]:
    """Return training precisions (``--dtype``) whose products read weights in the released format.

    >>> precisions_of({"weights_dtype": "float8_block"})
    ('mxfp8', 'fp8-blockwise')
    """
    return _TRAINED_IN.get(str(released.get("weights_dtype", "")), ())


@dataclass(frozen=True, slots=True)
class Quantized:
    """Quantized weights of a checkpoint.

    Attributes:
        words: Description in the words of the configuration.
        fields: Corresponding fields of a deployment; empty if no supported type has these bytes.
    """

    words: str
    fields: Mapping[str, str]

    @property
    def note(self) -> str:
        """Description of the weights, with the deployment options that state them."""
        if not self.fields:
            return (
                f"released weights are {self.words}: no weight type of a deployment has this size"
            )
        stated = " ".join(f"--set {name}={value}" for name, value in self.fields.items())
        return f"released weights are {self.words}; for a deployment: calculon serve ... {stated}"


def quantized_weights(raw: object) -> Quantized | None:
    """Return the weights described by a ``quantization_config``; None for an absent or unknown one.

    >>> quantized_weights({"quant_method": "mxfp4"}).fields
    {'experts_dtype': 'mxfp4'}
    >>> quantized_weights({"bits": 4}) is None
    True
    """
    if not isinstance(raw, Mapping):
        return None
    method = str(raw.get("quant_method", "")).lower()
    read = {
        "mxfp4": _mxfp4,
        "fp8": _fp8,
        "fbgemm_fp8": _fp8,
        "awq": _groups,
        "gptq": _groups,
        "compressed-tensors": _compressed,
        "modelopt": _modelopt,
    }.get(method)
    return None if read is None else read(method, raw)


def _mxfp4(method: str, raw: Mapping[str, Any]) -> Quantized:
    return Quantized("mxfp4 (experts)", {"experts_dtype": "mxfp4"})


def _fp8(method: str, raw: Mapping[str, Any]) -> Quantized:
    block = raw.get("weight_block_size")
    if block is None:
        return Quantized(method, {"weights_dtype": "float8"})
    words = f"fp8 with a scale for {block}"
    return Quantized(words, {"weights_dtype": "float8_block"} if block == _BLOCK else {})


def _groups(method: str, raw: Mapping[str, Any]) -> Quantized:
    bits, group = raw.get("bits", 4), raw.get("group_size", _GROUP)
    words = f"{method} of {bits} bits in groups of {group}"
    return Quantized(words, {"weights_dtype": "int4_g128"} if (bits, group) == (4, _GROUP) else {})


def _compressed(method: str, raw: Mapping[str, Any]) -> Quantized:
    groups = raw.get("config_groups")
    inside = groups.values() if isinstance(groups, Mapping) else ()
    found = [one["weights"] for one in inside if isinstance(one, Mapping) and one.get("weights")]
    known = {_type_of(one) for one in found if isinstance(one, Mapping)}
    first = found[0] if found and isinstance(found[0], Mapping) else {}
    words = f"{method} of {first.get('num_bits', '?')} bits ({first.get('type', '?')})"
    kept = _names(raw.get("ignore"))
    cache = _cache(raw.get("kv_cache_scheme"))
    if len(known) != 1 or "" in known:
        return Quantized(words, cache)
    # Checkpoints that keep attention in 16 bits quantize only the experts.
    where = "experts_dtype" if _attention_is_wide(kept) else "weights_dtype"
    return Quantized(words, {where: known.pop(), **cache})


def _type_of(weights: Mapping[str, Any]) -> str:
    """Return the weight type with the same number of bytes; empty if there is none."""
    bits, kind = weights.get("num_bits"), weights.get("type")
    group = weights.get("group_size")
    if (bits, kind) == (8, "float"):
        block = weights.get("block_structure")
        return "float8_block" if block == _BLOCK else "float8" if block is None else ""
    if (bits, kind) == (8, "int"):
        return "int8"
    if (bits, kind) == (4, "int"):
        return "int4_g128" if group == _GROUP else ""
    return {16: "nvfp4", 32: "mxfp4"}.get(group or 0, "") if (bits, kind) == (4, "float") else ""


def _modelopt(method: str, raw: Mapping[str, Any]) -> Quantized:
    algorithm = str(raw.get("quant_algo", "")).upper()
    found = {"FP8": "float8", "NVFP4": "nvfp4", "W4A16_AWQ": "int4_g128"}.get(algorithm)
    cache = str(raw.get("kv_cache_quant_algo", "")).upper() == "FP8"
    fields = {"weights_dtype": found} if found else {}
    return Quantized(f"{method} {algorithm}", fields | ({"kv_dtype": "float8"} if cache else {}))


def _cache(scheme: object) -> dict[str, str]:
    """Return the deployment field for a KV-cache scheme."""
    if not isinstance(scheme, Mapping) or scheme.get("num_bits") != 8:
        return {}
    return {"kv_dtype": "float8" if scheme.get("type") == "float" else "int8"}


def _names(listed: object) -> list[str]:
    return [str(one) for one in listed] if isinstance(listed, list) else []


def _attention_is_wide(kept: Iterable[str]) -> bool:
    """Return True if attention keeps 16 bits, so that only experts are quantized."""
    return any(word in name for name in kept for word in _ATTENTION)
