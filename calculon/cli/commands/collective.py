"""``calculon collective``: time, algorithm and bandwidth of a collective (all-reduce, all-gather, all-to-all, ...)."""

import argparse
import re

from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.cli.changes import add_changes, with_changes
from calculon.cli.options import (
    Log,
    Parser,
    add_format,
    check_outputs,
    log_machine,
    one_of,
    positive,
)
from calculon.cli.pictures import PICTURES, check_library, write_picture
from calculon.cli.sizes import size
from calculon.declarations.files import document_suffix
from calculon.hardware.collectives.algorithms import ALGORITHMS, OPERATIONS, SUPPORTED, obstacle
from calculon.hardware.collectives.placement import place
from calculon.render.text_tables import FORMATS

AUTO = "auto"


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    algorithms = "\n".join(f"  {name:12}  {one.words}" for name, one in ALGORITHMS.items())
    parser.explain(
        "Estimate a collective as nccl-tests measures it: time, algorithm bandwidth (size / time), and bus bandwidth. "
        "SIZE is the size of the full array. Ranks fill one node of the system after another. auto takes the "
        "fastest algorithm of NCCL, or measured times if the system has them. With --from or --to sizes double.\n"
        f"{algorithms}",
        "calculon collective all_reduce 1GiB 8 h100_80g_sxm\n"
        "calculon collective all_reduce 1GB 128 h100_80g_sxm --algorithm hierarchical\n"
        "calculon collective all_to_all 64MB 64 h100_80g_sxm --per-node 4\n"
        "calculon collective all_reduce 1KiB 64 h100_80g_sxm --to 8GiB -o all_reduce.png",
        "The bus bandwidth can be compared with the rate of the links: it is 2 (n - 1) / n of the algorithm bandwidth "
        "for all_reduce, (n - 1) / n for reduce_scatter, all_gather, all_to_all, scatter and gather, and the same for "
        "the others. The full array is the input of all_reduce and reduce_scatter, the output of all_gather, "
        "all data that a rank sends in all_to_all, and the root's data in scatter and gather.\n\n"
        "Ranks fill the first network of the system (a node) up to its size, then the next; --per-node changes that. "
        "Efficiency, latency and ramp come from the networks; ext.networks[].step_latency is the latency of one step, "
        "and ext.networks[].in_network_reduction means that switches reduce. If ext.networks[].kind (nvlink, pcie, "
        "net) is known and no step_latency or ramp is given, rings, trees and switches have NCCL's tuner latencies, "
        "each with the fastest of its protocols: Simple, LL and, on systems with NVLink, LL128.\n\n"
        "auto uses the times measured on one network (ext.networks[].operations) if there are any, or else the fastest "
        "algorithm that NCCL offers, as its tuner does; no algorithm is faster than the times measured on its network. "
        "NCCL has ring, tree, nvls, nvls_tree and collnet for all_reduce, ring and nvls for "
        "reduce_scatter and all_gather, ring for broadcast and reduce, pairwise for all_to_all, rooted for scatter and "
        "gather. "
        "Frameworks build the others (HSDP, for example, the hierarchical one); they are listed, and can be selected. "
        "pipelined overlaps its phases perfectly, an ideal that no implementation reaches.\n\n"
        "A range of sizes is shown as a table or a picture; "
        "calculon calibrate reads the table as CSV. Executions with coll_algo use these algorithms; their groups span "
        "networks if mesh_order is set.",
    )
    parser.argument("OPERATION", ", ".join(OPERATIONS), type=_operation, choices=OPERATIONS)
    parser.argument("SIZE", "bytes of the full array: 4096, 64MB, 1GiB", type=size)
    parser.argument("RANKS", "members of the group", type=positive)
    parser.argument("SYS", "the system: a name of the catalog, a file, or -", "system")
    _add_options(parser)


def _operation(text: str) -> str:
    """Return an operation; its words may also be written ``all-reduce`` or ``AllReduce``."""
    joined = {name.replace("_", ""): name for name in OPERATIONS}
    return one_of(*OPERATIONS)(joined.get(re.sub("[-_ ]", "", text).lower(), text))


