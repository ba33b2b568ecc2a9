"""Lists in system files at their limits: what is just long enough, equal neighbors, and what is told of others."""

import jsonschema

from calculon.hardware.curve import Curve
from calculon.hardware.kernels.laws import Widths
from calculon.hardware.kernels.stated_rates import Rows
from calculon.hardware.network import Operations
from calculon.hardware.serving import LatencyByRanks
from calculon.hardware.stated_networks import GroupRates, Sides
from tests.cases import for_each

NAMES = ("reduce_scatter", "all_gather", "all_reduce")
PAIR = "a pair [scalar, offset]"


@for_each(
    ("kind", "raw", "told"),
    [
        *((Sides, [2], []), (Rows, [[1, 0.5]], []), (Rows, [[1, 1, 1, 0.5]], [])),
        *((Curve, [[0, 1]], []), (Widths, [[64, 0.5], [128, 1]], [])),
        (LatencyByRanks, [[2, 1e-6], [4, 1e-6]], []),
        (Curve, [[1, 0.5], [1, 0.4], [0, 1]], ["[1][0] a threshold below the one before it (1)"]),
        (GroupRates, [[2, 1, 0], [2, 1, 0]], ["[1][0] more ranks than in the row before (2)"]),
        (Sides, [], [" a list of the processors along each of 1 to 6 axes"]),
        (Rows, [[8, 0.5], [4]], ["[1] a row of 2 numbers"]),
        *((Rows, [one], ["[0] a row [size, ..., value]"]) for one in ([4], 4)),
        (Operations, {"p2p": 3}, [".p2p a pair [scalar, null]", *(f".{n} {PAIR}" for n in NAMES)]),
    ],
)
def test_what_is_wrong_with_a_list_is_told_in_its_place(kind, raw, told):
    problems = []
    kind.decode(raw, "x", problems, 1.0)
    assert [f"{one.field.removeprefix('x')} {one.expected}" for one in problems] == told
    assert {one.found for one in problems[1:]} <= {"nothing (the operation is missing)"}
    assert told or jsonschema.Draft202012Validator(kind.schema()).is_valid(raw)
