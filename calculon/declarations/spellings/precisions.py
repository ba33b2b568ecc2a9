"""Parse precisions: ``bf16``, ``half``, ``tf32``, and ``fp8``, which selects a recipe."""

from collections.abc import Mapping
from typing import Any

from calculon.base.errors import Problem, SpecError, nearest
from calculon.declarations.fields import shown
from calculon.declarations.recipes import NO_RECIPE

PRECISIONS: Mapping[str, Mapping[str, str]] = {
    "bf16": {"datatype": "bfloat16"},
    "fp16": {"datatype": "float16"},
    "fp32": {"datatype": "float32"},
    "tf32": {"datatype": "float32", "matmul_dtype": "tfloat32"},
    "fp8": {"datatype": "bfloat16", "fp8_recipe": "delayed"},
    "fp8-tensorwise": {"datatype": "bfloat16", "fp8_recipe": "tensorwise"},
    "fp8-blockwise": {"datatype": "bfloat16", "fp8_recipe": "blockwise"},
    "mxfp8": {"datatype": "bfloat16", "fp8_recipe": "mxfp8"},
    "nvfp4": {"datatype": "bfloat16", "fp8_recipe": "nvfp4"},
    "nvfp4-plain": {"datatype": "bfloat16", "fp8_recipe": "nvfp4_plain"},
}
"""Execution fields of each precision.

``fp8``, like the words after it, is a recipe: products have 8-bit operands, all else is stored in bfloat16, and scales
come from the largest values of earlier steps. Sources: Micikevicius et al., FP8 Formats for Deep Learning
(arXiv:2209.05433), section 4; NVIDIA Transformer Engine, ``recipe.DelayedScaling``, the default recipe of
``fp8_autocast`` (Hopper), and of Megatron-LM's ``--fp8-format``.
"""

_WORDS = {
    **dict.fromkeys(("bf16", "bfloat16", "brain16"), "bf16"),
    **dict.fromkeys(("fp16", "f16", "float16", "half"), "fp16"),
    **dict.fromkeys(("fp32", "f32", "float32", "single", "full"), "fp32"),
    **dict.fromkeys(("tf32", "tfloat32", "tensorfloat32"), "tf32"),
    **dict.fromkeys(("fp8", "float8"), "fp8"),
    **dict.fromkeys(("fp8hybrid", "fp8delayed"), "fp8"),
    **dict.fromkeys(("fp8tensorwise", "fp8current", "fp8currentscaling"), "fp8-tensorwise"),
    **dict.fromkeys(("fp8blockwise", "fp8block"), "fp8-blockwise"),
    **dict.fromkeys(("mxfp8", "fp8mx", "fp8mxfp8"), "mxfp8"),
    **dict.fromkeys(("nvfp4", "fp4", "float4"), "nvfp4"),
    **dict.fromkeys(("nvfp4plain", "fp4plain"), "nvfp4-plain"),
}
_PARTS = ("torch.", "mixed", "amp", "precision", "training", "-", "_", " ", ".")


def precision(text: str, name: str = "precision") -> Mapping[str, str]:
    """Return the execution fields of a precision.

    Args:
        text: A precision in either case, with or without additions of frameworks (``bf16-mixed``, ``torch.bfloat16``).
        name: Name of the argument, for messages.

    Raises:
        SpecError: For any other word.

    Examples:
        >>> precision("bf16"), precision("half")
        ({'datatype': 'bfloat16'}, {'datatype': 'float16'})
        >>> precision("fp8")
        {'datatype': 'bfloat16', 'fp8_recipe': 'delayed'}
    """
    word = text.strip().lower()
    for part in _PARTS:
        word = word.replace(part, "")
    if word not in _WORDS:
        wanted = "one of " + ", ".join(PRECISIONS)
        raise SpecError(name, Problem("", wanted, shown(text), nearest(word, [*_WORDS])))
    return PRECISIONS[_WORDS[word]]


def precision_word(execution: Mapping[str, Any]) -> str | None:
    """Return the precision of an execution as a word; None if there is none.

    >>> precision_word({"datatype": "bfloat16", "fp8_recipe": "blockwise"})
    'fp8-blockwise'
    """
    recipe = execution.get("fp8_recipe", NO_RECIPE)
    kinds = {"datatype": execution["datatype"]}
    if recipe != NO_RECIPE:
        kinds["fp8_recipe"] = recipe
    return next((word for word, fields in PRECISIONS.items() if fields == kinds), None)


_TYPES = {
    "fp8": "float8",
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "tf32": "tfloat32",
}


def number_type(text: Any) -> Any:
    """Return the number type that a short word means; return any other value unchanged.

    >>> number_type("FP8"), number_type("mxfp4")
    ('float8', 'mxfp4')
    """
    return _TYPES.get(text.lower(), text) if isinstance(text, str) else text


def with_number_types(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields with number types in the words of files: ``fp8`` is ``float8``.

    >>> with_number_types({"weights_dtype": "fp8", "kv_dtype": ("bf16", "fp8"), "max_batch": 8})
    {'weights_dtype': 'float8', 'kv_dtype': ('bfloat16', 'float8'), 'max_batch': 8}
    """
    return {name: _types(one) if name.endswith("dtype") else one for name, one in fields.items()}


def _types(value: Any) -> Any:
    several = isinstance(value, (list, tuple))
    return type(value)(map(number_type, value)) if several else number_type(value)
