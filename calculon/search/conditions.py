"""Conditions on statistics and execution fields: parsed and checked once, then applied to columns."""

import ast
import re
from collections.abc import Callable, Collection, Mapping
from typing import Literal, NoReturn

import numpy as np

from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.base.records import columns
from calculon.base.units import GIB, GIGA, MEGA, TERA, Array
from calculon.declarations.expression import Expression, ExpressionError, Lookup
from calculon.declarations.fields import SpecField
from calculon.declarations.run_figures import RUN_FIGURES
from calculon.declarations.short_names import FIELDS as SHORT_FIELDS
from calculon.declarations.short_names import STATISTICS, field_name
from calculon.declarations.short_names import STATISTICS as SHORT_STATISTICS
from calculon.declarations.statistics import CorrectedStats
from calculon.plan.columns import FIELDS
from calculon.plan.plan import NAMES
from calculon.search.objective import of_a_run, statistic_name

# Value types in a condition: comparisons that can never hold are refused.

ValueType = Literal["number", "switch", "text"]

_FIELDS: Mapping[str, SpecField] = {field.name: field for field in FIELDS}
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def check_types(text: str, fields: Mapping[str, SpecField] = _FIELDS) -> None:
    """Check that text is compared with text only, and a field of named values only with its values.

    Args:
        text: A condition that :class:`~calculon.declarations.expression.Expression` accepts, with known names only.
        fields: Fields by name; by default execution fields.

    Raises:
        SpecError: Otherwise, with what to write instead.
    """
    _Types(text, fields).of(ast.parse(text.strip(), mode="eval").body)


class _Types:
    """Finds the value type of every part of one condition."""

    def __init__(self, text: str, fields: Mapping[str, SpecField]):
        self.text, self._fields = text, fields
        self._known: dict[ast.expr, ValueType] = {}

    def of(self, node: ast.expr) -> ValueType:
        """Return the value type of a part; each part is examined once."""
        if node not in self._known:
            self._known[node] = self._find(node)
        return self._known[node]

    def _find(self, node: ast.expr) -> ValueType:  # noqa: PLR0911 (one return a kind of node)
        match node:
            case ast.Constant(value=value):
                return _value_type(type(value))
            case ast.Name(id=name):
                return _type_of_name(name, self._fields)
            case ast.Compare(left=left, ops=ops, comparators=others):
                self._compare(left, ops, others)
                return "switch"
            case ast.UnaryOp(op=op, operand=operand):
                self._no_text(operand)
                return "switch" if isinstance(op, ast.Not) else "number"
            case ast.BoolOp(values=values):
                self._no_text(*values)
                return "switch"
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self._no_text(test)
                self._alike(body, orelse)
                return self.of(body)
            case ast.BinOp(left=left, right=right):
                self._no_text(left, right)
            case ast.Call(args=arguments):
                self._no_text(*arguments)
        return "number"

    def _compare(self, left: ast.expr, ops: list[ast.cmpop], others: list[ast.expr]) -> None:
        for op, other in zip(ops, others, strict=True):
            members = other.elts if isinstance(other, (ast.Tuple, ast.List)) else [other]
            if isinstance(op, _ORDER):
                self._no_text(left, *members)
            for member in members:
                self._alike(left, member)
                self._takes(left, member)
                self._takes(member, left)
            left = other

    def _alike(self, one: ast.expr, other: ast.expr) -> None:
        """Refuse to compare a text with a number."""
        if (self.of(one) == "text") != (self.of(other) == "text"):
            found = f"{ast.unparse(one)} and {ast.unparse(other)}"
            hint = _unquoted(one, other) or _quoted(one, other, self._fields)
            hint = hint or _quoted(other, one, self._fields)
            self._refuse("two texts or two numbers to compare", found, hint)

    def _takes(self, name: ast.expr, value: ast.expr) -> None:
        """Refuse a text that is not a value of the field."""
        match name, value:
            case ast.Name(id=field), ast.Constant(value=str(text)):
                choices = self._fields[field].declaration.choices
                if text not in choices:
                    wanted = f"a value of {field}: {', '.join(getattr(choices, 'usual', choices))}"
                    self._refuse(wanted, repr(text), nearest(text, choices))

    def _no_text(self, *nodes: ast.expr) -> None:
        """Refuse text where a number is needed."""
        for node in nodes:
            if self.of(node) == "text":
                self._refuse("texts with ==, != and in only", ast.unparse(node), _unquoted(node))

    def _refuse(self, expected: str, found: str, hint: str) -> NoReturn:
        raise SpecError("where", Problem(self.text, expected, found, hint))


def _value_type(kind: type) -> ValueType:
    return "switch" if kind is bool else "text" if kind is str else "number"


def _type_of_name(name: str, fields: Mapping[str, SpecField]) -> ValueType:
    """Return the value type of a statistic, a field or a constant."""
    if name in ("true", "false"):
        return "switch"
    return _value_type(fields[name].annotation) if name in fields else "number"


