"""The search finds what trying every execution finds, and counts what is there."""

import dataclasses
import importlib
import itertools
import weakref
from collections import Counter

import numpy as np
import pytest

import calculon
from calculon.declarations.named_values import PP_SCHEDULES
from calculon.search.best_first import (
    GRID_NODES,
    count_space,
    feasible_numbers,
    groups,
    portions,
    search_space,
)
from calculon.search.cost_cache import CostCache
from calculon.search.cost_tables import CostTables
from calculon.search.nodes import nodes_of, similar_units
from calculon.search.objective import Objective
from calculon.search.ranking import Best, BestOfEach, ParetoFront
from calculon.search.request import make_space
from calculon.search.search_result import FRONT
from tests.search.brute import CONDITIONS, OBJECTIVES, OUTER, Case, same_rows, score
from tests.search.pool import BEST_FIRST as one
from tests.search.pool import on_pool, pool

SMALL = calculon.Model(
    hidden=768, feedforward=3072, seq_size=1024, attn_heads=24, attn_size=32, num_blocks=12
)


def _inputs():
    return SMALL, calculon.inputs.system("a100_80g")


def _same_counts(counts, case, visited=slice(None)):
    reasons = Counter(case.table.reason[visited].tolist())
    assert counts.total == reasons.total()
    assert counts.good == reasons.pop("", 0)
    assert counts.bad == reasons.total()
    assert +counts.reasons == reasons


def _found(case, ranking, **options):
    counts = search_space(case.space, ranking, **options)
    scores, numbers = ranking.ranked()
    return counts, scores, case.space.plan(numbers)


COVERED = {
    "cp_comm": {"p2p", "all_gather", "a2a", "a2a_p2p"},
    "fp8_recipe": {"none", "tensorwise", "blockwise"},
    "pp_schedule": {*PP_SCHEDULES},
    "ep_overlap": {"none", "1f1b", "two_batch"},
    "pp_layout": {"uniform", "balanced", "both_as_blocks"},
    "moe_dispatcher": {"alltoall", "allgather"},
    "zero_stage": {"0", "1", "2", "3", "fsdp"},
    "context_par": {1, 2, 4, 8},
    "expert_par": {1, 2, 4, 8},
    "expert_tensor_par": {0, 1, 2},
    "moe_shared_overlap": {False, True},
    "delay_wgrad": {False, True},
}
"""Values that feasible executions of the spaces have."""


def test_the_spaces_have_every_kind_of_execution():
    feasible = [case.plan.take(case.table.feasible) for case in pool().values()]
    for name, values in COVERED.items():
        there = {value for plan in feasible for value in plan.values(name).tolist()}
        assert values <= there, name
    partly = [case for case in pool().values() if 0 < case.table.feasible.sum() < len(case.rows)]
    assert len(partly) > 30


@on_pool()
def test_the_best_executions_are_those_of_trying_all(case, draw):
    """With skipping what cannot win, and often without."""
    objective = Objective.parse(draw.choice(("sample_rate", "total_time", *OBJECTIVES)))
    top, where = draw.choice((1, 5, 12, len(case.rows) + 1)), draw.choice(CONDITIONS)
    rows = case.best(objective, top, where.mask(case.table.column) if where else None)
    wanted = score(objective, case.table)[rows]
    cache = CostCache()
    for prune in draw.choice(((True,), (True, False))):
        ranking = Best(objective, top, where, prune=prune)
        counts, scores, plan = _found(case, ranking, cache=cache)
        _same_counts(counts, case)
        assert same_rows(plan, case.plan.take(rows))
        assert (scores[0].view(np.int64) == wanted.view(np.int64)).all()


@on_pool(0, 6)
def test_a_microbatch_size_without_success_ends_its_loop(case, draw):
    visited = case.visited()
    counts, scores, plan = _found(case, Best(Objective.parse("sample_rate"), 3), mbs_break=True)
    _same_counts(counts, case, visited)
    rates = np.where(visited & case.table.feasible, case.table["sample_rate"], -np.inf)
    best = case.best(Objective.parse("sample_rate"), 3, visited)
    assert same_rows(plan, case.plan.take(best))
    assert (scores[0] == rates[best]).all()


