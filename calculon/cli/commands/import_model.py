"""``calculon import-model``: read a Hugging Face configuration as a model file."""

import argparse
from pathlib import Path

from calculon.base.units import scaled
from calculon.cli.options import STDOUT, Log, Parser, check_outputs, positive
from calculon.cli.streams import print_stderr
from calculon.declarations.catalog import configuration_of
from calculon.declarations.files import STDIN, document_stem, json_text, read_document, write_json


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Turn the config.json of a model on Hugging Face into a model file. Nothing is fetched and nothing is "
        "guessed: an unsupported family or feature is an error that names it. Quantized weights belong to "
        "serving, not to the model: a note names the fields of a deployment.",
        "calculon import-model config.json -o mine.json\n"
        "calculon import-model config.json -o long.json --seq-size 8192 --name 'mine, longer'",
    )
    parser.argument("CONFIG", "the config.json, its folder, or -")
    parser.option(
        "-o, --output FILE", "the model file (.json); - prints it (default)", default=STDOUT
    )
    parser.option(
        "-s, --seq-size N",
        "sequence length (default: the longest that the configuration states)",
        type=positive,
    )
    parser.option("-n, --name NAME", "name of the model, stored in its file under about")


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Write or print the model, and report its parameter count."""
    from calculon.architecture.parameters import active_count, parameter_count
    from calculon.declarations.huggingface import (
        USUAL_LENGTH,
        about_of,
        from_huggingface,
        released_types,
    )

    source, output = configuration_of(arguments.config), arguments.output
    if output != STDOUT:
        check_outputs([output], [source])
    raw = read_document(source)
    model = from_huggingface(
        raw, "<stdin>" if source == STDIN else source, seq_size=arguments.seq_size
    )
    about = {"name": arguments.name} if arguments.name else {}
    document = model.to_dict() | {"about": about | about_of(raw)}
    count = parameter_count(model)
    text = f"{count:,} parameters ({scaled(count)})"
    if model.has_experts:
        text += f", {active_count(model):,} of them active ({scaled(active_count(model))})"
    notes = []
    if arguments.seq_size is None and model.seq_size > USUAL_LENGTH:
        note = f"sequences of {model.seq_size:,} tokens, the longest context that the configuration states; "
        notes.append(note + f"for the usual length of pre-training: --seq-size {USUAL_LENGTH}")
    if "note" in document["about"]:
        notes.append(document["about"]["note"])
    if (types := released_types(raw)) is not None:
        notes.append(types.note)
    if output == STDOUT:
        log(json_text(document))
        if not log.quiet:
            print_stderr("\n".join((text, *notes)))  # standard output may be redirected into a file
        return 0
    write_json(output, document)
    log(f"{arguments.name or document_stem(Path(output).name)}: {text}")
    for note in notes:
        log(f"Note: {note}")
    log(f"Output: {output}")
    return 0
