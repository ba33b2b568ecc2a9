"""The pipeline schedule: a Gantt chart of the passes of each stage, numbered by microbatch, and of idle time."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from calculon.base.frozen import dataclass
from calculon.declarations.named_values import PUBLISHED
from calculon.render.bars import COLORS
from calculon.render.canvas import GREY, drawing, figure, note_edition
from calculon.render.chart_axes import time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Piece:
    """One pass of a stage for a microbatch and chunk, from its start to its end in seconds.

    ``half`` is -1 or 1 of the passes of a pair that run beside each other: they are drawn above each other.
    """

    stage: int
    kind: str
    microbatch: int
    chunk: int
    start: float
    end: float
    half: int = 0

    @property
    def place(self) -> tuple[float, float]:
        """Upper end and height of the piece, in rows."""
        if not self.half:
            return self.stage - _HEIGHT / 2, _HEIGHT
        return self.stage - (_HEIGHT / 2 if self.half < 0 else 0.0), _HEIGHT / 2


@dataclass(frozen=True, slots=True)
class Gantt:
    """The content of the picture: a title, the pieces of all stages, and the edition of the model.

    ``row`` is the word for a row, ``second`` those for the second one of two chunks. ``again`` are the seconds of
    recomputation in the backward pass of each stage and chunk.
    """

    title: str
    stages: int
    pieces: Sequence[Piece]
    edition: str = PUBLISHED
    row: str = "Stage"
    second: str = "second chunk"
    again: Sequence[Sequence[float]] = ()

    @property
    def end(self) -> float:
        """When the last pass ends."""
        return max(piece.end for piece in self.pieces)

    @property
    def chunks(self) -> int:
        """Chunks of a stage."""
        return 1 + max(piece.chunk for piece in self.pieces)

    @property
    def kinds(self) -> list[str]:
        """The kinds of passes that there are, in the order of :data:`LOOKS`."""
        there = {piece.kind for piece in self.pieces}
        return [kind for kind in LOOKS if kind in there]

    @property
    def idle_share(self) -> float:
        """Mean share of the time in which stages do nothing."""
        return 1 - _busy(self.pieces) / (self.end * self.stages)

    @property
    def idle_words(self) -> str:
        """The same in words, for a legend."""
        return f"idle: {100 * self.idle_share:.1f} % of the time that is drawn"

    @property
    def last_words(self) -> str:
        """What the lightest pieces are of."""
        return f"last of {self.chunks} chunks" if self.chunks > 2 else self.second

    def idle(self, stage: int) -> float:
        """Share of the time in which a stage does nothing."""
        return 1 - _busy(piece for piece in self.pieces if piece.stage == stage) / self.end


def _busy(pieces: Iterable[Piece]) -> float:
    """Add the times of pieces up; those of a pair have one time together."""
    return sum((piece.end - piece.start) / (2 if piece.half else 1) for piece in pieces)


_HEIGHT = 0.86  # of a row

LOOKS = {
    "forward": ("forward", COLORS["blue"], "#8fc1e3"),
    "backward": ("backward", COLORS["green"], "#8fd0bb"),
    "inputs": ("gradients of inputs", COLORS["purple"], "#e5bcd3"),
    "weight": ("gradients of weights", COLORS["orange"], "#f3d08f"),
}
"""Words, colour of the first chunk, and colour of the last one, by kind of pass."""

_IDLE: dict[str, Any] = {
    "facecolor": "white",
    "edgecolor": "#c8c8c8",
    "hatch": "////",
    "linewidth": 0.0,
}
_WIDTH, _LEAST = 11.0, 0.1  # inches: of the picture, and of a piece that a digit fits into
_TALLEST = 12.0  # inches of all rows
_LETTERS = 138  # of a line of the title
_ENTRIES = 6  # of a line of the legend
_LABELLED = 24  # stages up to which the idle time is written next to each row


def draw(gantt: Gantt) -> "Figure":
    """Draw a row for each stage, the first at the top."""
    from matplotlib.patches import Patch

    unit, factor = time_unit(gantt.end)
    row = min(0.34, _TALLEST / gantt.stages)
    chunks, kinds = gantt.chunks, gantt.kinds
    with drawing():
        picture = figure(_WIDTH, 1.5 + row * gantt.stages)
        axes = picture.subplots()
        axes.barh(range(gantt.stages), gantt.end * factor, height=_HEIGHT, **_IDLE)
        rows = defaultdict(list)
        for piece in gantt.pieces:
            rows[piece.place, piece.kind, piece.chunk].append(piece)
        for (place, kind, chunk), pieces in rows.items():
            spans = [(p.start * factor, (p.end - p.start) * factor) for p in pieces]
            thin = min(width for _, width in spans) < 0.005 * gantt.end * factor
            axes.broken_barh(
                spans,
                place,
                facecolor=shade(kind, chunk, chunks),
                edgecolor="white",
                linewidth=0.1 if thin else 0.4,
            )
        _numbers(axes, gantt, row, factor, chunks)
        axes.set_xlim(0, gantt.end * factor * (1.06 if gantt.stages <= _LABELLED else 1.0))
        axes.set_ylim(gantt.stages - 0.5, -0.5)
        step = max(1, -(-gantt.stages // _LABELLED))
        axes.set_yticks(range(0, gantt.stages, step))
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.set_ylabel(gantt.row)
        axes.set_xlabel(f"Time ({unit})")
        title = (wrap(line, _LETTERS) for line in gantt.title.split("\n"))
        axes.set_title("\n".join(part for line in title for part in line))
        note_edition(axes, [gantt.edition])
        handles = [Patch(facecolor=LOOKS[kind][1], label=LOOKS[kind][0]) for kind in kinds]
        if chunks > 1:
            words = gantt.last_words
            handles += [
                Patch(facecolor=LOOKS[kind][2], label=f"{LOOKS[kind][0]}, {words}")
                for kind in kinds
            ]
        handles.append(Patch(**_IDLE, label=gantt.idle_words))
        lines = -(-len(handles) // _ENTRIES)
        columns = -(-len(handles) // lines)
        picture.legend(handles=handles, loc="outside lower center", ncols=columns)
    return picture


def shade(kind: str, chunk: int, chunks: int) -> tuple[float, float, float]:
    """Return the colour of a pass as shares of red, green and blue: the later the chunk, the lighter."""
    _, first, last = LOOKS[kind]
    share = chunk / (chunks - 1) if chunks > 1 else 0.0
    red, green, blue = (
        ((1 - share) * int(first[i : i + 2], 16) + share * int(last[i : i + 2], 16)) / 255
        for i in (1, 3, 5)
    )
    return red, green, blue


def _numbers(axes: "Axes", gantt: Gantt, row: float, factor: float, chunks: int) -> None:
    """Write the microbatch, counted from 1, into pieces that are wide enough; and how long each stage idles."""
    inches = (_WIDTH - 1.2) / gantt.end
    size = min(7.0, row * 20)
    for piece in gantt.pieces:
        text = str(piece.microbatch + 1)
        if (piece.end - piece.start) * inches < _LEAST * (0.3 + 0.7 * len(text)) or size < 5:
            continue
        dark = chunks == 1 or piece.chunk < chunks / 2
        axes.text(
            (piece.start + piece.end) / 2 * factor,
            piece.stage + piece.half * _HEIGHT / 4,
            text,
            ha="center",
            va="center_baseline",
            fontsize=size,
            color="white" if dark and piece.kind != "weight" else "black",
        )
    if gantt.stages <= _LABELLED:
        for stage in range(gantt.stages):
            axes.annotate(
                f"{100 * gantt.idle(stage):.0f} %",
                (gantt.end * factor, stage),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=7,
                color=GREY,
            )
