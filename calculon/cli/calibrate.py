"""``calculon calibrate``: a system file fitted to measured times."""

import argparse
import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calculon.cli.options import STDOUT, Log, Parser, check_inputs, check_outputs
from calculon.cli.streams import tell
from calculon.errors import Problem, SpecError
from calculon.report.tables import FORMATS, Column, Table
from calculon.spec import catalog
from calculon.spec.files import write_json

if TYPE_CHECKING:
    from calculon.calibrate.fit import Calibration, Fitted, Measurements
    from calculon.report.pictures.calibration import Panel

HOLD_OUT = 0.3
PICTURES = (".png", ".svg", ".pdf")
_EXAMPLE = "examples/measurements/h100_sxm_all_reduce.csv"
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "p2p")


def _percent(key: str, title: str) -> Column:
    return Column(key, title, right=True, text=lambda value: f"{value:.2f}")


RESIDUALS = (
    Column("part", "part"),
    Column("rows", "rows"),
    Column("n", "n", right=True),
    _percent("mape", "mean %"),
    _percent("median", "median %"),
    _percent("p90", "p90 %"),
    _percent("bias", "bias %"),
    _percent("worst", "worst %"),
    Column("worst_row", "worst row"),
)


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Fit parts of a system file to measured times: latency, efficiency and ramp of networks, efficiency curves of\n"
        "the matrix engine and of memories. Peaks, sizes and everything else stay those of the base. Whole groups of\n"
        "rows (the column group; else an octave of sizes, or products of one n and k) are held out and predicted;\n"
        "errors are in percent of the measured time, and a bias below 0 is a file that is too fast. The new file says\n"
        "under calibration what was fitted to what, and how far unseen rows are from it: estimates on it have an\n"
        "interval. scripts/measure makes the files: calculon calibrate SYS --collectives collectives.csv --gemm\n"
        "gemm.csv --memory memory.csv -o mine.json",
        f"calculon calibrate h100_80g_sxm --collectives {_EXAMPLE} -o mine.json\n"
        f"calculon calibrate h100_80g_sxm --collectives {_EXAMPLE} --hold-out 0.5 -o mine.json --plot fit.png",
    )
    parser.add_argument(
        "base", metavar="SYS", help="the system to start from: catalog name, file or -"
    )
    parser.add_argument(
        "--collectives",
        metavar="FILE",
        action="append",
        default=[],
        help="CSV operation,bytes,members,seconds[,network][,group], or a log of nccl-tests; instead of seconds the "
        "column busbw may stand, in GB/s as nccl-tests prints it; may be repeated",
    )
    parser.add_argument(
        "--gemm",
        metavar="FILE",
        action="append",
        default=[],
        help="CSV m,n,k,datatype,seconds[,group]; may be repeated",
    )
    parser.add_argument(
        "--memory",
        metavar="FILE",
        action="append",
        default=[],
        help="CSV bytes,seconds[,tier][,group], bytes read and written together; may be repeated",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        required=True,
        help="the new system file (.json); - prints it",
    )
    parser.add_argument(
        "--hold-out",
        metavar="SHARE",
        type=_share,
        default=HOLD_OUT,
        help=f"share of the groups that is predicted, not fitted (default: {HOLD_OUT})",
    )
    parser.add_argument("--plot", metavar="FILE", help="picture of the fit: NAME.png, .svg or .pdf")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="of the table of residuals (default: text)",
    )
    _add_collective_options(parser)


