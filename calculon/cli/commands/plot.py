"""``calculon plot``: pictures of estimates, searches and validation."""

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any

from calculon.base.frozen import dataclass
from calculon.cli.campaign_options import add_campaign
from calculon.cli.changes import add_changes
from calculon.cli.options import (
    Log,
    Parser,
    add_edition,
    add_preset,
    positive,
)
from calculon.cli.pictures import check_picture, write_picture
from calculon.cli.requested_run import add_run
from calculon.cli.result_arguments import add_result_arguments
from calculon.cli.search_options import add_choice_options, add_edition_and_preset, add_values
from calculon.cli.serving_options import (
    FRONTIER_KINDS,
    add_deployment,
    add_fields,
    add_workload,
)
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.result_selection import split

SOURCE_HELP = (
    "tables of executions (CSV, Parquet, or the JSON of loe and study), or a space to search: "
    "APP NUM_PROCS MAX_BATCH DATATYPE SYS"
)


def _add_source(parser: Parser) -> None:
    parser.argument("SOURCE", SOURCE_HELP, nargs="+")
    add_choice_options(parser)
    add_edition_and_preset(parser)


def _heatmap_options(parser: Parser) -> None:
    _add_source(parser)
    parser.option(
        "--objective STAT[:min|max]",
        "statistic to optimize in each cell (default sample_rate)",
        default="sample_rate",
    )


def _pareto_options(parser: Parser) -> None:
    _add_source(parser)
    parser.option(
        "--rate STAT[:min|max]", "the vertical axis (default sample_rate)", default="sample_rate"
    )
    parser.option(
        "--against STAT[:min|max]",
        "the horizontal axis: a statistic, or num_procs (default proc_mem_tier1_cap_req)",
        default="proc_mem_tier1_cap_req",
    )


def _validation_options(parser: Parser) -> None:
    parser.option("--study NAME", "only this study or group of studies", default="")
    add_edition(parser, absent=PUBLISHED)


def _schedule_options(parser: Parser) -> None:
    parser.argument(
        "SPEC",
        "APP EXE SYS: model, execution and system; or a result of loe or llm: FILE, FILE#RANK",
        "specs",
        nargs="+",
    )
    parser.option(
        "--microbatches N",
        "microbatches to draw (default: twice the number of stages)",
        type=positive,
    )
    add_changes(parser, "model", "execution", "system")
    add_edition(parser)
    add_preset(parser)


def _goodput_options(parser: Parser) -> None:
    add_run(parser, without=("--mtbf",))
    parser.option(
        "--procs PROCS",
        "numbers of processors (1024:131072:x2, 1k-128k; default: 1/16 to 8 times the plan's)",
    )
    parser.option(
        "--mtbf TIME,...",
        "mean times between failures of one processor in hours, one curve each (25000h,50000h; default: 0.5, 1 "
        "and 2 times the campaign's)",
        dest="mtbfs",  # a list, so not the single value of the campaign
    )


def _budget_options(parser: Parser) -> None:
    parser.argument("MODEL", "the model: a name, or a file")
    parser.argument(
        "PROCS",
        "processors: a list (512,1024), a range of doublings (512-4096), or any: all counts that could meet the "
        "deadline",
        "num_procs",
    )
    parser.argument("SYSTEM[,SYSTEM]", "the machines: names or files, one mark each", "system")
    parser.option(
        "--objective FIGURE",
        "figure of the run to minimize: usd (default), days, processor_hours, mwh, ...",
        default="usd",
    )
    for name, words in (
        ("batch", "global batch, in sequences (512) or tokens (4M)"),
        ("seq", "tokens of a sequence (8192, 8k)"),
        ("dtype", "precision: bf16, fp8, ..."),
    ):
        parser.option(f"--{name} N", f"{words}, as in calculon plan")
    add_campaign(parser)
    add_values(parser)
    add_changes(parser, "campaign", "model", "system")
    add_preset(parser)


