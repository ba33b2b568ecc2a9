"""``calculon import``: read a file of another tool, recognized by its content."""

import argparse
from importlib import import_module
from pathlib import Path

from calculon.cli.options import Log, Parser
from calculon.declarations.catalog import configuration_of
from calculon.declarations.files import document_suffix, read_document


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Read a file of another tool: the config.json of a model on Hugging Face becomes a model file "
        "(calculon import-model --help), a launch script or configuration an execution, and a serving command a "
        "deployment (calculon import-flags --help). It accepts the options of both commands.",
        "calculon import config.json -o mine.json\ncalculon import run.sh -o plan.json",
    )
    parser.argument("FILE", "the file, or the folder with its config.json")
    parser.argument("OPTIONS", "options of import-model or import-flags", nargs=argparse.REMAINDER)


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Run the import command that suits the file."""
    file = configuration_of(arguments.file)
    name = "import-model" if _is_model(file) else "import-flags"
    module = import_module(f"calculon.cli.commands.{name.replace('-', '_')}")
    parser = Parser(prog=f"calculon {name}")
    module.configure(parser)
    code: int = module.run(parser.parse_args([file, *arguments.options]), log)
    return code


def _is_model(path: str) -> bool:
    """Return True if a file is the Hugging Face configuration of a model."""
    if document_suffix(path) != ".json" or not Path(path).is_file():
        return False
    raw = read_document(path)
    # Every Hugging Face configuration has one of these keys, and no launcher's configuration does.
    return isinstance(raw, dict) and bool({"model_type", "architectures"} & raw.keys())
