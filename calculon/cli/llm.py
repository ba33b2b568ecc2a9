"""``calculon llm``: estimate one execution."""

import argparse

from calculon.cli.options import STDOUT, Log, Parser, check_inputs, check_outputs
from calculon.spec.files import write_json



def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Estimate one execution of a model on a system: time, memory, communication and efficiency.\n"
        "Each spec is a name of the catalog (calculon catalog), a JSON or YAML file (also .gz), or - for\n"
        "standard input.",
        "calculon llm megatron-1T 3072_t4_p64_d12_mbs4_full a100_80g -\n"
        "calculon llm megatron-1T 3072_t4_p64_d12_mbs4_full a100_80g stats.json --layers --peers peers.json",
    )
    parser.add_argument("application", metavar="APP", help="the model: its shape")
    parser.add_argument("execution", metavar="EXE", help="how it is run: parallelism, batch, options")
    parser.add_argument("system", metavar="SYS", help="the machine: processors, memory, networks")
    parser.add_argument(
        "stats", metavar="STATS", help="- prints a page; NAME.json or NAME.json.gz gets all statistics"
    )
    parser.add_argument(
        "-p", "--peers", metavar="FILE", help="also write which ranks work together (.json, .json.gz)"
    )
    parser.add_argument("-l", "--layers", action="store_true", help="also list every layer of a block")


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Estimate, then print the page or write the files."""
    specs = [arguments.application, arguments.execution, arguments.system]
    files = [name for name in (arguments.stats, arguments.peers) if name is not None]
    check_inputs(specs)
    check_outputs([name for name in files if name != STDOUT], specs)
    from calculon.estimate import estimate

    result = estimate(*specs, layers=arguments.layers)
    if arguments.stats == STDOUT:
        _print_page(result, log)
    else:
        write_json(arguments.stats, result.to_dict())
    if arguments.peers is not None:
        write_json(arguments.peers, result.peers())
    return 0


def _print_page(result: "Estimate", log: Log) -> None:
    from calculon.report.page import page

    log(page(result))
