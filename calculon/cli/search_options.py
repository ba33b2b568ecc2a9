"""What the commands that search share: the arguments of a space, and the lines that report it."""

import argparse
import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from calculon.base.errors import Problem, SpecError
from calculon.cli.campaign_options import (
    add_campaign,
    asks_for_a_run,
    campaign_of,
    campaign_source,
)
from calculon.cli.changes import add_changes, with_changes
from calculon.cli.field_options import add_tried
from calculon.cli.options import USUAL, Log, Parser, add_edition, add_preset, log_note, one_of
from calculon.cli.streams import tell
from calculon.declarations.named_values import CORRECTED, DATATYPE_BYTES, PUBLISHED
from calculon.declarations.spellings import PRECISIONS, global_batch, precision, probability
from calculon.declarations.statistics import RISK, within_risk
from calculon.search.within_risk import both, prefers_fitting

if TYPE_CHECKING:
    from calculon.campaign.record import Campaign
    from calculon.declarations.model import Model
    from calculon.hardware.system import System
    from calculon.search.search_counts import Counts
    from calculon.search.space import Space, Values
    from calculon.search.task import Search

FUSED = {
    **dict.fromkeys(("t", "true", "T", "True", "1"), (True,)),
    **dict.fromkeys(("f", "false", "F", "False", "0"), (False,)),
    **dict.fromkeys(("both", "all", "*"), (False, True)),
}
"""Spellings of the candidates for fused activation."""

PUBLISHED_FORMS = f"; in edition {PUBLISHED} the published forms"
"""Rest of the help on the preset of a search that states none."""


def add_space_arguments(parser: Parser, counts_help: str, output_help: str) -> None:
    """Declare the positional arguments and the options that make a space."""
    parser.argument("APP", "the model: its shape", "application")
    parser.argument("NUM_PROCS", counts_help)
    parser.argument(
        "MAX_BATCH",
        "global batch, in sequences (512) or tokens (4M)",
        "max_batch_size",
        ": 4 * 2^20 of them; exactly so many under a preset, which edition corrected always has; else the largest "
        "multiple of a data-parallel degree up to it",
        type=_batch,
    )
    parser.argument(
        "DATATYPE",
        f"{', '.join(DATATYPE_BYTES)} (or bf16, ...), or a recipe: fp8, mxfp8, nvfp4, tf32",
        longer=", fp8-tensorwise, fp8-blockwise; fp8 multiplies in float8 and has everything else in bfloat16, as have "
        "fp8-tensorwise, fp8-blockwise, mxfp8 and nvfp4 (in 4 bits); tf32 likewise, in float32",
        type=_datatype,
    )
    parser.argument("SYS", "the machine: processors, memory, networks", "system")
    parser.argument("OUTPUT", output_help)
    parser.switch("-d, --debug", "only count; evaluate and write nothing")
    parser.switch("-n, --noneok", "finding nothing is fine: exit code 0 and an empty result")
    add_choice_options(parser)
    add_edition_and_preset(parser)
    parser.switch("-q, --quiet", "no progress on standard error")


def add_edition_and_preset(parser: Parser) -> None:
    """Declare edition and preset of a search that need not state them."""
    needed = f"; {PUBLISHED} for the published fields alone, else {CORRECTED}"
    add_edition(parser, absent="what the model needs", longer=needed)
    add_preset(parser, absent=USUAL, longer=PUBLISHED_FORMS)


def add_verbose(parser: Parser, also: str) -> None:
    """Declare ``-v``: what a search of edition corrected tells only where it is asked."""
    parser.switch("-v, --verbose", f"also {also} (edition {PUBLISHED} always does)")


def add_values(parser: Parser) -> None:
    """Declare ``--fix`` and ``--add``: values of execution fields."""
    add_tried(
        parser,
        fix="try only these values of an execution field; may be repeated",
        add="also try values that are left out: attention_type=multiquery, pipeline_par=... (uneven stages), "
        "activations_offload=true, zero_stage=fsdp; `calculon describe execution` lists fields and values",
    )


def add_choice_options(parser: Parser, *, published: bool = True) -> None:
    """Declare the options that narrow or widen a space; ``-f`` is the published spelling of one of them."""
    parser.option(
        f"{'-f, ' if published else ''}--fused-activation, --fused_activation WHICH",
        f"fused activation to try: true, false or all (default: true in edition {PUBLISHED}, else false)",
        type=_fused,
    )
    add_values(parser)
    parser.switch(
        "--any-batch",
        "under a preset too, let each data-parallel degree run its largest multiple up to MAX_BATCH",
    )
    add_changes(parser, "model", "system", "campaign")
    add_campaign(parser)
    parser.option(
        "--where EXPR",
        "keep only executions that meet a condition: 'fits >= 0.95 and tensor_par <= 8'",
        " on statistics and execution fields, such as 'total_time < 60 and proc_mem_tier1_cap_req <= 70 * GiB' "
        "(units: KiB MiB GiB TiB, MB GB TB; texts in quotes: activation_recompute == 'full'); several are combined "
        "with and",
        action=And,
    )
    parser.option(
        "--risk P",
        "highest probability of running out of memory (default: 10%%, or more if nothing fits)",
        ": three times as much, and so on; without a default for --pareto, --where on fits, and lae; edition corrected "
        "only",
    )


