"""Contents of the pictures that ``calculon plot`` draws of single answers: runs, deployments, schedules, errors."""

import argparse
from collections.abc import Sequence
from typing import Any

from calculon.advise.planning import plan
from calculon.advise.runs.goodput_by_size import goodput_by_size
from calculon.base.errors import Problem, SpecError
from calculon.cli.asked_run import asked_run
from calculon.cli.changes import parsed, with_changes
from calculon.cli.field_options import stated_by
from calculon.cli.options import check_inputs, naming
from calculon.cli.question_options import asked_question, set_in_order
from calculon.cli.serving_options import FRONTIER_KINDS, OPTIONS, asked_served
from calculon.declarations import catalog
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.parse import parse_value
from calculon.declarations.result_selection import split
from calculon.documents.charts.run_days_chart import RunDays
from calculon.documents.charts.schedule_chart import Gantt
from calculon.documents.charts.validation_chart import Pairs, Validation
from calculon.documents.run_pictures import run_days
from calculon.documents.schedule_passes import passes
from calculon.documents.served_frontier import frontier_of
from calculon.estimate.estimate import estimate
from calculon.inputs import Changed, Source, sources_in
from calculon.search.deployments import deployment_words
from calculon.serving.by_batch import by_batch
from calculon.validate.error_summary import score_record
from calculon.validate.measured_and_predicted import compare
from calculon.validate.published_study import Library


def days(arguments: argparse.Namespace) -> RunDays:
    """Return where the days of the run go, and when it ends."""
    return run_days(asked_run(arguments))


def goodput(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the goodput of the run on other numbers of processors."""
    texts = [] if arguments.mtbfs is None else arguments.mtbfs.split(",")
    mtbf: list[Any] | None = [parse_value(text.strip()) for text in texts] or None
    return goodput_by_size(asked_run(arguments), arguments.procs, mtbf).to_dict()


def budget(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the best plans of all machines and counts, with what their whole runs take."""
    set_in_order(arguments)
    model, machines, words = asked_question(arguments)
    found = plan(model, arguments.num_procs, machines, objective=arguments.objective, **words)
    return found.to_dict()


def batch(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return times and rates of a deployment over its batch."""
    return by_batch(asked_served(arguments)).to_dict()


def frontier(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the frontier of each machine."""
    changes = parsed(arguments.changes, FRONTIER_KINDS)
    return frontier_of(
        Changed.of(arguments.model, changes["model"]),
        arguments.num_procs,
        [Changed.of(one, changes["system"]) for one in arguments.systems],
        arguments.workload,
        stated_by(OPTIONS, arguments) | changes["workload"],
        deployment_words.parsed("--fix", arguments.fix),
        deployment_words.parsed("--add", arguments.add),
        apart=arguments.apart,
    )


def gantt(arguments: argparse.Namespace) -> Gantt:
    """Return the passes of each stage, as the estimate of an execution has them."""
    specs = _specs(arguments.specs)
    check_inputs([one for one in specs.values() if isinstance(one, str)])
    with naming(str(specs["execution"])):
        found = estimate(
            **with_changes(arguments.changes, **specs),
            edition=arguments.edition,
            preset=arguments.preset,
        )
    return passes(found, arguments.microbatches, "--microbatches")


def _specs(texts: Sequence[str]) -> dict[str, Source]:
    """Return model, execution and system: the three, or those of a result."""
    if len(texts) == 3:
        return dict(zip(("model", "execution", "system"), texts, strict=True))
    if len(texts) != 1:
        raise SpecError(
            "plot schedule",
            Problem("", "APP EXE SYS, or one result of loe or llm", " ".join(texts)),
        )
    _, _, question = catalog.read("execution", texts[0])
    specs = sources_in(question, split(texts[0])[0])
    if missing := [kind for kind in ("model", "system") if kind not in specs]:
        wanted = f"a result that says its {' and '.join(missing)}, and where to find them"
        hint = "give three: APP EXE SYS"
        raise SpecError(texts[0], Problem("", wanted, "one that does not", hint))
    return {"model": specs["model"], "execution": texts[0], "system": specs["system"]}


def errors(arguments: argparse.Namespace) -> Validation:
    """Return the pairs for each quantity of each study that was compared."""
    library = Library.at()
    edition = arguments.edition or PUBLISHED
    results = [compare(study, library, edition) for study in library.studies(arguments.study)]
    pairs = [
        Pairs(
            result.study.name,
            one.quantity.name,
            one.quantity.unit,
            one.measured.tolist(),
            one.estimated.tolist(),
            score_record(one.score),
            [row.label for row in one.rows],
        )
        for result in results
        for one in result.own.comparisons
        if one.score
    ]
    return Validation(pairs, edition)
