"""Documents as text: unlimited width for pipes and files, Markdown, CSV and HTML."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from calculon.base.frozen import dataclass
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
    inner_blocks,
    words,
)
from calculon.render.grid_table import as_table
from calculon.render.text_tables import Table, markdown_text


def document_text(document: Document, form: str) -> str:
    """Return a document as ``text`` (one line per table row), ``markdown``, ``html`` or ``csv``."""
    if form == "csv":
        from calculon.render.document_csv import document_csv

        return document_csv(document)
    if form == "html":
        from calculon.render.html_file import html_file

        body = replace(document, title="", lead=(dim(document.terms), *document.lead))
        return html_file(document.title, [("answer", "", (body,))]).rstrip("\n")
    if form == "markdown":
        return "\n\n".join(_written([document], _MARKDOWN))
    return "\n".join(_written([document], _TEXT))


@dataclass(frozen=True, slots=True)
class _Form:
    """Formatters of a text format, one per kind of block."""

    title: Callable[[str], str]
    heading: Callable[[str], str]
    table: Callable[[Table], str]
    grid: Callable[[Grid], str]
    item: Callable[[str], str]
    text: Callable[[str], str]


def _written(blocks: Iterable[Block], form: _Form) -> Iterator[str]:
    """Yield blocks and their inner blocks in a text format."""
    for one in blocks:
        if isinstance(one, Document) and one.title:
            yield form.title(f"{one.title}, {one.terms}" if one.terms else one.title)
        elif isinstance(one, Section) and one.title:
            yield form.heading(one.heading)
        if inner := inner_blocks(one):
            yield from _written(inner, form)
        elif text := _leaf(one, form):
            yield text


def _leaf(block: Block, form: _Form) -> str:
    """Return a block without inner blocks in a text format; empty if it has no text."""
    if isinstance(block, Table):
        return form.table(block)
    if isinstance(block, (Grid, Facts)):
        return form.grid(block.grid if isinstance(block, Facts) else block)
    if isinstance(block, Items):
        return "\n".join(map(form.item, block.texts))
    if isinstance(block, Names):
        return form.text(", ".join(block.names))
    return form.text(block.words if isinstance(block, Picture) else words(block))


def _rows(grid: Grid) -> list[str]:
    """Return the rows of a grid as texts."""
    return ["  ".join(map(words, row)).rstrip() for row in grid.rows]


def _marked_grid(grid: Grid) -> str:
    """Return a grid as a Markdown table if it has column titles, otherwise as a list."""
    if grid.heads:
        return as_table(grid).markdown()
    return "\n".join(_marked_item(row.removeprefix("-  ")) for row in _rows(grid))


def _marked_item(text: str) -> str:
    """Return a Markdown list item, nested if the text is indented."""
    words = text.lstrip(" ")
    return f"{' ' * (len(text) - len(words))}- {markdown_text(words)}"


_TEXT = _Form(
    title=str,
    heading="\n{}".format,
    table=Table.text,
    grid=lambda grid: "\n".join(_rows(grid)),
    item="- {}".format,
    text=str,
)
_MARKDOWN = _Form(
    title=lambda text: f"# {markdown_text(text)}",
    heading=lambda text: f"**{markdown_text(text)}**",
    table=Table.markdown,
    grid=_marked_grid,
    item=_marked_item,
    text=markdown_text,
)
