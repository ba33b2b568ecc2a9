"""``calculon study``: run many searches from one file, resumable after an interruption."""

import argparse
import time
from typing import TYPE_CHECKING

from calculon.cli.options import USUAL, Log, Parser, add_edition, add_preset, check_outputs
from calculon.cli.search_options import PUBLISHED_FORMS, log_edition
from calculon.cli.study_run import finish_all, show_summary
from calculon.declarations import catalog
from calculon.declarations.files import STDIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from calculon.search.task import Outcome
    from calculon.study.journal import Journal
    from calculon.study.points import Plans
    from calculon.study.study_file import Study
    from calculon.study.study_summary import Winners


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Run every search of a study file: all combinations of models, systems, processor "
        "counts and other values that it lists (examples/studies explains the file). The result is a table with "
        "a row for each execution found. Finished searches are kept in a journal next to the output: when "
        "interrupted, the same command continues. A study with deployments serves models: every "
        "deployment under every workload.\n\n"
        "On a cluster, start a Dask scheduler and workers (dask-jobqueue does it for SLURM and LSF) and give "
        "its address: --engine dask --scheduler tcp://node1:8786.",
        "calculon study tutorial -o tutorial.csv\n"
        "calculon study serving -o serving.csv\n"
        "calculon study examples/studies/system_design_sc23.yaml -o design.parquet -c 16",
    )
    parser.argument("STUDY", "the study: a YAML or JSON file, or a name of the catalog")
    parser.option(
        "-o, --output FILE",
        "the table: NAME.parquet, NAME.csv or NAME.json (the last two also .gz); "
        "CSV has a ' before texts that begin with =, +, - or @",
        required=True,
    )
    parser.option("-c, --cpus N", "worker processes (default: the physical cores)", type=int)
    parser.option(
        "--engine NAME",
        "engine that runs the searches: processes (default), serial or dask; the results are the same",
        default="processes",
    )
    parser.option(
        "--scheduler ADDRESS",
        "for dask: address or scheduler file of a running scheduler; "
        "searches and results are exchanged as pickles: use only an address that you trust",
    )
    parser.switch("--restart", "discard finished searches and replace the output")
    add_edition(parser, several=True, absent="from the study, or as each model needs")
    add_preset(
        parser,
        several=True,
        absent="from the study, or by machine",
        longer=f"; by machine: {USUAL}{PUBLISHED_FORMS}",
    )
    parser.switch("-d, --debug", "only check the study and count its searches")
    parser.switch("-q, --quiet", "no progress on standard error")


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Check everything, run the unfinished searches, write the table and show the summary."""
    from calculon.render.writers import check_format
    from calculon.study.study_table import SUFFIXES

    file = catalog.find("study", arguments.study)
    inputs = [file] if file != STDIN else []
    check_outputs([arguments.output], inputs, SUFFIXES)
    check_format(arguments.output)
    from calculon.search.engines import make_engine
    from calculon.search.task import Outcome, run_search
    from calculon.study.journal import Journal
    from calculon.study.points import plan
    from calculon.study.study_file import Study
    from calculon.study.study_summary import Winners, make_summary

    study = Study.read(file)
    if study.serves:
        from calculon.cli.served_study import run_served

        return run_served(study, arguments, log)
    if arguments.edition:
        study = study.under("edition", arguments.edition)
    if arguments.preset:
        study = study.under("preset", arguments.preset)
    plans = plan(study)
    winners = Winners(make_summary(study, plans.searches))
    engine = make_engine(arguments.engine, arguments.cpus, arguments.scheduler)
    total = len(plans.searches)
    if arguments.debug:
        log(f"Searches: {total:,}")
        return 0
    with Journal.open(
        arguments.output, study.file, plans.fingerprint, total, Outcome, restart=arguments.restart
    ) as journal:
        log(f"Searches: {total:,}")
        editions = sorted({p.search.edition for p in plans.searches}, reverse=True)
        log_edition(log, ", ".join(editions))
        # Only searches that are not in the journal run: this is how an interrupted study resumes.
        before, begin = set(journal.outcomes), time.perf_counter()
        tasks = [p.search for p in plans.searches if p.search.number not in before]
        if code := finish_all(
            "searches", tasks, run_search, engine, journal, log, quiet=arguments.quiet
        ):
            return code
        if tasks:
            seconds = time.perf_counter() - begin
            executions = sum(journal.outcomes[task.number].counts.total for task in tasks)
            log(f"Executions searched: {executions:,} in {seconds:.1f} s")
        return _finish(study, plans, journal, winners, arguments.output, log)


def _finish(
    study: "Study",
    plans: "Plans",
    journal: "Journal[Outcome]",
    winners: "Winners",
    output: str,
    log: Log,
) -> int:
    """Write the table and show the best figures."""
    from calculon.render.texts import counted
    from calculon.study.study_table import parts, write_result

    result = winners.watch(parts(plans.searches, journal.outcomes))
    rows = write_result(output, plans.searches, result)
    nothing = sum(1 for outcome in journal.outcomes.values() if not outcome.numbers)
    if nothing:
        log(f"Searches that found nothing: {nothing:,}")
    log(f"Output: {output} ({counted(rows, 'row')})")
    notes = []
    if runs := [p.search.runs for p in plans.searches if p.search.campaign is not None]:
        from calculon.cli.whole_runs import assumed_of_run

        notes.append(assumed_of_run([one for one in runs if one is not None]))
    show_summary(study, winners, log, notes)
    if spreads := [best.spread for best in winners.best.values() if best.spread]:
        log(_sureness(spreads))
    return 0


def _sureness(spreads: "Sequence[float]") -> str:
    """Describe the uncertainty of figures that follow from the time."""
    from statistics import median

    half = f"+-{median(spreads) * 100:.0f} %"
    return f"Times are accurate to {half} (90 %); total_time_low and total_time_high have the interval of each"
