"""Refuse to restrict or widen spaces where that leaves nothing, or changes nothing, before any work."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from calculon.errors import Problem, SpecError
from calculon.plan.divisors import divisors
from calculon.plan.plan import DEFAULTS
from calculon.plan.rules.data_rules import NEEDS
from calculon.search.one import count_space
from calculon.search.space import Space, Values

_SHOWN = 12


def check_effect(spaces: Sequence[Space]) -> None:
    """Check that something is left of at least one space, and that every added value adds to at least one.

    Parameters
    ----------
    spaces : sequence of Space
        The same space for several processor counts: all have the same `fix` and `add`.

    Raises
    ------
    SpecError
        For the first restriction that leaves nothing, with the values that there are; and for added values without
        effect.
    """
    _check_used(spaces)
    _check_added(spaces)
    fix = spaces[0].fix
    if not fix or any(count_space(space) for space in spaces):
        return
    before = [replace(space, fix={}) for space in spaces]
    for name in fix:
        after = [replace(b, fix={**b.fix, name: fix[name]}) for b in before]
        if any(map(count_space, before)) and not any(map(count_space, after)):
            there = _existing(before, name)
            others = " with the other options" if before[0].fix else ""
            raise SpecError(
                "--fix",
                Problem(
                    name,
                    f"a value that this search has{others}: {_words(there)}",
                    _words(fix[name]),
                    _remedy(name, fix[name], before[0]),
                ),
            )
        before = after


def _check_used(spaces: Sequence[Space]) -> None:
    """Refuse what concerns the vocabulary of a model that has none."""
    space = spaces[0]
    for name in ("ce_impl", "vocab_pad_multiple"):
        asked = (*space.fix.get(name, ()), *space.add.get(name, ()))
        if asked and not space.model.vocab:
            wanted = f"a model with a vocabulary; {space.model.name} states none, so that no head is counted"
            raise SpecError("search", Problem(name, wanted, _words(asked)))


def _existing(spaces: Sequence[Space], name: str) -> Values:
    """Return the values of a field with which any of these spaces has executions."""
    found: dict[Any, None] = {}
    for space in spaces:
        for value in _candidates(space, name):
            if value not in found and count_space(
                replace(space, fix={**space.fix, name: (value,)})
            ):
                found[value] = None
    return tuple(found)


def _candidates(space: Space, name: str) -> Values:
    """Return the values of a field that any execution of a space may have."""
    if name in space.switches:
        return space.switches[name]
    if name.endswith("_net"):
        return tuple(range(len(space.system.networks)))
    several = {"pipeline_interleaving": "interleavings", "microbatch_size": "microbatches"}
    if name in several:
        return tuple(sorted({v for u in space.units for v in getattr(u, several[name])}))
    return tuple(sorted({getattr(unit, name) for unit in space.units}))


def _check_added(spaces: Sequence[Space]) -> None:
    """Refuse added values that no space becomes larger by."""
    problems = []
    for name, values in spaces[0].add.items():
        others = {other: v for other, v in spaces[0].add.items() if other != name}
        if values == (DEFAULTS.get(name),) or (name in spaces[0].fix and name in DEFAULTS):
            wanted = f"values beside {_words((DEFAULTS[name],))}, or --fix {name}=... alone"
            problems.append(Problem(name, wanted, _words(values)))
            continue
        for value in values:
            if name in DEFAULTS and value == DEFAULTS[name]:
                continue  # whoever names all values need not know which one is there
            added = {**others, name: (value,)}
            if not any(
                count_space(replace(s, add=added)) > count_space(replace(s, add=others))
                for s in spaces
            ):
                wanted = _addable(name, spaces)
                problems.append(Problem(name, wanted, f"{_words((value,))}, which adds nothing"))
    if problems:
        raise SpecError("--add", problems)


def _addable(name: str, spaces: Sequence[Space]) -> str:
    """Say which values of a field can be added."""
    model = spaces[0].model
    if name == "pipeline_par":
        degrees = {p for s in spaces for p in divisors(s.num_procs) if p <= model.num_blocks}
        uneven = sorted(p for p in degrees if model.num_blocks % p)
        return "a degree that is not tried already: " + (_words(uneven) if uneven else "none here")
    if name in NEEDS:
        stages = ", ".join(NEEDS[name].stages)
        return (
            f"a value that is not tried already, beside zero_stage {stages} (--add zero_stage=...)"
        )
    if name in DEFAULTS:
        return f"a value of {name} that is not tried already"
    return {
        "batch_size": "a multiple of a data-parallel degree below the largest batch "
        f"({spaces[0].max_batch_size}) that is not tried already",
        "attention_type": "multiquery, where --fix does not exclude it and the model states no kv_heads",
        "activations_offload": "true, on a system with a tier-2 memory, where --fix does not exclude it",
    }[name]


def _remedy(name: str, values: Values, space: Space) -> str:
    """Return which option brings values that the search does not have."""
    largest = {"batch_size": space.max_batch_size, "pipeline_par": space.model.num_blocks}
    fitting = [v for v in values if v <= largest[name]] if name in largest else []
    added = f"--add {name}={','.join(map(str, fitting))}, where it divides" if fitting else ""
    hints = {
        "fused_activation": "-f all tries both",
        "attention_type": "--add attention_type=multiquery",
        "batch_size": added,
        "pipeline_par": added,
        "main_grad": "with gradients of 2 bytes: --fix grad_dtype=bfloat16",
    }
    for field, needs in NEEDS.items():
        hints[field] = f"{needs.why}: --fix zero_stage={','.join(needs.stages)}"
    if not space.tensor_overlap:
        hints["tensor_par_overlap"] = "leave out --no-tp-overlap"
    if not space.data_overlap:
        hints["data_par_overlap"] = "leave out --no-dp-overlap"
    if name.endswith("_offload") and not space.system.mem2.capacity:
        return f"{space.system.name} has no tier-2 memory"
    return hints.get(name, "")


def _words(values: Sequence[Any]) -> str:
    """Write values as the command line takes them."""
    texts = [str(v).lower() if isinstance(v, bool) else str(v) for v in values]
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more if texts else "none"
