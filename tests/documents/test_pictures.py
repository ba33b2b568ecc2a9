"""Pictures: what stands on the axes is what the statistics say."""

import numpy as np
import pytest

from calculon.base.units import GIB
from calculon.cli.plot_curves import scaling
from calculon.cli.plot_heatmap import heatmap, why_not
from calculon.search.driver import search
from calculon.search.search_counts import Counts
from tests.documents.drawing import legend

pytest.importorskip("matplotlib", reason="pictures need the extra plot")

from mpl_toolkits.mplot3d import Axes3D

from calculon.cli.commands.plot import configure
from calculon.cli.options import Parser
from calculon.documents.charts import heatmap_chart, scaling_chart
from calculon.documents.pictures import surface as surface_picture

SPACE = ("megatron-22B", "8", "8", "float16", "a100_80g")
OFFLOADS = ("weight_offload", "optimizer_offload", "activations_offload")
FIX = {"microbatch_size": 1} | dict.fromkeys(OFFLOADS, False)
FIXED = [f"--fix={name}={str(value).lower()}" for name, value in FIX.items()]


def arguments(*texts):
    parser = Parser()
    configure(parser)
    return parser.parse_args([*texts, "-o", "x.png"])


def test_a_surface_has_the_best_of_its_degrees(monkeypatch):
    surfaces, plot = [], Axes3D.plot_surface
    monkeypatch.setattr(
        *(Axes3D, "plot_surface"),
        lambda axes, *arrays, **look: [surfaces.append(arrays), plot(axes, *arrays, **look)][1],
    )
    cells = [
        heatmap_chart.Cell(
            tensor_par=t, pipeline_par=p, value=None if t == 1 and p < 4 else float(10 * t + p)
        )
        for t in (1, 2, 4, 8)
        for p in (1, 2, 4)
    ]
    content = heatmap_chart.Heatmap("made", "sample_rate", cells)
    picture = surface_picture.draw(content)
    axes = picture.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Pipeline parallelism", "Tensor parallelism")
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["1", "2", "4", "8"]
    ((x, y, z),) = surfaces
    tensor, pipeline = content.degrees
    for cell in cells:
        i, j = tensor.index(cell.tensor_par), pipeline.index(cell.pipeline_par)
        assert (x[i, j], y[i, j]) == (j, i)
        np.testing.assert_equal(z[i, j], np.nan if cell.value is None else cell.value)
    assert picture.axes[1].get_ylabel() == "Best sample rate (samples/s)"
    assert legend(picture) == ["best: 84.0 samples/s at TP 8, PP 4", "no execution can run"]
    assert [text.get_text() for text in axes.texts if text.get_text() == "84.0\n"] == ["84.0\n"]


@pytest.mark.parametrize("values", [(None, None), (3.0, None), (3.0, 4.0)])
def test_a_surface_without_faces_has_marks(values):
    cells = [
        heatmap_chart.Cell(tensor_par=1, pipeline_par=2**i, value=value)
        for i, value in enumerate(values)
    ]
    picture = surface_picture.draw(heatmap_chart.Heatmap("flat", "total_time", cells, True))
    axes = picture.axes[0]
    assert not axes.collections
    crosses = [line for line in axes.lines if line.get_marker() == "x"]
    points = [line for line in axes.lines if line.get_marker() == "o"]
    assert (len(crosses), len(points)) == (values.count(None), 2 - values.count(None))
    heights = {float(line.get_data_3d()[2][0]) for line in points}
    assert heights == {value for value in values if value is not None}


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


def notes(axes) -> list[str]:
    return [text.get_text() for text in axes.texts if text.get_text().startswith("edition")]


TODAY = (*SPACE, "--fix=tensor_par=8", *FIXED, "--edition", "corrected")


def test_searched_pictures_say_their_edition():
    asked, told = TODAY, "edition corrected, megatron-lm"
    found = heatmap(arguments("heatmap", *asked))
    assert notes(surface_picture.draw(found).axes[0]) == [told]
    assert heatmap_chart.heatmap(found).heading[-1].endswith(told)
    curves = scaling(arguments("scaling", *asked))
    assert scaling_chart.scaling(curves).terms == [told.removeprefix("edition ")]
    fix = FIX | {"tensor_par": 8}
    best = search(SPACE[0], SPACE[4], 8, 8, top=1, edition="corrected", fix=fix)
    rate = best.to_frame()["sample_rate"][0]
    assert max(cell.value or 0 for cell in found.cells) == rate
    assert curves[0].points[0].rate == rate
