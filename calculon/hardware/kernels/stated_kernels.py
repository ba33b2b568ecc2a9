"""Kernel rates in a system file, under ``ext.kernels``: a law, a curve or a table by kind and type."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_args

from calculon.base.errors import Problem, nearest
from calculon.base.frozen import dataclass
from calculon.declarations.decode import decode_part
from calculon.declarations.fields import shown
from calculon.declarations.named_values import DATATYPE_BYTES, ENGINE_BYTES, MATMUL_BYTES
from calculon.declarations.schema import part_schema
from calculon.hardware.kernels.kernel import (
    AttentionKind,
    LinearKind,
    ProductKind,
    Rate,
    VectorKind,
)
from calculon.hardware.kernels.laws import FusedAttention, Gemm
from calculon.hardware.kernels.stated_rates import (
    ATTENTION,
    MEMORY,
    PRODUCT,
    ExpertCalls,
    MeasuredTable,
    StatedCurve,
    Stream,
)


class Family(NamedTuple):
    """Kinds of kernels whose rates have the same form in files.

    Attributes:
        kinds, types: Kinds of kernels, and their arithmetic types.
        laws: Record of constants by name of the law.
        over: Sizes that a curve may depend on.
        columns: Sizes in a row of a table.
    """

    kinds: Sequence[str]
    types: Sequence[str]
    laws: Mapping[str, type[Any]]
    over: Sequence[str]
    columns: Sequence[str]

    def inside(self, name: str, raw: object) -> type[Any] | None:
        """Return the record type of a rate as a file states it."""
        stated = raw if isinstance(raw, Mapping) else {}
        if "law" in stated:
            return self.laws.get(str(stated["law"]))
        if "curve" in stated:
            return StatedCurve
        return MeasuredTable if "table" in stated else None


ANY = "any"
"""Key for all types that a memory-bound kind does not state, since only bytes matter."""

_PRODUCTS = Family(
    tuple(kind for kind in get_args(ProductKind) if kind != "grouped_product"),
    tuple(ENGINE_BYTES),
    {"tiles": Gemm},
    ("flops", "bytes"),
    PRODUCT,
)
FAMILIES = (
    _PRODUCTS,
    _PRODUCTS._replace(kinds=("grouped_product",), laws={"tiles": Gemm, "calls": ExpertCalls}),
    Family(
        get_args(AttentionKind),
        tuple(MATMUL_BYTES),
        {"fused": FusedAttention},
        ("keys", "flops", "bytes"),
        ATTENTION,
    ),
    Family(
        get_args(LinearKind),
        tuple(MATMUL_BYTES),
        {},
        ("flops", "bytes"),
        MEMORY,
    ),
    Family(
        get_args(VectorKind),
        (*DATATYPE_BYTES, ANY),
        {"stream": Stream},
        ("flops", "bytes"),
        MEMORY,
    ),
)
FAMILY = {kind: family for family in FAMILIES for kind in family.kinds}
"""The family of each kind of kernel."""

FORMS = ("law", "curve", "table")
"""Forms of a rate, named after their keys."""


@dataclass(frozen=True, slots=True)
class StatedKernels:
    """Rates by kind of kernel and type of arithmetic."""

    rates: Mapping[tuple[str, str], Rate]

    @classmethod
    def decode(
        cls, raw: object, path: str, problems: list[Problem], scale: float
    ) -> "StatedKernels":
        """Decode ``{kind: {type: {"law" or "curve" or "table": ...}}}``."""
        rates: dict[tuple[str, str], Rate] = {}
        for kind, by_type in _members(raw, path, tuple(FAMILY), problems).items():
            family, place = FAMILY[kind], f"{path}.{kind}"
            for name, one in _members(by_type, place, family.types, problems).items():
                rate = _rate(one, f"{place}.{name}", family, problems)
                if rate is not None:
                    rates[kind, name] = rate
            # ``any`` stands for types that are not stated: expand it here, so that lookups need no fallback.
            if (rate := rates.pop((kind, ANY), None)) is not None:
                others = (name for name in family.types if name != ANY)
                rates |= {(kind, name): rates.get((kind, name), rate) for name in others}
        return cls(rates)

    @classmethod
    def inside(cls, kind: str, raw: object) -> Family | None:
        """Return the family of a kind of kernel, which determines its record types."""
        return FAMILY.get(kind)

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the raw value."""
        return {
            "type": "object",
            "minProperties": 1,
            "patternProperties": {
                f"^({'|'.join(family.kinds)})$": {
                    "type": "object",
                    "minProperties": 1,
                    "propertyNames": {"enum": list(family.types)},
                    "additionalProperties": {"oneOf": _schemas(family)},
                }
                for family in FAMILIES
            },
            "additionalProperties": False,
        }


