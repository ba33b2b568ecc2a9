"""``calculon llm-optimal-execution``: search for the best executions of a model on a system."""

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.base.units import Unit
from calculon.cli.options import STDOUT, Log, Parser, check_inputs, check_outputs
from calculon.cli.search_options import (
    add_space_arguments,
    add_verbose,
    log_changes,
    log_interrupted,
    log_outcome,
    log_space,
    searches,
)
from calculon.cli.whole_runs import assumed_of_run, interval_of_run, missed
from calculon.declarations.files import document_suffix, json_text, replacing, write_json
from calculon.declarations.named_values import PUBLISHED

if TYPE_CHECKING:
    from calculon.base.records import Column as Statistic
    from calculon.render.frontier import Frontier
    from calculon.search.driver import SearchResult
    from calculon.search.task import Search

SUFFIXES = (".json", ".csv", ".parquet")

FORMATS = ("text", "json", "csv")
FORMAT_HELP = "format of the printed output: a table (text, default), or the best as json or csv"


EXAMPLES = (
    "calculon loe turing-530B 5128 2520 float16 a100_80g output.json -m\n"
    "calculon loe gpt3-175B 1024 1536 float16 a100_80g best.csv -t 10\n"
    "calculon loe gpt3-175B 256:4096:256 4096 float16 h100_80g_nvl8 scaling.csv\n"
    "calculon loe llama3-8B 64 512 bfloat16 h100_80g_sxm - --fix attn_impl=flash\n"
    "calculon loe gpt3-175B 1024 1536 float16 a100_80g - --objective total_efficiency --fix tensor_par=4,8\n"
    "calculon loe llama3-8B 64:512:x2 512 bfloat16 h100_80g_sxm - --tokens 1T --objective usd --where 'days <= 30'"
)


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Find the best executions of a model on a number of processors of a system: every parallel split, schedule and "
        "switch is searched exhaustively. Several numbers give one result each.",
        EXAMPLES,
    )
    add_space_arguments(
        parser,
        "processors: a count (1k is 1024), a list (512,1024) or inclusive ranges: 512-2048 doubles, "
        "512:4096:256 adds, 8:4096:x2 multiplies",
        "NAME.json, .csv (both also .gz) or .parquet for the winners; - prints the summary only",
    )
    parser.option(
        "-c, --cpus N",
        "processes for several counts (default: the physical cores for a large search)",
        type=int,
    )
    parser.switch(
        "-m, --mbs-break, --mbs_break",
        "skip larger microbatches after the first that does not fit",
    )
    parser.switch("-l, --layers", "include the cost of every layer")
    parser.option("--format FORMAT", FORMAT_HELP, choices=FORMATS, default="text")
    parser.switch("--no-tp-overlap", "never overlap tensor-parallel traffic")
    parser.switch("--no-dp-overlap", "never overlap data-parallel traffic")
    add_winners(parser)
    parser.show_first(
        "--top-n",
        "--objective",
        "--pareto",
        "--where",
        "--fix",
        "--edition",
        "--preset",
        "--risk",
        "--verbose",
    )


