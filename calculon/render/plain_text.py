"""Documents as text: of any width for pipes and files, as Markdown, and their tables as CSV."""

from collections.abc import Iterable, Iterator
from typing import Any

from calculon.declarations.files import json_text
from calculon.render.document import (
    Beside,
    Block,
    ByWidth,
    Document,
    Grid,
    Items,
    Names,
    Section,
    words,
)
from calculon.render.text_tables import Table

DOCUMENT_FORMATS = ("text", "markdown", "html", "csv", "json")
"""Formats of documents: text in which every row of a table takes one line, CSV of the tables, and JSON."""


def written(document: Document, form: str, data: Any = None) -> str:
    """Return a document in one of the :data:`DOCUMENT_FORMATS`.

    `data` are the plain data of the answer, for JSON; without them JSON has the tables.
    """
    if form == "json":
        return json_text([one.records() for one in _tables([document])] if data is None else data)
    if form == "csv":
        return "\n\n".join(one.csv() for one in _tables([document]))
    if form == "html":
        from calculon.render.html_file import html_file

        return html_file(document.title, [("answer", "Answer", (document,))]).rstrip("\n")
    parts = _parts([document], form)
    return ("\n\n" if form == "markdown" else "\n").join(parts)


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
    """Yield the tables of blocks and of all blocks inside them."""
    for one in blocks:
        if isinstance(one, Table):
            yield one
        else:
            yield from _tables(_inside(one))


def _parts(blocks: Iterable[Block], form: str) -> Iterator[str]:
    markdown = form == "markdown"
    bullet = "- " if markdown else ""
    for one in blocks:
        if isinstance(one, Document):
            if one.title:
                title = f"{one.title}, {one.terms}" if one.terms else one.title
                yield f"# {title}" if markdown else title
            yield from _parts(_inside(one), form)
        elif isinstance(one, Section):
            if one.title:
                yield f"**{one.heading}**" if markdown else f"\n{one.heading}"
            yield from _parts(one.blocks, form)
        elif isinstance(one, Table):
            yield one.written(form)
        elif isinstance(one, Grid):
            yield "\n".join(f"{bullet}{'  '.join(map(words, row))}" for row in one.rows)
        elif isinstance(one, Items):
            yield "\n".join(f"- {text}" for text in one.texts)
        elif isinstance(one, Names):
            yield ", ".join(one.names)
        elif inner := _inside(one):
            yield from _parts(inner, form)
        elif text := words(one):
            yield text
