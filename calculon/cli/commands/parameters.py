"""``calculon llm-parameter-calculator``: parameter count of a model."""

import argparse
from pathlib import Path

from calculon.base.errors import printable
from calculon.base.units import scaled
from calculon.cli.options import Log, Parser
from calculon.declarations.files import SUFFIXES, document_suffix


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Count the parameters of a model: exactly if it states its vocabulary; a model with only the six published "
        "fields as published: projections with biases, norms, and embeddings of a vocabulary of 51200. Modules "
        "for multi-token prediction are counted separately.",
        "calculon llm-parameter-calculator megatron-1T\ncalculon lpc llama3-8B\n"
        "calculon lpc models/gpt3-175B.json --aligns 20",
    )
    parser.argument("APP", "the model: a catalog name, a file, or -", "application")
    parser.option(
        "-a, --aligns N", "characters to align the name to (default: 13)", type=int, default=13
    )


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Print name and parameter count, in the format of the published tool."""
    from calculon.architecture.parameters import (
        active_count,
        computing_count,
        module_count,
        parameter_count,
    )
    from calculon.inputs import model as read_model

    source = arguments.application
    model = read_model(source)
    stem = Path(source).stem if document_suffix(source) in SUFFIXES else model.name
    name = printable(stem)
    active, computing = active_count(model), computing_count(model)
    less = f" ({scaled(computing)} without the input embedding)" if computing < active else ""
    among = f", {scaled(active)} active{less}" if model.has_experts else ""
    further = f", {scaled(module_count(model))} more for multi-token prediction"
    predicting = further if model.mtp_layers else ""
    log(
        f"{name:<{max(0, arguments.aligns)}} -> {scaled(parameter_count(model))}{among}{predicting}"
    )
    return 0
