"""Pages of a terminal as HTML: readable aloud, with nothing from outside, and all that the page says."""

import re

import pytest
from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from calculon.render.bars import COLORS, Bar, Share
from calculon.render.grids import grid, indented
from calculon.render.html import ROWS, folded, heading, page, paragraph, table
from calculon.render.text_tables import Column, Table
from calculon.render.texts import heading as terminal_heading
from tests.cases import for_each
from tests.outline import Outline

HOSTILE = "<script>alert('&')</script>"


def checked(text):
    """Return the outline of HTML that has nothing to run and nothing to fetch, and whose tables have headers."""
    found = Outline(text)
    assert not {"script", "link", "img", "iframe", "style"} & set(found.tags)
    assert not {name for _, name, _ in found.attributes} & {"src", "href", "onclick"}
    scopes = [value for tag, name, value in found.attributes if (tag, name) == ("th", "scope")]
    assert len(scopes) == found.tags.count("th")
    assert set(scopes) <= {"row", "col"}
    if "table" in found.tags:
        assert "row" in scopes
    return found


@for_each(
    "text",
    [
        heading(HOSTILE, HOSTILE),
        paragraph(HOSTILE),
        folded(f"{HOSTILE}: {HOSTILE}", paragraph(HOSTILE)),
        table(Table((Column("a", HOSTILE), Column("b")), [{"a": HOSTILE, "b": HOSTILE}])),
        page(Group(Text(HOSTILE, "bold"), indented(Text(HOSTILE)))),
    ],
)
def test_texts_are_texts(text):
    assert checked(text).text.count("<script>") >= 1


def test_a_long_table_has_its_first_rows_and_says_how_many_more():
    columns = (Column("name", "name"), Column("n", "count", right=True))
    rows = [{"name": f"row{i}", "n": i * 1000} for i in range(ROWS + 990)]
    found = checked(table(Table(columns, rows)))
    assert found.tags.count("tr") == 1 + ROWS
    assert "and 990 more" in found.text
    assert f"{(ROWS - 1) * 1000:,}" in found.words
    assert "more" not in checked(table(Table(columns, rows[:ROWS]))).text
    assert f"and {5_000_000 - ROWS:,} more" in table(Table(columns, rows), total=5_000_000)


def test_columns_for_programs_are_left_out():
    columns = (Column("name", "name"), Column("raw", for_people=False))
    assert "secret" not in table(Table(columns, [{"name": "a", "raw": "secret"}]))


def test_what_follows_a_heading_is_folded_away_below_it():
    lines = Group(
        Text("Title", "bold"),
        terminal_heading("Time", "3 s"),
        indented(Text("of which 2 s computing")),
        Text(),
        terminal_heading("Memory", "unused"),
        terminal_heading("Rest"),
        Text("nothing"),
    )
    found = checked(page(lines, opened=("Rest",)))
    assert found.tags.count("details") == 2  # nothing follows that of memory
    opened = [pair for pair in found.attributes if pair[:2] == ("details", "open")]
    assert len(opened) == 1
    assert "Time : 3 s" in " ".join(found.text.split())


def test_a_grid_is_a_table_whose_dim_first_row_is_its_header():
    sizes = grid("left", "right", "wide")
    sizes.add_row("", Text("predicted", "dim"), Text("share", "dim"))
    sizes.add_row(
        "weights",
        Text("3 GiB", "bold"),
        Bar((Share(0.5, "green"), Share(0.25, "grey", solid=False))),
    )
    text = page(Padding(sizes, 1))
    found = checked(text)
    assert [pair[2] for pair in found.attributes if pair[1] == "scope"] == ["col", "col", "row"]
    widths = [float(one) for one in re.findall(r"width:([\d.]+)em", text)]
    assert widths[0] == pytest.approx(2 * widths[1])
    assert COLORS["green"] in text
    alone = grid("left", "right")
    alone.add_row(Text("a", "dim"), Text("b", "dim"))
    assert ("th", "scope", "col") not in checked(page(alone)).attributes
    assert ("span", "aria-hidden", "true") in found.attributes


def test_a_grid_of_texts_is_one_table_wherever_they_are_indented():
    changes = grid("text", "right")
    changes.add_row(Text("change", "dim"), Text("time", "dim"))
    changes.add_row("TP 8 -> 4", "3 s")
    changes.add_row(indented(Text("with data_par=8", "dim")), "")
    found = checked(page(changes))
    assert found.tags.count("table") == 1
    scopes = [pair[2] for pair in found.attributes if pair[1] == "scope"]
    assert scopes == ["col", "col", "row", "row"]
    assert found.words == ["change", "time", "TP 8 -> 4", "3 s", "with data_par=8"]


def test_parts_side_by_side_follow_each_other():
    left, right = grid("left", "left"), grid("left", "left")
    left.add_row("a", "1")
    right.add_row("b", "2")
    both = grid("text", "text")
    both.add_row(left, right)
    found = checked(page(both))
    assert found.tags.count("table") == 2
    assert found.words == ["a", "1", "b", "2"]


def test_styles_of_pieces_of_a_line_stay():
    line = Text.assemble(("all ", "dim"), ("9", "bold"), (" of ", ""), ("10", "#0072b2"))
    text = page(line)
    assert checked(text).text.split() == ["all", "9", "of", "10"]
    assert "<strong>9</strong>" in text
    assert "color:#0072b2" in text
