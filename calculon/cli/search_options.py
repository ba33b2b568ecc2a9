"""Shared parts of the search commands: the arguments of a search space, and the lines that report it."""

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
from calculon.cli.streams import print_stderr
from calculon.declarations.named_values import CORRECTED, DATATYPE_BYTES, PUBLISHED
from calculon.declarations.spellings import PRECISIONS, global_batch, precision, probability
from calculon.declarations.statistics import RISK, within_risk
from calculon.search.within_risk import joined_conditions, prefers_fitting

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
"""Candidates for fused activation, by spelling."""

PUBLISHED_FORMS = f"; in edition {PUBLISHED} the published forms"
"""End of the help on the default preset of a search."""


def add_space_arguments(parser: Parser, counts_help: str, output_help: str) -> None:
    """Declare the positional arguments and the options that define a search space."""
    parser.argument("APP", "the model: its shape", "application")
    parser.argument("NUM_PROCS", counts_help)
    parser.argument(
        "MAX_BATCH",
        "global batch, in sequences (512) or tokens (4M)",
        "max_batch_size",
        " (4 * 2^20); exactly this batch under a preset, which edition corrected always has; otherwise the largest "
        "multiple of a data-parallel degree up to it",
        type=_batch,
    )
    parser.argument(
        "DATATYPE",
        f"{', '.join(DATATYPE_BYTES)} (or bf16, ...), or a recipe: fp8, mxfp8, nvfp4, tf32",
        longer=", fp8-tensorwise, fp8-blockwise; fp8 multiplies in float8 and keeps everything else in bfloat16, as do "
        "fp8-tensorwise, fp8-blockwise, mxfp8 and nvfp4 (in 4 bits); tf32 likewise, in float32",
        type=_datatype,
    )
    parser.argument("SYS", "the machine: processors, memory, networks", "system")
    parser.argument("OUTPUT", output_help)
    parser.switch("-d, --debug", "only count; evaluate and write nothing")
    parser.switch("-n, --noneok", "exit code 0 and an empty result if nothing is found")
    add_choice_options(parser)
    add_edition_and_preset(parser)
    parser.switch("-q, --quiet", "no progress on standard error")


def add_edition_and_preset(parser: Parser) -> None:
    """Declare edition and preset of a search, both optional."""
    needed = f"; {PUBLISHED} for a model with only the published fields, else {CORRECTED}"
    add_edition(parser, absent="as the model needs", longer=needed)
    add_preset(parser, absent=USUAL, longer=PUBLISHED_FORMS)


def add_verbose(parser: Parser, also: str) -> None:
    """Declare ``-v``, which adds the details that edition corrected omits by default."""
    parser.switch("-v, --verbose", f"also {also} (edition {PUBLISHED} always does)")


def add_values(parser: Parser) -> None:
    """Declare ``--fix`` and ``--add``: candidate values of execution fields."""
    add_tried(
        parser,
        fix="try only these values of an execution field; may be repeated",
        add="also try values excluded by default: attention_type=multiquery, pipeline_par=... (uneven stages), "
        "activations_offload=true, zero_stage=fsdp; `calculon describe execution` lists fields and values",
    )


def add_choice_options(parser: Parser, *, published: bool = True) -> None:
    """Declare the options that narrow or widen a search space; ``-f`` is a published spelling."""
    parser.option(
        f"{'-f, ' if published else ''}--fused-activation, --fused_activation WHICH",
        f"fused activation to try: true, false or all (default: true in edition {PUBLISHED}, else false)",
        type=_fused,
    )
    add_values(parser)
    parser.switch(
        "--any-batch",
        "also under a preset, let each data-parallel degree use its largest multiple up to MAX_BATCH",
    )
    add_changes(parser, "model", "system", "campaign")
    add_campaign(parser)
    parser.option(
        "--where EXPR",
        "keep only executions that meet a condition: 'fits >= 0.95 and tensor_par <= 8'",
        " on statistics and execution fields, such as 'total_time < 60 and proc_mem_tier1_cap_req <= 70 * GiB' "
        "(units: KiB MiB GiB TiB, MB GB TB; texts in quotes: activation_recompute == 'full'); several are combined "
        "with and",
        action=AppendCondition,
    )
    parser.option(
        "--risk P",
        "highest out-of-memory probability (default: 10%%, or more if nothing fits)",
        ", tripled until a plan fits; no default for --pareto, --where on fits, and lae; edition corrected "
        "only",
    )


def _batch(text: str) -> int | str:
    """Return a number of sequences, or the text of a number of tokens, which the model's length converts later."""
    try:
        return int(text)
    except ValueError:
        return text


