"""What a page lays out for a terminal, as HTML: headings, paragraphs and tables with headers, readable aloud.

Colours are those of the notebook, light or dark; nothing is asked of a network, and nothing is run.
"""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import pairwise
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from calculon.render.bars import COLORS, DRAWN, Bar, TwoSided
from calculon.render.console import recording
from calculon.render.document import (
    Beside,
    Block,
    ByWidth,
    Cell,
    Document,
    Grid,
    Legend,
    Names,
    Rich,
    Section,
    Styled,
    Swatches,
    dim,
)
from calculon.render.fitted_grid import fitted
from calculon.render.frontier import Frontier
from calculon.render.text_tables import Column, Table

ROWS = 10
"""Rows of a table that are shown."""

WIDTH = 99
"""Characters for which pages lay themselves out: below what they need for parts side by side."""

_QUIET = "opacity:0.7"
_CELL = "text-align:left;vertical-align:top"
_NUMBER = "text-align:right;vertical-align:top;white-space:nowrap"
_GREY = "#888888"  # on light and on dark alike
_BAR = 9.0  # em
_DRAWING = 24  # characters


def framed(*parts: str) -> str:
    """Return parts of a page as the HTML of one result."""
    return f'<div class="calculon">{"".join(parts)}</div>'


def heading(text: str, remark: str = "") -> str:
    """Return the first line of a result: what it is, and what to know beside."""
    told = f' <span style="{_QUIET}">{escape(remark)}</span>' if remark else ""
    return f"<p><strong>{escape(text)}</strong>{told}</p>"


def paragraph(text: str, *, quiet: bool = False) -> str:
    """Return a sentence or a few."""
    style = f' style="{_QUIET}"' if quiet else ""
    return f"<p{style}>{escape(text)}</p>"


def folded(title: str, body: str, *, opened: bool = False) -> str:
    """Return a part of a page below its title, which folds it away; only the first part of a title is bold."""
    name, colon, rest = title.partition(":")
    return _folded(f"<strong>{escape(name)}</strong>{colon}{escape(rest)}", body, opened=opened)


def _folded(summary: str, body: str, *, opened: bool) -> str:
    return f"<details{' open' if opened else ''}><summary>{summary}</summary>{body}</details>"


def table(one: Table, most: int | None = ROWS, total: int | None = None, caption: str = "") -> str:
    """Return the first rows of a table, and how many more there are.

    Parameters
    ----------
    one : Table
        Its first column names the rows.
    most : int or None
        Rows that are shown; None for all.
    total : int, optional
        Rows of the whole, where the table has only the first of them.
    caption : str
        What it is a table of.
    """
    shown = [column for column in one.columns if column.for_people]
    rows = [[_cell_text(column, row[column.key]) for column in shown] for row in one.rows[:most]]
    heads = [escape(column.heading) for column in shown]
    count = len(one.rows) if total is None else total
    return _table(heads, rows, [column.right for column in shown], caption) + more(
        count - len(rows)
    )


def more(count: int) -> str:
    """Say how many rows are not shown; nothing of none."""
    return f'<p style="{_QUIET}">and {count:,} more</p>' if count > 0 else ""


def _cell_text(column: Column, value: Any) -> str:
    return escape(column.text(value)).replace("\n", "<br>")


def _table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[bool], caption: str = ""
) -> str:
    """Return a table of cells in HTML; the first cell of each row names it."""
    styles = [_NUMBER if one else _CELL for one in right]
    parts = [f"<caption>{escape(caption)}</caption>"] if caption else []
    if any(heads):
        cells = (
            f'<th scope="col" style="{style}">{head}</th>' if head else "<td></td>"
            for head, style in zip(heads, styles, strict=True)
        )
        parts.append(f"<thead><tr>{''.join(cells)}</tr></thead>")
    lines = []
    for row in rows:
        name, *others = row
        cells = (
            f'<td style="{style}">{cell}</td>'
            for cell, style in zip(others, styles[1:], strict=True)
        )
        named = f'<th scope="row" style="{styles[0]};font-weight:normal">{name}</th>'
        lines.append(f"<tr>{named}{''.join(cells)}</tr>")
    return f"<table>{''.join(parts)}<tbody>{''.join(lines)}</tbody></table>"


def page(
    one: Document | RenderableType, opened: Sequence[str] = (), rows: int | None = ROWS
) -> str:
    """Return a document as HTML; sections are folded away but those that are `opened`.

    Of each table the first rows are shown; all if `rows` is None.
    """
    if isinstance(one, Document):
        return framed(*_Blocks(rows).document(one))
    return rich_page(one, opened)