@on_pool(1, 5)
def test_the_nearest_miss_is_the_fewest_bytes_too_many(case, draw):
    counts = search_space(case.space, Best(Objective.parse("sample_rate"), 1))
    capacities = case.space.system.usable
    for reason, needs, capacity in zip(
        ("mem1_capacity", "mem2_capacity"), case.needs, capacities, strict=True
    ):
        failed = needs[case.table.reason == reason]
        if len(failed):
            assert counts.nearest_miss[reason] == failed.min() - capacity > 0
        else:
            assert reason not in counts.nearest_miss


@on_pool()
def test_the_size_of_a_space_needs_no_search(case, draw):
    assert count_space(case.space) == len(case.rows)
    first, once = {}, 0
    for row in case.rows:
        loop = tuple(row[name] for name in ("data_par", *OUTER))
        once += first.setdefault(loop, row["microbatch_size"]) == row["microbatch_size"]
    assert count_space(case.space, mbs_break=True) == once


@on_pool(3, 12)
def test_the_size_of_tiles_and_blocks_does_not_show(case, draw):
    cache = CostCache()
    expected = _results(case, cache)
    names = ("GRID_CELLS", "TABLE_ROWS", "WAITING_NODES", "FIRST_CELLS", "MORE_CELLS")
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setattr(one, name, draw.randint(10, 80))
        row_block = draw.randint(10, 80)
        patch.setattr(importlib.import_module("calculon.search.tile"), "ROW_BLOCK", row_block)
        assert _results(case, cache) == expected


def _results(case, cache):
    rankings = (
        Best(Objective.parse("sample_rate"), 4),
        ParetoFront([Objective.parse("total_time"), Objective.parse("proc_mem_tier1_cap_req")]),
    )
    results = []
    for ranking in rankings:
        results.append(search_space(case.space, ranking, mbs_break=True, cache=cache))
        results += [array.tolist() for array in ranking.ranked()]
    return [*results, np.concatenate([[], *feasible_numbers(case.space)]).tolist()]


def test_small_tables_make_groups_of_one_tensor_degree(monkeypatch):
    space = Case(*_inputs(), 24, 24, "float16").space
    assert len(list(groups(space))) == 1
    monkeypatch.setattr(one, "TABLE_ROWS", 1)
    parts = list(groups(space))
    assert [{unit.tensor_par for unit in part} for part in parts] == [
        {t} for t in (1, 2, 3, 4, 6, 8, 12, 24)
    ]
    assert [unit for part in parts for unit in part] == list(space.units)


