"""Parse plans written as pairs: ``tp=8 pp=4 mbs=1``."""

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from calculon.base.errors import Problem, SpecError, nearest
from calculon.declarations.axes import MESH_AXES, STATED_DEGREES
from calculon.declarations.catalog import exact
from calculon.declarations.execution import Execution
from calculon.declarations.fields import SpecField, spec_fields
from calculon.declarations.plan_words import RECOMPUTED, recomputed_modules
from calculon.declarations.short_names import FIELDS as SHORT
from calculon.declarations.short_names import QUESTION_WORDS, field_name, field_value
from calculon.declarations.spellings.amounts import global_batch, sequence_length
from calculon.declarations.spellings.precisions import precision
from calculon.declarations.spellings.processor_counts import processor_counts
from calculon.declarations.usual_batch import requested_batch, requested_length

_KNOWN = {one.name: one for one in spec_fields(Execution)}


def is_plan(source: object) -> bool:
    """Return True if the source of an execution is a plan in pairs.

    It is not a file, and some of its names are known or all of its values are numbers.
    >>> is_plan("tp=8 pp=4"), is_plan("tpp=8"), is_plan("best.json"), is_plan("mine=run.sh"), is_plan({"tensor_par": 8})
    (True, True, False, False, False)
    """
    if not isinstance(source, str) or "=" not in source or os.path.exists(source):  # noqa: PTH110
        return False
    pairs = pairs_of(source)
    # `mine=run.sh` labels a file in a comparison; values that are numbers indicate a plan with a misspelled name.
    numbers = all(re.fullmatch(r"\d+[kKM]?", value) for value in pairs.values())
    return numbers or any(field_name(one) in _KNOWN or one in ASKED for one in pairs)


ASKED = tuple(QUESTION_WORDS.values())
"""Words of a question that a plan in pairs may contain."""


def is_worded(source: object) -> bool:
    """Return True if a mapping, or the columns of a table, name fields by the words of plans.

    >>> is_worded({"tp": 8, "batch": "4M"}), is_worded({"tensor_par": 8}), is_worded("tp=8")
    (True, False, False)
    """
    return isinstance(source, Mapping) and any(map(is_word_only, source))


def is_word_only(name: object) -> bool:
    """Return True for a word of plans that is not the name of a field: ``tp``, ``batch``."""
    text = str(name)
    return text not in _KNOWN and (field_name(text) in _KNOWN or text in ASKED)


def _text(name: str, value: Any) -> str:
    field = _KNOWN.get(field_name(name))
    # Texts are checked as they are written.
    if field is None or isinstance(value, str):
        return str(value)
    return str(field.declaration.plain(value))


def pairs_of(plan: str | Mapping[Any, Any]) -> dict[str, str]:
    """Return the pairs of a plan, a text or a mapping, as texts by name; raise SpecError for a repeated name.

    >>> pairs_of("tp=8, pp=4"), pairs_of({"tp": 8, "recompute_modules": ["core_attn", "mlp"]})
    ({'tp': '8', 'pp': '4'}, {'tp': '8', 'recompute_modules': 'core_attn+mlp'})
    """
    if not isinstance(plan, str):
        return {str(name): _text(str(name), value) for name, value in plan.items()}
    result: dict[str, str] = {}
    for part in in_blanks(plan).split():
        name, _, value = part.partition("=")
        if name in result and "=" in part:  # words without a value are reported as unknown names
            raise SpecError("plan", Problem(name, "one value", f"{result[name]} and {value}"))
        result[name] = value
    return result


def in_blanks(text: str) -> str:
    """Return a plan with blanks between its pairs, without commas.

    >>> in_blanks("tp=8,pp=4,  mbs=1"), in_blanks("stage_blocks=[9, 8, 7], dp=2"), in_blanks("stage_blocks=Et | t*2 L")
    ('tp=8 pp=4 mbs=1', 'stage_blocks=9-8-7 dp=2', 'stage_blocks=Et|t*2L')
    """
    return _STAGE_LIST.sub(_without_blanks, " ".join(re.split(r"[,\s]+", text.strip(", "))))


_STAGE_LIST = re.compile(r"(?<!\S)(stage_blocks=)(.*?)(?= [^ =]+=|$)")
"""Blocks of stages in a plan: a list, or a layout in letters, up to the next pair."""


def _without_blanks(found: re.Match[str]) -> str:
    """Return a list of blocks with ``-`` between its counts, or a layout in letters without blanks."""
    between = "" if re.search(r"[EtmL|]", found[2]) else "-"
    return found[1] + between.join(re.findall(r"[^ \[\]]+", found[2]))


def plan_fields(pairs: Mapping[Any, Any], place: str, others: Sequence[str] = ()) -> dict[str, Any]:
    """Return the execution fields stated by pairs of short or full names and values.

    Args:
        pairs: Values by name.
        place: The argument, for messages.
        others: Further allowed names of the argument, for messages.

    Raises:
        SpecError: With every name that is not an execution field.

    Examples:
        >>> plan_fields({"tp": "8", "sp": "on"}, "plan")
        {'tensor_par': 8, 'tensor_par_comm_type': 'rs_ag'}
    """
    problems: list[Problem] = []
    fields = {}
    for name, value in pairs.items():
        field = field_name(str(name))
        modules = recomputed_modules(str(value)) if field == "activation_recompute" else ""
        if modules:
            fields["recompute_modules"] = modules
        elif field == "activation_recompute" and (wrong := _not_recomputed(str(name), value)):
            problems.append(wrong)
        elif field not in _KNOWN:
            wanted = f"a field of an execution, or one of {', '.join((*SHORT, *others))}"
            hint = _MEANT.get(str(name).lower()) or nearest(str(name), [*SHORT, *_KNOWN, *others])
            problems.append(Problem(str(name), wanted, "an unknown name", hint))
        else:
            fields[field] = _value(_KNOWN[field], str(name), value)
    if problems:
        raise SpecError(place, problems)
    return fields


