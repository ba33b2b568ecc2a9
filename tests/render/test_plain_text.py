"""Documents in pipes and as Markdown."""

from calculon.render.document import Document, Grid, Section, dim
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
