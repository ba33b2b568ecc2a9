"""``calculon llm-all-executions``: all feasible executions of a model on a system, as a table."""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from calculon.base.errors import Problem, SpecError, nearest
from calculon.cli.options import Log, Parser, check_inputs, check_outputs
from calculon.cli.search_options import (
    add_space_arguments,
    add_verbose,
    log_changes,
    log_interrupted,
    log_outcome,
    log_space,
    searches,
)
from calculon.declarations.named_values import PUBLISHED

if TYPE_CHECKING:
    from calculon.estimate.evaluate import Evaluation
    from calculon.render.writers import Columns
    from calculon.search.space import Space


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Write every feasible execution of a model on a number of processors to a table: the execution "
        "fields and statistics (23 and 96 as published; in edition corrected also the prediction interval of the "
        "time), in search order, streamed in constant memory.",
        "calculon llm-all-executions turing-530B 5128 2520 float16 a100_80g all.csv\n"
        "calculon lae megatron-22B 8 4 float16 a100_80g all.parquet --where 'tensor_par == 8'\n"
        "calculon lae megatron-22B 8 4 float16 a100_80g few.csv --columns tensor_par,pipeline_par,sample_rate\n"
        "calculon lae llama3-8B 64 512 bfloat16 h100_80g_sxm runs.csv --tokens 1T --columns tensor_par,days,usd",
    )
    add_space_arguments(parser, "processors", "NAME.csv, NAME.csv.gz or NAME.parquet")
    parser.option("-c, --cpus N", "accepted for compatibility; not needed", type=int)
    parser.option("--columns NAME[,NAME...]", "write only these fields and statistics")
    add_verbose(parser, "count executions that fit, and those that do not by reason")
    parser.show_first("--where", "--fix", "--edition", "--preset", "--risk", "--quiet")


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Count the search space, then stream its feasible executions to the file."""
    from calculon.cli.progress import progress
    from calculon.estimate.bounds import bounds
    from calculon.render.table_columns import evaluation_columns
    from calculon.render.writers import SUFFIXES, check_format
    from calculon.search.driver import feasible_tables, no_winners
    from calculon.search.request import make_condition
    from calculon.search.task import run_search

    specs = [arguments.application, arguments.system]
    check_inputs(specs)
    check_outputs([arguments.output], specs, SUFFIXES)
    check_format(arguments.output)
    asked = searches(arguments)
    if len(asked) > 1:
        raise SpecError("NUM_PROCS", Problem("", "one processor count", f"{len(asked)} of them"))
    space = asked[0].space()
    where = make_condition(asked[0].where, space.edition, space.runs)
    names = _columns(arguments.columns, space)
    begin = time.perf_counter()
    # The first pass only counts (no condition, no campaign): the progress bar needs a total.
    counts = run_search(replace(asked[0], where=None, campaign=None)).counts
    every = arguments.verbose or arguments.debug or space.edition == PUBLISHED
    log_space(log, space, counts, every=every)
    log_changes(log, asked[0].model, asked[0].system)

    def columns_of(table: "Evaluation") -> "Columns":
        ends = bounds(space.model, table, space.system)
        columns = evaluation_columns(table, ends, space.names)
        return {name: columns[name] for name in names} if names else columns

    seen = 0
    try:
        with progress(counts.good, what="executions", quiet=arguments.quiet) as advance:

            def count(more: int) -> None:
                nonlocal seen
                seen += more
                advance(more)

            tables = feasible_tables(space, where, seen=count)
            found = (columns_of(table) for table in tables if len(table))
            if arguments.debug:
                rows = sum(len(table) for table in tables)
            else:
                rows = _write(arguments, found, columns_of(no_winners(space)))
    except KeyboardInterrupt:
        log_interrupted(f"{seen} of {counts.good} feasible executions done")
        raise
    if every:
        log_outcome(log, counts.good, counts.bad, counts.total, time.perf_counter() - begin)
    if where is not None:
        log(f"Selected executions: {rows} of {counts.good} feasible meet the condition")
    _tell(space, counts.good, rows, log)
    if not arguments.debug and (rows or arguments.noneok):
        log(f"Output: {arguments.output}")
    return 0 if rows or arguments.noneok else 1


def _tell(space: "Space", good: int, rows: int, log: Log) -> None:
    """Report that nothing was found, with the distance to each limit, or else the assumptions of whole runs."""
    if not rows:
        log("No acceptable configurations found :(")
    if space.runs is None or log.quiet:
        return
    from calculon.cli.whole_runs import assumed_of_run, missed

    log.show(*([assumed_of_run([space.runs])] if rows else missed(space, good)))


def _write(arguments: argparse.Namespace, tables: "Iterator[Columns]", empty: "Columns") -> int:
    """Stream tables to the output; create no file if there is nothing to write."""
    from calculon.render.writers import write_tables

    first = next(tables, None)
    if first is None and not arguments.noneok:
        return 0
    return write_tables(arguments.output, chain([first] if first else [], tables), empty)


def _columns(text: str | None, space: "Space") -> tuple[str, ...]:
    """Parse the names of columns to write (empty: all); raise SpecError for an unknown field or statistic."""
    from calculon.declarations.run_figures import RUN_FIGURES
    from calculon.declarations.statistics import BOUNDS
    from calculon.editions import find_edition
    from calculon.inputs import NAMED
    from calculon.plan.plan import names_of
    from calculon.search.objective import of_a_run

    edition, runs = space.edition, () if space.campaign is None else tuple(RUN_FIGURES)
    own = () if edition == PUBLISHED else (*BOUNDS, *NAMED, *runs)
    known = (*names_of(edition), *(column.name for column in find_edition(edition).columns), *own)
    names = tuple(name.strip() for name in text.split(",")) if text else ()
    for name in names:
        if name not in known:
            hint = of_a_run(name) or nearest(name, known) or "see: calculon describe stats"
            raise SpecError("--columns", Problem("", "a field or statistic", repr(name), hint))
    return names
