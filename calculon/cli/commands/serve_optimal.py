"""``calculon serve-optimal``: find the best deployments of a model, or their Pareto front."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from calculon.base.errors import Problem, SpecError
from calculon.cli.changes import add_changes, parsed
from calculon.cli.deploy_folder import add_deploy, check_deploy, report_deploy, write_deploy
from calculon.cli.field_options import stated_by
from calculon.cli.options import (
    STDOUT,
    Log,
    Parser,
    check_inputs,
    check_outputs,
    positive,
)
from calculon.cli.question_options import set_in_order
from calculon.cli.search_options import AppendCondition, front_names
from calculon.cli.serving_options import FRONTIER_KINDS as KINDS
from calculon.cli.serving_options import (
    OPTIONS,
    add_engine,
    add_fields,
    add_workload,
    assume_workload,
    with_engine,
)
from calculon.declarations.files import csv_text, document_suffix

if TYPE_CHECKING:
    from calculon.search.deployments.deployment_search import DeploymentSearch
    from calculon.search.deployments.deployment_space import DeploymentSpace
    from calculon.search.deployments.first_answer import Alternative

FORMATS = ("text", "csv", "json")
SUFFIXES = (".json", ".csv", ".parquet")
EXAMPLES = (
    "calculon serve-optimal llama-3.1-70b 8 h100 --prompt 2k --output 256 --tpot 30ms\n"
    "calculon sop llama-3.1-70b any h100 --rate 40\n"
    "calculon sop llama-3.1-70b 8:64:x2 h100 best.json --prompt 2k --output 256 --rate 40 --ttft 1 "
    "--tpot 40ms --objective usd_per_mtoken:min\n"
    "calculon sop llama-3.1-70b 8 h100 - --prompt 2k --output 256 --tpot 30ms --add weights_dtype=float8 "
    "--add kv_dtype=float8 -t 5\n"
    "calculon sop llama-3.1-70b 8:64:x2 h100 - --prompt 2k --output 256 --pareto "
    "output_rate_per_proc,interactivity -o frontier.csv\n"
    "calculon sop llama3-8B 1,2,4 a100_80g_sxm --prompt 1k --output 200 --users 64 --fix tensor_par=1 "
    "--where 'ttft < 0.5'\n"
    "calculon sop llama-3.1-70b 8 h100 --prompt 2k --output 256 --users 64 --fix engine=sglang --deploy llama "
    "--checkpoint meta-llama/Llama-3.1-70B"
)


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Find the best deployments that serve a model: replicas, parallelism, expert parallelism, token budgets and "
        "chunked or separate prefill. Each winner in a .json file is a deployment: calculon serve MODEL best.json#0 "
        "SYSTEM. Exit code 1 if none meets the limits.",
        EXAMPLES,
        "The search is exhaustive over each processor count, each parallel split, and token budgets from "
        "512 to 16,384; the batch of each is solved as in `calculon serve` and must meet the limits. Ranks that "
        "share attention stay in a node; --add tensor_par=16 tries more. Weights and KV caches have 16 bits unless "
        "--add or --fix changes that: the effect of narrower types on answer quality is not modeled.",
    )
    parser.argument("MODEL", "the model: a name, or a file")
    parser.argument(
        "NUM_PROCS",
        "processors: a count, a list (8,16) or inclusive ranges: 8-64 doubles, 8:64:8 adds, 8:64:x2 multiplies; any: "
        "the fewest that answer a --rate or --users",
    )
    parser.argument("SYSTEM", "the machine: a name, or a file")
    parser.argument(
        "OUTPUT",
        "- prints a table only (default); NAME.json, .csv (both also .gz) or .parquet gets the winners",
        "winners",
        nargs="?",
        default=STDOUT,
    )
    add_engine(parser)
    add_workload(parser)
    _add_choices(parser)
    add_changes(parser, *KINDS)
    add_deploy(parser)
    parser.option("-o FILE", "same as OUTPUT", dest="file")
    parser.option(
        "--format",
        "format of the printed output: a table with words (text, default), or the winners as csv or json",
        choices=FORMATS,
        default="text",
    )
    parser.show_first(
        "--engine",
        "--workload",
        "--prompt",
        "--rate",
        "--users",
        "--ttft",
        "--tpot",
        "--objective",
        "--pareto",
        "--fix",
        "--where",
        "--top-n",
        "--top",
    )


def _add_choices(parser: Parser) -> None:
    """Declare the objective of the search and the values that it tries."""
    parser.option(
        "--objective FIGURE[:min|max]",
        "figure to rank by (default output_rate_per_proc; calculon describe serving lists all)",
        "; for a given rate the fewest processors; ties are broken by time per token",
    )
    parser.option("-t, --top N", "number of best executions to keep (default 1)", type=positive)
    parser.option(
        "--pareto FIGURE,FIGURE[,...]",
        "the Pareto front of these figures",
        "; without a rate or users, also with power-of-two batches",
    )
    add_fields(parser)
    parser.option(
        "--where EXPR",
        "keep only deployments that meet a condition: 'ttft_p < 0.5 and tensor_par <= 4'",
        ", 'mem_free > 4 * GiB', on figures and fields; several are combined with and",
        action=AppendCondition,
    )


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Search, print the winners, and write them; exit code 1 if there are none."""
    set_in_order(arguments)
    assume_workload(arguments)
    file = _file(arguments)
    check_deploy(arguments)
    space, found, missed = _search(arguments)
    if not len(found):
        from calculon.advise.serving_fixes import fixes_of_search, with_fixes

        raise with_fixes(found.why, fixes_of_search(found.space, "--fix"))
    alternatives = _alternatives(arguments, space, found)
    if file is not None:
        _write(found, alternatives, file)
    if arguments.deploy is not None:
        write_deploy(arguments, found[0])
    if arguments.format == "json":
        log.write(_document(found, alternatives), STDOUT)
    elif arguments.format == "csv":
        log(_csv(found))
    else:
        from calculon.documents.deployments_page import deployments_page

        log.show(deployments_page(found, alternatives, missed))
        if file is not None:
            log(f"Output: {file}")
        report_deploy(arguments, log)
    return 0


