"""Rules of pipeline parallelism: schedules, layouts, and overlap of transfers."""

from collections.abc import Callable
from functools import reduce
from operator import and_, or_
from typing import Any

import numpy as np

from calculon.base.errors import Problem
from calculon.base.units import Array
from calculon.declarations.lists_of_counts import ListsOfCounts
from calculon.declarations.named_values import (
    ENDS_AS_BLOCKS,
    FOLDED_SCHEDULES,
    PAIRED_SCHEDULES,
    PP_SCHEDULES,
    SIMULATED_SCHEDULES,
    TURNING_SCHEDULES,
)
from calculon.plan.columns import DEFAULTS, Columns, code
from calculon.plan.rules.rule import Request, Requests, Rule, expected
from calculon.plan.stage_layout import (
    STAGE_FIELDS,
    ends_as_blocks,
    list_of,
    listed_counts,
    modules_apart,
)

_UNIFORM = code("pp_layout", "uniform")
_COUNTS = ("first_stage_blocks", "last_stage_blocks")
_OTHERS = ("pp_layout", *_COUNTS)
"""Fields that lay out stages, if executions do not list them."""
_SCHEDULE = ("pp_schedule",)
_CHUNKS = np.array(
    [{"1f1b": 0}.get(name, 1 + (name in TURNING_SCHEDULES)) for name in PP_SCHEDULES]
)
"""Chunks per stage of each schedule; 0 is any number."""
_FOLDED = np.array([name in FOLDED_SCHEDULES for name in PP_SCHEDULES])


def _enough(first: Any, last: Any, blocks: int, stages: Any) -> Any:
    """Return a mask of layouts in which every stage without a stated number has a block, and all blocks a stage."""
    free = stages - (first > 0) - (last > 0)
    left = blocks - first - last
    return np.where(free > 0, left >= free, left == 0)


def _needs(fields: tuple[str, ...], met: Callable[[Columns], Array]) -> Callable[[Requests], Array]:
    """Return a mask function: rows state none of these fields, or meet a requirement."""

    def holds(r: Requests) -> Array:
        asked = reduce(or_, (getattr(r.plan, name) != 0 for name in fields))
        return ~asked | met(r.plan)

    return holds


def _stated(one: Request, fields: tuple[str, ...] = STAGE_FIELDS) -> tuple[str, str, str]:
    """Return the first field with a non-default value, and its default and value as text."""
    values = {name: getattr(one.execution, name) for name in fields}
    name = next(name for name in fields if values[name] != DEFAULTS[name])
    return name, str(DEFAULTS[name]).lower(), str(values[name]).lower()


def _explain_piped(one: Request) -> Problem:
    name, plain_value, found = _stated(one)
    return Problem(name, f"{plain_value}, since pipeline_par is 1", found)


def _of_schedule(
    names: tuple[str, ...], met: Callable[[Columns], Array]
) -> Callable[[Requests], Array]:
    """Return a mask function: rows have none of these schedules, or meet a requirement."""
    these = np.array([name in names for name in PP_SCHEDULES])
    return lambda r: ~these[r.plan.pp_schedule] | met(r.plan)


def _has_chunks(plan: Columns) -> Array:
    chunks = _CHUNKS[plan.pp_schedule]
    return (chunks == 0) | (plan.pipeline_interleaving == chunks)


def _explain_chunks(one: Request) -> Problem:
    name, found = one.execution.pp_schedule, one.execution.pipeline_interleaving
    if name in TURNING_SCHEDULES:
        wanted = f"2 with pp_schedule={name}: each rank has a chunk of both halves of a V"
        return Problem("pipeline_interleaving", wanted, str(found))
    hint = "set pipeline_interleaving to 1"
    return Problem("pp_schedule", f"1f1b with pipeline_interleaving={found}", name, hint)


def _microbatches(plan: Columns) -> Array:
    result: Array = plan.batch_size // (plan.data_par * plan.microbatch_size)
    return result


def _two_ways(plan: Columns) -> Array:
    """Return a mask of executions whose ranks and microbatches are divided evenly over two directions."""
    return (plan.pipeline_par % 2 == 0) & (_microbatches(plan) % 2 == 0)


def _explain_two_ways(one: Request) -> Problem:
    e = one.execution
    if e.pipeline_par % 2:
        wanted = "an even number with pp_schedule=dualpipe, half of which mirrors the other"
        return Problem("pipeline_par", wanted, str(e.pipeline_par), "or use dualpipev")
    found = e.batch_size // (e.data_par * e.microbatch_size)
    wanted = (
        "an even number of microbatches with pp_schedule=dualpipe, half of them in each direction"
    )
    return Problem("batch_size", wanted, f"{found}", "or use dualpipev")


