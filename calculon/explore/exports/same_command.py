"""The command lines, and the lines of Python, that give the numbers of a page."""

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
from calculon.explore.answers import Answers
from calculon.explore.offer import MODEL, SYSTEM
from calculon.explore.page_state import MACHINE, State
from calculon.explore.search.searches import asked, counts_of, offered, on_count, opened
from calculon.explore.serving.asked_deployments import (
    LISTED,
    TOP,
    answered,
    counts,
    fixed,
    stated,
    workload,
)
from calculon.explore.serving.served_words import DEPLOYMENT, REQUESTS
from calculon.explore.view_names import SERVING
from calculon.plan.plan import NAMES
from calculon.search.overrides import parse
from calculon.search.space import Values
from calculon.search.within_risk import states_risk
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.deployments import COUNT

PROGRAM = "calculon"


@dataclass(frozen=True, slots=True, kw_only=True)
class Same:
    """What a page shows, in a terminal and in Python.

    Attributes:
        title: What it gives.
        argv: The command and its arguments.
        given: What the command reads from standard input: an execution as JSON; empty where it reads nothing.
        name, call: The result in Python, and the expression that gives it.
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


def same(state: State, answers: Answers) -> list[Same]:
    """Return the commands for the view of a state; of views of training the first is the one that plans.

    Raises:
        SpecError: For a question that means nothing.
    """
    planned = () if state.view == SERVING else (_answer(state, answers),)
    return [*planned, *_VIEWS[state.view](state, answers)]


def script(commands: Sequence[Same]) -> str:
    """Return the lines of Python that give the results of some commands, by their names."""
    lines = [f"{one.name} = {one.call}" for one in commands]
    text = "\n".join(lines)
    imports = [line for name, line in _IMPORTS.items() if f"{name}(" in text]
    return "\n".join([f"import {PROGRAM}", *imports, "", *lines])


_IMPORTS = {
    " block": "from calculon.estimate.operators import block",
    "Changed": "from calculon.inputs import Changed",
}
"""What a script imports beside the package, by what it calls."""


def _answer(state: State, answers: Answers) -> Same:
    """Return the command that plans: best plan, rivals, other counts, and one's own plan beside."""
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
    return Same(
        title=f"Best plan, rivals and other counts{', with this plan beside' if own else ''}",
        argv=("plan", model, str(state.procs), system, *options, *_changes(state)),
        name="answer",
        call=f"calculon.plan({asked})",
    )


def readable(state: State, answers: Answers) -> State:
    """Return a state without a plan of one's own that is none: the command that plans refuses it."""
    if not state.plan or answers.plan(state).legal:
        return state
    try:
        baseline_plan(answers.question(state), hints=False)
    except SpecError:
        return replace(state, plan={})
    return state


_WORDS = ("preset", "batch", "seq", "dtype", "tokens")
"""Words of a question that are options of the command."""


def of_plan(
    title: str,
    argv: Sequence[str],
    name: str,
    call: str,
    state: State,
    answers: Answers,
) -> Same:
    """Return a command about the plan that is shown, which it reads from standard input.

    Args:
        title, name, call: As of :class:`Same`.
        argv: The command, and the options behind its three specs.
        state, answers: The page.
    """
    command, *options = argv
    model, system = _sources(state, answers)
    return Same(
        title=title,
        argv=(command, model, STDIN, system, *options, *_changes(state), *_lengths(state, answers)),
        given=json.dumps(stated_execution(state, answers)),
        name=name,
        call=call,
    )


_SPECS = "plan.model, plan.execution, plan.system"
"""What functions take of the plan that is shown."""


def stated_execution(state: State, answers: Answers) -> dict[str, Any]:
    """Return the plan that is shown as a file states it: its framework, and what that does not say."""
    fields = answers.plan(state).fields
    stated = {"base": answers.question(state).framework}
    stated |= {name: fields[name] for name in _STATED if name in fields}
    rounds = _ROUNDS if fields.keys() >= set(NAMES) else 0
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
"""Fields of a plan that are always stated."""

