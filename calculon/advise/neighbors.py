"""Neighbors of an execution: other values of single fields that its framework supports.

Changes cover the degrees of tensor, pipeline, context and expert parallelism, microbatch size, chunks of the
interleaved schedule, ZeRO stage and FSDP, activation recomputation, offloading, communication overlap and CUDA graphs.
Fixes of an execution, fixes of a search space, and ablations rank these neighbors and their combinations. All are
evaluated by :mod:`calculon.advise.neighborhood`.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from math import log2, prod
from typing import TYPE_CHECKING, Any

from calculon.base.frozen import dataclass
from calculon.declarations.axes import AXES, PUBLISHED_AXES
from calculon.declarations.execution import Execution
from calculon.declarations.execution_fields.expert_fields import ExpertFields
from calculon.declarations.execution_fields.sequence_fields import SequenceFields
from calculon.declarations.model import Model
from calculon.declarations.named_values import PUBLISHED, is_offered
from calculon.declarations.presets import find_preset
from calculon.declarations.statistics import OFFLOADS
from calculon.estimate.graph_step import graph_modes
from calculon.hardware.system import System
from calculon.plan.columns import DEFAULTS, FIELDS, divisors, encoded, field_of, zigzag_degrees
from calculon.plan.mesh import DEGREES
from calculon.plan.plan import NAMES, all_fields

if TYPE_CHECKING:
    from calculon.search.space import Space

SWITCHES = tuple(one.name for one in FIELDS if one.named and one.declaration.control)
"""Options with named values, or on and off, that change the cost of a step but not its result."""

NETWORKS = tuple(axis.network for axis in AXES)

QUESTION = ("num_procs", "batch_size")
"""Fields of the question itself: they are changed only if nothing else helps."""

NO_OPTIONS = (*(axis.degree for axis in PUBLISHED_AXES), "mesh_order")
"""Fields of every plan that no default can replace."""

SAVES = {name: saves for name in NAMES if (saves := field_of(name).declaration.saves)}
"""Memory-saving values of options, least invasive first."""

MEMORY_OPTIONS = (
    *("activation_recompute", "recompute_modules"),
    *("tensor_par_overlap", "tp_async", "p2p_overlap"),
)
"""Options that affect memory and that all degrees allow."""

TIMES_PROCESSORS = (2, 4, 8, 16, 32, 64)

MAX_BATCHES = 40
"""Maximum number of other batches that are tried."""

_LARGEST_LIST = 24
"""Maximum number of named values for which all values of a field in a broken rule are tried."""

_MAX_DEGREES = 3
"""Number of degrees that are tried to save memory: the largest expert-parallel and smallest context-parallel ones."""


@dataclass(frozen=True, slots=True)
class FieldChange:
    """Other value of one field.

    Attributes:
        value: Value as stored in columns; None lets the field follow from the other fields.
        distance: Absolute binary logarithm of the ratio for numbers; 1 for other fields.
    """

    field: str
    value: Any
    distance: float


def single_changes(
    model: Model,
    execution: Execution,
    system: System,
    broken: Collection[str] = (),
    named: Collection[str] = (),
) -> tuple[FieldChange, ...]:
    """Return the changes of an execution on the same processors with the same batch.

    Args:
        broken: Fields that do not have the value that follows from the other fields; they may follow instead.
        named: Fields in broken rules, for which all kinds of values are tried.
    """
    options = [name for name in _options(model, execution) if name not in named]
    found = [
        *_changes(execution, _degrees(model, execution)),
        *_changes(execution, _sizes(model, execution)),
        *_changes(execution, _graphs(model, execution)),
        *_changes(execution, ((name, _values(name, execution, system)) for name in options)),
        *(FieldChange(name, None, 1.0) for name in sorted(broken)),
        *_changes(
            execution, ((name, _named_values(name, model, execution, system)) for name in named)
        ),
    ]
    if "num_procs" in named:
        found += changes_to("num_procs", [_product(execution)], execution)
    return tuple(dict.fromkeys(found))


def batch_changes(execution: Execution) -> tuple[FieldChange, ...]:
    """Return multiples and fractions of the batch, and batches that degrees divide, nearest first."""
    now = execution.batch_size
    values = {now >> k for k in range(1, now.bit_length()) if now % (1 << k) == 0}
    values |= {now << k for k in range(1, 7)}
    for degree in divisors(execution.num_procs):
        for unit in {degree, degree * execution.microbatch_size}:
            values |= {now - now % unit, now + -now % unit}
    return changes_to("batch_size", values - {0}, execution)[:MAX_BATCHES]


def processor_changes(execution: Execution, *, fewer: bool) -> tuple[FieldChange, ...]:
    """Return other processor counts, nearest first.

    These are multiples of the present count; if the degrees need another count, that count and its multiples are added.

    Args:
        fewer: Whether to try fewer processors as well, because there may be too many.
    """
    now, needed = execution.num_procs, _product(execution)
    values = {now * times for times in TIMES_PROCESSORS}
    if now % needed:
        values |= {needed * times for times in (1, *TIMES_PROCESSORS)}
    if fewer:
        values |= {now // times for times in TIMES_PROCESSORS if now % times == 0}
        values |= {1 << k for k in range(now.bit_length())}
    return changes_to("num_procs", values, execution)


def larger_splits(model: Model, execution: Execution, times: int) -> tuple[FieldChange, ...]:
    """Return the degrees that `times` as many processors allow, and changes that save memory."""
    several = [k for k in divisors(times) if k > 1]
    splits, savers = ["tensor_par", "pipeline_par"], []
    if _known("context_par", model, execution):
        splits.append("context_par")
    if execution.training:
        savers.append("activation_recompute")
    if _known("zero_stage", model, execution):
        savers.append("zero_stage")
    values = [
        *_degrees(model, execution, times),
        *((name, [getattr(execution, name) * k for k in several]) for name in splits),
        ("microbatch_size", divisors(execution.microbatch_size)[:-1]),
        *((name, SAVES[name]) for name in savers),
    ]
    return tuple(dict.fromkeys(_changes(execution, values)))


def memory_savers(space: "Space", *, activations: bool) -> list[tuple[str, Any]]:
    """Return memory-saving values that a search space supports but does not try.

    Args:
        activations: Whether activations fill the memory, so that more context parallelism helps.
    """
    model = space.model
    # Selective recomputation of modules pays only for experts: other models have activation_recompute.
    names = [name for name in SAVES if name != "recompute_modules" or model.mixes]
    named = [(name, value) for name in names for value in SAVES[name]]
    if model.mixes:
        degrees = [d for d in divisors(model.num_experts) if 1 < d <= space.num_procs]
        named += [("expert_par", degree) for degree in degrees[-_MAX_DEGREES:]]
    if activations and model.attends and space.edition != PUBLISHED:
        parts = zigzag_degrees(max(space.lengths), divisors(space.num_procs)[1:])
        untried = [degree for degree in parts if degree not in space.switches["context_par"]]
        named += [("context_par", degree) for degree in untried[:_MAX_DEGREES]]
    return [one for one in named if _untried(space, *one)]


def _untried(space: "Space", name: str, value: Any) -> bool:
    """Return True if edition, framework and system support a value that a space does not try."""
    if name in space.fix or value in space.switches[name]:
        return False
    if name in DEFAULTS and space.edition == PUBLISHED:
        return False
    if name in OFFLOADS and not space.system.usable[1]:
        return False
    return space.preset.problem(name, value) is None


def set_backs(execution: Execution) -> Iterator[tuple[str, Any, bool]]:
    """Yield each option that an execution uses, its value without the option, and whether the preset sets that value.

    An option that has the preset's value is set back to the default of the field.
    """
    fields = all_fields(execution)
    usual = find_preset(execution.preset).usual(fields)
    # One of the two follows from the other: zero_stage "auto" takes its value from optimizer_sharding.
    same = "zero_stage" if execution.zero_stage == "auto" else "optimizer_sharding"
    for name in NAMES:
        if field_of(name).declaration.of != "plan" or name in (*NO_OPTIONS, same):
            continue
        if name in DEFAULTS and execution.edition == PUBLISHED:
            continue
        off = field_of(name).off
        if name in usual and usual[name] != fields[name]:
            yield name, usual[name], True
        elif off != fields[name] and (name not in usual or name in SWITCHES):
            yield name, off, name not in usual


def _known(name: str, model: Model, execution: Execution) -> bool:
    """Return True if edition and framework have a field, and the model has the feature that it concerns."""
    if name in DEFAULTS and execution.edition == PUBLISHED:
        return False
    if name in ExpertFields.__annotations__ and not model.mixes:
        return False
    if name in SequenceFields.__annotations__ and not model.attends:
        return False
    entries = find_preset(execution.preset).entries
    return not entries or name in entries


def _options(model: Model, execution: Execution) -> list[str]:
    """Return the fields whose named values are tried."""
    result = [name for name in SWITCHES if _known(name, model, execution)]
    if execution.zero_stage != "auto" and "optimizer_sharding" in result:
        result.remove("optimizer_sharding")  # follows from zero_stage
    if execution.mesh_order == "stated":
        result += [axis.network for axis in PUBLISHED_AXES]
        result += [
            axis.network
            for axis in AXES
            if axis not in PUBLISHED_AXES and getattr(execution, axis.degree) > 1
        ]
    return result


_Values = tuple[str, Iterable[Any]]
"""Field and other values of it, as in files."""


def _degrees(model: Model, execution: Execution, times: int = 1) -> Iterator[_Values]:
    """Yield degrees that divide `times` the processors, and degrees that make the product of all degrees match."""
    procs = execution.num_procs * times
    widths = [model.hidden, *([model.attn_heads] if model.attends else [])]
    degrees = {
        "tensor_par": [d for d in divisors(procs) if not any(w % d for w in widths)],
        "pipeline_par": [d for d in divisors(procs) if d <= model.num_blocks],
    }
    if _known("context_par", model, execution):
        length = execution.seq_length or model.seq_size
        degrees["context_par"] = [d for d in divisors(procs) if length % d == 0]
    for name, values in degrees.items():
        # `exact` is the degree for which the product of all degrees equals the processors.
        exact, left = divmod(procs * getattr(execution, name), _product(execution))
        yield name, values if left else [*values, exact]
    if _known("expert_par", model, execution):
        yield "expert_par", [d for d in divisors(model.num_experts) if d <= procs]
        yield "expert_tensor_par", [0, *divisors(execution.tensor_par)]


def _product(execution: Execution) -> int:
    """Return the number of processors that the stated degrees need."""
    return prod(getattr(execution, name) for name in DEGREES)


def _sizes(model: Model, execution: Execution) -> Iterator[_Values]:
    """Yield other microbatch sizes, and possible numbers of chunks (interleaved schedule)."""
    yield "microbatch_size", divisors(execution.batch_size)
    stages = {*divisors(execution.num_procs), execution.pipeline_par}
    # Chunks must divide the blocks of a stage, rounded up for uneven stages.
    blocks = {-(-model.num_blocks // p) for p in stages if 1 < p <= model.num_blocks}
    yield "pipeline_interleaving", {1}.union(*(divisors(count) for count in blocks))
    if execution.dp_shard:
        yield "dp_shard", (0, *divisors(execution.data_par * execution.context_par))


def _graphs(model: Model, execution: Execution) -> Iterator[_Values]:
    """Yield launches in CUDA graphs."""
    if _known("launch_mode", model, execution):
        yield "launch_mode", graph_modes(model, execution)


def _values(name: str, execution: Execution, system: System) -> Iterable[Any]:
    """Return the values of a named field that framework and system support."""
    if name in NETWORKS:
        return range(len(system.networks))
    if name in OFFLOADS and not system.usable[1]:
        return ()
    entry = find_preset(execution.preset).entries.get(name)
    values = [*field_of(name).values, *(entry.tries if entry else ())]
    if entry is not None and entry.runs:
        values = [*entry.runs]
    if name == "zero_stage" and execution.training:
        values = [one for one in values if one != "auto"]  # equivalent to another value
    return [one for one in values if is_offered(name, one, system.provenance.family)]


def _named_values(name: str, model: Model, execution: Execution, system: System) -> list[Any]:
    """Return values to try for a field in a broken rule: the preset's, the default, and neighbors."""
    field, preset = field_of(name), find_preset(execution.preset)
    if name in QUESTION or name == "preset":
        return []
    tried = [*_values(name, execution, system)] if name in (*NETWORKS, *SWITCHES) else []
    values = [DEFAULTS[name]] if name in DEFAULTS else []
    if name in preset.entries:
        values.append(preset.usual({one: getattr(execution, one) for one in NAMES})[name])
    if not field.named:
        values += _numbers(name, model, execution)
    elif not field.listed and len(field.values) <= _LARGEST_LIST:
        values += field.values
    if name == "datatype":
        values = [one for one in values if one in system.datatypes]
    usable = (one for one in values if field.declaration.problem(field.annotation, one, "") is None)
    return [*tried, *usable]


