"""Documents as text: of any width for pipes and files, as Markdown, and their tables as CSV."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.declarations.files import json_text
from calculon.render.document import (
    Beside,
    Block,
    ByWidth,
    Document,
    Facts,
    Grid,
    Items,
    Names,
    Picture,
    Section,
    dim,
    words,
)
from calculon.render.text_tables import Column, Table

DOCUMENT_FORMATS = ("text", "markdown", "html", "csv", "json")
"""Formats of documents: text in which every row of a table takes one line, CSV of the tables, and JSON."""


def written(document: Document, form: str, data: Any = None) -> str:
    """Return a document in one of the :data:`DOCUMENT_FORMATS`.

    `data` are the plain data of the answer, for JSON; without them JSON has the tables.
    """
    if form == "json":
        return json_text([one.records() for one in _tables([document])] if data is None else data)
    if form == "csv":
        tables = [one.csv() for one in _tables([document])]
        if not tables:
            problem = Problem("", "an answer with a table", "none", "--format json has everything")
            raise SpecError("csv", problem)
        return "\n\n".join(tables)
    if form == "html":
        from calculon.render.html_file import html_file

        body = replace(document, title="", lead=(dim(document.terms), *document.lead))
        return html_file(document.title, [("answer", "", (body,))]).rstrip("\n")
    parts = _parts([document], form)
    return ("\n\n" if form == "markdown" else "\n").join(parts)


_FACTS = ("name", "value", "remark")


def _inside(block: Block) -> tuple[Block, ...]:
    """Return the blocks of a block."""
    if isinstance(block, Document):
        return (*block.lead, *block.parts)
    if isinstance(block, Section):
        return block.blocks
    if isinstance(block, Beside):
        return tuple(one for column in block.columns for one in column)
    return block.wide if isinstance(block, ByWidth) else ()


def _tables(blocks: Iterable[Block]) -> Iterator[Table]:
    """Yield the tables of blocks and of all blocks inside them; grids with titles of columns are tables of texts."""
    for one in blocks:
        if isinstance(one, Table):
            yield one
        elif isinstance(one, Facts):
            yield _as_table(replace(one.grid, rows=(_FACTS, *one.grid.rows), heads=1))
        elif isinstance(one, Grid) and one.heads:
            yield _as_table(one)
        else:
            yield from _tables(_inside(one))


def _as_table(grid: Grid) -> Table:
    """Return a grid as a table of its texts, without bars."""
    rows = [[words(cell).strip() for cell in row] for row in grid.rows]
    rows = [[*row, *[""] * (len(grid.kinds) - len(row))] for row in rows]
    heads = [" ".join(filter(None, column)) for column in zip(*rows[: grid.heads], strict=True)]
    kept = [i for i in range(len(heads)) if any(row[i] for row in rows[grid.heads :])]
    keys = {i: _key(heads, i) for i in kept}
    columns = (Column(key, heads[i], right=grid.kinds[i] == "right") for i, key in keys.items())
    return Table(
        tuple(columns), [{key: row[i] for i, key in keys.items()} for row in rows[grid.heads :]]
    )


def _key(heads: Sequence[str], place: int) -> str:
    """Return the key of a column: its title, numbered if others have the same; of untitled columns their use."""
    title = heads[place] or ("remark" if place else "name")
    return title if heads.count(heads[place]) == 1 or not place else f"{title} {place}"


def _parts(blocks: Iterable[Block], form: str) -> Iterator[str]:
    """Yield blocks and the blocks inside them as pieces of text."""
    markdown = form == "markdown"
    for one in blocks:
        if isinstance(one, Document) and one.title:
            title = f"{one.title}, {one.terms}" if one.terms else one.title
            yield f"# {title}" if markdown else title
        elif isinstance(one, Section) and one.title:
            yield f"**{one.heading}**" if markdown else f"\n{one.heading}"
        if inner := _inside(one):
            yield from _parts(inner, form)
        elif text := _text(one.grid if isinstance(one, Facts) else one, form):
            yield text


def _text(block: Block, form: str) -> str:
    """Return a block without blocks inside as text; empty if it has none."""
    markdown = form == "markdown"
    if isinstance(block, Table):
        return block.written(form)
    if isinstance(block, Grid):
        if markdown and block.heads:
            return _as_table(block).markdown()
        listed = any(row and row[0] == "-" for row in block.rows)
        bullet = "- " if markdown and not listed else ""
        rows = ("  ".join(map(words, row)).rstrip() for row in block.rows)
        return "\n".join(f"{bullet}{row}" for row in rows)
    if isinstance(block, Items):
        return "\n".join(f"- {text}" for text in block.texts)
    if isinstance(block, Names):
        return ", ".join(block.names)
    return block.words if isinstance(block, Picture) else words(block)
