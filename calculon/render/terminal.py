"""Terminal output of documents with rich; see :mod:`calculon.render.console` for the output streams."""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from calculon.base.frozen import dataclass
from calculon.render.bars import ASCII, BLOCKS, COLORS, Bar, TwoSided
from calculon.render.document import (
    Block,
    ByWidth,
    Cell,
    Document,
    Facts,
    Grid,
    Items,
    Legend,
    Line,
    Names,
    Picture,
    Section,
    SideBySide,
    Styled,
    Swatches,
)
from calculon.render.fitted_grid import fit_grid
from calculon.render.fitted_table import fit_table
from calculon.render.frontier import Frontier
from calculon.render.stacked_grid import least_width, natural_width, stacked
from calculon.render.text_tables import Table

_COLUMNS: dict[str, dict[str, Any]] = {
    "left": {"no_wrap": True},
    "right": {"no_wrap": True, "justify": "right"},
    "text": {},
    "number": {"justify": "right"},
    "path": {},
    "wide": {"ratio": 1},
}
"""Rich options of the column kinds of a grid."""

_COLORS = {**COLORS, "gray": "bright_black"}


def page(*several: Block) -> RenderableType:
    """Return blocks as a rich renderable, separated by blank lines."""
    return _Sized(lambda drawn: drawn.document(Document("", parts=several)))


@dataclass(frozen=True, slots=True)
class _Sized:
    """Part of a page that depends on the available width, with its minimum and maximum width in characters."""

    draw: "Callable[[_Drawn], Iterable[RenderableType | Segment]]"
    least: int = 0
    most: int | None = None

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        width = options.max_width
        return Measurement(min(self.least, width), min(self.most or width, width))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.draw(_Drawn(console, options))


class _Drawn:
    """Renderer of blocks for the available width of a console."""

    def __init__(self, console: Console, options: ConsoleOptions):
        self.width = options.max_width
        self.blocks_drawn = console.is_terminal and not options.ascii_only
        self.colored = bool(console.color_system) and not console.no_color
        self.writers: Mapping[type, Callable[[Any], Iterable[RenderableType]]] = {
            Section: self._section,
            SideBySide: self._side_by_side,
            ByWidth: lambda one: self.blocks(one.wide if self.width >= one.width else one.narrow),
            Document: self.document,
            Grid: lambda one: [_sized_grid(one)],
            Table: lambda one: [_sized_table(one)],
            Facts: lambda one: [_sized_grid(one.grid)],
            Frontier: lambda one: [_sized_frontier(one)],
            Items: lambda one: [self._cell(f"- {text}") for text in one.texts],
            Picture: lambda one: (),
        }

    def document(self, one: Document) -> Iterator[RenderableType]:
        """Yield the title and all parts of a document."""
        if one.title:
            terms = f"   {one.terms}" if one.terms else ""
            yield Text.assemble((one.title, "bold underline"), (terms, "dim"))
        yield from map(_indented, self.blocks(one.lead))
        blank = bool(one.title or one.lead)
        for part in one.parts:
            yield from [Text()] * blank
            yield from self.blocks([part])
            blank = True

    def blocks(self, several: Iterable[Block]) -> Iterator[RenderableType]:
        """Yield blocks one below the other."""
        for one in several:
            write = self.writers.get(type(one))
            yield from write(one) if write else [self._cell(one)]

    def _section(self, section: Section) -> Iterator[RenderableType]:
        if section.title:
            colon = ": " if section.remark else ""
            yield Text.assemble((section.title, "bold"), colon, _text(section.remark))
        blocks = self.blocks(section.blocks)
        yield from blocks if section.flush else map(_indented, blocks)

    def _side_by_side(self, one: SideBySide) -> Iterator[RenderableType]:
        columns = [[*self.document(Document("", parts=blocks))] for blocks in one.columns]
        if self.width >= one.width:
            kinds = ["wide" if one.equal else "text"] * len(columns)
            table = _grid(kinds, gap=4)
            table.add_row(*(Group(*column) for column in columns))
            yield table
            return
        for number, column in enumerate(columns):
            yield from [Text()] * bool(number)
            yield from column

    def grid(self, one: Grid) -> RichTable:
        """Return a grid as a rich table."""
        table = _grid(one.kinds, one.gap, one.least, one.widths)
        for row in one.rows:
            table.add_row(*map(self._cell, row))
        return table

    def _cell(self, cell: Cell) -> RenderableType:
        """Return a text or a bar as a rich renderable."""
        if isinstance(cell, (Bar, TwoSided)):
            return _sized_bar(cell)
        if isinstance(cell, Legend):
            return Text(cell.text.format(*(BLOCKS if self.blocks_drawn else ASCII)), "dim")
        if isinstance(cell, Swatches):
            return self._swatches(cell)
        if isinstance(cell, Names):
            return _sized_names(cell)
        text = _text(cell)
        indent = cell.indent if isinstance(cell, Styled) else 0
        return Padding(text, (0, 0, 0, indent)) if indent else text

    def _swatches(self, legend: Swatches) -> Text:
        """Return a color legend; without colors, its texts alone."""
        text = Text(style="dim")
        for color, words in legend.entries:
            text.append("  " if text else "")
            if self.blocks_drawn and self.colored:
                text.append("■\N{NO-BREAK SPACE}", f"not dim {_COLORS[color]}")
                # A swatch stays on one line with its text.
                words = words.replace(" ", "\N{NO-BREAK SPACE}")  # noqa: PLW2901
            text.append(words)
        return text


