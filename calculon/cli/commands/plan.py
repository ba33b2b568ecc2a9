"""``calculon plan``: from a question to a plan."""

import argparse
from pathlib import Path
from typing import Any

from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.cli.campaign_options import add_campaign, campaign_of, campaign_source
from calculon.cli.changes import add_changes, with_changes
from calculon.cli.emission import Emission, add_emission
from calculon.cli.fleet_plan import objective_of, plan_fleets
from calculon.cli.options import (
    STDOUT,
    USUAL,
    Log,
    Parser,
    add_preset,
    check_inputs,
    check_outputs,
)
from calculon.cli.question_options import (
    add_question_options,
    only_plan,
    set_in_order,
)
from calculon.cli.search_options import add_values


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Plan a training run: which plan, does it fit, how long, how sure. The best of all executions that the "
        "framework can run, its rivals, the same for half and twice the processors, and a plan of your own beside.\n"
        "With a deadline, a budget, an objective or several systems: which machine and how many processors, as whole "
        "runs with failures, checkpoints and money; exit code 1 where nothing meets the limits.",
        "calculon plan llama-3.1-70b 1024 h100\n"
        "calculon plan llama-3.1-70b 1k h100 --preset megatron-lm --tokens 15T --batch 4M\n"
        'calculon plan llama-3.1-405b 16384 h100 --batch 16M --mine "tp=8 pp=16 mbs=1"\n'
        "calculon plan qwen2.5-7b 8,16,32 a100-40 --seq 4k -o plan.json\n"
        "calculon plan llama-3-8b 64 h100 --batch 4M --emit megatron-lm:run.sh\n"
        "calculon plan llama-3-8b 64 h100 --mine run.sh\n"
        "calculon plan ./config.json 64 mi300x --dtype fp8\n"
        "calculon plan llama-3.1-70b any h100 --tokens 15T --deadline 60d --objective usd\n"
        "calculon plan llama-3-8b 256-2048 h100,h200 --tokens 15T --deadline 30d --budget-usd 5M",
    )
    _add_question(parser)
    add_emission(parser)
    add_values(parser)
    add_changes(parser, "model", "system", "campaign")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write the answer (.json, .json.gz), whose plans other commands take; - prints it",
    )


def _add_question(parser: Parser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="the model: a name as people write it, a file, or the config.json of Hugging Face",
    )
    parser.add_argument(
        "num_procs",
        metavar="PROCS",
        help="processors: a count (1024, 1k), a list (512,1024), a range of doublings (512-4096), or any: those that "
        "could meet --deadline",
    )
    parser.add_argument(
        "system",
        metavar="SYSTEM",
        help="the machine, before or after the processors: a name (h100), a file, or several (h100,h200)",
    )
    add_preset(parser, absent=USUAL)
    add_campaign(parser)
    parser.add_argument(
        "--objective",
        metavar="NAME",
        help="compare counts and systems by usd, days, days_p90, processor_hours, mwh or t_co2 of the whole run "
        "(default with limits: usd)",
    )
    add_question_options(parser)


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Answer the question, then print the page or write the file."""
    set_in_order(arguments)
    specs = [arguments.model, *_systems(arguments.system)]
    given = [] if arguments.campaign is None else [arguments.campaign]
    check_inputs([*specs, *given])
    output = arguments.output
    if output not in (None, STDOUT):
        check_outputs([output], [*specs, *given])
    emitted = None if arguments.emit is None else Emission.of(arguments.emit)
    if emitted is not None and not emitted.file and output == STDOUT:
        found = "the answer and the launch file"
        raise SpecError("plan", Problem("", "one output on standard output", found))
    from calculon.search.restrict import parse

    source = campaign_source(arguments)
    changed = [
        with_changes(arguments.changes, model=arguments.model, system=system, campaign=source)
        for system in specs[1:]
    ]
    model, campaign = changed[0]["model"], campaign_of(arguments, changed[0]["campaign"])
    words = {
        "preset": _preset(arguments, emitted),
        "batch": arguments.batch,
        "seq": arguments.seq,
        "dtype": arguments.dtype,
        "mine": only_plan(arguments.mine),
        "fix": parse("fix", arguments.fix),
        "add": parse("add", arguments.add),
    }
    machines = [one["system"] for one in changed]
    objective = objective_of(arguments, campaign, len(machines))
    if objective is None:
        words["campaign"] = campaign
        return _plan(arguments, log, model, machines[0], emitted, **words)
    words["objective"] = objective
    return plan_fleets(arguments, log, model, machines, campaign, emitted, **words)


def _plan(
    arguments: argparse.Namespace,
    log: Log,
    model: Any,
    system: Any,
    emitted: Emission | None,
    **words: Any,
) -> int:
    """Plan one count of one machine in detail."""
    from calculon.advise.planning import plan
    from calculon.advise.unfit import why_none
    from calculon.launch.launch_files import tell_lost, tell_other_model

    output = arguments.output
    answer = plan(model, arguments.num_procs, system, **words)
    if (own := answer.question.mine) is not None and own.launch is not None:
        tell_lost(own.file, own.launch)
        tell_other_model(own.file, own.launch, answer.question.model)
    if output is None and emitted is not None and not emitted.file:
        pass  # the launch file alone, or the error that nothing fits
    elif output is None:
        from calculon.documents.plan_page import plan_page

        log.show(plan_page(answer))
    else:
        log.write(answer.to_dict(), output)
    if answer.best is None:
        raise Infeasible("nothing", f"no plan fits: {why_none(answer.found.counts)}")
    if emitted is not None:
        emitted.write(answer, log)
    return 0


def _systems(text: str) -> list[str]:
    """Return the machines that are asked for: one, or several joined by commas."""
    if Path(text).exists():
        return [text]
    return list(dict.fromkeys(one.strip() for one in text.split(",") if one.strip())) or [text]


def _preset(arguments: argparse.Namespace, emitted: Emission | None) -> str | None:
    """Return the framework: that of the launch file to write, where none is asked for and no plan of one's own says."""
    if arguments.preset is not None or emitted is None or arguments.mine:
        return arguments.preset  # type: ignore[no-any-return]
    return emitted.preset