def _frontier_options(parser: Parser) -> None:
    parser.argument("MODEL", "the model: a name, or a file")
    parser.argument("COUNT", "processors of all replicas (8, 8,16, 8:64:x2)", "num_procs")
    parser.argument("SYSTEM", "machines: names or files, one curve each", "systems", nargs="+")
    add_workload(parser)
    add_fields(parser)
    add_changes(parser, *FRONTIER_KINDS)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of picture.

    Attributes:
        configure: Function that declares the arguments of this kind.
        module: Module with a function named after the kind, which turns the arguments into a chart.
        page: Function of that module that returns a terminal document and needs no file; empty if there is none.
        first: Options listed by the short help; empty for all.
    """

    name: str
    help: str
    configure: Callable[[Parser], None]
    module: str
    examples: str
    page: str = ""
    first: tuple[str, ...] = ()

    def call(self, function: str, arguments: argparse.Namespace) -> Any:
        """Call a function of the module with the arguments and return its result."""
        return getattr(import_module(f"calculon.cli.{self.module}"), function)(arguments)


_OF_SPACES = ("--fix", "--add", "--where", "--preset", "--edition", "--objective", "--tokens")
_OF_RUNS = (
    *("--campaign", "--tokens", "--deadline", "--budget-usd", "--price", "--preset", "--set"),
    *("--batch", "--dtype", "--objective"),
)
_OF_SERVED = (
    *("--workload", "--prompt", "--output", "--rate", "--users", "--ttft", "--tpot", "--fix"),
    *("--add", "--set"),
)

KINDS = (
    Kind(
        "breakdown",
        "time and memory of one or several results by part, with the memory capacity",
        add_result_arguments,
        "plot_answers",
        "calculon plot breakdown megatron-1T,3072_t4_p64_d12_mbs4_full,a100_80g -o breakdown.png\n"
        "calculon loe megatron-22B 64 64 float16 a100_80g best.json -t 10 --quiet\n"
        "calculon plot breakdown first=best.json tenth=best.json#9 -o ranks.svg\n"
        "calculon plot breakdown best.json#0 --model megatron-22B --system a100_80g -o best.pdf",
    ),
    Kind(
        "waterfall",
        "the steps from one plan to another, one change at a time, largest first: "
        "time saved and memory used by each",
        add_result_arguments,
        "plot_answers",
        "calculon plot waterfall llama3-8B,llama3-8B_h100x64_p4,h100_80g_sxm llama3-8B,llama3-8B_h100x64,h100_80g_sxm "
        "-o waterfall.png\n"
        "calculon loe megatron-22B 64 64 float16 a100_80g best.json -t 10 --quiet\n"
        "calculon plot waterfall best.json#9 best.json#0 --model megatron-22B --system a100_80g -o ranks.svg",
    ),
    Kind(
        "heatmap",
        "the best rate by tensor and pipeline parallelism, with the combinations that cannot run",
        _heatmap_options,
        "plot_heatmap",
        "calculon plot heatmap gpt3-175B 1024 1536 float16 a100_80g -o heatmap.png\n"
        "calculon lae megatron-22B 8 8 float16 a100_80g all.csv --quiet --where 'microbatch_size == 1'\n"
        "calculon plot heatmap all.csv --where 'optimizer_offload == false' -o table.png",
        first=_OF_SPACES,
    ),
    Kind(
        "surface",
        "the best rate over tensor and pipeline parallelism as a surface with a proportional color scale",
        _heatmap_options,
        "plot_heatmap",
        "calculon plot surface gpt3-175B 1024 1536 float16 a100_80g -o surface.png\n"
        "calculon lae megatron-22B 8 8 float16 a100_80g all.csv --quiet --where 'microbatch_size == 1'\n"
        "calculon plot surface all.csv --objective total_time -o time.svg",
        first=_OF_SPACES,
    ),
    Kind(
        "scaling",
        "the best rate and efficiency over processor counts",
        _add_source,
        "plot_curves",
        "calculon plot scaling gpt3-175B 256:4096:x2 4096 float16 h100_80g_nvl8 -o scaling.png\n"
        "calculon loe megatron-22B 8:64:8 64 float16 a100_80g a100.json --quiet\n"
        "calculon loe megatron-22B 8:64:8 64 float16 h100_80g_nvl8 h100.json --quiet\n"
        "calculon plot scaling a100.json h100.json -o both.pdf",
        first=_OF_SPACES,
    ),
    Kind(
        "validation",
        "predicted against measured values of every published study",
        _validation_options,
        "plot_answers",
        "calculon plot validation -o validation.png\n"
        "calculon plot validation --study vtrain -o vtrain.svg",
    ),
    Kind(
        "pareto",
        "the rate against memory or processors, with the Pareto front",
        _pareto_options,
        "plot_curves",
        "calculon plot pareto gpt3-175B 1024 1536 float16 a100_80g -o pareto.png\n"
        "calculon lae megatron-22B 8 8 float16 a100_80g all.csv --quiet --where 'microbatch_size == 1'\n"
        "calculon plot pareto all.csv --against proc_mem_tier2_cap_req -o tiers.svg\n"
        "calculon plot pareto gpt3-175B 128:1024:128 1536 float16 a100_80g --against num_procs -o procs.pdf",
        first=(*_OF_SPACES, "--rate", "--against"),
    ),
    Kind(
        "schedule",
        "the passes of each pipeline stage over time, microbatch by microbatch, and its idle time",
        _schedule_options,
        "plot_answers",
        "calculon plot schedule llama3-8B llama3-8B_h100x64_p4 h100_80g_sxm -o schedule.png\n"
        "calculon plot schedule megatron-1T 3072_t4_p64_d12_mbs4_full a100_80g --microbatches 16 -o deep.png\n"
        "calculon loe llama3-70B 256 256 bfloat16 h100_80g_sxm best.json --preset megatron-lm --quiet\n"
        "calculon plot schedule best.json -o best.png",
    ),
    Kind(
        "campaign",
        "the days of a whole training run by cause, and its end",
        add_run,
        "plot_answers",
        "calculon plot campaign llama3.1-405B llama3.1-405B_h100x16384 h100_80g_sxm_24k --campaign llama3-405B "
        "-o campaign.png\n"
        "calculon plot campaign llama3-8B llama3-8B_h100x64 h100_80g_sxm --tokens 1T --deadline 20d -o days.svg",
        first=_OF_RUNS,
    ),
    Kind(
        "goodput",
        "the goodput of a whole run over processor counts, for several mean times between failures, with more or "
        "fewer replicas of the plan and proportional batch and tokens",
        _goodput_options,
        "plot_answers",
        "calculon plot goodput llama3.1-405B llama3.1-405B_h100x16384 h100_80g_sxm_24k --campaign llama3-405B "
        "--procs 1024:131072:x2 -o goodput.png\n"
        "calculon plot goodput llama3-8B llama3-8B_h100x64 h100_80g_sxm --tokens 1T --mtbf 20000h,80000h -o mtbf.svg",
        first=(*_OF_RUNS, "--procs", "--mtbf"),
    ),
    Kind(
        "budget",
        "days against money of a whole run: the best plan for each processor count and machine, the frontier, and "
        "limits",
        _budget_options,
        "plot_answers",
        "calculon plot budget llama-3-8b 64-512 h100,h200 --tokens 1T --deadline 7d --budget-usd 500k -o budget.png\n"
        "calculon plot budget llama-3-8b any h100 --tokens 1T --deadline 20d --price 2 -o cheapest.svg",
        first=_OF_RUNS,
    ),
    Kind(
        "batch",
        "time per token, throughput and time to the first token of a served model over its batch, the parts of a "
        "decode pass, and the limits of the batch; without -o as a table",
        add_deployment,
        "plot_answers",
        "calculon plot batch llama-3.1-70b tp=8 h100 --prompt 2000 --output 500 --ttft 1 --tpot 0.05 -o batch.png\n"
        "calculon plot batch llama3-8B 1 a100_80g_sxm --prompt 1k --output 200 --set max_batch=64",
        "batch_table",
        first=_OF_SERVED,
    ),
    Kind(
        "frontier",
        "tokens/s per processor against tokens/s per user: the best deployments of a served model at every batch, on "
        "one or several machines; without -o as text (for training runs: pareto)",
        _frontier_options,
        "plot_answers",
        "calculon plot frontier llama-3.1-70b 8 h100 b200 --prompt 8192 --output 1024 -o frontier.png\n"
        "calculon plot frontier llama3-8B 8 h100 --prompt 1k --output 200 --tpot 20ms --add weights_dtype=float8",
        "frontier_text",
        first=_OF_SERVED,
    ),
)
"""All kinds of pictures, in the order of the help."""


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Draw a picture: PNG, SVG or PDF, by the suffix of the output. The same data always give the same file.",
        "\n".join(kind.examples.partition("\n")[0] for kind in KINDS),
    )
    below = parser.add_subparsers(
        dest="kind", metavar="KIND", required=True, title="kinds of pictures"
    )
    for kind in KINDS:
        own = below.add_parser(kind.name, help=kind.help)
        own.explain(f"Draw {kind.help}.", kind.examples)
        kind.configure(own)
        if kind.first:
            own.show_first(*kind.first, "-o")
        own.option(
            "-o FILE" if kind.page else "-o, --output FILE",  # --output: generated tokens
            "NAME.png, NAME.svg or NAME.pdf" + ("; else in the terminal" if kind.page else ""),
            dest="file",
            required=not kind.page,
        )


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Check the output, draw, and write the picture."""
    output, kind = arguments.file, next(kind for kind in KINDS if kind.name == arguments.kind)
    if output is None:
        log.show(kind.call(kind.page, arguments))
        return 0
    check_picture(output, [split(text)[0] for text in _inputs(arguments)])
    write_picture(kind.call(kind.name, arguments), output, log)
    return 0


_OF_SERVING = ("deployment", "systems", "workload")
_INPUTS = ("results", "source", "specs", "model", "execution", "campaign", *_OF_SERVING)
"""Arguments that may be files, over all kinds of pictures."""


def _inputs(arguments: argparse.Namespace) -> list[str]:
    """Return the arguments that may be files."""
    given = [getattr(arguments, name, None) or [] for name in _INPUTS]
    # Some arguments are lists and some are single texts.
    texts = [text for one in given for text in ([one] if isinstance(one, str) else one)]
    return [*texts, *(getattr(arguments, "system", None) or "").split(",")]
