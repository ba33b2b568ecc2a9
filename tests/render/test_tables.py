"""Tables of plain values in every format."""

import pytest

from calculon.render.bars import Bar, Share
from calculon.render.document import Section, bold, dim, headed, words
from calculon.render.text_tables import EARLY, Column, Table
from tests.documents.drawing import drawn_lines

TABLE = Table(
    (
        Column("name", "name"),
        Column("count", "how many", right=True),
        Column("rates", "rates", text="\n".join),
        Column("secret", for_people=False),
    ),
    [
        {"name": "a|b", "count": 12345, "rates": ["1", "2"], "secret": None},
        {"name": "c", "count": None, "rates": [], "secret": True},
    ],
)


def test_plain_text_has_one_line_per_row():
    assert TABLE.written("text").splitlines() == [
        "name  how many  rates",
        "a|b     12,345  1, 2",
        "c",
    ]


def test_a_terminal_gets_lists_as_lines():
    assert [line.split() for line in drawn_lines(TABLE, width=40, terminal=True)][1:3] == [
        ["a|b", "12,345", "1"],
        ["2"],
    ]


WIDE = Table(
    (
        Column("name", "name"),
        *(Column(f"c{i}", f"count {i}", right=True) for i in range(8)),
        Column("words", "words", fold=True),
    ),
    [
        {"name": f"r{row}", "words": "a few words that fold, and then some more of them"}
        | {f"c{i}": 10**i + row for i in range(8)}
        for row in range(3)
    ],
)


def test_no_width_of_a_terminal_cuts_a_number():
    for width in (20, 40, 60, 80, 100, 120, 168):
        lines = drawn_lines(WIDE, width=width)
        assert max(map(len, lines)) <= width
        words = " ".join(lines).split()
        assert all(f"{10**i + row:,}" in words for i in range(8) for row in range(3)), width
        assert words.count("words") == 4, width


def test_a_row_that_needs_several_lines_is_broken_between_columns():
    lines = drawn_lines(WIDE, width=60, terminal=True)
    assert lines[0].split()[0] == "name"
    assert lines[1].startswith("  ")
    heads = [line for line in lines if line.startswith("r")]
    assert [line.split()[:3] for line in heads] == [
        [f"r{row}", str(1 + row), str(10 + row)] for row in range(3)
    ]


def test_markdown_escapes_bars():
    assert TABLE.markdown().splitlines() == [
        "| name | how many | rates |",
        "| --- | ---: | --- |",
        r"| a\|b | 12,345 | 1<br>2 |",
        "| c |  |  |",
    ]


def test_csv_and_json_are_raw():
    assert TABLE.csv() == "name,count,rates,secret\na|b,12345,1; 2,\nc,,,True"
    assert TABLE.records()[0] == {
        "name": "a|b",
        "count": 12345,
        "rates": ["1", "2"],
        "secret": None,
    }
    assert TABLE.json().startswith('[\n  {\n    "name": "a|b"')


def test_texts_of_csv_are_no_formulas():
    table = Table((Column("a"), Column("b")), [{"a": "=1+1", "b": -1.5}, {"a": "-", "b": "-2"}])
    assert table.csv() == "a,b\n'=1+1,-1.5\n-,-2"


PRIORITIES = Table(
    (
        Column("name", "name"),
        Column("words", "words", cut=True),
        Column("size", "size", right=True, drop=1),
        Column("share", "share\nof all", right=True, drop=EARLY),
    ),
    [{"name": "one", "words": "first word, second word, third", "size": "123", "share": "45 %"}],
    "--format csv",
)


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (45, ["name words size", "one first word, second word, third 123"]),
        (38, ["name words size", "one first word, second word, ... 123"]),
        (26, ["name words", "one first word, ..."]),
    ],
)
def test_what_a_narrow_screen_leaves_out_is_said(width, expected):
    titles, *lines = drawn_lines(PRIORITIES, width=width)
    assert [" ".join(titles.split()), " ".join(lines[0].split())] == expected
    note = " ".join(lines[1:])
    assert note.startswith("Columns hidden (too narrow): ")
    assert note.endswith("share of all; --format csv shows all")
    assert ("size" in note) == (width < 30)
    assert drawn_lines(PRIORITIES, width=80)[-1].split()[-2:] == ["45", "%"]


def test_long_texts_stand_below_where_nothing_else_helps():
    table = Table(
        (Column("name", "name"), Column("text", "text", fold=True)),
        [
            {
                "name": "a_name_of_twenty_five_chars",
                "text": "of several words that fold between them",
            }
        ],
    )
    assert drawn_lines(table, width=40) == [
        "name",
        "    text",
        "a_name_of_twenty_five_chars",
        "    of several words that fold between",
        "    them",
    ]


NUMBERS = headed(
    ("left", "right", "right", "text", "wide"),
    ("part", "time", "memory", "remark", ""),
    [
        (
            "reading",
            "1.25 s",
            bold("12.5 GiB"),
            "a remark of several words",
            Bar((Share(1, "blue"),)),
        ),
        (dim("with a note of its own", indent=2),),
        (),
        ("  writing", "10.5 s", "-", ""),
    ],
)


def test_no_width_of_a_terminal_cuts_a_grid():
    for width in (24, 30, 40, 60, 80):
        lines = drawn_lines(Section("", (NUMBERS,)), width=width, terminal=True)
        assert max(map(len, lines)) <= width
        text = " ".join(lines)
        assert "…" not in text
        shown = set(text.split())
        for row in NUMBERS.rows:
            assert set(" ".join(map(words, row)).split()) <= shown, width


def test_a_row_of_a_grid_that_needs_several_lines_is_broken_between_columns():
    assert drawn_lines(NUMBERS, width=30) == [
        "part         time    memory",
        "  remark",
        "reading    1.25 s  12.5 GiB",
        "  a remark of several words",
        "  with a note of its own",
        "",
        "  writing  10.5 s         -",
    ]
    changes = headed(
        ("text", "right"), ("change", "time"), [("a_name 1 -> 2\nb 3 -> 4", "1,234.5 s")]
    )
    assert drawn_lines(changes, width=20) == [
        "change",
        "       time",
        "a_name 1 -> 2",
        "b 3 -> 4",
        "  1,234.5 s",
    ]
