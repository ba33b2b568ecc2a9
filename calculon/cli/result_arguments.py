"""Arguments that name results of estimates and searches; :mod:`calculon.cli.results` reads the results."""

from calculon.cli.changes import add_changes
from calculon.cli.options import Parser, add_edition, add_preset

RESULT_HELP = (
    'MODEL PLAN [PLAN ...] SYSTEM: plans are words ("tp=4 pp=2"), files, or best.json#0; MODEL,PLAN,SYSTEM; a result '
    "(JSON); FILE#RANK of a search; a launch file (run.sh) or an execution; NAME=RESULT names it"
)
RESULT_MORE = (
    ". Models, plans and systems are names of the catalog or files. FILE#RANK, FILE#PROCS or FILE#PROCS:RANK selects "
    "from a search, FILE#ROW from a table (CSV, Parquet). A launch file is estimated on the system and with the model "
    "of --system and --model or of the other results"
)


def add_result_arguments(parser: Parser) -> None:
    """Declare the results, and the specs that complete results of a search."""
    parser.argument("RESULT", RESULT_HELP, "results", RESULT_MORE, nargs="+")
    for kind in ("model", "system"):
        parser.option(
            f"--{kind} {kind.upper()}",
            f"{kind} of results of a search (default: as their files name it)",
        )
    add_changes(parser, "model", "execution", "system")
    add_edition(parser, several=True, absent="from each execution")
    add_preset(parser)
