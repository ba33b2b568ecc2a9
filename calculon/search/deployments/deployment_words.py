"""Fields of deployments and figures of serving as a search knows them: what it tries, ranks by, and compares."""

from collections.abc import Mapping, Sequence
from typing import Any

from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.records import Column
from calculon.campaign.money import NO_PRICE
from calculon.declarations.fields import SpecField, spec_fields
from calculon.declarations.parse import parse_value
from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.search.objective import Objective
from calculon.search.restrict import listed, problems_of
from calculon.search.space import Values
from calculon.search.where import Condition, Words
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.deployments import COUNT, POOL_SIZES, SIZES

FIELDS: Mapping[str, SpecField] = {one.key: one for one in spec_fields(Deployment)}
"""Fields of a deployment, by their names in files."""

SPLIT = POOL_SIZES
"""Fields of the processors and how a replica is split over them, the count first."""

_FIRST = ("token_budget", "max_batch")
SCHEDULING = (*_FIRST, *(one for one in SIZES if one not in (*SPLIT, *_FIRST)))
"""The other fields that are numbers of each deployment."""

POOL = "prefill"
"""The pool that prefills: processors of their own, whose splits are tried with those of the replicas that decode."""

CHOICES = tuple(name for name in FIELDS if name not in (*SPLIT, *SCHEDULING, POOL))
"""Fields that hold for all deployments of a group."""

TYPES = {name: one.declaration.label for name, one in FIELDS.items() if one.declaration.label}
"""Fields of types of numbers, with their labels."""

BUDGETS = (0, *(2**power for power in range(9, 15)))
"""Token budgets that are tried: prompts in passes of their own, and 512 to 16,384 tokens."""

CAPS = (0, *(2**power for power in range(13)))
"""Batches that a frontier tries where the load does not say it: as many as keep the limits, and powers of two."""

POOL_WORDS = "pools of their own are an option of their own: --apart, or apart=True in Python"
"""How pools that prefill are asked for."""

_ASKED = {
    COUNT: "the processor counts are an argument of their own",
    POOL: POOL_WORDS,
}
"""Why some fields are no matter of restriction."""

STATIC = "static"
"""The batching to which a token budget means nothing."""

_SEE = "calculon describe serving"


def stated_default(name: str) -> Any:
    """Return the default of a field, as files state it."""
    field = FIELDS[name]
    scaled = field.declaration.scale != 1.0 and field.default is not None
    return field.default / field.declaration.scale if scaled else field.default


def figure(name: str, where: str = "objective") -> Column:
    """Return a figure of serving by name.

    Raises:
        SpecError: When there is none of this name, with the nearest.
    """
    if name not in SERVING_FIGURES:
        hint = nearest(name, [*SERVING_FIGURES]) or f"see: {_SEE}"
        raise SpecError(where, Problem("", "a figure of serving", repr(name), hint))
    return SERVING_FIGURES[name]


def objective(text: str, where: str = "objective") -> Objective:
    """Read ``FIGURE[:max|min]``; SpecError for anything else."""
    return Objective.read(text, lambda name: figure(name, where), where)


def condition(text: str) -> Condition:
    """Read a condition on figures of serving and fields of deployments; SpecError for anything else."""
    return Condition.read(text, _WORDS)


_WORDS = Words(
    names=(*FIELDS, *SERVING_FIGURES),
    fields=FIELDS,
    wanted="a figure of serving or a field of a deployment",
    none="no figure of serving and no field of a deployment",
    example="ttft_p < 0.5 and tensor_par <= 4",
    see=f"see: {_SEE}, calculon describe deployment",
)


def checked(option: str, values: Mapping[str, Any]) -> dict[str, Values]:
    """Check the values of ``fix`` or ``add`` against the declarations of their fields.

    Args:
        option: As the caller calls it: ``fix`` or ``add``, with dashes on the command line.
        values: One value or a sequence of values by field, as files state them.

    Raises:
        SpecError: With every field that there is not and every value that its field does not take.
    """
    problems, found = [], dict[str, Values]()
    for name, given in values.items():
        if hint := _ASKED.get(name.partition(".")[0], ""):
            problems.append(Problem(name, f"a field that {option} knows", repr(name), hint))
            continue
        if (field := FIELDS.get(name)) is None:
            hint = (
                nearest(name, [one for one in FIELDS if one not in _ASKED])
                or "see: calculon describe deployment"
            )
            problems.append(Problem(name, "a field of a deployment", repr(name), hint))
            continue
        found[name] = tuple(dict.fromkeys(listed(field, given)))
        problems += problems_of(field, name, found[name])
    if problems:
        raise SpecError(option, problems)
    return found


def parsed(option: str, texts: Sequence[str]) -> dict[str, Values]:
    """Read ``FIELD=VALUE[,VALUE...]`` texts; a field may be given several times.

    Raises:
        SpecError: As :func:`checked`, and for a text without ``=``.
    """
    values: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, rest = (part.strip() for part in text.partition("="))
        if not equals or not rest:
            raise SpecError(option, Problem(text, "FIELD=VALUE[,VALUE...]", repr(text)))
        for one in rest.split(","):
            try:
                values.setdefault(name, []).append(parse_value(one.strip()))
            except SpecError as error:
                raise SpecError(option, Problem(name, error.expected, error.found)) from None
    return checked(option, values)


# Figures that only some deployments have, and how a question comes to some that do.

NO_POWER = "no power is known of {system}: give ext.power of the system file"
"""Message where there is no energy."""

_APART = f"only deployments with a pool that prefills have it; {POOL_WORDS}"
_KEPT = "only prompts have it whose prefix is cached between requests: --prefix-hit 0.5"
_OFFLOADED = f"{_KEPT}, and --fix cache_offload=host"
_DRAFTED = "only deployments with drafts have it: --fix draft=mtp, or ngram with draft_tokens and acceptance"

HINTS: Mapping[str, str] = {
    **dict.fromkeys(
        ("usd_per_mtoken", "usd_per_mtoken_blended"),
        NO_PRICE.replace("--price 2.5", "--fix price=2.5"),
    ),
    "joules_per_token": NO_POWER,
    **dict.fromkeys(("prefill_busy", "decode_busy", "balanced_prefill"), _APART),
    **dict.fromkeys(("kept_prefixes", "recompute_time", "hit_break_even"), _KEPT),
    **dict.fromkeys(("offloaded_prefixes", "hit_time"), _OFFLOADED),
    "waiting_prefixes": "only conversations with pauses have it: --set turns=5 --set think=30",
    **dict.fromkeys(("spec_speedup", "spec_break_even"), _DRAFTED),
    "even_context": "only caches that grow with the context have it",
}
"""What each of these figures needs."""


def unknown_figure(asked: str, name: str, system: str) -> SpecError:
    """Return the error of a figure that no deployment of a search has.

    Args:
        asked: What of the question names it: objective, or where.
        name: The figure.
        system: Name of the system.
    """
    hint = HINTS[name].format(system=system)
    return SpecError(asked, Problem("", "a figure that is known", name, hint))


def may_be_unknown(name: str) -> bool:
    """Return whether a name is that of a figure that some deployments do not have."""
    return name in SERVING_FIGURES and SERVING_FIGURES[name].nullable
