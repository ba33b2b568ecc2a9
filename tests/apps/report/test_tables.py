"""Tables of plain values in every format."""

import io

import pytest
from rich.console import Console

from calculon.apps.report.text_tables import Column, Table

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
    stream = io.StringIO()
    Console(file=stream, force_terminal=True, width=40, color_system=None).print(TABLE)
    assert [line.split() for line in stream.getvalue().splitlines()][1:3] == [
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


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 120, 168])
def test_no_width_of_a_terminal_cuts_a_number(width):
    stream = io.StringIO()
    Console(file=stream, force_terminal=True, width=width, color_system=None).print(WIDE)
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    words = stream.getvalue().split()
    assert all(f"{10**i + row:,}" in words for i in range(8) for row in range(3))
    assert words.count("words") == 4


def test_a_row_that_needs_several_lines_is_broken_between_columns():
    stream = io.StringIO()
    Console(file=stream, force_terminal=True, width=60, color_system=None).print(WIDE)
    lines = stream.getvalue().splitlines()
    assert lines[0].split()[0] == "name"
    assert lines[1].startswith("  ")
    heads = [line for line in lines if line.startswith("r")]
    assert [line.split()[:3] for line in heads] == [
        [f"r{row}", str(1 + row), str(10 + row)] for row in range(3)
    ]


def test_texts_fold_before_rows_break():
    table = Table(
        (Column("n", "n", right=True), Column("t", "t", fold=True)), [{"n": 7, "t": "abc " * 20}]
    )
    stream = io.StringIO()
    Console(file=stream, force_terminal=True, width=40, color_system=None).print(table)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert all(line.startswith("   ") for line in lines[2:])


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