def _grid(
    kinds: Iterable[str], gap: int, least: Iterable[int] = (), widths: Iterable[int] = ()
) -> RichTable:
    """Return an empty rich grid with columns of the given kinds."""
    kinds = tuple(kinds)
    table = RichTable.grid(padding=(0, gap), expand="wide" in kinds)
    narrowest, exact = iter(least), iter(widths)
    for kind in kinds:
        how = {**_COLUMNS[kind], "min_width": next(narrowest, None), "width": next(exact, None)}
        table.add_column(overflow="fold" if widths else "ellipsis", **how)
    return table


def _sized_grid(grid: Grid) -> RenderableType:
    def draw(drawn: _Drawn) -> Iterable[RenderableType]:
        shown = fit_grid(grid, drawn.width) if grid.optional else grid
        if least_width(shown) <= drawn.width or grid.widths:
            return [drawn.grid(shown)]
        return drawn.blocks(stacked(grid, drawn.width))

    return _Sized(draw, most=natural_width(grid))


def _sized_table(table: Table) -> RenderableType:
    def draw(drawn: _Drawn) -> Iterable[RenderableType]:
        return drawn.blocks(fit_table(table, drawn.width, "…" if drawn.blocks_drawn else "..."))

    return _Sized(draw)


def _sized_frontier(frontier: Frontier) -> RenderableType:
    return _Sized(lambda drawn: map(_text, frontier.lines(drawn.width, blocks=drawn.blocks_drawn)))


def _sized_bar(bar: Bar | TwoSided) -> RenderableType:
    def draw(drawn: _Drawn) -> Iterator[Segment]:
        pieces = bar.pieces(min(drawn.width, bar.widest), blocks=drawn.blocks_drawn)
        return (Segment(text, Style.parse(_COLORS[color])) for text, color in pieces)

    return _Sized(draw, bar.narrowest, bar.widest)


def _sized_names(names: Names) -> RenderableType:
    """Return names wrapped to the available width; a name breaks only if it is longer than a line."""
    # No-break spaces keep textwrap from breaking inside a name; they are undone afterwards.
    whole = ", ".join(name.replace(" ", "\N{NO-BREAK SPACE}") for name in names.names)

    def draw(drawn: _Drawn) -> Iterator[Text]:
        lines = textwrap.wrap(whole, drawn.width, break_long_words=False, break_on_hyphens=False)
        yield Text("\n".join(lines).replace("\N{NO-BREAK SPACE}", " "))

    return _Sized(draw)


def _indented(part: RenderableType) -> Padding:
    """Return a part of a page, indented below its heading."""
    return Padding(part, (0, 0, 0, 2))


def _text(line: Line) -> Text:
    """Return a line as rich text."""
    if isinstance(line, str):
        return Text(line)
    if isinstance(line, Styled):
        return Text(line.text, _style(line))
    pieces = ((one, "") if isinstance(one, str) else (one.text, _style(one)) for one in line)
    return Text.assemble(*pieces)


def _style(piece: Styled) -> str:
    return piece.style if piece.style in ("bold", "dim") else _COLORS.get(piece.style, "")
