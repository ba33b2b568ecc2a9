"""Documents as text of any width, for pipes and files, and as Markdown: texts, grids of words, and tables."""

from collections.abc import Iterable, Iterator

from calculon.render.document import Block, Document, Grid, Section, words
from calculon.render.text_tables import Table


def written(document: Document, form: str) -> str:
    """Return a document as ``text``, in which every row of a table takes one line, or as ``markdown``."""
    parts = _parts((*document.lead, *document.parts), form)
    return ("\n\n" if form == "markdown" else "\n").join(parts)


def _parts(blocks: Iterable[Block], form: str) -> Iterator[str]:
    markdown = form == "markdown"
    for one in blocks:
        if isinstance(one, Section):
            yield f"**{one.heading}**" if markdown else f"\n{one.heading}"
            yield from _parts(one.blocks, form)
        elif isinstance(one, Table):
            yield one.written(form)
        elif isinstance(one, Grid):
            bullet = "- " if markdown else ""
            yield "\n".join(f"{bullet}{'  '.join(map(words, row))}" for row in one.rows)
        else:
            yield words(one)
