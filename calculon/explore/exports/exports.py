"""Export files of a page: the documents and tables of the commands, an execution, launch files, a report."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from calculon import inputs
from calculon.advise.answer import Answer, answer
from calculon.advise.ask import ask
from calculon.advise.launch_flags import exported_plan
from calculon.advise.sensitivity import sensitivity
from calculon.advise.sensitivity_result import Sensitivity
from calculon.base.errors import Infeasible, Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.campaign.read import read_campaign
from calculon.declarations.axes import PUBLISHED_AXES
from calculon.declarations.files import indented, json_text
from calculon.declarations.named_values import CORRECTED
from calculon.documents.given_results import results_of
from calculon.documents.report_file import report_text
from calculon.documents.sensitivity_page import figures_table
from calculon.documents.winner_files import document, table_text
from calculon.estimate.estimate import Estimate
from calculon.estimate.operators import Block, block
from calculon.explore.allowed_inputs import MODEL, SYSTEM
from calculon.explore.answers import Answers
from calculon.explore.exports.equivalent_commands import (
    fixed_values,
    more_values,
    own_length,
    readable,
    requested_effects,
    stated_execution,
)
from calculon.explore.page_state import State
from calculon.explore.search.searches import each_split, search_settings
from calculon.explore.serving.serving_results import deployments, displayed_deployment
from calculon.explore.view_names import SERVING
from calculon.inputs import Changed
from calculon.launch.dialects import DIALECTS
from calculon.render.text_tables import Column, Table
from calculon.search.request import one_stretch
from calculon.search.task import Search, run_search
from calculon.search.within_risk import states_risk

_TYPES = {
    ".csv": "text/csv; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".py": "text/x-python; charset=utf-8",
    ".sh": "text/x-shellscript; charset=utf-8",
    ".yaml": "application/yaml",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """File to download.

    Attributes:
        name: Name of letters, digits and a few signs, for any names of specs.
        media_type: Media type for the browser.
        text: Contents.
    """

    name: str
    media_type: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """Kind of file that a page offers.

    Attributes:
        title: Title of the file.
        text: Function that returns the contents.
        views: Views that offer the file.
        runs: True if it needs a feasible plan.
    """

    title: str
    text: Callable[[State, Answers], str]
    views: tuple[str, ...]
    runs: bool = True


def offered(state: State, answers: Answers) -> dict[str, Export]:
    """Return the exports of the state's view, by name."""
    runs = state.view == SERVING or answers.plan(state).estimate is not None
    return {
        name: one
        for name, one in EXPORTS.items()
        if state.view in one.views and (runs or not one.runs)
    }


def written(name: str, state: State, answers: Answers) -> Written:
    """Return a file.

    Args:
        name: One of :data:`EXPORTS` or :data:`LAUNCH_FILES`.
        state, answers: The page and its results.

    Raises:
        SpecError: For an unknown name, and for plans that a launcher cannot express.
        Infeasible: If no plan can run.
    """
    known = EXPORTS | LAUNCH_FILES
    if name not in known:
        hint = nearest(name[:60], list(known))
        problem = Problem("", f"one of {', '.join(known)}", "no such file", hint)
        raise SpecError("export", problem)
    kind, _, suffix = name.rpartition(".")
    text = known[name].text(state, answers)
    return Written(
        name=f"{_stem(state, answers)}_{kind}.{suffix}", media_type=_TYPES[f".{suffix}"], text=text
    )


def _stem(state: State, answers: Answers) -> str:
    """Return the stem of a file name: model, system, machine changes, processors and plan."""
    fields = _fields(state, answers)
    # The plan is part of the name, so that downloads of several plans do not overwrite each other.
    degrees = [f"{mark}{fields[name]}" for name, mark in _MARKS.items() if name in fields]
    changed = [f"{path}={value:g}" for path, value in sorted(state.machine.items())]
    words = [state.model, state.system, *changed, str(state.procs), *degrees]
    return re.sub(r"[^A-Za-z0-9._=+-]+", "-", "_".join(words))[:_LONGEST]


def _fields(state: State, answers: Answers) -> Mapping[str, Any]:
    """Return the fields of the page's plan or deployment."""
    if state.view != SERVING:
        return answers.plan(state).fields
    served = displayed_deployment(state, answers).served
    return {} if served is None else served.deployment.to_dict()


_MARKS = {axis.degree: axis.name[0] for axis in PUBLISHED_AXES} | {"microbatch_size": "mbs"}
"""Degrees in file names, abbreviated as in the catalog's executions."""

_LONGEST = 150  # maximum length of a file name


def whole_answer(state: State, answers: Answers) -> Answer:
    """Return the result of ``calculon plan`` for the same question and sources; each count is searched once."""
    state = readable(state, answers)
    model, system = (answers.allowed.source(*one) for one in _named(state))
    words: dict[str, Any] = {
        name: getattr(state, name) or None for name in ("preset", "batch", "seq", "dtype")
    }
    words["campaign"] = read_campaign({"tokens": state.tokens} if state.tokens else None, {})
    words["mine"] = dict(state.plan) or None
    question = ask(model, state.procs, Changed.of(system, dict(state.machine)), **words)
    return answer(question, lambda same, count: answers.best_plans_on(state, same, count))


def _named(state: State) -> tuple[tuple[str, str], tuple[str, str]]:
    return (MODEL, state.model), (SYSTEM, state.system)