def _batch(text: str) -> int | str:
    """Return a number of sequences, or a text that tells one of tokens: the model says how many sequences they are."""
    try:
        return int(text)
    except ValueError:
        return text


def _datatype(text: str) -> str:
    """Return a datatype, or the word for a recipe of datatype and arithmetic."""
    if text in DATATYPE_BYTES:
        return text
    try:
        fields = precision(text, "DATATYPE")
    except SpecError:
        return one_of(*DATATYPE_BYTES, *PRECISIONS)(text)
    return fields["datatype"] if len(fields) == 1 else text


class And(argparse.Action):
    """Combines a condition that is given several times: all of them must hold."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        """Join a condition to those before it."""
        before = getattr(namespace, self.dest)
        setattr(namespace, self.dest, both(before, values))


def _fused(text: str) -> tuple[bool, ...]:
    if text not in FUSED:
        message = f"{text!r} is none of {', '.join(FUSED)}"
        raise argparse.ArgumentTypeError(message)
    return FUSED[text]


def searches(arguments: argparse.Namespace, *, recommends: bool = False) -> "list[Search]":
    """Return one search for every processor count that was asked for, everything checked.

    Args:
        arguments: What was asked.
        recommends: Prefer executions with an acceptable risk of running out of memory, by default
            :data:`~calculon.declarations.statistics.RISK`. Otherwise a risk that is stated is a condition.
    """
    from calculon.declarations.spellings.processor_counts import processor_counts
    from calculon.search.override_checks import check_effect
    from calculon.search.overrides import parse
    from calculon.search.request import default_preset, needed_edition
    from calculon.search.task import Search

    model, system, campaign = _specs(arguments)
    pareto = _pareto(arguments)
    fix, add = parse("fix", arguments.fix), parse("add", arguments.add)
    edition = needed_edition(model, arguments.preset, runs=campaign is not None)
    datatype, recipe = _recipe(arguments.datatype)
    if recipe:
        fix, edition = recipe | fix, CORRECTED
    length = fix.get("seq_length", (0,))[0] or model.seq_size
    batch = _sequences(arguments.max_batch_size, length)
    edition = arguments.edition or edition
    risk, where = _risk_and_condition(arguments, edition, recommends=recommends)
    counts = processor_counts(arguments.num_procs, "NUM_PROCS")
    preset = arguments.preset
    if preset is None and edition != PUBLISHED:
        preset = default_preset(model, system, max(counts), fix, add)
    asked = [
        Search(
            number=number,
            model=model,
            system=system,
            num_procs=count,
            max_batch_size=batch,
            datatype=datatype,
            top=1 if (top := getattr(arguments, "top_n", None)) is None else top,
            objective=getattr(arguments, "objective", None) or "sample_rate",
            pareto=pareto,
            where=where,
            risk=risk,
            mbs_break=getattr(arguments, "mbs_break", False),
            fused=arguments.fused_activation,
            tensor_overlap=not getattr(arguments, "no_tp_overlap", False),
            data_overlap=not getattr(arguments, "no_dp_overlap", False),
            fix=fix,
            add=add,
            any_batch=arguments.any_batch,
            edition=edition,
            preset=preset,
            campaign=campaign,
        )
        for number, count in enumerate(counts)
    ]
    asked[0].ranking()
    check_effect([search.space() for search in asked])
    return asked


def _recipe(datatype: str) -> "tuple[str, dict[str, Values]]":
    """Return a datatype, and the values of fields that its recipe fixes, which are told."""
    if datatype in DATATYPE_BYTES:
        return datatype, {}
    fields = dict(precision(datatype, "DATATYPE"))
    if len(fields) > 1:
        tell(f"{datatype}: {', '.join(f'{name}={value}' for name, value in fields.items())}")
    stored = str(fields.pop("datatype"))
    return stored, {name: (value,) for name, value in fields.items()}


def _risk(arguments: argparse.Namespace, edition: str) -> float | None:
    """Return the risk of running out of memory that is stated; None without one.

    Raises:
        SpecError: For no probability, and in an edition without risks.
    """
    if arguments.risk is None:
        return None
    if edition == PUBLISHED:
        hint = f"add --edition {CORRECTED}"
        raise SpecError("--risk", Problem("", f"edition {CORRECTED}", f"edition {edition}", hint))
    return probability(arguments.risk, "--risk")


def _risk_and_condition(
    arguments: argparse.Namespace, edition: str, *, recommends: bool
) -> tuple[float | None, str | None]:
    """Return the risk that is accepted first, and the condition of a search."""
    stated, where = _risk(arguments, edition), arguments.where
    if not recommends:
        return None, where if stated is None else both(where, within_risk(stated))
    if stated is None and prefers_fitting(edition, getattr(arguments, "pareto", None), where):
        return RISK, where
    return stated, where


def _specs(arguments: argparse.Namespace) -> "tuple[Model, System, Campaign | None]":
    """Return model, system and, with options of it, the campaign whose figures are asked about.

    Raises:
        SpecError: For everything wrong with them, and for a campaign of several batches or lengths.
    """
    from calculon import inputs
    from calculon.search.request import one_stretch

    asked = {"model": arguments.application, "system": arguments.system}
    changed = with_changes(arguments.changes, **asked, campaign=campaign_source(arguments))
    model, system = inputs.model(changed["model"]), inputs.system(changed["system"])
    source = changed["campaign"]
    if not asks_for_a_run(arguments, source):
        return model, system, None
    return model, system, one_stretch(campaign_of(arguments, source))


def _sequences(batch: int | str, length: int) -> int:
    """Return a batch in sequences; one that is stated otherwise is told in both ways."""
    if isinstance(batch, int):
        return batch
    asked = global_batch(batch, length, "MAX_BATCH")
    tell(f"MAX_BATCH {batch}: {asked.words}")
    return asked.sequences


MOST_OBJECTIVES = 4
"""Statistics of a Pareto front; with more of them nearly every execution is on it."""


def _pareto(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the objectives of a Pareto front; none without one: errors as of :func:`front_names`."""
    if (text := getattr(arguments, "pareto", None)) is None:
        return ()
    others = {"-t": arguments.top_n, "--objective": arguments.objective}
    why = "a front has all its executions and needs no single objective"
    wanted = f"2 to {MOST_OBJECTIVES} different statistics"
    return front_names(text, others, why, wanted, MOST_OBJECTIVES)


