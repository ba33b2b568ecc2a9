"""Parts of the pipeline view about a block: its operators, their place on the roofline, and one operator."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from calculon.base.errors import CalculonError
from calculon.base.frozen import dataclass
from calculon.base.units import duration, scaled
from calculon.documents.charts.operator_chart import (
    WORK_COLORS,
    by_time,
    operator_chart,
    operator_time,
    whole_time,
)
from calculon.documents.layer_table import Layer, by_kind, kind_of, split_name
from calculon.documents.operator_page import PASS_WORDS, block_page
from calculon.documents.result import Result
from calculon.documents.roofline_chart import BOUND, drawn, roofline_chart
from calculon.estimate.operator_passes import OperatorPass
from calculon.estimate.operators import Block, block
from calculon.explore.answers import Answers
from calculon.explore.page_state import State
from calculon.explore.pipeline.operator_words import (
    kernel_words,
    product_words,
    rate_words,
)
from calculon.explore.view_part import ViewPart, ViewPartKind
from calculon.hardware.figures import figures_of, with_figures
from calculon.render.document import Cell, Line, Section, Styled, bold, dim, headed, numbers, spaced
from calculon.render.texts import counted, percent, seconds


@dataclass(frozen=True, slots=True)
class _ShownBlock:
    """The plan, the shown kind of block, its operators by time, and the selected operator.

    ``lacking`` is a note on a block or operator of the address that does not exist.
    """

    result: Result
    kinds: Sequence[Sequence[Layer]]
    kind: str
    operators: Sequence[Layer]
    passes: Sequence[OperatorPass]
    selected: str
    lacking: str = ""

    @property
    def names(self) -> dict[str, str]:
        """Labels of operators by name."""
        return {one["name"]: _name(one) for one in self.operators}


def _name(operator: Layer) -> str:
    """Return the label of an operator, including its half of the block."""
    return " ".join(split_name(operator)).replace("_", " ")


def _seen(state: State, answers: Answers) -> _ShownBlock | None:
    """Return the shown block; None if the plan cannot run."""
    result = answers.plan(state).brief
    if result is None:
        return None
    kinds = {rows[0].get("kind", ""): rows for rows in by_kind(answers.block(state).operators)}
    asked, lacking = state.option("block"), ""
    if asked and asked not in kinds:
        lacking = f"There is no kind of block called {asked!r}."
    # By default, show the kind of block that occurs most often.
    most = max(kinds, key=lambda kind: kinds[kind][0].get("blocks", 1))
    kind = asked if asked in kinds else most
    passes = [one for one in answers.operators(state) if one.kind == kind]
    timed: dict[str, float] = {}
    for one in passes:
        timed[one.operator] = timed.get(one.operator, 0.0) + one.time
    wanted = state.option("operator")
    if wanted and wanted not in timed:
        lacking = f"This block has no compute operator called {wanted!r}."
    selected = wanted if wanted in timed else max(timed, key=timed.__getitem__)
    every = list(kinds.values())
    return _ShownBlock(result, every, kind, by_time(kinds[kind]), passes, selected, lacking)


def _operator_link(seen: _ShownBlock, links: Mapping[str, str], name: str) -> Styled:
    """Return an operator's label with its link, highlighted if it is selected."""
    style = "current" if name == seen.selected else ""
    return Styled(seen.names[name], style, link=links[name])


def _links(state: State, seen: _ShownBlock) -> dict[str, str]:
    """Return the address of each operator; communication operators link to the plan's traffic."""
    timed = {one.operator for one in seen.passes}
    traffic = f"{state.link(view='plan')}#part-traffic"
    return {
        one["name"]: state.with_options(operator=one["name"]) if one["name"] in timed else traffic
        for one in seen.operators
    }


def _block(state: State, answers: Answers) -> ViewPart | None:
    """Return the time of a block by operator."""
    seen = _seen(state, answers)
    if seen is None:
        return None
    works = [
        work for work in WORK_COLORS if any(operator_time(one, work) for one in seen.operators)
    ]
    total, links = sum(map(whole_time, seen.operators)), _links(state, seen)
    first = seen.operators[0]
    sums = _dashed(
        [sum(operator_time(one, work) for one in seen.operators) for work in works], total
    )
    whole = ("together", *sums, *seconds([total], total))
    rows = (
        (
            _operator_link(seen, links, one["name"]),
            *_dashed([operator_time(one, work) for work in works], total),
            *seconds([whole_time(one)], total),
            percent(whole_time(one) / total),
        )
        for one in seen.operators
    )
    titles = ("operator", *(PASS_WORDS.get(work, work) for work in works), "together", "share")
    operators = numbers(titles, (*rows, (*map(bold, whole),)))
    words = ["recompute: the forward pass once more"] if "recompute" in titles else []
    if any(split_name(one)[1] in ("F", "G") for one in seen.operators):
        words.append("F and G: the collectives before and after tensor-parallel products")
    largest = (
        f"{seen.names[first['name']]} takes the largest part: {percent(whole_time(first) / total)}"
    )
    names = [seen.names[one["name"]] for one in seen.operators]
    return ViewPart(
        title=f"One {kind_of(seen.operators)}, by operator",
        blocks=(
            Styled(seen.lacking, "alert"),
            _kinds(state, seen),
            f"A microbatch takes {whole[-1]} in a block. {largest}. Click an operator for details below.",
            dim(f"{'; '.join(words)}." if words else ""),
            Section("Table of operators", (operators,)),
            Section("As calculon block prints it", (block_page(answers.block(state)),)),
        ),
        chart=operator_chart(
            seen.result, seen.operators, names, [links[one["name"]] for one in seen.operators]
        ),
        summary=f"Time of each operator of a block by pass, the longest first: {', '.join(names[:3])}. "
        "The table of operators has all of them.",
        names=_apart(answers.block(state)),
    )


