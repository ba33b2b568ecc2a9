"""Documents as accessible, self-contained HTML: headings, paragraphs and tables with header cells."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from importlib.util import find_spec
from itertools import zip_longest
from typing import Any

from calculon.base.frozen import dataclass
from calculon.render.bars import BLOCKS, COLORS, Bar, TwoSided
from calculon.render.chart import color_code
from calculon.render.document import (
    Block,
    ByWidth,
    Cell,
    Document,
    Facts,
    Grid,
    Items,
    Legend,
    Names,
    Picture,
    Section,
    SideBySide,
    Styled,
    Swatches,
    dim,
    indent,
)
from calculon.render.fitted_grid import fit_grid
from calculon.render.frontier import Frontier
from calculon.render.text_tables import Column, Table

ROWS = 10
"""Rows of a long table that a notebook shows."""

_BAR = 9.0  # em
_DRAWING = 24  # characters


def _text(text: str) -> str:
    return escape(text).replace("\n", "<br>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Appearance of documents on one kind of page.

    Attributes:
        width: Characters for which documents lay themselves out.
        roles: Attributes of elements by their role: ``quiet`` (less important), ``text`` and ``number`` (cells of
            tables), ``first text`` and ``first number`` (the cell that names a row); ``words`` and ``first words`` are
            cells whose text folds. A page with links also has ``link``, the styles that only such pages have, and
            ``current row``, ``facts``, ``columns`` and ``tall`` (groups of elements).
        folds: Whether sections fold away below their headings.
        headings: Whether sections that are shown unfolded stay so, below a heading.
        tall: Rows from which a table scrolls in a region of its own.
        rows: Rows of a long table that are shown; None shows all.
        sorts: Whether cells carry the values that a script sorts by.
        pictures: Whether charts are drawn, as elements of SVG.
        write: Returns a text as HTML.
    """

    width: int
    roles: Mapping[str, str]
    folds: bool = False
    headings: bool = False
    tall: int | None = None
    rows: int | None = None
    sorts: bool = False
    pictures: bool = False
    write: Callable[[str], str] = _text


NOTEBOOK = Look(
    width=99,  # less than side-by-side blocks need
    roles={
        "quiet": ' style="opacity:0.7"',
        "text": ' style="text-align:left;vertical-align:top"',
        "number": ' style="text-align:right;vertical-align:top;white-space:nowrap"',
        "first text": ' style="text-align:left;vertical-align:top;font-weight:normal"',
        "first number": ' style="text-align:right;vertical-align:top;white-space:nowrap;font-weight:normal"',
    },
    folds=True,
    rows=ROWS,
    pictures=True,
)
"""Notebook cell, in light or dark mode, without a style sheet."""

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
"""File with a style sheet and a script that sorts tables."""

EXPLORE = Look(
    width=99,
    roles={
        "quiet": ' class="quiet"',
        "text": ' class="short"',
        "number": ' class="number"',
        "words": ' class="words"',
        "first text": ' class="short"',
        "first number": ' class="number"',
        "first words": ' class="words"',
        "link": " data-state",
        "button": ' class="button"',
        "current": ' aria-current="true"',
        "current row": ' class="selected"',
        "alert": ' role="alert"',
        "gain": ' class="gain"',
        "loss": ' class="loss"',
        "tall": ' class="tall"',
        "facts": ' class="figures"',
        "columns": ' class="beside"',
    },
    folds=True,
    headings=True,
    tall=32,
)
"""Web page with its style sheet; links lead to other states of the page."""


def page(document: Document, look: Look = NOTEBOOK) -> str:
    """Return a document as HTML."""
    return f'<div class="calculon">{fragment((document,), look)}</div>'


def more(count: int, look: Look = NOTEBOOK) -> str:
    """Return a paragraph with the number of hidden rows; an empty text if there are none."""
    return f"<p{look.roles['quiet']}>and {count:,} more</p>" if count > 0 else ""


def fragment(blocks: Iterable[Block], look: Look = NOTEBOOK, title: str = "") -> str:
    """Return blocks as HTML, one after the other; `title` is the heading above them."""
    return _Html(look, title).blocks(blocks)


