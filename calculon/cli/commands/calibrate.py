"""``calculon calibrate``: fit a system file to measured times."""

import argparse
import datetime
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calculon.base.errors import Problem, SpecError
from calculon.cli.calibrate_kernels import check_fits, percent, read_base, write_fit
from calculon.cli.calibrate_kernels import run as kernels
from calculon.cli.calibrate_options import HOLD_OUT, declare
from calculon.cli.options import STDOUT, Log, Parser, check_inputs, check_outputs
from calculon.cli.pictures import check_picture
from calculon.cli.streams import print_stderr
from calculon.declarations import catalog
from calculon.declarations.files import STDIN, SUFFIXES, document_suffix
from calculon.declarations.overlay import BASE, difference
from calculon.render.text_tables import EARLY, Column, Table

if TYPE_CHECKING:
    from calculon.calibrate.fit_result import Measurements
    from calculon.calibrate.training import Training

_EXAMPLE = "examples/measurements/h100_sxm_all_reduce.csv"


RESIDUALS = (
    Column("part", "part"),
    Column("rows", "rows"),
    Column("n", "n", right=True),
    percent("mape", "mean %"),
    percent("median", "median %"),
    percent("p90", "p90 %"),
    percent("bias", "bias %"),
    percent("worst", "worst %"),
    Column("worst_row", "worst row", drop=EARLY),
)

STEPS = (
    Column("name", "step"),
    Column("rows", "rows"),
    Column("measured", "measured s", right=True, text=lambda value: f"{value:.4g}"),
    Column("predicted", "predicted s", right=True, text=lambda value: f"{value:.4g}"),
    Column("error", "error %", right=True, text=lambda value: f"{value:+.2f}"),
)
MAX_STEPS = 40
"""Maximum number of training steps that are printed one by one."""


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Fit parts of a system file to measured times: networks, matrix engine and memories to kernels, or efficiency "
        "factors to whole training steps. Some rows are held out and predicted, which gives estimates with the new "
        "file a prediction interval. scripts/measure measures kernels.",
        f"calculon calibrate h100_80g_sxm --collectives {_EXAMPLE} -o mine.json\n"
        f"calculon calibrate h100_80g_sxm --collectives {_EXAMPLE} --hold-out 0.5 -o mine.json --plot fit.png",
        "Kernel times determine latency, efficiency and ramp of networks, efficiency curves of the matrix engine and "
        "memories, and rates of products by shape. Peaks, sizes and everything else come from the base. Whole "
        "groups of rows (the "
        "column group; or an octave of sizes, products with equal n and k, or steps of one model) are held out and "
        "predicted; errors are in percent of the measured time; a bias below 0 means predictions are too fast. The "
        "new file records the fits and the errors of held-out rows under calibration.\n\n"
        "scripts/measure writes the kernel files: calculon calibrate SYS --collectives collectives.csv --gemm gemm.csv "
        "--memory memory.csv -o mine.json; with --shapes --multiprocessors N product rates depend on the shape.\n\n"
        "Write the training logs as a CSV with one line per run: calculon calibrate SYS --training "
        "steps.csv --fit mem1,matrix -o mine.json. Fit few parameters, and use runs that respond to them differently: "
        "small and large microbatches separate memory from arithmetic, small models reveal launch times. "
        "Parameters that the steps do not determine are refused with the reason.\n\n"
        "The kernels of the systems of the catalog were fitted to public measurements: calculon calibrate --kernels "
        "systems/measured h100_80g_sxm -o mine.json fits the laws of matrix products, attention, memory-bound kernels "
        "and collectives again. A hash of the shape selects the held-out rows, identically for every processor.",
    )
    declare(parser)
    parser.show_first(
        "--kernels",
        "--processor",
        "--collectives",
        "--gemm",
        "--memory",
        "--training",
        "--overlay",
        "--plot",
        "--output",
    )


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Fit, write the file and the picture, and print the residuals."""
    if arguments.kernels is not None:
        return kernels(arguments, log)
    if arguments.base != STDIN:
        arguments.base = catalog.exact("system", arguments.base)
    _check(arguments)
    from calculon.calibrate.fit import calibrate

    name, file, base = read_base(arguments)
    found = calibrate(
        base,
        file,
        _read(arguments, base, file, name),
        hold_out=HOLD_OUT if arguments.hold_out is None else arguments.hold_out,
        above=arguments.above or 0,
        ramp=arguments.ramp,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        name=name,
        multiprocessors=arguments.multiprocessors,
        training=_training(arguments, base, file, name),
    )
    aside = arguments.output == STDOUT or arguments.format != "text"  # output for programs
    for note in () if log.quiet else found.notes:
        (print_stderr if aside else log)(f"calculon: note: {note}")
    if arguments.plot:
        from calculon.cli.calibrate_picture import save

        save(found, name, arguments.plot)
    document = _overlay(arguments, base, found.document) if arguments.overlay else found.document
    parts = [part for part in found.parts if not part.unit and len(part.rows) <= MAX_STEPS]
    steps = [Table(STEPS, part.each()) for part in parts]
    residuals = Table(RESIDUALS, found.residuals(), "--format csv")
    write_fit(document, residuals, arguments, log, steps)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Check before any work that measurements are given and that all outputs can be written."""
    check_fits()
    kernels = [*arguments.collectives, *arguments.gemm, *arguments.memory]
    inputs = [*kernels, *arguments.training]
    if not inputs:
        wanted = "measurements: --kernels, --collectives, --gemm, --memory or --training"
        raise SpecError("calibrate", Problem("", wanted, "none"))
    if arguments.processor is not None:
        raise SpecError("--processor", Problem("", "--kernels together with it", "none"))
    if bool(arguments.training) != (arguments.fit is not None):
        wanted = "--training FILE and --fit NAMES together, such as --fit mem1,matrix"
        given = "--training" if arguments.training else "--fit"
        raise SpecError("calibrate", Problem("", wanted, f"{given} alone"))
    if arguments.shapes and not arguments.gemm:
        raise SpecError(
            "calibrate", Problem("", "--gemm FILE together with --shapes", "--shapes alone")
        )
    if arguments.multiprocessors is not None and not (
        arguments.shapes and arguments.multiprocessors
    ):
        wanted = "a number above 0, together with --shapes"
        raise SpecError("--multiprocessors", Problem("", wanted, str(arguments.multiprocessors)))
    named = document_suffix(arguments.base) in SUFFIXES or arguments.base in catalog.names("system")
    if arguments.overlay and not named:
        wanted = "a system of the catalog or a file, for --overlay to name"
        raise SpecError(arguments.base, Problem("", wanted, "neither"))
    twice = next((one for one in inputs if inputs.count(one) > 1), None)
    if twice:
        raise SpecError(twice, Problem("", "each file once", "twice"))
    check_inputs([arguments.base, *inputs])
    if arguments.output != STDOUT:
        check_outputs([arguments.output], [arguments.base, *inputs])
    if arguments.plot:
        check_picture(arguments.plot, [arguments.base, *inputs])


