"""Pictures: what stands on the axes is what the statistics say."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from calculon.base.units import GIB
from calculon.cli.plot_curves import pareto, scaling
from calculon.cli.plot_heatmap import heatmap, why_not
from calculon.cli.plot_schedule import gantt
from calculon.search.driver import search
from calculon.search.search_counts import Counts
from tests.documents.drawing import assert_in_sight, legend

pytest.importorskip("matplotlib", reason="pictures need the extra plot")

from mpl_toolkits.mplot3d import Axes3D

from calculon.cli.commands.plot import configure
from calculon.cli.options import Parser
from calculon.documents.charts import scaling_chart
from calculon.documents.pictures import error_scatter as validation
from calculon.documents.pictures import gantt as schedule
from calculon.documents.pictures import heatmap as heatmap_picture
from calculon.documents.pictures import pareto as pareto_picture
from calculon.documents.pictures import surface as surface_picture

SPACE = ("megatron-22B", "8", "8", "float16", "a100_80g")
OFFLOADS = ("weight_offload", "optimizer_offload", "activations_offload")
FIX = {"microbatch_size": 1} | dict.fromkeys(OFFLOADS, False)
FIXED = [f"--fix={name}={str(value).lower()}" for name, value in FIX.items()]


def arguments(*texts):
    parser = Parser()
    configure(parser)
    return parser.parse_args([*texts, "-o", "x.png"])


def test_cells_are_the_best_of_their_degrees():
    found = heatmap(arguments("heatmap", *SPACE, *FIXED))
    degrees = {(c.tensor_par, c.pipeline_par): c.value for c in found.cells}
    fix = FIX | {"tensor_par": 8, "pipeline_par": 1}
    best = search(SPACE[0], SPACE[4], 8, 8, top=1, fix=fix)
    assert degrees[8, 1] == best.to_frame()["sample_rate"][0]
    assert degrees[1, 1] is None
    note = next(c.note for c in found.cells if (c.tensor_par, c.pipeline_par) == (1, 1))
    assert note.startswith("+")
    axes, scale = heatmap_picture.draw(found).axes
    assert scale.get_ylabel() == found.label
    drawn = axes.images[0].get_array()
    tensor, pipeline = found.degrees
    assert drawn[tensor.index(8), pipeline.index(1)] == degrees[8, 1]
    assert bool(np.ma.getmaskarray(drawn)[0, 0])
    ((x, y),) = [one.get_center() for one in axes.patches if not one.get_fill()]
    assert drawn[int(y), int(x)] == drawn.max()  # the frame
    texts = {text.get_text() for text in axes.texts}
    assert f"×\n{note}" in texts
    assert heatmap_picture.short(degrees[8, 1]) in texts


def test_passes_are_where_the_schedule_has_them():
    texts = ("schedule", "llama3-8B", "llama3-8B_h100x64_p4", "h100_80g_sxm", "--microbatches", "3")
    found = gantt(arguments(*texts))
    assert len(found.pieces) == 4 * 3 * 2
    first = min(found.pieces, key=lambda piece: (piece.start, piece.stage))
    assert (first.stage, first.kind, first.microbatch, first.start) == (0, "forward", 0, 0.0)
    for stage in range(4):
        own = sorted((p for p in found.pieces if p.stage == stage), key=lambda p: p.start)
        assert all(a.end <= b.start for a, b in pairwise(own))
        busy = sum(p.end - p.start for p in own)
        assert found.idle(stage) == pytest.approx(1 - busy / found.end)
    assert found.idle_share == pytest.approx(np.mean([found.idle(stage) for stage in range(4)]))
    picture = schedule.draw(found)
    (axes,) = picture.axes
    assert_in_sight(axes)
    assert axes.get_title(loc="left").endswith(
        "1F1B, 4 stages, 3 of 32 microbatches, bubble 6.6 % of the iteration"
    )
    drawn = [path.get_extents() for one in axes.collections for path in one.get_paths()]
    assert len(drawn) == len(found.pieces)
    unit = 1e3 if axes.get_xlabel() == "Time (ms)" else 1.0
    assert max(box.x1 for box in drawn) == pytest.approx(found.end * unit)
    assert sum(box.width for box in drawn) == pytest.approx(
        sum(p.end - p.start for p in found.pieces) * unit
    )
    assert legend(picture)[:2] == ["forward", "backward"]


def test_pairs_of_passes_are_above_each_other():
    """Both have the time of the pair, and half of a row each: stages are as busy as without pairs."""
    texts = ("schedule", "mixtral-8x7B", "mixtral-8x7B_h100x64", "h200_141g_sxm")
    fields = {
        "pp_schedule": "dualpipev",
        "pipeline_interleaving": 2,
        "ep_overlap": "1f1b",
        "optimizer_sharding": True,
    }
    changes = [word for item in fields.items() for word in ("--set", "{}={}".format(*item))]
    found = gantt(arguments(*texts, "--preset", "common", *map(str.lower, changes)))
    upper, lower = (
        sorted((p.stage, p.start, p.end) for p in found.pieces if p.half == half)
        for half in (-1, 1)
    )
    assert upper
    assert upper == lower
    assert {p.kind for p in found.pieces if p.half == -1} == {"forward"}
    assert {p.kind for p in found.pieces if p.half == 1} == {"backward"}
    assert all(0 <= found.idle(stage) < 0.5 for stage in range(found.stages))
    assert "pairs of passes above each other" in found.title
    assert found.row == "Rank"


def test_a_map_of_nothing_says_so():
    cells = [heatmap_picture.Cell(1, 1, None, "+3.0 GiB"), heatmap_picture.Cell(1, 2, None)]
    picture = heatmap_picture.draw(heatmap_picture.Heatmap("none", "sample_rate", cells))
    assert legend(picture) == ["no execution can run (memory that is missing)"]
    assert len(picture.axes) == 1  # without a scale of colors


def test_a_surface_has_the_best_of_its_degrees(monkeypatch):
    surfaces, plot = [], Axes3D.plot_surface
    monkeypatch.setattr(
        *(Axes3D, "plot_surface"),
        lambda axes, *arrays, **look: [surfaces.append(arrays), plot(axes, *arrays, **look)][1],
    )
    cells = [
        heatmap_picture.Cell(t, p, None if (t, p) in ((1, 1), (1, 2)) else float(10 * t + p))
        for t in (1, 2, 4, 8)
        for p in (1, 2, 4)
    ]
    content = heatmap_picture.Heatmap("made", "sample_rate", cells)
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
    cells = [heatmap_picture.Cell(1, 2**i, value) for i, value in enumerate(values)]
    picture = surface_picture.draw(heatmap_picture.Heatmap("flat", "total_time", cells, True))
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


@pytest.fixture(scope="module")
def front():
    return pareto(arguments("pareto", *SPACE, *FIXED))


def test_a_front_is_not_beaten(front):
    found = front
    x, y = found.columns
    for row in found.front:
        better = (x <= x[row]) & (y >= y[row]) & ((x < x[row]) | (y > y[row]))
        assert not better.any()
    assert found.complete
    axes = pareto_picture.draw(found).axes[0]
    assert axes.get_xlabel() == "Tier-1 memory per processor (GiB)"
    front = axes.lines[-1]
    assert list(front.get_xdata()) == pytest.approx(x[found.front] / GIB)


def test_a_large_space_gives_its_front_only(front, monkeypatch):
    monkeypatch.setattr("calculon.cli.plot_curves.SMALL", 10)
    few = pareto(arguments("pareto", *SPACE, *FIXED))
    assert not few.complete
    assert np.array_equal(few.columns[:, few.front], front.columns[:, front.front])
    assert few.names == front.names


def test_points_are_measured_and_predicted():
    panel = validation.Panel(
        "study", "time", "s", [0.05, 2.0], [0.06, 1.8], {"n": 2, "mean": 10.0, "bias": 0.0}
    )
    figure = validation.draw(validation.Scatter([panel], "corrected"))
    assert figure.get_supylabel() == "Predicted (edition corrected)"
    axes = figure.axes[0]
    dots = axes.lines[1]
    assert (list(dots.get_xdata()), list(dots.get_ydata())) == ([0.05, 2.0], [0.06, 1.8])
    assert "mean error 10.0 %, bias +0.0 %" in axes.get_title(loc="left")


def test_what_is_drawn_at_the_same_place_is_drawn_once():
    values = np.array([[0.0, 1e-9, 1.0], [0.0, 0.0, 1.0]])
    assert pareto_picture.scattered(values).tolist() == [0, 2]


# -- editions ---------------------------------------------------------------------------------------------------------


def notes(axes) -> list[str]:
    return [text.get_text() for text in axes.texts if text.get_text().startswith("edition")]


TODAY = (*SPACE, "--fix=tensor_par=8", *FIXED, "--edition", "corrected")


def test_searched_pictures_say_their_edition():
    asked, told = TODAY, "edition corrected, megatron-lm"
    found = heatmap(arguments("heatmap", *asked))
    for picture in (heatmap_picture, surface_picture):
        assert notes(picture.draw(found).axes[0]) == [told]
    front = pareto(arguments("pareto", *asked))
    assert notes(pareto_picture.draw(front).axes[0]) == [told]
    curves = scaling(arguments("scaling", *asked))
    assert scaling_chart.scaling(curves).terms == [told.removeprefix("edition ")]
    fix = FIX | {"tensor_par": 8}
    best = search(SPACE[0], SPACE[4], 8, 8, top=1, edition="corrected", fix=fix)
    rate = best.to_frame()["sample_rate"][0]
    assert max(cell.value or 0 for cell in found.cells) == rate
    assert curves[0].points[0].rate == rate


def test_few_named_rows_are_drawn_one_below_the_other():
    score = {"n": 2, "mean": 15.0, "bias": 5.0}
    panel = validation.Panel("study", "time", "s", [1.0, 2.0], [1.2, 1.8], score, ["one", "two"])
    axes = validation.draw(validation.Scatter([panel], "corrected")).axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["one", "two"]
    assert [text.get_text() for text in axes.texts] == ["+20.0 %", "\N{MINUS SIGN}10.0 %"]
    assert axes.get_xlabel() == "time (ms)"
    measured = next(line for line in axes.lines if line.get_label() == "measured")
    assert measured.get_xdata().tolist() == [1000.0, 2000.0]
    assert_in_sight(axes, 0.4)
    panel = dataclasses.replace(panel, measured=[1.0, 20.0])
    (axes,) = validation.draw(validation.Scatter([panel])).axes
    assert axes.get_xlabel() == "time (s)"
    assert_in_sight(axes)
    alone = validation.Panel("study", "time", "s", [1.0], [1.2], score, ["one"])
    assert validation.draw(validation.Scatter([alone])).get_supxlabel() == "Measured"