def add_winners(parser: Parser) -> None:
    """Declare the options that select the best executions and their output."""
    parser.option(
        "-t, --top-n, --top_n, --top N", "number of best executions to keep (default 1)", type=int
    )
    parser.option(
        "--objective STAT[:min|max]",
        "statistic to rank by (default sample_rate; see calculon describe stats)",
    )
    parser.option(
        "--pareto STAT,STAT[,STAT...]",
        "the Pareto front of these 2 to 4 statistics",
        "; the first two are drawn",
    )
    add_verbose(
        parser, "count what fits and why the rest does not, explain columns, list all plans"
    )


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Search every processor count, report, and write the winners."""
    specs = [arguments.application, arguments.system]
    check_inputs(specs)
    if arguments.output != STDOUT:
        check_outputs([arguments.output], specs, SUFFIXES)
        from calculon.render.writers import check_format

        check_format(arguments.output)
        if arguments.layers and document_suffix(arguments.output) == ".parquet":
            hint = "write .json or .csv, or leave out -l"
            problem = Problem("", "a file that holds layers", "-l with Parquet", hint)
            raise SpecError(arguments.output, problem)
    asked = searches(arguments, recommends=True)
    if arguments.debug:
        return _count(asked, log)
    begin = time.perf_counter()
    results = _search(asked, arguments)
    seconds = time.perf_counter() - begin
    found = any(len(result) for result in results)
    writes = arguments.output != STDOUT and (found or arguments.noneok)
    if writes:  # before the report, since its reader (head, less) may close the pipe early
        _write(results, asked, arguments)
    if arguments.format != "text":
        log(_winners(results, asked, arguments, arguments.format))
        if found or arguments.noneok:
            return 0
        from calculon.advise.infeasibility import why_none

        raise Infeasible("nothing", f"no plan fits: {why_none(results[-1].counts)}")
    _report(results, asked, arguments, seconds, log)
    if not found:
        log("No acceptable configurations found :(")
    for result in results:
        if result.space.campaign is not None and not len(result):
            log.show(*missed(result.space, result.counts.good))
    if not found and not log.quiet and results[0].edition != PUBLISHED:
        _explain(results, asked, log)
    if writes:
        log(f"Output: {arguments.output}")
    return 0 if found or arguments.noneok else 1


def _count(searches: "list[Search]", log: Log) -> int:
    """Only count the spaces, as the published tool does with its debug option."""
    from calculon.search.best_first import count_space

    begin = time.perf_counter()
    total = sum(count_space(search.space(), mbs_break=search.mbs_break) for search in searches)
    log(f"Total executions: {total}")
    log_outcome(log, 0, 0, total, time.perf_counter() - begin)
    log("(counted only: nothing was evaluated)")
    return 0


LARGE = 1_000_000_000
"""Number of executions above which several processor counts are searched in parallel without ``--cpus``."""


def _search(searches: "list[Search]", arguments: argparse.Namespace) -> "list[SearchResult]":
    """Search every processor count, in several processes if the space is large enough."""
    from calculon.cli.progress import progress
    from calculon.search.best_first import count_space
    from calculon.search.engines import make_engine
    from calculon.search.task import run_search

    # Starting processes pays only for large spaces; counting is exact and cheap.
    large = sum(count_space(search.space()) for search in searches) > LARGE
    engine = make_engine("processes" if large or arguments.cpus else "serial", arguments.cpus)
    results: dict[int, SearchResult] = {}
    try:
        with progress(len(searches), quiet=arguments.quiet) as advance:
            for outcome in engine.map(run_search, searches):
                results[outcome.search] = outcome.result(searches[outcome.search])
                advance(1)
    except KeyboardInterrupt:
        log_interrupted(f"{len(results)} of {len(searches)} processor counts searched")
        raise
    return [results[search.number] for search in searches]


def _report(
    results: "list[SearchResult]",
    searches: "list[Search]",
    arguments: argparse.Namespace,
    seconds: float,
    log: Log,
) -> None:
    """Print counts, winners and reasons of infeasibility; edition corrected prints all of them only with ``-v``."""
    from calculon.search.search_counts import Counts

    counts = Counts()
    for result in results:
        counts.add(result.counts)
    best = [result for result in results if len(result)]
    published = results[0].edition == PUBLISHED
    every = arguments.verbose or published
    log_space(log, results[0].space, counts, every=every)
    log_changes(log, searches[0].model, searches[0].system)
    if every:
        log_outcome(log, counts.good, counts.bad, counts.total, seconds)
    if arguments.where and counts.good:
        log(_selected(results, counts.good, 1 if arguments.pareto else arguments.top_n or 1))
    if best and every:
        log(_best_line(best))
    if log.quiet:
        return
    if best:
        log("")
        if missing := [f"{r.space.num_procs:,}" for r in results if not len(r)]:
            log.show(f"Nothing found for these processor counts: {', '.join(missing)}")
        show = _show_published if published else _show_plans
        show(best, arguments, log)
    if counts.bad and (every or not best):
        from calculon.documents.winners import reasons_table

        log("")
        table = reasons_table(counts.total, counts.good, counts.reasons, counts.nearest_miss)
        log.table(table, "text")
    log("")


def _show_published(best: "list[SearchResult]", arguments: argparse.Namespace, log: Log) -> None:
    """Print the winners of edition ``sc23``, with the meanings of their letters."""
    from calculon.documents.winners import LEGEND, SHOWN, winners_table

    executions, stats = zip(*_all_winners(best, _SHOWN), strict=True)
    asked = (one.statistic.name for one in best[0].objectives)
    extra = [name for name in asked if name not in SHOWN]
    log.table(winners_table(executions, stats, extra), "text", published=True)
    if more := sum(map(len, best)) - len(executions):
        log(_more(more, arguments))
    _draw(best, range(_SHOWN), arguments, log)
    log.show(LEGEND)


def _show_plans(best: "list[SearchResult]", arguments: argparse.Namespace, log: Log) -> None:
    """Print the winners in words with intervals; plans that differ only in switches are listed only with ``-v``."""
    from calculon.documents.plans_table import apart, plans_table, ranks

    winners = _all_winners(best, _SHOWN if arguments.verbose else _READ)
    numbers = ranks([execution for execution, _ in winners])
    places = list(range(len(winners)))
    if not arguments.verbose:
        places = apart([execution for execution, _ in winners])[:_SHOWN]
    executions, stats = zip(*(winners[place] for place in places), strict=True)
    ties = [
        not order.distinguishable and rank != result.fastest
        for result in best
        for rank, order in enumerate(result.orders)
    ]
    asks = arguments.objective or arguments.pareto
    plans = plans_table(
        executions,
        stats,
        _asked_figures(best[0], asks=bool(asks)),
        [best[0].space.preset.usual(one) for one in executions],
        [numbers[place] for place in places],
        ties=[ties[place] for place in places],
        whole=arguments.verbose,
    )
    log.show(*filter(None, (plans.shared, plans.table)))
    beyond = sum(map(len, best)) - (len(winners) if len(places) < _SHOWN else places[-1] + 1)
    if alike := sum(map(len, best)) - beyond - len(places):
        log.show(f"({alike:,} more differ from these plans only in switches: -v lists them)")
    if beyond:
        log.show(_more(beyond, arguments))
    _draw(best, [numbers[place] for place in places], arguments, log)
    log.show(*_confidence_remarks(best))
    if (runs := best[0].space.runs) is not None:
        lines = interval_of_run(executions[0], stats[0]), assumed_of_run([runs])
        log.show(*filter(None, lines))
    if arguments.verbose:
        log.show(plans.meaning)
    else:
        top = "" if arguments.top_n or arguments.pareto else "-t 10: the next best plans; "
        log.show(f"({top}-v: why other plans do not fit, and the meaning of columns)")


def _asked_figures(best: "SearchResult", *, asks: bool) -> "list[Statistic]":
    """Return the objectives that were asked for, and for whole runs days and money."""
    from calculon.declarations.run_figures import RUN_FIGURES

    result = [one.statistic for one in best.objectives] if asks else []
    if best.space.campaign is None:
        return result
    known = [RUN_FIGURES[name] for name in _OF_RUNS if not math.isnan(best.evaluation[name][0])]
    return [*result, *(one for one in known if one not in result)]


_OF_RUNS = ("days", "usd")
"""Figures of whole runs that are always reported for winners if they are known."""


def _all_winners(
    best: "list[SearchResult]", most: int
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the winners of all processor counts, at most `most`."""
    return list(islice(chain.from_iterable(one.winners() for one in best), most))


