"""Preset files: entries of fields, limits of a framework, and rules of practice."""

import re
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import numpy as np

from calculon.base.errors import Problem, nearest
from calculon.base.frozen import dataclass
from calculon.declarations.axes import DIVIDED, PUBLISHED_AXES
from calculon.declarations.execution import Execution
from calculon.declarations.expression import Expression
from calculon.declarations.fields import (
    SpecField,
    declare,
    optional_defaults,
    shown,
    spec_fields,
)
from calculon.declarations.model import Model
from calculon.declarations.named_values import PP_LAYOUTS

FIELDS = {one.name: one for one in spec_fields(Execution)}
"""Fields of an execution by name."""

_OF_MODELS = tuple(one.name for one in spec_fields(Model))

_LAST = ("data_par_overlap", "tensor_par_net", "pipeline_par_net", "data_par_net")
"""Fields that no limit may read: a search counts feasible candidates before it varies them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Field of a preset.

    Attributes:
        value: Value if an execution leaves the field out: a constant, or an expression over other fields and the
            optional fields of the model.
        runs: Values that the framework supports; empty if it supports all.
        tries: Values that a search tries by default; empty for degrees, which it takes from divisors.
        why: Reason, with its source.
    """

    value: Any
    runs: tuple[Any, ...]
    tries: tuple[Any, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Condition that a framework imposes on the fields of an execution and of its model, with the reason."""

    that: Expression = declare("condition on the fields of an execution and its model")
    why: str = declare("the reason, with its source")

    def problems(self, path: str) -> list[Problem]:
        """Return problems for names that are neither execution nor model fields, or that a search varies last."""
        known = [name for name in (*FIELDS, *_OF_MODELS) if name not in _LAST]
        return _strangers(self.that, f"{path}.that", known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Practice:
    """Rule of practice for degrees, with the reason. A search keeps to it unless a field in it is requested."""

    that: Expression = declare(
        "condition on degrees and on node, the processors of a node; or on context_par, seq_size, num_experts and "
        "procs_per_sequence, the processors per sequence of the batch"
    )
    why: str = declare("the reason, with its source")

    @property
    def words(self) -> str:
        """Reason in a few words, without its source."""
        return re.split(r"[.:]\s|\s\(", self.why, maxsplit=1)[0].rstrip(".")

    def problems(self, path: str) -> list[Problem]:
        """Return problems for names that are not degrees.

        A search chooses parts of sequences before the other degrees, so the two cannot occur together.
        """
        known = OF_SEQUENCES if OF_SEQUENCES[-1] in self.that.names else PRACTISED
        return _strangers(self.that, f"{path}.that", known)


NODE = "node"
"""Name of the number of processors of a node, or of the innermost network if that is larger."""

PRACTISED = ("num_procs", *(axis.degree for axis in PUBLISHED_AXES), NODE)
"""Names that a rule of practice may read."""

SHARE = "procs_per_sequence"
"""Name of the number of processors per sequence of the batch."""

OF_SEQUENCES = ("num_procs", NODE, "num_experts", SHARE, "seq_size", "context_par")
"""Names that a rule on parts of sequences may read: ``seq_size`` is the longest sequence of a search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uneven:
    """Layout that a search tries at pipeline degrees that do not divide the number of blocks, with the reason."""

    pp_layout: str = declare("layout of the stages", choices=PP_LAYOUTS)
    why: str = declare("the reason, with its source")


class Entries(dict[str, Entry]):
    """Fields of a preset by name, in the order in which they are filled in.

    Attributes:
        subject: Spec whose fields they are, with its article.
        fields: Its fields by name.
        arguments: Fields that no preset sets.
        others: Further names that values may read, with the values that they have if nothing states them.
    """

    subject: ClassVar[str] = "an execution"
    fields: ClassVar[Mapping[str, SpecField]] = FIELDS
    arguments: ClassVar[Collection[str]] = ("edition", "preset")
    # Without a model, its fields have their defaults, which are those of a dense one.
    others: ClassVar[Mapping[str, Any]] = {
        name: value for name, value in optional_defaults(Model).items() if name not in FIELDS
    }

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float = 1.0) -> Any:
        """Decode an object with an entry for each field."""
        if not isinstance(raw, Mapping):
            problems.append(Problem(path, "an object", shown(raw)))
            return None
        result = cls()
        for name, one in raw.items():
            place = f"{path}.{name}"
            if name not in cls.fields or name in cls.arguments:
                hint = nearest(str(name), list(cls.fields))
                hint = hint or f"see: calculon describe {cls.subject.split()[-1]}"
                wanted = f"a field of {cls.subject}"
                problems.append(Problem(place, wanted, shown(str(name)), hint))
            elif not isinstance(one, Mapping) or "value" not in one or {*one}.difference(_KEYS):
                wanted = f"an object with {', '.join(_KEYS)}, of which value is needed"
                problems.append(Problem(place, wanted, shown(one)))
            else:
                result[str(name)] = cls._entry(cls.fields[name], one, place, problems)
        return result

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the raw value."""
        return {"type": "object"}

    @classmethod
    def _entry(
        cls, one: SpecField, raw: Mapping[Any, Any], place: str, problems: list[Problem]
    ) -> Entry:
        """Read the entry of a field; by default a search tries the value, or all supported values of an expression."""
        value = cls._value(one, raw["value"], f"{place}.value", problems)
        runs, tries = (
            _constants(one, raw.get(key, []), f"{place}.{key}", problems)
            for key in ("runs", "tries")
        )
        computed = isinstance(value, Expression)  # its value is known only for a complete execution
        loops = not one.declaration.optional or one.name in DIVIDED
        degree = (
            one.annotation is int and loops
        )  # a search takes degrees from divisors, not from lists
        if tries and degree:
            wanted = "nothing: a search takes degrees and sizes from divisors"
            problems.append(Problem(f"{place}.tries", wanted, "a list", "--fix holds them"))
        tries = tries or (() if degree else runs if computed else (value,))
        if not tries and not degree:
            wanted = "the values to search, since value is an expression"
            problems.append(Problem(f"{place}.tries", wanted, "nothing"))
        for item in (*tries, *(() if computed else (value,))):
            if runs and item not in runs:
                wanted = f"values that it supports: {', '.join(map(plain, runs))}"
                problems.append(Problem(place, wanted, plain(item)))
        return Entry(value=value, runs=runs, tries=tries, why=str(raw.get("why", "")))

    @classmethod
    def _value(cls, one: SpecField, raw: object, place: str, problems: list[Problem]) -> Any:
        """Return a constant of the field, or an expression over other fields."""
        problem = one.declaration.problem(one.annotation, raw, place)
        if problem is None:
            return one.declaration.plain(raw)
        if not isinstance(raw, str):
            problems.append(problem)
            return None
        result = Expression.decode(raw, place, problems)
        known = (*cls.fields, *cls.others)
        problems += _strangers(result, place, known, cls.subject) if result is not None else ()
        return result


_KEYS = ("value", "runs", "tries", "why")


def _constants(one: SpecField, raw: object, place: str, problems: list[Problem]) -> tuple[Any, ...]:
    if not isinstance(raw, list):
        problems.append(Problem(place, "a list of values", shown(raw)))
        return ()
    found = (one.declaration.problem(one.annotation, v, f"{place}[{i}]") for i, v in enumerate(raw))
    problems += [problem for problem in found if problem is not None]
    return tuple(map(one.declaration.plain, raw))


def _strangers(
    expression: Expression, place: str, known: Collection[str], of: str = "an execution"
) -> list[Problem]:
    """Return problems for names in an expression that are not known fields."""
    return [
        Problem(place, f"fields of {of}", repr(name), nearest(name, list(known)))
        for name in expression.names
        if name not in known
    ]


MONTH = re.compile(r"(?P<year>\d{4})(-(?P<month>0[1-9]|1[0-2]))?")
"""A month, or a year, which means its last month."""


def month_of(text: str) -> str:
    """Return a month or a year as a month, so that texts compare in the order of time; empty for other texts.

    >>> [month_of(text) for text in ("2024-05", "2024", "24")]
    ['2024-05', '2024-12', '']
    """
    found = MONTH.fullmatch(text)
    return f"{found['year']}-{found['month'] or 12}" if found else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Change of a framework: the entries that earlier releases had instead of the current ones."""

    before: str = declare(
        "month of the release with the change (YYYY-MM); of an engine the release"
    )
    fields: Entries = declare("entries of the releases before it")

    def problems(self, path: str) -> list[Problem]:
        """Return a problem for a text that is not a month."""
        return _not_a_month(self.before, f"{path}.before")


