"""Documents as HTML: headings, paragraphs and tables with headers, readable aloud, with nothing to fetch or to run."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib.util import find_spec

from calculon.base.frozen import dataclass
from calculon.render.bars import COLORS, DRAWN, Bar, TwoSided
from calculon.render.document import (
    Beside,
    Block,
    ByWidth,
    Cell,
    Document,
    Grid,
    Items,
    Legend,
    Names,
    Picture,
    Section,
    Styled,
    Swatches,
    dim,
)
from calculon.render.fitted_grid import fitted
from calculon.render.frontier import Frontier
from calculon.render.text_tables import Table

_BAR = 9.0  # em
_DRAWING = 24  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How a kind of page shows documents.

    Attributes
    ----------
    width : int
        Characters for which documents lay themselves out.
    roles : mapping of str to str
        Attributes of elements by their role: ``quiet`` (less important), ``text`` and ``number`` (cells of tables),
        ``first text`` and ``first number`` (the cell that names a row).
    folds : bool
        Whether sections fold away below their headings.
    rows : int or None
        Rows of a long table that are shown; None shows all.
    sorts : bool
        Whether cells carry the values that a script sorts by.
    pictures : bool
        Whether charts are drawn, as elements of SVG.
    """

    width: int
    roles: Mapping[str, str]
    folds: bool = False
    rows: int | None = None
    sorts: bool = False
    pictures: bool = False


NOTEBOOK = Look(
    width=99,  # below what parts need next to each other
    roles={
        "quiet": ' style="opacity:0.7"',
        "text": ' style="text-align:left;vertical-align:top"',
        "number": ' style="text-align:right;vertical-align:top;white-space:nowrap"',
        "first text": ' style="text-align:left;vertical-align:top;font-weight:normal"',
        "first number": ' style="text-align:right;vertical-align:top;white-space:nowrap;font-weight:normal"',
    },
    folds=True,
    rows=10,
)
"""A cell of a notebook, light or dark, without a style sheet."""

REPORT = Look(
    width=120,
    roles={
        "quiet": ' class="quiet"',
        "text": "",
        "number": ' class="right"',
        "first text": "",
        "first number": ' class="right"',
    },
    sorts=True,
    pictures=True,
)
"""A file with a style sheet and a script that sorts tables."""


def page(document: Document, look: Look = NOTEBOOK) -> str:
    """Return a document as HTML."""
    return f'<div class="calculon">{fragment((document,), look)}</div>'


def more(count: int, look: Look = NOTEBOOK) -> str:
    """Say how many rows are not shown; nothing of none."""
    return f"<p{look.roles['quiet']}>and {count:,} more</p>" if count > 0 else ""


def fragment(blocks: Iterable[Block], look: Look = NOTEBOOK) -> str:
    """Return blocks of a document as HTML, one after the other."""
    return "".join(_Html(look).blocks(blocks))


