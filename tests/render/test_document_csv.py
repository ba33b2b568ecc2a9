"""Documents as one long table of CSV."""

import csv

import pytest

from calculon.render.document import Document, Facts, Grid, Section, SideBySide, dim, headed
from calculon.render.plain_text import document_text
from calculon.render.text_tables import Column, Table


def lines(document):
    """Return the lines of a document, without those of its title."""
    return [*csv.DictReader(document_text(document, "csv").splitlines())]


def cells(*blocks):
    """Return section, row, name and column of every cell, with its text."""
    keys = ("section", "row", "name", "column", "text")
    return [tuple(line[key] for key in keys) for line in lines(Document("", parts=blocks))]


def test_every_cell_has_its_place_its_number_and_its_unit():
    table = Table(
        (Column("part"), Column("time", "time", right=True), Column("raw", for_people=False)),
        [{"part": "all", "time": "1,230.5 ms", "raw": 1}],
    )
    document = Document("Answer", "terms", ("a lead",), (Section("Time", (table,), "1.2 s"),))
    assert lines(document) == [
        told("", "title", "Answer"),
        told("", "terms", "terms"),
        told("", "text", "a lead"),
        told("Time", "remark", "1.2 s", "1.2", "s"),
        {
            **told("Time", "time", "1,230.5 ms", "1.2305", "s"),
            "table": "1",
            "row": "1",
            "name": "all",
        },
    ]


def told(section, column, text, value="", unit=""):
    return {
        **dict.fromkeys(("table", "row", "name"), ""),
        **{"section": section, "column": column, "value": value, "unit": unit, "text": text},
    }


def test_grids_have_the_names_of_their_rows_also_without_titles():
    grid = Grid(("left", "right", "right"), (("weights", "16.4", "20.8 %"), (), ("  FP8", "1", "")))
    assert cells(grid) == [
        ("", "1", "weights", "value 1", "16.4"),
        ("", "1", "weights", "value 2", "20.8 %"),
        ("", "2", "weights / FP8", "value 1", "1"),
    ]
    twice = headed(("left", "left", "left"), ("", "end", "end"), [("a", "b\nc", "d")])
    assert cells(twice) == [("", "1", "a", "end 1", "b; c"), ("", "1", "a", "end 2", "d")]
    assert cells(Facts((("MFU", "53 %", "causal"),))) == [
        ("", "1", "MFU", "value", "53 %"),
        ("", "1", "MFU", "remark", "causal"),
    ]


def test_a_remark_is_a_cell_of_the_row_before_it():
    grid = headed(("text", "right"), ("change", "time"), [("a -> b", "1 s"), (dim("with c"),)])
    assert cells(Section("Better", (grid,))) == [
        ("Better", "1", "a -> b", "change", "a -> b"),
        ("Better", "1", "a -> b", "time", "1 s"),
        ("Better", "1", "a -> b", "remark", "with c"),
    ]


def test_sections_are_named_inside_others_and_tables_counted():
    grid = Grid(("left", "right"), (("a", "1"),))
    inner = Section("Inner", (SideBySide(((grid,), (grid,)), 100),))
    found = lines(Document("", parts=(Section("Outer", (inner,)), Document("Next", parts=(grid,)))))
    assert [(one["section"], one["table"]) for one in found] == [
        ("Outer / Inner", "1"),
        ("Outer / Inner", "2"),
        ("Next", "3"),
    ]


def test_texts_are_no_formulas():
    grid = Grid(("left", "right"), (("=1+1", "+5 %"),))
    (line,) = lines(Document("", parts=(Section("@x", (grid,)),)))
    assert (line["section"], line["name"], line["value"], line["text"]) == (
        "'@x",
        "'=1+1",
        "5",
        "'+5 %",
    )


def test_pandas_reads_the_numbers():
    pandas = pytest.importorskip("pandas")
    import io

    grid = headed(("left", "right"), ("", "time"), [("a", "1.5 s"), ("b", "2 s"), ("c", "-")])
    text = document_text(Document("", parts=(Section("Time", (grid,)),)), "csv")
    frame = pandas.read_csv(io.StringIO(text))
    wide = frame.pivot(index="name", columns="column", values="value")
    assert wide["time"].dropna().to_dict() == {"a": 1.5, "b": 2.0}
