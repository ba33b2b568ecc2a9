"""The changes of one execution that are tried: each another value of one field."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from math import log2, prod
from typing import Any

from calculon.advise.variations import Variations
from calculon.base.frozen import dataclass
from calculon.declarations.axes import AXES, PUBLISHED_AXES
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.presets import find_preset
from calculon.hardware.system import System
from calculon.plan.columns import DEFAULTS, divisors, field_of, held
from calculon.plan.mesh import DEGREES
from calculon.plan.plan import NAMES

SWITCHES = (
    *("activation_recompute", "recompute_modules", "zero_stage", "optimizer_sharding"),
    *("tensor_par_comm_type", "seq_par_ag_redo", "tensor_par_overlap", "tp_async"),
    *("p2p_overlap", "data_par_overlap", "overlap_param_gather", "reshard_after_forward"),
    *("weight_offload", "activations_offload", "optimizer_offload"),
    *("pp_layout", "pp_schedule", "mesh_order", "attn_impl", "ce_impl", "fused_activation"),
    *("cp_comm", "cp_balance", "moe_dispatcher", "ep_overlap", "delay_wgrad", "moe_shared_overlap"),
)
"""Fields with named values, and switches, that change what a step costs and not what it computes."""

NETWORKS = tuple(axis.network for axis in AXES)

QUESTION = ("num_procs", "batch_size")
"""Fields that are the question itself: they are changed where nothing else does."""

_OF_EXPERTS = ("expert_par", "expert_tensor_par", *SWITCHES[SWITCHES.index("moe_dispatcher") :])
_OF_PARTS = ("context_par", "cp_comm", "cp_balance")

TIMES_PROCESSORS = (2, 4, 8, 16, 32, 64)

MOST_BATCHES = 40
"""Other batches that are tried."""

_LARGEST_LIST = 24
"""Named values up to which all of a field that breaks a rule are tried."""


@dataclass(frozen=True, slots=True)
class Move:
    """Another value of one field.

    Attributes:
        field: The field.
        value: Its value, as columns hold it; None for the one that the other fields leave it.
        distance: The binary logarithm of the ratio of two numbers; 1 of anything else.
    """

    field: str
    value: Any
    distance: float


def moves(
    model: Model,
    execution: Execution,
    system: System,
    variations: Variations,
    named: Collection[str] = (),
) -> tuple[Move, ...]:
    """Return what may be changed of an execution on the same processors, with the same batch.

    Args:
        variations: Those of the execution.
        named: Fields that broken rules name: other values of them are tried, whatever they are.
    """
    fields = [name for name in _fields(model, execution) if name not in named]
    found = [
        *_of_split(model, execution),
        *_of_sizes(model, execution),
        *(move for name in fields for move in _of_values(name, execution, system)),
        *(Move(name, None, 1.0) for name in sorted(variations.broken)),
        *(move for name in named for move in _of_named(name, model, execution, system)),
    ]
    if "num_procs" in named and (product := _product(execution)) != execution.num_procs:
        found.append(_move("num_procs", product, execution))
    return tuple(dict.fromkeys(move for move in found if _possible(move, execution)))


def of_batch(execution: Execution) -> tuple[Move, ...]:
    """Return other batches: multiples and parts of the one of now, and what degrees divide, the nearest first."""
    now = execution.batch_size
    parts = {now >> k for k in range(1, now.bit_length()) if now % (1 << k) == 0}
    values = parts | {now << k for k in range(1, 7)}
    for degree in divisors(execution.num_procs):
        for unit in {degree, degree * execution.microbatch_size}:
            values |= {now - now % unit, now + -now % unit}
    return _nearest("batch_size", execution, values - {0})[:MOST_BATCHES]


def of_processors(execution: Execution, *, fewer: bool) -> tuple[Move, ...]:
    """Return other numbers of processors, the nearest first: multiples, and `fewer` where too many may be the cause.

    Multiples of the number of now, and, where the degrees need another, that one and its multiples.
    """
    now, needed = execution.num_procs, _product(execution)
    values = {now * times for times in TIMES_PROCESSORS}
    values |= (
        {needed * times for times in (1, *TIMES_PROCESSORS)} - {now} if now % needed else set()
    )
    if fewer:
        values |= {now // times for times in TIMES_PROCESSORS if now % times == 0}
        values |= {1 << k for k in range(now.bit_length())}
    return _nearest("num_procs", execution, values)


def of_larger_split(model: Model, execution: Execution, times: int) -> tuple[Move, ...]:
    """Return the degrees that so many times the processors may have, and what needs less memory."""
    several = [k for k in divisors(times) if k > 1]
    values: list[tuple[str, Any]] = [
        *((move.field, move.value) for move in _of_split(model, execution, times)),
        *(("tensor_par", execution.tensor_par * k) for k in several),
        *(("pipeline_par", execution.pipeline_par * k) for k in several),
        *(("microbatch_size", size) for size in divisors(execution.microbatch_size)[:-1]),
    ]
    if execution.training:
        values.append(("activation_recompute", "full"))
    if _known("context_par", model, execution):
        values += [("context_par", execution.context_par * k) for k in several]
    if _known("zero_stage", model, execution):
        values += [("zero_stage", stage) for stage in ("1", "2", "3", "fsdp")]
    found = (_move(name, value, execution) for name, value in values)
    return tuple(move for move in found if _possible(move, execution))


def _known(name: str, model: Model, execution: Execution) -> bool:
    """Whether the edition and the framework have a field, and the model something that it concerns."""
    if name in DEFAULTS and execution.edition == PUBLISHED:
        return False
    if name in _OF_EXPERTS and not model.mixes:
        return False
    if name in _OF_PARTS and not model.attends:
        return False
    entries = find_preset(execution.preset).entries
    return not entries or name in entries


def _fields(model: Model, execution: Execution) -> list[str]:
    """Return the fields whose named values are tried."""
    found = [name for name in SWITCHES if _known(name, model, execution)]
    if execution.zero_stage != "auto" and "optimizer_sharding" in found:
        found.remove("optimizer_sharding")  # which follows
    if execution.mesh_order == "stated":
        found += [axis.network for axis in PUBLISHED_AXES]
        found += [
            axis.network
            for axis in AXES
            if axis not in PUBLISHED_AXES and getattr(execution, axis.degree) > 1
        ]
    return found


def _of_split(model: Model, execution: Execution, times: int = 1) -> Iterator[Move]:
    """Yield other degrees: divisors of the processors, and those with which the stated ones multiply to them.

    Of so many `times` the processors that there are.
    """
    procs = execution.num_procs * times
    widths = [model.hidden, *([model.attn_heads] if model.attends else [])]
    degrees = {
        "tensor_par": [d for d in divisors(procs) if not any(w % d for w in widths)],
        "pipeline_par": [d for d in divisors(procs) if d <= model.num_blocks],
    }
    if _known("context_par", model, execution):
        length = execution.seq_length or model.seq_size
        degrees["context_par"] = [d for d in divisors(procs) if length % d == 0]
    if _known("expert_par", model, execution):
        degrees["expert_par"] = [d for d in divisors(model.num_experts) if d <= procs]
        degrees["expert_tensor_par"] = [0, *divisors(execution.tensor_par)]
    product = _product(execution)
    for name, values in degrees.items():
        rest, left = divmod(procs * getattr(execution, name), product)
        exact = [rest] if not left and not name.startswith("expert") else []
        yield from _nearest(name, execution, (*values, *exact))


def _product(execution: Execution) -> int:
    """Return the processors that the stated degrees need."""
    return prod(getattr(execution, name) for name in DEGREES)


def _of_sizes(model: Model, execution: Execution) -> Iterator[Move]:
    """Yield other microbatches, and numbers of chunks that stages may have."""
    yield from _nearest("microbatch_size", execution, divisors(execution.batch_size))
    stages = {*divisors(execution.num_procs), execution.pipeline_par}
    blocks = {-(-model.num_blocks // p) for p in stages if 1 < p <= model.num_blocks}
    chunks = {1}.union(*(divisors(count) for count in blocks))
    yield from _nearest("pipeline_interleaving", execution, chunks)
    if execution.dp_shard:
        ranks = execution.data_par * execution.context_par
        yield from _nearest("dp_shard", execution, (0, *divisors(ranks)))


def _of_values(name: str, execution: Execution, system: System) -> Iterator[Move]:
    """Yield the other values of a field that the framework has."""
    if name in NETWORKS:
        yield from _nearest(name, execution, range(len(system.networks)))
        return
    if name.endswith("_offload") and not system.usable[1]:
        return
    preset, field = find_preset(execution.preset), field_of(name)
    entry = preset.entries.get(name)
    values = dict.fromkeys((*field.values, *(entry.tries if entry else ())))
    if entry is not None and entry.runs:
        values = dict.fromkeys(entry.runs)
    if name == "zero_stage" and execution.training:
        values.pop("auto", None)  # which says the same otherwise
    yield from (_move(name, value, execution) for value in values)


def _of_named(name: str, model: Model, execution: Execution, system: System) -> Iterator[Move]:
    """Yield other values of a field that a broken rule names: what a preset has, the default, and neighbours."""
    field, preset = field_of(name), find_preset(execution.preset)
    if name in QUESTION or (name == "preset"):
        return
    if name in NETWORKS or name in SWITCHES:
        yield from _of_values(name, execution, system)
    fields = {one: getattr(execution, one) for one in NAMES}
    values = [preset.usual(fields)[name]] if name in preset.entries else []
    values += [DEFAULTS[name]] if name in DEFAULTS else []
    if field.named and not field.listed and len(field.values) <= _LARGEST_LIST:
        values += [one for one in field.values if preset.problem(name, one) is None]
    elif not field.named:
        values += _numbers(name, model, execution)
    if name == "datatype":
        values = [one for one in values if one in system.datatypes]
    usable = (one for one in values if field.declaration.problem(field.annotation, one, "") is None)
    yield from (_move(name, value, execution) for value in usable)


def _numbers(name: str, model: Model, execution: Execution) -> list[int]:
    """Return other numbers of a field that is no degree."""
    now = getattr(execution, name)
    blocks = -(-model.num_blocks // execution.pipeline_par)
    values = {*divisors(execution.num_procs), *divisors(blocks), *divisors(max(now, 1))}
    return sorted(value for value in values if value <= 2 * max(now, execution.num_procs))


def _move(name: str, value: Any, execution: Execution) -> Move:
    """Return a move to a value as files have it."""
    now = getattr(execution, name)
    numbers = not field_of(name).named and name not in NETWORKS and now > 0 and value > 0
    return Move(name, held(name, value), abs(log2(value / now)) if numbers else 1.0)


def _nearest(name: str, execution: Execution, values: Iterable[int]) -> tuple[Move, ...]:
    """Return moves to some numbers, the nearest first."""
    found = [_move(name, value, execution) for value in {*values}]
    found = [move for move in found if _possible(move, execution)]
    return tuple(sorted(found, key=lambda move: (move.distance, move.value)))


def _possible(move: Move, execution: Execution) -> bool:
    """Whether a move changes something, to what the framework has."""
    if move.value is None:
        return True
    choices = field_of(move.field).declaration.choices
    value = choices[move.value] if choices else move.value
    lacks = find_preset(execution.preset).problem(move.field, value)
    return lacks is None and move.value != held(move.field, getattr(execution, move.field))


def fields_of(moved: Sequence[Move]) -> tuple[str, ...]:
    """Return the fields of several moves, in the order of files."""
    names = {move.field for move in moved}
    return tuple(name for name in NAMES if name in names)
