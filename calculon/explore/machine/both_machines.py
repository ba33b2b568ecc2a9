"""A plan on the machine of the file and on the changed one, and the best plan of each, side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from calculon.advise.in_words import change_in_words
from calculon.base.frozen import dataclass
from calculon.documents.page import PARTS
from calculon.documents.result import ENDS, Result
from calculon.documents.sensitivity_page import change
from calculon.editions import EDITIONS
from calculon.estimate.estimate import Estimate
from calculon.explore.answers import Answers, Shown
from calculon.explore.page_state import State
from calculon.plan.plan import NAMES
from calculon.render.digits import Digits

NOTHING = "-"


@dataclass(frozen=True, slots=True)
class Both:
    """What is shown of the machine as its file has it, and of the changed one."""

    before: Shown
    after: Shown


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure of a plan in words, and how far it is from that of the first plan.

    Attributes
    ----------
    text : str
        Its value.
    change : str
        How far it is from the first one; empty of the first one, and where that says nothing.
    better : bool or None
        Whether the change is one for the better; None of one that is neither.
    """

    text: str
    change: str = ""
    better: bool | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """A figure of several plans: its name, and a cell for each."""

    name: str
    cells: tuple[Cell, ...]


def same_plan(state: State, answers: Answers) -> Both:
    """Return the plan of a page on both machines: one's own, or the best on the machine of the file.

    Where nothing fits on that machine, the other is the best plan of the changed one.
    """
    before = answers.plan(replace(state, machine={}))
    if not state.machine:
        return Both(before, before)
    if state.plan or before.estimate is None:
        return Both(before, answers.plan(state))
    kept = replace(state, plan=answers.own(replace(state, machine={}), before.fields))
    return Both(before, answers.plan(kept))


def best_plans(state: State, answers: Answers) -> Both:
    """Return the best plan of each machine."""
    asked = replace(state, plan={})
    return Both(answers.plan(replace(asked, machine={})), answers.plan(asked))


def digits_of(one: Estimate) -> Digits:
    """Return the digits of the numbers of an estimate: those of its page."""
    return _result(one).digits


def _result(one: Estimate) -> Result:
    """Return what of the result of an estimate is known without its groups and stages, which take as long as itself."""
    belief = one.belief
    ends = None if belief is None else {name: getattr(belief, name) for name in ENDS}
    fields = {name: getattr(one.execution, name) for name in NAMES}
    return Result(stats=one.stats, edition=one.edition, execution=fields, interval=ends)


def usable_memory(one: Estimate) -> float:
    """Return how many bytes of tier 1 plans get on the machine of an estimate."""
    return EDITIONS[one.edition].machine(one.system).usable[0]


def step_text(one: Estimate) -> str:
    """Write the time of a step as the page of the estimate does."""
    return digits_of(one).duration(time_of(one))


def time_of(one: Estimate) -> float:
    """Return the time of a step in seconds."""
    return one.stats["total_time"] or 0.0


def readings(*plans: Shown) -> list[Reading]:
    """Return the figures that people look at first, of each plan; nothing where none can run."""
    columns = [{} if plan.estimate is None else dict(_figures(plan.estimate)) for plan in plans]
    names = next((column for column in columns if column), {})
    return [
        Reading(name, tuple(_cells([column.get(name) for column in columns]))) for name in names
    ]


_Figure = tuple[str, float, bool | None]
"""A value in words, the value, and whether more is better."""


def _figures(one: Estimate) -> Iterator[tuple[str, _Figure]]:
    """Yield what is shown of a plan by name."""
    result = _result(one)
    digits, time = result.digits, time_of(one)
    yield "Time of a step", (digits.duration(time), time, False)
    yield f"MFU, {result.masking}", (digits.efficiency(result.mfu), result.mfu, True)
    tokens = one.execution.batch_size * (one.execution.seq_length or one.model.seq_size) / time
    yield "Tokens per second", (digits.rate(tokens), tokens, True)
    need, usable = result.value("proc_mem_tier1_cap_req"), usable_memory(one)
    yield "Memory", (f"{digits.gib(need)} of {digits.gib(usable)}", need, None)


def _cells(figures: Sequence[_Figure | None]) -> Iterator[Cell]:
    """Yield the cells of a row; each is compared with the first."""
    first = figures[0]
    for number, one in enumerate(figures):
        if one is None:
            yield Cell(NOTHING)
        elif first is None or not number:
            yield Cell(one[0])
        else:
            said = change(one[1], first[1])
            same = said == "0"
            better = None if same or one[2] is None else (one[1] > first[1]) is one[2]
            yield Cell(one[0], "=" if same else said, better)


def parts_that_change(*plans: Shown) -> list[Reading]:
    """Return the parts of the time that differ between plans, the largest difference first; nothing where one fails."""
    found = [_result(plan.estimate) for plan in plans if plan.estimate is not None]
    if len(found) < len(plans):
        return []
    first, whole = found[0], found[0].value("total_time")
    times = [one.times() for one in found]

    def moved(name: str) -> float:
        """Return how far a part goes from that of the first plan."""
        return max(abs(one[name] - times[0][name]) for one in times)

    names = sorted((name for name in PARTS if moved(name) > LEAST * whole), key=moved, reverse=True)
    rows = []
    for name in names:
        values = [one[name] for one in times]
        texts = first.digits.seconds(values, whole)
        figures = [(text, value, False) for text, value in zip(texts, values, strict=True)]
        rows.append(Reading(PARTS[name][0], tuple(_cells(figures))))
    return rows


LEAST = 1e-3
"""Share of a step from which on the difference of a part is told."""


def faster_in_words(before: Estimate, after: Estimate, other: str = "") -> str:
    """Say how much faster the second plan is, as a share of the time of the first, which `other` names."""
    said = change(time_of(after), time_of(before))
    if said == "0":
        return f"as fast as {other}" if other else "as fast"
    than = f" than {other}" if other else ""
    return f"{said.lstrip('+-')} {'faster' if said.startswith('-') else 'slower'}{than}"


def moved_in_words(state: State, answers: Answers, both: Both) -> str:
    """Say what the second plan does otherwise than the first; empty where they are the same."""
    if both.before.estimate is None or both.after.estimate is None:
        return ""
    before, after = both.before.fields, both.after.fields
    stated = [answers.own(state, one) for one in (before, after)]
    names = [
        name for name in dict.fromkeys((*stated[0], *stated[1])) if before[name] != after[name]
    ]
    return change_in_words(before, after, names) if names else ""
