"""The controls that stand beside every view: the question, and the plan."""

from dataclasses import replace
from typing import Any

from markupsafe import Markup

from calculon.apps.explore.answers import Answers, Shown
from calculon.apps.explore.knobs import unlike_file
from calculon.apps.explore.offer import MODEL, SYSTEM
from calculon.apps.explore.page_state import MACHINE, State
from calculon.apps.explore.part import html
from calculon.spec.spellings import PRECISIONS

DEGREES = ("tensor_par", "pipeline_par", "microbatch_size", "pipeline_interleaving")


def controls(state: State, answers: Answers) -> Markup:
    """Return the controls as HTML, set to what the page shows."""
    question, shown = answers.question(state), answers.plan(state)
    return html(
        "controls.html",
        state=state,
        question=question,
        assumed=question.assumed,
        models=answers.offer.names(MODEL),
        systems=answers.offer.names(SYSTEM),
        presets=answers.offer.presets,
        dtypes=[*PRECISIONS],
        degrees=[(name, _value(shown, name)) for name in DEGREES],
        others={name: value for name, value in state.plan.items() if name not in DEGREES},
        best=not state.plan,
    )


def _value(shown: Shown, name: str) -> Any:
    return shown.fields.get(name, "")


def settled(state: State, answers: Answers, changed: str) -> State:
    """Return a state after one of its controls has changed.

    Where the best plan was shown and a field of it changes, the others stay as they were.
    """
    if changed.startswith(MACHINE):
        in_file = answers.system(replace(state, machine={}))
        return replace(state, machine=unlike_file(in_file, state.machine))
    if changed not in state.plan:
        return state
    before = answers.plan(State(**{**_members(state), "plan": {}}))
    if set(state.plan) == {changed} and before.estimate is not None:
        own = answers.own(state, before.fields)
        return State(**{**_members(state), "plan": {**own, **state.plan}})
    return state


def _members(state: State) -> dict[str, Any]:
    return {name: getattr(state, name) for name in State.__dataclass_fields__}
