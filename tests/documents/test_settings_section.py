"""Changes of settings, as a table."""

import pytest

from calculon.base.errors import Problem
from calculon.documents.settings_section import gained, settings_section
from calculon.launch.dialects import DIALECTS
from calculon.launch.difference import Change, Difference

CHANGES = (
    Change("change", "--tensor-model-parallel-size", 8, 4, "run.sh:6"),
    Change("add", "--overlap-param-gather", None, True),
    Change("drop", "--recompute-granularity", "full", None, "run.sh:18"),
    Change("add", "--bf16", None, True),
)
REFUSED = (Problem("tp_async", "true, the nearest that Megatron-LM can express", "false"),)
TOLD = Difference(DIALECTS["megatron-lm"], CHANGES, REFUSED).to_dict()


def test_a_row_for_each_change_and_a_sentence_for_each_refusal():
    section = settings_section(TOLD, ("A", "B"), -0.079, 1 / (1 - 0.021) - 1)
    assert section.heading == "Settings of Megatron-LM, from A to B: -7.9 % (tie margin 2.1 %)"
    table, note = section.blocks
    assert [row["kind"] for row in table.rows] == ["change", "add", "drop", "add"]
    first = table.rows[0]
    assert first["setting"] == "--tensor-model-parallel-size 8"
    assert (first["value"], first["place"]) == ("4", "run.sh:6")
    assert note.text.startswith(
        "Megatron-LM cannot express tp_async false: expected true, the nearest"
    )


@pytest.mark.parametrize("margin", [0.03, 0.06, 0.1])
def test_the_margin_of_a_reduction_is_a_share_of_the_longer_time(margin):
    least = 1 / (1 + margin) - 1  # what a plan saves that is just too close to call
    assert (
        gained(least, margin)
        == f"{100 * least:.1f} %, too close to call (tie margin {-100 * least:.1f} %)"
    )
    assert "too close to call" not in gained(least - 0.01, margin)
    assert "too close to call" in gained(least + 0.01, margin)
