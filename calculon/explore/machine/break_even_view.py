"""What else would do as much as a change of the machine: each other figure alone, with the same plan."""

from calculon.advise.elasticities import STEADY
from calculon.documents.sensitivity_page import break_even_section
from calculon.explore.answers import Answers
from calculon.explore.machine.both_machines import same_plan, time_of
from calculon.explore.machine.knobs import labels
from calculon.explore.page_state import State
from calculon.explore.part import Part

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
    section = break_even_section(
        answers.as_fast_as_changed(state, before),
        labels(before.system),
        lambda path, value: state.link(machine={path: float(f"{value:.6g}")}),
    )
    said = "With the same plan, one of these figures alone makes a step as long as the changed machine does."
    return Part(title=TITLE, blocks=(said, *section.blocks[1:]))


def _said(text: str) -> Part:
    return Part(title=TITLE, blocks=(text,))
