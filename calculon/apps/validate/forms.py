"""Shapes of values in study files beyond plain fields: free mappings, lists of records, rows turned into fields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, TypeVar, cast

from calculon.apps.validate.row_expression import Expression
from calculon.errors import Problem, SpecError, nearest
from calculon.spec.decode import decode
from calculon.spec.execution import EDITION_NAMES, Execution
from calculon.spec.fields import Declaration, SpecField, shown, spec_fields
from calculon.spec.model import Model

T = TypeVar("T")


def build(cls: type[T], raw: object, file: str, **extra: Any) -> T:
    """Decode a record whose class names the defaults of its optional fields.

    Raises
    ------
    SpecError
        As :func:`calculon.spec.decode.decode`.
    """
    defaults: Mapping[str, object] = getattr(cls, "defaults", {})
    return decode(cls, {**defaults, **raw} if isinstance(raw, Mapping) else raw, file, **extra)


class Records(tuple[T, ...], Generic[T]):
    """A list of records; may be empty."""

    __slots__ = ()
    item: ClassVar[type]

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float = 1.0) -> Any:
        """Decode each, with all that is wrong with any."""
        if not isinstance(raw, Sequence) or isinstance(raw, str):
            problems.append(Problem(path, "a list of objects", shown(raw)))
            return None
        items: list[Any] = []
        for i, one in enumerate(raw):
            try:
                items.append(build(cls.item, one, path))
            except SpecError as error:
                problems += [_inside(f"{path}[{i}]", problem) for problem in error.problems]
        return cls(items)

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the list."""
        return {"type": "array", "items": {"type": "object"}}


def _inside(path: str, problem: Problem) -> Problem:
    return replace(problem, field=f"{path}.{problem.field}" if problem.field else path)


class Names(tuple[str, ...]):
    """A list of texts; may be empty."""

    __slots__ = ()

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float = 1.0) -> Any:
        """Decode the list."""
        good = isinstance(raw, Sequence) and not isinstance(raw, str)
        if not good or not all(isinstance(one, str) for one in cast("Sequence[object]", raw)):
            problems.append(Problem(path, "a list of texts", shown(raw)))
            return None
        return cls(cast("Sequence[str]", raw))

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the list."""
        return {"type": "array", "items": {"type": "string"}}


class Values(dict[str, Any]):
    """An object with any keys and any values."""

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float = 1.0) -> Any:
        """Decode the object, each value on its own."""
        if not isinstance(raw, Mapping):
            problems.append(Problem(path, "an object", shown(raw)))
            return None
        return cls({str(k): cls.one(v, f"{path}.{k}", problems) for k, v in raw.items()})

    @classmethod
    def one(cls, raw: object, path: str, problems: list[Problem]) -> Any:
        """Decode one value: anything is one."""
        return raw

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the object."""
        return {"type": "object"}


class Texts(Values):
    """An object with a text for each key."""

    @classmethod
    def one(cls, raw: object, path: str, problems: list[Problem]) -> Any:
        """Decode one text."""
        if not isinstance(raw, str) or not raw.strip():
            problems.append(Problem(path, "text", shown(raw)))
        return raw


class Limits(dict[str, float]):
    """A number above 0 for each edition of the cost model, or the same for all."""

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float = 1.0) -> Any:
        """Decode a number, or an object with one for each edition."""
        alike: Mapping[Any, Any] = dict.fromkeys(EDITION_NAMES, raw)
        given = raw if isinstance(raw, Mapping) else alike
        number = Declaration("", above=0)
        found = []
        for name in EDITION_NAMES:
            place = f"{path}.{name}" if given is raw else path
            if name not in given:
                found.append(Problem(place, number.wanted(float), "nothing"))
            elif problem := number.problem(float, given[name], place):
                found.append(problem)
        known = ", ".join(EDITION_NAMES)
        found += [
            Problem(
                f"{path}.{name}",
                "an edition: " + known,
                shown(name),
                nearest(str(name), EDITION_NAMES),
            )
            for name in given
            if name not in EDITION_NAMES
        ]
        problems += dict.fromkeys(found)
        return None if found else cls({name: float(given[name]) for name in EDITION_NAMES})

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the number or object."""
        return {"type": ["number", "object"]}


class Formulas(Values):
    """An object with an expression for each key."""

    @classmethod
    def one(cls, raw: object, path: str, problems: list[Problem]) -> Any:
        """Decode one expression."""
        return Expression.decode(raw, path, problems)


@dataclass(frozen=True, slots=True)
class Fields:
    """How the fields of a record follow from a row: a named spec, fields of their own, or both.

    Attributes
    ----------
    source : str
        Name or file of a spec, in which ``{column}`` stands for a cell; empty for none.
    values : dict
        An :class:`Expression` or a constant by name of the field.

    Fields of the record that are :attr:`beyond` it do not follow from a row.
    """

    record: ClassVar[type]
    beyond: ClassVar[tuple[str, ...]] = ()
    source: str = ""
    values: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float = 1.0) -> Any:
        """Decode a name with ``{columns}``, or an object with an expression or constant per field."""
        if isinstance(raw, str):
            return cls(source=raw)
        if not isinstance(raw, Mapping):
            problems.append(Problem(path, "a name or an object", shown(raw)))
            return None
        fields = {one.key: one for one in spec_fields(cls.record) if one.key not in cls.beyond}
        values = {}
        for key, value in raw.items():
            place = f"{path}.{key}"
            if key not in fields:
                hint = nearest(str(key), list(fields)) or "known are " + ", ".join(fields)
                wanted = f"a field of the {cls.record.__name__.lower()}"
                problems.append(Problem(place, wanted, "an unknown field", hint))
                continue
            values[str(key)] = _formula(fields[key], value, place, problems)
        return cls(values=values)

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the name or object."""
        return {"type": ["string", "object"]}

    def changed(self, by: "Fields") -> "Fields":
        """Return these fields with those of another in their place."""
        return type(self)(by.source or self.source, self.values | by.values)

    def published(self) -> "Fields":
        """Return these fields without those that the published format lacks."""
        optional = {one.key for one in spec_fields(self.record) if one.declaration.optional}
        kept = {key: value for key, value in self.values.items() if key not in optional}
        return type(self)(self.source, kept)


class ExecutionFields(Fields):
    """How the execution follows from a row; a study runs under any edition, so it states none."""

    record = Execution
    beyond = ("edition",)


class ModelFields(Fields):
    """How the model follows from a row."""

    record = Model


def _formula(one: SpecField, value: object, path: str, problems: list[Problem]) -> object:
    """Return the constant of a field, or the expression that gives it."""
    if not isinstance(value, str) or value in one.declaration.choices:
        if problem := one.declaration.problem(one.annotation, value, path):
            problems.append(problem)
        return value
    return Expression.decode(value, path, problems)
