"""Convert JSON results of ``llm``, ``loe`` and ``study`` to one CSV table.

Each row is an execution: its file, its rank and processors if it comes from a search, then execution fields and
statistics. Fields that a file does not have are empty.
"""

import argparse
import csv
import sys
from pathlib import Path

from calculon.base.errors import SpecError
from calculon.cli.result_files import EVERY_STATISTIC, results_in
from calculon.declarations.named_values import PUBLISHED
from calculon.documents.estimate_record import STATISTICS_OF
from calculon.plan.plan import NAMES, PUBLISHED_NAMES


def main() -> int:
    """Read the results and write the table."""
    parser = argparse.ArgumentParser(prog="scripts/json_to_csv", description=__doc__)
    parser.add_argument("results", metavar="RESULT", nargs="+", help="JSON of llm, loe or study")
    parser.add_argument(
        "output", metavar="OUTPUT", help="the table, a CSV file; - is standard output"
    )
    arguments = parser.parse_args()
    try:
        found = [one for path in arguments.results for one in results_in(path, every=True)]
    except SpecError as error:
        print(f"scripts/json_to_csv: error: {error}", file=sys.stderr)
        return 2
    if arguments.output == "-":
        _write(found, sys.stdout)
    else:
        with Path(arguments.output).open("w", newline="", encoding="utf-8") as stream:
            _write(found, stream)
    return 0


def _write(found, stream) -> None:
    published = all(one.edition == PUBLISHED for one in found)
    fields = PUBLISHED_NAMES if published else NAMES
    statistics = STATISTICS_OF[PUBLISHED] if published else EVERY_STATISTIC
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["result", *fields, *statistics])
    for one in found:
        execution = one.execution or {"edition": one.edition}
        cells = [execution.get(name) for name in fields]
        writer.writerow([one.parts[0], *cells, *map(one.stats.get, statistics)])


if __name__ == "__main__":
    sys.exit(main())