def _quoted(name: ast.expr, value: ast.expr, fields: Mapping[str, SpecField]) -> str:
    """Return a hint to quote a number that is a named value of a field, or an empty text."""
    match name, value:
        case ast.Name(id=field), ast.Constant(value=number):
            if field in fields and str(number) in fields[field].declaration.choices:
                return f"write {str(number)!r}"
    return ""


def _unquoted(*nodes: ast.expr) -> str:
    """Return a hint to omit the quotes around a number or a switch, or an empty text."""
    for node in nodes:
        match node:
            case ast.Constant(value=str(text)):
                try:
                    float(text)
                except ValueError:
                    if text.lower() not in ("true", "false"):
                        continue
                return f"write {text} without quotes"
    return ""


# Conditions as users write them, ``GiB < 60 and tp <= 8`` or ``MFU > 40 %``, are first rewritten with full names.

_UNITS = {"%": "0.01", "s": "1", "ms": "1e-3"}
"""Units after a number; memory units are constants of the language."""

_TEXT = r"'[^']*'|\"[^\"]*\""
_NUMBER = r"(?<![\w.])(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
_UNIT = r"(?P<unit>(?:[KMGT]iB|[MGT]B|ms|s)\b|%(?=\s*(?:$|\)|,|<|>|=|!|and\b|or\b|else\b|if\b|\])))"
_WITH_UNIT = re.compile(rf"{_TEXT}|{_NUMBER}\s*{_UNIT}")

_GIB = "GiB"
_MEMORY = tuple(short for short, name in STATISTICS.items() if name == STATISTICS["memory"])

_SMALLEST = 2**20
"""Number below which a comparison with memory probably lacks a unit."""


def plain(text: str, known: Collection[str]) -> str:
    """Return a condition with full names of fields and statistics, and with units replaced by factors.

    Args:
        text: The condition; text that is not an expression is returned unchanged.
        known: Names that are not replaced.

    Raises:
        SpecError: If ``memory`` is compared with fewer bytes than any plan needs: the unit is missing.

    Examples:
        >>> plain("GiB < 60 and TP <= 8", ["GiB", "tensor_par"])
        'proc_mem_tier1_cap_req / GiB < 60 and tensor_par <= 8'
        >>> plain("memory < 60 GiB and MFU > 40 %", ["GiB", "mfu"])
        'proc_mem_tier1_cap_req < 60 * GiB and mfu > 40 * 0.01'
    """
    with_factors = _WITH_UNIT.sub(_factor, text.strip())
    names = _Names(text, known)
    try:
        tree = names.visit(ast.parse(with_factors, mode="eval"))
        changed = names.changed or with_factors != text.strip()
        return ast.unparse(tree) if changed else text
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, SpecError):
            raise
        return text  # the parser of conditions reports the error


def _factor(match: "re.Match[str]") -> str:
    """Return a number with a unit as a product."""
    unit = match["unit"]
    return match[0] if unit is None else f"({match['number']} * {_UNITS.get(unit, unit)})"


class _Names(ast.NodeTransformer):
    """Replaces short names of fields and statistics by full names."""

    def __init__(self, text: str, known: Collection[str]):
        self._text, self._known = text, known
        self.changed = False

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Return the full name for a short name."""
        if node.id in self._known:
            return node
        found = field_name(node.id)
        return self._named(statistic_name(node.id) if found == node.id else found, node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Read ``GiB`` compared with a number as the memory needed, as in tables; require units for memory."""
        sides = [node.left, *node.comparators]
        numbers = [
            one.value
            for one in sides
            if isinstance(one, ast.Constant) and isinstance(one.value, int | float)
        ]
        if numbers:
            node.left, *node.comparators = (self._with_unit(one, numbers) for one in sides)
        return self.generic_visit(node)

    def _with_unit(self, side: ast.expr, numbers: list[int | float]) -> ast.expr:
        """Return one side of a comparison with numbers."""
        name = side.id if isinstance(side, ast.Name) else ""
        if name == _GIB:
            needed = self._named(STATISTICS["memory"], side)
            return ast.copy_location(ast.BinOp(needed, ast.Div(), side), side)
        if name.lower() in _MEMORY and (few := [one for one in numbers if 0 < one < _SMALLEST]):
            hint = f"write {few[0]:g} GiB"
            raise SpecError(
                "where", Problem(self._text, f"{name} with a unit", f"{few[0]:g}", hint)
            )
        return side

    def _named(self, name: str, node: ast.expr) -> ast.expr:
        self.changed = self.changed or not (isinstance(node, ast.Name) and node.id == name)
        return ast.copy_location(ast.Name(name, ast.Load()), node)


CONSTANTS = {
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": GIB,
    "TiB": 2.0**40,
    "MB": MEGA,
    "GB": GIGA,
    "TB": TERA,
    "true": True,
    "false": False,
}
"""Names of numbers, as in ``proc_mem_tier1_cap_req < 70 * GiB``."""


