"""A condition on statistics and execution fields, parsed once and applied to columns."""

import re
from collections.abc import Callable, Mapping

import numpy as np

from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.base.records import columns
from calculon.base.units import GIB, GIGA, MEGA, TERA, Array
from calculon.declarations.expression import Expression, ExpressionError, Lookup
from calculon.declarations.fields import SpecField
from calculon.declarations.run_figures import RUN_FIGURES
from calculon.declarations.short_names import FIELDS as SHORT_FIELDS
from calculon.declarations.short_names import STATISTICS as SHORT_STATISTICS
from calculon.declarations.statistics import CorrectedStats
from calculon.plan.columns import FIELDS
from calculon.plan.plan import NAMES
from calculon.search.kinds import check_kinds
from calculon.search.objective import of_a_run
from calculon.search.plain_condition import plain

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
"""Names that stand for a number, so that ``proc_mem_tier1_cap_req < 70 * GiB`` can be written."""


_ASSIGNS = re.compile(r"(?<![<>=!])=(?!=)")


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition.

    >>> condition = Condition.parse("total_time < 60 and tensor_par <= 8")
    >>> condition.mask({"total_time": np.array([50.0, 70.0]), "tensor_par": np.array([4, 4])}.__getitem__)
    array([ True, False])
    """

    expression: Expression

    @classmethod
    def parse(cls, text: str, *, whole_runs: bool = False) -> "Condition":
        """Read an expression that is true or false; with `whole_runs` it may read figures of whole runs.

        Fields and statistics have short names, too, and numbers units: ``GiB < 60 and TP <= 8 and MFU > 40 %``.

        Raises:
            SpecError: For anything else, for names that are neither statistics nor execution fields (with the nearest),
                for comparisons that can never hold, and for a condition that reads nothing of an execution.
        """
        words = _of_executions(whole_runs=whole_runs)
        return cls.read(plain(text, words.names), words)

    @classmethod
    def read(cls, text: str, words: "Words") -> "Condition":
        """Read a condition on the columns that `words` lists; errors as of :meth:`parse`."""
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
        check_kinds(text, words.fields)
        try:
            found = np.asarray(expression.value(_with_constants(words.sample)))
        except ArithmeticError:
            raise SpecError("where", Problem(text, example, "a division by zero")) from None
        except (TypeError, ValueError):
            message = "values that do not go together"
            raise SpecError("where", Problem(text, example, message)) from None
        if found.dtype != bool:
            raise SpecError("where", Problem(text, example, "a number or a text"))
        if not condition.names:
            raise SpecError("where", Problem(text, example, words.none))
        return condition

    @property
    def names(self) -> frozenset[str]:
        """The statistics and fields that it reads."""
        return frozenset(self.expression.names) - CONSTANTS.keys()

    def mask(self, lookup: Lookup) -> Array:
        """Return which rows meet the condition; a comparison with not-a-number is false."""
        return np.asarray(self.expression.value(_with_constants(lookup)), bool)


def _with_constants(lookup: Lookup) -> Lookup:
    return lambda name: CONSTANTS[name] if name in CONSTANTS else lookup(name)


@dataclass(frozen=True, slots=True)
class Words:
    """The names of columns that a condition may use.

    Attributes:
        names: All of them.
        fields: Those of fields among them, whose values need not be numbers, with their declarations.
        wanted, none: What a name is, and that there is none, for messages.
        example: A condition.
        remark: What there is to say of a name that is not known.
        see: What to look at for the names.
        short: Further names, which mean some of them.
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
        """Return the hint for a name that is none."""
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


def _of_executions(*, whole_runs: bool) -> Words:
    """Return the names of statistics and execution fields, and of figures of whole runs where these are known."""
    return Words(
        names=known_names(whole_runs=whole_runs),
        fields={field.name: field for field in FIELDS},
        wanted="a statistic or an execution field",
        none="no statistic and no execution field",
        example="total_time < 60 and tensor_par <= 8",
        see=f"such as {', '.join(_USUAL)}; all: calculon describe stats",
        remark=of_a_run,
        short=(*SHORT_FIELDS, *SHORT_STATISTICS),
    )


def known_names(*, whole_runs: bool = False) -> tuple[str, ...]:
    """Return the names that a condition may use, those of figures of whole runs among them where these are known."""
    runs = tuple(RUN_FIGURES) if whole_runs else ()
    return (*NAMES, *(column.name for column in columns(CorrectedStats)), *runs, *CONSTANTS)