def _numbers(name: str, model: Model, execution: Execution) -> list[int]:
    """Return other numbers for a field that is not a degree."""
    now = getattr(execution, name)
    blocks = -(-model.num_blocks // execution.pipeline_par)
    values = {*divisors(execution.num_procs), *divisors(blocks), *divisors(max(now, 1))}
    return [value for value in values if value <= 2 * max(now, execution.num_procs)]


def _changes(execution: Execution, several: Iterable[_Values]) -> Iterator[FieldChange]:
    """Yield the possible changes of several fields to other values."""
    for name, values in several:
        yield from changes_to(name, values, execution)


def changes_to(name: str, values: Iterable[Any], execution: Execution) -> tuple[FieldChange, ...]:
    """Return the changes of a field to other values that the framework supports, nearest first."""
    preset, now = find_preset(execution.preset), getattr(execution, name)
    numbers = not field_of(name).named and name not in NETWORKS and now > 0
    found = [
        FieldChange(name, encoded(name, one), abs(log2(one / now)) if numbers and one > 0 else 1.0)
        for one in {*values} - {now}
        if preset.problem(name, one) is None
    ]
    return tuple(sorted(found, key=lambda change: (change.distance, change.value)))


def fields_of(changes: Sequence[FieldChange]) -> tuple[str, ...]:
    """Return the fields of several changes, in file order."""
    names = {change.field for change in changes}
    return tuple(name for name in NAMES if name in names)