_ASSIGNS = re.compile(r"(?<![<>=!])=(?!=)")


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition on the columns of a table.

    >>> condition = Condition.parse("total_time < 60 and tensor_par <= 8")
    >>> condition.mask({"total_time": np.array([50.0, 70.0]), "tensor_par": np.array([4, 4])}.__getitem__)
    array([ True, False])
    """

    expression: Expression

    @classmethod
    def parse(cls, text: str, *, whole_runs: bool = False) -> "Condition":
        """Parse a Boolean expression; with `whole_runs` it may use figures of training runs.

        Fields and statistics have short names, and numbers may have units: ``GiB < 60 and TP <= 8 and MFU > 40 %``.

        Raises:
            SpecError: For any other expression, for unknown names (with the nearest), for comparisons that can never
                hold, and for a condition that does not depend on the execution.
        """
        words = _of_executions(whole_runs=whole_runs)
        return cls.read(plain(text, words.names), words)

    @classmethod
    def read(cls, text: str, words: "Vocabulary") -> "Condition":
        """Parse a condition on the columns that `words` lists; errors as of :meth:`parse`."""
        example = f"a condition such as '{words.example}'"
        try:
            expression = Expression.parse(text)
        except ExpressionError as error:
            hint = "write == for equal" if _ASSIGNS.search(text) else ""
            raise SpecError("where", Problem(text, example, error.found, hint)) from None
        for name in expression.names:
            if name not in (*words.names, *CONSTANTS):
                raise SpecError("where", Problem(text, words.wanted, repr(name), words.hint(name)))
        condition = cls(expression)
        check_types(text, words.fields)
        # Evaluate a sample row: this finds type errors and constants before any search.
        try:
            found = np.asarray(expression.value(_with_constants(words.sample)))
        except ArithmeticError:
            raise SpecError("where", Problem(text, example, "a division by zero")) from None
        except (TypeError, ValueError):
            message = "values of incompatible types"
            raise SpecError("where", Problem(text, example, message)) from None
        if found.dtype != bool:
            raise SpecError("where", Problem(text, example, "a number or a text"))
        if not condition.names:
            raise SpecError("where", Problem(text, example, words.none))
        return condition

    @property
    def names(self) -> frozenset[str]:
        """Statistics and fields that the condition reads."""
        return frozenset(self.expression.names) - CONSTANTS.keys()

    def mask(self, lookup: Lookup) -> Array:
        """Return a mask of the rows that meet the condition; a comparison with not-a-number is false."""
        return np.asarray(self.expression.value(_with_constants(lookup)), bool)


def _with_constants(lookup: Lookup) -> Lookup:
    return lambda name: CONSTANTS[name] if name in CONSTANTS else lookup(name)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Vocabulary of a condition: the names of columns, and texts for messages.

    Attributes:
        names: All names.
        fields: Declarations of the fields among them, whose values need not be numbers.
        wanted, none: Texts for messages: what a name should be, and that there is none.
        example: A condition.
        remark: Function that returns a remark on an unknown name.
        see: Reference for the names.
        short: Short names.
    """

    names: tuple[str, ...]
    fields: Mapping[str, SpecField]
    wanted: str
    none: str
    example: str
    see: str
    remark: Callable[[str], str] = lambda name: ""
    short: tuple[str, ...] = ()

    def hint(self, name: str) -> str:
        """Return the hint for an unknown name."""
        values = {one for field in self.fields.values() for one in field.declaration.choices}
        quoted = f"write '{name}' in quotes" if name in values else ""
        near = nearest(name, (*self.names, *CONSTANTS, *self.short))
        return self.remark(name) or quoted or near or self.see

    def sample(self, name: str) -> Array:
        """Return a column of one row with a value of the right type."""
        if (field := self.fields.get(name)) is None:
            return np.ones(1)
        return np.array((field.declaration.choices or (field.annotation(1),))[:1])


_USUAL = ("time", "memory", "mfu", "tp", "pp", "dp", "mbs")


def _of_executions(*, whole_runs: bool) -> Vocabulary:
    """Return the vocabulary of executions: statistics, execution fields, and with `whole_runs` figures of runs."""
    return Vocabulary(
        names=known_names(whole_runs=whole_runs),
        fields={field.name: field for field in FIELDS},
        wanted="a statistic or an execution field",
        none="no statistic and no execution field",
        example="total_time < 60 and tensor_par <= 8",
        see=f"examples: {', '.join(_USUAL)}; all: calculon describe stats",
        remark=of_a_run,
        short=(*SHORT_FIELDS, *SHORT_STATISTICS),
    )


def known_names(*, whole_runs: bool = False) -> tuple[str, ...]:
    """Return the names that a condition may use; with `whole_runs` also figures of training runs."""
    runs = tuple(RUN_FIGURES) if whole_runs else ()
    return (*NAMES, *(column.name for column in columns(CorrectedStats)), *runs, *CONSTANTS)
