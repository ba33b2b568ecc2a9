"""The first page: the state described by a command line."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from calculon import inputs
from calculon.advise.answer import baseline_plan
from calculon.advise.ask import Question, ask
from calculon.advise.shorthand import read_baseline
from calculon.base.errors import Problem, SpecError
from calculon.declarations.execution import Execution
from calculon.declarations.short_names import QUESTION_WORDS
from calculon.declarations.spellings import PRECISIONS, precision
from calculon.explore.allowed_inputs import MODEL
from calculon.explore.answers import Answers
from calculon.explore.page_state import State, read_state
from calculon.plan.plan import all_fields

_SAID = {name: word for name, word in QUESTION_WORDS.items() if word in ("batch", "seq")}
"""Fields that a plan may state and that are also parts of the question."""

_ELSEWHERE = {
    name: "PROCS" if word == "procs" else f"--{word}"
    for name, word in QUESTION_WORDS.items()
    if name not in _SAID
} | {"edition": ""}
"""Fields that only the question may state, with the argument that does."""


def initial_state(
    answers: Answers, words: Sequence[tuple[str, str]], mine: str | Mapping[str, Any] | None
) -> State:
    """Return the state that a page shows first.

    Args:
        answers: Cached results; their offer has a model and a system.
        words: The address, without model and system.
        mine: The user's plan, as ``calculon plan --mine`` accepts it.

    Raises:
        SpecError: For malformed input.
        Infeasible: For more processors than the networks of the system connect.
    """
    offer = answers.allowed
    state = read_state(words, offer, State(model=offer.model, system=offer.system, procs=1))
    if mine is None:
        answers.question(state)
        return state
    model = answers.allowed.source(MODEL, state.model)
    seq_size = inputs.model(model).seq_size
    stated = read_baseline(mine, state.procs).of_model(seq_size)
    return (
        _of_file(answers, state, str(mine))
        if stated.fields is None
        else _of_pairs(state, stated.fields)
    )


def _of_pairs(state: State, fields: Mapping[str, Any]) -> State:
    """Return a state with the fields of a plan."""
    problems = [
        Problem(name, "a field of the plan", "a field of the question", _ELSEWHERE[name])
        for name in fields
        if name in _ELSEWHERE
    ]
    problems += [Problem(name, "a value", "nothing") for name, one in fields.items() if one == ""]
    if problems:
        raise SpecError("--mine", problems)
    said: dict[str, Any] = {
        _SAID[name]: str(value) for name, value in fields.items() if name in _SAID
    }
    plan = {name: value for name, value in fields.items() if name not in _SAID}
    return replace(state, plan=plan, **said)


def _of_file(answers: Answers, state: State, file: str) -> State:
    """Return a state with the plan of a file, including its batch, sequence length, precision and framework."""
    asked = {name: getattr(state, name) or None for name in ("preset", "batch", "seq", "dtype")}
    model = answers.allowed.source(MODEL, state.model)
    question = ask(model, state.procs, answers.system(state), **asked, mine=file)
    found = baseline_plan(question)
    assert found is not None
    execution = found.execution if found.estimate is None else found.estimate.execution
    if execution is None:
        raise SpecError(file, Problem("", "a plan that breaks no rule", found.problem))
    if execution.num_procs != state.procs:
        wanted = f"a plan of {state.procs:,} processors"
        raise SpecError(file, Problem("num_procs", wanted, f"one of {execution.num_procs:,}"))
    state = replace(state, **_words(state, question, execution, launched=found.launch is not None))
    return replace(state, plan=answers.stated_fields(state, all_fields(execution)))


def _words(
    state: State, question: Question, execution: Execution, *, launched: bool
) -> dict[str, Any]:
    """Return the parts of the question that a file states and no option overrides."""
    said: dict[str, Any] = {"batch": str(execution.batch_size)}
    if execution.seq_length:
        said["seq"] = str(execution.seq_length)
    if launched:
        words = (word for word in PRECISIONS if precision(word) == dict(question.arithmetic))
        said |= {"preset": question.framework, "dtype": next(words, "")}
        said["seq"] = str(question.model.seq_size)
    return {name: value for name, value in said.items() if not getattr(state, name)}
