"""Closed forms of pipeline schedules against their execution, event by event."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calculon.cost.in_flight import peak_of_chunks
from calculon.cost.pipeline import interleaved
from calculon.cost.pipeline.interleaved import InterleavedPasses, interleaved_time
from calculon.cost.pipeline.orders import Pass, order
from calculon.cost.pipeline.schedules import Passes, batch_time, held_microbatches
from calculon.cost.pipeline.timeline import timeline
from calculon.plan.stage_kinds import chunks_of_layout
from calculon.plan.stage_layout import balanced_last
from tests.cases import for_each
from tests.draws import draws

SCHEDULES = ("1f1b", "gpipe", "zb_h1", "forward")
"""Schedules whose time is that of :func:`batch_time`; of others see test_chunked.py."""

FEW = settings(max_examples=draws(25), deadline=None)
TIMES = st.integers(1, 9)
COUNTS = {"stages": st.integers(1, 7), "microbatches": st.integers(1, 20)}


def orders(schedule, stages, microbatches, chunks=1):
    return [order(schedule, stage, stages, microbatches, chunks) for stage in range(stages)]


def alike(stages, forward, backward, weight=0):
    """Return the passes of stages that all take as long; time of gradients of weights is part of `backward`."""
    return Passes(
        stages=np.array([stages]),
        forward=np.array([forward]),
        backward=np.array([backward]),
        weight=np.array([weight]),
    )


def each(forward, backward, weight):
    """Return the passes of stages from a time of each."""
    return Passes(
        stages=np.ones(len(forward)),
        forward=np.array(forward),
        backward=np.array(backward),
        weight=np.array(weight),
    )


def executed(schedule, passes, microbatches, chunks=1, delay=0.0):
    """Return the spans of a batch whose stages are as long as `passes` says, evenly split over chunks."""
    stages = int(passes.stages.sum())
    kind = np.repeat(np.arange(len(passes.stages)), passes.stages.astype(int))
    times = {
        "forward": passes.forward,
        "backward": passes.backward,
        "inputs": passes.backward - passes.weight,
        "weight": passes.weight,
    }
    return timeline(
        orders(schedule, stages, microbatches, chunks),
        lambda what, stage, chunk: times[what][kind[stage]] / chunks,
        delay,
    )


def end(spans):
    return max(span.end for span in spans)


def assert_exact(passes, microbatches, schedules=SCHEDULES):
    """Check that closed forms are the time of an execution."""
    for schedule in schedules:
        form = batch_time(schedule, passes, microbatches)
        assert end(executed(schedule, passes, microbatches)) == form


# -- orders and their execution -------------------------------------------------------------------


@for_each(("schedule", "chunks"), [*((name, 1) for name in SCHEDULES), ("1f1b", 2), ("1f1b", 3)])
@for_each(("stages", "microbatches"), [(1, 3), (4, 2), (4, 4), (3, 8)])
def test_every_stage_does_every_pass_once(schedule, chunks, stages, microbatches):
    kinds = {"forward": ("forward",), "zb_h1": ("forward", "inputs", "weight")}
    wanted = {
        Pass(kind, microbatch, chunk)
        for kind in kinds.get(schedule, ("forward", "backward"))
        for microbatch in range(microbatches)
        for chunk in range(chunks)
    }
    for own in orders(schedule, stages, microbatches, chunks):
        assert len(own) == len(wanted)
        assert set(own) == wanted


def names(own):
    return " ".join(f"{one.kind[0].upper()}{one.microbatch + 1}" for one in own)


def test_orders_of_two_stages_as_they_are_published():
    assert list(map(names, orders("gpipe", 2, 3))) == ["F1 F2 F3 B1 B2 B3"] * 2
    assert list(map(names, orders("1f1b", 2, 3))) == ["F1 F2 B1 F3 B2 B3", "F1 B1 F2 B2 F3 B3"]
    assert list(map(names, orders("zb_h1", 2, 3))) == [
        "F1 F2 I1 W1 F3 I2 W2 I3 W3",
        "F1 I1 F2 I2 W1 F3 I3 W2 W3",
    ]


def test_interleaving_goes_through_the_chunks_in_groups_of_as_many_as_stages():
    first = orders("1f1b", 2, 4, 2)[0]
    assert [(one.microbatch, one.chunk) for one in first if one.kind == "forward"] == [
        (0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (3, 0), (2, 1), (3, 1)
    ]  # fmt: skip
    assert [(one.microbatch, one.chunk) for one in first if one.kind == "backward"] == [
        (0, 1), (1, 1), (0, 0), (1, 0), (2, 1), (3, 1), (2, 0), (3, 0)
    ]  # fmt: skip


def test_a_pass_starts_when_its_stage_is_free_and_its_input_is_there():
    spans = timeline(
        orders("1f1b", 2, 2), lambda kind, stage, chunk: {"forward": 1, "backward": 2}[kind], 0.5
    )
    assert {(s.stage, names([s.work])): (s.start, s.end) for s in spans} == {
        (0, "F1"): (0, 1), (0, "F2"): (1, 2), (0, "B1"): (5, 7), (0, "B2"): (8, 10),
        (1, "F1"): (1.5, 2.5), (1, "B1"): (2.5, 4.5), (1, "F2"): (4.5, 5.5), (1, "B2"): (5.5, 7.5),
    }  # fmt: skip


def test_orders_that_wait_for_each_other_are_an_error():
    stuck = [[Pass("backward", 0), Pass("forward", 0)]]
    with pytest.raises(ValueError, match="wait for each other"):
        timeline(stuck, lambda kind, stage, chunk: 1.0)


# -- closed forms ---------------------------------------------------------------------------------


@for_each(
    ("schedule", "chunks", "bubble"),
    [("gpipe", 1, 21), ("1f1b", 1, 21), ("1f1b", 2, 10.5), ("zb_h1", 1, 7)],
)
def test_bubbles_of_eight_stages_and_32_microbatches(schedule, chunks, bubble):
    """Forward 1, backward 2, half of it for gradients of weights: 17.9 %, 9.9 % and 6.8 % of the time."""
    passes = alike(8, 1.0, 2.0, 1.0)
    assert batch_time(schedule, passes, 32, chunks) == 32 * 3 + bubble
    assert end(executed(schedule, passes, 32, chunks)) == 32 * 3 + bubble


@given(**COUNTS, forward=TIMES, backward=TIMES, weight=st.integers(0, 9))
@FEW
def test_stages_that_are_alike_are_exact(stages, microbatches, forward, backward, weight):
    passes = alike(stages, forward, backward + weight, weight)
    assert_exact(passes, microbatches)


@given(**COUNTS, forward=TIMES, backward=TIMES, data=st.data())
@FEW
def test_a_slower_last_stage_is_exact(stages, microbatches, forward, backward, data):
    weight = data.draw(st.integers(0, min(forward, backward)))
    more = [data.draw(st.integers(0, 9)) for _ in range(2)]
    passes = each(
        [forward] * (stages - 1) + [forward + more[0]],
        [backward + weight] * (stages - 1) + [backward + weight + more[1] + min(more)],
        [weight] * (stages - 1) + [weight + min(more)],
    )
    assert_exact(passes, microbatches)


@given(**COUNTS, data=st.data())
@FEW
def test_forward_and_gpipe_are_exact_for_any_stages(stages, microbatches, data):
    times = st.lists(TIMES, min_size=stages, max_size=stages)
    passes = each(data.draw(times), data.draw(times), [0] * stages)
    assert_exact(passes, microbatches, ("forward", "gpipe"))
    last = end(executed("1f1b", passes, microbatches))
    assert microbatches * passes.largest(passes.both) <= last
    assert last <= batch_time("gpipe", passes, microbatches)


@given(**COUNTS, data=st.data())
@FEW
def test_the_form_of_1f1b_bounds_stages_of_any_length_from_above(stages, microbatches, data):
    times = data.draw(st.lists(TIMES, min_size=stages, max_size=stages))
    passes = each(times, [2 * time for time in times], [0] * stages)
    last = end(executed("1f1b", passes, microbatches))
    assert last <= batch_time("1f1b", passes, microbatches)
    assert last >= microbatches * passes.largest(passes.both)


@given(
    stages=st.integers(2, 6), microbatches=st.integers(1, 20), chunks=st.integers(2, 4), time=TIMES
)
@FEW
def test_interleaving_is_exact_but_for_a_rest_of_microbatches(stages, microbatches, chunks, time):
    passes = alike(stages, time * chunks, 2 * time * chunks)
    last = end(executed("1f1b", passes, microbatches, chunks))
    form = batch_time("1f1b", passes, microbatches, chunks)
    if microbatches % stages == 0 or microbatches < stages:
        assert last == form
    else:
        assert last < form <= 1.2 * last


def test_kinds_of_stage_that_there_are_none_of_do_not_count():
    single = Passes(
        stages=np.array([0, 0, 1]),
        forward=np.array([9.0, 9.0, 1.0]),
        backward=np.array([9.0, 9.0, 2.0]),
        weight=np.array([8.0, 0.0, 1.0]),
    )
    for schedule in SCHEDULES:
        assert batch_time(schedule, single, 5) == 5 * (1 if schedule == "forward" else 3)


# -- what is held ---------------------------------------------------------------------------------


def most_held(spans, stage, split):
    """Return the most chunks that wait for the pass that frees them, while a stage works."""
    own = [span.work for span in spans if span.stage == stage]
    held = most = 0
    for work in own:
        held += work.kind == "forward"
        most = max(most, held)
        held -= work.kind == ("weight" if split else "backward")
    return most


@given(**COUNTS, chunks=st.integers(1, 3))
@FEW
def test_as_many_microbatches_are_held_as_the_form_says(stages, microbatches, chunks):
    for schedule in ("gpipe", "1f1b", "zb_h1"):
        parts = chunks if schedule == "1f1b" and stages > 1 else 1
        spans = executed(schedule, alike(stages, 2, 4, 2), microbatches, parts)
        for stage in range(stages):
            most = most_held(spans, stage, schedule == "zb_h1") / parts
            form = held_microbatches(schedule, stage, stages, microbatches, parts)
            if schedule == "1f1b" and (parts == 1 or microbatches % stages == 0):
                assert most == form
            else:
                assert most <= form
            if schedule == "zb_h1" and microbatches >= 2 * stages:
                assert most == form


@pytest.mark.parametrize("chunks", [2, 3])
def test_transfers_beside_the_passes_are_hidden_by_chunks_but_for_one_trip(chunks):
    passes = alike(4, chunks, 2 * chunks)
    late = end(executed("1f1b", passes, 16, chunks, delay=0.25))
    assert late == batch_time("1f1b", passes, 16, chunks) + 2 * (4 * chunks - 1) * 0.25


# -- chunks that differ ---------------------------------------------------------------------------


def execution_of_chunks(passes, microbatches):
    """Return the time of a batch of an execution, event by event, and the spans."""
    stages, chunks, _ = passes.forward.shape
    times = {"forward": passes.forward, "backward": passes.backward}
    hidden = passes.hidden
    spans = timeline(
        [
            order("1f1b", stage, stages, microbatches, chunks, pairs=hidden is not None)
            for stage in range(stages)
        ],
        lambda what, stage, chunk: float(times[what][stage, chunk, 0]),
        hidden=lambda stage, one, other: float(min(hidden[stage, one, 0], hidden[stage, other, 0])),
    )
    return end(spans), spans


@st.composite
def lists_of_chunks(draw):
    """Return blocks of the chunks of stages, and passes that take times of any length."""
    stages, chunks = draw(st.integers(2, 6)), draw(st.integers(2, 4))
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    blocks = random.integers(0, 4, (stages, chunks)).astype(float)
    forward, backward = (
        blocks[..., None] * random.integers(1, 9) + random.random((stages, chunks, 1))
        for _ in range(2)
    )
    hidden = np.minimum(forward, backward) * random.random()
    return blocks, InterleavedPasses(forward, backward, draw(st.sampled_from((None, hidden))))


@given(one=lists_of_chunks(), groups=st.integers(1, 12), rest=st.integers(0, 5))
@FEW
def test_chunks_that_differ_take_as_long_as_they_execute(one, groups, rest):
    blocks, passes = one
    microbatches = groups * len(blocks) + rest % len(blocks)
    executed_time, spans = execution_of_chunks(passes, microbatches)
    found = interleaved_time(passes, microbatches)
    np.testing.assert_allclose(found, executed_time, rtol=1e-12)
    if passes.hidden is not None:
        _, spans = execution_of_chunks(passes._replace(hidden=None), microbatches)
    peaks = peak_of_chunks(tuple(map(tuple, blocks)), microbatches)
    for stage, own in enumerate(blocks):
        held = 0
        most = 0
        for span in (span for span in spans if span.stage == stage):
            held += own[span.work.chunk] * (span.work.kind == "forward")
            most = max(most, held)
            held -= own[span.work.chunk] * (span.work.kind == "backward")
        assert peaks[stage] == pytest.approx(most / max(1, own.sum()), rel=1e-12)


@given(one=lists_of_chunks(), groups=st.integers(1, 12))
@FEW
def test_chunks_take_no_less_than_the_bounds_of_a_search(one, groups):
    """All passes of any stage; of the last one, also the first chunks before and after its passes."""
    _, passes = one
    microbatches = groups * len(passes.forward)
    both = (passes.forward + passes.backward)[..., 0]
    if passes.hidden is not None:
        both -= passes.hidden[..., 0]
    last = microbatches * both[-1].sum() + both[:-1, 0].sum()
    bound = max(microbatches * both.sum(axis=1).max(), last)
    assert interleaved_time(passes, microbatches)[0] >= bound * (1 - 1e-12)


@given(one=lists_of_chunks(), groups=st.integers(1, 5), rest=st.integers(0, 5))
@FEW
def test_chunks_of_inference_take_as_long_as_their_forward_passes(one, groups, rest):
    blocks, passes = one
    stages, chunks = blocks.shape
    microbatches = groups * stages + rest % stages
    orders_of_forward = [
        [one for one in order("1f1b", stage, stages, microbatches, chunks) if one.kind == "forward"]
        for stage in range(stages)
    ]
    spans = timeline(
        orders_of_forward, lambda what, stage, chunk: float(passes.forward[stage, chunk, 0])
    )
    found = interleaved_time(passes, microbatches, training=False)
    np.testing.assert_allclose(found, end(spans), rtol=1e-12)


@pytest.mark.parametrize("at_once", [3, 50])
def test_executions_are_computed_as_if_each_were_alone(at_once, monkeypatch):
    """Executions become periodic after different numbers of groups; some slabs have fewer groups than others."""
    monkeypatch.setattr(interleaved, "_SLAB", at_once * 4 * 4 * 3)
    random = np.random.default_rng(1)
    both, counts = random.random((2, 4, 3, 50)), random.choice([5, 9, 21, 40, 41, 400, 401], 50)
    together = interleaved_time(InterleavedPasses(*both), counts)
    alone = [
        interleaved_time(InterleavedPasses(*both[..., [i]]), count)[0]
        for i, count in enumerate(counts)
    ]
    assert together.tolist() == alone


def of_blocks(blocks, head, embedding=0.0):
    """Return the passes of chunks with given blocks, each of 1 forward and 2 backward, and a head of more blocks."""
    times = blocks.astype(float)
    times[0, 0] += embedding
    times[-1, -1] += head
    return InterleavedPasses(times[..., None], 2 * times[..., None])


@for_each(
    ("blocks", "stages", "head"), [(61, 8, 3.92), (61, 16, 3.92), (32, 4, 2.41), (80, 8, 1.2)]
)
@pytest.mark.parametrize("groups", [2, 8])
def test_the_best_number_of_chunks_is_slower_than_one_by_no_more_than_a_head_exceeds_a_chunk(
    blocks, stages, head, groups
):
    """But for transfers, and empty places of a short last group."""

    def chunks_and_time(chunks):
        counts, ending = balanced_counts(blocks, stages, chunks, head)
        found = chunks_of_layout(counts, chunks, "", ending)
        return found, interleaved_time(of_blocks(found, head), groups * stages)[0]

    (_, single), *several = map(chunks_and_time, (1, 2, 3, 4))
    excess = [3 * groups * stages * max(0.0, head - found[:-1, -1].max()) for found, _ in several]
    best = min(time - more for (_, time), more in zip(several, excess, strict=True))
    assert best <= single * (1 + 1e-9)


def balanced_counts(blocks, stages, chunks, head):
    """Return the blocks of the stages of a balanced layout, and of the last chunk."""
    last = int(balanced_last(blocks, stages, chunks, head))
    each, more = divmod(blocks - last, stages - 1)
    counts = [each] * (stages - 1 - more) + [each + 1] * more + [last]
    most = max(counts[:-1])
    return counts, max(0, last - (most - most // chunks))


@pytest.mark.parametrize(
    ("blocks", "stages", "chunks", "head"),
    [(61, 8, 2, 3.92), (61, 8, 4, 3.92), (61, 4, 4, 3.92), (61, 16, 2, 3.92), (32, 4, 4, 2.41)],
)
def test_balanced_chunks_execute_faster_than_even_chunks(blocks, stages, chunks, head):
    """61 blocks and 3.92 for head and MTP module: DeepSeek-V3."""
    counts, ending = balanced_counts(blocks, stages, chunks, head)
    even, balanced = (chunks_of_layout(counts, chunks, "", last) for last in (None, ending))
    times = [interleaved_time(of_blocks(one, head), 4 * stages)[0] for one in (balanced, even)]
    assert times[0] <= times[1]
