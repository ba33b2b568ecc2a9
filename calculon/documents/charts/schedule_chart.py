"""Gantt chart of a pipeline schedule: passes of each stage, numbered by microbatch, and idle time."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from calculon.base.frozen import dataclass
from calculon.declarations.named_values import PUBLISHED
from calculon.render.chart import Axis, Boxes, Chart, Notes, Panel, lighter
from calculon.render.chart_axes import time_unit
from calculon.render.digits import Digits
from calculon.render.document import Block, Grid, Swatches, dim

AGAIN = "recomputation"

HEIGHT = 0.86
"""Height of a pass, as a share of its row."""

LOOKS = {
    "forward": ("forward", "blue"),
    "backward": ("backward", "green"),
    "inputs": ("gradients of inputs", "purple"),
    "weight": ("gradients of weights", "orange"),
}
"""Label and color by kind of pass."""

_LIGHTEST = 0.55
"""Share of white in the color of the last chunk."""

_SHADES = 4
"""Maximum number of shades per kind of pass: with many chunks, neighboring chunks share one."""

_BACKWARD = ("backward", "inputs")
"""Kinds of passes that include activation recomputation."""

_WIDTH, _LEAST = 11.0, 0.1  # inches: the chart; the narrowest pass with a digit
_TALLEST = 8.0  # inches: all rows
_ROW, _MIN_ROW = 0.34, 0.2  # inches: a row; the lowest row with numbers
_LABELLED = 24  # stages up to which each row states its idle time
_THIN = 0.005  # share of the time below which passes get thin edges


@dataclass(frozen=True, slots=True)
class Piece:
    """One pass of a stage for a microbatch and chunk, with start and end in seconds.

    ``half`` is -1 or 1 for the two simultaneous passes of a pair, which are drawn one above the other.
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
        """Upper end and height of the pass, in rows."""
        if not self.half:
            return self.stage - HEIGHT / 2, HEIGHT
        return self.stage - (HEIGHT / 2 if self.half < 0 else 0.0), HEIGHT / 2

    @property
    def long(self) -> float:
        """Duration in seconds."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Gantt:
    """Passes of all stages.

    Attributes:
        title, subtitle: Model, plan and machine; schedule.
        edition: Edition of the model with its preset.
        row, second: Label of a row, and label of the second of two chunks.
        again: Seconds of recomputation in the backward pass of each stage and chunk.
    """

    title: str
    subtitle: str
    stages: int
    pieces: Sequence[Piece]
    edition: str = PUBLISHED
    row: str = "Stage"
    second: str = "second chunk"
    again: Sequence[Sequence[float]] = ()

    @property
    def end(self) -> float:
        """Time at which the last pass ends."""
        return max(piece.end for piece in self.pieces)

    @property
    def chunks(self) -> int:
        """Chunks per stage."""
        return 1 + max(piece.chunk for piece in self.pieces)

    @property
    def kinds(self) -> list[str]:
        """Kinds of passes in use, in the order of :data:`LOOKS`."""
        there = {piece.kind for piece in self.pieces}
        return [kind for kind in LOOKS if kind in there]

    @property
    def idle_share(self) -> float:
        """Mean share of the time in which stages are idle."""
        return 1 - _busy(self.pieces) / (self.end * self.stages)

    def idle(self, stage: int) -> float:
        """Return the share of the time in which a stage is idle."""
        return 1 - _busy(piece for piece in self.pieces if piece.stage == stage) / self.end

    def recomputed(self, piece: Piece) -> float:
        """Return the share of a pass that is recomputation."""
        if not self.again or piece.kind not in _BACKWARD or not piece.long:
            return 0.0  # passes of a chunk without blocks take no time
        return self.again[piece.stage][piece.chunk] / piece.long


def _busy(pieces: Iterable[Piece]) -> float:
    """Sum the times of passes; the two passes of a pair share their time."""
    return sum(piece.long / (2 if piece.half else 1) for piece in pieces)


def _shade(kind: str, shade: int, shades: int) -> str:
    """Return the color of a kind of pass; later chunks are lighter."""
    return lighter(LOOKS[kind][1], _LIGHTEST * shade / (shades - 1) if shades > 1 else 0.0)


BUBBLE_AND_IDLE = (
    "The bubble is the time to fill and drain the pipeline, as a share of the whole iteration. Idle is all waiting of "
    "stages within the drawn time, as a mean over stages: also for transfers, and for the slowest stage."
)
"""Reason why bubble and idle share differ."""


def schedule_key(gantt: Gantt) -> tuple[Block, ...]:
    """Return the legend of a schedule: colors by kind of pass, with a column for each shade of chunks."""
    chunks, shades = gantt.chunks, min(gantt.chunks, _SHADES)
    spans = [[one for one in range(chunks) if one * shades // chunks == n] for n in range(shades)]
    heads = [f"{one[0] + 1} to {one[-1] + 1}" if len(one) > 1 else f"{one[0] + 1}" for one in spans]
    rows = [
        (LOOKS[kind][0], *(Swatches(((_shade(kind, n, shades), ""),)) for n in range(shades)))
        for kind in gantt.kinds
    ]
    heading = ((dim("chunk"), *map(dim, heads)),) if chunks > 1 else ()
    passes = Grid(("left",) * (1 + shades), (*heading, *rows), heads=len(heading))
    again = any(gantt.recomputed(piece) for piece in gantt.pieces)
    idle = dim(f"Hatched: idle, {100 * gantt.idle_share:.1f} % of the drawn time.")
    return passes, *([Swatches((("sky", f"{AGAIN}, the lower part of a pass"),))] * again), idle


def schedule(
    gantt: Gantt,
    digits: Digits | None = None,
    links: Sequence[str] = (),
    selected: int | None = None,
) -> Chart:
    """Return the schedule with a row for each stage, the first at the top.

    Args:
        gantt: The passes.
        digits: Digits of the times in tooltips.
        links: Address that a click on each row opens.
        selected: Framed row.
    """
    drawn = _Schedule(gantt, digits or Digits())
    row = min(_ROW, _TALLEST / gantt.stages)
    marks = [drawn.idle(), *drawn.passes(links), *drawn.recomputation(), *drawn.numbers(row)]
    if gantt.stages <= _LABELLED:
        marks.append(drawn.idle_texts())
    if selected is not None and gantt.stages > 1:
        marks.append(drawn.frame(selected))
    # With many stages, only every n-th one is labeled.
    step = max(1, -(-gantt.stages // _LABELLED))
    room = 1.06 if gantt.stages <= _LABELLED else 1.0
    panel = Panel(
        x=Axis(label="Time", unit=drawn.unit, limits=(0.0, room * gantt.end * drawn.factor)),
        y=Axis(
            label=gantt.row,
            limits=(gantt.stages - 0.5, -0.5),
            ticks=[(stage, str(stage)) for stage in range(0, gantt.stages, step)],
            grid=False,
        ),
        marks=marks,
        height=0.7 + row * gantt.stages,
    )
    return Chart(
        title=gantt.title,
        subtitle=gantt.subtitle,
        terms=[gantt.edition],
        rows=((panel,),),
        width=_WIDTH,
    )


class _Schedule:
    """Builder of the marks of a schedule."""

    def __init__(self, gantt: Gantt, digits: Digits):
        self.gantt, self.digits = gantt, digits
        self.unit, self.factor = time_unit(gantt.end)
        # Rounding to about five digits keeps files with thousands of passes small.
        self.decimals = max(0, 5 - math.ceil(math.log10(gantt.end * self.factor)))

    def _time(self, seconds: float) -> float:
        return round(seconds * self.factor, self.decimals)

    def _box(self, piece: Piece) -> tuple[float, float, float, float]:
        top, height = piece.place
        start, end = self._time(piece.start), self._time(piece.end)
        return start, end, round(top, 3), round(top + height, 3)

    def idle(self) -> Boxes:
        """Return a hatched row for each stage, drawn below its passes."""
        half, last = HEIGHT / 2, self._time(self.gantt.end)
        return Boxes(
            name=f"idle: {100 * self.gantt.idle_share:.1f} % of the drawn time",
            boxes=[(0.0, last, i - half, i + half) for i in range(self.gantt.stages)],
            color="gray+30",
            hatch="/",
        )

    def passes(self, links: Sequence[str]) -> Iterator[Boxes]:
        """Yield the passes of each kind, from the first chunk to the last."""
        gantt = self.gantt
        chunks, shades = gantt.chunks, min(gantt.chunks, _SHADES)
        found: dict[tuple[str, int], list[Piece]] = defaultdict(list)
        for piece in gantt.pieces:
            found[piece.kind, piece.chunk * shades // chunks].append(piece)
        # Thick edges would cover short passes.
        thin = min(piece.long for piece in gantt.pieces) < _THIN * gantt.end
        last_words = f"last of {chunks} chunks" if chunks > 2 else gantt.second
        for kind in gantt.kinds:
            for shade in range(shades):
                pieces, last = found[kind, shade], shades > 1 and shade == shades - 1
                name = LOOKS[kind][0] if shade == 0 or last else ""
                yield Boxes(
                    name=f"{name}, {last_words}" if last else name,
                    boxes=[self._box(piece) for piece in pieces],
                    color=_shade(kind, shade, shades),
                    edge=0.1 if thin else 0.4,
                    words=self._words(pieces),
                    links=links,
                    groups=[piece.stage for piece in pieces],
                )

    def _words(self, pieces: Sequence[Piece]) -> list[str]:
        """Write each pass with its duration and its start."""
        longs, gantt = [piece.long for piece in pieces], self.gantt
        durations = self.digits.seconds(longs, max(longs, default=0.0))
        starts = self.digits.seconds([piece.start for piece in pieces], gantt.end)
        several = gantt.chunks > 1
        return [
            f"{gantt.row} {piece.stage}: {LOOKS[piece.kind][0]}, microbatch {piece.microbatch + 1}"
            f"{f', chunk {piece.chunk + 1}' if several else ''}\n{long}, from {start}"
            for piece, long, start in zip(pieces, durations, starts, strict=True)
        ]

    def recomputation(self) -> Iterator[Boxes]:
        """Yield the recomputation in backward passes, with a height proportional to its share of the pass."""
        boxes = []
        for piece in self.gantt.pieces:
            if share := self.gantt.recomputed(piece):
                start, end, top, bottom = self._box(piece)
                boxes.append((start, end, bottom - (bottom - top) * share, bottom))
        if boxes:
            yield Boxes(name=AGAIN, boxes=boxes, color="sky")

    def numbers(self, row: float) -> Iterator[Notes]:
        """Yield the microbatch numbers, counted from 1, in passes that are wide enough."""
        inches = (_WIDTH - 1.2) / self.gantt.end
        shown = [
            piece
            for piece in self.gantt.pieces
            if piece.long * inches >= _LEAST * (0.3 + 0.7 * len(str(piece.microbatch + 1)))
        ]
        if not shown or row < _MIN_ROW:
            return
        # White digits on dark passes: later chunks and weight gradients have light colors.
        dark = [piece.chunk < self.gantt.chunks / 2 and piece.kind != "weight" for piece in shown]
        yield Notes(
            x=[(piece.start + piece.end) / 2 * self.factor for piece in shown],
            y=[piece.stage + piece.half * HEIGHT / 4 for piece in shown],
            texts=[str(piece.microbatch + 1) for piece in shown],
            side="center",
            size=min(7.0, 20 * row),
            halo=False,
            color=["white" if one else "black" for one in dark],
        )

    def idle_texts(self) -> Notes:
        """Return the idle share of each stage, to the right of its row."""
        stages = range(self.gantt.stages)
        return Notes(
            x=[self.gantt.end * self.factor] * len(stages),
            y=stages,
            texts=[f"{100 * self.gantt.idle(stage):.0f} %" for stage in stages],
            size=7.0,
            color="gray",
        )

    def frame(self, stage: int) -> Boxes:
        """Return a frame around a row."""
        box = (0.0, self._time(self.gantt.end), stage - 0.5, stage + 0.5)
        return Boxes(boxes=(box,), color="vermilion", filled=False, edge=2.0)