def _apart(shown_block: Block) -> dict[str, str]:
    """Return the labels of operator names without their half of the block."""
    names = (split_name(one)[1] for one in shown_block.operators)
    return {name: name.replace("_", " ") for name in names if "_" in name}


def _kinds(state: State, seen: _ShownBlock) -> Line:
    """Return the kinds of block with links; empty if there is only one kind."""
    kinds = {rows[0]["kind"]: kind_of(rows) for rows in seen.kinds if "kind" in rows[0]}
    return spaced(
        Styled(
            text,
            "current" * (kind == seen.kind),
            link=state.with_options(block=kind, operator=""),
        )
        for kind, text in kinds.items()
    )


def _dashed(times: Sequence[float], largest: float) -> list[str]:
    """Format times; exact zeros become dashes."""
    return [
        text if time else "-" for time, text in zip(times, seconds(times, largest), strict=True)
    ]


def _roofline(state: State, answers: Answers) -> ViewPart | None:
    """Return the operators on the roofline."""
    seen = _seen(state, answers)
    if seen is None:
        return None
    links, shown = _links(state, seen), drawn(seen.passes)
    total = sum(one.time for one in seen.passes)
    by_bound: dict[str, float] = {}
    for one in seen.passes:
        by_bound[one.bound] = by_bound.get(one.bound, 0.0) + one.time
    bounds = ", ".join(
        f"{BOUND[bound]} ({percent(time / total)})"
        for bound, time in sorted(by_bound.items(), key=lambda one: -one[1])
    )
    roof = percent(sum(one.at_roof for one in seen.passes) / total)
    left = counted(len(seen.passes) - len(shown), "other")
    share = percent(sum(one.time for one in seen.passes if one not in shown) / total)
    points = headed(
        ("left", "left", *["right"] * 4, "left"),
        ("operator", "pass", *_FIGURES),
        (
            (_operator_link(seen, links, one.operator), PASS_WORDS[one.work], *_figures(one))
            for one in sorted(shown, key=lambda one: -one.time)
        ),
    )
    return ViewPart(
        title="Operators on the roofline",
        blocks=(
            f"The compute time is bound by {bounds}. At the roofline, all of it would take {roof} of the time.",
            dim(
                "The size of a point is its share of the time: circles are products, diamonds attention, squares the "
                f"vector engine. {left} only move data or only compute ({share} of the time) and are not drawn."
            ),
            Section("Table of points", (points,)),
        ),
        chart=roofline_chart(seen.result, seen.passes, seen.names, links, seen.selected),
        summary="Arithmetic intensity of each pass of an operator against the rate that it reaches, below the roofs "
        "of memory and engines. The table of points has the same figures.",
    )


_FIGURES = ("FLOP/byte", "reached", "of the roofline", "time", "bound by")
"""Column titles for the figures of a pass."""


def _figures(one: OperatorPass) -> tuple[str, ...]:
    """Return intensity, rate, share of the roof, time and bound of a pass as text."""
    intensity = "-" if one.intensity is None else f"{one.intensity:,.1f}"
    rate = scaled(one.achieved, "FLOP/s", digits=1)
    return intensity, rate, percent(one.share_of_roof), duration(one.time), BOUND[one.bound]


