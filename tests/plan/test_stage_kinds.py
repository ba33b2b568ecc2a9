"""Which kinds of block the stages of a pipeline have."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calculon import inputs
from calculon.architecture.segments import kinds_by_block, kinds_of_block
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.editions import CORRECTED
from calculon.estimate.evaluate import evaluate_one
from calculon.estimate.stages import stage_memory, stage_passes
from calculon.plan.plan import Plan
from calculon.plan.stage_kinds import chunks_of_layout, kinds_of_chunks
from tests.draws import draws
from tests.helpers import CORRECTED_PLAIN

MODEL = Model(
    hidden=2048,
    feedforward=16384,
    seq_size=2048,
    attn_heads=16,
    attn_size=128,
    num_blocks=16,
    activation="swiglu",
    norm="rmsnorm",
    dropout=False,
    num_experts=64,
    experts_per_token=2,
    expert_feedforward=1024,
    first_k_dense=3,
)
SYSTEM = inputs.system({"base": "h100_80g_sxm", "mem1": {"GiB": 10_000}})


def execution(**changes):
    """Return an execution of 4 stages and 2 replicas."""
    fields = {"tensor_par": 2, "pipeline_par": 4, "data_par": 2, "batch_size": 32}
    fields |= {"num_procs": 16, "microbatch_size": 1, "zero_stage": "1"}
    fields |= {"optimizer_sharding": True, "attn_impl": "flash"}
    return Execution(**CORRECTED_PLAIN | fields | changes)


def batch(model=MODEL, **changes):
    """Return its batch."""
    return evaluate_one(model, SYSTEM, Plan.of(execution(**changes)), CORRECTED)


def layout_of(found):
    """Return blocks of each kind on the stages that differ, how many there are, and the first of them."""
    layout = found.schedule.layout
    return [
        (own.tolist(), int(count), int(place))
        for own, count, place in zip(
            layout.of_kind[..., 0].T, layout.count[:, 0], layout.place[:, 0], strict=True
        )
        if count
    ]


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, [([3, 1], 1, 0), ([0, 4], 2, 1), ([0, 4], 1, 3)]),
        (
            {"pipeline_interleaving": 2},
            [([2, 2], 1, 0), ([1, 3], 1, 1), ([0, 4], 1, 2), ([0, 4], 1, 3)],
        ),
        (
            {"stage_blocks": "2-5-5-4"},
            [([2, 0], 1, 0), ([1, 4], 1, 1), ([0, 5], 1, 2), ([0, 4], 1, 3)],
        ),
        (
            {"first_stage_blocks": 1},
            [([1, 0], 1, 0), ([2, 3], 1, 1), ([0, 5], 1, 2), ([0, 5], 1, 3)],
        ),
    ],
)
def test_stages_have_the_kinds_that_lie_on_them(changes, wanted):
    assert layout_of(batch(**changes)) == wanted


def test_modules_of_another_stage_are_a_kind_of_block():
    chunks = chunks_of_layout([0] * 3, 2, "2-1-1-1-0m-0", modules=2)
    assert chunks.tolist() == [[2, 1], [1, 2], [1, 0]]
    model = replace(MODEL, num_blocks=5, first_k_dense=2, vocab=100, mtp_layers=2)
    counts = kinds_of_chunks(model, chunks, modules=True)
    assert counts.tolist() == [
        [[2, 0], [0, 0], [0, 0]],
        [[0, 1], [1, 0], [1, 0]],
        [[0, 0], [0, 2], [0, 0]],
    ]


@settings(max_examples=draws(40))
@given(
    stages=st.lists(st.integers(0, 9), min_size=1, max_size=9),
    chunks=st.integers(1, 4),
    leading=st.integers(0, 5),
    every=st.integers(1, 4),
)
def test_stages_together_have_the_blocks_of_the_model(stages, chunks, leading, every):
    total = sum(stages)
    if leading + every > total or (leading == 0 and every == 1):
        return
    model = replace(MODEL, num_blocks=total, first_k_dense=leading, moe_layer_freq=every)
    blocks = chunks_of_layout(stages, chunks, "")
    counts = kinds_of_chunks(model, blocks)
    assert (counts.sum(axis=0) == blocks).all()
    assert counts.sum(axis=(1, 2)).tolist() == [kind.count for kind in kinds_of_block(model)]
    kinds, places = kinds_by_block(model), {}
    numbers = iter(range(total))
    for chunk in range(chunks):
        for stage in range(len(stages)):
            own = [kinds[next(numbers)] for _ in range(int(blocks[stage, chunk]))]
            places[stage, chunk] = [own.count(kind) for kind in dict.fromkeys(kinds)]
    assert all((counts[:, i, j] == own).all() for (i, j), own in places.items())


def _of_kinds(model, **changes):
    """Return batches of models whose blocks are all dense, and all with experts."""
    dense = dict.fromkeys(("first_k_dense", "num_experts", "expert_feedforward"), 0)
    models = replace(model, **dense, experts_per_token=1), replace(model, first_k_dense=0)
    return [batch(one, **changes) for one in models]


def test_the_slowest_and_the_fullest_stage_are_sums_over_their_blocks():
    found, (dense, experts) = batch(), _of_kinds(MODEL)
    per_block = [one.fw.time[0] for one in (dense, experts)]
    stages = [3 * per_block[0] + per_block[1], 4 * per_block[1]]
    assert stages[0] != pytest.approx(stages[1], rel=0.05)
    slowest = float(found.times.fw_time[0]) / 16
    assert slowest == pytest.approx(max(stages), rel=1e-12)
    weights = [one.stage.block.weight[0] for one in (dense, experts)]
    memory = stage_memory(found)
    wanted = [3 * weights[0] + weights[1], *[4 * weights[1]] * 3]
    assert memory.space.weight == pytest.approx(wanted, rel=1e-12)
    fullest = memory.capacity.proc_mem_tier1_cap_req
    assert found.capacity.proc_mem_tier1_cap_req[0] == pytest.approx(fullest.max(), rel=1e-12)
    assert fullest.argmax() == 1
    first, between, last = found.pipeline.uneven.passes.both[:, 0]
    whole = found.times.bubble_time[0] + 16 * max(first, between, last)
    wanted = first + 2 * between + last + 15 * max(first, between, last)
    assert whole == pytest.approx(wanted, rel=1e-12)
    forward = stage_passes(found).forward[:, 0]
    assert forward == pytest.approx(
        found.pipeline.uneven.passes.forward[[0, 1, 1, 2], 0], rel=1e-12
    )


def test_gradients_and_step_are_those_of_the_stage_where_they_take_longest():
    found, (dense, experts) = batch(), _of_kinds(MODEL)
    steps = [one.optim.time[0] for one in (dense, experts)]
    longest = max(3 * steps[0] + steps[1], 4 * steps[1])
    assert found.times.optim_step_time[0] == pytest.approx(longest, rel=1e-12)
    alone = experts.pipeline.gradient_sync.link[0]  # all stages of it have four blocks with experts
    assert found.pipeline.gradient_sync.link[0] == pytest.approx(alone, rel=1e-12)


def test_stages_of_whole_groups_have_the_mean_of_the_model():
    model = replace(MODEL, moe_layer_freq=2, first_k_dense=0, num_blocks=16)
    found = batch(model)
    assert layout_of(found) == [([2, 2], 1, 0), ([2, 2], 2, 1), ([2, 2], 1, 3)]
    mean = [one.fw.time[0] for one in _of_kinds(replace(model, moe_layer_freq=1))]
    assert found.times.fw_time[0] / 16 == pytest.approx(2 * sum(mean), rel=1e-12)
    assert found.fw.time[0] == pytest.approx(sum(mean) / 2, rel=1e-12)


@pytest.mark.parametrize(
    ("schedule", "wanted"),
    [
        ("1f1b", [([2, 0], 1, 0), ([2, 0], 4, 1), ([1, 1], 2, 3), ([2, 0], 1, 7)]),
        (
            "zb_h2",
            [
                *[([2, 0], 1, 0), ([2, 0], 2, 1), ([1, 1], 1, 3), ([2, 0], 2, 4)],
                *[([1, 1], 1, 6), ([2, 0], 1, 7)],
            ],
        ),
    ],
)
def test_stages_of_a_simulated_schedule_are_in_order(schedule, wanted):
    """Blocks 6 and 12 have experts, on stages 3 and 6."""
    model = replace(MODEL, first_k_dense=1, moe_layer_freq=6)
    found = batch(model, pipeline_par=8, num_procs=32, pp_schedule=schedule)
    assert layout_of(found) == wanted