def _explain_filled(one: Request) -> Problem:
    e = one.execution
    found = e.batch_size // (e.data_par * e.microbatch_size)
    wanted = f"at least 2 pipeline_par = {2 * e.pipeline_par} microbatches with pp_schedule={e.pp_schedule}"
    return Problem(
        "batch_size", wanted, str(found), "use fewer stages or a smaller microbatch_size"
    )


def _explain_folded(one: Request) -> Problem:
    name, plain_value, found = _stated(one, _OTHERS)
    schedule = one.execution.pp_schedule
    wanted = (
        f"{plain_value} with pp_schedule={schedule}, whose first rank has both ends of the model"
    )
    return Problem(name, wanted, found, "use stage_blocks")


def _replicates(plan: Columns) -> Array:
    return np.logical_or.reduce([plan.is_choice("zero_stage", form) for form in ("auto", "0", "1")])


def _blocks_suffice(r: Requests) -> Array:
    first, last = r.plan.first_stage_blocks, r.plan.last_stage_blocks
    enough = _enough(first, last, r.model.num_blocks, r.plan.pipeline_par)
    return enough | ((first == 0) & (last == 0))


def _lists_fit(r: Requests) -> Array:
    """Return a mask of executions whose lists have a count for every chunk of every stage, and all blocks."""
    listed, plan = r.plan.stage_blocks, r.plan
    counts = listed_counts(listed)
    fit = counts.length == plan.pipeline_par * plan.pipeline_interleaving
    fit = fit & (counts.total == r.model.num_blocks)
    return fit | (listed == 0)


def _explain_lists(one: Request) -> Problem:
    e, total = one.execution, one.model.num_blocks
    counts = ListsOfCounts.counts(e.stage_blocks)
    chunks = e.pipeline_par * e.pipeline_interleaving
    parts = f"pipeline_par x pipeline_interleaving = {chunks} counts"
    wanted = f"{parts} that add up to num_blocks = {total}"
    each, rest = divmod(len(counts), e.pipeline_par)
    several = not rest and each != e.pipeline_interleaving and sum(counts) == total
    hint = f"vpp={each} for lists of the chunks of each stage" if several else ""
    return Problem("stage_blocks", wanted, f"{len(counts)} that add up to {sum(counts)}", hint)


def _modules_fit(r: Requests) -> Array:
    """Return a mask of executions whose lists have a legal place for MTP modules, or none but the last chunk.

    Source: Megatron-LM, ``core/transformer/pipeline_parallel_layer_layout.py``, ``validate_layer_layout``: all modules
    are in the last chunk of a rank other than the first, after all blocks.
    """
    apart = modules_apart(r.plan)
    if not apart.any():
        return ~apart
    listed, stages = r.plan.stage_blocks, r.plan.pipeline_par
    fit = np.array([_place_fits(list_of(number)) for number in range(listed.max() + 1)])
    place, length = np.moveaxis(fit[listed], -1, 0)
    legal = (place > length - stages) & (place < length - 1) & np.array(r.model.mtp_layers > 0)
    return ~apart | (legal & ~_FOLDED[r.plan.pp_schedule])


def _place_fits(listed: str) -> tuple[int, int]:
    """Return the chunk that has the MTP modules, -1 if blocks follow it, and the number of chunks."""
    counts, place = ListsOfCounts.counts(listed), ListsOfCounts.place_of_modules(listed)
    if place is None or any(counts[place + 1 :]):
        place = -1
    return place, len(counts)


def _explain_modules(one: Request) -> Problem:
    e, found = one.execution, one.execution.stage_blocks
    if not one.model.mtp_layers:
        return Problem("stage_blocks", f"no m, since {one.model.name} has no MTP modules", found)
    if e.pp_schedule in FOLDED_SCHEDULES:
        wanted = f"no m with pp_schedule={e.pp_schedule}, whose first rank has the MTP modules"
        return Problem("stage_blocks", wanted, found)
    wanted = "m after all blocks, in the last chunk of a stage other than the first"
    return Problem("stage_blocks", wanted, found, "without m, MTP modules are with the loss")


def _explain_listed_once(one: Request) -> Problem:
    name = next(name for name in _OTHERS if getattr(one.execution, name) != DEFAULTS[name])
    found = str(getattr(one.execution, name))
    return Problem(name, f"{DEFAULTS[name]}, since stage_blocks lists all stages", found)


def _explain_blocks(one: Request) -> Problem:
    e, total = one.execution, one.model.num_blocks
    given = {name: value for name in _COUNTS if (value := getattr(e, name))}
    free = e.pipeline_par - len(given)
    name = next(reversed(given))
    rest = f"{free} other stages" if free > 1 else "1 other stage"
    wanted = (
        f"blocks that leave one for each of {rest}, of {total}"
        if free
        else f"all {total} blocks on the two stages"
    )
    return Problem(name, wanted, " + ".join(map(str, given.values())))


