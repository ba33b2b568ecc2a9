"""Words of plans as keyword arguments: ``estimate(model, plan, system, tp=4)``."""

from collections.abc import Mapping
from typing import Any

from calculon import inputs
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.spellings.plan_pairs import (
    ASKED,
    fields_of_words,
    is_plan,
    is_worded,
    pairs_of,
    plan_fields,
)


def with_plan_words(call: str, source: Any, words: Mapping[str, Any], model: Model) -> Any:
    """Return the source of an execution with further values by the words of plans; of these alone without a source.

    Args:
        call: The function, for messages.
        source: The execution; None without one.
        words: Values by name: ``{"tp": 4, "batch": "4M"}``.
        model: Model that the plan runs.

    Raises:
        SpecError: For an unknown word.
    """
    if not words:
        return source
    texts = pairs_of(words)
    asked = {name: text for name, text in texts.items() if name in ASKED}
    fields = plan_fields({n: t for n, t in texts.items() if n not in asked}, call, ASKED)
    if source is None or is_plan(source):
        pairs = (f"{name}={text}" for name, text in texts.items())
        return " ".join((*([] if source is None else [source]), *pairs))
    if is_worded(source):
        return {**source, **words}
    base = source.to_dict() if isinstance(source, Execution) else source
    return inputs.Changed.of(base, {**_fields_asked(call, asked, base, model), **fields})


def _fields_asked(call: str, asked: Mapping[str, str], source: Any, model: Model) -> dict[str, Any]:
    """Return the execution fields of words such as ``batch``, which counts in sequences of the execution's length."""
    length = 0  # without a batch only a stated length matters, and the source need not be read
    if "batch" in asked:
        length = inputs.stated_execution(source)[0].get("seq_length") or model.seq_size
    return fields_of_words(asked, int(length), call)
