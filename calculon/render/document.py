"""Documents: what an answer says, as data that a terminal, a notebook, a report and a page in a browser show.

A :class:`Document` has a title and parts: texts, grids, tables and bars, most of them in a :class:`Section` below a
heading. It holds words and shares, but no colour codes, no widths of a terminal and no HTML; the modules
:mod:`calculon.render.terminal` and :mod:`calculon.render.html` show it.
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
    """A piece of text.

    Attributes:
        text: The words.
        style: ``bold``, ``dim`` (less important) or a colour of :data:`~calculon.render.bars.COLORS`; a page in a
            browser also has ``button``, ``alert``, ``gain``, ``loss`` and ``current``: what it shows, whose row it
            marks.
        indent: Characters before it.
        link, hint, key: For a page in a browser: the address that it leads to, what that does in more words, and the
            name by which charts find it.
    """

    text: str
    style: str = ""
    indent: int = 0
    link: str = ""
    hint: str = ""
    key: str = ""

    def __str__(self) -> str:
        """Return the words alone, as tables of plain values write them."""
        return self.text


def bold(text: str) -> Styled:
    """Return a text that stands out."""
    return Styled(text, "bold")


def dim(text: str, indent: int = 0) -> Styled:
    """Return a text that stays in the background: a label, a unit, a remark."""
    return Styled(text, "dim", indent)


@dataclass(frozen=True, slots=True)
class Legend:
    """A dim text that explains bars: ``{}`` stands for the mark of solid pieces, a second one for light pieces."""

    text: str


@dataclass(frozen=True, slots=True)
class Swatches:
    """The legend of colours: the name of each, as :func:`~calculon.render.chart.color_code` reads it, and its words."""

    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Names:
    """Names in lines, separated by commas; lines break between names only."""

    names: tuple[str, ...]


Line = str | Styled | tuple[str | Styled, ...]
"""A text; several pieces follow each other in one line."""

Cell = Line | Legend | Bar | TwoSided | Any
"""A cell of a grid: a text, or a bar."""


def words(text: Any) -> str:
    """Return a text without its styles; nothing for bars and other blocks."""
    if isinstance(text, tuple):
        return "".join(map(words, text))
    return text.text if isinstance(text, Styled) else text if isinstance(text, str) else ""


def indent(cell: Cell) -> int:
    """Return the blanks before the name of a row that is a part of a row above it."""
    stated = cell.indent if isinstance(cell, Styled) else 0
    text = words(cell)
    return stated + len(text) - len(text.lstrip(" "))


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of cells in columns, without lines.

    Attributes:
        kinds: One per column: ``left`` and ``right`` keep their lines, ``text`` and ``number`` (at the right) fold,
            ``path`` folds at dots, and ``wide`` takes the space that is left (bars).
        rows: The cells; a row may end early.
        heads: How many of the first rows name the columns. Below them a row of one dim text is a remark on the row
            before it.
        gap: Blanks between columns.
        least: Least widths of the first columns.
        widths: Exact widths of all columns, in which longer texts fold.
        optional: Columns that a narrow page leaves out: as few as possible, the first of these rather than the last.
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
    """Sentences that are items of a list."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart, and words for readers who do not see it; a terminal leaves it out."""

    chart: "Chart"
    words: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Labels, values that stand out, and remarks: a page in a browser shows them as tiles, others as a grid."""

    rows: tuple[tuple[str, str, str], ...]

    @property
    def grid(self) -> Grid:
        """A line for each."""
        cells = tuple((label, bold(value), dim(remark)) for label, value, remark in self.rows)
        return Grid(("left", "right", "text"), cells)


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks below a heading, indented; without a title only indented.

    Attributes:
        title, remark: The heading, and the one thing to know.
        blocks: What it says.
        opened: Whether a page that folds sections away shows this one.
        folded: Whether a page in HTML folds it away in any case.
        flush: Whether its blocks begin at the margin: a table that needs every character of a narrow page.
    """

    title: str
    blocks: "tuple[Block, ...]"
    remark: Line = ""
    opened: bool = False
    flush: bool = False
    folded: bool = False

    @property
    def heading(self) -> str:
        """The title and the remark in plain words."""
        return f"{self.title}: {words(self.remark)}" if self.remark else self.title


@dataclass(frozen=True, slots=True)
class Beside:
    """Columns of blocks: next to each other from a width in characters on, else one below the other.

    Attributes:
        columns: The blocks of each column; blank lines separate them.
        width: Characters that the columns need next to each other.
        equal: Whether all columns have the same width; else they are as wide as their contents.
    """

    columns: "tuple[tuple[Block, ...], ...]"
    width: int
    equal: bool = True


@dataclass(frozen=True, slots=True)
class ByWidth:
    """Blocks for a page of at least `width` characters, and blocks for a narrower one."""

    width: int
    wide: "tuple[Block, ...]"
    narrow: "tuple[Block, ...]"


@dataclass(frozen=True, slots=True)
class Document:
    """An answer.

    Attributes:
        title: What it answers.
        terms: Edition and preset, and what else holds for every number of it.
        lead: What follows the title immediately, indented: the question in short.
        parts: What it says, in the order of reading; blank lines separate them.
    """

    title: str
    terms: str = ""
    lead: "tuple[Block, ...]" = ()
    parts: "tuple[Block, ...]" = ()


def in_short(document: Document, parts: int) -> Document:
    """Return the first parts of a document, and how to see the others, if there are any."""
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
    | Beside
    | ByWidth
    | Document
    | Any
)
"""A part of a document, or a :class:`~calculon.render.frontier.Frontier`; a text is a paragraph.

A page in a browser also takes HTML of its forms: objects with ``__html__``.
"""


def inside(block: Block) -> tuple[Block, ...]:
    """Return the blocks of a block, as wide pages have them."""
    if isinstance(block, Document):
        return (*block.lead, *block.parts)
    if isinstance(block, Section):
        return block.blocks
    if isinstance(block, Beside):
        return tuple(one for column in block.columns for one in column)
    return block.wide if isinstance(block, ByWidth) else ()


def labelled(texts: Mapping[str, Line]) -> Grid:
    """Return a line for each label; lines without a text are left out."""
    return Grid(
        ("text", "text"), tuple((dim(label), text) for label, text in texts.items() if text)
    )


def spaced(pieces: Iterable[Styled]) -> Line:
    """Return pieces of a text with blanks between them."""
    return tuple(one for piece in pieces for one in (piece, " "))


def numbers(titles: Sequence[str], rows: Iterable[tuple[Cell, ...]]) -> Grid:
    """Return rows of numbers below the titles of their columns, each with a name."""
    return headed(("left", *["right"] * (len(titles) - 1)), titles, rows)


def headed(
    kinds: Iterable[str],
    titles: Iterable[str | Legend],
    rows: Iterable[tuple[Cell, ...]],
    least: tuple[int, ...] = (),
) -> Grid:
    """Return rows below the dim titles of their columns."""
    heads = tuple(dim(title) if isinstance(title, str) else title for title in titles)
    return Grid(tuple(kinds), (heads, *rows), heads=1, least=least)