def _add_collective_options(parser: Parser) -> None:
    """Declare what files of collectives may not say themselves."""
    parser.add_argument(
        "--network",
        metavar="N",
        type=_count,
        help="network of collectives that name none (default: the first that holds the group)",
    )
    parser.add_argument(
        "--above",
        metavar="BYTES",
        type=_count,
        default=0,
        help="use only collectives of larger messages",
    )
    parser.add_argument(
        "--no-ramp",
        dest="ramp",
        action="store_false",
        help="fit networks by one latency and one efficiency, which is all that edition sc23 knows",
    )
    parser.add_argument(
        "--operation", choices=OPERATIONS, help="what logs measured that do not say"
    )
    parser.add_argument(
        "--members", metavar="N", type=_count, help="members in logs that do not say"
    )


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Fit, write the file and the picture, and print the residuals."""
    from calculon.calibrate.fit import calibrate

    _check(arguments)
    name, base = catalog.load("system", arguments.base)
    file = "<stdin>" if name == "stdin" else arguments.base
    if not isinstance(base, Mapping):
        raise SpecError(file, Problem("", "a system: an object", "something else"))
    found = calibrate(
        base,
        file,
        _read(arguments, base, file, name),
        hold_out=arguments.hold_out,
        above=arguments.above,
        ramp=arguments.ramp,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        name=name,
    )
    aside = arguments.output == STDOUT or arguments.format != "text"  # output that a program reads
    for note in () if log.quiet else found.notes:
        (tell if aside else log)(f"calculon: note: {note}")
    if arguments.plot:
        _draw(found, arguments.plot)
    if arguments.output == STDOUT:
        log(json.dumps(found.document, indent=2))
        return 0  # residuals are in it, and what is printed can go into a file
    write_json(arguments.output, found.document)
    log.table(Table(RESIDUALS, found.residuals()), arguments.format)
    if arguments.format == "text":
        for output in filter(None, (arguments.plot, arguments.output)):
            log(f"Output: {output}")
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Check before any work that there is something to fit, and that all outputs can be written."""
    inputs = [*arguments.collectives, *arguments.gemm, *arguments.memory]
    if not inputs:
        wanted = "measurements: --collectives, --gemm or --memory"
        raise SpecError("calibrate", Problem("", wanted, "none"))
    twice = next((one for one in inputs if inputs.count(one) > 1), None)
    if twice:
        raise SpecError(twice, Problem("", "each file once", "twice"))
    check_inputs([arguments.base, *inputs])
    if arguments.output != STDOUT:
        check_outputs([arguments.output], [arguments.base, *inputs])
    if arguments.plot:
        from calculon.cli.plot import check_library

        check_outputs([arguments.plot], [arguments.base, *inputs], PICTURES)
        check_library()


def _read(
    arguments: argparse.Namespace, base: Mapping[str, Any], file: str, name: str
) -> "list[Measurements]":
    """Read all files of measurements."""
    import warnings

    from calculon.calibrate.fit import Measurements
    from calculon.calibrate.nccl import Known
    from calculon.calibrate.readers import read_collectives, read_gemm, read_memory
    from calculon.hardware.system import System
    from calculon.spec.decode import SpecWarning, decode

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpecWarning)  # the fit says it
        system = decode(System, base, file, name=name)
    if arguments.network is not None and arguments.network >= len(system.networks):
        wanted = f"a network of {name}: 0 to {len(system.networks) - 1}"
        raise SpecError("--network", Problem("", wanted, str(arguments.network)))
    known = Known(arguments.operation, arguments.members)
    read = [
        (one, read_collectives(one, system, known, arguments.network))
        for one in arguments.collectives
    ]
    read += [(one, read_gemm(one, system)) for one in arguments.gemm]
    read += [(one, read_memory(one, system)) for one in arguments.memory]
    return [Measurements(Path(one).name, rows, told) for one, (rows, told) in read]


def _draw(found: "Calibration", output: str) -> None:
    from calculon.report.pictures.calibration import draw
    from calculon.report.pictures.canvas import save

    save(draw([panel(part) for part in found.parts]), output)


def panel(part: "Fitted") -> "Panel":
    """Return what the picture shows of a part."""
    import numpy as np

    from calculon.report.pictures.calibration import Panel

    sizes, seconds = part.sizes, np.array([row.seconds for row in part.rows])
    fine = np.geomspace(sizes.min(), sizes.max(), 400)

    def points(which: Any) -> tuple[list[float], list[float]]:
        return sizes[which].tolist(), (sizes[which] / seconds[which]).tolist()

    records = [record for record in part.residuals() if record["rows"] != "left out"]
    errors = [f"{record['rows']} {record['mape']:.1f} %" for record in records]
    large = [text for text in errors if ", above" in text]
    lines = [", ".join(text for text in errors if text not in large), ", ".join(large)]
    return Panel(
        "\n".join([part.part, "mean error: " + lines[0], *filter(None, lines[1:])]),
        part.unit,
        points(~part.held & ~part.left),
        points(part.held),
        (fine.tolist(), (fine / part.time(fine)).tolist()),
        points(part.left),
    )


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to below 1, found '{text}'")
    return value


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number, found '{text}'")
    return int(text)
