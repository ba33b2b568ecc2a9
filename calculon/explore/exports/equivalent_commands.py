"""Equivalent commands and Python code for the numbers of a page."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from calculon import inputs
from calculon.advise.answer import baseline_plan
from calculon.base.errors import SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.axes import PUBLISHED_DEGREES
from calculon.declarations.files import STDIN
from calculon.declarations.named_values import CORRECTED
from calculon.explore.allowed_inputs import MODEL, SYSTEM
from calculon.explore.answers import Answers
from calculon.explore.page_state import MACHINE, State
from calculon.explore.search.searches import counts_of, offered, on_count, opened, search_settings
from calculon.explore.serving.served_words import DEPLOYMENT, REQUESTS
from calculon.explore.serving.serving_results import (
    LISTED,
    TOP,
    counts,
    displayed_deployment,
    fixed,
    stated,
    workload,
)
from calculon.explore.view_names import SERVING
from calculon.plan.plan import NAMES
from calculon.search.overrides import parse
from calculon.search.space import Values
from calculon.search.within_risk import states_risk
from calculon.serving.default_deployment import default_types
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.deployments import COUNT

PROGRAM = "calculon"


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalent:
    """Equivalent of a page's result in a terminal and in Python.

    Attributes:
        title: Title of the result.
        argv: The command and its arguments.
        given: Standard input of the command, an execution as JSON; empty if it reads none.
        name, call: Variable name of the result in Python, and the expression that computes it.
    """

    title: str
    argv: tuple[str, ...]
    given: str = ""
    name: str
    call: str

    @property
    def text(self) -> str:
        """The command line for a shell."""
        line = shlex.join((PROGRAM, *self.argv))
        return f"printf %s {shlex.quote(self.given)} |\n  {line}" if self.given else line


def equivalents(state: State, answers: Answers) -> list[Equivalent]:
    """Return the commands for the view of a state; for training views ``calculon plan`` comes first.

    Raises:
        SpecError: For an invalid question.
    """
    planned = () if state.view == SERVING else (_answer(state, answers),)
    return [*planned, *_VIEWS[state.view](state, answers)]


def script(commands: Sequence[Equivalent]) -> str:
    """Return a Python script that computes the results of some commands, by their names."""
    lines = [f"{one.name} = {one.call}" for one in commands]
    text = "\n".join(lines)
    # Only imports that the code uses, so that the script passes a linter.
    imports = [line for name, line in _IMPORTS.items() if f"{name}(" in text]
    return "\n".join([f"import {PROGRAM}", *imports, "", *lines])


_IMPORTS = {
    " block": "from calculon.estimate.operators import block",
    "Changed": "from calculon.inputs import Changed",
}
"""Import lines of a script in addition to the package, by the function that needs them."""


def _answer(state: State, answers: Answers) -> Equivalent:
    """Return the ``calculon plan`` command: best plan, alternatives, other counts, and the user's plan."""
    state = readable(state, answers)
    words: dict[str, Any] = {name: getattr(state, name) for name in _WORDS if getattr(state, name)}
    own = dict(state.plan)
    options = [part for name, value in words.items() for part in (f"--{name}", value)]
    options += ["--mine", _pairs(own)] if own else []
    if state.tokens:
        words["campaign"] = {"tokens": words.pop("tokens")}
    if own:
        words["mine"] = own
    model, system = _sources(state, answers)
    named = [f"{name}={value!r}" for name, value in words.items()]
    asked = ", ".join([repr(model), str(state.procs), _machine(state, system), *named])
    return Equivalent(
        title=f"Best plan, alternatives and other counts{', with this plan' if own else ''}",
        argv=("plan", model, str(state.procs), system, *options, *_changes(state)),
        name="answer",
        call=f"calculon.plan({asked})",
    )


def readable(state: State, answers: Answers) -> State:
    """Return a state without a user's plan that is invalid, which ``calculon plan`` would refuse."""
    if not state.plan or answers.plan(state).legal:
        return state
    try:
        baseline_plan(answers.question(state), hints=False)
    except SpecError:
        return replace(state, plan={})
    return state


_WORDS = ("preset", "batch", "seq", "dtype", "tokens")
"""Parts of a question that are options of the command."""