def _add_options(parser: Parser) -> None:
    parser.option(
        "-a, --algorithm NAME",
        "auto (default: the fastest of NCCL), or one of the algorithms above",
        type=one_of(AUTO, *ALGORITHMS),
        choices=(AUTO, *ALGORITHMS),
        default=AUTO,
    )
    parser.option("-g, --per-node G", "ranks in each node (default: as many as fit)", type=positive)
    parser.option("--from SIZE", "smallest size (default: SIZE)", dest="first", type=size)
    parser.option("--to SIZE", "largest size (default: SIZE)", dest="last", type=size)
    parser.option("-o, --output FILE", "NAME.csv, or a picture of a range: NAME.png, .svg or .pdf")
    add_changes(parser, "system")
    add_format(parser, FORMATS, "format of the printed output (default: text)", None)


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Estimate the collective, and print or write the result."""
    from calculon.cli.collective_tables import CollectiveQuery, curves, page, sizes_table
    from calculon.inputs import system

    sizes = _sizes(arguments)
    _check_output(arguments, len(sizes) > 1)
    machine = system(with_changes(arguments.changes, system=arguments.system)["system"])
    group = place(machine, arguments.ranks, arguments.per_node)
    asked = CollectiveQuery(
        machine, arguments.operation, group, _algorithm(arguments), arguments.size
    )
    if asked.name and (reason := obstacle(machine, group, asked.name, asked.operation)):
        raise Infeasible("collective", reason)
    output = arguments.output
    if output and document_suffix(output) in PICTURES:
        # The extension of --output selects the form: a picture, a table, or (without it) text.
        write_picture(curves(asked, sizes[0], sizes[-1]), output, log)
    elif output:
        log.write(None, output, sizes_table(asked, sizes))
    elif arguments.format not in (None, "text") or len(sizes) > 1:
        log.table(sizes_table(asked, sizes), arguments.format or "text")
    else:
        log_machine(log, machine)
        log.parts(*page(asked))
    return 0


def _sizes(arguments: argparse.Namespace) -> list[int]:
    """Return the requested sizes in ascending order: SIZE, and the smallest size doubled up to the largest."""
    here = arguments.size
    first = here if arguments.first is None else arguments.first
    last = here if arguments.last is None else arguments.last
    for option, value, beyond in (("--from", first, first > here), ("--to", last, last < here)):
        if beyond:
            side = "most" if option == "--from" else "least"
            wanted = f"a size of at {side} SIZE, {here:,} bytes"
            raise SpecError(option, Problem("", wanted, f"{value:,}"))
    # Doublings, as in nccl-tests; SIZE and the largest size are always included.
    doubled = [first]
    while 2 * doubled[-1] < last:
        doubled.append(2 * doubled[-1])
    return sorted({*doubled, here, last})


def _algorithm(arguments: argparse.Namespace) -> str:
    """Return the name of the algorithm; empty for the fastest."""
    name, able = arguments.algorithm, SUPPORTED[arguments.operation]
    if name != AUTO and name not in able:
        wanted = f"one of auto, {', '.join(able)} for {arguments.operation}"
        raise SpecError("--algorithm", Problem("", wanted, repr(name)))
    return "" if name == AUTO else str(name)


def _check_output(arguments: argparse.Namespace, several: bool) -> None:
    """Check before any work that the output can be written."""
    output = arguments.output
    if output is None:
        return
    check_outputs([output], [arguments.system], (".csv", *PICTURES))
    picture = document_suffix(output) in PICTURES
    if picture and output.endswith(".gz"):
        problem = Problem("", "a picture without .gz", "one with it", "pictures are compressed")
        raise SpecError(output, problem)
    if arguments.format:
        wanted = "--format for what is printed, or --output"
        raise SpecError("collective", Problem("", wanted, "both"))
    if picture:
        if not several:
            wanted = "a range of sizes for a picture: --from SIZE, --to SIZE"
            raise SpecError(output, Problem("", wanted, "one size"))
        if arguments.ranks == 1:
            raise SpecError(output, Problem("ranks", "2 or more, for a picture", "1"))
        check_library()
