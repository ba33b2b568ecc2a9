"""Documents in a terminal, by rich: see :mod:`calculon.render.console` for where they are drawn."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from calculon.base.frozen import dataclass
from calculon.render import grids
from calculon.render.bars import COLORS, has_blocks, marks
from calculon.render.document import (
    Beside,
    Block,
    ByWidth,
    Cell,
    Document,
    Facts,
    Grid,
    Legend,
    Line,
    Names,
    Rich,
    Section,
    Styled,
    Swatches,
)
from calculon.render.fitted_grid import fitted
from calculon.render.frontier import Frontier
from calculon.render.texts import heading


@dataclass(frozen=True, slots=True)
class Page:
    """A document as rich draws it."""

    document: Document

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _Drawn(console, options).document(self.document)


@dataclass(frozen=True, slots=True)
class _Joined:
    """Names in lines of the width at hand; a name breaks only if it is wider."""

    names: tuple[str, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        whole = ", ".join(name.replace(" ", "\N{NO-BREAK SPACE}") for name in self.names)
        lines = textwrap.wrap(
            whole, options.max_width, break_long_words=False, break_on_hyphens=False
        )
        yield Text("\n".join(lines).replace("\N{NO-BREAK SPACE}", " "))


class _Drawn:
    """Draws the blocks of a document for a console."""

    def __init__(self, console: Console, options: ConsoleOptions):
        self.width = options.max_width
        self.marks = marks(console, options)
        coloured = bool(console.color_system) and not console.no_color
        self.swatches = has_blocks(console, options) and coloured

    def document(self, one: Document) -> Iterator[RenderableType]:
        """Yield the title and all parts of a document."""
        if one.title:
            terms = f"   {one.terms}" if one.terms else ""
            yield Text.assemble((one.title, "bold underline"), (terms, "dim"))
        yield from map(grids.indented, self.blocks(one.lead))
        blank = bool(one.title or one.lead)
        for part in one.parts:
            yield from [Text()] * blank
            yield from self.blocks([part])
            blank = True

    def blocks(self, several: Iterable[Block]) -> Iterator[RenderableType]:
        """Yield blocks one below the other."""
        for one in several:
            if isinstance(one, Section):
                yield from self._section(one)
            elif isinstance(one, Beside):
                yield from self._beside(one)
            elif isinstance(one, ByWidth):
                yield from self.blocks(one.wide if self.width >= one.width else one.narrow)
            elif isinstance(one, Document):
                yield from self.document(one)
            elif isinstance(one, Grid):
                yield _Fitted(self, one) if one.optional else self.grid(one)
            elif isinstance(one, Facts):
                yield self.grid(one.grid)
            elif isinstance(one, Frontier):
                yield _Drawing(one)
            elif isinstance(one, Rich):
                yield from one.parts
            else:
                yield self._cell(one)

    def _section(self, section: Section) -> Iterator[RenderableType]:
        if section.title:
            remark = _text(section.remark) if section.remark else ""
            yield heading(section.title, remark)
        blocks = self.blocks(section.blocks)
        yield from blocks if section.flush else map(grids.indented, blocks)

    def _beside(self, one: Beside) -> Iterator[RenderableType]:
        columns = [self._column(blocks) for blocks in one.columns]
        if self.width >= one.width:
            from rich.console import Group

            table = grids.grid(*["wide" if one.equal else "text"] * len(columns), gap=4)
            table.add_row(*(Group(*column) for column in columns))
            yield table
            return
        for number, column in enumerate(columns):
            yield from [Text()] * bool(number)
            yield from column

    def _column(self, blocks: Sequence[Block]) -> list[RenderableType]:
        """Return the blocks of a column with blank lines between them."""
        return [*self.document(Document("", parts=tuple(blocks)))]

    def grid(self, one: Grid) -> RichTable:
        """Return a grid as rich draws it."""
        table = grids.grid(*one.kinds, gap=one.gap, least=one.least)
        for row in one.rows:
            table.add_row(*map(self._cell, row))
        return table

    def _cell(self, cell: Cell) -> RenderableType:
        """Return a text or a bar as rich draws it."""
        if isinstance(cell, Legend):
            return Text(cell.text.format(*self.marks), "dim")
        if isinstance(cell, Swatches):
            return self._swatches(cell)
        if isinstance(cell, Names):
            return _Joined(cell.names)
        if isinstance(cell, (str, Styled, tuple)):
            text = _text(cell)
            indent = cell.indent if isinstance(cell, Styled) else 0
            return Padding(text, (0, 0, 0, indent)) if indent else text
        return cell

    def _swatches(self, legend: Swatches) -> Text:
        """Return a legend of colours: where there are no colours, its words alone."""
        text = Text(style="dim")
        for color, words in legend.entries:
            text.append("  " if text else "")
            if self.swatches:
                text.append("■\N{NO-BREAK SPACE}", f"not dim {COLORS.get(color, color)}")
                words = words.replace(" ", "\N{NO-BREAK SPACE}")  # noqa: PLW2901
            text.append(words)
        return text


@dataclass(frozen=True, slots=True)
class _Drawing:
    """A drawing as wide as the space that rich gives it."""

    frontier: Frontier

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        blocks = has_blocks(console, options)
        yield from map(_text, self.frontier.lines(options.max_width, blocks=blocks))


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A grid with the optional columns for which its place on a page is wide enough."""

    page: _Drawn
    grid: Grid

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.page.grid(fitted(self.grid, options.max_width))


def _text(line: Line) -> Text:
    """Return a line as rich draws it."""
    if isinstance(line, str):
        return Text(line)
    if isinstance(line, Styled):
        return Text(line.text, _style(line))
    pieces = ((one, "") if isinstance(one, str) else (one.text, _style(one)) for one in line)
    return Text.assemble(*pieces)


def _style(piece: Styled) -> str:
    return piece.style if piece.style in ("bold", "dim") else COLORS.get(piece.style, "")


def drawn(*several: Block) -> RenderableType:
    """Return blocks as rich draws them, for pages that are not documents yet."""
    return Page(Document("", parts=several))