def _datatype(text: str) -> str:
    """Return a datatype, or the name of a mixed-precision recipe."""
    if text in DATATYPE_BYTES:
        return text
    try:
        fields = precision(text, "DATATYPE")
    except SpecError:
        return one_of(*DATATYPE_BYTES, *PRECISIONS)(text)
    return fields["datatype"] if len(fields) == 1 else text


class AppendCondition(argparse.Action):
    """Action that joins repeated conditions with ``and``."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        """Join a condition to the previous ones."""
        before = getattr(namespace, self.dest)
        setattr(namespace, self.dest, joined_conditions(before, values))


def _fused(text: str) -> tuple[bool, ...]:
    if text not in FUSED:
        message = f"{text!r} is none of {', '.join(FUSED)}"
        raise argparse.ArgumentTypeError(message)
    return FUSED[text]


def searches(arguments: argparse.Namespace, *, recommends: bool = False) -> "list[Search]":
    """Return one fully checked search per requested processor count.

    Args:
        arguments: Parsed arguments of the search.
        recommends: Prefer executions with an acceptable risk of running out of memory, by default
            :data:`~calculon.declarations.statistics.RISK`. Otherwise a given risk becomes a condition.
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
    # Recipes exist only in edition corrected; an explicit --fix overrides their fields.
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
    # One check over all spaces: a candidate has an effect if it does so for any processor count.
    check_effect([search.space() for search in asked])
    return asked


def _recipe(datatype: str) -> "tuple[str, dict[str, Values]]":
    """Return a datatype and the field values fixed by its recipe, after reporting them."""
    if datatype in DATATYPE_BYTES:
        return datatype, {}
    fields = dict(precision(datatype, "DATATYPE"))
    if len(fields) > 1:
        print_stderr(
            f"{datatype}: {', '.join(f'{name}={value}' for name, value in fields.items())}"
        )
    stored = str(fields.pop("datatype"))
    return stored, {name: (value,) for name, value in fields.items()}


def _risk(arguments: argparse.Namespace, edition: str) -> float | None:
    """Return the given out-of-memory risk; None without one.

    Raises:
        SpecError: If it is no probability, or if the edition has no risks.
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
    """Return the initially accepted risk, and the condition of a search."""
    stated, where = _risk(arguments, edition), arguments.where
    if not recommends:
        return None, where if stated is None else joined_conditions(where, within_risk(stated))
    if stated is None and prefers_fitting(edition, getattr(arguments, "pareto", None), where):
        return RISK, where
    return stated, where


def _specs(arguments: argparse.Namespace) -> "tuple[Model, System, Campaign | None]":
    """Return model, system and, if its options are given, the campaign of the search.

    Raises:
        SpecError: For invalid specs, and for a campaign with several batches or sequence lengths.
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
    """Return a batch in sequences; a batch given in tokens is reported in both units."""
    if isinstance(batch, int):
        return batch
    asked = global_batch(batch, length, "MAX_BATCH")
    print_stderr(f"MAX_BATCH {batch}: {asked.words}")
    return asked.sequences


MAX_OBJECTIVES = 4
"""Maximum number of statistics of a Pareto front; with more, nearly every execution is on it."""


def _pareto(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the objectives of a Pareto front, empty without one; raise the errors of :func:`front_names`."""
    if (text := getattr(arguments, "pareto", None)) is None:
        return ()
    others = {"-t": arguments.top_n, "--objective": arguments.objective}
    why = "a front has all its executions and needs no single objective"
    wanted = f"2 to {MAX_OBJECTIVES} different statistics"
    return front_names(text, others, why, wanted, MAX_OBJECTIVES)


def front_names(
    text: str, others: Mapping[str, object], why: str, wanted: str, most: float = math.inf
) -> tuple[str, ...]:
    """Return the names in the value of ``--pareto``.

    Raises:
        SpecError: If one of the `others` (options with values that exclude a front, for the reason `why`) is given, or
            unless two to `most` different names are given; `wanted` describes them.
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
    """Print the searched edition unless it is the published one."""
    if edition != PUBLISHED:
        log(f"Edition: {edition}")


def log_changes(log: Log, *specs: "Model | System") -> None:
    """Print which models and systems ``--set`` changed."""
    for one in specs:
        log_note(log, one)
        if one.origin is not None and one.origin.changes:
            log(f"{type(one).__name__}: {one.name}")


def log_space(log: Log, space: "Space", counts: "Counts", *, every: bool) -> None:
    """Print the size of the search space: in the published format with `every`, or briefly."""
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
    """Print the outcome of a search in the format of the published tool."""
    log(f"Good executions: {good}")
    log(f"Bad executions: {bad}")
    log(f"Calculation rate: {total / max(seconds, 1e-9):.2f} calcs/sec")


def log_interrupted(done: str) -> None:
    """Add the progress of the search to the interruption being handled, which the program reports at its end."""
    if error := sys.exception():
        error.add_note(f"{done}, nothing written")
