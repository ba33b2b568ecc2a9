"""What else would do as much as a change of the machine: each other figure alone, with the same plan."""

from calculon.advise.break_even import FURTHEST, BreakEven
from calculon.advise.elasticities import STEADY
from calculon.documents.sensitivity_page import stated
from calculon.explore.answers import Answers
from calculon.explore.machine.both_machines import same_plan, time_of
from calculon.explore.machine.knobs import labels, number
from calculon.explore.page_state import State
from calculon.explore.part import Part
from calculon.render.document import Line, Styled, dim, headed

TITLE = "What else would do as much"


def break_even(state: State, answers: Answers) -> Part:
    """Compare the change of the machine with changes of single figures."""
    both = same_plan(state, answers)
    before, after = both.before.estimate, both.after.estimate
    if not state.machine:
        return _said(
            "Change the machine, and other figures stand here that would do as much alone."
        )
    if before is None or after is None:
        return _said("The plan does not run on both machines: there is nothing to compare.")
    if abs(time_of(after) / time_of(before) - 1) < STEADY:
        return _said("The change makes the same plan neither faster nor slower.")
    found = answers.break_evens(state, before)
    names = labels(before.system)
    rows = [_row(state, one, names) for one in found if one.value is not None]
    never = ", ".join(
        names.get(one.figure.path, one.figure.path) for one in found if one.value is None
    )
    heads = ("figure", "in the system file", "alone at", "", "")
    return Part(
        title=TITLE,
        blocks=(
            "With the same plan, one of these figures alone makes a step as long as the changed machine does.",
            headed(("left", "right", "right", "right", "left"), heads, rows) if rows else "",
            dim(f"Never within 1/{FURTHEST} to {FURTHEST} times: {never}.") if never else "",
        ),
    )


def _said(text: str) -> Part:
    return Part(title=TITLE, blocks=(text,))


def _row(state: State, one: BreakEven, names: dict[str, str]) -> tuple[Line, ...]:
    """Return a figure in words, with a link to the page on which it alone is changed."""
    path, value, unit = one.figure.path, one.value or 0.0, one.figure.unit
    name, short = names.get(path, path), float(f"{value:.6g}")
    link = state.link(machine={path: short})
    return (
        name,
        stated(one.figure.value, unit),
        stated(value, unit),
        f"{one.factor:,.3g} x",
        Styled("Try it", link=link, hint=f"{name} at {number(short)}"),
    )
