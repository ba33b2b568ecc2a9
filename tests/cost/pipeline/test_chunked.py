"""ZB-H2, ZBV, DualPipe, DualPipeV: orders, and closed forms and simulation against execution, event by event."""

import itertools

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from calculon.cost.pipeline.orders import BACKWARD, FORWARD, WEIGHT, Pass, numbers, order, place
from calculon.cost.pipeline.schedules import chunked_time, held_microbatches
from calculon.cost.pipeline.simulation import STEPWISE, ChunkPasses, simulated_time
from calculon.cost.pipeline.timeline import timeline
from tests.cases import for_each
from tests.draws import draws
from tests.store import cache

FEW = settings(max_examples=draws(15), deadline=None)
TIMES = st.integers(1, 6)
SIMULATED = ("zb_h2", "zbv", "dualpipev")
FOUR = (*SIMULATED, "dualpipe")


@cache
def orders(schedule, stages, microbatches):
    return tuple(tuple(order(schedule, i, stages, microbatches)) for i in range(stages))


def alike(ranks, forward, backward, weight, hidden=0.0):
    """Return the passes of one execution whose chunks are all alike."""
    times = (np.full((ranks, 2, 1), float(time)) for time in (forward, backward, weight))
    return ChunkPasses(*times, np.full((ranks, 1), float(hidden)))


def executed(schedule, passes, microbatches, execution=0):
    """Return the spans of an execution; ranks of DualPipe beyond the middle mirror those before it."""
    ranks = len(passes.forward)
    stages = 2 * ranks if schedule == "dualpipe" else ranks

    def at(stage, chunk):
        return (stage, chunk) if stage < ranks else (stages - 1 - stage, 1 - chunk)

    def duration(kind, stage, chunk):
        times = {
            "forward": passes.forward,
            "backward": passes.backward,
            "inputs": passes.backward - passes.weight,
            "weight": passes.weight,
        }
        return times[kind][at(stage, chunk)][execution]

    return timeline(
        orders(schedule, stages, microbatches),
        duration,
        hidden=lambda stage, *_: passes.hidden[at(stage, 0)[0]][execution],
        schedule=schedule,
    )


def length(schedule, spans):
    """Return the time of a batch: from its first pass to its last, or of the rank where that takes longest."""
    if schedule not in STEPWISE:
        return max(span.end for span in spans)
    own = {}
    for span in spans:
        own.setdefault(span.stage, []).append(span)
    return max(max(s.end for s in each) - min(s.start for s in each) for each in own.values())


# -- orders ---------------------------------------------------------------------------------------


def names(own, several=True):
    words = (f"{one.kind[0].upper()}{one.microbatch + 1}" for one in own)
    if not several:
        return " ".join(words)
    return " ".join(f"{word}{'ab'[one.chunk]}" for word, one in zip(words, own, strict=True))


def test_zb_h2_fills_the_time_before_the_first_backward_pass():
    """Two stages of arXiv 2401.10241, figure 3: the first goes forward thrice, the last leaves two gradients."""
    assert [names(own, several=False) for own in orders("zb_h2", 2, 4)] == [
        "F1 F2 F3 I1 W1 F4 I2 W2 I3 W3 I4 W4",
        "F1 I1 F2 I2 F3 I3 W1 F4 I4 W2 W3 W4",
    ]


def test_zbv_turns_on_the_last_rank():
    assert [names(own) for own in orders("zbv", 2, 4)] == [
        "F1a F2a F3a F1b I1b W1b F2b I2b W2b F4a I1a W1a F3b I3b W3b I2a W2a F4b I4b W4b I3a W3a I4a W4a",
        "F1a F1b F2a F2b I1b W1b F3a I1a W1a F3b I2b W2b F4a I2a W2a F4b I3b W3b I3a I4b I4a W3a W4b W4a",
    ]