def _more(number: int, arguments: argparse.Namespace) -> str:
    """Describe the winners that are not printed, and the file that has them."""
    place = " in the output" if arguments.output != STDOUT else "; name an output file for all"
    return f"({number:,} more{place})"


def _draw(
    best: "list[SearchResult]", ranks: Sequence[int], arguments: argparse.Namespace, log: Log
) -> None:
    """Draw the requested Pareto front, or for several counts in edition ``corrected`` the best time of each."""
    from calculon.render.document import Document

    if arguments.pareto and len(best) == 1:
        drawn = _front(best[0], ranks)
    elif not arguments.pareto and best[0].edition != PUBLISHED:
        drawn = _scaling(best)
    else:
        return
    if drawn.worth_drawing:
        log.show("", Document("", parts=(drawn,)), "")


def _explain(results: "list[SearchResult]", searches: "list[Search]", log: Log) -> None:
    """Explain why nothing fits on the largest processor count, and propose changes that fit."""
    from calculon.advise.infeasibility import PROPOSED, infeasibility_report
    from calculon.declarations.statistics import RISK
    from calculon.render.document import Grid
    from calculon.search.override_checks import COMMAND_LINE

    most = max(range(len(results)), key=lambda place: results[place].space.num_procs)
    result, where = results[most], searches[most].ranking().where
    if len(results) > 1:
        log.show(f"On {result.space.num_procs:,} processors:")
    risk = searches[most].risk
    accepted = RISK if risk is None else risk
    found = infeasibility_report(result.space, result.counts, where, accepted)
    if not found.executions:
        log.show(f"Nothing fits: {found.why}.")  # else the table has it
    log.show(*found.nearest_in_words)
    if proposals := found.fixes_in_words(COMMAND_LINE):
        log.show(f"{PROPOSED}:")
        log.show(Grid(("text", "text"), tuple(("  -", line) for line in proposals), gap=1))