class _Blocks:
    """Draws the blocks of a document, as a terminal of :data:`WIDTH` characters lays them out."""

    def __init__(self, rows: int | None):
        self.rows = rows

    def document(self, one: Document) -> Iterator[str]:
        """Yield the title and all parts of a document."""
        if one.title:
            terms = f'<span style="{_QUIET}">   {escape(one.terms)}</span>' if one.terms else ""
            yield f"<p><strong>{escape(one.title)}</strong>{terms}</p>"
        yield from self.blocks((*one.lead, *one.parts))

    def blocks(self, several: Iterable[Block]) -> Iterator[str]:
        """Yield blocks one after the other."""
        for one in several:
            if isinstance(one, Section):
                yield self._section(one)
            elif isinstance(one, Beside):
                yield from (html for column in one.columns for html in self.blocks(column))
            elif isinstance(one, ByWidth):
                yield from self.blocks(one.wide if one.width <= WIDTH else one.narrow)
            elif isinstance(one, Document):
                yield from self.document(one)
            elif isinstance(one, Grid):
                yield self._grid(one)
            elif isinstance(one, Table):
                yield table(one, self.rows)
            elif isinstance(one, Frontier):
                lines = "\n".join(map(_words, one.lines(WIDTH, blocks=True)))
                yield f'<pre aria-hidden="true">{lines}</pre>'
            elif isinstance(one, Rich):
                yield from (rich_page(part, ()) for part in one.parts)
            else:
                yield f"<p>{_words(one)}</p>"

    def _section(self, section: Section) -> str:
        inner = "".join(self.blocks(section.blocks))
        if not section.title:
            return inner
        summary = f"<strong>{escape(section.title)}</strong>"
        if section.remark:
            summary += f": {_words(section.remark)}"
        return _folded(summary, inner, opened=section.opened) if inner else f"<p>{summary}</p>"

    def _grid(self, grid: Grid) -> str:
        """Return a grid as a table; of a long one the first rows."""
        if grid.optional:
            grid = fitted(grid, WIDTH - 2)  # as in a section
        cells = [[_words(cell) for cell in row] for row in grid.rows]
        cells = [[*row, *[""] * (len(grid.kinds) - len(row))] for row in cells]
        heads, rows = cells[: grid.heads], [row for row in cells[grid.heads :] if any(row)]
        titles = ["<br>".join(filter(None, column)) for column in zip(*heads, strict=True)]
        shown = rows[:ROWS] if len(rows) > 2 * ROWS else rows
        right = [kind == "right" for kind in grid.kinds]
        return _table(titles, shown, right) + more(len(rows) - len(shown))


def _words(cell: Cell) -> str:
    """Return a text, or a bar, in HTML."""
    if isinstance(cell, Bar):
        return _bar(cell)
    if isinstance(cell, TwoSided):
        return _two_sided(cell)
    if isinstance(cell, Legend):
        return _piece(dim(cell.text.format(*DRAWN)))
    if isinstance(cell, Swatches):
        entries = (
            f'<span style="color:{COLORS[color]}">■\N{NO-BREAK SPACE}</span>{_piece(dim(words))}'
            for color, words in cell.entries
        )
        return "  ".join(entries)
    if isinstance(cell, Names):
        return escape(", ".join(cell.names))
    pieces = cell if isinstance(cell, tuple) else (cell,)
    return "".join(map(_piece, pieces))


def _piece(piece: str | Styled) -> str:
    """Return a piece of a text: bold, dim, plain or in a colour."""
    if isinstance(piece, str):
        piece = Styled(piece)
    found = escape(piece.text).replace("\n", "<br>")
    if piece.style in COLORS:
        return f'<span style="color:{_color(piece.style)}">{found}</span>'
    if piece.style == "dim" and found:
        return f'<span style="{_QUIET}">{found}</span>'
    return f"<strong>{found}</strong>" if piece.style == "bold" else found


def rich_page(renderable: RenderableType, opened: Sequence[str] = ()) -> str:
    """Return a page for a terminal as HTML.

    What follows a heading is folded away below it, but for the headings that begin with one of `opened`.
    """
    console = recording(WIDTH)  # of a width that is not that of any terminal
    options = console.options
    drawn = _Drawn(console, options)
    parts: list[str] = []
    sections: list[tuple[Text, list[str]]] = []
    for one in drawn.lines(renderable):
        if isinstance(one, Text) and _is_heading(one) and parts:
            sections.append((one, []))
        elif sections:
            sections[-1][1].append(drawn.html(one))
        else:
            parts.append(drawn.html(one))
    for title, body in sections:
        inner = "".join(body)
        if not inner:
            parts.append(drawn.html(title))
            continue
        opens = title.plain.startswith(tuple(opened))
        parts.append(_folded(_inline(title), inner, opened=opens))
    return framed(*parts)


