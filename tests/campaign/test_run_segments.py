"""Phases and ramps as parts of a run: tokens add up, ramps rise, and what is wrong is said once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon.base.errors import SpecError
from calculon.campaign.ramps import MAX_BATCHES
from calculon.campaign.read import read_campaign
from calculon.campaign.run_segments import run_segments
from tests.cases import for_each

BATCH, LENGTH, PARAMETERS = 512, 4096, 8e9
TOKENS = 10**12


def _segments(tokens: float = TOKENS, phase_sizes=None, **fields):
    """Return the parts of a run with some fields."""
    if any("share" in one for one in fields.get("phases", ())):
        fields["tokens"] = tokens
    return run_segments(read_campaign(fields), tokens, PARAMETERS, BATCH, LENGTH, phase_sizes)


def _problems(tokens: float = TOKENS, **fields):
    with pytest.raises(SpecError) as error:
        _segments(tokens, **fields)
    return error.value.problems


@st.composite
def _shares(draw):
    parts = draw(st.lists(st.integers(1, 100), min_size=1, max_size=8))
    return [{"share": one / sum(parts)} for one in parts]


@st.composite
def _ramps(draw):
    starts = sorted(draw(st.sets(st.integers(1, TOKENS - 1), max_size=6)))
    batches = sorted(draw(st.lists(st.integers(1, BATCH), min_size=1 + len(starts), max_size=7)))
    return [
        {"from": start, "batch": batch} for start, batch in zip([0, *starts], batches, strict=False)
    ]


@given(_shares(), _ramps(), _ramps())
def test_tokens_add_up_whatever_the_phases_and_ramps(phases, ramp, lengths):
    seq_ramp = [{"from": one["from"], "seq_size": one["batch"]} for one in lengths]
    found = _segments(phases=phases, batch_ramp=ramp, seq_ramp=seq_ramp)
    assert sum(one.tokens for one in found) == TOKENS
    assert min(one.tokens for one in found) >= 1
    assert [one.phase for one in found] == sorted(one.phase for one in found)
    sizes = [one.batch_size for one in found]
    assert sizes == sorted(sizes)
    assert sizes[-1] == ramp[-1]["batch"]
    assert found[-1].seq_size == seq_ramp[-1]["seq_size"]
    ends = {0, *(one["from"] for one in (*ramp, *seq_ramp))}
    assert len(found) <= len(phases) + len(ends)


def test_shares_that_end_where_a_ramp_steps_leave_no_sliver():
    ramp = [{"from": 0, "batch": 64}, {"from": 3 * TOKENS // 10, "batch": 128}]
    phases = [{"share": 0.1}, {"share": 0.2}, {"share": 0.7}]
    assert 0.1 + 0.2 != 0.3
    found = _segments(phases=phases, batch_ramp=ramp)
    assert [one.tokens for one in found] == [TOKENS // 10, TOKENS // 5, 7 * TOKENS // 10]
    assert [one.batch_size for one in found] == [64, 64, 128]


def test_batches_in_tokens_follow_the_length_of_sequences():
    """Llama 3 405B: 4M tokens at 4,096 and 8,192 tokens a sequence are 1,024 and 512 sequences."""
    ramp = [{"from": 0, "batch": "4M"}, {"from": "2.87B", "batch": "8M"}]
    lengths = [{"from": 0, "seq_size": "4k"}, {"from": "252M", "seq_size": "8k"}]
    found = _segments(batch_ramp=ramp, seq_ramp=lengths)
    assert [one.batch_size for one in found] == [1024, 512, 1024]
    assert [one.tokens_per_step for one in found] == [4 << 20, 4 << 20, 8 << 20]


@given(st.integers(1, BATCH), st.integers(1, BATCH), st.integers(BATCH, TOKENS - 1))
def test_a_linear_ramp_is_that_of_megatron(start, step, tokens):
    """Megatron-LM: equal steps of the batch, each for an equal share of the samples of the ramp."""
    found = _segments(batch_ramp={"start": start, "step": step, "tokens": tokens})
    batches = [*range(start, BATCH, step), BATCH]
    assert [one.batch_size for one in found] == batches
    for one in found[:-1]:
        assert one.tokens == pytest.approx(tokens / (len(batches) - 1), abs=1.0)
    assert sum(one.tokens for one in found if one.batch_size < BATCH) == (
        tokens if start < BATCH else 0
    )


def test_what_a_phase_states_goes_before_its_execution_and_that_before_ramps():
    ramp = [{"from": 0, "batch": 64}]
    phases = [{"share": 0.25}, {"share": 0.25}, {"share": 0.5, "batch": 32, "seq_size": 1024}]
    phase_sizes = {1: (16, 2048), 2: (8, 512)}
    found = _segments(phase_sizes=phase_sizes, phases=phases, batch_ramp=ramp)
    assert [(one.batch_size, one.seq_size) for one in found] == [
        (64, LENGTH),
        (16, 2048),
        (32, 1024),
    ]


@for_each(
    ("fields", "place", "words"),
    [
        ({"batch_ramp": [{"from": 1, "batch": 8}]}, "batch_ramp[0].from", "begins with the run"),
        (
            {"batch_ramp": [{"from": 0, "batch": 16}, {"from": 9, "batch": 8}]},
            "batch_ramp[1]",
            "a ramp rises",
        ),
        (
            {"batch_ramp": [{"from": 0, "batch": 8}, {"from": 0, "batch": 16}]},
            "batch_ramp[1].from",
            "more than 0 tokens",
        ),
        (
            {"batch_ramp": [{"from": 0, "batch": 8}, {"from": TOKENS, "batch": 16}]},
            "batch_ramp",
            "tokens of the run",
        ),
        (
            {"batch_ramp": {"start": BATCH + 1, "step": 1, "tokens": 9}},
            "batch_ramp.start",
            "the batch of the execution",
        ),
        ({"phases": [{"tokens": 0}, {"tokens": 9}]}, "phases[0].tokens", "at least one token"),
    ],
)
def test_what_is_wrong_is_said_once(fields, place, words):
    (problem,) = _problems(**fields)
    assert problem.field == place
    assert words in problem.expected


def test_a_run_has_tokens():
    (problem,) = _problems(0)
    assert (problem.field, problem.found) == ("tokens", "0")


def test_a_linear_ramp_has_not_too_many_batches():
    fields = {"batch_ramp": {"start": 1, "step": 1, "tokens": TOKENS - 1}}
    campaign = read_campaign(fields)
    assert (
        len(run_segments(campaign, TOKENS, PARAMETERS, MAX_BATCHES + 1, LENGTH)) == MAX_BATCHES + 1
    )
    with pytest.raises(SpecError, match="batches at most"):
        run_segments(campaign, TOKENS, PARAMETERS, MAX_BATCHES + 2, LENGTH)