_MEANT = {
    **dict.fromkeys(("fsdp", "fsdp2", "full_shard"), "zero=fsdp shards parameters"),
    **dict.fromkeys(("zero1", "zero2", "zero3"), "write zero=1, zero=2 or zero=3"),
    **dict.fromkeys(("ddp", "dp_size"), "dp=N states the data parallelism"),
}
"""Hints for names that people write in a plan."""


def _not_recomputed(name: str, value: Any) -> Problem | None:
    """Return the problem with a value of activation recomputation: neither a published value nor modules; or None."""
    known = _KNOWN["activation_recompute"].declaration.choices
    text = field_value(name, str(value).strip())
    if text in known:
        return None
    words = [*known, *RECOMPUTED]
    parts = (nearest(one, words) for one in text.split("+") if one not in words)
    wanted = f"one of {', '.join(words)}, or several of these modules joined by +"
    return Problem(name, wanted, repr(value), next(filter(None, parts), ""))


def _value(field: SpecField, name: str, value: Any) -> Any:
    """Return a value in the form of files; the decoder reports invalid ones."""
    text = field_value(name, str(value).strip())
    if field.declaration.choices:
        return text
    if field.annotation is bool:
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), value)
    return int(text) if re.fullmatch(r"-?[0-9]+", text) else value


def _problem(name: str, value: Any) -> Problem | None:
    """Return the problem with a degree or a number of processors, or None."""
    field = _KNOWN[name]
    return field.declaration.problem(field.annotation, value, name)


def whole_plan(
    stated: Mapping[str, str], seq_size: int, usual: Callable[[Mapping[str, Any]], str]
) -> dict[str, Any]:
    """Return a plan in pairs as an execution of edition ``corrected``, completed with usual values.

    In addition to execution fields it may state ``procs``, ``batch``, ``seq``, ``dtype`` and ``preset``, like the
    options of ``calculon plan``, with the same defaults.

    Args:
        stated: The pairs of the plan (:func:`pairs_of`).
        seq_size: Sequence length of the model in tokens.
        usual: Function that returns the default preset of an execution
            (:func:`calculon.declarations.presets.usual_preset`).

    Raises:
        SpecError: With every unknown name, and for an invalid value.

    Examples:
        >>> whole_plan(pairs_of("tp=8 dp=2 batch=64 seq=4k"), 8192, lambda fields: "megatron-lm")
        {'datatype': 'bfloat16', 'seq_length': 4096, 'batch_size': 64, 'tensor_par': 8, 'pipeline_par': 1,
        'data_par': 2, 'preset': 'megatron-lm'}
    """
    asked, pairs = words_and_pairs(stated)
    fields = plan_fields(pairs, "plan", ASKED)
    length = requested_length(asked.get("seq"), seq_size)
    said = fields_of_words({"dtype": "bf16", **asked, "seq": str(length)}, seq_size, "plan")
    found: dict[str, Any] = {**said, **dict.fromkeys(STATED_DEGREES, 1), **fields}
    if "num_procs" not in found:
        # Without a processor count, the product of the degrees determines it.
        found.setdefault("data_par", 1)
    degrees = {axis.degree: found.get(axis.degree, 1) for axis in MESH_AXES}
    wrong = [one for name, degree in degrees.items() if (one := _problem(name, degree))]
    if wrong:
        raise SpecError("plan", wrong)
    procs = found.get("num_procs") or math.prod(degrees.values())
    if "batch_size" not in found:
        found["batch_size"] = requested_batch(None, procs if isinstance(procs, int) else 1, length)
    return found if "preset" in found else {**found, "preset": usual(found)}


def words_and_pairs(stated: Mapping[Any, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the question words among the pairs of a plan, and its other pairs.

    >>> words_and_pairs({"tp": 8, "batch": "4M"})
    ({'batch': '4M'}, {'tp': 8})
    """
    asked = {word: str(stated[word]) for word in ASKED if word in stated}
    return asked, {str(name): value for name, value in stated.items() if name not in asked}


def fields_of_words(asked: Mapping[str, str], seq_size: int, place: str) -> dict[str, Any]:
    """Return the execution fields stated by the words of a question.

    Args:
        asked: Values by word: some of :data:`ASKED`.
        seq_size: Sequence length of the model in tokens.
        place: The argument, for messages.

    Raises:
        SpecError: For an invalid value.

    Examples:
        >>> fields_of_words({"batch": "4M", "seq": "4k", "dtype": "bf16"}, 8192, "plan")
        {'datatype': 'bfloat16', 'seq_length': 4096, 'batch_size': 1024}
    """
    length = sequence_length(asked["seq"]) if "seq" in asked else seq_size
    result: dict[str, Any] = {}
    if "preset" in asked:
        named, at, month = asked["preset"].partition("@")
        result["preset"] = exact("preset", named) + at + month
    if "dtype" in asked:
        result |= precision(asked["dtype"])
    if length != seq_size:
        result["seq_length"] = length
    if "procs" in asked:
        counts = processor_counts(asked["procs"], "procs")
        if len(counts) > 1:
            raise SpecError(place, Problem("procs", "one number of processors", asked["procs"]))
        result["num_procs"] = counts[0]
    if "batch" in asked:
        result["batch_size"] = global_batch(asked["batch"], length).sequences
    return result