class _Html:
    """Writes the blocks of a document in one look."""

    def __init__(self, look: Look):
        self.look, self.roles = look, look.roles

    def blocks(self, several: Iterable[Block]) -> Iterator[str]:
        """Yield blocks one after the other."""
        for one in several:
            if isinstance(one, Section):
                yield self._section(one)
            elif isinstance(one, Beside):
                yield from (part for column in one.columns for part in self.blocks(column))
            elif isinstance(one, ByWidth):
                yield from self.blocks(one.wide if one.width <= self.look.width else one.narrow)
            elif isinstance(one, Document):
                yield from self._document(one)
            elif isinstance(one, Grid):
                yield self._grid(one)
            elif isinstance(one, Table):
                yield self._table(one)
            elif isinstance(one, Frontier):
                lines = "\n".join(map(self.words, one.lines(self.look.width, blocks=True)))
                yield f'<pre aria-hidden="true">{lines}</pre>'
            elif isinstance(one, Items):
                yield f"<ul>{''.join(f'<li>{_text(text)}</li>' for text in one.texts)}</ul>"
            elif isinstance(one, Picture):
                yield from self._picture(one)
            elif words := self.words(one):
                yield f"<p>{words}</p>"

    def _document(self, one: Document) -> Iterator[str]:
        if one.title:
            terms = f" {self.words(dim(one.terms))}" if one.terms else ""
            yield f"<p><strong>{escape(one.title)}</strong>{terms}</p>"
        yield from self.blocks((*one.lead, *one.parts))

    def _section(self, section: Section) -> str:
        inner = "".join(self.blocks(section.blocks))
        if not section.title:
            return inner
        remark = f": {self.words(section.remark)}" if section.remark else ""
        if not (self.look.folds or section.folded):
            return f"<h3>{escape(section.title)}{remark}</h3>{inner}"
        title = f"<strong>{escape(section.title)}</strong>{remark}"
        if not inner:
            return f"<p>{title}</p>"
        opened = " open" if section.opened else ""
        return f"<details{opened}><summary>{title}</summary>{inner}</details>"

    def _picture(self, picture: Picture) -> Iterator[str]:
        """Yield a picture, if the look has pictures and the library that draws them is installed."""
        if not self.look.pictures or find_spec("matplotlib") is None:
            return
        from calculon.render.canvas import svg
        from calculon.render.matplotlib_charts import draw

        yield f'<div class="scroll">{svg(draw(picture.chart), picture.words)}</div>'

    def _grid(self, grid: Grid) -> str:
        """Return a grid as a table; of a long one the first rows."""
        if grid.optional:
            grid = fitted(grid, self.look.width - 2)  # as in a section
        blank = [""] * len(grid.kinds)
        cells = [[*map(self.words, row), *blank[len(row) :]] for row in grid.rows]
        heads = zip(*cells[: grid.heads], strict=True)
        titles = ["<br>".join(filter(None, column)) for column in heads] or blank
        rows = [row for row in cells[grid.heads :] if any(row)]
        most = self.look.rows
        few = rows[:most] if most and len(rows) > 2 * most else rows
        right = [kind == "right" for kind in grid.kinds]
        return self._rows(titles, few, right) + more(len(rows) - len(few), self.look)

    def _table(self, table: Table) -> str:
        """Return the first rows of a table, and how many more there are."""
        columns = [column for column in table.columns if column.for_people]
        some = table.rows[: self.look.rows]
        cells = [[_text(column.text(row[column.key])) for column in columns] for row in some]
        values = (
            [[row[column.key] for column in columns] for row in some] if self.look.sorts else None
        )
        heads = [escape(column.heading) for column in columns]
        left = (table.total or len(table.rows)) - len(some)
        return self._rows(heads, cells, [one.right for one in columns], values) + more(
            left, self.look
        )

    def _rows(
        self,
        heads: Sequence[str],
        rows: Sequence[Sequence[str]],
        right: Sequence[bool],
        values: Sequence[Sequence[object]] | None = None,
    ) -> str:
        """Return a table of cells in HTML; the first cell of each row names it."""
        kinds = [self.roles["number" if one else "text"] for one in right]
        titles = (
            f'<th scope="col"{kind}>{head}</th>' if head else "<td></td>"
            for head, kind in zip(heads, kinds, strict=True)
        )
        above = f"<thead><tr>{''.join(titles)}</tr></thead>" if any(heads) else ""
        lines = []
        for number, row in enumerate(rows):
            raw = (
                [f' data-value="{escape(str(one))}"' for one in values[number]]
                if values
                else [""] * len(row)
            )
            cells = [
                f"<td{kind}{value}>{cell}</td>"
                for cell, kind, value in zip(row, kinds, raw, strict=True)
            ]
            name = self.roles["first number" if right[0] else "first text"]
            cells[0] = f'<th scope="row"{name}{raw[0]}>{row[0]}</th>'
            lines.append(f"<tr>{''.join(cells)}</tr>")
        return f"<table>{above}<tbody>{''.join(lines)}</tbody></table>"

    def words(self, cell: Cell) -> str:
        """Return a text, or a bar, in HTML."""
        if isinstance(cell, Bar):
            return _bar(cell)
        if isinstance(cell, TwoSided):
            return _two_sided(cell)
        if isinstance(cell, Names):
            return escape(", ".join(cell.names))
        if isinstance(cell, Legend):
            return self._piece(dim(cell.text.format(*DRAWN)))
        if isinstance(cell, Swatches):
            return "  ".join(
                f'<span style="color:{COLORS[color]}">■\N{NO-BREAK SPACE}</span>{self._piece(dim(words))}'
                for color, words in cell.entries
            )
        return "".join(map(self._piece, cell if isinstance(cell, tuple) else (cell,)))

    def _piece(self, piece: str | Styled) -> str:
        """Return a piece of a text: bold, dim or plain."""
        if isinstance(piece, str):
            return _text(piece)
        found = _text(piece.text)
        if piece.style in COLORS:
            return f'<span style="color:{COLORS[piece.style]}">{found}</span>'
        if piece.style == "dim" and found:
            return f"<span{self.roles['quiet']}>{found}</span>"
        return f"<strong>{found}</strong>" if piece.style == "bold" else found


def _text(text: str) -> str:
    return escape(text).replace("\n", "<br>")


def _two_sided(bar: TwoSided) -> str:
    """Return a two-sided bar in characters; the numbers next to it say the same."""
    pieces = (
        f'<span style="color:{COLORS[color]}">{text}</span>'
        for text, color in bar.pieces(_DRAWING, blocks=True)
    )
    return f'<span aria-hidden="true" style="white-space:pre;font-family:monospace">{"".join(pieces)}</span>'


def _bar(bar: Bar) -> str:
    """Return a bar; the numbers beside it say the same."""
    pieces = []
    for share in bar.shares:
        width = max(0.0, min(1.0, share.fraction)) * _BAR
        color = COLORS[share.color]
        faint = "" if share.solid else ";opacity:0.4"
        pieces.append(
            f'<span style="display:inline-block;height:0.8em;width:{width:.2f}em;background:{color}{faint}"></span>'
        )
    return f'<span aria-hidden="true" style="white-space:nowrap">{"".join(pieces)}</span>'
