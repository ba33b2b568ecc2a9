"""``calculon plan``: find the best plan for a training run."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.cli.campaign_options import add_campaign
from calculon.cli.changes import add_changes
from calculon.cli.emission import Emission, add_emission
from calculon.cli.options import (
    STDOUT,
    USUAL,
    Log,
    Parser,
    add_answer,
    add_preset,
    check_answer,
    check_inputs,
    first_parts,
    whole_page,
)
from calculon.cli.question_options import (
    add_question_options,
    machines_in,
    only_plan,
    requested_question,
    set_in_order,
)
from calculon.cli.search_options import add_values
from calculon.declarations.files import is_device

if TYPE_CHECKING:
    from calculon.advise.answer import Answer
    from calculon.campaign.record import Campaign
    from calculon.render.document import Document

    Show = Callable[[Callable[[bool], Document], Callable[[], Any]], None]
    """Function that shows the page of a result, short or whole, or writes its data."""


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Plan a training run: the best plan, its memory, time and certainty. With a deadline, budget (USD), objective "
        "or several systems, also choose machine and processor count; exit code 1 if nothing meets the limits.",
        "calculon plan llama-3.1-70b 1024 h100\n"
        'calculon plan llama-3.1-70b 1k h100 --batch 4M --mine "tp=8 pp=4 mbs=1"\n'
        "calculon plan qwen2.5-7b 8,16,32 a100-40 --seq 4k -o plan.json\n"
        "calculon plan llama-3-8b 64 h100 --emit megatron-lm:run.sh\n"
        "calculon plan llama-3-8b 256-2048 h100,h200 --tokens 15T --deadline 30d\n"
        "calculon plan llama-3.1-70b 1k h100 --preset megatron-lm --tokens 15T --batch 4M\n"
        "calculon plan llama-3-8b 64 h100 --mine run.sh\n"
        "calculon plan ./config.json 64 mi300x --dtype fp8\n"
        "calculon plan llama-3.1-70b any h100 --tokens 15T --deadline 60d --objective usd\n"
        "calculon plan llama-3-8b 256-2048 h100,h200 --tokens 15T --deadline 30d --budget-usd 5M",
        "The plan is the best of all executions that the framework can run, shown with alternatives, results for half "
        "and twice the processors, and your own plan. Machines and processor counts are compared over whole "
        "runs, including failures, checkpoints and money.",
    )
    _add_question(parser)
    parser.switch(
        "-v, --verbose",
        "print everything: stages, experts, ties, basis of the interval, nearest runs",
    )
    add_emission(parser)
    add_values(parser)
    add_changes(parser, "model", "system", "campaign")
    add_answer(parser, "write the result, whose plans other commands accept")
    parser.show_first(
        "--tokens",
        "--batch",
        "--seq",
        "--dtype",
        "--preset",
        "--mine",
        "--risk",
        "--fix",
        "--deadline",
        "--emit",
        "--verbose",
        "--output",
    )


def _add_question(parser: Parser) -> None:
    parser.argument(
        "MODEL", "the model: a name as people write it, a file, or the config.json of Hugging Face"
    )
    parser.argument(
        "PROCS",
        "processors: a count (1024, 1k), a list (512,1024), a range of doublings (512-4096), or any",
        "num_procs",
        ": all counts that could meet --deadline",
    )
    parser.argument(
        "SYSTEM",
        "the machine, before or after the processors: a name (h100), a file, or several (h100,h200)",
    )
    add_preset(parser, absent=USUAL, longer="")
    add_campaign(parser)
    parser.option(
        "--objective NAME",
        "objective for counts and systems: usd, days, days_p90, processor_hours, mwh or t_co2 of the whole run "
        "(default with limits: usd)",
    )
    add_question_options(parser)
    parser.option(
        "--risk P",
        "highest out-of-memory probability of the recommended plan (default: 10%%)",
        "; 100%%: all plans that are predicted to fit",
    )
    parser.option(
        "--evidence FILE",
        "your own measured steps, a CSV as for calculon lv --rows: prediction intervals of similar plans use them, too",
    )


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Answer the question, then print the page or write the file."""
    if arguments.evidence is None:
        return _answer(arguments, log)
    from calculon.documents.listing import evidence

    with evidence(arguments.evidence):
        return _answer(arguments, log)


