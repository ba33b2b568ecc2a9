"""Maps of tensor and pipeline parallelism."""

from calculon.base.units import GIB
from calculon.cli.plot_heatmap import requested_heatmap as asked
from calculon.cli.plot_heatmap import why_not
from calculon.documents.charts.heatmap_chart import Cell, Heatmap, heatmap, short, surface
from calculon.render.chart import Boxes, Cells, Line
from calculon.search.driver import search
from calculon.search.search_counts import Counts
from tests.cases import for_each
from tests.documents.charts.reading import assert_in_sight, legend, marks, notes, plot_arguments

SPACE = ("megatron-22B", "8", "8", "float16", "a100_80g")
OFFLOADS = ("weight_offload", "optimizer_offload", "activations_offload")
FIX = {"microbatch_size": 1} | dict.fromkeys(OFFLOADS, False)
FIXED = [f"--fix={name}={str(value).lower()}" for name, value in FIX.items()]


def test_cells_are_the_best_of_their_degrees():
    found = asked(plot_arguments("heatmap", *SPACE, *FIXED))
    cells = {(c.tensor_par, c.pipeline_par): c for c in found.cells}
    fix = FIX | {"tensor_par": 8, "pipeline_par": 1}
    best = search(SPACE[0], SPACE[4], 8, 8, top=1, fix=fix)
    assert cells[8, 1].value == best.to_frame()["sample_rate"][0]
    assert cells[1, 1].value is None
    chart = heatmap(found)
    assert_in_sight(chart)
    (panel,) = chart.panels
    (tiles,) = marks(panel, Cells)
    row, column = found.place(cells[8, 1])
    assert tiles.texts[row][column] == short(cells[8, 1].value)
    assert tiles.values[0][0] is None
    assert tiles.values[tiles.bold[0]][tiles.bold[1]] == 1.0
    ((left, right, low, high),) = marks(panel, Boxes)[0].boxes
    assert tiles.bold == ((low + high) / 2, (left + right) / 2)  # the frame
    assert cells[1, 1].note.startswith("+")
    assert cells[1, 1].note in notes(panel)
    assert chart.subtitle == "Best sample rate (samples/s)"


def test_a_map_of_today_names_its_edition():
    today = ("--fix=tensor_par=8", *FIXED, "--edition", "corrected")
    found = heatmap(asked(plot_arguments("heatmap", *SPACE, *today)))
    assert found.heading[-1].endswith("edition corrected, torchtitan")


@for_each(
    ("counts", "expected"),
    [
        (Counts(total=2, nearest_miss={"mem1_capacity": 0.01 * GIB}), "+0.1 GiB"),
        (Counts(total=2, nearest_miss={"mem1_capacity": 1200 * GIB}), "+1,200 GiB"),
        (Counts(total=2, good=2), ""),
    ],
)
def test_why_not_in_a_word(counts, expected):
    assert why_not(counts) == expected


def test_a_map_of_nothing_says_so():
    cells = [
        Cell(tensor_par=1, pipeline_par=1, note="+3.0 GiB"),
        Cell(tensor_par=1, pipeline_par=2),
    ]
    chart = heatmap(Heatmap("none", "sample_rate", cells))
    assert legend(chart) == ["no plan can run (missing memory)"]
    assert marks(chart.panels[0], Cells) == []


def test_the_frame_is_around_the_plan_of_the_page():
    cells = [
        Cell(tensor_par=n, pipeline_par=1, value=value, key=f"{n}.1", text=f"{value} s")
        for n, value in ((1, 2.0), (2, 1.0), (4, 8.0))
    ]
    cells.append(Cell(tensor_par=8, pipeline_par=1, words="no memory", key="8.1"))
    (panel,) = heatmap(Heatmap("q", "total_time", cells, True, selected="4.1")).panels
    (tiles,), (frame,) = marks(panel, Cells), marks(panel, Boxes)
    assert frame.boxes == ((-0.5, 0.5, 1.5, 2.5),)
    assert (frame.name, tiles.bold) == ("shown plan", (1, 0))
    assert [row[0] for row in tiles.values] == [2.0, 1.0, 2.5, None]  # at most 2.5 times as bad
    assert tiles.keys[:3] == ["1.1", "2.1", "4.1"]
    (cross,) = marks(panel, Line)
    assert (cross.x, cross.y, cross.words, cross.keys) == ([0], [3], ["no memory"], ["8.1"])


def test_a_surface_has_the_values_and_their_scale():
    cells = [
        Cell(tensor_par=t, pipeline_par=p, value=None if t == 1 and p < 4 else float(10 * t + p))
        for t in (1, 2)
        for p in (1, 2, 4)
    ]
    chart = surface(Heatmap("made", "sample_rate", cells))
    assert_in_sight(chart)
    (tiles,) = marks(chart.panels[0], Cells)
    assert tiles.values == [[None, None, 14.0], [21.0, 22.0, 24.0]]
    assert (tiles.limits, tiles.label) == ((14.0, 24.0), "Best sample rate (samples/s)")
    assert tiles.scale[-1] == "blue+30"
    assert legend(chart) == ["no plan can run", "best"]
    least = surface(Heatmap("made", "total_time", cells, smallest=True))
    assert marks(least.panels[0], Cells)[0].scale[0] == "blue+30"
