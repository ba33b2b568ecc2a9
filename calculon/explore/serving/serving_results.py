"""Inputs and results of the serving view: requests, candidate deployments, the best ones, and their frontier."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from calculon import inputs
from calculon.base.errors import Infeasible, Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.campaign.goals import TimeSpan
from calculon.declarations import catalog
from calculon.declarations.model import Model
from calculon.declarations.parse import parse_value
from calculon.documents.served_frontier import AXES, frontier_in
from calculon.explore.allowed_inputs import MODEL
from calculon.explore.answers import Answers
from calculon.explore.page_state import State
from calculon.explore.serving.served_words import DEPLOYMENT, REQUESTS
from calculon.search.deployments.deployment_search import DeploymentSearch
from calculon.search.deployments.deployment_space import DeploymentSpace
from calculon.search.deployments.deployment_vocabulary import CHOICES, SCHEDULING, SPLIT, checked
from calculon.search.deployments.serving_search import OBJECTIVE, make_space, searched
from calculon.serving.default_deployment import default_types
from calculon.serving.records.deployments import COUNT
from calculon.serving.records.load import SATURATED, Workload
from calculon.serving.records.read_records import read_workload
from calculon.serving.serve import Served

TOP = 8
"""Number of listed deployments."""

LISTED = tuple(name for name in (*SPLIT, "token_budget") if f"deployment.{name}" in DEPLOYMENT)
"""Numeric fields restricted to values of possible deployments; each narrows the fields after it."""


def workloads() -> list[str]:
    """Return the names of workloads that an address may contain."""
    return list(catalog.names("workload"))


def stated(state: State, words: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields stated by an address, among some words, by their names in files.

    Raises:
        SpecError: For a text that is no value.
    """
    result = {}
    for word, one in words.items():
        if not (text := state.option(word)):
            continue
        try:
            result[one.key] = parse_value(text)
        except SpecError as error:
            raise SpecError("address", Problem(one.key, error.expected, error.found)) from None
    return result


def workload(state: State) -> Workload:
    """Return the requests and their limits.

    Raises:
        SpecError: For an unknown workload, and for invalid values of its fields.
    """
    name, known = state.option("workload"), workloads()
    if name not in known:
        wanted = f"one of {', '.join(known)}"
        raise SpecError("address", Problem("workload", wanted, repr(name), nearest(name, known)))
    return read_workload(name, stated(state, REQUESTS))


def counts(state: State, load: Workload) -> str:
    """Return the processor counts to try: for a given load, as few processors as it needs."""
    if own := state.option(f"deployment.{COUNT}"):
        return _own_count(state, own)
    if load.kind == SATURATED or state.procs == 1:
        return str(state.procs)
    # Powers of two cover the usual replica counts; the available count is added if it is none.
    doubling = f"1:{state.procs}:x2"
    return doubling if state.procs & (state.procs - 1) == 0 else f"{doubling},{state.procs}"


def _own_count(state: State, text: str) -> str:
    if not re.fullmatch(r"\d{1,9}", text) or not 1 <= int(text) <= state.procs:
        wanted = f"a number of the {state.procs:,} processors"
        raise SpecError("deployment", Problem(COUNT, wanted, repr(text)))
    return text


def fixed(state: State) -> dict[str, Any]:
    """Return the deployment fields fixed by an address.

    Raises:
        SpecError: For invalid values.
    """
    result = {name: one for name, one in stated(state, DEPLOYMENT).items() if name != COUNT}
    checked("deployment", result)
    return result


def key_of(state: State) -> str:
    """Return the part of a state that its deployments depend on."""
    asked = ("workload", *REQUESTS, *DEPLOYMENT)
    options = {name: one for name, one in state.options.items() if name in asked}
    bare = State(model=state.model, system=state.system, procs=state.procs, machine=state.machine)
    return replace(bare, options=options).query


def space(state: State, answers: Answers) -> DeploymentSpace:
    """Return the search space of deployments.

    Raises:
        SpecError: For an invalid question.
    """
    return answers.cached(("deployments tried", key_of(state)), lambda: _space(state, answers))


def _space(state: State, answers: Answers) -> DeploymentSpace:
    load, held = workload(state), fixed(state)
    for name in LISTED:
        if name not in held:
            continue
        known = possible(state, answers, name)
        if held[name] not in known:
            wanted = f"one of {', '.join(f'{one:,}' for one in known)}"
            raise SpecError("deployment", Problem(name, wanted, repr(held[name])))
    return _make(state, answers, load, held)