def of_plan(
    title: str,
    argv: Sequence[str],
    name: str,
    call: str,
    state: State,
    answers: Answers,
) -> Equivalent:
    """Return a command about the shown plan, which it reads from standard input.

    Args:
        title, name, call: As in :class:`Equivalent`.
        argv: The command, and the options after its three specs.
        state, answers: The page and its results.
    """
    command, *options = argv
    model, system = _sources(state, answers)
    return Equivalent(
        title=title,
        argv=(command, model, STDIN, system, *options, *_changes(state), *_lengths(state, answers)),
        given=json.dumps(stated_execution(state, answers)),
        name=name,
        call=call,
    )


_SPECS = "plan.model, plan.execution, plan.system"
"""Arguments of Python functions for the shown plan."""


def stated_execution(state: State, answers: Answers) -> dict[str, Any]:
    """Return the shown plan as a file states it: its framework, and the fields that differ from the framework."""
    fields = answers.plan(state).fields
    stated = {"base": answers.question(state).framework}
    stated |= {name: fields[name] for name in _STATED if name in fields}
    rounds = _ROUNDS if fields.keys() >= set(NAMES) else 0
    # The framework derives fields from others, so stating one field may change another: repeat until stable.
    for _ in range(rounds):
        read = inputs.execution(stated, edition=CORRECTED)
        more = {name: fields[name] for name in NAMES if getattr(read, name) != fields[name]}
        if not more:
            return stated
        stated |= more
    return stated | {name: value for name, value in fields.items() if name not in _SAID}


_STATED = (
    "num_procs",
    *PUBLISHED_DEGREES,
    "batch_size",
    "microbatch_size",
    "datatype",
)
"""Plan fields that are always stated."""

_SAID = ("edition", "preset")
"""Fields that the framework determines."""

_ROUNDS = 3
"""Maximum number of readings: a field derived from another one is correct after two."""


def _plan(state: State, answers: Answers) -> Iterator[Equivalent]:
    yield from _shown(state, answers)
    if answers.plan(state).estimate is not None:
        call = f"calculon.why({_SPECS})"
        yield of_plan("Bottleneck of this plan", ("explain",), "why", call, state, answers)


def _shown(state: State, answers: Answers) -> Iterator[Equivalent]:
    """Yield the command that estimates the plan or explains why it cannot run."""
    shown = answers.plan(state)
    if shown.estimate is not None:
        of = "answer.mine.estimate" if state.plan else "answer.best"
        yield of_plan("Estimate of this plan", ("estimate",), "plan", of, state, answers)
    elif shown.fields:
        machine = _machine(state, _sources(state, answers)[1])
        stated = stated_execution(state, answers)
        call = f"calculon.why({_shape(state, answers)}, {stated}, {machine})"
        title = "Why this plan cannot run, and how to fix it"
        yield of_plan(title, ("explain",), "why", call, state, answers)


def _search(state: State, answers: Answers) -> Iterator[Equivalent]:
    yield Equivalent(
        title="Best plan of this search, written to a file",
        argv=tuple(_searched(state, answers, (state.procs,), "best.json")),
        name="found",
        call=_search_call(state, answers, str(state.procs)),
    )
    try:
        counts = counts_of(state, answers)
    except SpecError:  # the part about counts reports the error
        return
    if counts:
        yield Equivalent(
            title="Best plan for each processor count, written to a file",
            argv=tuple(_searched(state, answers, counts, "counts.csv")),
            name="by_count",
            call=f"{{n: {_search_call(state, answers, 'n', counts)} for n in {list(counts)}}}",
        )


def _searched(state: State, answers: Answers, counts: Sequence[int], file: str) -> Iterator[str]:
    """Yield the search command for some processor counts."""
    question = search_settings(state, answers).question
    model, system = _sources(state, answers)
    procs, batch = ",".join(map(str, counts)), state.batch or f"{question.batch_size}seq"
    yield from ("search", model, procs, system, "--batch", batch)
    yield from ("--dtype", state.dtype) if state.dtype else ()
    yield from ("--preset", question.framework, "-o", file)
    for name, value in _ranked(state).items():
        yield from (f"--{name}", value)
    if not states_risk(state.option("where")):
        yield from ("--risk", "100%")
    for text in state.option("fix").split():
        yield from ("--fix", text)
    for text in map(_listed, _more_on(state, answers, counts).items()):
        yield from ("--add", text)
    yield from ("--tokens", state.tokens) if state.tokens else ()
    yield from (*_changes(state), *_lengths(state, answers))


