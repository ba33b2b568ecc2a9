"""The arguments of ``calculon calibrate``."""

import argparse

from calculon.cli.options import Parser
from calculon.render.text_tables import FORMATS

HOLD_OUT = 0.3
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "p2p")
_PARAMETERS = (
    "mem1, matrix, vector, attention and networks[i] multiply efficiencies (matrix also scales ext.gemm; "
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
        "write only the fitted values, as an overlay of SYS; every command accepts the file as a system",
    )
    parser.option(
        "--hold-out SHARE",
        f"share of the groups held out for validation (default: {HOLD_OUT}); with --kernels the tables name the "
        "held-out rows",
        type=_share,
    )
    parser.option("--plot FILE", "picture of the fit: NAME.png, .svg or .pdf")
    parser.option(
        "--format",
        "format of the table of residuals (default: text)",
        choices=FORMATS,
        default="text",
    )
    _add_collective_options(parser)


def _add_files(parser: Parser, option: str, text: str, longer: str = "") -> None:
    """Declare a repeatable option that names a file."""
    parser.option(f"{option} FILE", f"{text}; may be repeated", longer, action="append", default=[])


def _add_kernels(parser: Parser) -> None:
    """Declare tables of kernels, and files of collectives, matrix products and memory copies."""
    parser.option(
        "--kernels FOLDER",
        "fit laws of kernels to the tables of a folder (default: systems/measured of the catalog)",
        ", and write them with their sources and residuals; only --processor may accompany it",
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
        "fit ext.gemm (rate by shape: largest efficiency, half depth, alignment) to --gemm instead of the "
        "efficiency curve; edition sc23 ignores it",
    )
    parser.option(
        "--multiprocessors N",
        "multiprocessors (SMs) of the device, for --shapes (default: from ext.gemm in SYS)",
        type=_count,
    )
    _add_files(
        parser, "--memory", "CSV bytes,seconds[,tier][,group], bytes read and written together"
    )


def _add_training(parser: Parser) -> None:
    """Declare training logs and the parameters that are fitted to them."""
    _add_files(
        parser,
        "--training",
        "CSV model,execution,seconds[,memory_bytes][,name][,group] of whole training steps",
        ": a model of the catalog or its file, and the file of the execution, both next to the CSV; columns named as "
        "their fields (microbatch_size, num_blocks) change them row by row; the default group is the model",
    )
    parser.option(
        "--fit NAME[,NAME]",
        "parameters that --training fits, after everything else: " + "; ".join(_PARAMETERS),
        type=_names,
    )


def _add_collective_options(parser: Parser) -> None:
    """Declare the options that complete collective measurements whose files omit a value."""
    parser.option(
        "--network N",
        "network of collectives that name none (default: the first network that contains the group)",
        type=_count,
    )
    parser.option("--above BYTES", "use only collectives of larger messages", type=_count)
    parser.add_argument(
        "--no-ramp",
        dest="ramp",
        action="store_false",
        help="fit one latency and one efficiency per network, the only parameters of edition sc23",
    )
    parser.option(
        "--operation NAME",
        "operation of logs that do not name it: " + ", ".join(OPERATIONS),
        choices=OPERATIONS,
    )
    parser.option("--members N", "group size of logs that do not state it", type=_count)


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
