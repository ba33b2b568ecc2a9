"""Checks of `fix` and `add` before a search: refuse values that leave no execution, or that change nothing."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.axes import PUBLISHED_AXES
from calculon.declarations.decode import SpecWarning
from calculon.declarations.model import Model
from calculon.declarations.statistics import OFFLOADS
from calculon.plan.columns import DEFAULTS, divisors, field_of
from calculon.plan.rules.data_rules import NEEDING
from calculon.search.best_first import count_space
from calculon.search.space import Space, Values

_SHOWN = 12
"""Values that a message lists at most."""


class SearchRequest(Protocol):
    """Request of a search: a space, or a message to a worker."""

    @property
    def model(self) -> Model: ...  # noqa: D102
    @property
    def fix(self) -> Mapping[str, Values]: ...  # noqa: D102
    @property
    def add(self) -> Mapping[str, Values]: ...  # noqa: D102


@dataclass(frozen=True)
class Wording:
    """Spelling of options and values in messages: as on the command line, or as in Python."""

    python: bool

    def words_of(self, command_line: str, python: str) -> str:
        """Return the text for the command line or for Python."""
        return python if self.python else command_line

    def option(self, name: str) -> str:
        """Return the name of an option."""
        return self.words_of(f"--{name}", name)

    def setting(self, option: str, field: str, values: Sequence[Any] = (...,)) -> str:
        """Write an option with values of a field."""
        texts = [self._value(value) for value in values]
        if not self.python:
            return f"--{option} {field}={','.join(texts)}"
        one = len(texts) == 1
        return f"{option}={{{field!r}: {texts[0] if one else '[' + ', '.join(texts) + ']'}}}"

    def words(self, values: Sequence[Any]) -> str:
        """Write values; only the first ones if there are many."""
        texts = [self._value(value) for value in values]
        more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
        return ", ".join(texts[:_SHOWN]) + more if texts else "none"

    def _value(self, value: Any) -> str:
        if value is ...:
            return "..."
        if self.python:
            return repr(value)
        return str(value).lower() if isinstance(value, bool) else str(value)


COMMAND_LINE, PYTHON = Wording(python=False), Wording(python=True)


def check_effect(spaces: Sequence[Space], wording: Wording = COMMAND_LINE) -> None:
    """Check that at least one space keeps an execution, and that every added value adds to at least one space.

    Args:
        spaces: The same space for several processor counts: all have the same `fix` and `add`.
        wording: Spelling of options and values in messages.

    Raises:
        SpecError: For the first restriction that leaves no execution, with the available values; and for added values
            without effect.
    """
    warn_of_idle_values(spaces)
    _check_added(spaces, wording)
    check_left(spaces, wording)


def check_left(spaces: Sequence[Space], wording: Wording = COMMAND_LINE) -> None:
    """Check that batch and restrictions leave an execution in at least one space; errors as :func:`check_effect`."""
    _check_batch(spaces, wording)
    fix = spaces[0].fix
    if not fix or any(count_space(space) for space in spaces):
        return
    # Apply the restrictions one by one: the first that leaves nothing is the one to report.
    before = [replace(space, fix={}) for space in spaces]
    for name in fix:
        after = [replace(b, fix={**b.fix, name: fix[name]}) for b in before]
        if any(map(count_space, before)) and not any(map(count_space, after)):
            there = _existing(before, name)
            others = " with the other options" if before[0].fix else ""
            raise SpecError(
                wording.option("fix"),
                Problem(
                    name,
                    f"a value that this search tries{others}: {wording.words(there)}",
                    wording.words(fix[name]),
                    _remedy(name, fix[name], before[0], wording),
                ),
            )
        before = after


def _check_batch(spaces: Sequence[Space], wording: Wording) -> None:
    """Refuse a batch that no data-parallel degree of any space divides, and suggest the nearest valid batches."""
    if not spaces[0].exact_batch or any(_degrees(replace(one, fix={})) for one in spaces):
        return
    free = (replace(one, any_batch=True, fix={}) for one in spaces)
    degrees = sorted({degree for one in free for degree in _degrees(one)})
    if not degrees:
        return
    most = spaces[0].max_batch_size
    below = max(degree * (most // degree) for degree in degrees)
    above = min(degree * -(-most // degree) for degree in degrees)
    there = f"a multiple of a data-parallel degree, {wording.words(degrees)}: {below} or {above}"
    any_batch = wording.words_of("--any-batch", "any_batch=True")
    hint = f"{any_batch} lets each degree run its largest multiple"
    name = wording.words_of("MAX_BATCH", "max_batch_size")
    raise SpecError("search", Problem(name, there, f"{most}", hint))


def _degrees(space: Space) -> set[int]:
    """Return the data-parallel degrees of a space for which its framework supports some other degrees."""
    names = [axis.degree for axis in PUBLISHED_AXES]
    limits = [one.that for one in space.preset.limits if set(one.that.names) <= {*names}]
    result = set()
    for unit in space.units:
        known = {name: getattr(unit, name) for name in names}
        if all(limit.of(known) for limit in limits):
            result.add(unit.data_par)
    return result


def warn_of_idle_values(requests: Iterable[SearchRequest], stacklevel: int = 2) -> None:
    """Warn once per value about values without effect: vocabulary options for models without a vocabulary.

    A warning rather than an error lets one command line, or one study, serve models of both kinds.

    Args:
        requests: The searches.
        stacklevel: Number of calls between this function and the caller that the warning should name.
    """
    notes: dict[str, None] = {}
    for one in requests:
        for name in () if one.model.vocab else ("ce_impl", "vocab_pad_multiple"):
            values = (*one.fix.get(name, ()), *one.add.get(name, ()))
            if any(value != DEFAULTS[name] for value in values):
                setting = f"{name}={','.join(map(str, values))}"
                why = f"{one.model.name} states no vocabulary, and no LM head is counted"
                notes[f"search: {setting} has no effect: {why}"] = None
    for note in notes:
        warnings.warn(note, SpecWarning, stacklevel=stacklevel + 1)


def _existing(spaces: Sequence[Space], name: str) -> Values:
    """Return the values of a field with which at least one of the spaces has executions."""
    found: dict[Any, None] = {}
    for space in spaces:
        for value in _candidates(space, name):
            if value not in found and count_space(
                replace(space, fix={**space.fix, name: (value,)})
            ):
                found[value] = None
    return tuple(found)


def _candidates(space: Space, name: str) -> Values:
    """Return the values of a field that executions of a space may have."""
    if name in space.switches:
        return space.switches[name]
    if name.endswith("_net"):
        return tuple(range(len(space.system.networks)))
    several = {"pipeline_interleaving": "interleavings", "microbatch_size": "microbatches"}
    if name in several:
        return tuple(sorted({v for u in space.units for v in getattr(u, several[name])}))
    return tuple(sorted({getattr(unit, name) for unit in space.units}))


def _check_added(spaces: Sequence[Space], wording: Wording) -> None:
    """Refuse added values that do not enlarge any space."""
    problems = []
    plain = [replace(space, add={}) for space in spaces] if spaces[0].add else []
    counts = list(map(count_space, plain))
    tried = {unit.pipeline_par for s in plain if s.preset.uneven for unit in s.units}
    for name, values in spaces[0].add.items():
        usual = spaces[0].usual(name) if name in DEFAULTS else ()
        if set(values) <= {*usual} or (name in spaces[0].fix and name in DEFAULTS):
            alone = wording.setting("fix", name)
            wanted = f"values other than {wording.words(usual)}, or {alone} alone"
            problems.append(Problem(name, wanted, wording.words(values)))
            continue
        for value in values:
            if value in usual or (name == "pipeline_par" and value in tried):
                continue  # users who list all values need not know which ones are tried by default
            if _adds(plain, counts, name, (value,)):  # without other added values, the faster count
                continue
            rest = {other: v for other, v in spaces[0].add.items() if other != name}
            others = [replace(space, add=rest) for space in spaces]
            if not _adds(others, list(map(count_space, others)), name, (value,)):
                wanted = _addable(name, spaces, wording)
                found = f"{wording.words((value,))}, which adds nothing"
                problems.append(Problem(name, wanted, found))
    if problems:
        raise SpecError(wording.option("add"), problems)


def _adds(spaces: Sequence[Space], counts: Sequence[int], name: str, values: Values) -> bool:
    """Return True if values of a field enlarge any of the spaces."""
    larger = (replace(space, add={**space.add, name: values}) for space in spaces)
    return any(count_space(s) > count for s, count in zip(larger, counts, strict=True))


def _addable(name: str, spaces: Sequence[Space], wording: Wording) -> str:
    """Describe the values of a field that can be added."""
    model, fix = spaces[0].model, wording.option("fix")
    if name == "pipeline_par":
        degrees = {p for s in spaces for p in divisors(s.num_procs) if p <= model.num_blocks}
        tried = {unit.pipeline_par for s in spaces for unit in replace(s, add={}).units}
        uneven = sorted(p for p in degrees - tried if model.num_blocks % p)
        there = wording.words(uneven) if uneven else "none here"
        return f"a degree that is not tried already: {there}"
    if name in NEEDING:
        stages = ", ".join(field_of(name).declaration.needs["zero_stage"])
        add = wording.setting("add", "zero_stage")
        return f"a value that is not tried already, with zero_stage {stages} ({add})"
    if name in DEFAULTS:
        untried = f"a value of {name} that is not tried already"
        return (
            f"{untried}; {_positions(model)}"
            if name == "seq_length" and model.positions
            else untried
        )
    allowed = f"if {fix} does not exclude it"
    offload = f"{wording.words((True,))}, on a system with host memory (mem2), {allowed}"
    return {
        "batch_size": "a multiple of a data-parallel degree below the largest batch "
        f"({spaces[0].max_batch_size}) that is not tried already",
        "attention_type": f"multiquery, {allowed} and the model states neither kv_heads nor kv_lora_rank",
        **dict.fromkeys(OFFLOADS, offload),
    }.get(name, f"a value of {name} that is not tried already, {allowed}")


def _positions(model: Model) -> str:
    """Return the limit on sequence lengths for models with learned positions, as text; else empty."""
    return f"{model.name} has {model.positions} learned positions" if model.positions else ""


def _remedy(name: str, values: Values, space: Space, wording: Wording) -> str:
    """Return a hint: the option that makes values of a field available."""
    largest = {"batch_size": space.max_batch_size, "pipeline_par": space.model.num_blocks}
    fitting = [v for v in values if v <= largest[name]] if name in largest else []
    added = f"{wording.setting('add', name, fitting)}, if it divides" if fitting else ""
    if name in largest:
        return added
    if name == "seq_length":
        return _positions(space.model)
    if name == "main_grad":
        return f"with gradients of 2 bytes: {wording.setting('fix', 'grad_dtype', ('bfloat16',))}"
    hints = {
        "fused_activation": wording.words_of("-f all", "fused=(False, True)") + " tries both",
        "attention_type": wording.setting("add", "attention_type", ("multiquery",)),
    }
    if name in NEEDING:
        declared = field_of(name).declaration
        stages = tuple(declared.needs["zero_stage"])
        return f"{declared.why}: {wording.setting('fix', 'zero_stage', stages)}"
    if not space.tensor_overlap:
        option = wording.words_of("--no-tp-overlap", "tensor_overlap=False")
        hints["tensor_par_overlap"] = f"leave out {option}"
    if not space.data_overlap:
        option = wording.words_of("--no-dp-overlap", "data_overlap=False")
        hints["data_par_overlap"] = f"leave out {option}"
    if name.endswith("_offload") and not space.system.mem2.capacity:
        return f"{space.system.name} has no host memory (mem2)"
    return hints.get(name, "")