def _ranked(state: State) -> dict[str, str]:
    """Return the ranking options of a search that differ from the defaults of the command."""
    found = {"objective": state.options.get("objective", ""), "where": state.option("where")}
    return {name: value for name, value in found.items() if value}


def _search_call(
    state: State, answers: Answers, procs: str, counts: Sequence[int] | None = None
) -> str:
    """Return the search as a Python expression."""
    question = search_settings(state, answers).question
    fixed, more = (
        fixed_values(state, answers),
        _more_on(state, answers, counts or (state.procs,)),
    )
    words: dict[str, Any] = {"preset": question.framework}
    words |= _ranked(state)
    words |= {"fix": fixed} if fixed else {}
    words |= {"add": more} if more else {}
    words |= {"campaign": {"tokens": state.tokens}} if state.tokens else {}
    specs = [_shape(state, answers), _machine(state, _sources(state, answers)[1]), procs]
    named = [f"{name}={value!r}" for name, value in words.items()]
    told = [*specs, str(question.batch_size), repr(question.datatype), *named]
    return f"calculon.search({', '.join(told)})"


def _more_on(state: State, answers: Answers, counts: Sequence[int]) -> dict[str, Values]:
    """Return the values that searches on some processor counts try in addition to the defaults."""
    result: dict[str, Values] = {}
    for procs in counts:
        other = state if procs == state.procs else on_count(state, answers, procs)
        for name, values in more_values(other, answers).items():
            result[name] = tuple(dict.fromkeys((*result.get(name, ()), *values)))
    return result


def fixed_values(state: State, answers: Answers) -> dict[str, Values]:
    """Return the values that a search fixes: by the precision, and by the address."""
    arithmetic = search_settings(state, answers).question.arithmetic
    recipe = {name: (value,) for name, value in arithmetic.items() if name != "datatype"}
    return recipe | parse("fix", state.option("fix").split())


def more_values(state: State, answers: Answers) -> dict[str, Values]:
    """Return the values that a search tries in addition to the defaults."""
    more = offered(state, answers)
    return {name: more[name] for name in sorted(opened(state)) if name in more}


def _listed(one: tuple[str, Values]) -> str:
    """Return a field with its values in the syntax of ``--add``."""
    name, values = one
    return f"{name}={','.join(_written(value) for value in values)}"


