"""Lists in system files: the decoder and the JSON Schema accept and refuse the same, at the limits of each number."""

import jsonschema

from calculon.hardware.collective_law import GroupRates
from calculon.hardware.curve import Curve
from calculon.hardware.kernels.fused_attention import Widths
from calculon.hardware.kernels.measured_table import Rows
from calculon.hardware.kernels.tiles import Tiles
from calculon.hardware.network import Operations
from calculon.hardware.serving import LatencyByRanks
from calculon.hardware.torus import MOST_AXES, Sides
from tests.cases import for_each

SAME = {name: [2.0, -1.0] for name in ("reduce_scatter", "all_gather", "all_reduce")}
TRAFFIC = SAME | {"p2p": [1.0, None]}
CASES = {
    Curve: (
        ([[8, 0.9], [0, 0.1]], [[0, 1]]),
        ([], [[0, 0]], [[0, 1.01]], [[-1, 0.5]], [[0]], [[0, 0.5, 0.5]]),
    ),
    GroupRates: (
        ([[2, 2, 0], [4, 0.1, 1e-6]],),
        ([[1, 1, 0]], [[2, 0, 0]], [[2, 2.1, 0]], [[2, 1, -1]], [[2, 1]]),
    ),
    LatencyByRanks: (([[2, 0], [8, 0]],), ([[1, 0]], [[2, -1]], [[2]], [[2, 0, 0]])),
    Operations: (
        (TRAFFIC, TRAFFIC | {"all_gather": [1.0, -2.0]}),
        (
            *([], SAME, TRAFFIC | {"p2p": [1.0, 0.0]}, TRAFFIC | {"broadcast": [1.0, 0.0]}),
            *(TRAFFIC | {"all_gather": one} for one in ([1.0, -2.1], [0.0, 1.0], [1.0], None)),
        ),
    ),
    Rows: (([[1, 0.5]], [[1, 1, 1, 0.5]]), ([], [[1e6]], [[0, 0.5]], [[1e6, 0]], [5])),
    Sides: (([2], [2] * MOST_AXES), ([], [1], [2.5], [2] * (MOST_AXES + 1), 2)),
    Tiles: (([[1, 1, 1]],), ([[0, 1, 1]], [[1, 0, 1]], [[1, 1, 0]], [[1, 1, 1.1]], [[1, 1]])),
    Widths: (([[64, 0.5], [128, 1]],), ([[0, 0.5]], [[64, 0]], [[64, 1.1]], [[64]])),
}
"""What is accepted, and what is refused."""


@for_each(("kind", "accepted"), [(kind, one) for kind in CASES for one in (True, False)])
def test_the_schema_accepts_what_is_read(kind, accepted):
    for raw in CASES[kind][not accepted]:
        problems = []
        kind.decode(raw, "x", problems, 1.0)
        assert (not problems) == accepted, raw
        assert jsonschema.Draft202012Validator(kind.schema()).is_valid(raw) == accepted, raw