def _operator(state: State, answers: Answers) -> ViewPart | None:
    """Return one operator in words, and the changes that would speed it up."""
    seen = _seen(state, answers)
    if seen is None:
        return None
    total = sum(one.time for one in seen.passes)
    passes = [one for one in seen.passes if one.operator == seen.selected]
    time = sum(one.time for one in passes)
    rates = "; ".join(dict.fromkeys(rate_words(one.rate) for one in passes))
    shaped = any(product_words(one) for one in passes)
    titles = ("pass", *["shape"] * shaped, "arithmetic", "traffic", *_FIGURES)
    works = headed(
        (*["left"] * (1 + shaped), *["right"] * 6, "left"),
        titles,
        ((PASS_WORDS[one.work], *[product_words(one)] * shaped, *_work(one)) for one in passes),
    )
    titles = ("", "new time", "saved", "saved of the block")
    faster = numbers(titles, _faster(state, answers, seen, passes))
    kernel, roof = kernel_words(passes[0]), duration(sum(one.at_roof for one in passes))
    both = (
        "overlap: the longer one determines the time"
        if answers.block(state).system.mode == "roofline"
        else "run one after the other: their times add up"
    )
    return ViewPart(
        title=f"Operator {seen.names[seen.selected]}",
        blocks=(
            f"{kernel.capitalize()}: {duration(time)} of a microbatch, {percent(time / total)} of the computing time "
            f"of the block. At the roofline it would take {roof}.",
            works,
            f"Its rate is determined by {rates}. Arithmetic and traffic {both}.",
            Section("What would make it faster", (faster,), opened=True),
        ),
    )


def _work(one: OperatorPass) -> tuple[str, ...]:
    """Return arithmetic, traffic and figures of a pass as text."""
    flops = scaled(one.flops, "FLOP", digits=2) if one.flops else "-"
    moved = scaled(one.moved, "B", binary=True, digits=1) if one.moved else "-"
    return flops, moved, *_figures(one)


def _faster(
    state: State, answers: Answers, seen: _ShownBlock, passes: Sequence[OperatorPass]
) -> Iterator[tuple[Cell, ...]]:
    """Yield the savings from a faster part of the machine and from a larger microbatch."""
    found, own = answers.block(state), answers.stated(state)
    time, whole = sum(one.time for one in passes), sum(map(whole_time, seen.operators))
    for words, path, value in _figures_of(found, passes):
        other = answers.cached(("block", state.key, path), partial(_on, found, {path: 2 * value}))
        link = state.link(plan=own, machine={**state.machine, path: 2 * value})
        yield _saved(words, link, _times(other, seen, 1), (time, whole))
    # Twice the microbatch halves the number of passes; times are compared per original microbatch.
    more = 2 * found.execution.microbatch_size
    try:
        other = answers.cached(("block", state.key, more), partial(_with_microbatch, found, more))
    except CalculonError:
        return
    larger = {**own, "microbatch_size": more}
    link = state.with_plan(larger)
    words = f"microbatches of {counted(more, 'sequence')}, for as many tokens"
    if answers.plan(replace(state, plan=larger)).estimate is None:
        words += "; such a plan cannot run here"
    yield _saved(words, link, _times(other, seen, 2), (time, whole))


def _on(shown_block: Block, figures: Mapping[str, float]) -> Block:
    """Return the block on a machine with changed figures."""
    system = with_figures(shown_block.system, figures)
    return block(shown_block.model, shown_block.execution, system, edition=shown_block.edition)


def _with_microbatch(shown_block: Block, size: int) -> Block:
    """Return the block with another microbatch size."""
    execution = replace(shown_block.execution, microbatch_size=size)
    return block(shown_block.model, execution, shown_block.system, edition=shown_block.edition)


def _figures_of(
    shown_block: Block, passes: Sequence[OperatorPass]
) -> Iterator[tuple[str, str, float]]:
    """Yield label, path and value of the machine figures that may bound an operator."""
    known = figures_of(shown_block.system)
    engines = {("vector" if one.engine == "vector" else "matrix", one.datatype) for one in passes}
    for engine, datatype in sorted(engines):
        paths = (f"{engine}.{datatype}.tflops", f"ext.{engine}.{datatype}.tflops")
        path = next(one for one in paths if one in known)
        yield f"twice the peak of the {engine} engine in {datatype}", path, known[path].value
    path = "mem1.GBps"
    yield "twice the memory bandwidth", path, known[path].value


def _times(other: Block, seen: _ShownBlock, times: int) -> tuple[float, float]:
    """Return the seconds of the selected operator and of the block, per microbatch of the plan."""
    inside = [one for one in other.operators if one.get("kind", "") == seen.kind]
    computing = sum(sum(one["time"].values()) for one in inside if one["name"] == seen.selected)
    return computing / times, sum(map(whole_time, inside)) / times


def _saved(
    words: str, link: str, after: tuple[float, float], before: tuple[float, float]
) -> tuple[Cell, ...]:
    """Return a row with the savings of a change for the operator and the block."""
    shares = [1 - one / other for one, other in zip(after, before, strict=True)]
    texts = [percent(share) if share >= 0 else f"-{percent(-share)}" for share in shares]
    return Styled(words, link=link), duration(after[0]), *texts


BLOCK_PARTS = (
    ViewPartKind(name="block", title="One block, by operator", make=_block, later=True),
    ViewPartKind(name="roofline", title="Operators on the roofline", make=_roofline, later=True),
    ViewPartKind(name="operator", title="An operator", make=_operator, later=True),
)
"""The parts, from the block to one operator."""