def _members(
    raw: object, path: str, known: Sequence[str], problems: list[Problem]
) -> dict[str, object]:
    """Return the members of an object with known names."""
    wanted = "an object with at least one of " + ", ".join(known)
    if not isinstance(raw, Mapping) or not raw:
        problems.append(Problem(path, wanted, shown(raw)))
        return {}
    result = {}
    for key, value in raw.items():
        if key in known:
            result[key] = value
        else:
            hint = nearest(str(key), known)
            problems.append(Problem(f"{path}.{key}", wanted, f"the key {shown(key)}", hint))
    return result


def _rate(raw: object, path: str, family: Family, problems: list[Problem]) -> Rate | None:
    """Decode one rate."""
    wanted = "an object with one of " + ", ".join(FORMS if family.laws else FORMS[1:])
    if not isinstance(raw, Mapping):
        problems.append(Problem(path, wanted, shown(raw)))
        return None
    forms = [form for form in FORMS if form in raw]
    if len(forms) != 1:
        keys = ", ".join(map(str, raw)) or "an empty object"
        problems.append(Problem(path, wanted, " and ".join(forms) if forms else keys))
        return None
    if forms == ["law"]:
        return _law(raw, path, family, problems)
    record: type[Any] = StatedCurve if forms == ["curve"] else MeasuredTable
    result: Rate | None = decode_part(record, raw, path, problems)
    if isinstance(result, StatedCurve) and result.over not in family.over:
        wanted = "one of " + ", ".join(family.over)
        problems.append(Problem(f"{path}.over", wanted, shown(result.over)))
    if isinstance(result, MeasuredTable):
        problems += result.wrong(family.columns, path)
    return result


def _law(raw: Mapping[Any, Any], path: str, family: Family, problems: list[Problem]) -> Rate | None:
    """Decode the constants of a law."""
    name, known = raw["law"], ", ".join(family.laws)
    if not isinstance(name, str) or name not in family.laws:
        wanted = f"one of {known}" if known else "a curve or a table, as this kind has no law"
        hint = nearest(str(name), list(family.laws))
        problems.append(Problem(f"{path}.law", wanted, shown(name), hint))
        return None
    constants = {key: value for key, value in raw.items() if key != "law"}
    result: Rate | None = decode_part(family.laws[name], constants, path, problems)
    if isinstance(result, FusedAttention):
        problems += result.wrong(path)
    return result


def _schemas(family: Family) -> list[dict[str, Any]]:
    """Return the JSON Schemas of the forms of a family."""
    laws = []
    for name, record in family.laws.items():
        one = part_schema(record)
        law = {"const": name, "description": "the law that the rate follows"}
        laws.append(
            one
            | {
                "properties": {"law": law, **one["properties"]},
                "required": ["law", *one["required"]],
            }
        )
    curve, table = part_schema(StatedCurve), part_schema(MeasuredTable)
    curve["properties"]["over"] = curve["properties"]["over"] | {"enum": list(family.over)}
    return [*laws, curve, table]
