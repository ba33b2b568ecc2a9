"""``calculon serve``: estimate an LLM serving deployment (prefill, decode, continuous batching, KV cache)."""

import argparse
from typing import TYPE_CHECKING

from calculon.cli.changes import parsed
from calculon.cli.deploy_folder import add_deploy, check_deploy, report_deploy, write_deploy
from calculon.cli.field_options import processors_in_place
from calculon.cli.options import Log, Parser, add_answer, answer_format, check_answer, whole_page
from calculon.cli.question_options import set_in_order
from calculon.cli.serving_options import (
    KINDS,
    add_deployment,
    assume_workload,
    requested_deployment,
    specs_of,
)
from calculon.declarations.origin import note_on

if TYPE_CHECKING:
    from calculon.render.document import Section
    from calculon.serving.serve import Served


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Estimate a deployment that serves a model: time to the first token, time per token, tokens per second, price, "
        "limits and memory. Without a rate or users, the largest batch within the limits is used. Exit code 1 if a "
        "limit is missed.",
        "calculon serve llama-3.1-70b 8 h100 --prompt 2000 --output 500 --tpot 0.05\n"
        "calculon serve llama3-70B llama3.1-70B_h100x8_fp8 h100_80g_sxm --workload chat --users 64\n"
        "calculon serve llama3-8B tp=1 h100 --prompt 1k --output 200 --users 64 --replay\n"
        "calculon serve gpt-oss-120b 1 h100 --prompt 1k --output 1k --set experts_dtype=mxfp4 -o served.json\n"
        "calculon serve llama-3.1-70b 8 h100 --prompt 2k --output 500 --users 64 --deploy llama "
        "--checkpoint meta-llama/Llama-3.1-70B-Instruct",
        "A processor count means its best deployment, as found by calculon serve-optimal, and any the fewest "
        "processors for a --rate or --users; --set restricts the search. --replay and --trace also replay the "
        "scheduler, pass by pass.",
    )
    add_deployment(parser)
    parser.switch(
        "--replay",
        "also replay the scheduler, pass by pass: percentiles, goodput, and the highest rate within the limits",
    )
    parser.option(
        "--trace FILE",
        "replay the requests of a trace: JSON lines or CSV with arrival, prompt and output",
        "; also traces of Mooncake, Azure and BurstGPT, and detailed results of vllm bench. Without --prompt and "
        "--output, the trace states the workload; --rate changes the pace of its requests, and with --users only its "
        "lengths are used",
    )
    parser.option("--seed N", "seed of random arrivals and lengths in a replay (0)", type=int)
    parser.switch("-v, --verbose", "print everything: limits, memory, passes, gains")
    add_deploy(parser)
    parser.option(
        "--evidence FILE",
        "your own benchmark, next to its prediction.json (calculon check): ranges of similar deployments use it, too; "
        "may be repeated",
        action="append",
    )
    add_answer(parser, flags=("-o",))  # --output is the number of generated tokens
    parser.show_first(
        *(
            "--engine",
            "--workload",
            "--prompt",
            "--output",
            "--rate",
            "--users",
            "--ttft",
            "--tpot",
        ),
        *("--set", "--verbose", "--deploy", "-o"),
    )


def _use_trace(arguments: argparse.Namespace) -> None:
    """Read the trace; its means are the workload, unless the arguments state another one."""
    if arguments.trace is None:
        return
    from calculon.serving.replay.traces import read_trace  # only if needed

    arguments.trace = read_trace(arguments.trace)
    if any(one is not None for one in (arguments.workload, arguments.prompt, arguments.output)):
        return
    fields = arguments.trace.workload
    if arguments.rate is not None or arguments.users is not None:
        fields.pop("rate", None)
    arguments.changes = [
        *(f"workload.{name}={value!r}" for name, value in fields.items()),
        *arguments.changes,
    ]


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Estimate the deployment, then print the page or write the file; exit code 1 if a limit is missed."""
    set_in_order(arguments, "deployment")
    if arguments.evidence is None:
        return _answer(arguments, log)
    from calculon.estimate.user_evidence import using_evidence
    from calculon.validate.served_check import served_evidence

    with using_evidence(served_evidence(*arguments.evidence)):
        return _answer(arguments, log)


def _answer(arguments: argparse.Namespace, log: Log) -> int:
    _use_trace(arguments)
    assume_workload(arguments)
    check_answer(arguments, specs_of(arguments))
    check_deploy(arguments)
    found = requested_deployment(arguments)
    if (written := write_deploy(arguments, found)) is not None:
        found = written.served
    if arguments.replay or arguments.trace or arguments.seed is not None:
        found = found.with_replay(arguments.trace, seed=arguments.seed or 0)
    from calculon.documents.serving_page import serving_page

    note, others = note_on(found.system), _alternatives(arguments, found)
    # The first parts have no gains of better hardware, which take longer than the rest.
    short = not whole_page(arguments)
    log.answer(
        arguments,
        lambda: serving_page(found.brief if short else found.record, note, others),
        found.to_dict,
        parts=1 + (others is not None) + (found.replayed is not None),
    )
    report_deploy(arguments, log)
    if not all(one.met for one in found.limits):
        raise found.infeasible("it misses")
    return 0


def _alternatives(arguments: argparse.Namespace, found: "Served") -> "Section | None":
    """Return the best deployments of other kinds; None if the question states a split, or a field of the deployment."""
    from calculon.search.deployments.deployment_vocabulary import ANY

    asked = arguments.deployment
    counted = asked.removeprefix("procs=")  # the only word that leaves the split open
    searched = asked == ANY or processors_in_place(counted) is not None
    if not (found.tried and searched) or parsed(arguments.changes, KINDS)["deployment"]:
        return None
    if answer_format(arguments) == "json":
        return None
    from calculon.documents.alternatives_section import alternatives_section
    from calculon.search.deployments.first_answer import alternatives_of

    return alternatives_section(alternatives_of(found))
