"""The page of one block: its operators pass by pass, their collectives, and the sums that an estimate reports."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from calculon.declarations.plan_words import expert_width, spreads_experts
from calculon.documents.expert_section import experts_table, rows_text
from calculon.documents.layer_table import (
    COUNTS,
    SIZES,
    TIMES,
    Layer,
    Quantity,
    by_kind,
    cells,
    group_units,
    kind_of,
    operator_grid,
    split_name,
)
from calculon.documents.page_title import page_title
from calculon.documents.setup import options as switched_on
from calculon.render.digits import Digits
from calculon.render.document import Section
from calculon.render.grids import grid, indented, styled
from calculon.render.terminal import drawn
from calculon.render.texts import counted, heading, seconds

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

_KINDS = (
    ("time", "Time", TIMES),
    ("flops", "Arithmetic", COUNTS),
    ("bytes", "Tier-1 traffic", SIZES),
)
_HELD = [Quantity("weights", ("weights",), SIZES), Quantity("saved", ("saved",), SIZES)]
_SENT = [
    [Quantity("message", ("message",), SIZES), Quantity("per port", ("moved",), SIZES)],
    [Quantity("time", ("time",), TIMES), Quantity("exposed", ("exposed",), TIMES)],
]


class BlockPage:
    """The page of a block; it lays itself out for the width at hand."""

    def __init__(self, document: Mapping[str, Any]):
        self.document = document
        self.operators: Sequence[Layer] = document["operators"]
        self.sent: Sequence[Layer] = [
            {"name": operator["name"]} | sent
            for operator in self.operators
            for sent in operator["collectives"]
        ]
        self.passes = [pass_ for pass_ in PASSES if pass_ == "forward" or self._happens(pass_)]

    def _happens(self, pass_: str) -> bool:
        return any(row[kind][pass_] for row in self.operators for kind, _, _ in _KINDS)

    def _works(self, operator: Layer) -> bool:
        """Whether an operator takes or keeps anything, or sends."""
        work = any(operator[kind][pass_] for pass_ in self.passes for kind, _, _ in _KINDS)
        return bool(work or operator["weights"] or operator["saved"] or operator["collectives"])

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
        """Lay out operators, collectives and sums of a block of one kind."""
        yield from self._operators(width)
        if self.sent:
            yield from (Text(), *self._collectives(width))
        yield from (Text(), *self._sums())
        if "part" in self.operators[0]:
            yield from (Text(), drawn(self._parts()))

    def _title(self) -> Iterator[RenderableType]:
        """Name the part, the model, the system, the microbatch, and the options."""
        model, execution = self.document["model"], self.document["execution"]
        words = (
            f"{_PARTS[model.get('part', 'block')]} of {model['name']}, "
            f"TP {execution['tensor_par']:,}{_contexts(execution)}{_experts(execution)} on {self.document['system']}"
        )
        machine = self.document["provenance"]
        yield from page_title(words, f"edition {self.document['edition']}", machine)
        micro, length = (
            execution["microbatch_size"],
            execution.get("seq_length") or model["seq_size"],
        )
        tokens = micro * length
        held = f"{counted(micro, 'sequence')} x {length:,} = {counted(tokens, 'token')}{_part(execution, tokens)}"
        lines = [
            f"one microbatch: {held}, hidden {model['hidden']:,}, {execution['datatype']}",
            rows_text(model, execution, tokens),
            ", ".join(switched_on(execution)),
        ]
        yield from (indented(Text(line)) for line in lines if line)
        yield Text()

    def _operators(self, width: int) -> Iterator[RenderableType]:
        """Lay out times, arithmetic and traffic by operator and pass: side by side, or below each other."""
        groups = [
            [Quantity(PASSES[pass_], (f"{kind}.{pass_}",), units) for pass_ in self.passes]
            for kind, _, units in _KINDS
        ]
        titles = [title for _, title, _ in _KINDS]
        operators = [one for one in self.operators if self._works(one)] or self.operators
        if width >= SIDE_BY_SIDE:
            yield heading("Operators", _EXPLAINED)
            yield operator_grid(operators, [*groups, _HELD], [*titles, "Memory"])
            return
        for number, (title, group) in enumerate(zip(titles, groups, strict=True)):
            if number:
                yield Text()
            yield heading(title, "" if number else _EXPLAINED)
            yield operator_grid(operators, [group] if number else [group, _HELD])

    def _collectives(self, width: int) -> Iterator[RenderableType]:
        """List collectives: messages, bytes through each port, time on the link and exposed."""
        shown = [quantity for group in _SENT for quantity in group]
        units = group_units(_SENT, self.sent)
        kinds = *["left"] * 3, *["right"] * len(shown)
        table = grid(*kinds, gap=1 if width < SIDE_BY_SIDE else 2)
        titles = ("", "pass", "collective", *(quantity.title for quantity in shown))
        table.add_row(*styled(titles, "dim"))
        table.add_row("", "", "", *styled((unit for _, unit in units), "dim"))
        for half, rows in groupby(self.sent, key=lambda row: split_name(row)[0]):
            table.add_row(Text(half, "bold"))
            for row in rows:
                labels = (f"  {split_name(row)[1]}", PASSES[row["pass"]], row["operation"])
                table.add_row(*labels, *cells(shown, units, [row]))
        for pass_ in self.passes:
            inside = [row for row in self.sent if row["pass"] == pass_]
            if inside:
                texts = ("sum", PASSES[pass_], "", *cells(shown, units, inside))
                table.add_row(*styled(texts, "bold"))
        yield heading("Collectives", "full arrays, and what passes through each port")
        yield indented(table)
        if any("edge_collectives" in operator for operator in self.operators):
            note = "Blocks next to a pipeline transfer split theirs: --output has them."
            yield indented(Text(note, "dim"))

    def _parts(self) -> Section:
        """Add up what router, dispatch, experts and their like take of a block with experts."""
        parts: dict[str, dict[str, Any]] = {}
        for one in self.operators:
            row = parts.setdefault(one["part"], {"computing": 0.0, "sending": 0.0})
            row["computing"] += sum(one["time"].values())
            row["sending"] += sum(sent["time"] for sent in one["collectives"])
        ordered = sorted(parts.items(), key=lambda one: one[0] == "other")
        told = [{"part": part, **times} for part, times in ordered if any(times.values())]
        remark = "all passes, sending before any of it is hidden"
        return Section("Experts", (experts_table(told, Digits()),), remark)

    def _sums(self) -> Iterator[RenderableType]:
        """Add the passes up: computation, and exposed collectives."""
        table = grid("left", "right", "right", "right")
        titles = ("", "computing", "exposed collectives", "together")
        table.add_row(*styled(titles, "dim"))
        rows = {
            PASSES[pass_]: (
                sum(operator["time"][pass_] for operator in self.operators),
                sum(sent["exposed"] for sent in self.sent if sent["pass"] == pass_),
            )
            for pass_ in self.passes
        }
        busy, sent = (sum(column) for column in zip(*rows.values(), strict=True))
        for title, (one, other) in rows.items():
            table.add_row(title, *seconds([one, other, one + other], busy + sent))
        whole = ("sum", *seconds([busy, sent, busy + sent], busy + sent))
        table.add_row(*styled(whole, "bold"))
        several = "kind" in self.operators[0]
        reported = "llm reports the mean block" if several else "as llm reports them"
        yield heading("Sums", f"one {kind_of(self.operators)} and microbatch, {reported} (block_*)")
        yield indented(table)


def _contexts(execution: Mapping[str, Any]) -> str:
    """Return the degree of context parallelism, where sequences are split."""
    degree = execution.get("context_par", 1)
    return f", CP {degree:,}" if degree > 1 else ""


def _part(execution: Mapping[str, Any], tokens: int) -> str:
    """Say how many tokens a processor has of a microbatch, where sequences are split."""
    degree = execution.get("context_par", 1)
    return f", {tokens // degree:,} on each processor" if degree > 1 else ""


def _experts(execution: Mapping[str, Any]) -> str:
    """Return the split of experts, where it is another one than that of other layers."""
    if not spreads_experts(execution):
        return ""
    return f", EP {execution.get('expert_par', 1):,}, ETP {expert_width(execution):,}"