def _ends_fit(r: Requests) -> Array:
    """Return a mask of executions whose stages with an end that counts as a block have another block."""
    ends = ends_as_blocks(r.plan).sum(axis=0)
    return (ends == 0) | (r.model.num_blocks + ends >= 2 * r.plan.pipeline_par)


def _explain_ends(one: Request) -> Problem:
    e, ends = one.execution, sum(ENDS_AS_BLOCKS[one.execution.pp_layout])
    counted = f"{one.model.num_blocks} + {ends}"
    wanted = (
        f"uniform, since {counted} blocks are less than two for each of {e.pipeline_par} stages"
    )
    return Problem("pp_layout", wanted, e.pp_layout)


def _can_overlap(plan: Columns) -> Array:
    """Return a mask of executions with other chunks or microbatches to compute during a transfer."""
    several = plan.pipeline_interleaving > 1
    due = several | _DUE[plan.pp_schedule]
    # In inference, chunks of a stage wait for each other.
    due = np.where(plan.training, due, ~several)
    # With fewer microbatches than stages, stages wait and have nothing to compute.
    return due & (_microbatches(plan) >= plan.pipeline_par)


def _explain_overlap(one: Request) -> Problem:
    e = one.execution
    if not e.training:
        wanted = f"false with pipeline_interleaving={e.pipeline_interleaving} in inference"
        return Problem("p2p_overlap", f"{wanted}, whose chunks wait for each other", "true")
    if e.batch_size // (e.data_par * e.microbatch_size) < e.pipeline_par:
        wanted = f"false with fewer microbatches than the {e.pipeline_par} stages that they fill"
        return Problem("p2p_overlap", wanted, "true")
    wanted = f"false with pp_schedule: {e.pp_schedule} and one chunk, since there is no other work to overlap with"
    return Problem("p2p_overlap", wanted, "true", "use pipeline_interleaving, or gpipe")


_DUE = np.array([name == "gpipe" or name in SIMULATED_SCHEDULES for name in PP_SCHEDULES])
"""Schedules with a single chunk that have other passes to compute during a transfer."""


STAGE_RULES = (
    Rule(
        "stages_need_pipeline",
        _needs(STAGE_FIELDS, lambda plan: plan.pipeline_par > 1),
        _explain_piped,
        STAGE_FIELDS,
        counted=True,
    ),
    Rule(
        "stages_need_one_chunk",
        lambda r: _has_chunks(r.plan),
        _explain_chunks,
        _SCHEDULE,
        counted=True,
    ),
    Rule(
        "schedule_needs_training",
        _needs(("pp_schedule",), lambda plan: plan.training),
        expected("pp_schedule", "1f1b, since inference has only forward passes"),
        ("pp_schedule",),
    ),
    Rule(
        "dualpipe_even",
        _of_schedule(("dualpipe",), _two_ways),
        _explain_two_ways,
        _SCHEDULE,
        counted=True,
    ),
    Rule(
        "dualpipe_filled",
        _of_schedule(PAIRED_SCHEDULES, lambda plan: _microbatches(plan) >= 2 * plan.pipeline_par),
        _explain_filled,
        _SCHEDULE,
        counted=True,
    ),
    Rule(
        "folded_layout",
        _of_schedule(
            FOLDED_SCHEDULES, lambda plan: reduce(and_, (getattr(plan, n) == 0 for n in _OTHERS))
        ),
        _explain_folded,
        _SCHEDULE,
    ),
    Rule(
        "dualpipe_replicas",
        _of_schedule(("dualpipe",), _replicates),
        expected(
            "zero_stage",
            "0 or 1 with pp_schedule=dualpipe, whose ranks add up the gradients of a batch in pairs",
        ),
        _SCHEDULE,
    ),
    Rule(
        "layout_stated_once",
        _needs(_COUNTS, lambda plan: plan.pp_layout == _UNIFORM),
        expected("pp_layout", "uniform, since first_stage_blocks or last_stage_blocks is stated"),
        _COUNTS,
    ),
    Rule(
        "listed_once",
        _needs(
            ("stage_blocks",), lambda plan: reduce(and_, (getattr(plan, n) == 0 for n in _OTHERS))
        ),
        _explain_listed_once,
        ("stage_blocks",),
    ),
    Rule("listed_blocks", _lists_fit, _explain_lists, ("stage_blocks",), counted=True),
    Rule("modules_place", _modules_fit, _explain_modules, ("stage_blocks",), counted=True),
    Rule("stage_blocks", _blocks_suffice, _explain_blocks, _COUNTS, counted=True),
    Rule("ends_as_blocks", _ends_fit, _explain_ends, ("pp_layout",), counted=True),
    Rule(
        "overlap_needs_work",
        _needs(("p2p_overlap",), _can_overlap),
        _explain_overlap,
        ("p2p_overlap",),
        counted=True,
    ),
)
"""Requirements on schedule and layout of a pipeline, in the order of checking."""