def _sources(state: State, answers: Answers) -> tuple[Any, Any]:
    """Return model and system with their changes, as the commands about a plan receive them."""
    model, system = (answers.allowed.source(*one) for one in _named(state))
    length = own_length(state, answers)
    changes = {"seq_size": length} if length else {}
    return Changed.of(model, changes), Changed.of(system, dict(state.machine))


def shown_estimate(state: State, answers: Answers) -> Estimate:
    """Return the shown plan.

    Raises:
        Infeasible: If it cannot run.
    """
    shown = answers.plan(state)
    if shown.estimate is None:
        raise Infeasible("nothing", shown.problem)
    return shown.estimate


def searched(state: State, answers: Answers) -> dict[str, Any]:
    """Return the best execution of the search, as the search command writes it."""
    model, system = _sources(state, answers)
    question = search_settings(state, answers).question
    campaign = read_campaign({}, {"tokens": state.tokens}) if state.tokens else None
    one = Search(
        number=0,
        model=inputs.model(model),
        system=inputs.system(system),
        num_procs=state.procs,
        max_batch_size=question.batch_size,
        datatype=question.datatype,
        objective=state.option("objective"),
        where=(where := state.option("where")) or None,
        risk=None if states_risk(where) else 1.0,
        fix=fixed_values(state, answers),
        add=more_values(state, answers),
        edition=CORRECTED,
        preset=question.framework,
        campaign=one_stretch(campaign) if campaign is not None else None,
    )
    found = run_search(one).result(one)
    return dict(document(found, one.question(found.space.preset)))


def depends(state: State, answers: Answers) -> Sensitivity:
    """Return the sensitivity of the plan, as ``calculon sensitivity`` does."""
    model, system = _sources(state, answers)
    execution = shown_estimate(state, answers).execution
    return sensitivity(model, execution, system, **requested_effects(state))


def operators(state: State, answers: Answers) -> Block:
    """Return one block of the plan, as ``calculon block`` does."""
    model, system = _sources(state, answers)
    return block(model, shown_estimate(state, answers).execution, system)


def _operator_rows(state: State, answers: Answers) -> str:
    rows = operators(state, answers).rows
    return f"{Table(tuple(map(Column, rows[0])), rows).csv()}\n"


def _served(state: State, answers: Answers) -> str:
    """Return the deployment of a page as JSON.

    Raises:
        Infeasible: If no deployment fits in memory.
    """
    found = displayed_deployment(state, answers)
    if found.served is None:
        raise Infeasible("nothing", found.problem)
    return json_text(found.served.to_dict())


def _report(state: State, answers: Answers) -> str:
    """Return the report page of the best plan and the user's plan."""
    return report_text(results_of("report", [whole_answer(state, answers)], {}))[0]


def launch_file(dialect: str, state: State, answers: Answers) -> tuple[str, str]:
    """Return the launch file of the plan, and the reason if it lacks the model's settings.

    Raises:
        SpecError: If the launcher cannot express the plan.
    """
    tokens = answers.question(state).tokens
    return exported_plan(shown_estimate(state, answers), dialect, tokens)


_ALL = ("plan", "search", "machine", "pipeline")

EXPORTS: dict[str, Export] = {
    "answer.json": Export(
        title="Best plan, alternatives and other counts",
        text=lambda state, answers: json_text(whole_answer(state, answers).to_dict()),
        views=_ALL,
        runs=False,
    ),
    "plans.csv": Export(
        title="Best plan of each split",
        text=lambda state, answers: table_text([answers.best_plans(state)]),
        views=("plan",),
        runs=False,
    ),
    "search.json": Export(
        title="Best plan of this search",
        text=lambda state, answers: json_text(searched(state, answers)),
        views=("search",),
        runs=False,
    ),
    "search.csv": Export(
        title="Best plan of each split",
        text=lambda state, answers: table_text([each_split(state, answers)]),
        views=("search",),
        runs=False,
    ),
    "statistics.json": Export(
        title="All statistics of this plan",
        text=lambda state, answers: json_text(shown_estimate(state, answers).to_dict()),
        views=("plan", "pipeline"),
    ),
    "execution.json": Export(
        title="This plan as an execution file",
        text=lambda state, answers: f"{indented(stated_execution(state, answers))}\n",
        views=_ALL,
    ),
    "sensitivity.json": Export(
        title="Sensitivity of this plan",
        text=lambda state, answers: json_text(depends(state, answers).to_dict()),
        views=("machine",),
    ),
    "sensitivity.csv": Export(
        title="Figures of the machine and their effects",
        text=lambda state, answers: f"{figures_table(depends(state, answers)).csv()}\n",
        views=("machine",),
    ),
    "block.json": Export(
        title="One block of this plan",
        text=lambda state, answers: json_text(operators(state, answers).to_dict()),
        views=("pipeline",),
    ),
    "operators.csv": Export(
        title="Operators of one block",
        text=_operator_rows,
        views=("pipeline",),
    ),
    "served.json": Export(
        title="This deployment in full",
        text=_served,
        views=(SERVING,),
    ),
    "deployments.json": Export(
        title="The best deployments",
        text=lambda state, answers: json_text(deployments(state, answers).to_dict()),
        views=(SERVING,),
    ),
    "report.html": Export(
        title="Report",
        text=_report,
        views=_ALL,
    ),
}
"""The export files of a page by name."""


def _launching(dialect: str) -> Export:
    return Export(
        title=DIALECTS[dialect].title,
        text=lambda state, answers: launch_file(dialect, state, answers)[0],
        views=("plan",),
    )


LAUNCH_FILES: dict[str, Export] = {
    f"{name}{one.suffix}": _launching(name) for name, one in DIALECTS.items()
}
"""The launch files of a plan by name."""
