"""Charts of single results for ``calculon plot``: plans, runs, deployments, pipeline schedules, errors."""

import argparse
from collections.abc import Sequence
from typing import Any

from calculon.advise.planning import plan
from calculon.base.errors import Problem, SpecError
from calculon.cli.changes import parsed, with_changes
from calculon.cli.field_options import stated_by
from calculon.cli.options import check_inputs, naming
from calculon.cli.question_options import requested_question, set_in_order
from calculon.cli.requested_run import requested_run
from calculon.cli.results import requested_results
from calculon.cli.serving_options import FRONTIER_KINDS, OPTIONS, requested_deployment
from calculon.declarations import catalog
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.parse import parse_value
from calculon.declarations.result_selection import split
from calculon.documents.charts import breakdown as parts
from calculon.documents.charts import schedule_chart, waterfall_chart
from calculon.documents.charts.serving_frontier_chart import serving_frontier
from calculon.documents.charts.validation_chart import Pairs, validation_chart
from calculon.documents.result_pictures import chart
from calculon.documents.schedule_passes import passes
from calculon.documents.served_frontier import frontier_of
from calculon.documents.waterfalls import labeled_waterfalls
from calculon.estimate.estimate import estimate
from calculon.inputs import Changed, Source, sources_in
from calculon.render.chart import Chart
from calculon.render.document import Document
from calculon.search.deployments import deployment_vocabulary
from calculon.serving.by_batch import by_batch
from calculon.validate.error_summary import score_record
from calculon.validate.measured_and_predicted import compare
from calculon.validate.published_study import Library


def breakdown(arguments: argparse.Namespace) -> Chart:
    """Return the chart of time and memory of results."""
    return parts.breakdown(requested_results(arguments))


def waterfall(arguments: argparse.Namespace) -> Chart:
    """Return the chart of changes from the first result to each other result."""
    return waterfall_chart.waterfall(labeled_waterfalls(requested_results(arguments)))


def campaign(arguments: argparse.Namespace) -> Chart:
    """Return the chart of the run's days by cause, and its end."""
    return chart(requested_run(arguments), "campaign")


def goodput(arguments: argparse.Namespace) -> Chart:
    """Return the chart of the run's goodput for other processor counts."""
    # Each value becomes one curve.
    texts = [] if arguments.mtbfs is None else arguments.mtbfs.split(",")
    mtbf = [parse_value(text.strip()) for text in texts] or None
    return chart(requested_run(arguments), "goodput", procs=arguments.procs, mtbf=mtbf)


def budget(arguments: argparse.Namespace) -> Chart:
    """Return the chart of the best plans of all machines and counts, with days and cost of their runs."""
    set_in_order(arguments)
    model, machines, words = requested_question(arguments)
    found = plan(model, arguments.num_procs, machines, objective=arguments.objective, **words)
    return chart(found, "budget")


def batch(arguments: argparse.Namespace) -> Chart:
    """Return the chart of a deployment's times and rates over its batch."""
    return chart(requested_deployment(arguments), "batch")


def batch_table(arguments: argparse.Namespace) -> Document:
    """Return the data of :func:`batch` as a table."""
    from calculon.documents.batch_page import batch_page

    return batch_page(by_batch(requested_deployment(arguments)))


def frontier(arguments: argparse.Namespace) -> Chart:
    """Return the throughput-interactivity frontier of each machine."""
    return serving_frontier(_frontiers(arguments))


def frontier_text(arguments: argparse.Namespace) -> Document:
    """Return the frontier of :func:`frontier` drawn as text."""
    from calculon.documents.serving_frontier_page import serving_frontier_page

    return serving_frontier_page(_frontiers(arguments))


def _frontiers(arguments: argparse.Namespace) -> dict[str, Any]:
    changes = parsed(arguments.changes, FRONTIER_KINDS)
    return frontier_of(
        Changed.of(arguments.model, changes["model"]),
        arguments.num_procs,
        [Changed.of(one, changes["system"]) for one in arguments.systems],
        arguments.workload,
        stated_by(OPTIONS, arguments) | changes["workload"],
        deployment_vocabulary.parsed("--fix", arguments.fix),
        deployment_vocabulary.parsed("--add", arguments.add),
        apart=arguments.apart,
    )


def schedule(arguments: argparse.Namespace) -> Chart:
    """Return the pipeline schedule of an execution: the passes of each stage over time."""
    specs = _specs(arguments.specs)
    check_inputs([one for one in specs.values() if isinstance(one, str)])
    with naming(str(specs["execution"])):
        found = estimate(
            **with_changes(arguments.changes, **specs),
            edition=arguments.edition,
            preset=arguments.preset,
        )
    return schedule_chart.schedule(passes(found, arguments.microbatches, "--microbatches"))


def _specs(texts: Sequence[str]) -> dict[str, Source]:
    """Return model, execution and system: three arguments, or the specs named by one result."""
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
        wanted = f"a result that names its {' and '.join(missing)}, with the files"
        hint = "give three: APP EXE SYS"
        raise SpecError(texts[0], Problem("", wanted, "one that does not", hint))
    return {"model": specs["model"], "execution": texts[0], "system": specs["system"]}


def validation(arguments: argparse.Namespace) -> Chart:
    """Return the chart of predicted and measured values for each quantity of each study."""
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
    return validation_chart(pairs, edition)