def test_dualpipev_is_one_half_of_dualpipe():
    """Chunk 0 of a direction is a stage of the first half, and the other direction has microbatches of its own."""
    each = 6
    whole, half = orders("dualpipe", 6, 2 * each), orders("dualpipev", 3, each)
    for rank, own in enumerate(half):
        assert [one._replace(microbatch=one.microbatch + each * one.chunk) for one in own] == list(
            whole[rank]
        )
        mirrored = [
            one._replace(microbatch=(one.microbatch + each) % (2 * each), chunk=1 - one.chunk)
            for one in whole[rank]
        ]
        assert mirrored == list(whole[5 - rank])


@for_each("schedule", FOUR)
@for_each(("stages", "microbatches"), [(2, 1), (4, 3), (4, 8), (6, 13)])
def test_every_rank_does_every_pass_once_and_none_waits_for_ever(schedule, stages, microbatches):
    directions = 2 if schedule == "dualpipe" else 1
    for own in orders(schedule, stages, microbatches):
        chunks = {one.chunk for one in own}
        forward = [(one.microbatch, one.chunk) for one in own if one.kind == "forward"]
        whole = [(one.microbatch, one.chunk) for one in own if one.kind == "backward"]
        inputs = [(one.microbatch, one.chunk) for one in own if one.kind == "inputs"]
        weight = [(one.microbatch, one.chunk) for one in own if one.kind == "weight"]
        assert (
            len(set(forward))
            == len(forward)
            == microbatches * len(chunks) / min(directions, len(chunks))
        )
        assert sorted(whole + inputs) == sorted(forward)
        assert weight == inputs, "gradients of weights follow in the order of those of inputs"
        for one, other in itertools.pairwise(own):
            if one.paired and one.kind == "forward":
                assert other.paired
                assert other.kind == "backward"
    passes = alike(stages // directions, 1, 2, 1)
    assert executed(schedule, passes, microbatches)


def test_places_along_the_model():
    assert [place("zbv", rank, 4, chunk) for chunk in (0, 1) for rank in range(4)] == [
        0, 1, 2, 3, 7, 6, 5, 4
    ]  # fmt: skip
    assert [place("dualpipe", rank, 4, chunk) for chunk in (0, 1) for rank in range(4)] == [
        0, 1, 2, 3, 3, 2, 1, 0
    ]  # fmt: skip
    assert [place("1f1b", rank, 4, 1) for rank in range(4)] == [4, 5, 6, 7]


def test_passes_of_a_pair_begin_and_end_together():
    pair = [Pass("forward", 1, 0, True), Pass("backward", 0, 1, True)]
    own = [Pass("forward", 0, 0), Pass("forward", 0, 1), *pair, Pass("forward", 1, 1),
           Pass("backward", 1, 1), Pass("backward", 0, 0), Pass("backward", 1, 0)]  # fmt: skip
    spans = timeline([own], lambda kind, _, __: {"forward": 1.0, "backward": 2.0}[kind],
                     hidden=lambda *_: 0.5, schedule="dualpipev")  # fmt: skip
    assert {s.work: s.end for s in spans}[pair[1]] == 2 + 1 + 2 - 0.5
    assert spans[-1].end == 2 * 2 * 3 - 0.5


# -- time -----------------------------------------------------------------------------------------


def test_the_bubble_that_deepseek_states():
    """16 ranks, F=1, B=2, W=1: (p/2 - 1)(F&B + B - 3W) = 14, and 15 x 3 = 45 of 1F1B."""
    bubble = (16 // 2 - 1) * (3 + 2 - 3 * 1)
    assert bubble == 14
    for microbatches in (32, 48):
        passes = alike(8, 1, 2, 1)
        whole = chunked_time("dualpipev", microbatches // 2, passes)[0]
        assert whole == microbatches * 3 + bubble
        assert length("dualpipe", executed("dualpipe", passes, microbatches)) == whole


def test_there_is_no_bubble_where_all_passes_take_as_long():
    for schedule, passes in (("zb_h2", 3), ("zbv", 6)):
        for microbatches in (7, 8, 20):
            assert (
                chunked_time(schedule, microbatches, alike(4, 1, 2, 1))[0] == passes * microbatches
            )


@given(
    st.sampled_from(SIMULATED),
    st.integers(1, 5),
    st.integers(0, 6),
    TIMES, TIMES, st.integers(0, 6), st.integers(0, 2),
)  # fmt: skip
@FEW
def test_closed_forms_of_chunks_that_are_alike_are_exact(
    schedule, ranks, more, forward, inputs, weight, hidden
):
    if schedule == "zbv":
        inputs = weight = forward
    if schedule != "dualpipev":
        hidden = 0
    assume(hidden <= min(forward, inputs))
    microbatches = 2 * ranks + more
    passes = alike(ranks, forward, inputs + weight, weight, hidden)
    form = chunked_time(schedule, microbatches, passes)[0]
    assert form == length(schedule, executed(schedule, passes, microbatches))
    assert form == simulated_time(schedule, microbatches, passes)[0]


@given(st.sampled_from(SIMULATED), st.integers(1, 5), st.integers(1, 12), st.integers(0, 999))
@FEW
def test_the_simulation_is_the_execution_of_any_chunks(schedule, ranks, microbatches, seed):
    draw = np.random.default_rng(seed)
    shape = (ranks, 2, 3)
    weight = draw.integers(0, 6, shape) * 1.0
    forward, inputs = (draw.integers(1, 9, shape) * 1.0 for _ in range(2))
    hidden = draw.integers(0, 2, (ranks, 3)) * (1.0 if schedule == "dualpipev" else 0.0)
    passes = ChunkPasses(forward, inputs + weight, weight, hidden)
    found = chunked_time(schedule, microbatches, passes)
    for execution, time in enumerate(found):
        spans = executed(schedule, passes, microbatches, execution)
        assert time == length(schedule, spans)
        if schedule == "dualpipev":
            whole = executed("dualpipe", passes, 2 * microbatches, execution)
            assert time == length("dualpipe", whole)
        busy = (passes.forward + passes.backward)[:, : 1 if schedule == "zb_h2" else 2, execution]
        if not hidden.any():
            assert time >= microbatches * busy.sum(axis=1).max()


def test_many_executions_are_done_in_turn(monkeypatch):
    draw = np.random.default_rng(7)
    weight = draw.random((4, 2, 50))
    passes = ChunkPasses(draw.random((4, 2, 50)), 1 + weight, weight, np.zeros((4, 50)))
    whole = simulated_time("zbv", 9, passes)
    monkeypatch.setattr("calculon.cost.pipeline.simulation._SLAB", 1000)
    assert np.array_equal(simulated_time("zbv", 9, passes), whole)


# -- what is held ---------------------------------------------------------------------------------


@for_each("schedule", FOUR)
@for_each("stages", [2, 4, 6])
def test_as_many_chunks_are_held_as_the_form_says(schedule, stages):
    """Of m >= 2p microbatches: 2p - 1 on stages of ZB-H2, 2p chunks of ZBV, p + 1 of DualPipe, 2p + 1 of DualPipeV."""
    most = {"zb_h2": 2 * stages - 1, "zbv": 2 * stages, "dualpipe": stages + 1}
    for microbatches in (1, 3, stages, 2 * stages, 3 * stages):
        ranks, each = stages, microbatches
        if schedule == "dualpipe":
            if microbatches % 2:
                continue
            ranks, each = stages // 2, microbatches // 2
        for stage in range(ranks):
            passes = numbers(schedule, stage, stages, microbatches)
            frees = (passes.kind == WEIGHT) | (passes.kind == BACKWARD)
            change = np.where(passes.kind == FORWARD, 1, np.where(frees, -1, 0))
            form = held_microbatches(schedule, stage, ranks, each)
            chunks = 1 if schedule == "zb_h2" else 2
            assert change.cumsum().max() == form * chunks
            if microbatches >= 2 * stages:
                assert form * chunks == most.get(schedule, 2 * stages + 1)
