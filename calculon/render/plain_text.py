"""Documents as text of any width, for pipes and files, and as Markdown: texts, grids of words, and tables."""

from collections.abc import Iterable, Iterator

from calculon.render.document import Block, Document, Grid, Section, words
from calculon.render.text_tables import Table


def written(document: Document, form: str) -> str:
    """Return a document as ``text``, in which every row of a table takes one line, or as ``markdown``."""
    return "\n".join([*_lines(document.lead, form), *_lines(document.parts, form)])


def _lines(blocks: Iterable[Block], form: str) -> Iterator[str]:
    markdown = form == "markdown"
    for one in blocks:
        if isinstance(one, Section):
            yield from ("", f"**{one.heading}**", "") if markdown else ("", one.heading)
            yield from _lines(one.blocks, form)
        elif isinstance(one, Table):
            yield one.written(form)
        elif isinstance(one, Grid):
            bullet = "- " if markdown else ""
            yield from (f"{bullet}{'  '.join(map(words, row))}" for row in one.rows)
        else:
            yield words(one) + "\n" * markdown
