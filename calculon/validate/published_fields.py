"""Fields of study files beyond plain values: expressions, free objects, limits by edition, specs by row."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, Self, cast

from calculon.base.errors import Problem, nearest
from calculon.base.frozen import dataclass
from calculon.declarations.execution import Execution
from calculon.declarations.expression import Expression
from calculon.declarations.fields import Declaration, SpecField, shown, spec_fields
from calculon.declarations.model import Model
from calculon.declarations.named_values import EDITION_NAMES
from calculon.declarations.presets import is_preset
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.load import Workload


class FreeForm:
    """Value that decodes itself (:class:`calculon.declarations.decode.Decodable`), without a detailed schema."""

    __slots__ = ()

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of anything."""
        return {}


class Names(tuple[str, ...], FreeForm):
    """List of texts; may be empty."""

    __slots__ = ()

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float = 1.0) -> Any:
        """Decode the list."""
        good = isinstance(raw, Sequence) and not isinstance(raw, str)
        if not good or not all(isinstance(one, str) for one in cast("Sequence[object]", raw)):
            problems.append(Problem(path, "a list of texts", shown(raw)))
            return None
        return cls(cast("Sequence[str]", raw))


@dataclass(frozen=True, slots=True)
class Values(Mapping[str, Any], FreeForm):
    """Object with arbitrary keys and values."""

    by_key: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Any:
        return self.by_key[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_key)

    def __len__(self) -> int:
        return len(self.by_key)

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float = 1.0) -> Any:
        """Decode the object, each value separately."""
        if not isinstance(raw, Mapping):
            problems.append(Problem(path, "an object", shown(raw)))
            return None
        return cls({str(k): cls.one(v, f"{path}.{k}", problems) for k, v in raw.items()})

    @classmethod
    def one(cls, raw: object, path: str, problems: list[Problem]) -> Any:
        """Decode one value; any value is valid."""
        return raw

    def changed(self, by: "Values") -> Self:
        """Return these values, overridden by the values of another object."""
        return type(self)({**self, **by})


class Texts(Values):
    """Object with a text for each key."""

    __slots__ = ()

    @classmethod
    def one(cls, raw: object, path: str, problems: list[Problem]) -> Any:
        """Decode one text."""
        if not isinstance(raw, str) or not raw.strip():
            problems.append(Problem(path, "text", shown(raw)))
        return raw


class Formulas(Values):
    """Object with an expression for each key."""

    __slots__ = ()

    @classmethod
    def one(cls, raw: object, path: str, problems: list[Problem]) -> Any:
        """Decode one expression."""
        return Expression.decode(raw, path, problems)


class Limits(dict[str, float], FreeForm):
    """Positive number for each edition of the cost model, or one number for all."""

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
        wanted = "an edition: " + ", ".join(EDITION_NAMES)
        found += [
            Problem(f"{path}.{name}", wanted, shown(name), nearest(str(name), EDITION_NAMES))
            for name in given
            if name not in EDITION_NAMES
        ]
        problems += dict.fromkeys(found)
        return None if found else cls({name: float(given[name]) for name in EDITION_NAMES})


@dataclass(frozen=True, slots=True)
class Fields(FreeForm):
    """Fields of a record for each row: fields of a named spec, overridden by constants and expressions.

    Attributes:
        source: Name or file of a spec, in which ``{column}`` stands for a cell; empty for none.
        values: An :class:`Expression` or a constant by name of the field.

    Fields in :attr:`beyond` do not follow from a row.
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
            if key in fields:
                values[str(key)] = cls.formula(fields[key], value, place, problems)
                continue
            hint = nearest(str(key), list(fields)) or "known fields: " + ", ".join(fields)
            wanted = f"a field of the {cls.record.__name__.lower()}"
            problems.append(Problem(place, wanted, "an unknown field", hint))
        return cls(values=values)

    @classmethod
    def formula(cls, one: SpecField, value: object, path: str, problems: list[Problem]) -> object:
        """Return the constant or the expression of a field."""
        if one.name == "preset" and is_preset(value):
            return value  # possibly with a month, which a record of an execution does not have
        if not isinstance(value, str) or value in one.declaration.choices:
            if problem := one.declaration.problem(one.annotation, value, path):
                problems.append(problem)
            return value
        return Expression.decode(value, path, problems)

    def changed(self, by: "Fields") -> Self:
        """Return these fields, overridden by the fields of another object."""
        return type(self)(by.source or self.source, self.values | by.values)

    def published(self) -> Self:
        """Return these fields without fields that the published format lacks; a preset may fill in the others."""
        optional = {one.key for one in spec_fields(self.record) if one.declaration.optional}
        optional -= {"preset"}
        kept = {key: value for key, value in self.values.items() if key not in optional}
        return type(self)(self.source, kept)


class ExecutionFields(Fields):
    """Execution of a row; it states no edition, because a study runs under any edition."""

    record = Execution
    beyond = ("edition",)


class ModelFields(Fields):
    """Model of a row."""

    record = Model


class ServedFields(Fields):
    """Record of a served model: constants as in files, with words for amounts, or expressions."""

    @classmethod
    def formula(cls, one: SpecField, value: object, path: str, problems: list[Problem]) -> object:
        """Return a constant, which is checked later with the record of a row, or the expression of a text.

        An object, such as a prefill pool, becomes a mapping of these.
        """
        if isinstance(value, Mapping):
            return {
                str(key): cls.formula(one, part, f"{path}.{key}", problems)
                for key, part in value.items()
            }
        if not isinstance(value, str) or value in one.declaration.choices:
            return value
        return Expression.decode(value, path, problems)


class DeploymentFields(ServedFields):
    """Deployment of a row."""

    record = Deployment


class WorkloadFields(ServedFields):
    """Workload of a row."""

    record = Workload