def released(state: State, answers: Answers) -> Mapping[str, Any]:
    """Return the types of the released weights of the model, by field."""
    return default_types(_model(state, answers))


def _model(state: State, answers: Answers) -> Model:
    source = answers.allowed.source(MODEL, state.model)
    return answers.cached(("model", state.model), lambda: inputs.model(source))


def _make(
    state: State,
    answers: Answers,
    load: Workload,
    held: Mapping[str, Any],
    *,
    vary_batch: bool = False,
) -> DeploymentSpace:
    model, system = _model(state, answers), answers.system(state)
    return make_space(model, counts(state, load), system, load, None, held, vary_batch=vary_batch)


def possible(state: State, answers: Answers, name: str) -> list[int]:
    """Return the possible values of a numeric field, given the types and the previous numbers of the address."""
    return answers.cached(
        ("possible", key_of(state), name), lambda: _possible(state, answers, name)
    )


def _possible(state: State, answers: Answers, name: str) -> list[int]:
    held = fixed(state)
    before = LISTED[: LISTED.index(name)]
    others = {one: value for one, value in held.items() if one in before or one in CHOICES}
    if name == COUNT:
        bare = replace(state, options={**state.options, f"deployment.{COUNT}": ""})
        return [*map(int, _make(bare, answers, workload(bare), others).counts)]
    found: set[int] = set()
    for group in _make(state, answers, workload(state), others).groups:
        column = group.splits[SPLIT.index(name)] if name in SPLIT else None
        values = group.scheduling[SCHEDULING.index(name)] if column is None else column
        found.update(np.unique(values).tolist())
    return sorted(map(int, found))


def deployments(state: State, answers: Answers) -> DeploymentSearch:
    """Return the best deployments by generated tokens/s per processor, which are the cheapest ones."""
    tried = space(state, answers)
    return answers.cached_search(
        ("deployments", key_of(state)), lambda: searched(tried, OBJECTIVE, TOP)
    )


@dataclass(frozen=True)
class DisplayedDeployment:
    """Deployment of a page.

    Attributes:
        served: The best deployment, or the nearest if none meets the limits; None if none fits in memory.
        problem: Reason why none meets the limits.
    """

    served: Served | None
    problem: str = ""


def displayed_deployment(state: State, answers: Answers) -> DisplayedDeployment:
    """Return the deployment of a page."""
    found = deployments(state, answers)
    return answers.cached(("answered", key_of(state)), lambda: _displayed_deployment(found))


def _displayed_deployment(result: DeploymentSearch) -> DisplayedDeployment:
    try:
        return DisplayedDeployment(result.best_or_nearest, "" if len(result) else str(result.why))
    except Infeasible as why:
        return DisplayedDeployment(None, str(why))


def frontier(state: State, answers: Answers) -> Mapping[str, Any]:
    """Return the frontier of all deployments on all processors at every batch, with the stated types.

    Raises:
        Infeasible: If the model fits in no deployment, or if no batch meets the limits.
    """
    numbers = [word for word, one in DEPLOYMENT.items() if one.key not in CHOICES]
    options = {name: one for name, one in state.options.items() if name not in numbers}
    free = replace(state, options=options)
    return answers.cached(("frontier", key_of(free)), lambda: _frontier(free, answers))


def _frontier(state: State, answers: Answers) -> Mapping[str, Any]:
    load = workload(state)
    pause = load.think if load.turns > 1 else TimeSpan(0)  # single requests have no think time
    # Without a fixed load, the search tries every batch.
    load = replace(load, rate=None, users=None, think=pause)
    tried = _make(state, answers, load, fixed(state), vary_batch=True)
    return frontier_in(searched(tried, pareto=AXES))


def with_deployment(state: State, fields: Mapping[str, Any]) -> str:
    """Return the address of a page with a deployment: its split, schedule and non-default types."""
    options = {
        word: str(value)
        for word, one in DEPLOYMENT.items()
        if (value := fields.get(one.key)) is not None
        # A stated default stays: the default of a type may be the type of the released weights.
        and not (one.key in CHOICES and value == one.default and not state.option(word))
        and not (one.key == COUNT and value == state.procs)
        and not (one.key == "max_batch" and not value)
    }
    return state.with_options(**{**dict.fromkeys(DEPLOYMENT, ""), **options})
