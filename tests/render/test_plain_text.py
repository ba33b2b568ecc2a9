"""Documents in pipes and as Markdown."""

import re
from html import unescape

import pytest

from calculon.render.bars import Bar, Share
from calculon.render.document import (
    ByWidth,
    Document,
    Facts,
    Grid,
    Items,
    Section,
    bold,
    dim,
    headed,
)
from calculon.render.plain_text import document_text
from calculon.render.text_tables import Column, Table

TABLE = Table(
    (Column("part"), Column("time", "time", right=True)), [{"part": "all", "time": "1 s"}]
)
SECTION = Section("Time", (TABLE, dim("Measured.")), "1 s")
ONE = Document("", lead=(Grid(("left", "text"), (("A", "first"),)),), parts=(SECTION,))


def test_a_note_after_a_table_is_no_row_of_it():
    assert document_text(ONE, "text").splitlines() == [
        "A  first",
        "",
        "Time: 1 s",
        "     time",
        "all   1 s",
        "Measured.",
    ]
    assert document_text(ONE, "markdown").splitlines()[-4:] == [
        "| --- | ---: |",
        "| all | 1 s |",
        "",
        "Measured.",
    ]


def test_every_format_has_the_title_and_the_tables():
    titled = Document("Answer", "edition corrected", parts=(ONE, ByWidth(100, (TABLE,), ())))
    assert document_text(titled, "text").startswith("Answer, edition corrected\n")
    assert document_text(titled, "markdown").startswith("# Answer, edition corrected\n")
    assert "<h1>Answer</h1>" in document_text(titled, "html")


def test_a_grid_with_titles_is_a_table_without_its_bars():
    bar = Bar((Share(0.5, "blue"),))
    grid = headed(("left", "right", "wide"), ("part", "time", ""), [("all", bold("1 s"), bar)])
    assert markdown(grid).splitlines() == ["| part | time |", "| --- | ---: |", "| all | 1 s |"]
    assert markdown(Facts((("MFU", "53 %", "causal"),))) == "- MFU  53 %  causal"


OPERATORS = headed(
    ("left", "right", "right"),
    ("", "time", "time"),
    [("Attn", "3 ms", "1"), ("  QKV", "2 ms", "-"), (dim("fused", indent=2),), ("Mlp", "5 ms")],
)


def test_parts_of_a_row_are_indented_and_remarks_are_no_rows():
    assert markdown(OPERATORS).splitlines()[2:] == [
        "| Attn | 3 ms | 1 |  |",
        "| &nbsp;&nbsp;QKV | 2 ms | - | fused |",
        "| Mlp | 5 ms |  |  |",
    ]
    assert markdown(Grid(("left", "left"), (("days", "5"), ("  goodput", "9")))) == (
        "- days  5\n  - goodput  9"
    )


def markdown(*blocks):
    return document_text(Document("", parts=blocks), "markdown")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<script> </b> & <0.1 % -> 2", r"\<script> \</b> & <0.1 % -> 2"),
        ("a * b, *c*, ~d~, $e$, \\", r"a * b, \*c\*, \~d\~, \$e\$, \\"),
        ("`a_*b`, `c", r"`a_*b`, \`c"),
        ("tensor_par and _name_ and __init__", r"tensor_par and \_name\_ and \_\_init\_\_"),
        ("networks[1].size [a](b)", r"networks[1].size [a\](b)"),
        ("&lt; & &", r"\&lt; & &"),
    ],
)
def test_markdown_acts_on_no_text(text, expected):
    table = Table((Column(text, text),), [{text: text}])
    assert markdown(text) == expected
    assert markdown(table).splitlines() == [f"| {expected} |", "| --- |", f"| {expected} |"]
    assert markdown(Section(text, ())) == f"**{expected}**"
    assert markdown(Items((text,))) == f"- {expected}"
    assert document_text(Document(text), "markdown") == f"# {expected}"


HOSTILE = (
    "<b onclick='x'>&amp; <https://a.b> [a](javascript:x) ![i](j) **b** _i_ ~~d~~ a|b $x$ \\| `<i>` <0.1 % "
    "__init__ tensor_par * 2 [x]: y #1"
)


def test_a_reader_of_markdown_finds_the_text_itself():
    markdown_it = pytest.importorskip("markdown_it")
    reader = markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"])
    table = Table((Column("a", HOSTILE), Column("b")), [{"a": HOSTILE, "b": 1}])
    facts = Facts((("a", HOSTILE, ""),))
    for block in (HOSTILE, table, Items((HOSTILE,)), Section(HOSTILE, ()), facts):
        html = reader.render(markdown(block))
        html = re.sub(r"</?(?:p|table|t\w+|ul|li|code|strong)\b[^>]*>", "", html)
        assert "<" not in html
        assert HOSTILE.replace("`", "") in " ".join(unescape(html).split())


def test_the_start_of_a_paragraph_makes_no_list():
    for text in ("# a", "- a", "+ a", "> a", "1. a", "2) a", "---"):
        assert "\\" in markdown(text)
        assert markdown(text).replace("\\", "") == text
    assert markdown("-1 %, +3, 1.5 s", "#046") == "-1 %, +3, 1.5 s\n\n#046"
