"""The page of one block: its operators pass by pass, their collectives, and the sums that an estimate reports."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from calculon.apps.report.layer_table import (
    COUNTS,
    SIZES,
    TIMES,
    Quantity,
    by_kind,
    cells,
    kind_of,
)
from calculon.apps.report.setup import options as switched_on
from calculon.apps.report.texts import counted, heading, seconds

SIDE_BY_SIDE = 160
"""Width from which times, arithmetic and traffic stand side by side."""

PASSES = {
    "forward": "forward",
    "activation_grad": "agrad",
    "weight_grad": "wgrad",
    "recompute": "recompute",
}
"""Titles of the passes, as statistics name them."""

_EXPLAINED = "forward, gradients of inputs (agrad) and weights (wgrad)"

_PARTS = {
    "block": "One block",
    "attention": "Attention",
    "mlp": "MLP",
    "linear": "One linear layer",
}

Row = Mapping[str, Any]
Value = Callable[[Row], float]
Units = list[tuple[float, str]]


def _member(name: str) -> Value:
    return lambda row: float(row[name])


def _in_pass(kind: str, pass_: str) -> Value:
    return lambda row: float(row[kind][pass_])


_KINDS = (
    ("time", "Time", TIMES),
    ("flops", "Arithmetic", COUNTS),
    ("bytes", "Tier-1 traffic", SIZES),
)
_HELD = [Quantity("weights", _member("weights"), SIZES), Quantity("saved", _member("saved"), SIZES)]
_SENT = [
    Quantity("message", _member("message"), SIZES),
    Quantity("per port", _member("moved"), SIZES),
    Quantity("time", _member("time"), TIMES),
    Quantity("exposed", _member("exposed"), TIMES),
]


class BlockPage:
    """The page of a block; it lays itself out for the width at hand."""

    def __init__(self, document: Mapping[str, Any]):
        self.document = document
        self.operators: Sequence[Row] = document["operators"]
        self.sent: Sequence[Row] = [
            {"name": operator["name"]} | sent
            for operator in self.operators
            for sent in operator["collectives"]
        ]
        self.passes = [pass_ for pass_ in PASSES if pass_ == "forward" or self._happens(pass_)]

    def _happens(self, pass_: str) -> bool:
        return any(row[kind][pass_] for row in self.operators for kind, _, _ in _KINDS)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self._title()
        kinds = by_kind(self.operators)
        for number, operators in enumerate(kinds):
            if len(kinds) > 1:
                name = f"One {kind_of(operators)}"
                yield from ([Text()] if number else [])
                yield Text(name, "bold underline")
            one = BlockPage({**self.document, "operators": operators})
            yield from one._of_kind(options.max_width)

    def _of_kind(self, width: int) -> Iterator[RenderableType]:
        """Lay out what a block of one kind does."""
        yield from self._operators(width)
        if self.sent:
            yield from (Text(), *self._collectives(width))
        yield from (Text(), *self._sums())

    def _title(self) -> Iterator[RenderableType]:
        """Name the part, the model, the machine, what one microbatch is, and what is switched on."""
        model, execution = self.document["model"], self.document["execution"]
        words = (
            f"{_PARTS[model.get('part', 'block')]} of {model['name']}, "
            f"TP {execution['tensor_par']:,} on {self.document['system']}"
        )
        edition = f"   edition {self.document['edition']}"
        yield Text.assemble((words, "bold underline"), (edition, "dim"))
        micro, length = (
            execution["microbatch_size"],
            execution.get("seq_length") or model["seq_size"],
        )
        lines = [
            f"one microbatch: {counted(micro, 'sequence')} x {length:,} = "
            f"{counted(micro * length, 'token')}, hidden {model['hidden']:,}, {execution['datatype']}",
            ", ".join(switched_on(execution)),
        ]
        yield from (Padding(Text(line), (0, 0, 0, 2)) for line in lines if line)
        yield Text()

    def _operators(self, width: int) -> Iterator[RenderableType]:
        """Lay out times, arithmetic and traffic by operator and pass: side by side, or below each other."""
        groups = [
            [Quantity(PASSES[pass_], _in_pass(kind, pass_), units) for pass_ in self.passes]
            for kind, _, units in _KINDS
        ]
        titles = [title for _, title, _ in _KINDS]
        if width >= SIDE_BY_SIDE:
            yield heading("Operators", _EXPLAINED)
            yield _grid(self.operators, [*groups, _HELD], [*titles, "Memory"])
            return
        for number, (title, group) in enumerate(zip(titles, groups, strict=True)):
            if number:
                yield Text()
            yield heading(title, "" if number else _EXPLAINED)
            yield _grid(self.operators, [group] if number else [group, _HELD])

    def _collectives(self, width: int) -> Iterator[RenderableType]:
        """List what is sent: messages, bytes through each port, and what of their time is exposed."""
        units = [*_units(_SENT[:2], self.sent), *_units(_SENT[2:], self.sent)]
        grid = Table.grid(padding=(0, 1 if width < SIDE_BY_SIDE else 2))
        for right in (False, False, False, *(True for _ in _SENT)):
            grid.add_column(justify="right" if right else "left", no_wrap=True)
        titles = ("", "pass", "collective", *(quantity.title for quantity in _SENT))
        grid.add_row(*(Text(title, "dim") for title in titles))
        grid.add_row("", "", "", *(Text(unit, "dim") for _, unit in units))
        for half, rows in groupby(self.sent, key=_half):
            grid.add_row(Text(half, "bold"))
            for row in rows:
                what = (f"  {_short(row)}", PASSES[row["pass"]], row["operation"])
                grid.add_row(*what, *cells(_SENT, units, [row]))
        for pass_ in self.passes:
            inside = [row for row in self.sent if row["pass"] == pass_]
            if inside:
                texts = ("sum", PASSES[pass_], "", *cells(_SENT, units, inside))
                grid.add_row(*(Text(text, "bold") for text in texts))
        yield heading("Collectives", "full arrays, and what passes through each port")
        yield Padding(grid, (0, 0, 0, 2))
        if any("edge_collectives" in operator for operator in self.operators):
            note = "Blocks next to a pipeline transfer split theirs: --output has them."
            yield Padding(Text(note, "dim"), (0, 0, 0, 2))

    def _sums(self) -> Iterator[RenderableType]:
        """Add the passes up: computation, and what of the collectives is exposed."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        titles = ("", "computing", "exposed collectives", "together")
        for _ in titles[1:]:
            grid.add_column(justify="right", no_wrap=True)
        grid.add_row(*(Text(title, "dim") for title in titles))
        rows = {
            PASSES[pass_]: (
                sum(operator["time"][pass_] for operator in self.operators),
                sum(sent["exposed"] for sent in self.sent if sent["pass"] == pass_),
            )
            for pass_ in self.passes
        }
        busy, sent = (sum(column) for column in zip(*rows.values(), strict=True))
        for title, (one, other) in rows.items():
            grid.add_row(title, *seconds([one, other, one + other], busy + sent))
        whole = ("sum", *seconds([busy, sent, busy + sent], busy + sent))
        grid.add_row(*(Text(text, "bold") for text in whole))
        several = "kind" in self.operators[0]
        reported = "llm reports the mean block" if several else "as llm reports them"
        yield heading("Sums", f"one {kind_of(self.operators)} and microbatch, {reported} (block_*)")
        yield Padding(grid, (0, 0, 0, 2))


