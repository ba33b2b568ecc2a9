"""``calculon study`` for deployments: each deployment under each workload, resumable after an interruption."""

import argparse
from typing import TYPE_CHECKING

from calculon.base.errors import Problem, SpecError
from calculon.cli.options import Log
from calculon.cli.study_run import finish_all, show_summary
from calculon.declarations.named_values import CORRECTED

if TYPE_CHECKING:
    from calculon.study.study_file import Study


def run_served(study: "Study", arguments: argparse.Namespace, log: Log) -> int:
    """Check everything, run the unfinished deployments, write the table and show the summary."""
    from calculon.render.texts import counted
    from calculon.search.engines import make_engine
    from calculon.study.journal import Journal
    from calculon.study.served_questions import Answer, answer, plan_questions
    from calculon.study.served_table import of_outcomes, served_summary, write_served
    from calculon.study.study_summary import Winners

    for option, given in (("--edition", arguments.edition), ("--preset", arguments.preset)):
        if given and given != (CORRECTED,):
            wanted = f"none: deployments are of edition {CORRECTED}"
            raise SpecError(option, Problem("", wanted, ", ".join(given)))
    questions = plan_questions(study)
    winners = Winners(served_summary(study, questions.searches))
    engine = make_engine(arguments.engine, arguments.cpus, arguments.scheduler)
    total, output = len(questions.searches), arguments.output
    log(f"Deployments under workloads: {total:,}")
    if arguments.debug:
        return 0
    with Journal.open(
        output, study.file, questions.fingerprint, total, Answer, restart=arguments.restart
    ) as journal:
        # Deployments in the journal were finished by an earlier, interrupted call.
        done = set(journal.outcomes)
        tasks = [one.search for one in questions.searches if one.search.number not in done]
        if code := finish_all(
            "deployments", tasks, answer, engine, journal, log, quiet=arguments.quiet
        ):
            return code
        rows = of_outcomes(questions.searches, journal.outcomes)
    count = write_served(output, rows)
    winners.add(rows)
    for reason, column, note in (
        ("Cannot run", "reason", ""),
        ("Miss a limit", "missed", "; not in the summary"),
    ):
        if number := sum(1 for one in rows.answers if getattr(one, column)):
            log(f"{reason}: {number:,} (column {column}){note}")
    log(f"Output: {output} ({counted(count, 'row')})")
    show_summary(study, winners, log)
    return 0
