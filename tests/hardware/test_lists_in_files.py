"""Lists in system files: the decoder and the JSON Schema accept and refuse the same, at the limits of each number."""

import jsonschema
import pytest

from calculon.hardware.collective_law import GroupRates
from calculon.hardware.curve import Curve
from calculon.hardware.kernels.fused_attention import Widths
from calculon.hardware.kernels.measured_table import Rows
from calculon.hardware.kernels.tiles import Tiles
from calculon.hardware.network import Operations
from calculon.hardware.serving import LatencyByRanks
from calculon.hardware.torus import MOST_AXES, Sides

TRAFFIC = {
    "p2p": [1.0, None],
    "reduce_scatter": [1.0, -1.0],
    "all_gather": [1.0, -2.0],
    "all_reduce": [2.0, 1.0],
}
ACCEPTED = [
    (Curve, [[8, 0.9], [0, 0.1]]),
    (Curve, [[0, 1]]),
    (GroupRates, [[2, 2, 0], [4, 0.1, 1e-6]]),
    (LatencyByRanks, [[2, 0], [8, 0]]),
    (Rows, [[1e6, 0.5]]),
    (Rows, [[64, 64, 64, 0.5]]),
    (Sides, [2]),
    (Sides, [2] * MOST_AXES),
    (Tiles, [[128, 64, 1]]),
    (Widths, [[64, 0.5], [128, 1]]),
    (Operations, TRAFFIC),
]
REFUSED = [
    *((kind, []) for kind in (Curve, GroupRates, LatencyByRanks, Rows, Sides, Tiles, Widths)),
    *((Curve, [pair]) for pair in ([0, 0], [0, 1.01], [-1, 0.5], [0], [0, 0.5, 0.5])),
    *((GroupRates, [row]) for row in ([1, 1, 0], [2, 0, 0], [2, 2.1, 0], [2, 1, -1], [2, 1])),
    *((LatencyByRanks, [pair]) for pair in ([1, 0], [2, -1], [2], [2, 0, 0])),
    *((Rows, [row]) for row in ([1e6], [0, 0.5], [1e6, 0], 5)),
    *((Sides, one) for one in ([1], [2.5], [2] * (MOST_AXES + 1), 2)),
    *((Tiles, [row]) for row in ([0, 64, 1], [64, 0, 1], [64, 64, 0], [64, 64, 1.1], [64, 64])),
    *((Widths, [pair]) for pair in ([0, 0.5], [64, 0], [64, 1.1], [64])),
    *(
        (Operations, TRAFFIC | change)
        for change in (
            {"p2p": [1.0, 0.0]},
            {"all_gather": [1.0, -2.1]},
            {"all_gather": [0.0, 1.0]},
            {"all_gather": [1.0]},
            {"all_gather": None},
            {"broadcast": [1.0, None]},
        )
    ),
    (Operations, {"p2p": [1.0, None]}),
    (Operations, []),
]


@pytest.mark.parametrize(
    ("kind", "raw", "accepted"),
    [*((*one, True) for one in ACCEPTED), *((*one, False) for one in REFUSED)],
)
def test_the_schema_accepts_what_is_read(kind, raw, accepted):
    problems = []
    kind.decode(raw, "x", problems, 1.0)
    assert (not problems) == accepted
    assert all(one.field.startswith("x") for one in problems)
    assert jsonschema.Draft202012Validator(kind.schema()).is_valid(raw) == accepted


@pytest.mark.parametrize(
    ("kind", "raw", "place"),
    [
        (Curve, [[1, 0.5], [1, 0.4], [0, 0.1]], "[1][0]"),
        (Curve, [[8, 0.5], [1, 0.4]], "[1][0]"),
        (GroupRates, [[2, 1, 0], [2, 1, 0]], "[1][0]"),
        (GroupRates, [[2, 1, 0], [4, 1, 0], [3, 1, 0]], "[2][0]"),
        (Widths, [[64, 0.5], [64, 0.5]], "[1][0]"),
        (Widths, [[64, 0.25], [128, 0.51]], "[1][1]"),
    ],
)
def test_a_list_that_does_not_rise_is_refused_at_its_place(kind, raw, place):
    problems = []
    kind.decode(raw, "x", problems, 1.0)
    assert [one.field for one in problems] == [f"x{place}"]
