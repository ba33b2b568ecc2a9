"""Comparison of a plan, and of the best plans, on the unchanged and the changed machine."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from calculon.advise.in_words import change_in_words
from calculon.base.frozen import dataclass
from calculon.documents.comparison import Comparison
from calculon.documents.comparison_page import comparison_page
from calculon.documents.estimate_result import result_of
from calculon.documents.result import Result
from calculon.documents.sensitivity_page import change
from calculon.editions import EDITIONS
from calculon.estimate.estimate import Estimate
from calculon.explore.answers import Answers, DisplayedPlan
from calculon.explore.page_state import State
from calculon.render.digits import Digits
from calculon.render.document import Block, Grid, Line, Section, Styled


@dataclass(frozen=True, slots=True)
class Both:
    """Plans on the unchanged and on the changed machine."""

    before: DisplayedPlan
    after: DisplayedPlan


def same_plan(state: State, answers: Answers) -> Both:
    """Return the page's plan on both machines: the user's plan, or the best plan of the unchanged machine.

    If nothing fits on the unchanged machine, the second plan is the best plan of the changed one.
    """
    before = answers.plan(replace(state, machine={}))
    if not state.machine:
        return Both(before, before)
    if state.plan or before.estimate is None:
        return Both(before, answers.plan(state))
    # State the old plan's fields explicitly, so that the changed machine does not search a new one.
    kept = replace(state, plan=answers.stated_fields(replace(state, machine={}), before.fields))
    return Both(before, answers.plan(kept))


def best_plans(state: State, answers: Answers) -> Both:
    """Return the best plan of each machine."""
    asked = replace(state, plan={})
    return Both(answers.plan(replace(asked, machine={})), answers.plan(asked))


def digits_of(one: Estimate) -> Digits:
    """Return the number format of an estimate's page."""
    return result_of(one, details=False).digits


def usable_memory(one: Estimate) -> float:
    """Return the usable bytes of tier-1 memory on the machine of an estimate."""
    return EDITIONS[one.edition].machine(one.system).usable[0]


def step_text(one: Estimate) -> str:
    """Format the step time as on the page of the estimate."""
    return digits_of(one).duration(time_of(one))


def time_of(one: Estimate) -> float:
    """Return the step time in seconds."""
    return one.stats["total_time"] or 0.0


def readings(plans: Mapping[str, DisplayedPlan]) -> tuple[Block, ...]:
    """Return the key figures of each plan, followed by a closed section that compares all parts.

    Empty if no plan can run.
    """
    results = {
        name: shown.brief and replace(shown.brief, label=name) for name, shown in plans.items()
    }
    columns = [{} if one is None else _figures(one) for one in results.values()]
    names = next(filter(None, columns), {})
    rows = [(name, *_cells([column.get(name) for column in columns])) for name in names]
    if not rows:
        return ()
    heads = ("", *plans) if len(plans) > 1 else ()
    grid = Grid(("left",) * (len(plans) + 1), (heads, *rows), heads=1)
    known = [one for one in results.values() if one is not None]
    if len(known) < 2:
        return (grid,)
    whole = comparison_page(Comparison(known), statistics=False)
    return grid, Section("All parts of time and memory", (whole,))


_Figure = tuple[str, float, bool | None]
"""A formatted value, the value, and True if larger is better; None if neither direction is."""


def _figures(one: Result) -> dict[str, _Figure]:
    """Return the figures of a plan by label."""
    digits, time, tokens = one.digits, one.value("total_time"), one.tokens_per_second or 0.0
    need, (usable, _) = one.value("proc_mem_tier1_cap_req"), one.capacities or (0.0, 0.0)
    return {
        "Time of a step": (digits.duration(time), time, False),
        f"MFU, {one.masking}": (digits.efficiency(one.mfu), one.mfu, True),
        "Tokens per second": (digits.rate(tokens), tokens, True),
        "Memory": (f"{digits.gib(need)} of {digits.gib(usable)}", need, None),
    }


def _cells(figures: Sequence[_Figure | None]) -> Iterator[Line]:
    """Yield the cells of a row; each is compared with the first."""
    first = figures[0]
    for number, one in enumerate(figures):
        if one is None:
            yield "-"
        elif first is None or not number:
            yield one[0]
        else:
            said = change(one[1], first[1])
            neutral = said == "0" or one[2] is None
            style = "dim" if neutral else "gain" if (one[1] > first[1]) is one[2] else "loss"
            yield f"{one[0]} ", Styled("=" if said == "0" else said, style)


def faster_in_words(before: Estimate, after: Estimate, other: str = "") -> str:
    """Describe how much faster the second plan is, relative to the first one's time; `other` names the first."""
    said = change(time_of(after), time_of(before))
    if said == "0":
        return f"as fast as {other}" if other else "as fast"
    than = f" than {other}" if other else ""
    return f"{said.lstrip('+-')} {'faster' if said.startswith('-') else 'slower'}{than}"


def moved_in_words(state: State, answers: Answers, both: Both) -> str:
    """Describe how the second plan differs from the first; empty if it does not."""
    if both.before.estimate is None or both.after.estimate is None:
        return ""
    before, after = both.before.fields, both.after.fields
    stated = [answers.stated_fields(state, one) for one in (before, after)]
    names = [
        name for name in dict.fromkeys((*stated[0], *stated[1])) if before[name] != after[name]
    ]
    return change_in_words(before, after, names) if names else ""