def _written(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _depends(state: State, answers: Answers) -> Iterator[Equivalent]:
    yield from _shown(state, answers)
    if answers.plan(state).estimate is not None:
        title, words = "Sensitivity of this plan", requested_effects(state)
        stated = {"--of": words.get("of"), "--range": words.get("spread")}
        options = [part for name, value in stated.items() if value for part in (name, str(value))]
        options += ["--replan"] if "replan" in words else []
        named = [f"{name}={value!r}" for name, value in words.items()]
        call = f"calculon.sensitivity({', '.join([_SPECS, *named])})"
        yield of_plan(title, ("sensitivity", *options), "depends", call, state, answers)


def requested_effects(state: State) -> dict[str, Any]:
    """Return the sensitivity settings of the address, by function argument."""
    words: dict[str, Any] = {
        name: state.options[name] for name in ("of", "spread") if name in state.options
    }
    return words | ({"replan": True} if state.option("replan") else {})


def _pipeline(state: State, answers: Answers) -> Iterator[Equivalent]:
    yield from _shown(state, answers)
    if answers.plan(state).estimate is not None:
        title = "One block of this plan, operator by operator"
        yield of_plan(title, ("block",), "operators", f"block({_SPECS})", state, answers)


def _serving(state: State, answers: Answers) -> Iterator[Equivalent]:
    """Yield the search command for the best deployments, and the command for the page's deployment."""
    model, system = _sources(state, answers)
    load, held = workload(state), fixed(state)
    asked = stated(state, REQUESTS)
    options = ["--workload", state.option("workload")]
    for name, value in asked.items():
        options += [f"--{name.removesuffix('_limit').replace('_', '-')}", _written(value)]
    fix = [part for one in held.items() for part in ("--fix", _listed((one[0], (one[1],))))]
    count, changes = counts(state, load), _changes(state)
    named = [f"{name}={value!r}" for name, value in asked.items()]
    machine, words = _machine(state, system), [f"fix={held!r}"] if held else []
    load_name = repr(state.option("workload"))
    call = ", ".join((repr(model), repr(count), machine, load_name, f"top={TOP}", *words, *named))
    yield Equivalent(
        title="The best deployments",
        argv=("serve-optimal", model, count, system, *options, *fix, "-t", str(TOP), *changes),
        name="deployments",
        call=f"calculon.search_deployments({call})",
    )
    served = displayed_deployment(state, answers).served
    if served is None:
        return
    own = stated_deployment(served.deployment, default_types(served.model))
    sets = [part for one in own.items() for part in ("--set", _of_deployment(*one))]
    procs = served.deployment.num_procs
    changed = f"changes={own!r}"
    call = ", ".join((repr(model), str(procs), machine, load_name, changed, *named))
    yield Equivalent(
        title="This deployment in full",
        argv=("serve", model, str(procs), system, *options, *sets, *changes, "-v"),
        name="served",
        call=f"calculon.serve({call})",
    )


def stated_deployment(one: Deployment, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the deployment fields that a command states in addition to the processor count.

    `defaults` are the types of the released weights, which a command need not state.
    """
    fields = one.to_dict()
    return {
        each.key: fields[each.key]
        for each in DEPLOYMENT.values()
        if each.key != COUNT
        and (each.key in LISTED or fields[each.key] != defaults.get(each.key, each.default))
    }


def _of_deployment(name: str, value: Any) -> str:
    return f"deployment.{name}={_written(value)}"


_VIEWS = {
    "plan": _plan,
    "search": _search,
    "machine": _depends,
    "pipeline": _pipeline,
    SERVING: _serving,
}
"""The commands of each view; training views also have ``calculon plan``."""


def _sources(state: State, answers: Answers) -> tuple[str, str]:
    """Return model and system as a command takes them: catalog names, or the files that the owner named."""
    return (
        str(answers.allowed.source(MODEL, state.model)),
        str(answers.allowed.source(SYSTEM, state.system)),
    )


def _changes(state: State) -> list[str]:
    """Return the options that change the machine."""
    changed = sorted(state.machine.items())
    return [
        part
        for path, value in changed
        for part in ("--set", f"{MACHINE}{path}={json.dumps(value)}")
    ]


def _machine(state: State, system: str) -> str:
    """Return the machine as a Python expression."""
    changed = dict(sorted(state.machine.items()))
    return f"Changed({system!r}, {changed!r})" if changed else repr(system)


def _shape(state: State, answers: Answers) -> str:
    """Return the model as a Python expression, with the sequence length of the question."""
    model, _ = _sources(state, answers)
    length = own_length(state, answers)
    return f'Changed({model!r}, {{"seq_size": {length}}})' if length else repr(model)


def _lengths(state: State, answers: Answers) -> list[str]:
    """Return the option that sets the model's sequence length to the question's."""
    length = own_length(state, answers)
    return ["--set", f"model.seq_size={length}"] if length else []


def own_length(state: State, answers: Answers) -> int:
    """Return the question's sequence length if it differs from the model's; else 0."""
    source = answers.allowed.source(MODEL, state.model)
    model = answers.cached(("model", state.model), lambda: inputs.model(source))
    length = answers.question(state).model.seq_size
    return 0 if model.seq_size == length else length


def _pairs(plan: Mapping[str, Any]) -> str:
    """Return fields in the syntax of ``--mine``.

    >>> _pairs({"tensor_par": 8, "optimizer_sharding": True})
    'tensor_par=8 optimizer_sharding=true'
    """
    return " ".join(f"{name}={_written(value)}" for name, value in plan.items())
