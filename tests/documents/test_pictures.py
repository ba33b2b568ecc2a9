"""Pictures: what stands on the axes is what the statistics say."""

import pytest

from calculon.base.units import GIB
from calculon.cli.plot_curves import scaling
from calculon.cli.plot_heatmap import heatmap, why_not
from calculon.search.driver import search
from calculon.search.search_counts import Counts

pytest.importorskip("matplotlib", reason="pictures need the extra plot")

from calculon.cli.commands.plot import configure
from calculon.cli.options import Parser
from calculon.documents.charts import heatmap_chart, scaling_chart

SPACE = ("megatron-22B", "8", "8", "float16", "a100_80g")
OFFLOADS = ("weight_offload", "optimizer_offload", "activations_offload")
FIX = {"microbatch_size": 1} | dict.fromkeys(OFFLOADS, False)
FIXED = [f"--fix={name}={str(value).lower()}" for name, value in FIX.items()]


def arguments(*texts):
    parser = Parser()
    configure(parser)
    return parser.parse_args([*texts, "-o", "x.png"])


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        (Counts(total=2, nearest_miss={"mem1_capacity": 0.01 * GIB}), "+0.1 GiB"),
        (Counts(total=2, nearest_miss={"mem1_capacity": 1200 * GIB}), "+1,200 GiB"),
        (Counts(total=2, good=2), ""),
    ],
)
def test_why_not_in_a_word(counts, expected):
    assert why_not(counts) == expected


def test_curves_are_the_best_of_each_count():
    series = scaling(arguments("scaling", SPACE[0], "1,8,16", *SPACE[2:], *FIXED))
    (one,) = series
    assert [(point.num_procs, point.rate is None) for point in one.points] == [
        (1, True),
        (8, False),
        (16, False),
    ]


# -- editions ---------------------------------------------------------------------------------------------------------


TODAY = (*SPACE, "--fix=tensor_par=8", *FIXED, "--edition", "corrected")


def test_searched_pictures_say_their_edition():
    asked, told = TODAY, "edition corrected, megatron-lm"
    found = heatmap(arguments("heatmap", *asked))
    assert heatmap_chart.heatmap(found).heading[-1].endswith(told)
    curves = scaling(arguments("scaling", *asked))
    assert scaling_chart.scaling(curves).terms == [told.removeprefix("edition ")]
    fix = FIX | {"tensor_par": 8}
    best = search(SPACE[0], SPACE[4], 8, 8, top=1, edition="corrected", fix=fix)
    rate = best.to_frame()["sample_rate"][0]
    assert max(cell.value or 0 for cell in found.cells) == rate
    assert curves[0].points[0].rate == rate