def _grid(
    rows: Sequence[Row], groups: Sequence[Sequence[Quantity]], titles: Sequence[str] = ()
) -> RenderableType:
    """Draw operators by half of the block, with sums; the quantities of a group have one unit."""
    shown = [quantity for group in groups for quantity in group]
    units = [unit for group in groups for unit in _units(group, rows)]
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    for _ in shown:
        grid.add_column(justify="right", no_wrap=True)
    if titles:
        above = [
            title if number == 0 else ""
            for title, group in zip(titles, groups, strict=True)
            for number in range(len(group))
        ]
        grid.add_row("", *(Text(title, "bold") for title in above))
    grid.add_row("", *(Text(quantity.title, "dim") for quantity in shown))
    grid.add_row("", *(Text(unit, "dim") for _, unit in units))
    for half, members in groupby(rows, key=_half):
        inside = list(members)
        grid.add_row(*(Text(text, "bold") for text in (half, *cells(shown, units, inside))))
        for row in inside:
            grid.add_row(f"  {_short(row)}", *cells(shown, units, [row]))
    grid.add_row(*(Text(text, "bold") for text in ("sum", *cells(shown, units, rows))))
    return Padding(grid, (0, 0, 0, 2))


def _units(group: Sequence[Quantity], rows: Sequence[Row]) -> Units:
    """Choose the unit of the largest for all quantities of a group."""
    return [min(quantity.scale(rows) for quantity in group)] * len(group)


def _half(row: Row) -> str:
    """Return which half of a block an operator belongs to."""
    return str(row["name"]).partition("_")[0]


def _short(row: Row) -> str:
    """Return the name of an operator inside its half."""
    return str(row["name"]).partition("_")[2]
