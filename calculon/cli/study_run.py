"""Shared steps of ``calculon study`` for executions and deployments: finish the tasks, show the best figures."""

from typing import TYPE_CHECKING, Any, TypeVar

from calculon.cli.options import Log
from calculon.cli.streams import exit_code, interruption_word, print_stderr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from calculon.render.text_tables import Table
    from calculon.search.engines import Engine
    from calculon.study.journal import Finished, Journal
    from calculon.study.study_file import Study
    from calculon.study.study_summary import Winners

T = TypeVar("T")
F = TypeVar("F", bound="Finished")

FAILED = 1


def finish_all(
    noun: str,
    tasks: "Sequence[T]",
    function: "Callable[[T], F]",
    engine: "Engine",
    journal: "Journal[F]",
    log: Log,
    *,
    quiet: bool,
) -> int:
    """Run the unfinished tasks; return 0, or an exit code after an interruption."""
    from calculon.cli.progress import progress
    from calculon.search.engines import EngineError

    before = len(journal.outcomes)
    total = before + len(tasks)
    if before:
        log(f"Finished before: {before:,} (kept in {journal.path})")
    try:
        with progress(total, done=before, quiet=quiet) as advance:
            for outcome in engine.map(function, tasks):
                journal.add(outcome)
                advance(1)
    except (KeyboardInterrupt, EngineError) as error:
        kind = (
            interruption_word(error) if isinstance(error, KeyboardInterrupt) else f"error: {error}"
        )
        done = f"{len(journal.outcomes):,} of {total:,} {noun}"
        print_stderr(f"calculon: {kind}")
        print_stderr(
            f"calculon: {done} are finished and kept in {journal.path}; the same command resumes"
        )
        return exit_code(error) if isinstance(error, KeyboardInterrupt) else FAILED
    return 0


def show_summary(study: "Study", winners: "Winners", log: Log, notes: "Sequence[Any]" = ()) -> None:
    """Show the best figures of a study as one table per group, followed by notes."""
    # A row of a serving study is one deployment: all its figures take the same processors.
    once = study.serves and study.summary is None  # each row is one deployment
    groups = winners.columns if winners.best or not study.serves else ()
    log("")
    if study.about:
        log.show(study.about)
    for group in groups:
        log("" if group is None else f"\n{winners.summary.columns}: {group}")
        log.table(_summary_table(winners, group, once=once), "text")
    if winners.champions():
        each = "" if once else "; 'at' is the number of processors it takes"
        log(f"\n* best of its column{each}")
    log.show(*notes)
    for line in _undefined(winners):
        log(line)


def _undefined(winners: "Winners") -> "Iterator[str]":
    """Yield one line per figure with the number of executions for which it is undefined."""
    for title, (formula, _) in winners.summary.best.items():
        if count := sum(n for place, n in winners.undefined.items() if place[2] == title):
            of = f"{count:,} execution{'s' * (count > 1)}"
            yield f"{title} is undefined for {of}: {formula.text} divides by 0, or is no finite number"


def _summary_table(winners: "Winners", group: object, *, once: bool) -> "Table":
    """Return the summary of one group: figures as columns, each with its processor count.

    With `once`, all figures of a row belong to one deployment, whose processor count comes first.
    """
    from calculon.render.digits import Digits
    from calculon.render.text_tables import Column, Table

    titles, champions = list(winners.summary.best), winners.champions()
    columns = [Column(f"row.{name}", name, right=True) for name in winners.summary.rows]
    if once and "num_procs" not in winners.summary.rows:
        columns.append(Column("num_procs", "processors", right=True))
    for number, title in enumerate(titles):
        last = 2 * number  # the first figure stays
        columns.append(Column(title, f"{title} ", right=True, drop=last))
        if not once:
            columns.append(Column(f"{title}.at", "at", right=True, drop=last + 1))
    rows = []
    for key in winners.rows:
        row = {f"row.{n}": v for n, v in zip(winners.summary.rows, key, strict=True)}
        row["num_procs"] = None
        for title in titles:
            best = winners.best.get((key, group, title))
            star = "*" if champions.get((group, title)) == key else " "
            none = "undefined " if (key, group, title) in winners.undefined else "- "
            row[title] = f"{Digits(best.spread).rate(best.value)}{star}" if best else none
            row[f"{title}.at"] = best.num_procs if best else None
            row["num_procs"] = best.num_procs if best else row["num_procs"]
        rows.append(row)
    return Table(tuple(columns), rows, "a wider screen")
