"""Documents: results as data that a terminal, a notebook, a report and the web page display.

A :class:`Document` has a title and parts: texts, grids, tables and bars, most of them in a :class:`Section` below a
heading. It contains words and shares, but no color codes, no terminal widths and no HTML; the modules
:mod:`calculon.render.terminal` and :mod:`calculon.render.html` display it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from calculon.base.frozen import dataclass
from calculon.render.bars import Bar, TwoSided
from calculon.render.text_tables import Table

if TYPE_CHECKING:
    from calculon.render.chart import Chart


@dataclass(frozen=True, slots=True)
class Styled:
    """Piece of text with a style.

    Attributes:
        text: The words.
        style: ``bold``, ``dim`` (less important) or a color of :data:`~calculon.render.bars.COLORS`; the web page also
            has ``button``, ``alert``, ``gain``, ``loss`` and ``current`` (marks the row of the displayed plan).
        indent: Number of leading blanks.
        link, hint, key: For the web page: the address of the link, a longer description of it, and the key by which
            charts find the text.
    """

    text: str
    style: str = ""
    indent: int = 0
    link: str = ""
    hint: str = ""
    key: str = ""

    def __str__(self) -> str:
        """Return the text alone, as in tables of plain values."""
        return self.text


def bold(text: str) -> Styled:
    """Return an emphasized text."""
    return Styled(text, "bold")


def dim(text: str, indent: int = 0) -> Styled:
    """Return a de-emphasized text: a label, a unit or a remark."""
    return Styled(text, "dim", indent)


@dataclass(frozen=True, slots=True)
class Legend:
    """Dim text that explains bars: the first ``{}`` becomes the mark of solid pieces, a second that of light ones."""

    text: str


@dataclass(frozen=True, slots=True)
class Swatches:
    """Color legend: color names, as :func:`~calculon.render.chart.color_code` reads them, and their labels."""

    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Names:
    """Comma-separated names; lines break only between names."""

    names: tuple[str, ...]


Line = str | Styled | tuple[str | Styled, ...]
"""Text; several pieces form one line."""

Cell = Line | Legend | Bar | TwoSided | Any
"""Cell of a grid: a text or a bar."""


def words(text: Any) -> str:
    """Return a text without its styles; an empty text for bars and other blocks."""
    if isinstance(text, tuple):
        return "".join(map(words, text))
    return text.text if isinstance(text, Styled) else text if isinstance(text, str) else ""


def indent(cell: Cell) -> int:
    """Return the number of leading blanks of a row name, which marks the row as part of a row above."""
    stated = cell.indent if isinstance(cell, Styled) else 0
    text = words(cell)
    return stated + len(text) - len(text.lstrip(" "))


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of cells in columns, without rules.

    Attributes:
        kinds: One per column: ``left`` and ``right`` do not wrap, ``text`` and ``number`` (right-aligned) wrap,
            ``path`` wraps at dots, and ``wide`` takes the remaining space (bars).
        rows: The cells; a row may end early.
        heads: Number of leading rows that name the columns. Below them, a row of one dim text is a remark on the row
            before.
        gap: Blanks between columns.
        least: Minimum widths of the first columns.
        widths: Exact widths of all columns, in which longer texts wrap.
        optional: Columns that a narrow page hides: as few as possible, earlier entries first.
    """

    kinds: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    heads: int = 0
    gap: int = 2
    least: tuple[int, ...] = ()
    widths: tuple[int, ...] = ()
    optional: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Items:
    """Sentences of a bulleted list."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """Chart with a description for readers who cannot see it; a terminal omits it."""

    chart: "Chart"
    words: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Labels, emphasized values and remarks: tiles on the web page, a grid elsewhere."""

    rows: tuple[tuple[str, str, str], ...]

    @property
    def grid(self) -> Grid:
        """Grid with one row per fact."""
        cells = tuple((label, bold(value), dim(remark)) for label, value, remark in self.rows)
        return Grid(("left", "right", "text"), cells)


