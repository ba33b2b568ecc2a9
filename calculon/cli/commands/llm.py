"""``calculon llm``: estimate one execution of a model on a system."""

import argparse

from calculon.base.errors import Problem, SpecError
from calculon.cli.changes import add_changes
from calculon.cli.commands.estimate import estimated
from calculon.cli.options import (
    STDOUT,
    Log,
    Parser,
    add_edition,
    add_format,
    add_preset,
    add_specs,
    check_inputs,
    check_outputs,
)
from calculon.declarations.files import json_text, write_json
from calculon.documents.estimate_result import result_of


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Estimate one execution of a model on a system: time, memory, communication and efficiency. "
        "Each spec is a name of the catalog (calculon catalog), a JSON or YAML file (also .gz), or - for "
        "standard input.",
        "calculon llm megatron-1T 3072_t4_p64_d12_mbs4_full a100_80g -\n"
        "calculon llm megatron-1T 3072_t4_p64_d12_mbs4_full a100_80g - --edition corrected\n"
        "calculon llm llama3-8B llama3-8B_h100x64 h100_80g_sxm -\n"
        "calculon llm megatron-1T 3072_t4_p64_d12_mbs4_full a100_80g stats.json --layers --peers peers.json",
    )
    add_specs(parser, "application", "APP")
    parser.argument(
        "STATS",
        "- prints a page; NAME.json or NAME.json.gz gets all statistics, and in edition corrected "
        "the prediction interval of the time, its measured runs, and the process groups with their bytes by "
        "network",
    )
    meaning = "output of STATS -: a page (text, default) or all statistics (json)"
    add_format(parser, meaning=meaning)
    parser.option(
        "-p, --peers FILE", "also write the ranks of each process group (.json, .json.gz)"
    )
    parser.switch("-l, --layers", "also list every layer of a block")
    add_changes(parser, "model", "execution", "system")
    add_edition(parser)
    add_preset(parser)


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Estimate, then print the page or write the files."""
    specs = [arguments.application, arguments.execution, arguments.system]
    files = [name for name in (arguments.stats, arguments.peers) if name is not None]
    check_inputs(specs)
    if arguments.peers == STDOUT:
        hint = "only STATS can be -; /dev/stdout takes the peers"
        raise SpecError("--peers", Problem("", "a file name", "'-'", hint))
    check_outputs([name for name in files if name != STDOUT], specs)
    result = estimated(arguments, *specs)
    if arguments.stats == STDOUT and arguments.format == "json":
        log(json_text(result.to_dict()))
    elif arguments.stats == STDOUT:
        from calculon.documents.page import estimate_page

        log.show(estimate_page(result_of(result)))
    else:
        write_json(arguments.stats, result.to_dict())
    if arguments.peers is not None:
        write_json(arguments.peers, result.peers())
    return 0
