"""Documents as text: of any width for pipes and files, as Markdown, as CSV and as HTML."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from calculon.render.document import (
    Block,
    Document,
    Facts,
    Grid,
    Items,
    Names,
    Picture,
    Section,
    dim,
    inside,
    words,
)
from calculon.render.grid_table import as_table
from calculon.render.text_tables import Table, markdown_text


def written(document: Document, form: str) -> str:
    """Return a document as ``text`` in which every row of a table takes one line, ``markdown``, ``html`` or ``csv``."""
    if form == "csv":
        from calculon.render.document_csv import document_csv

        return document_csv(document)
    if form == "html":
        from calculon.render.html_file import html_file

        body = replace(document, title="", lead=(dim(document.terms), *document.lead))
        return html_file(document.title, [("answer", "", (body,))]).rstrip("\n")
    if form == "markdown":
        return "\n\n".join(_markdown([document]))
    return "\n".join(_lines([document]))


def _lines(blocks: Iterable[Block]) -> Iterator[str]:
    """Yield blocks and the blocks inside them as text."""
    for one in blocks:
        if isinstance(one, Document) and one.title:
            yield _titled(one)
        elif isinstance(one, Section) and one.title:
            yield f"\n{one.heading}"
        if inner := inside(one):
            yield from _lines(inner)
        elif text := _text(one):
            yield text


def _titled(one: Document) -> str:
    return f"{one.title}, {one.terms}" if one.terms else one.title


def _text(block: Block) -> str:
    """Return a block without blocks inside as text; empty if it has none."""
    if isinstance(block, Table):
        return block.text()
    if isinstance(block, (Grid, Facts)):
        rows = (block.grid if isinstance(block, Facts) else block).rows
        return "\n".join("  ".join(map(words, row)).rstrip() for row in rows)
    if isinstance(block, Items):
        return "\n".join(f"- {text}" for text in block.texts)
    return _prose(block)


def _prose(block: Block) -> str:
    if isinstance(block, Names):
        return ", ".join(block.names)
    return block.words if isinstance(block, Picture) else words(block)


def _markdown(blocks: Iterable[Block]) -> Iterator[str]:
    """Yield blocks and the blocks inside them as GitHub's Markdown."""
    for one in blocks:
        if isinstance(one, Document) and one.title:
            yield f"# {markdown_text(_titled(one))}"
        elif isinstance(one, Section) and one.title:
            yield f"**{markdown_text(one.heading)}**"
        if inner := inside(one):
            yield from _markdown(inner)
        elif text := _marked(one):
            yield text


def _marked(block: Block) -> str:
    """Return a block without blocks inside as Markdown; empty if it has no text."""
    if isinstance(block, Table):
        return block.markdown()
    if isinstance(block, Grid) and block.heads:
        return as_table(block).markdown()
    if isinstance(block, (Grid, Facts)):
        rows = (block.grid if isinstance(block, Facts) else block).rows
        lines = ("  ".join(map(words, row)).rstrip() for row in rows)
        return "\n".join(_item(line.removeprefix("-  ")) for line in lines)
    if isinstance(block, Items):
        return "\n".join(map(_item, block.texts))
    return markdown_text(_prose(block))


def _item(text: str) -> str:
    """Return an item of a list, inside the one above if it is indented."""
    words = text.lstrip(" ")
    return f"{' ' * (len(text) - len(words))}- {markdown_text(words)}"
