"""Vocabulary of a search for deployments: fields and figures to try, to rank by, and to compare."""

from collections.abc import Mapping, Sequence
from typing import Any

from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.records import Column
from calculon.campaign.money import NO_PRICE
from calculon.declarations.fields import SpecField, spec_fields
from calculon.declarations.parse import parse_value
from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.declarations.spellings import with_number_types
from calculon.search.conditions import Condition, Vocabulary
from calculon.search.objective import Objective
from calculon.search.overrides import listed, problems_of
from calculon.search.space import Values
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.deployments import COUNT, POOL_SIZES, SIZES

FIELDS: Mapping[str, SpecField] = {one.key: one for one in spec_fields(Deployment)}
"""Fields of a deployment, by their names in files."""

SPLIT = POOL_SIZES
"""Fields of the processor count and of the split of a replica, with the count first."""

_FIRST = ("token_budget", "max_batch")
SCHEDULING = (*_FIRST, *(one for one in SIZES if one not in (*SPLIT, *_FIRST)))
"""Other numeric fields of each deployment."""

POOL = "prefill"
"""Prefill pool: separate processors whose splits are combined with the splits of decode replicas."""

CHOICES = tuple(name for name in FIELDS if name not in (*SPLIT, *SCHEDULING, POOL))
"""Fields with equal values in all deployments of a group."""

TYPES = {name: one.declaration.label for name, one in FIELDS.items() if one.declaration.label}
"""Fields of data types, with their labels."""

BUDGETS = (0, *(2**power for power in range(9, 15)))
"""Token budgets to try: 0 for prefill alone, and 512 to 16,384 tokens."""

CAPS = (0, *(2**power for power in range(13)))
"""Batches that a frontier tries for a load without a rate or users: 0 for the largest allowed, and powers of two."""

POOL_WORDS = "separate prefill pools have an option: --apart, or apart=True in Python"
"""Hint: the option for separate prefill pools."""

_ASKED = {
    COUNT: "processor counts have an argument",
    POOL: POOL_WORDS,
}
"""Hints for fields that cannot be restricted."""

ANY = "any"
"""Processor count that means the fewest processors that are sufficient."""

STATIC = "static"
"""Batching that ignores token budgets."""

_SEE = "calculon describe serving"


def stated_default(name: str) -> Any:
    """Return the default of a field in the units of files."""
    field = FIELDS[name]
    scaled = field.declaration.scale != 1.0 and field.default is not None
    return field.default / field.declaration.scale if scaled else field.default


def figure(name: str, where: str = "objective") -> Column:
    """Return a serving figure by name.

    Raises:
        SpecError: For an unknown name, with the nearest.
    """
    if name not in SERVING_FIGURES:
        hint = nearest(name, [*SERVING_FIGURES]) or f"see: {_SEE}"
        raise SpecError(where, Problem("", "a serving figure", repr(name), hint))
    return SERVING_FIGURES[name]


def objective(text: str, where: str = "objective") -> Objective:
    """Read ``FIGURE[:max|min]``; raise SpecError for any other text."""
    return Objective.read(text, lambda name: figure(name, where), where)


def condition(text: str) -> Condition:
    """Parse a condition on serving figures and deployment fields; raise SpecError if it is invalid."""
    return Condition.read(text, _VOCABULARY)


_VOCABULARY = Vocabulary(
    names=(*FIELDS, *SERVING_FIGURES),
    fields=FIELDS,
    wanted="a serving figure or a field of a deployment",
    none="no serving figure and no field of a deployment",
    example="ttft_p < 0.5 and tensor_par <= 4",
    see=f"see: {_SEE}, calculon describe deployment",
)


def checked(option: str, values: Mapping[str, Any]) -> dict[str, Values]:
    """Check the values of ``fix`` or ``add`` against the declarations of their fields.

    Args:
        option: Name of the option: ``fix`` or ``add``, with dashes on the command line.
        values: One value or a sequence of values by field, in the units of files.

    Raises:
        SpecError: With every unknown field and every invalid value.
    """
    problems, result = [], dict[str, Values]()
    for name, given in with_number_types(values).items():
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
        result[name] = tuple(dict.fromkeys(listed(field, given)))
        problems += problems_of(field, name, result[name])
    if problems:
        raise SpecError(option, problems)
    return result


def parsed(option: str, texts: Sequence[str]) -> dict[str, Values]:
    """Read ``FIELD=VALUE[,VALUE...]`` texts; a field may occur several times.

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


# Figures that only some deployments have, and options that add such deployments.

NO_POWER = "the power of {system} is unknown: state ext.power in the system file"
"""Hint for figures that need energy."""

_APART = f"only deployments with a prefill pool have it; {POOL_WORDS}"
_KEPT = "it needs prompts with a cached prefix (prefix caching): --prefix-hit 0.5"
_OFFLOADED = f"{_KEPT}, and --fix cache_offload=host"
_DRAFTED = (
    "it needs speculative decoding: --fix draft=mtp, or ngram with draft_tokens and acceptance"
)

HINTS: Mapping[str, str] = {
    **dict.fromkeys(
        ("usd_per_mtoken", "usd_per_mtoken_blended"),
        NO_PRICE.replace("--price 2.5", "--fix price=2.5"),
    ),
    "joules_per_token": NO_POWER,
    **dict.fromkeys(("prefill_busy", "decode_busy", "balanced_prefill"), _APART),
    **dict.fromkeys(("kept_prefixes", "recompute_time", "hit_break_even"), _KEPT),
    **dict.fromkeys(("offloaded_prefixes", "hit_time"), _OFFLOADED),
    "waiting_prefixes": "it needs conversations with pauses: --set turns=5 --set think=30",
    **dict.fromkeys(("spec_speedup", "spec_break_even"), _DRAFTED),
    "even_context": "it needs caches that grow with the context",
}
"""Hints: requirements of each of these figures."""


def unknown_figure(asked: str, name: str, system: str) -> SpecError:
    """Return the error for a figure that no deployment of a search has.

    Args:
        asked: Argument that names it: objective, or where.
        name: The figure.
        system: Name of the system.
    """
    hint = HINTS[name].format(system=system)
    return SpecError(asked, Problem("", "a figure that is known", name, hint))


def may_be_unknown(name: str) -> bool:
    """Return True for a figure that some deployments do not have."""
    return name in SERVING_FIGURES and SERVING_FIGURES[name].nullable
