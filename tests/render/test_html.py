"""Documents as HTML: readable aloud, with nothing to run or to fetch, and all that the document says."""

import re
from dataclasses import replace

import pytest
from markupsafe import Markup

from calculon.render.bars import COLORS, Bar, Share
from calculon.render.document import (
    ByWidth,
    Document,
    Facts,
    Grid,
    Names,
    Section,
    SideBySide,
    Styled,
    bold,
    dim,
)
from calculon.render.html import EXPLORE, NOTEBOOK, REPORT, fragment, page
from calculon.render.text_tables import Column, Table
from tests.outline import Outline

HOSTILE = "<script>alert('&')</script>"
ROWS = NOTEBOOK.rows


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


@pytest.mark.parametrize("look", [NOTEBOOK, REPORT, EXPLORE])
def test_texts_are_texts(look):
    table = Table((Column("a", HOSTILE), Column("b")), [{"a": HOSTILE, "b": HOSTILE}])
    styled = (HOSTILE, bold(HOSTILE), Styled(HOSTILE, "blue"), dim(HOSTILE))
    grid = Grid(("left", "right"), ((HOSTILE, styled),))
    section = Section(HOSTILE, (table, grid, Names([HOSTILE])), HOSTILE)
    text = page(Document(HOSTILE, HOSTILE, (HOSTILE,), (styled, section)), look)
    assert checked(text).text.count(HOSTILE) == 3 + 4 + 2 + 3 + 5 + 1


def test_a_long_table_has_its_first_rows_and_says_how_many_more():
    columns = (Column("name", "name"), Column("n", "count", right=True))
    rows = [{"name": f"row{i}", "n": i * 1000} for i in range(ROWS + 990)]
    table = Table(columns, rows)
    found = checked(fragment([table]))
    assert found.tags.count("tr") == 1 + ROWS
    assert "and 990 more" in found.text
    assert f"{(ROWS - 1) * 1000:,}" in found.words
    assert "more" not in checked(fragment([Table(columns, rows[:ROWS])])).text
    assert f"and {5_000_000 - ROWS:,} more" in fragment([replace(table, total=5_000_000)])
    assert checked(fragment([table], REPORT)).tags.count("tr") == 1 + len(rows)


def test_columns_for_programs_are_left_out():
    columns = (Column("name", "name"), Column("raw", for_people=False))
    assert "secret" not in fragment([Table(columns, [{"name": "a", "raw": "secret"}])])


def test_a_report_has_values_to_sort_by():
    columns = (Column("a", "a"), Column("n", "n", right=True))
    text = fragment([Table(columns, [{"a": "<b>&", "n": 1000}])], REPORT)
    assert 'data-value="&lt;b&gt;&amp;">&lt;b&gt;&amp;<' in text
    assert '<td class="right" data-value="1000">1,000</td>' in text


def test_sections_fold_away_but_those_that_are_opened():
    sections = (
        Section("Time", ("of which 2 s computing",), "3 s"),
        Section("Memory", (), "unused"),
        Section("Rest", ("nothing",), opened=True),
        Section("", ("without a title",)),
    )
    document = Document("Title", parts=sections)
    found = checked(page(document))
    assert found.tags.count("details") == 2  # nothing follows that of memory
    assert [pair for pair in found.attributes if pair[:2] == ("details", "open")]
    assert "Time : 3 s" in " ".join(found.text.split())
    plain = checked(page(document, REPORT))
    assert plain.tags.count("h3") == 3
    assert "details" not in plain.tags


def test_a_grid_is_a_table_whose_heads_are_its_header():
    bar = Bar((Share(0.5, "green"), Share(0.25, "gray", solid=False)))
    rows = (("", dim("predicted"), dim("share")), ("weights", bold("3 GiB"), bar), ("rest",))
    text = fragment([Grid(("left", "right", "wide"), rows, heads=1)])
    found = checked(text)
    scopes = [pair[2] for pair in found.attributes if pair[1] == "scope"]
    assert scopes == ["col", "col", "row", "row"]
    widths = [float(one) for one in re.findall(r"width:([\d.]+)em", text)]
    assert widths[0] == pytest.approx(2 * widths[1])
    assert COLORS["green"] in text
    assert ("span", "aria-hidden", "true") in found.attributes