_SAID = ("edition", "preset")
"""Fields that the framework says."""

_ROUNDS = 3
"""Readings before all fields are stated: one that follows another is as it should be after two."""


def _plan(state: State, answers: Answers) -> Iterator[Same]:
    yield from _shown(state, answers)
    if answers.plan(state).estimate is not None:
        call = f"calculon.why({_SPECS})"
        yield of_plan("What binds this plan", ("why",), "why", call, state, answers)


def _shown(state: State, answers: Answers) -> Iterator[Same]:
    """Yield the command that gives the plan, or says why it cannot run."""
    shown = answers.plan(state)
    if shown.estimate is not None:
        of = "answer.mine.estimate" if state.plan else "answer.best"
        yield of_plan("All statistics of this plan", ("llm", STDIN), "plan", of, state, answers)
    elif shown.fields:
        machine = _machine(state, _sources(state, answers)[1])
        stated = stated_execution(state, answers)
        call = f"calculon.why({_shape(state, answers)}, {stated}, {machine})"
        title = "Why this plan cannot run, and what mends it"
        yield of_plan(title, ("why",), "why", call, state, answers)


def _search(state: State, answers: Answers) -> Iterator[Same]:
    yield Same(
        title="The best execution of this search, into a file",
        argv=tuple(_searched(state, answers, (state.procs,), "best.json")),
        name="found",
        call=_search_call(state, answers, str(state.procs)),
    )
    try:
        counts = counts_of(state, answers)
    except SpecError:  # its own part says what is wrong with them
        return
    if counts:
        yield Same(
            title="The best execution on each number of processors, into a file",
            argv=tuple(_searched(state, answers, counts, "counts.csv")),
            name="by_count",
            call=f"{{n: {_search_call(state, answers, 'n', counts)} for n in {list(counts)}}}",
        )


def _searched(state: State, answers: Answers, counts: Sequence[int], file: str) -> Iterator[str]:
    """Yield the command of a search on some numbers of processors."""
    question = asked(state, answers).question
    model, system = _sources(state, answers)
    dtype = state.dtype or question.datatype
    procs = ",".join(map(str, counts))
    yield from ("loe", model, procs, str(question.batch_size), dtype, system, file)
    yield from ("--preset", question.framework)
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
    """Return the options of a search that say what is best, where they are not the usual ones of the command."""
    found = {"objective": state.options.get("objective", ""), "where": state.option("where")}
    return {name: value for name, value in found.items() if value}


def _search_call(
    state: State, answers: Answers, procs: str, counts: Sequence[int] | None = None
) -> str:
    """Return the same in Python."""
    question = asked(state, answers).question
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
    """Return the values that searches on some numbers of processors try beside those that are usual."""
    found: dict[str, Values] = {}
    for procs in counts:
        other = state if procs == state.procs else on_count(state, answers, procs)
        for name, values in more_values(other, answers).items():
            found[name] = tuple(dict.fromkeys((*found.get(name, ()), *values)))
    return found


def fixed_values(state: State, answers: Answers) -> dict[str, Values]:
    """Return the values that a search holds fields to: those of the precision, and what the address says."""
    arithmetic = asked(state, answers).question.arithmetic
    recipe = {name: (value,) for name, value in arithmetic.items() if name != "datatype"}
    return recipe | parse("fix", state.option("fix").split())


def more_values(state: State, answers: Answers) -> dict[str, Values]:
    """Return the values that a search tries beside those that are usual."""
    more = offered(state, answers)
    return {name: more[name] for name in sorted(opened(state)) if name in more}


def _listed(one: tuple[str, Values]) -> str:
    """Return a field with its values as ``--add`` takes them."""
    name, values = one
    return f"{name}={','.join(_written(value) for value in values)}"


