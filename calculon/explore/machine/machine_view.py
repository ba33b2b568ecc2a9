"""The machine view: sliders for its figures, and their effect on the shown and the best plan."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from calculon.advise.in_words import plan_in_words
from calculon.base.units import GIB
from calculon.declarations.named_values import product_type
from calculon.declarations.recipes import NO_RECIPE
from calculon.documents.sensitivity_page import stated
from calculon.explore.answers import AMPLE, Answers, DisplayedPlan
from calculon.explore.machine.both_machines import (
    Both,
    best_plans,
    digits_of,
    faster_in_words,
    moved_in_words,
    readings,
    same_plan,
    step_text,
    usable_memory,
)
from calculon.explore.machine.capacity_view import capacity, capacity_text
from calculon.explore.machine.effects_view import EVEN, break_even, effects
from calculon.explore.machine.machine_controls import (
    CAPACITY,
    Slider,
    changes_in_words,
    field_of,
    figure_labels,
    found_by,
    others,
    sliders,
)
from calculon.explore.page_state import State
from calculon.explore.request_tracking import Pending
from calculon.explore.view_part import ViewPart, ViewPartKind, html
from calculon.hardware.system import System
from calculon.render.document import Block, Grid, Line, Styled, bold, dim

MOST = 24
"""Maximum number of listed figures without a slider."""


def _in_file(state: State, answers: Answers) -> System:
    return answers.system(replace(state, machine={}))


def _without(state: State, path: str) -> str:
    """Return the address of the page with one figure reset to the value in the file."""
    return state.link(machine={name: one for name, one in state.machine.items() if name != path})


def _changed(state: State, answers: Answers) -> ViewPart | None:
    """Return the machine changes, for the other views."""
    if not state.machine:
        return None
    what = Styled("Effect", link=state.link(view="machine"))
    return ViewPart(title="", blocks=((*_changes(state, answers), what),))


def _changes(state: State, answers: Answers) -> Iterator[str | Styled]:
    """Yield the changes of the machine, with links that reset them."""
    changes = changes_in_words(_in_file(state, answers), answers.figures(state), state.machine)
    yield bold("Machine changed: ")
    for path, name, values in changes:
        hint = f"reset {name} to the value in the file"
        yield f"{name} {values} "
        yield Styled("reset", link=_without(state, path), hint=hint)
        yield "; " if len(changes) > 1 else " "
    if len(changes) > 1:
        yield Styled("Reset all", link=state.link(machine={}))
        yield " "


CHANGED_MACHINE = ViewPartKind(name="machine-changed", title="", make=_changed)
"""Part of every other view; the machine view lists the changes below its sliders."""


def _machine(state: State, answers: Answers) -> ViewPart | None:
    """Return the sliders of the machine, with their effect on the plan."""
    system, both = _in_file(state, answers), same_plan(state, answers)
    known = both.before.estimate or both.after.estimate
    figures = answers.figures(state)
    arithmetic = _arithmetic(state, answers) if known is None else known.execution.matmul_type
    shown = sliders(system, figures, state.machine, arithmetic)
    rest = others(figures, state.machine, shown)
    names = figure_labels(system, figures)
    listed = found_by(rest, state.option("figures"), names)
    plans = _columns(state, answers, both)
    controls = html(
        "machine.html",
        sliders=[(one, _without(state, one.path)) for one in shown],
        spoken=_spoken([*plans.values()], _misfit(state, answers, both)),
    )
    figures_form = html(
        "machine_figures.html",
        state=state,
        others=[
            (one, value, field_of(one, value), stated(one.value, one.unit))
            for one in listed[:MOST]
            for value in [state.machine.get(one.path, one.value)]
        ],
        names=names,
        left=len(listed) - MOST,
        count=len(rest),
    )
    return ViewPart(
        title="The machine",
        blocks=(
            controls,
            tuple(_changes(state, answers)) if state.machine else _example(state, shown),
            *_compared(plans),
            ""
            if known is None
            else dim(f"{_whose(state, plans)}: {plan_in_words(known.execution)}"),
            figures_form,
        ),
    )


def _compared(plans: Mapping[str, DisplayedPlan]) -> Iterator[Block]:
    """Yield the problems of infeasible plans, unless all are, and the figures of the feasible ones."""
    figures = readings(plans)
    for name, plan in plans.items():
        if plan.problem and figures:
            yield Styled(f"{name.capitalize()}: {plan.problem}", "loss")
    yield from figures


def _whose(state: State, plans: Mapping[str, DisplayedPlan]) -> str:
    if state.plan:
        return "Your plan"
    return "The best plan of the machine in the file" if len(plans) > 1 else "The best plan"


def _arithmetic(state: State, answers: Answers) -> str:
    """Return the datatype of products requested by the question and the user's plan, for infeasible plans."""
    asked, shown = dict(answers.question(state).arithmetic), answers.plan(state)
    if state.plan and shown.legal:
        asked |= shown.fields
    return product_type(
        asked["datatype"], asked.get("matmul_dtype", "same"), asked.get("fp8_recipe", NO_RECIPE)
    )


def _columns(state: State, answers: Answers, both: Both) -> dict[str, DisplayedPlan]:
    """Return the plans to compare; without a user's plan also the best plan of the changed machine."""
    if not state.machine:
        return {"now": both.after}
    if both.before.estimate is None:
        return {"system file": both.before, "changed": both.after}
    columns = {"system file": both.before, "same plan": both.after}
    best = None if state.plan else _best_so_far(state, answers)
    if best is not None and best.fields != both.after.fields:
        columns["best plan"] = best
    return columns