class _Drawn:
    """The parts of pages in HTML, as they lay themselves out for a console."""

    def __init__(self, console: Console, options: ConsoleOptions):
        self.console, self.options = console, options

    def lines(self, one: RenderableType) -> Iterator[RenderableType]:
        """Yield the parts of a page, of groups one by one, without blank lines."""
        if isinstance(one, Group):
            for inner in one.renderables:
                yield from self.lines(inner)
        elif isinstance(one, (str, Text, Padding, RichTable, Table, Bar)):
            if not isinstance(one, (str, Text)) or str(one).strip():
                yield one
        else:
            parts: Any = one
            for inner in parts.__rich_console__(self.console, self.options):
                yield from self.lines(inner)

    def html(self, one: RenderableType) -> str:
        """Return a part of a page."""
        if isinstance(one, (str, Text)):
            return f"<p>{_inline(one)}</p>"
        if isinstance(one, Padding):
            return "".join(map(self.html, self.lines(one.renderable)))
        if isinstance(one, Table):
            return table(one)
        if isinstance(one, RichTable):
            return self._grid(one)
        if isinstance(one, Bar):
            return _bar(one)
        return "".join(map(self.html, self.lines(one)))

    def _grid(self, grid: RichTable) -> str:
        """Return a grid: as a table, or one part after the other where it lays out parts side by side."""
        columns = [
            [_inside(cell) for cell in list(column.cells)[int(grid.show_header) :]]
            for column in grid.columns
        ]
        rows = list(zip(*columns, strict=True))
        if any(isinstance(cell, (RichTable, Group, Table)) for row in rows for cell in row):
            return "".join(self.html(cell) for row in rows for cell in row)
        right = [column.justify == "right" for column in grid.columns]
        heads = [_inline(column.header) for column in grid.columns] if grid.show_header else []
        if not heads and len(rows) > 1 and _names_columns(rows[0]):
            heads, rows = [_inline(cell) for cell in rows[0]], rows[1:]
        cells = [[self._cell(cell) for cell in row] for row in rows if any(map(_filled, row))]
        shown = cells[:ROWS] if len(cells) > 2 * ROWS else cells
        return _table(heads or [""] * len(columns), shown, right) + more(len(cells) - len(shown))

    def _cell(self, cell: RenderableType) -> str:
        """Return a cell: a text, a bar, or what draws itself with characters, which numbers beside it say too."""
        if isinstance(cell, Bar):
            return _bar(cell)
        if isinstance(cell, (str, Text)):
            return _inline(cell)
        room = self.options.update(width=_DRAWING, height=1)
        pieces = (_styled(one.text, [one.style or ""]) for one in self.console.render(cell, room))
        drawn = "".join(pieces).replace("\n", "")
        return (
            f'<span aria-hidden="true" style="white-space:pre;font-family:monospace">{drawn}</span>'
        )


def _filled(cell: RenderableType) -> bool:
    return not isinstance(cell, (str, Text)) or bool(str(cell).strip())


def _inside(cell: RenderableType) -> RenderableType:
    """Return a cell without the blanks around it."""
    return _inside(cell.renderable) if isinstance(cell, Padding) else cell


def _names_columns(row: Sequence[RenderableType]) -> bool:
    """Tell whether a row is a header: several cells, the first of which may be blank, and all of them dim."""
    filled = [one for one in row if _filled(one)]
    dim = all(isinstance(one, Text) and one.style == "dim" for one in filled)
    return dim and (len(filled) > 1 or (bool(filled) and not _filled(row[0])))


def _is_heading(text: Text) -> bool:
    """Tell whether a line is the heading of a section: it begins in bold."""
    return text.style == "bold" or any(
        span.start == 0 and "bold" in str(span.style) for span in text.spans
    )


def _inline(one: RenderableType) -> str:
    """Return a line of text: bold, quiet and coloured parts as they are."""
    if not isinstance(one, Text):
        return escape(str(one))
    cuts = sorted({0, len(one.plain), *(end for s in one.spans for end in (s.start, s.end))})
    parts = []
    for start, end in pairwise(cuts):
        styles = [s.style for s in one.spans if s.start <= start and s.end >= end]
        parts.append(_styled(one.plain[start:end], [one.style, *styles]))
    return "".join(parts).replace("\n", "<br>")


def _styled(text: str, styles: Sequence[str | Style]) -> str:
    """Return a piece of a line in its styles."""
    style = Style.combine(one if isinstance(one, Style) else Style.parse(one) for one in styles)
    found = escape(text)
    if style.color is not None and style.color.triplet is not None:
        found = f'<span style="color:{style.color.triplet.hex}">{found}</span>'
    if style.dim:
        found = f'<span style="{_QUIET}">{found}</span>'
    return f"<strong>{found}</strong>" if style.bold else found


def _bar(bar: Bar) -> str:
    """Return a bar; the numbers beside it say the same."""
    pieces = []
    for share in bar.shares:
        width = max(0.0, min(1.0, share.fraction)) * _BAR
        faint = "" if share.solid else ";opacity:0.4"
        look = f"height:0.8em;width:{width:.2f}em;background:{_color(share.color)}{faint}"
        pieces.append(f'<span style="display:inline-block;{look}"></span>')
    return f'<span aria-hidden="true" style="white-space:nowrap">{"".join(pieces)}</span>'


def _color(name: str) -> str:
    return _GREY if name == "grey" else COLORS[name]


def _two_sided(bar: TwoSided) -> str:
    """Return a two-sided bar in characters; the numbers next to it say the same."""
    left, right = bar.pieces(_DRAWING // 2, DRAWN)
    blank = " " * (_DRAWING // 2 - len(left[0]))
    pieces = (f'<span style="color:{COLORS[color]}">{text}</span>' for text, color in (left, right))
    return f'<span aria-hidden="true" style="white-space:pre;font-family:monospace">{blank}{"".join(pieces)}</span>'
