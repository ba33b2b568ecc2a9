"""The arguments of ``calculon calibrate``."""

import argparse

from calculon.cli.options import Parser
from calculon.render.text_tables import FORMATS

HOLD_OUT = 0.3
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "p2p")
_PARAMETERS = (
    "mem1, matrix, vector, attention and networks[i] multiply efficiencies (matrix those of ext.gemm too; "
    "tensor_cores is matrix without float32)",
    "launch.kernel and launch.step are times of ext.launch",
)


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    parser.argument("SYS", "the system to start from: catalog name, file or -", "base")
    _add_kernels(parser)
    _add_training(parser)
    parser.option("-o, --output FILE", "the new system file (.json); - prints it", required=True)
    parser.switch(
        "--overlay",
        "write only what was fitted, over SYS as base: every command takes such a file as a system",
    )
    parser.option(
        "--hold-out SHARE",
        f"share of the groups that is predicted, not fitted (default: {HOLD_OUT}); --kernels holds out what its "
        "tables name",
        type=_share,
    )
    parser.option("--plot FILE", "picture of the fit: NAME.png, .svg or .pdf")
    parser.option(
        "--format", "of the table of residuals (default: text)", choices=FORMATS, default="text"
    )
    _add_collective_options(parser)


def _add_files(parser: Parser, option: str, text: str, longer: str = "") -> None:
    """Declare an option that names a file, and may be repeated."""
    parser.option(f"{option} FILE", f"{text}; may be repeated", longer, action="append", default=[])


def _add_kernels(parser: Parser) -> None:
    """Declare tables of kernels, and files of collectives, matrix products and copies."""
    parser.option(
        "--kernels FOLDER",
        "fit laws of kernels to the tables of a folder (default: systems/measured of the catalog)",
        ", and write them with their sources and residuals; alone, or with --processor",
        nargs="?",
        const="",
    )
    parser.option(
        "--processor NAME",
        "processor of --kernels, as the column gpu names it (default: about.processor of SYS)",
    )
    _add_files(
        parser,
        "--collectives",
        "CSV operation,bytes,members,seconds[,network][,group], or a log of nccl-tests",
        "; a column busbw in GB/s, as nccl-tests prints it, may replace seconds",
    )
    _add_files(
        parser,
        "--gemm",
        "CSV m,n,k,datatype,seconds[,group] of products m x k times k x n",
    )
    parser.switch(
        "--shapes",
        "fit ext.gemm to --gemm, which has the rate by shape (largest efficiency, half depth, alignment), not the "
        "efficiency curve; edition sc23 ignores it",
    )
    parser.option(
        "--multiprocessors N",
        "of the device, for --shapes (default: those of ext.gemm in SYS)",
        type=_count,
    )
    _add_files(
        parser, "--memory", "CSV bytes,seconds[,tier][,group], bytes read and written together"
    )


def _add_training(parser: Parser) -> None:
    """Declare training logs and the parameters fitted to them."""
    _add_files(
        parser,
        "--training",
        "CSV model,execution,seconds[,memory_bytes][,name][,group] of whole training steps",
        ": a model of the catalog or its file, and the file of the execution, both next to the CSV; columns named as "
        "their fields (microbatch_size, num_blocks) change them row by row; the default group is the model",
    )
    parser.option(
        "--fit NAME[,NAME]",
        "what --training fits, after everything else: " + "; ".join(_PARAMETERS),
        type=_names,
    )


def _add_collective_options(parser: Parser) -> None:
    """Declare options of collectives, for files that do not state them."""
    parser.option(
        "--network N",
        "network of collectives that name none (default: the first that holds the group)",
        type=_count,
    )
    parser.option("--above BYTES", "use only collectives of larger messages", type=_count)
    parser.add_argument(
        "--no-ramp",
        dest="ramp",
        action="store_false",
        help="fit networks by one latency and one efficiency, which is all that edition sc23 knows",
    )
    parser.option(
        "--operation NAME",
        "what logs measured that do not say: " + ", ".join(OPERATIONS),
        choices=OPERATIONS,
    )
    parser.option("--members N", "members in logs that do not say", type=_count)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


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