def _best_so_far(state: State, answers: Answers) -> DisplayedPlan | None:
    """Return the best plan; None during the search, so that the sliders never wait."""
    try:
        return answers.plan(state)
    except Pending:
        return None


def _misfit(state: State, answers: Answers, both: Both) -> str:
    """Describe the memory that the shown plan lacks on the changed machine; empty if memory is not the reason."""
    fields = both.after.fields or both.before.fields
    if not state.machine or both.after.estimate is not None or not fields:
        return ""
    plan = state.plan or answers.stated_fields(replace(state, machine={}), fields)
    # Estimate with ample memory to learn the plan's need: an infeasible plan has no estimate.
    ample = replace(state, plan=plan, machine={**state.machine, CAPACITY: AMPLE})
    one = answers.plan(ample).estimate
    if one is None:
        return ""
    need = one.stats["proc_mem_tier1_cap_req"] or 0.0
    # The reserved memory does not depend on the capacity.
    withheld = AMPLE * GIB - usable_memory(one)
    there = answers.system(state).mem1.capacity
    digits, usable = digits_of(one), there - withheld
    if need <= usable:
        return ""
    whose = "Your plan" if state.plan else "The same plan"
    return (
        f"{whose} does not fit: it needs {digits.gib(need)}, {digits.gib(need - usable)} more than the "
        f"{digits.gib(usable)} that are usable of {there / GIB:,.5g} GiB. "
        f"It is predicted to fit with a capacity of {capacity_text(need + withheld)} or more."
    )


def _spoken(plans: Sequence[DisplayedPlan], misfit: str) -> str:
    """Summarize the effect of the machine changes in one line."""
    first, *others = plans
    if not others:
        return first.problem if first.estimate is None else f"{step_text(first.estimate)} a step."
    same, *best = others
    if misfit:
        return (
            f"With the best plan {_step(first, best[0], in_file=True)}. {misfit}"
            if best
            else misfit
        )
    if not best:
        return f"{_step(first, same, in_file=True)}."
    return (
        f"With the best plan {_step(first, best[0], in_file=True)}; "
        f"with the same plan {_step(first, same)}."
    )


def _step(first: DisplayedPlan, one: DisplayedPlan, *, in_file: bool = False) -> str:
    """Describe the step time, and the speedup over the first plan."""
    if one.estimate is None:
        return "it does not fit" if one.fields else "nothing fits"
    text = f"{step_text(one.estimate)} a step"
    if first.estimate is None:
        return text
    where = "on the unchanged machine" if in_file else ""
    return f"{text}, {faster_in_words(first.estimate, one.estimate, where)}"


def _example(state: State, shown: list[Slider]) -> Line:
    """Return a first change to try: 50 % more memory."""
    found = next((one for one in shown if one.path == CAPACITY), None)
    if found is None:
        return ""
    value = found.figure.value * 1.5
    words = f"what would {stated(value, found.figure.unit)} of memory buy?"
    link = Styled(words, link=state.link(machine={CAPACITY: value}))
    return "Move a slider to change the machine of every view. For instance: ", link


def _best(state: State, answers: Answers) -> ViewPart | None:
    """Compare the best plans of the changed and the unchanged machine."""
    both, asked = best_plans(state, answers), replace(state, plan={})
    first = "system file" if state.machine else "best plan"
    columns = {first: (both.before, replace(asked, machine={}))}
    if state.machine:
        columns["changed"] = both.after, asked
    moved = moved_in_words(asked, answers, both)
    said = f" The plan changes: {moved}." if moved else ""
    rows = tuple(
        (name.capitalize(), _plan(at, answers, plan)) for name, (plan, at) in columns.items()
    )
    return ViewPart(
        title="The best plan",
        blocks=(
            (bold(_sentence(both)), said, _against_mine(state, answers, both)),
            Grid(("left", "text"), rows),
            *readings({name: plan for name, (plan, _) in columns.items()}),
        ),
    )


def _plan(state: State, answers: Answers, shown: DisplayedPlan) -> Line:
    """Return a plan in words with a link to its page, or the reason if there is none."""
    if shown.estimate is None:
        return shown.problem
    link = state.with_plan(answers.stated_fields(state, shown.fields))
    return Styled(plan_in_words(shown.estimate.execution), link=link, hint="Use this plan")


def _sentence(both: Both) -> str:
    before, after = both.before.estimate, both.after.estimate
    if before is None:
        return (
            "Nothing fits."
            if after is None
            else f"Nothing fits on the unchanged machine; on this one a step takes {step_text(after)}."
        )
    if after is None:
        return (
            f"Nothing fits on this machine; on the unchanged one a step takes {step_text(before)}."
        )
    if after is before:
        return f"The best plan takes {step_text(after)} a step."
    return (
        f"The best plan of this machine takes {step_text(after)} a step: "
        f"{faster_in_words(before, after, 'on the unchanged machine')} ({step_text(before)})."
    )


def _against_mine(state: State, answers: Answers, both: Both) -> str:
    """Compare the user's plan with the best plan of the same machine."""
    mine, best = answers.plan(state).estimate if state.plan else None, both.after.estimate
    if mine is None or best is None:
        return ""
    return f" Your plan takes {step_text(mine)} there: {faster_in_words(best, mine)}."


PARTS = (
    ViewPartKind(name="machine", title="The machine", make=_machine),
    ViewPartKind(name="machine-best", title="The best plan", make=_best, later=True),
    ViewPartKind(
        name="machine-capacity", title="The benefit of more memory", make=capacity, later=True
    ),
    ViewPartKind(
        name="machine-effects", title="Sensitivity to each figure", make=effects, later=True
    ),
    ViewPartKind(name="machine-even", title=EVEN, make=break_even, later=True),
)
