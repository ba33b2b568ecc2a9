"""``calculon version``."""

import argparse

from calculon import __version__
from calculon.cli.options import Log, Parser


def configure(parser: Parser) -> None:
    """Declare the arguments: none."""
    parser.explain("Print the version of calculon.", "calculon version")


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Print the version."""
    log(__version__)
    return 0