def _not_a_month(text: str, place: str) -> list[Problem]:
    known = len(text) > len("2024") and month_of(text)
    return [] if known else [Problem(place, "a month, such as 2025-04", shown(text))]


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetFile:
    """Preset as stated in its file."""

    silent_keys: ClassVar[tuple[str, ...]] = ("about",)

    title: str = declare("description in a line")
    framework: str = declare("name of the framework", default="")
    version: str = declare("version of the framework", default="")
    source: str = declare("source of the entries, in addition to the source in each", default="")
    base: str = declare("preset that this one changes", default="")
    since: str = declare(
        "first month whose releases it describes, to which NAME@MONTH may go back; of an engine the first release",
        default="",
    )
    changes: tuple[Change, ...] = declare("changes of the framework since then", default=())
    fields: Entries = declare("fields that it fills in")
    limits: tuple[Limit, ...] = declare("combinations that it cannot run", default=())
    practice: tuple[Practice, ...] = declare("rules that its users follow", default=())
    uneven: tuple[Uneven, ...] = declare(
        "layouts that a search tries if degrees do not divide the blocks; without any, it skips these degrees",
        default=(),
    )

    def problems(self, path: str) -> list[Problem]:
        """Return the problems with the months of changes."""
        return _not_a_month(self.since, f"{path}.since" if path else "since") if self.since else []


def plain(value: object) -> str:
    """Return the value of a field as text, as in files but without quotes."""
    return str(value).lower() if isinstance(value, (bool, np.bool_)) else str(value)
