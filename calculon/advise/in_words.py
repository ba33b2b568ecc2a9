"""Plans and their statistics in words."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from calculon.base.units import chance, duration, gib
from calculon.declarations.axes import AXES
from calculon.declarations.execution import Execution
from calculon.declarations.plan_words import NO_RECOMPUTE, choices_words, plan_words, recomputes
from calculon.declarations.preset_file import plain
from calculon.declarations.presets import find_preset
from calculon.estimate.estimate import Estimate
from calculon.plan.columns import DEFAULTS, field_of
from calculon.plan.plan import all_fields


def plan_in_words(execution: Execution) -> str:
    """Return the split of an execution, and the fields that differ from its preset.

    >>> from calculon import inputs
    >>> plan_in_words(inputs.execution("llama3-8B_h100x64"))
    'TP 2, DP 32, microbatch 2, ZeRO-1, sequence parallel'
    """
    fields = all_fields(execution)
    return plan_words(fields, find_preset(execution.preset).usual(fields))


_SIZES = {
    **{axis.degree: axis.name.upper() for axis in AXES},
    "expert_tensor_par": "ETP",
    "pipeline_interleaving": "chunks",
    "microbatch_size": "microbatch",
    "batch_size": "batch",
    "seq_length": "sequences of",
    "num_procs": "processors",
}
"""Fields that a number describes completely, with their words."""

PRESET = "preset"


def change_in_words(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    names: Sequence[str],
    along: Collection[str] = (),
) -> str:
    """Describe a decision to change some fields of an execution, without the fields that follow from it.

    Fields that follow from another preset are described, because its name does not imply them.

    Args:
        before, after: Fields of the execution before and after the change.
        names: Fields that were decided; ``data_par`` is included if other degrees change it.
        along: Fields that follow; described only if the preset changes.

    Returns:
        A text such as ``TP 8 -> 4, DP 8 -> 16`` or ``ZeRO-1 -> FSDP``.

    Examples:
        >>> from calculon import inputs
        >>> one = inputs.execution("llama3-8B_h100x64").to_dict()
        >>> change_in_words(one, {**one, "tensor_par": 4, "data_par": 16}, ["tensor_par"])
        'TP 2 -> 4, DP 32 -> 16'
        >>> change_in_words(one, {**one, "zero_stage": "fsdp"}, ["zero_stage"])
        'ZeRO-1 -> FSDP'
        >>> change_in_words({**one, "seq_length": 4096}, one, ["seq_length"])
        "sequences of 4,096 -> the model's length"
    """
    listed = [name for name in _SIZES if name in names]
    if before["data_par"] != after["data_par"] and "data_par" not in listed:
        listed.append("data_par")
    words = [_size_in_words(name, before, after) for name in listed]
    rest = [name for name in names if name not in _SIZES]
    said = ", ".join((*words, *_choices_in_words(before, after, rest)))
    if PRESET not in names:
        return said
    others = [name for name in along if name not in (*names, *listed)]
    sizes = [_size_in_words(name, before, after) for name in _SIZES if name in others]
    choices = [name for name in others if name not in _SIZES]
    also = (*sizes, *_choices_in_words(before, after, choices))
    return f"{said}, with {', '.join(also)}" if also else said


def _size_in_words(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    known = field_of(name).declaration.words
    values = (known.get(one[name], f"{one[name]:,}") for one in (before, after))
    return f"{_SIZES[name]} {' -> '.join(values)}"


def _choices_in_words(
    before: Mapping[str, Any], after: Mapping[str, Any], names: Sequence[str]
) -> Iterator[str]:
    """Yield descriptions of changed choices."""
    if not names:
        return
    usual = find_preset(before["preset"]).usual(before)
    then = {**before, **{name: after[name] for name in names}}
    old, new = (choices_words(one, usual) for one in (before, then))
    lost, won = ([w for w in one if w not in other] for one, other in ((old, new), (new, old)))
    if lost and not won and recomputes(before) and not recomputes(then):
        won = [NO_RECOMPUTE]
    # As many words disappear as appear: they are pairs of old and new values.
    if len(lost) == len(won) and lost:
        for one, other in zip(lost, won, strict=True):
            yield other if one.startswith("no ") else f"{one} -> {other}"
    elif lost or won:
        yield from won
        usual_again = all(name in DEFAULTS for name in names)
        for word in lost:
            if word.startswith("no "):
                yield word.removeprefix("no ")
            else:
                yield f"{word} -> default" if usual_again else f"no {word}"
    else:
        yield from (f"{n} {plain(before[n])} -> {plain(after[n])}" for n in names)


def memory_and_time(plan_estimate: Estimate) -> str:
    """Describe memory, risk of running out of it, and the time of a step rounded by its prediction interval."""
    time, belief = plan_estimate.stats["total_time"] or 0.0, plan_estimate.belief
    error = 0.0 if belief is None else (belief.high - belief.low) / 2
    memory = gib(plan_estimate.stats["proc_mem_tier1_cap_req"] or 0.0)
    known = None if belief is None else belief.memory
    risk = "" if known is None else f", OOM risk {chance(1 - known.fits)}"
    return f"{memory}, {duration(time, error)} a step{risk}"
