"""Documents in pipes and as Markdown."""

import json

import pytest

from calculon.base.errors import SpecError
from calculon.render.bars import Bar, Share
from calculon.render.document import ByWidth, Document, Facts, Grid, Section, bold, dim, headed
from calculon.render.plain_text import written
from calculon.render.text_tables import Column, Table

TABLE = Table(
    (Column("part"), Column("time", "time", right=True)), [{"part": "all", "time": "1 s"}]
)
SECTION = Section("Time", (TABLE, dim("Measured.")), "1 s")
ONE = Document("", lead=(Grid(("left", "text"), (("A", "first"),)),), parts=(SECTION,))


def test_a_note_after_a_table_is_no_row_of_it():
    assert written(ONE, "text").splitlines() == [
        "A  first",
        "",
        "Time: 1 s",
        "     time",
        "all   1 s",
        "Measured.",
    ]
    assert written(ONE, "markdown").splitlines()[-4:] == [
        "| --- | ---: |",
        "| all | 1 s |",
        "",
        "Measured.",
    ]


def test_every_format_has_the_title_and_the_tables():
    titled = Document("Answer", "edition corrected", parts=(ONE, ByWidth(100, (TABLE,), ())))
    assert written(titled, "text").startswith("Answer, edition corrected\n")
    assert written(titled, "markdown").startswith("# Answer, edition corrected\n")
    assert written(titled, "csv") == "\n\n".join(["part,time\nall,1 s"] * 2)
    assert json.loads(written(titled, "json")) == [TABLE.records()] * 2
    assert json.loads(written(titled, "json", {"a": 1})) == {"a": 1}
    assert "<h1>Answer</h1>" in written(titled, "html")


def test_a_grid_with_titles_is_a_table_without_its_bars():
    bar = Bar((Share(0.5, "blue"),))
    grid = headed(("left", "right", "wide"), ("part", "time", ""), [("all", bold("1 s"), bar)])
    document = Document("", parts=(grid,))
    assert written(document, "csv") == "part,time\nall,1 s"
    assert written(document, "markdown").splitlines()[-1] == "| all | 1 s |"
    twice = headed(("left", "left", "left"), ("", "end", "end"), [("a", "b", "c")])
    assert written(Document("", parts=(twice,)), "csv") == "name,end 1,end 2\na,b,c"
    facts = Document("", parts=(Facts((("MFU", "53 %", "causal"),)),))
    assert written(facts, "csv") == "name,value,remark\nMFU,53 %,causal"
    assert written(facts, "markdown") == "- MFU  53 %  causal"
    with pytest.raises(SpecError, match="an answer with a table"):
        written(Document("", parts=("a text",)), "csv")