def front_names(
    text: str, others: Mapping[str, object], why: str, wanted: str, most: float = math.inf
) -> tuple[str, ...]:
    """Return the names in the value of ``--pareto``.

    Raises:
        SpecError: For one of the `others` (options with their values, which a front contradicts; `why` says the
            reason), and unless two to `most` different names are given; `wanted` describes them.
    """
    for option, value in others.items():
        if value is not None:
            hint = f"leave out {option}: {why}"
            raise SpecError("--pareto", Problem("", "no other choice of winners", option, hint))
    names = tuple(name.strip() for name in text.split(","))
    different = {name.partition(":")[0].strip() for name in names} - {""}
    if not 2 <= len(different) == len(names) <= most:
        raise SpecError("--pareto", Problem("", wanted, repr(text)))
    return names


def log_edition(log: Log, edition: str) -> None:
    """Say which edition was searched, where it is not the published one."""
    if edition != PUBLISHED:
        log(f"Edition: {edition}")


def log_changes(log: Log, *specs: "Model | System") -> None:
    """Say which models and systems were changed with ``--set``."""
    for one in specs:
        log_note(log, one)
        if one.origin is not None and one.origin.changes:
            log(f"{type(one).__name__}: {one.name}")


def log_space(log: Log, space: "Space", counts: "Counts", *, every: bool) -> None:
    """Say what was searched: the count of the published tool where it is asked for, or all in a line."""
    edition, preset = space.edition, space.preset
    if not every:
        named = f"edition {edition}, preset {preset.name}"
        log.show(f"{counts.total:,} plans tried, {counts.good:,} fit ({named})")
        return
    parts = [
        *((f"edition {edition}",) if edition != PUBLISHED else ()),
        *((f"preset {preset.words}",) if not preset.published else ()),
    ]
    if parts:
        log.show(f"{parts[0].capitalize()}{', '.join(['', *parts[1:]])}")
    log(f"Total executions: {counts.total}")


def log_outcome(log: Log, good: int, bad: int, total: int, seconds: float) -> None:
    """Print the outcome of a search in the words of the published tool."""
    log(f"Good executions: {good}")
    log(f"Bad executions: {bad}")
    log(f"Calculation rate: {total / max(seconds, 1e-9):.2f} calcs/sec")


def log_interrupted(done: str) -> None:
    """Note on the interruption that is being handled how far the search came; the program says it at the end."""
    if error := sys.exception():
        error.add_note(f"{done}, nothing written")
