"""Page of one block: its operators by pass, their collectives, and the sums that an estimate reports."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
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
from calculon.documents.page_title import machine_of, titled
from calculon.documents.setup import Row
from calculon.documents.setup import options as switched_on
from calculon.estimate.operators import Block as OneBlock
from calculon.render.digits import Digits
from calculon.render.document import Block, ByWidth, Document, Grid, Section, bold, dim
from calculon.render.texts import counted, seconds

SIDE_BY_SIDE = 160
"""Minimum width for times, arithmetic and traffic in adjacent columns."""

PASSES = {
    "forward": "forward",
    "activation_grad": "agrad",
    "weight_grad": "wgrad",
    "recompute": "recompute",
}
"""Titles of the passes, as in names of statistics."""

PASS_WORDS = PASSES | {"activation_grad": "input gradients", "weight_grad": "weight gradients"}
"""Titles of the passes for readers who do not know the statistics."""

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
    ("bytes", "Memory traffic", SIZES),
)
_HELD = [Quantity("weights", ("weights",), SIZES), Quantity("saved", ("saved",), SIZES)]
_SENT = [
    [Quantity("message", ("message",), SIZES), Quantity("per port", ("moved",), SIZES)],
    [Quantity("time", ("time",), TIMES), Quantity("exposed", ("exposed",), TIMES)],
]


def block_page(one_block: OneBlock) -> Document:
    """Return the page of a block; of several kinds of block, a part for each."""
    model, execution = one_block.model, one_block.execution
    kinds = by_kind(one_block.operators)
    parts: list[Document] = []
    for operators in kinds:
        title = f"One {kind_of(operators)}" if len(kinds) > 1 else ""
        parts.append(Document(title, parts=tuple(_Operators(operators).sections())))
    degree = execution.context_par
    contexts = f", CP {degree:,}" if degree > 1 else ""
    title = (
        f"{_PARTS[model.part]} of {model.name}, "
        f"TP {execution.tensor_par:,}{contexts}{_experts(execution.to_dict())} on {one_block.system.name}"
    )
    lead = tuple(filter(None, _microbatch(model, execution)))
    machine = machine_of(one_block.system)
    return titled(title, f"edition {one_block.edition}", machine, lead=lead, parts=parts)


def _microbatch(model: Model, execution: Execution) -> Iterator[str]:
    """Yield lines on the microbatch, the rows of experts and the options; a line may be empty."""
    micro, fields = execution.microbatch_size, execution.to_dict()
    length = execution.seq_length or model.seq_size
    tokens = micro * length
    held = f"{counted(micro, 'sequence')} x {length:,} = {counted(tokens, 'token')}"
    if (degree := execution.context_par) > 1:
        held += f", {tokens // degree:,} on each processor"
    yield f"one microbatch: {held}, hidden {model.hidden:,}, {execution.datatype}"
    yield rows_text(model.to_dict(), fields, tokens)
    yield ", ".join(switched_on(fields))


class _Operators:
    """Operators of a block of one kind."""

    def __init__(self, operators: Sequence[Layer]):
        self.operators = operators
        self.sent: Sequence[Layer] = [
            {"name": operator["name"]} | sent
            for operator in operators
            for sent in operator["collectives"]
        ]
        figures = [row[kind] for row in operators for kind, _, _ in _KINDS]
        self.passes = [p for p in PASSES if p == "forward" or any(one[p] for one in figures)]

    def _works(self, operator: Layer) -> bool:
        """Return True if an operator takes time, keeps memory, or sends."""
        work = any(operator[kind][pass_] for pass_ in self.passes for kind, _, _ in _KINDS)
        return bool(work or operator["weights"] or operator["saved"] or operator["collectives"])

    def sections(self) -> Iterator[Block]:
        """Yield operators, collectives, sums, and the parts of a block with experts."""
        yield self._by_pass()
        if self.sent:
            yield self._collectives()
        yield self._sums()
        if "part" in self.operators[0]:
            yield self._parts()

    def _by_pass(self) -> ByWidth:
        """Return times, arithmetic and traffic by operator and pass: in adjacent columns, or in successive tables."""
        groups = [
            [Quantity(PASSES[pass_], (f"{kind}.{pass_}",), units) for pass_ in self.passes]
            for kind, _, units in _KINDS
        ]
        titles = [title for _, title, _ in _KINDS]
        # Fused operators take no time of their own; if all are like this, show them anyway.
        operators = [one for one in self.operators if self._works(one)] or self.operators
        whole = operator_grid(operators, [*groups, _HELD], [*titles, "Memory"])
        first, *others = titles
        narrow = (
            Section(first, (operator_grid(operators, [groups[0], _HELD]),), _EXPLAINED),
            *(
                Section(title, (operator_grid(operators, [group]),))
                for title, group in zip(others, groups[1:], strict=True)
            ),
        )
        wide = Section("Operators", (whole,), _EXPLAINED)
        return ByWidth(SIDE_BY_SIDE, (wide,), (Document("", parts=narrow),))

    def _collectives(self) -> Section:
        """Return collectives: messages, bytes per port, time on the link and exposed time."""
        shown = [quantity for group in _SENT for quantity in group]
        units = group_units(_SENT, self.sent)
        rows: list[Row] = [
            (*map(dim, ("", "pass", "collective", *(quantity.title for quantity in shown))),),
            ("", "", "", *(dim(unit) for _, unit in units)),
        ]
        for half, several in groupby(self.sent, key=lambda row: split_name(row)[0]):
            rows.append((bold(half),))
            for row in several:
                labels = (f"  {split_name(row)[1]}", PASSES[row["pass"]], row["operation"])
                rows.append((*labels, *cells(shown, units, [row])))
        for pass_ in self.passes:
            inside = [row for row in self.sent if row["pass"] == pass_]
            if inside:
                texts = ("sum", PASSES[pass_], "", *cells(shown, units, inside))
                rows.append((*map(bold, texts),))
        grid = Grid((*["left"] * 3, *["right"] * len(shown)), tuple(rows), heads=2)
        blocks: list[Block] = [ByWidth(SIDE_BY_SIDE, (grid,), (replace(grid, gap=1),))]
        if any("edge_collectives" in operator for operator in self.operators):
            blocks.append(
                dim("Blocks next to a pipeline transfer split their collectives; see --output.")
            )
        remark = "full arrays, and bytes through each port"
        return Section("Collectives", tuple(blocks), remark)

    def _parts(self) -> Section:
        """Sum the times of router, dispatch, experts and the other parts of a block with experts."""
        parts: dict[str, dict[str, Any]] = {}
        for one in self.operators:
            row = parts.setdefault(one["part"], {"computing": 0.0, "sending": 0.0})
            row["computing"] += sum(one["time"].values())
            row["sending"] += sum(sent["time"] for sent in one["collectives"])
        # Sorting is stable: parts keep their order, and "other" comes last.
        ordered = sorted(parts.items(), key=lambda one: one[0] == "other")
        rows = [{"part": part, **times} for part, times in ordered if any(times.values())]
        remark = "all passes, communication before overlap"
        return Section("Experts", (experts_table(rows, Digits()),), remark)

    def _sums(self) -> Section:
        """Sum the passes: computation, and exposed collectives."""
        times = {
            PASSES[pass_]: (
                sum(operator["time"][pass_] for operator in self.operators),
                sum(sent["exposed"] for sent in self.sent if sent["pass"] == pass_),
            )
            for pass_ in self.passes
        }
        busy, sent = (sum(column) for column in zip(*times.values(), strict=True))
        rows: list[Row] = [(*map(dim, ("", "computing", "exposed collectives", "together")),)]
        for title, (one, other) in times.items():
            rows.append((title, *seconds([one, other, one + other], busy + sent)))
        whole = ("sum", *seconds([busy, sent, busy + sent], busy + sent))
        rows.append((*map(bold, whole),))
        several = "kind" in self.operators[0]
        reported = "llm reports the mean block" if several else "as llm reports them"
        grid = Grid(("left", "right", "right", "right"), tuple(rows), heads=1)
        remark = f"one {kind_of(self.operators)} and microbatch, {reported} (block_*)"
        return Section("Sums", (grid,), remark)


def _experts(execution: Mapping[str, Any]) -> str:
    """Return the split of experts, if it differs from the split of other layers."""
    if not spreads_experts(execution):
        return ""
    return f", EP {execution.get('expert_par', 1):,}, ETP {expert_width(execution):,}"