def _overlay(
    arguments: argparse.Namespace, base: Mapping[str, Any], document: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the differences from the base as an overlay; the path of the base is relative to the output's folder."""
    name = arguments.base
    if name not in catalog.names("system") and not Path(name).is_absolute():
        folder = "." if arguments.output == STDOUT else Path(arguments.output).parent
        name = os.path.relpath(name, folder)
    return {BASE: name} | difference(base, document)


def _read(
    arguments: argparse.Namespace, base: Mapping[str, Any], file: str, name: str
) -> "list[Measurements]":
    """Read all kernel measurement files."""
    from calculon.calibrate.fit_result import Measurements
    from calculon.calibrate.parts import quietly_decoded
    from calculon.calibrate.readers import (
        CollectiveOptions,
        read_collectives,
        read_gemm,
        read_memory,
    )

    system = quietly_decoded(base, file, name)
    if arguments.network is not None and arguments.network >= len(system.networks):
        wanted = f"a network of {name}: 0 to {len(system.networks) - 1}"
        raise SpecError("--network", Problem("", wanted, str(arguments.network)))
    known = CollectiveOptions(arguments.operation, arguments.members)
    read = [
        (one, read_collectives(one, system, known, arguments.network))
        for one in arguments.collectives
    ]
    read += [(one, read_gemm(one, system, shapes=arguments.shapes)) for one in arguments.gemm]
    read += [(one, read_memory(one, system)) for one in arguments.memory]
    return [Measurements(Path(one).name, rows, text) for one, (rows, text) in read]


def _training(
    arguments: argparse.Namespace, base: Mapping[str, Any], file: str, name: str
) -> "Training | None":
    """Read the training logs."""
    if not arguments.training:
        return None
    from calculon.calibrate.logs import read_training
    from calculon.calibrate.parts import quietly_decoded
    from calculon.calibrate.training import Training

    files = {one: Path(one).name for one in arguments.training}
    return Training(read_training(files, quietly_decoded(base, file, name)), arguments.fit)
