"""Tables of plain values in every format."""

import io

from rich.console import Console

from calculon.report.console import show
from calculon.report.tables import Column, Table

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
    stream = io.StringIO()
    show(TABLE, stream, wrap=False)
    assert stream.getvalue().splitlines() == [
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
