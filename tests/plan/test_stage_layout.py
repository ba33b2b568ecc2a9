"""Layouts of pipeline stages."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calculon import inputs
from calculon.plan.columns import Columns, code
from calculon.plan.stage_kinds import chunks_of_layout
from calculon.plan.stage_layout import StageLayout, chunks_of_stage, head_blocks
from tests.draws import draws
from tests.helpers import document

MODEL = document("models", "llama3-8B")


def layout(
    blocks, stages, first=0, last=0, *, balanced=False, recompute=False, head=0.0, ends="", chunks=0
):
    """Return the blocks of every stage, or of every chunk, with a head that counts as a number of blocks."""
    model = inputs.model(MODEL | {"num_blocks": blocks})
    width = head_blocks(model) / model.vocab
    model = inputs.model(MODEL | {"num_blocks": blocks, "vocab": round(head / width)})
    row = Columns(
        {
            "pipeline_interleaving": np.array([max(1, chunks)]),
            "pp_schedule": np.array([code("pp_schedule", "gpipe")]),
            "pp_layout": np.array(
                [code("pp_layout", ends or ("balanced" if balanced else "uniform"))]
            ),
            "first_stage_blocks": np.array([first]),
            "last_stage_blocks": np.array([last]),
        }
    )
    found = StageLayout.of(row, np.array([float(stages)]), np.array([recompute]), model)
    blocks, count = (
        np.broadcast_to(values, (4, 1))[:, 0] for values in (found.blocks, found.count)
    )
    assert count.sum() == stages
    every = np.repeat(blocks, count.astype(int)).astype(int).tolist()
    ends = int(found.ending[0]), int(found.beginning[0])
    return chunks_of_layout(every, chunks, "", *ends) if chunks else every


def test_the_head_of_llama3_8b_is_worth_241_hundredths_of_a_block():
    """128,256 x 4,096 weights over 4,096 x (128 x 80 + 3 x 14,336)."""
    worth = 128256 / (128 * (2 * 32 + 2 * 8) + 3 * 14336)
    assert head_blocks(inputs.model("llama3-8B")) == worth == pytest.approx(2.41, abs=0.005)
    assert head_blocks(inputs.model("megatron-1T")) == 0


@given(
    blocks=st.integers(2, 130),
    stages=st.integers(2, 17),
    head=st.floats(0, 12),
    recompute=st.booleans(),
)
@settings(max_examples=draws(60))
def test_no_layout_has_a_smaller_largest_stage_than_the_balanced_one(
    blocks, stages, head, recompute
):
    stages = min(stages, blocks)
    found = layout(blocks, stages, balanced=True, recompute=recompute, head=head)
    model_head = round(head / _per_word()) * _per_word() * (3 / 4 if recompute else 1)
    assert len(found) == stages
    assert sum(found) == blocks
    assert min(found) >= 1
    assert found[0] == min(found[:-1])
    largest = max(*found[:-1], found[-1] + model_head)
    for last in range(1, blocks - stages + 2):
        others = -(-(blocks - last) // (stages - 1))
        assert largest <= max(others, last + model_head) + 1e-9


def _per_word():
    model = inputs.model(MODEL)
    return head_blocks(model) / model.vocab


def test_llama3_8b_over_four_stages():
    head = head_blocks(inputs.model("llama3-8B"))
    assert layout(32, 4, balanced=True, head=head) == [8, 9, 9, 6]
    assert layout(32, 4, balanced=True, recompute=True, head=head) == [8, 9, 8, 7]


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (0, 6, [8, 9, 9, 6]),
        (9, 0, [9, 8, 8, 7]),
        (9, 5, [9, 9, 9, 5]),
        (0, 29, [1, 1, 1, 29]),
        (29, 0, [29, 1, 1, 1]),
        (0, 0, [8, 8, 8, 8]),
    ],
)
def test_stated_numbers_leave_the_rest_to_the_others_evenly(first, last, expected):
    assert layout(32, 4, first, last) == expected


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [(30, [5] * 6), (31, [5] * 5 + [6]), (32, [6, 5, 5, 5, 5, 6]), (33, [6, 6, 5, 5, 5, 6])],
)
def test_odd_blocks_go_to_the_last_stage_the_first_and_those_after_it(blocks, expected):
    assert layout(blocks, 6) == expected


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize("blocks", [1, 5, 7, 16])
def test_every_stage_has_blocks(blocks, stages):
    found = layout(blocks, min(stages, blocks))
    assert sum(found) == blocks
    assert max(found) == -(-blocks // min(stages, blocks))
    assert min(found) >= 1


@pytest.mark.parametrize(
    ("blocks", "stages", "ends", "expected"),
    [
        (126, 16, "both_as_blocks", [7, *[8] * 14, 7]),
        (31, 4, "embedding_as_block", [7, 8, 8, 8]),
        (31, 4, "head_as_block", [8, 8, 8, 7]),
        (32, 4, "both_as_blocks", [7, 9, 9, 7]),
        (33, 4, "both_as_blocks", [7, 9, 9, 8]),
        (32, 4, "head_as_block", [8, 9, 8, 7]),
        (6, 2, "both_as_blocks", [3, 3]),
        (7, 2, "both_as_blocks", [3, 4]),
    ],
)
def test_ends_count_as_blocks(blocks, stages, ends, expected):
    """Megatron-LM demands that blocks and ends divide; odd ones are dealt to the stages between, then to the last."""
    assert layout(blocks, stages, ends=ends) == expected


@given(blocks=st.integers(1, 200), chunks=st.integers(1, 12))
def test_chunks_of_a_stage_differ_by_a_block_at_most(blocks, chunks):
    found = chunks_of_stage(blocks, chunks)
    assert found.sum() == blocks
    assert found[0] - found[-1] <= 1
    assert (np.diff(found) <= 0).all()


@given(
    blocks=st.integers(2, 130),
    stages=st.integers(2, 17),
    chunks=st.integers(1, 6),
    head=st.floats(0, 12),
)
@settings(max_examples=draws(100))
def test_balanced_chunks_are_slower_than_one_by_no_more_than_a_head_exceeds_a_chunk(
    blocks, stages, chunks, head
):
    """Chunks of a stage differ by one block, and the head is in the last chunk of the last stage."""
    stages = min(stages, blocks)
    found = layout(blocks, stages, balanced=True, head=head, chunks=chunks)
    whole = layout(blocks, stages, balanced=True, head=head, chunks=1)
    assert found.sum() == blocks
    assert found.min() >= 0
    head = round(head / _per_word()) * _per_word()
    found[-1, -1] += head
    whole[-1, -1] += head
    excess = max(0.0, head - found[:-1, -1].max())
    assert found.max(axis=0).sum() <= whole.max() + excess + 1 + 1e-9
    if excess == 0:
        assert found.max(axis=0).sum() <= whole.max() + 1e-9


def test_embedding_and_head_are_a_block_of_their_chunks():
    """Llama 3 405B: the first chunk has only the embedding, the last one only the head (arXiv 2407.21783, 3.3.2)."""
    found = layout(126, 16, ends="both_as_blocks", chunks=8)
    assert found[0].tolist() == [0, *[1] * 7]
    assert found[-1].tolist() == [*[1] * 7, 0]
    assert (found[1:-1] == 1).all()