@dataclass(frozen=True, slots=True)
class Section:
    """Indented blocks below a heading; only indented without a title.

    Attributes:
        title, remark: Heading, and the one thing to know.
        blocks: Contents.
        opened: Whether a page with collapsible sections shows this one expanded.
        folded: Whether HTML pages always make it collapsible.
        flush: Whether the blocks start at the margin: for a table that needs every character of a narrow page.
    """

    title: str
    blocks: "tuple[Block, ...]"
    remark: Line = ""
    opened: bool = False
    flush: bool = False
    folded: bool = False

    @property
    def heading(self) -> str:
        """Title and remark as plain text."""
        return f"{self.title}: {words(self.remark)}" if self.remark else self.title


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Columns of blocks: side by side if the page is wide enough, otherwise one below the other.

    Attributes:
        columns: Blocks of each column, separated by blank lines.
        width: Characters that the columns need side by side.
        equal: Whether all columns have equal width; otherwise they are as wide as their contents.
    """

    columns: "tuple[tuple[Block, ...], ...]"
    width: int
    equal: bool = True


@dataclass(frozen=True, slots=True)
class ByWidth:
    """Blocks for a page of at least `width` characters, and blocks for a narrower page."""

    width: int
    wide: "tuple[Block, ...]"
    narrow: "tuple[Block, ...]"


@dataclass(frozen=True, slots=True)
class Document:
    """Result as a document.

    Attributes:
        title: Subject of the result.
        terms: Edition, preset and other conditions of all numbers.
        lead: Blocks directly below the title, indented: a summary of the question.
        parts: Contents in reading order, separated by blank lines.
    """

    title: str
    terms: str = ""
    lead: "tuple[Block, ...]" = ()
    parts: "tuple[Block, ...]" = ()


def shortened(document: Document, parts: int) -> Document:
    """Return the first parts of a document, with a hint to ``-v`` if there are more."""
    if len(document.parts) <= parts:
        return document
    shown = (*document.parts[:parts], dim("-v: everything."))
    return Document(document.title, document.terms, document.lead, shown)


Block = (
    Line
    | Swatches
    | Names
    | Items
    | Picture
    | Grid
    | Facts
    | Table
    | Section
    | SideBySide
    | ByWidth
    | Document
    | Any
)
"""Part of a document, or a :class:`~calculon.render.frontier.Frontier`; a text is a paragraph.

The web page also accepts the HTML of its forms: objects with ``__html__``.
"""


def inner_blocks(block: Block) -> tuple[Block, ...]:
    """Return the blocks inside a block, in the version for wide pages."""
    if isinstance(block, Document):
        return (*block.lead, *block.parts)
    if isinstance(block, Section):
        return block.blocks
    if isinstance(block, SideBySide):
        return tuple(one for column in block.columns for one in column)
    return block.wide if isinstance(block, ByWidth) else ()


def labeled(texts: Mapping[str, Line]) -> Grid:
    """Return a grid with a row for each label; labels with an empty text are omitted."""
    return Grid(
        ("text", "text"), tuple((dim(label), text) for label, text in texts.items() if text)
    )


def spaced(pieces: Iterable[Styled]) -> Line:
    """Return pieces of text separated by blanks."""
    return tuple(one for piece in pieces for one in (piece, " "))


def numbers(titles: Sequence[str], rows: Iterable[tuple[Cell, ...]]) -> Grid:
    """Return a grid of numbers with column titles, whose first column has the row names."""
    return headed(("left", *["right"] * (len(titles) - 1)), titles, rows)


def headed(
    kinds: Iterable[str],
    titles: Iterable[str | Legend],
    rows: Iterable[tuple[Cell, ...]],
    least: tuple[int, ...] = (),
) -> Grid:
    """Return a grid with dim column titles."""
    heads = tuple(dim(title) if isinstance(title, str) else title for title in titles)
    return Grid(tuple(kinds), (heads, *rows), heads=1, least=least)
