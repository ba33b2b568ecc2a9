"""Controls of the serving view: requests, their limits, and the deployment."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from calculon.base.units import duration
from calculon.declarations.fields import SpecField
from calculon.explore.answers import Answers, PendingAnswers
from calculon.explore.control import Control, TextControl
from calculon.explore.labels import label, value_words
from calculon.explore.page_state import ASKED, CHANGED, State, value_text
from calculon.explore.request_tracking import Pending
from calculon.explore.serving.served_words import DEPLOYMENT, REQUESTS
from calculon.explore.serving.serving_results import (
    LISTED,
    displayed_deployment,
    possible,
    released,
    workload,
    workloads,
)
from calculon.explore.view_part import html
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.load import Workload

_BATCH = "max_batch"
"""Deployment field with a text control; other fields have lists."""

_WORD = "deployment."

_VISIBLE = ("model", "system", "procs")
"""Words of the question that this view shows."""


def serving_controls(
    state: State, answers: Answers, likely: State, wrong: Mapping[str, str]
) -> Markup:
    """Return the controls of requests and of a deployment as HTML.

    Args:
        state: State of the page.
        answers: Cached results.
        likely: A state with a valid question, if the page's own has none.
        wrong: Invalid texts of controls, by name.
    """
    load, best, types = workload(likely), _best(likely, answers), released(likely, answers)
    own = [word for word in DEPLOYMENT if state.option(word)]
    hidden = [(name, text) for name, text in state.pairs() if name in ASKED or name in state.plan]
    return html(
        "serving_controls.html",
        workloads=workloads(),
        workload=load.name if wrong.get("workload") else state.option("workload"),
        requests=[_request(word, one, state, load, wrong) for word, one in REQUESTS.items()],
        own=bool(own),
        back=state.with_options(**dict.fromkeys(DEPLOYMENT, "")),
        note=state.note,
        choices=[
            _choice(word, one, values, state, best, types.get(one.key, one.default))
            for word, one in DEPLOYMENT.items()
            if one.key != _BATCH
            and (len(values := _values(one, likely, answers)) > 1 or state.option(word))
        ],
        batch=_batch(state),
        others=[pair for pair in hidden if pair[0] not in _VISIBLE],
    )


def _best(state: State, answers: Answers) -> Deployment | None:
    """Return the deployment of a page; None during a search, and if none fits in memory."""
    try:
        served = displayed_deployment(state, answers).served
    except Pending:
        if isinstance(answers, PendingAnswers):
            return None
        raise
    return None if served is None else served.deployment


def _request(
    word: str, one: SpecField, state: State, load: Workload, wrong: Mapping[str, str]
) -> TextControl:
    """Return the control of a request field."""
    return TextControl(
        name=word,
        label=label(one.key),
        help=one.declaration.help,
        value=state.option(word),
        usual=_usual(one, getattr(load, one.name)),
        wrong=word in wrong,
    )


def _usual(one: SpecField, value: Any) -> str:
    """Format a workload's value as the placeholder of a control."""
    if value is None or (value == 0 and one.default == 0):
        return "none"
    return duration(value, value / 20) if one.declaration.unit == "s" else f"{value:,g}"


def _values(one: SpecField, state: State, answers: Answers) -> tuple[Any, ...]:
    """Return the values that the control of a deployment field offers."""
    if choices := one.declaration.choices:
        return tuple(choices)
    return tuple(possible(state, answers, one.key))


def _choice(
    word: str,
    one: SpecField,
    values: tuple[Any, ...],
    state: State,
    best: Deployment | None,
    default: Any,
) -> Control:
    """Return the control of a deployment field: the best value, or the default of a choice, unless one is stated."""
    stated = state.option(word)
    found = None if best is None else getattr(best, one.name)
    usual = "best" if stated or found is None else value_words(one.key, found)
    if one.declaration.choices:
        usual = value_words(one.key, default)
        values = tuple(value for value in values if value != default)

    def adjacent(step: int) -> tuple[str, ...]:
        if one.declaration.choices or found not in values:
            return ()
        place = values.index(found) + step
        if not 0 <= place < len(values):
            return ()
        link = state.with_options(**{word: value_text(values[place])})
        return (
            f"{link}&{CHANGED}={word}",
            f"{label(one.key)}: {value_words(one.key, values[place])}",
        )

    return Control(
        name=word,
        label=label(one.key),
        help=one.declaration.help,
        values=(
            ("", usual, not stated),
            *(
                (value_text(value), value_words(one.key, value), value_text(value) == stated)
                for value in values
            ),
        ),
        follows=not stated,
        best=not one.declaration.choices,
        less=adjacent(-1),
        more=adjacent(1),
    )


def _batch(state: State) -> TextControl:
    word = f"{_WORD}{_BATCH}"
    return TextControl(
        name=word,
        label=label(_BATCH),
        help=DEPLOYMENT[word].declaration.help,
        value=state.option(word),
        usual="largest that fits",
    )


def adjusted_deployment(state: State, answers: Answers, changed: str) -> State:
    """Return a state after a change of a deployment control, without numbers that became impossible."""
    name = changed.removeprefix(_WORD)
    if name not in LISTED or not state.option(changed):
        return state
    freed = []
    # Later fields were narrowed by the changed one and may have become impossible.
    for other in LISTED[LISTED.index(name) + 1 :]:
        stated = state.option(f"{_WORD}{other}")
        if stated and stated not in map(str, possible(state, answers, other)):
            state = replace(state, options=_without(state, f"{_WORD}{other}"))
            freed.append(label(other))
    if not freed:
        return state
    return replace(state, note=f"{', '.join(freed)} follow{'s' * (len(freed) == 1)}")


def _without(state: State, word: str) -> dict[str, str]:
    return {name: value for name, value in state.options.items() if name != word}