def _answer(arguments: argparse.Namespace, log: Log) -> int:
    from calculon import inputs
    from calculon.declarations.spellings.plan_pairs import is_plan

    set_in_order(arguments)
    specs = [arguments.model, *machines_in(arguments.system)]
    given = [] if arguments.campaign is None else [arguments.campaign]
    check_inputs([*specs, *given])
    check_answer(arguments, [*specs, *given])
    emitted = (
        None
        if arguments.emit is None
        else Emission.of(arguments.emit, only_plan(arguments.mine) or "")
    )
    # A launch file without a name goes to standard output, which then must have nothing else.
    alone = emitted is not None and not emitted.file
    printed = arguments.file is None and arguments.format not in (None, "text")
    if alone and (arguments.file == STDOUT or printed):
        found = "the answer and the launch file"
        raise SpecError("plan", Problem("", "one output on standard output", found))
    model, machines, words = requested_question(arguments)
    words |= {"mine": only_plan(arguments.mine), "risk": arguments.risk}
    in_words = not arguments.mine or is_plan(arguments.mine)  # a file names its own
    if emitted is not None:
        for machine in machines:
            emitted.check_machine(inputs.system(machine))
        if arguments.preset is None and in_words:
            words["preset"] = emitted.preset
    objective = _objective(arguments, words["campaign"], len(machines))

    def show(page: "Callable[[bool], Document]", data: Callable[[], Any]) -> None:
        if arguments.file not in (None, STDOUT) and not alone and not is_device(arguments.file):
            log.show(first_parts(page(True), 1))  # the best plan, next to the file
        if not alone or arguments.file is not None:  # otherwise standard output has the launch file
            log.answer(arguments, lambda: page(not whole_page(arguments)), data)

    if objective is None:
        best = _best_plan(show, model, arguments.num_procs, machines[0], words, emitted)
    else:
        words["objective"] = objective
        best = _best_fleet(show, model, arguments.num_procs, machines, words)
    if emitted is not None:
        emitted.write(best, log, aside=arguments.file == STDOUT or printed)
    return 0


def _objective(arguments: argparse.Namespace, campaign: "Campaign", systems: int) -> str | None:
    """Return the objective that ranks fleets; None if one count of one machine is to be planned."""
    from calculon.advise.runs.fleet_search import usual_objective

    return arguments.objective or usual_objective(arguments.num_procs, systems, campaign)


def _best_plan(
    show: "Show", model: Any, num_procs: str, system: Any, words: Any, emitted: Emission | None
) -> "Answer":
    """Plan one count of one machine in detail, and show the plans; raise Infeasible if none fits."""
    from calculon.advise.infeasibility import why_none
    from calculon.advise.planning import plan
    from calculon.documents.plan_page import plan_page

    answer: Answer = plan(model, num_procs, system, **words)
    if emitted is not None:
        emitted.check_model(answer.question)
    if (own := answer.question.mine) is not None and own.launch is not None:
        from calculon.launch.launch_files import warn_of_lost_settings, warn_of_other_model

        warn_of_lost_settings(own.file, own.launch)
        warn_of_other_model(own.file, own.launch, answer.question.model)
    show(lambda short: plan_page(answer, short=short), answer.to_dict)
    if answer.best is None:
        raise Infeasible("nothing", f"no plan fits: {why_none(answer.found.counts)}")
    return answer


def _best_fleet(show: "Show", model: Any, num_procs: str, systems: list[Any], words: Any) -> Any:
    """Compare machines and processor counts; raise Infeasible if nothing meets the limits."""
    from calculon.advise.runs.fleet_search import ask_fleet, fleet_answer
    from calculon.documents.fleet_page import fleet_page

    asked = words["campaign"]
    if len(systems) > 1 and not asked.phases and asked.tokens is asked.loss is asked.steps is None:
        wanted = "the length of the run, since systems are compared over whole runs"
        hint = "add --tokens 15T; calculon search compares single steps"
        raise SpecError("--tokens", Problem("", wanted, "nothing", hint))
    answer = fleet_answer(ask_fleet(model, num_procs, systems, **words))
    show(lambda short: fleet_page(answer, short=short), answer.to_dict)
    if answer.best is None:
        raise Infeasible("limits", answer.misses)
    result: Answer = answer.best.answer
    return result