def test_columns_of_blocks_follow_each_other_and_narrow_blocks_are_for_narrow_pages():
    left, right = (Grid(("left", "left"), ((name, number),)) for name, number in ("a1", "b2"))
    found = checked(fragment([SideBySide(((left,), (right,)), 144)]))
    assert found.words == ["a", "1", "b", "2"]
    for look, said in ((NOTEBOOK, "narrow"), (REPORT, "wide")):
        assert said in fragment([ByWidth(110, ("wide",), ("narrow",))], look)


def test_pieces_of_a_line_keep_their_styles():
    text = fragment([(dim("all "), bold("9"), " of ", Styled("10", "blue"))])
    assert checked(text).text.split() == ["all", "9", "of", "10"]
    assert "<strong>9</strong>" in text
    assert f"color:{COLORS['blue']}" in text


def test_only_a_page_in_a_browser_has_links():
    link = Styled("4 <", "current", link="/?a=1&b=2", hint='"more"', key="4.1")
    table = Table((Column("a"), Column("b", "b")), [{"a": link, "b": 1}, {"a": "x", "b": 2}])
    text = fragment([table, Grid(("left", "left"), (("x", ""), (link, "y")))], EXPLORE)
    marks = ' aria-current="true" data-key="4.1" title="&quot;more&quot;" aria-label="4 &lt;: &quot;more&quot;"'
    assert text.count(f'<a data-state{marks} href="/?a=1&amp;b=2">4 &lt;</a>') == 2
    assert text.count('<tr class="selected">') == 2
    assert "a" not in checked(fragment([table, link])).tags
    assert table.text().splitlines()[1].split() == ["4", "<", "1"]


def test_files_are_no_states_of_a_page_and_text_that_folds_has_a_width():
    file = Styled("4.json", "bold", link="/export/4.json?a=1")
    text = fragment([Grid(("left", "text"), ((file, "x"),))], EXPLORE)
    assert (
        '<th scope="row" class="short"><a href="/export/4.json?a=1"><strong>4.json</strong></a>'
        in text
    )
    assert '<td class="words">x</td>' in text


def test_a_long_table_in_a_browser_scrolls_under_its_heading():
    grid = Grid(("left",), (("x",),) * EXPLORE.tall)
    text = fragment([grid, Section("Stages", (grid,))], EXPLORE, "Plan")
    assert re.findall(r'role="region" aria-label="(\w+)" tabindex="0"', text) == ["Plan", "Stages"]
    assert "region" not in fragment([replace(grid, rows=grid.rows[1:])], EXPLORE)


def test_facts_are_tiles_in_a_browser_and_a_grid_elsewhere():
    facts = Facts((("Time <", "3 s", "of a step"),))
    tile = "<dt>Time &lt;</dt><dd><strong>3 s</strong>"
    assert tile in fragment([facts], EXPLORE)
    assert checked(fragment([facts])).words == ["Time <", "3 s", "of a step"]


def test_forms_of_a_page_are_kept_and_other_texts_escaped():
    assert fragment([Markup("<input>"), "<input>"], EXPLORE) == "<input><p>&lt;input&gt;</p>"


def test_parts_of_a_row_are_indented_and_a_row_of_one_cell_is_as_wide_as_the_table():
    rows = (("Attn", "1"), (), ("  QKV", "2"), (dim("fused", indent=2),))
    text = fragment([Grid(("left", "right"), rows)], REPORT)
    assert '<th scope="row">&nbsp;&nbsp;QKV</th>' in text
    assert '<th scope="row" colspan="2">&nbsp;&nbsp;<span class="quiet">fused</span></th>' in text
