"""Both backends draw what a specification says."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="pictures need the extra plot")

from matplotlib.colors import to_hex

from calculon.render.canvas import svg
from calculon.render.chart import (
    Area,
    Axis,
    Bars,
    Boxes,
    Cells,
    Chart,
    Line,
    Notes,
    Panel,
    Rule,
    Span,
    categories,
    color_code,
)
from calculon.render.matplotlib_charts import draw
from calculon.render.plotly_charts import figure
from tests.cases import for_each

POINTED = {"words": ("first", "second"), "links": ("/?a=1", "/?a=2"), "keys": ("p", "q")}

BARS = Bars(
    at=(0, 1),
    lengths=(3.0, -1.0),
    starts=(1.0, 5.0),
    color=("blue", "blue+40"),
    hatch="/",
    hatched=(True, False),
    name="bars",
    **POINTED,
)
LINE = Line(x=(1.0, 10.0), y=(1.0, 2.0), dash="dash", marker="square", name="line", **POINTED)
SIZED = Line(
    x=(2.0, 5.0), y=(1.5, 1.0), dash="none", marker="circle", sizes=(4.0, 9.0), color="green"
)
AREA = Area(x=(1.0, 10.0), low=(0.0, 0.5), high=(1.0, 1.5), color="orange", name="area")
BOXES = Boxes(boxes=((1.0, 2.0, 0.5, 1.5), (3.0, 4.0, 0.5, 1.5)), color="purple", name="boxes")
NOTES = Notes(x=(1.0, 10.0), y=(1.0, 2.0), texts=("one", "two"), side=("right", "left"))
RULE = Rule(at=5.0, text="limit", name="rule")
SPAN = Span(low=1.0, high=2.0, level=True, name="span")
CELLS = Cells(
    values=((1.0, None), (3.0, 2.0)),
    texts=(("1", "x"), ("3", "2")),
    scale=("sky", "white"),
    limits=(1.0, 3.0),
    words=("a", "b", "c", "d"),
    links=("/?1", "", "/?3", ""),
    keys=("k", "l", "m", "n"),
)
PANELS = {
    "bars": Panel(
        title="of bars",
        x=Axis(label="Time", unit="s", limits=(0.0, 6.0)),
        y=categories(["upper", "lower"]),
        marks=(BARS,),
    ),
    "lines": Panel(
        x=Axis(label="size", scale="log", limits=(1.0, 10.0), ticks=((1.0, "1 B"), (10.0, "10 B"))),
        y=Axis(label="rate", limits=(0.0, 3.0)),
        marks=(AREA, LINE, SIZED, BOXES, NOTES, RULE, SPAN),
    ),
    "cells": Panel(x=categories(["1", "2"], down=False), y=Axis(), marks=(CELLS,)),
}
CHART = Chart(
    title="A model on a machine",
    subtitle="a plan",
    terms=("corrected",),
    rows=((PANELS["bars"], PANELS["lines"]), (PANELS["cells"],)),
)


def traces(chart, kind):
    return [one for one in figure(chart)["data"] if one["type"] == kind]


def test_bars_have_their_places_colors_and_hatches():
    axes = draw(CHART).axes[0]
    drawn = [(bar.get_x(), bar.get_width(), to_hex(bar.get_facecolor())) for bar in axes.patches]
    codes = [color_code(name) for name in BARS.color]
    assert [bar[1] for bar in drawn] == list(BARS.lengths)
    assert [bar[0] for bar in drawn] == list(BARS.starts)
    assert [bar[2] for bar in drawn] == codes
    assert [bool(bar.get_hatch()) for bar in axes.patches] == [True, False]
    (bars,) = traces(CHART, "bar")
    assert (bars["x"], bars["y"], bars["base"]) == ([3.0, -1.0], [0, 1], [1.0, 5.0])
    assert bars["marker"]["color"] == codes
    assert bars["marker"]["pattern"]["shape"] == ["/", ""]


def test_few_points_of_a_line_have_markers():
    mark = Line(x=(1.0, 2.0, 3.0, 4.0, 5.0), y=(1.0,) * 5, marker="circle", most=2)
    chart = replace(CHART, rows=((replace(PANELS["lines"], marks=(mark,)),),))
    (drawn,), (trace,) = draw(chart).axes[0].lines, figure(chart)["data"]
    assert (drawn.get_markevery(), trace["marker"]["maxdisplayed"]) == (3, 2)


def test_a_line_without_points_has_an_entry_in_the_legend():
    mark = Line(name="far", x=(), y=(), dash="none", marker="circle", clip=False)
    chart = replace(CHART, rows=((replace(PANELS["lines"], marks=(mark, LINE)),),))
    assert [text.get_text() for text in draw(chart).legends[0].get_texts()] == ["far", "line"]
    first, _ = figure(chart)["data"]
    assert (first["x"], first["showlegend"]) == ([None], True)


def test_shares_of_an_axis_are_places_of_its_values():
    for axis, middle in (
        (Axis(limits=(1.0, 100.0), scale="log"), 10.0),
        (Axis(limits=(8.0, 2.0)), 5.0),
    ):
        assert axis.share(middle) == pytest.approx(0.5)
        assert axis.value(0.5) == pytest.approx(middle)


@for_each("mark", [LINE, SIZED, replace(LINE, steps="after")])
def test_points_of_lines_are_those_of_the_specification(mark):
    chart = replace(CHART, rows=((replace(PANELS["lines"], marks=(mark,)),),))
    axes = draw(chart).axes[0]
    if len(mark.sizes) > 1:
        (drawn,) = axes.collections
        assert drawn.get_offsets().tolist() == [list(p) for p in zip(mark.x, mark.y, strict=True)]
        assert list(drawn.get_sizes()) == [16.0, 81.0]
    else:
        (drawn,) = axes.lines
        assert (*drawn.get_xdata(),) == mark.x
        assert drawn.get_drawstyle() == ("steps-post" if mark.steps else "default")
    (trace,) = figure(chart)["data"]
    assert (trace["x"], trace["y"]) == (list(mark.x), list(mark.y))
    assert trace["line"]["shape"] == ("hv" if mark.steps else "linear")
    assert trace["mode"] == ("markers" if mark.dash == "none" else "lines+markers")


def test_a_pointer_meets_words_and_a_click_follows_links():
    (bars,) = traces(CHART, "bar")
    assert bars["customdata"] == [["/?a=1", "p", "first"], ["/?a=2", "q", "second"]]
    assert bars["hovertemplate"].startswith("%{customdata[2]}<")
    (cells,) = traces(CHART, "heatmap")
    assert cells["customdata"][1] == [["/?3", "m", "c"], ["", "n", "d"]]
    assert cells["z"] == [[1.0, None], [3.0, 2.0]]


def test_cells_have_values_and_texts():
    axes = draw(CHART).axes[2]
    (mesh,) = axes.collections
    np.testing.assert_equal(np.ma.filled(mesh.get_array(), np.nan), [[1.0, np.nan], [3.0, 2.0]])
    assert [text.get_text() for text in axes.texts[:4]] == ["1", "x", "3", "2"]


def test_axes_have_their_limits_ticks_and_words():
    picture, layout = draw(CHART), figure(CHART)["layout"]
    left, right = picture.axes[:2]
    assert (left.get_xlabel(), left.get_title(loc="left")) == ("Time (s)", "of bars")
    assert left.get_ylim() == PANELS["bars"].y.limits
    assert [one.get_text() for one in left.get_yticklabels()] == ["upper", "lower"]
    assert (right.get_xscale(), right.get_xlim()) == ("log", (1.0, 10.0))
    assert [one.get_text() for one in right.get_xticklabels()] == ["1 B", "10 B"]
    assert layout["xaxis"]["title"]["text"] == "Time (s)"
    assert layout["xaxis2"]["range"] == [0.0, 1.0]
    assert layout["xaxis2"]["ticktext"] == ["1 B", "10 B"]
    assert layout["xaxis"]["domain"][1] < layout["xaxis2"]["domain"][0]
    assert layout["yaxis3"]["domain"][1] < layout["yaxis"]["domain"][0]


def test_notes_rules_and_spans_are_drawn():
    axes = draw(CHART).axes[1]
    assert {"one", "two", "limit"} <= {text.get_text() for text in axes.texts}
    layout = figure(CHART)["layout"]
    line, span = layout["shapes"]
    assert (line["x0"], line["xref"], line["yref"]) == (5.0, "x2", "y2 domain")
    assert (span["y0"], span["y1"]) == (1.0, 2.0)
    assert [one["text"] for one in layout["annotations"]] == ["<b>of bars</b>", "limit"]
    assert layout["annotations"][1]["x"] == pytest.approx(np.log10(5.0))


def test_titles_and_legends_name_everything_once():
    names = ["bars", "area", "line", "boxes", "rule", "span"]
    picture, drawn = draw(CHART), figure(CHART)
    (key,) = picture.legends
    assert [text.get_text() for text in key.get_texts()] == names
    assert [one["name"] for one in drawn["data"] if one["showlegend"]] == names
    assert picture.get_suptitle() == "A model on a machine\na plan; edition corrected"
    assert drawn["layout"]["title"]["text"] == "A model on a machine<br>a plan; edition corrected"
    assert "title" not in figure(CHART, titled=False)["layout"]
    assert not figure(CHART, legend=False)["layout"]["showlegend"]
    rows = draw(replace(CHART, legends="rows"))
    assert [len(part.legends) for part in rows.subfigs] == [1, 0]


def test_a_picture_is_the_same_every_time():
    assert svg(draw(CHART), "words") == svg(draw(CHART), "words")
