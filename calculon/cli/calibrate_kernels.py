"""``calculon calibrate --kernels``: fit kernel efficiency laws (GEMM, FlashAttention, memory) to measured tables."""

import argparse
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calculon.base.errors import Problem, SpecError
from calculon.cli.options import STDOUT, Log, check_inputs, check_outputs
from calculon.cli.pictures import check_picture
from calculon.cli.streams import print_stderr
from calculon.declarations import catalog
from calculon.declarations.files import indented, write_json
from calculon.render.text_tables import Column, Table

if TYPE_CHECKING:
    import pandas as pd

    from calculon.calibrate.kernels.system_file import Kernels

MEASURED = "systems/measured"
"""Catalog folder of the measured kernel tables."""

_OWN = ("base", "kernels", "processor", "output", "plot", "format", "called")
"""Arguments that are valid together with ``--kernels``, and the name of the called command."""

_COLORS = 48
"""Palette size of the picture: with thousands of points, full color would triple the file size."""


def percent(key: str, title: str) -> Column:
    """Return a column of errors in percent."""
    return Column(key, title, right=True, text=lambda value: f"{value:.2f}")


RESIDUALS = (
    Column("group", "kernels"),
    Column("rows", "rows"),
    Column("n", "n", right=True),
    percent("median", "median %"),
    percent("p90", "p90 %"),
    percent("bias", "bias %"),
)


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Fit, write the file and the picture, and print the residuals."""
    folder = Path(arguments.kernels or catalog.root() / MEASURED)
    _check(arguments, folder)
    from calculon.calibrate.kernels.system_file import fitted_system

    name, file, base = read_base(arguments)
    found = fitted_system(base, file, name, _tables(folder), arguments.processor)
    if arguments.plot:
        _save(found, arguments.plot)
    write_fit(found.document, Table(RESIDUALS, found.residuals()), arguments, log)
    return 0


def read_base(arguments: argparse.Namespace) -> tuple[str, str, Mapping[str, Any]]:
    """Return name, file and document of the base system."""
    name, base = catalog.load("system", arguments.base)
    file = "<stdin>" if name == "stdin" else arguments.base
    if not isinstance(base, Mapping):
        raise SpecError(file, Problem("", "a system: an object", "something else"))
    return name, file, base


def write_fit(
    document: Mapping[str, Any],
    residuals: Table,
    arguments: argparse.Namespace,
    log: Log,
    steps: Sequence[Table] = (),
) -> None:
    """Write a fitted system and print its residuals; the tables of single `steps` appear only in text output."""
    if arguments.output == STDOUT:
        log(indented(document))  # standard output stays valid JSON; residuals go to stderr
        if not log.quiet:
            print_stderr(residuals.written("markdown"))
        return
    write_json(arguments.output, document, for_people=True)
    if arguments.format == "text":
        log.parts(residuals, *steps)
        for output in filter(None, (arguments.plot, arguments.output)):
            log(f"Output: {output}")
    else:
        log(residuals.written(arguments.format))


def check_fits() -> None:
    """Raise SpecError if scipy, which fits need, is not installed."""
    if find_spec("scipy") is None:
        wanted = "the library scipy, for fits"
        hint = "in the folder of calculon: pip install '.[fit]'"
        raise SpecError("calibrate", Problem("", wanted, "it is not installed", hint))


def _check(arguments: argparse.Namespace, folder: Path) -> None:
    """Check before any work that the tables exist and that all outputs can be written."""
    check_fits()
    others = {name: value for name, value in vars(arguments).items() if name not in _OWN}
    # --no-ramp is stored inverted as `ramp`, which is True by default.
    others["no_ramp"] = not others.pop("ramp")
    given = [
        name
        for name, value in others.items()
        if not (value is None or value is False or value == [])  # the value 0 counts as given
    ]
    if given:
        found = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise SpecError("--kernels", Problem("", "--kernels alone", f"with {found}"))
    if not any(folder.glob("*.csv")):
        wanted = f"a folder with tables of measured kernels, such as {MEASURED}"
        raise SpecError(str(folder), Problem("", wanted, "no .csv in it"))
    check_inputs([arguments.base])
    if arguments.output != STDOUT:
        check_outputs([arguments.output], [])  # the base itself may be overwritten
    if arguments.plot:
        check_picture(arguments.plot, [arguments.base])


def _tables(folder: Path) -> "dict[str, pd.DataFrame]":
    """Read the tables of a folder, keyed by file stem."""
    return {path.stem: _table(path) for path in sorted(folder.glob("*.csv"))}


def _table(path: Path) -> "pd.DataFrame":
    """Read one table and check its columns and times; tables with unknown names are not checked."""
    import pandas as pd

    from calculon.calibrate.kernels.system_file import COLUMNS

    try:
        table = pd.read_csv(path)
    except (ValueError, OSError) as error:  # pandas' parser errors, and files that are not text
        text = str(error).splitlines()[0]
        raise SpecError(str(path), Problem("", "a CSV table with a header", text)) from error
    wanted = COLUMNS.get(path.stem, ())
    if missing := [name for name in wanted if name not in table]:
        hint = f"columns as in {MEASURED}/{path.name}"
        raise SpecError(
            str(path),
            Problem("", "the columns " + ", ".join(wanted), f"no {', '.join(missing)}", hint),
        )
    if "time_s" in wanted:
        seconds = pd.to_numeric(table["time_s"], errors="coerce")
        # An empty time is allowed (a shape that was not measured); a time that is no positive number is an error.
        wrong = table["time_s"].notna() & ~((seconds > 0) & (seconds < float("inf")))
        if wrong.any():
            row = int(wrong.to_numpy().argmax())
            found = f"{table['time_s'].iloc[row]}"
            raise SpecError(str(path), Problem(f"[{row}].time_s", "seconds above 0", found))
        table["time_s"] = seconds
    return table


def _save(found: "Kernels", output: str) -> None:
    """Draw errors over measured times, with one panel per kernel group."""
    from calculon.documents.charts.calibration_chart import errors_chart, errors_panel
    from calculon.render import canvas
    from calculon.render.matplotlib_charts import draw

    records = found.residuals()
    panels = []
    for group, rows in found.rows.groupby("group", sort=False):
        errors = [
            f"{record['rows']} {record['median']:.1f} % ({record['n']})"
            for record in records
            if record["group"] == group
        ]
        percent = 100 * (rows.predicted / rows.measured - 1)
        pairs = [
            (rows.measured[which].tolist(), percent[which].tolist())
            for which in (~rows.held_out, rows.held_out)
        ]
        panels.append(errors_panel(f"{group}\n{', '.join(errors)}", *pairs))
    title = f"Kernels of {found.processor}: median error and number of kernels by group"
    canvas.save(draw(errors_chart(title, panels)), output, colors=_COLORS)
