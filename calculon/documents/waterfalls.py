"""Waterfalls from the first of several results to each of the others."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.named_values import PUBLISHED
from calculon.documents.result import Result
from calculon.render.digits import WITHOUT_INTERVAL, Digits
from calculon.render.document import Picture, Section

if TYPE_CHECKING:
    from calculon.advise.waterfall import Point, Waterfall
    from calculon.documents.charts.waterfall_chart import WaterfallData
    from calculon.estimate.estimate import Estimate

LEAST = 2
"""Minimum number of results: the user's plan, and a better one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated(Result):
    """Result with its estimate."""

    estimate: "Estimate"

    @classmethod
    def of(cls, result: Result, estimate: "Estimate") -> "Estimated":
        """Attach an estimate to a result."""
        # Copied field by field, because asdict would also convert nested records.
        members = {field.name: getattr(result, field.name) for field in fields(Result)}
        return cls(**members, estimate=estimate)


def waterfall_of(mine: Result, best: Result) -> dict[str, Any] | None:
    """Return the waterfall between two results as plain data; None if they do not answer the same question."""
    from calculon.advise.waterfall import waterfall

    if not (isinstance(mine, Estimated) and isinstance(best, Estimated)):
        return None
    try:
        return waterfall(mine.estimate, best.estimate).to_dict()
    except SpecError:
        return None


def labeled_waterfalls(results: Sequence[Result]) -> "list[WaterfallData]":
    """Return the waterfalls of ``calculon plot waterfall``: from the first result to each of the others.

    Raises:
        SpecError: For fewer than two results, for results that cannot be estimated again, for other models or systems,
            and for the same plan.
    """
    from calculon.advise.waterfall import waterfall

    if len(results) < LEAST:
        wanted = f"{LEAST} results or more: a plan, and the plans it changes into"
        raise SpecError("plot", Problem("", wanted, str(len(results))))
    known = [one for one in results if isinstance(one, Estimated)]
    for one in results:
        if one not in known:
            wanted = "an execution whose model and system are known"
            hint = "give APP,EXE,SYS, or for the files of searches --model and --system"
            raise SpecError(one.label, Problem("", wanted, "statistics alone", hint))
    mine, *others = known
    pairs = [(best, waterfall(mine.estimate, best.estimate).to_dict()) for best in others]
    for best, text in pairs:
        if not text["steps"]:
            wanted = f"another plan than {mine.label}"
            raise SpecError(best.label, Problem("", wanted, "the same plan"))
    return [labeled_waterfall(mine, best, text) for best, text in pairs]


def labeled_waterfall(mine: Result, best: Result, data: dict[str, Any]) -> "WaterfallData":
    """Add the labels of its chart to a waterfall between two results."""
    from calculon.documents.charts.waterfall_chart import WaterfallData
    from calculon.documents.waterfall_section import digits_of_differences

    title = best.title if mine.title == best.title else f"{mine.title}, to {best.title}"
    return WaterfallData(
        waterfall=data,
        names=(mine.label, best.label),
        title=f"{title}: one change at a time",
        terms=mine.terms,
        digits=digits_of_differences((mine.digits, best.digits)),
        capacity=None if best.capacities is None else best.capacities[0],
    )


def waterfall_data(waterfall: "Waterfall") -> "WaterfallData":
    """Add the labels of its chart to a waterfall between two estimated plans."""
    from calculon.documents.charts.waterfall_chart import WaterfallData
    from calculon.documents.waterfall_section import NAMES, digits_of_differences
    from calculon.editions import find_edition

    best = waterfall.best.execution
    mode = "Training" if best["training"] else "Inference"
    machine = f"{best['num_procs']:,} x {waterfall.system.name}"
    return WaterfallData(
        waterfall=waterfall.to_dict(),
        names=NAMES,
        title=f"{mode} of {waterfall.model.name} on {machine}: one change at a time",
        terms=waterfall.edition
        if waterfall.edition == PUBLISHED
        else f"{waterfall.edition}, {best['preset']}",
        digits=digits_of_differences(
            _digits(waterfall, one) for one in (waterfall.mine, waterfall.best)
        ),
        capacity=find_edition(waterfall.edition).machine(waterfall.system).usable[0],
    )


def _digits(waterfall: "Waterfall", plan: "Point") -> Digits:
    """Return the digits of a plan's time, even if the plan exceeds the memory."""
    from calculon.documents.estimate_result import result_of
    from calculon.estimate.estimate import estimate

    if waterfall.edition == PUBLISHED:
        return Digits()
    try:
        return result_of(estimate(waterfall.model, plan.execution, waterfall.system)).digits
    # The user's plan may not fit; its time is known all the same.
    except Infeasible:
        return Digits(WITHOUT_INTERVAL)


def comparable(results: Sequence[Result]) -> list[tuple[Result, dict[str, Any]]]:
    """Return the results that have a waterfall from the first, with it."""
    mine, *others = results
    found = ((best, waterfall_of(mine, best)) for best in others)
    return [(best, text) for best, text in found if text is not None and text["steps"]]


def drawn(results: Sequence[Result]) -> list[Section]:
    """Return the changes from the first result to each other one, with a chart."""
    from calculon.documents.charts.waterfall_chart import waterfall
    from calculon.documents.waterfall_section import waterfall_section

    result = []
    for best, text in comparable(results):
        data = labeled_waterfall(results[0], best, text)
        section = waterfall_section(text, data.digits, data.names)
        picture = Picture(waterfall([data]), section.title)
        result.append(replace(section, blocks=(picture, *section.blocks)))
    return result
