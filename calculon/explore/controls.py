"""The controls next to every view: the question and the plan."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from calculon.advise.answer import TOKENS
from calculon.advise.ask import Question
from calculon.architecture.parameters import active_count, parameter_count
from calculon.base.units import scaled
from calculon.declarations.spellings import PRECISIONS
from calculon.documents.page_title import machine_notes
from calculon.explore.allowed_inputs import MODEL, SYSTEM
from calculon.explore.answers import Answers
from calculon.explore.control import Control
from calculon.explore.labels import change_words, label, value_words
from calculon.explore.machine.machine_controls import unlike_file
from calculon.explore.page_state import ASKED, CHANGED, MACHINE, State, value_text
from calculon.explore.plain_words import unbroken
from calculon.explore.plan_choices import LAYOUT, SIZES, STATED, Choice, Choices
from calculon.explore.serving.served_words import DEPLOYMENT, REQUESTS
from calculon.explore.serving.serving_controls import adjusted_deployment, serving_controls
from calculon.explore.view_names import SERVING
from calculon.explore.view_part import html
from calculon.hardware.system import System
from calculon.plan.columns import field_of
from calculon.render.texts import bandwidth, capacity, counted, token_count

UNFOLDED = ("activation_recompute", "zero_stage")
"""Switches listed with the sizes; all others are in a closed section."""


def controls(
    state: State,
    answers: Answers,
    likely: State | None = None,
    wrong: Mapping[str, str] | None = None,
) -> Markup:
    """Return the controls as HTML, set to the state of the page.

    Args:
        state: State of the page.
        answers: Cached results.
        likely: A state with a valid question, if the page's own has none.
        wrong: Invalid texts of controls, by name.
    """
    likely = likely or state
    question, wrong = answers.question(likely), wrong or {}
    visible = {"workload", *REQUESTS, *DEPLOYMENT} if state.view == SERVING else set()
    of_view = (
        {"serving": serving_controls(state, answers, likely, wrong)}
        if state.view == SERVING
        else {"serving": "", **_plan_controls(state, answers, likely)}
    )
    return html(
        "controls.html",
        state=state,
        question=question,
        words={name: unbroken(text) for name, text in _question_words(question).items()},
        models=answers.allowed.names(MODEL),
        systems=answers.allowed.names(SYSTEM),
        presets=answers.allowed.presets,
        dtypes=[*PRECISIONS],
        usual_tokens=token_count(TOKENS),
        kept=[(name, one) for name, one in state.options.items() if name not in visible],
        wrong=wrong,
        **of_view,
    )


def _plan_controls(state: State, answers: Answers, likely: State) -> dict[str, Any]:
    """Return the values of the template for the controls of a plan."""
    replicas = answers.plan(likely).fields.get("data_par")
    found = answers.choices(likely)
    sizes, switches = ((), ()) if found is None else (found.sizes, found.switches)
    shown_sizes = [_control(state, one, found) for one in sizes]
    several = [_control(state, one, found) for one in switches]
    # Stated fields without a visible control are kept as hidden inputs.
    known = {one.name for one in (*shown_sizes, *several)}
    return {
        "sizes": shown_sizes,
        "unfolded": [one for one in several if one.name in UNFOLDED],
        "folded": [one for one in several if one.name not in UNFOLDED],
        "changed": sum(not one.follows for one in several if one.name not in UNFOLDED),
        # stated values may be of any type
        "replicas": replicas if isinstance(replicas, int) else None,
        "others": [
            (name, text) for name, text in state.pairs() if name in state.plan and name not in known
        ],
        "best": not state.plan,
    }


def _question_words(question: Question) -> Mapping[str, str]:
    """Describe the recognized model, system and batch."""
    model, system = question.model, question.system
    active = f" ({scaled(active_count(model), digits=1)} active)" if model.has_experts else ""
    tokens = question.batch_size * model.seq_size
    kind = question.datatype
    rate = (
        f"{system.product_engine(kind).peak / 1e12:,.0f} TFLOP/s"
        if kind in system.datatypes
        else "no rate of"
    )
    notes = "".join(f"; {note}" for note in machine_notes(system.provenance.to_dict()))
    return {
        "model": f"{scaled(parameter_count(model), digits=1)} parameters{active}, {counted(model.num_blocks, 'block')}",
        "system": f"{rate} {kind}, {capacity(system.mem1.capacity)} at "
        f"{bandwidth(system.mem1.bandwidth)}{_networks(system)}{notes}",
        "batch": f"{counted(question.batch_size, 'sequence')} of {model.seq_size:,} = {scaled(tokens)} tokens a step",
    }


def _networks(system: System) -> str:
    """Describe the size of a node, and the rates inside and between nodes."""
    inner, *others = system.networks
    kind = "PCIe at " if system.link(0).kind == "pcie" else ""
    rates = [f"{kind}{bandwidth(inner.bandwidth)} inside"]
    rates += [f"{bandwidth(one.bandwidth)} between nodes" for one in others[:1]]
    return f", nodes of {system.node:,} ({', '.join(rates)})" if system.node > 1 else ""


def _control(state: State, one: Choice, choices: Choices | None) -> Control:
    assert choices is not None
    stated = choices.stated if one.field in SIZES else state.plan
    size = one.field in SIZES

    def adjacent(step: int) -> tuple[str, ...]:
        value = one.neighbor(step) if size else None
        if value is None:
            return ()
        link = state.with_plan({**choices.stated, one.field: value})
        return (
            f"{link}&{CHANGED}={one.field}",
            f"{label(one.field)}: {value_words(one.field, value)}",
        )

    return Control(
        name=one.field,
        label=label(one.field),
        help=field_of(one.field).declaration.help,
        values=tuple(
            (value_text(value), value_words(one.field, value), value == one.value)
            for value in one.values
        ),
        follows=not state.plan or one.field not in stated,
        usual="" if size else value_words(one.field, one.usual),
        less=adjacent(-1),
        more=adjacent(1),
    )


def adjusted_state(state: State, answers: Answers, changed: str) -> State:
    """Return a state after one of its controls has changed, with a note on the consequences.

    A machine figure set back to its file's value is no longer a change. If the best plan was shown and a field of it
    changes, the other fields keep their values. If rules forbid the user's plan, chunks, microbatch and
    layout of stages are adapted, if that makes it valid.
    """
    if changed.startswith(MACHINE):
        return replace(state, machine=unlike_file(answers.figures(state), state.machine))
    if changed in DEPLOYMENT:
        return adjusted_deployment(state, answers, changed)
    return state if changed in REQUESTS else _settled_plan(state, answers, changed)


def _settled_plan(state: State, answers: Answers, changed: str) -> State:
    if not state.plan:
        return state
    # First change of the best plan: take over its other fields, so that only one field differs.
    if changed in state.plan and not {*STATED} <= {*state.plan}:
        best = answers.plan(replace(state, plan={}))
        if best.estimate is not None:
            state = replace(state, plan={**answers.stated_fields(state, best.fields), **state.plan})
    if changed not in state.plan and changed not in ASKED:
        return state
    shown = answers.plan(state)
    if shown.legal:
        usual = answers.question(state).preset.usual(shown.fields)
        before = state.plan.get(LAYOUT, usual.get(LAYOUT, shown.fields[LAYOUT]))
        ends = before, shown.fields[LAYOUT]
        follows = {LAYOUT: ends} if before != shown.fields[LAYOUT] else {}
        return replace(state, plan=answers.stated(state), note=_told(follows))
    found = answers.choices(state)
    if found is None or (changed in state.plan and changed not in found.stated):
        return state  # too few fields are readable
    changes = {changed: state.plan[changed]} if changed in state.plan else {}
    (outcome,) = found.outcomes([changes])
    if outcome is None:
        return state
    return replace(
        state, plan=answers.stated_fields(state, outcome.fields), note=_told(outcome.follows)
    )


def _told(follows: Mapping[str, tuple[Any, Any]]) -> str:
    """Return a note on the fields that follow from a change."""
    words = [change_words(name, *ends) for name, ends in follows.items()]
    return f"{', '.join(words)} follow{'s' * (len(words) == 1)}" if words else ""