def _file(arguments: argparse.Namespace) -> str | None:
    """Return the checked output file of the winners; None if they are only printed."""
    given = [] if arguments.workload is None else [arguments.workload]
    specs = [arguments.model, arguments.system, *given]
    check_inputs(specs)
    files = [one for one in (arguments.winners, arguments.file) if one not in (None, STDOUT)]
    if len(files) > 1:
        raise SpecError("-o", Problem("", "one file", " and ".join(files), "OUTPUT is a file, too"))
    if not files:
        return None
    from calculon.render.writers import check_format

    check_outputs(files, specs, SUFFIXES)
    check_format(files[0])
    return str(files[0])


def _search(
    arguments: argparse.Namespace,
) -> "tuple[DeploymentSpace, DeploymentSearch, str]":
    """Run the search that the arguments describe: its space, its result, and what fewer processors would miss."""
    from calculon.inputs import Changed
    from calculon.search.deployments import deployment_vocabulary
    from calculon.search.deployments.fewest_processors import check_fewest, fewest
    from calculon.search.deployments.serving_search import (
        OBJECTIVE,
        make_space,
        searched,
    )

    changes = parsed(arguments.changes, KINDS)
    pareto = _pareto(arguments)
    space = make_space(
        Changed.of(arguments.model, changes["model"]),
        arguments.num_procs,
        Changed.of(arguments.system, changes["system"]),
        arguments.workload,
        stated_by(OPTIONS, arguments) | changes["workload"],
        with_engine(arguments, deployment_vocabulary.parsed("--fix", arguments.fix)),
        deployment_vocabulary.parsed("--add", arguments.add),
        vary_batch=bool(pareto),
        apart=arguments.apart,
        named=("--fix", "--add"),
    )
    objective, top = arguments.objective or OBJECTIVE, arguments.top or 1
    if space.counts:
        return space, searched(space, objective, top, pareto, arguments.where), ""
    names = ("objective", "pareto", "where", "apart")
    check_fewest({f"--{name}": getattr(arguments, name) for name in names})
    fleet = fewest(space, top)
    return space, fleet.found, fleet.missed


def _alternatives(
    arguments: argparse.Namespace, space: "DeploymentSpace", found: "DeploymentSearch"
) -> "tuple[Alternative, ...]":
    """Return the best deployments of other kinds; none if the question selects deployments itself."""
    from calculon.search.deployments.first_answer import first_answer

    asked = "objective", "pareto", "where", "top", "add", "apart", "fix"
    if any(getattr(arguments, one) for one in asked):
        return ()
    return first_answer(space, found[0])


def _pareto(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the figures of a Pareto front, empty without one; raise the errors of :func:`front_names`."""
    if arguments.pareto is None:
        return ()
    others = {"-t": arguments.top, "--objective": arguments.objective}
    wanted = "two different figures or more, such as output_rate_per_proc,interactivity"
    return front_names(arguments.pareto, others, "a front has all its deployments", wanted)


def _csv(result: "DeploymentSearch") -> str:
    """Return the winners as CSV, with formula-like texts escaped for spreadsheets."""
    frame = result.to_frame()
    for name in frame.columns:
        frame[name] = [csv_text(one) if isinstance(one, str) else one for one in frame[name]]
    text: str = frame.to_csv(index=False)
    return text.rstrip("\n")


def _document(result: "DeploymentSearch", alternatives: "Sequence[Alternative]") -> dict[str, Any]:
    """Return the result as plain values, with the best deployments of other kinds if there are any."""
    others = {"alternatives": [one.to_dict() for one in alternatives]} if alternatives else {}
    return result.to_dict() | others


def _write(result: "DeploymentSearch", alternatives: "Sequence[Alternative]", file: str) -> None:
    """Write the winners in the format of the file's suffix."""
    from calculon.declarations.files import write_json

    if document_suffix(file) == ".json":
        write_json(file, _document(result, alternatives))
        return
    import numpy as np

    from calculon.render.writers import Labels, write_table

    columns: dict[str, Any] = {}
    for name, column in result.to_frame().items():
        values = column.to_numpy()
        # Parquet stores repeated texts as dictionary-encoded labels.
        if values.dtype == object:
            names, codes = np.unique(values.astype(str), return_inverse=True)
            columns[str(name)] = Labels(codes, tuple(names.tolist()))
        else:
            columns[str(name)] = values
    write_table(file, columns)