def _written(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _depends(state: State, answers: Answers) -> Iterator[Same]:
    yield from _shown(state, answers)
    if answers.plan(state).estimate is not None:
        title, words = "What this plan depends on", asked_effects(state)
        told = {"--of": words.get("of"), "--range": words.get("spread")}
        options = [part for name, value in told.items() if value for part in (name, str(value))]
        options += ["--replan"] if "replan" in words else []
        named = [f"{name}={value!r}" for name, value in words.items()]
        call = f"calculon.sensitivity({', '.join([_SPECS, *named])})"
        yield of_plan(title, ("sensitivity", *options), "depends", call, state, answers)


def asked_effects(state: State) -> dict[str, Any]:
    """Return what the address asks of a sensitivity, by the argument of its function."""
    words: dict[str, Any] = {
        name: state.options[name] for name in ("of", "spread") if name in state.options
    }
    return words | ({"replan": True} if state.option("replan") else {})


def _pipeline(state: State, answers: Answers) -> Iterator[Same]:
    yield from _shown(state, answers)
    if answers.plan(state).estimate is not None:
        title = "One block of this plan, operator by operator"
        yield of_plan(title, ("block",), "operators", f"block({_SPECS})", state, answers)


def _serving(state: State, answers: Answers) -> Iterator[Same]:
    """Yield the command that searches for the best deployments, and the command for the deployment of the page."""
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
    call = ", ".join(
        [
            repr(model),
            repr(count),
            machine,
            repr(state.option("workload")),
            f"top={TOP}",
            *words,
            *named,
        ]
    )
    yield Same(
        title="The best deployments",
        argv=("serve-optimal", model, count, system, *options, *fix, "-t", str(TOP), *changes),
        name="deployments",
        call=f"calculon.search_deployments({call})",
    )
    served = answered(state, answers).served
    if served is None:
        return
    own = stated_deployment(served.deployment)
    sets = [part for one in own.items() for part in ("--set", _of_deployment(*one))]
    procs = served.deployment.num_procs
    call = ", ".join(
        [
            repr(model),
            str(procs),
            machine,
            repr(state.option("workload")),
            f"changes={own!r}",
            *named,
        ]
    )
    yield Same(
        title="All of this deployment",
        argv=("serve", model, str(procs), system, *options, *sets, *changes, "-v"),
        name="served",
        call=f"calculon.serve({call})",
    )


def stated_deployment(one: Deployment) -> dict[str, Any]:
    """Return the fields of a deployment that a command states over a number of processors."""
    fields = one.to_dict()
    return {
        each.key: fields[each.key]
        for each in DEPLOYMENT.values()
        if each.key != COUNT and (each.key in LISTED or fields[each.key] != each.default)
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
"""The commands of each view; those of training also have the one that plans."""


def _sources(state: State, answers: Answers) -> tuple[str, str]:
    """Return model and system as a command takes them: a name of the catalog, or the file that the owner named."""
    return (
        str(answers.offer.source(MODEL, state.model)),
        str(answers.offer.source(SYSTEM, state.system)),
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
    """Return the machine in Python."""
    changed = dict(sorted(state.machine.items()))
    return f"Changed({system!r}, {changed!r})" if changed else repr(system)


def _shape(state: State, answers: Answers) -> str:
    """Return the model in Python, with the sequences of the question."""
    model, _ = _sources(state, answers)
    length = own_length(state, answers)
    return f'Changed({model!r}, {{"seq_size": {length}}})' if length else repr(model)


def _lengths(state: State, answers: Answers) -> list[str]:
    """Return the option that gives the model the sequences of the question."""
    length = own_length(state, answers)
    return ["--set", f"model.seq_size={length}"] if length else []


def own_length(state: State, answers: Answers) -> int:
    """Return the tokens of a sequence where the question has others than the model; else 0."""
    source = answers.offer.source(MODEL, state.model)
    model = answers.kept(("model", state.model), lambda: inputs.model(source))
    length = answers.question(state).model.seq_size
    return 0 if model.seq_size == length else length


def _pairs(plan: Mapping[str, Any]) -> str:
    """Return fields as ``--mine`` takes them.

    >>> _pairs({"tensor_par": 8, "optimizer_sharding": True})
    'tensor_par=8 optimizer_sharding=true'
    """
    return " ".join(f"{name}={_written(value)}" for name, value in plan.items())