class _Html:
    """Writer of the blocks of a document in one look."""

    def __init__(self, look: Look, title: str = ""):
        self.look, self.roles, self.title = look, look.roles, title
        self.write = look.write
        self.writers: Mapping[type, Callable[[Any], str]] = {
            Section: self._section,
            SideBySide: self._side_by_side,
            ByWidth: self._by_width,
            Document: self._document,
            Facts: self._facts,
            Grid: self._grid,
            Table: self._table,
            Frontier: self._frontier,
            Items: self._items,
            Picture: self._picture,
        }

    def blocks(self, several: Iterable[Block]) -> str:
        """Return the HTML of blocks, one after the other."""
        return "".join(map(self._block, several))

    def _block(self, one: Block) -> str:
        if write := self.writers.get(type(one)):
            return write(one)
        if hasattr(one, "__html__"):
            return str(one.__html__())
        words = self.words(one)
        return f"<p>{words}</p>" if words else ""

    def _by_width(self, one: ByWidth) -> str:
        return self.blocks(one.wide if one.width <= self.look.width else one.narrow)

    def _document(self, one: Document) -> str:
        terms = f" {self.words(dim(one.terms))}" if one.terms else ""
        title = f"<p><strong>{self.write(one.title)}</strong>{terms}</p>" if one.title else ""
        return title + self.blocks((*one.lead, *one.parts))

    def _frontier(self, one: Frontier) -> str:
        lines = "\n".join(map(self.words, one.lines(self.look.width, blocks=True)))
        return f'<pre aria-hidden="true">{lines}</pre>'

    def _items(self, one: Items) -> str:
        return f"<ul>{''.join(f'<li>{self.write(text)}</li>' for text in one.texts)}</ul>"

    def _side_by_side(self, one: SideBySide) -> str:
        columns = [*map(self.blocks, one.columns)]
        if role := self.roles.get("columns"):
            return f"<div{role}>{''.join(f'<div>{column}</div>' for column in columns)}</div>"
        return "".join(columns)

    def _facts(self, facts: Facts) -> str:
        role = self.roles.get("facts")
        if not role:
            return self._grid(facts.grid)
        tiles = (
            f"<div><dt>{self.write(label)}</dt><dd><strong>{self.write(value)}</strong> "
            f"{self.words(dim(remark))}</dd></div>"
            for label, value, remark in facts.rows
        )
        return f"<dl{role}>{''.join(tiles)}</dl>"

    def _section(self, section: Section) -> str:
        above, self.title = self.title, section.title or self.title
        inner = self.blocks(section.blocks)
        self.title = above
        if not section.title:
            return inner
        remark = f": {self.words(section.remark)}" if section.remark else ""
        if not (self.look.folds or section.folded) or (self.look.headings and section.opened):
            return f"<h3>{self.write(section.title)}{remark}</h3>{inner}"
        title = f"<strong>{self.write(section.title)}</strong>{remark}"
        if not inner:
            return f"<p>{title}</p>"
        opened = " open" if section.opened else ""
        return f"<details{opened}><summary>{title}</summary>{inner}</details>"

    def _picture(self, picture: Picture) -> str:
        """Return a chart as SVG; an empty text if the look has no pictures or matplotlib is missing."""
        if not self.look.pictures or find_spec("matplotlib") is None:
            return ""
        from calculon.render.canvas import svg
        from calculon.render.matplotlib_charts import draw

        return f'<div class="scroll">{svg(draw(picture.chart), picture.words)}</div>'

    def _grid(self, grid: Grid) -> str:
        """Return a grid as a table, limited to the first rows if it is long."""
        if grid.optional:
            grid = fit_grid(grid, self.look.width - 2)  # sections indent by 2
        blank = [""] * len(grid.kinds)
        cells = [[self._name(row[0]), *map(self.words, row[1:])] for row in grid.rows if row]
        heads = zip_longest(*cells[: grid.heads], fillvalue="")
        titles = ["<br>".join(filter(None, column)) for column in heads] or blank
        titles += blank[len(titles) :]
        rows = [
            row if len(row) == 1 else [*row, *blank[len(row) :]]
            for row in cells[grid.heads :]
            if any(row)
        ]
        most = self.look.rows
        # A table is cut only if that hides at least half of it.
        few = rows[:most] if most and len(rows) > 2 * most else rows
        kinds = [{"right": "number", "text": "words"}.get(kind, "text") for kind in grid.kinds]
        return self._rows(titles, few, kinds) + more(len(rows) - len(few), self.look)

    def _name(self, cell: Cell) -> str:
        """Return the first cell of a row, with its indentation."""
        return "&nbsp;" * indent(cell) + self.words(cell).lstrip(" ")

    def _table(self, table: Table) -> str:
        """Return the first rows of a table, and the number of hidden rows."""
        columns = [column for column in table.columns if column.for_people]
        some = table.rows[: self.look.rows]
        cells = [[self._value(column, row[column.key]) for column in columns] for row in some]
        values = (
            [[row[column.key] for column in columns] for row in some] if self.look.sorts else None
        )
        heads = [self.write(column.heading) for column in columns]
        left = (table.total or len(table.rows)) - len(some)
        kinds = [
            "number" if one.right else "words" if one.fold or one.cut else "text" for one in columns
        ]
        return self._rows(heads, cells, kinds, values) + more(left, self.look)

    def _value(self, column: Column, value: object) -> str:
        return self._piece(value if isinstance(value, Styled) else column.text(value))

    def _rows(
        self,
        heads: Sequence[str],
        rows: Sequence[Sequence[str]],
        kinds: Sequence[str],
        values: Sequence[Sequence[object]] | None = None,
    ) -> str:
        """Return an HTML table; the first cell of a row names it and spans all columns if it is the only cell."""
        roles = [self.roles.get(kind, self.roles["text"]) for kind in kinds]
        first = f"first {kinds[0]}"
        name = self.roles.get(first, self.roles["first text"])
        titles = (
            f'<th scope="col"{role}>{head}</th>' if head else "<td></td>"
            for head, role in zip(heads, roles, strict=True)
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
                f"<td{role}{value}>{cell}</td>"
                for cell, role, value in zip(row, roles, raw, strict=False)
            ]
            span = f' colspan="{len(kinds)}"' if len(row) < len(kinds) else ""
            cells[0] = f'<th scope="row"{span}{name}{raw[0]}>{row[0]}</th>'
            current = any(' aria-current="' in cell for cell in row)
            lines.append(f"<tr{self.roles['current row'] if current else ''}>{''.join(cells)}</tr>")
        table = f"<table>{above}<tbody>{''.join(lines)}</tbody></table>"
        if not self.look.tall or len(rows) < self.look.tall:
            return table
        name = f' aria-label="{escape(self.title)}"'
        return f'<div{self.roles["tall"]} role="region"{name} tabindex="0">{table}</div>'

    def words(self, cell: Cell) -> str:
        """Return a text or a bar as HTML."""
        if isinstance(cell, Bar):
            return _bar(cell)
        if isinstance(cell, TwoSided):
            return _two_sided(cell)
        if isinstance(cell, Names):
            return self.write(", ".join(cell.names))
        if isinstance(cell, Legend):
            return self._piece(dim(cell.text.format(*BLOCKS)))
        if isinstance(cell, Swatches):
            return "  ".join(
                f'<span style="color:{color_code(color)}">■\N{NO-BREAK SPACE}</span>{self._piece(dim(words))}'
                for color, words in cell.entries
            )
        return "".join(map(self._piece, cell if isinstance(cell, tuple) else (cell,)))

    def _piece(self, piece: str | Styled) -> str:
        """Return a piece of text: bold, dim, colored or plain."""
        if isinstance(piece, str):
            return self.write(piece)
        found = self.write(piece.text)
        if piece.style in COLORS:
            found = f'<span style="color:{color_code(piece.style)}">{found}</span>'
        elif piece.style == "dim" and found:
            found = f"<span{self.roles['quiet']}>{found}</span>"
        elif piece.style == "bold":
            found = f"<strong>{found}</strong>"
        return self._link(piece, found) if found and "link" in self.roles else found

    def _link(self, piece: Styled, found: str) -> str:
        """Return a text with its link, key and hint, if it has any."""
        role = self.roles.get(piece.style, "")
        if piece.key:
            role += f' data-key="{escape(piece.key)}"'
        if piece.hint:
            role += f' title="{escape(piece.hint)}"'
        if piece.link:
            label = f' aria-label="{escape(f"{piece.text}: {piece.hint}")}"' if piece.hint else ""
            # Links to another state of the page are followed by its script without a reload.
            state = self.roles["link"] if piece.link.startswith("/?") else ""
            return f'<a{state}{role}{label} href="{escape(piece.link)}">{found}</a>'
        return f"<span{role}>{found}</span>" if role else found


def _two_sided(bar: TwoSided) -> str:
    """Return a two-sided bar in characters, hidden from screen readers: adjacent numbers repeat it."""
    pieces = (
        f'<span style="color:{color_code(color)}">{text}</span>'
        for text, color in bar.pieces(_DRAWING, blocks=True)
    )
    return f'<span aria-hidden="true" style="white-space:pre;font-family:monospace">{"".join(pieces)}</span>'


def _bar(bar: Bar) -> str:
    """Return a bar, hidden from screen readers: adjacent numbers repeat it."""
    pieces = []
    for share in bar.shares:
        width = max(0.0, min(1.0, share.fraction)) * _BAR
        color = color_code(share.color)
        faint = "" if share.solid else ";opacity:0.4"
        pieces.append(
            f'<span style="display:inline-block;height:0.8em;width:{width:.2f}em;background:{color}{faint}"></span>'
        )
    return f'<span aria-hidden="true" style="white-space:nowrap">{"".join(pieces)}</span>'