def _front(result: "SearchResult", ranks: Sequence[int]) -> "Frontier":
    """Return the first two objectives of a front, each point labeled with the number of its row."""
    from calculon.render.frontier import Frontier

    objectives = [one.statistic for one in result.objectives]
    across, up = (result.evaluation[one.name].tolist() for one in objectives[:2])
    points = [(str(rank), across[rank], up[rank]) for rank in ranks if rank < len(across)]
    return Frontier.of(objectives, points)


def _scaling(best: "list[SearchResult]") -> "Frontier":
    """Return the best time for each processor count."""
    from calculon.render.frontier import Axis, Frontier

    points = [("", r.space.num_procs, float(r.evaluation["total_time"][0])) for r in best]
    processors, seconds = Axis("processors", Unit(""), True), Axis("total_time", Unit("s"), True)
    return Frontier(processors, seconds, points, steps=False)


def _confidence_remarks(best: "list[SearchResult]") -> Iterator[str]:
    """Yield the risks and remarks that make winners less certain than their intervals, and the number of ties."""
    from calculon.documents.confidence import remarks
    from calculon.documents.page_title import machine_sentences
    from calculon.documents.winners import risks, ties

    said: dict[str, list[int]] = {}
    for result in best:
        if (belief := result[0].belief) is None:
            continue
        texts = [*risks(result), *(f"{label}: {text}" for label, text in remarks(belief.to_dict()))]
        if len(result) > 1:
            texts.append(ties(result))
        for text in texts:
            said.setdefault(text, []).append(result.space.num_procs)
    if any(result[0].belief for result in best):
        yield from machine_sentences(best[0].space.system.provenance.to_dict())
    # A sentence that holds for every count is printed once; the others name their processor counts.
    for text, counts in said.items():
        several = len(counts) < len(best)
        yield f"{', '.join(f'{n:,}' for n in counts)} processors: {text}" if several else text


def _selected(results: "list[SearchResult]", good: int, most: int) -> str:
    """Report how many executions meet the condition; a search that keeps only the best knows a lower bound."""
    found = sum(map(len, results))
    more = "at least " if any(len(result) >= most for result in results) else ""
    return f"{more}{found} of {good} feasible executions meet the condition"


def _best_line(best: "list[SearchResult]") -> str:
    """Return the best value of the first objective, exact and rounded."""
    from calculon.render.texts import quantity

    objective = best[0].objectives[0]
    values = [float(objective.value(result.scores[0][0])) for result in best]
    top = max(values) if objective.sense == "max" else min(values)
    name, unit = objective.statistic.name, objective.statistic.unit
    line = f"Best {name.replace('_', ' ')}: {top!r}"
    return line if name == "sample_rate" else f"{line} ({quantity(top, unit)})"


_SHOWN = 40
"""Maximum number of printed winners."""

_READ = 1000
"""Number of winners that are examined for plans that differ in more than switches."""


def _write(
    results: "list[SearchResult]", searches: "list[Search]", arguments: argparse.Namespace
) -> None:
    """Write the winners in the format of the file's suffix."""
    path = arguments.output
    if document_suffix(path) == ".json":
        write_json(path, _document(results, searches, arguments))
    elif document_suffix(path) == ".csv":
        from calculon.documents.winner_files import table_text

        with replacing(path) as stream:
            stream.write(table_text(results, layers=arguments.layers).encode())
    else:
        from calculon.render.table_columns import evaluation_columns
        from calculon.render.writers import write_tables

        tables = [evaluation_columns(r.evaluation, r.bounds, r.names) for r in results if len(r)]
        none = {name: column[:0] for name, column in results[0].bounds.items()}
        empty = evaluation_columns(results[0].evaluation.take(slice(0, 0)), none, results[0].names)
        write_tables(path, tables, empty)


def _document(
    results: "list[SearchResult]", searches: "list[Search]", arguments: argparse.Namespace
) -> Any:
    """Return the winners as JSON-serializable data; for several processor counts, keyed by count."""
    from calculon.documents.winner_files import document

    documents = {
        str(result.space.num_procs): document(
            result, search.question(result.space.preset), layers=arguments.layers
        )
        for result, search in zip(results, searches, strict=True)
    }
    return next(iter(documents.values())) if len(results) == 1 else documents


def _winners(
    results: "list[SearchResult]",
    searches: "list[Search]",
    arguments: argparse.Namespace,
    form: str,
) -> str:
    """Return the winners as JSON or CSV."""
    if form == "json":
        return json_text(_document(results, searches, arguments))
    from calculon.documents.winner_files import table_text

    return table_text(results, layers=arguments.layers).removesuffix("\n")