def test_small_tables_have_all_sizes_of_some_choices(monkeypatch):
    space = Case(*_inputs(), 24, 24, "float16").space
    ((units, blocks),) = portions(space)
    assert units == space.units
    assert blocks == space.block_groups
    rows = len(CostTables(space, units).block.weight)
    monkeypatch.setattr(one, "TABLE_ROWS", rows // 3)
    parts = list(portions(space))
    assert len(parts) > 1
    assert all(units == space.units for units, _ in parts)
    assert [choice for _, part in parts for choice, _ in part] == [c for c, _ in blocks]
    assert max(len(CostTables(space, *part).block.weight) for part in parts) <= rows // 3


BROAD = {
    "attn_impl": ("flash",),
    "ce_impl": ("fused",),
    "seq_length": (512,),
    "zero_stage": ("2",),
}


def test_tables_of_a_broad_search_are_small_and_released(monkeypatch):
    """One degree alone has more blocks than a table may: they are split, and one table is there at a time."""
    model = dataclasses.replace(SMALL, vocab=1000, num_blocks=2)
    system = calculon.inputs.system("a100_80g")
    named = {"edition": "corrected", "preset": "published"}
    fix = {"tensor_par": (4,), "weight_offload": (False,), "activations_offload": (False,)}
    space = make_space(model, system, 4, 4, "float16", fix=fix, add=BROAD, **named)
    made, rows, alive = [], [], []

    class Watched(CostTables):
        def __init__(self, *args):
            alive.append(sum(one() is not None for one in made))
            super().__init__(*args)
            made.append(weakref.ref(self))
            rows.append(len(self.block.weight))

    monkeypatch.setattr(one, "CostTables", Watched)
    counts = search_space(space, Best(Objective.parse("sample_rate"), 3))
    assert rows.pop() > 150
    assert not rows
    monkeypatch.setattr(one, "TABLE_ROWS", 150)
    assert search_space(space, Best(Objective.parse("sample_rate"), 3)) == counts
    assert max(rows) <= 150
    assert not any(alive)


def test_tables_have_only_the_sizes_of_units():
    """Few data-parallel ranks are the only ones that run large microbatches, and they have many context ranks."""
    model = dataclasses.replace(SMALL, vocab=1000, num_blocks=2)
    system = calculon.inputs.system("a100_80g")
    named = {"edition": "corrected", "preset": "published"}
    add = BROAD | {"context_par": (1, 2, 4)}
    space = make_space(model, system, 4, 4, "float16", fix={"tensor_par": (1,)}, add=add, **named)
    ((units, blocks),) = portions(space)
    tables = CostTables(space, units, blocks)
    rows = [
        nodes.block_rows.ravel()
        for kind in similar_units(space, units)
        for choice, variants in tables.groups
        for nodes in nodes_of(tables, choice, kind, variants, GRID_NODES)
    ]
    every = len(tables.block.weight)
    assert {*np.concatenate(rows).tolist()} | {0} == {*range(every)}
    sizes = {size for unit in units for size in unit.microbatches}
    assert every < len(sizes) * len(blocks) * len(space.block_sizes[0]) * len(system.networks)


@on_pool(1, 12)
def test_progress_is_told_of_all_that_is_counted(case, draw):
    rate, stride = Objective.parse("sample_rate"), case.space.strides["microbatch_size"]
    front = [Objective.parse(name) for name in FRONT]
    for ranking in (Best(rate, 1), BestOfEach(rate, stride), ParetoFront(front)):
        told = []
        counts = search_space(case.space, ranking, seen=told.append)
        assert sum(told) == counts.total == len(case.rows)
        assert min(told, default=0) >= 0


@pytest.mark.parametrize("after", [1, 2, 4])
def test_a_search_ends_by_what_its_progress_raises(after):
    model, system = _inputs()
    space = make_space(model, system, 16, 8, "float16", edition="corrected")
    calls = itertools.count(1)

    def seen(_):
        if next(calls) == after:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        search_space(space, Best(Objective.parse("sample_rate"), 1), seen=seen)
    assert next(calls) == after + 1


@on_pool(0, 8)
def test_the_splits_of_a_search_add_up_to_its_counts(case, draw):
    splits = {}
    counts = search_space(case.space, Best(Objective.parse("sample_rate"), 1), splits=splits)
    assert sum(splits.values(), Counter()) == +counts.reasons + Counter({"": counts.good})
    table = case.table
    for (tensor_par, pipeline_par), reasons in splits.items():
        rows = (table.column("tensor_par") == tensor_par) & (
            table.column("pipeline_par") == pipeline_par
        )
        assert reasons == Counter(table.reason[rows].tolist())


@on_pool(1, 6)
def test_skipping_what_cannot_be_the_best_of_its_kind_changes_nothing(case, draw):
    text = draw.choice(("sample_rate", "total_time", "proc_mem_tier1_cap_req"))
    objective = Objective.parse(text)
    stride = case.space.strides["pipeline_interleaving"]
    counts, scores, plan = _found(case, BestOfEach(objective, stride))
    good = np.flatnonzero(case.table.feasible)
    wanted = {}
    for row, value in zip(good.tolist(), score(objective, case.table)[good].tolist(), strict=True):
        names = ("tensor_par", "pipeline_par", "batch_size", "pipeline_interleaving")
        kind = tuple(case.plan.values(name)[row] for name in names)
        wanted[kind] = max(value, wanted.get(kind, -np.inf))
    _same_counts(counts, case)
    assert scores[0].tolist() == sorted(wanted.values(), reverse=True)
    assert len(plan) == len(wanted)
