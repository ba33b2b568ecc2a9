"""``calculon search``: find the best plans for one or several processor counts."""

import argparse

from calculon.cli.commands import optimal_execution
from calculon.cli.commands.optimal_execution import FORMAT_HELP, FORMATS, add_winners
from calculon.cli.options import (
    STDOUT,
    USUAL,
    Log,
    Parser,
    add_edition,
    add_format,
    add_preset,
)
from calculon.cli.question_options import set_in_order
from calculon.cli.search_options import add_choice_options
from calculon.declarations.named_values import CORRECTED


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Find the best plans of a model on a number of processors of a system: every split, schedule and switch is "
        "searched exhaustively. Several numbers give one result each.",
        "calculon search llama-3.1-8b 64 h100\n"
        "calculon search llama-3.1-70b 256-2048 h100 --batch 16M -o best.json\n"
        "calculon search llama-3.1-8b 64 h100 -t 10 --fix tp=1,2 --where 'fits >= 0.95'",
    )
    parser.argument("MODEL", "the model: a name as people write it, a file, or a config.json")
    parser.argument(
        "PROCS",
        "processors: a count (64, 1k), a list (512,1024), or a range of doublings (512-4096)",
        "num_procs",
    )
    parser.argument("SYSTEM", "the machine, before or after the processors: a name, or a file")
    parser.option(
        "--batch N", "global batch, in sequences (512) or tokens (4M; default: as calculon plan)"
    )
    parser.option("--seq N", "tokens of a sequence (8192, 8k); default: the model's, at most 8k")
    parser.option(
        "--dtype TYPE",
        "precision: bf16 (default), fp16, fp32, fp8, mxfp8, nvfp4",
        dest="datatype",
        default="bf16",
    )
    add_winners(parser)
    parser.option(
        "-o, --output FILE", "write the best (.json, .csv, also .gz; .parquet)", default=STDOUT
    )
    add_format(parser, FORMATS, FORMAT_HELP)
    add_choice_options(parser, published=False)
    add_edition(parser, absent=CORRECTED)
    add_preset(parser, absent=USUAL, longer="")
    parser.switch("-q, --quiet", "no progress on standard error")
    parser.set_defaults(**dict.fromkeys(_OF_THE_PUBLISHED_TOOL, False), cpus=None)
    parser.show_first(
        "--batch",
        "--seq",
        "--dtype",
        "--preset",
        "--top-n",
        "--objective",
        "--pareto",
        "--where",
        "--fix",
        "--risk",
        "--format",
        "--output",
    )


_OF_THE_PUBLISHED_TOOL = (
    *("debug", "noneok", "mbs_break", "layers"),
    *("no_tp_overlap", "no_dp_overlap"),
)
"""Switches of ``llm-optimal-execution`` that are always off in this command."""


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Search every processor count, report, and write the winners."""
    from calculon import inputs
    from calculon.cli.changes import with_changes
    from calculon.declarations.spellings import processor_counts
    from calculon.declarations.usual_batch import requested_batch, requested_length

    set_in_order(arguments)
    arguments.application = arguments.model
    changes = [one for one in arguments.changes if one.startswith(("model.", "seq_size"))]
    # The sequence length converts a batch in tokens, so changes of the model apply before the search.
    model = inputs.model(with_changes(changes, model=arguments.model)["model"])
    length = requested_length(arguments.seq, model.seq_size)
    if length != model.seq_size:
        arguments.changes = [*arguments.changes, f"model.seq_size={length}"]
    # The default batch depends on the processors; one batch for all counts keeps the results comparable.
    most = max(processor_counts(arguments.num_procs, "PROCS"))
    arguments.max_batch_size = requested_batch(arguments.batch, most, length)
    arguments.edition = arguments.edition or CORRECTED
    return optimal_execution.run(arguments, log)
