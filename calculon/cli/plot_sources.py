"""Data sources of pictures: a table of executions, or a space to search."""

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from calculon.base.errors import Infeasible, Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.cli.result_files import DOCUMENTS, TABLES, read_rows, short_name
from calculon.declarations.files import document_suffix
from calculon.declarations.named_values import EDITION_NAMES
from calculon.documents.pareto import terms_among
from calculon.plan.columns import DEFAULTS
from calculon.search.conditions import Condition

if TYPE_CHECKING:
    from calculon.search.task import Search

SPACE = ("application", "num_procs", "max_batch_size", "datatype", "system")


@dataclass(frozen=True)
class Frame:
    """Columns of a table of executions, by names of fields and statistics."""

    name: str
    data: Any

    def column(self, name: str) -> Array:
        """Return a column; raise SpecError if the table has no column of this name.

        A missing or empty optional field of the execution gets its default.
        """
        if name in DEFAULTS:
            return optional(self.data, name)
        if name not in self.data.columns:
            known = [str(one) for one in self.data.columns]
            hint = nearest(name, known) or "write the table with this column too"
            raise SpecError(self.name, Problem(name, "a column of this name", "none", hint))
        return np.asarray(self.data[name])

    def chosen(self, where: str | None) -> "Frame":
        """Return the rows that meet a condition; raise SpecError if there are none."""
        if where is None:
            return self._filled(self.data)
        mask = np.broadcast_to(Condition.parse(where).mask(self.column), len(self.data))
        return self._filled(self.data[mask])

    def complete(self, names: Sequence[str]) -> "Frame":
        """Return the rows with a value in each of these columns; raise Infeasible if there are none.

        Rows without values come from searches that found nothing.
        """
        for name in names:
            self.column(name)
        data = self.data.dropna(subset=list(names))
        if not len(data):
            raise Infeasible("nothing", f"{self.name}: no row has an execution to draw")
        return Frame(self.name, data)

    def _filled(self, data: Any) -> "Frame":
        if not len(data):
            raise SpecError(self.name, Problem("", "executions to draw", "none"))
        return Frame(self.name, data)


def optional(data: Any, name: str) -> Array:
    """Return an optional field of the executions of a data frame, with its default in place of missing values."""
    if name not in data.columns:
        return np.full(len(data), DEFAULTS[name])
    column = data[name]
    return np.asarray(column.where(column.notna(), DEFAULTS[name]))


def editions_of(data: Any) -> list[str]:
    """Return the editions of the executions of a data frame."""
    used = set(optional(data, "edition").tolist())
    return [name for name in EDITION_NAMES if name in used]


def terms_of(data: Any) -> list[str]:
    """Return the editions of a data frame, each with its preset if all of its executions share one."""
    presets = data["preset"].fillna("") if "preset" in data.columns else np.full(len(data), "")
    return terms_among(optional(data, "edition"), np.asarray(presets))


def table_title(table: Frame) -> str:
    """Return the name of a table, and its model and system if all rows have the same."""
    name = short_name(table.name)
    known = [set(table.data[n].dropna()) if n in table.data.columns else () for n in _NAMES]
    if any(len(values) != 1 for values in known):
        return name
    model, system = (str(next(iter(values))) for values in known)
    return f"{model} on {system}, {name}"


_NAMES = ("model", "system")


def frames(
    arguments: argparse.Namespace,
    names: Sequence[str],
    also: Callable[[str], bool] = lambda _: False,
) -> list[Frame]:
    """Read the named tables: the columns in `names`, in the condition, and those that `also` accepts.

    Returns an empty list if a space was named; its arguments are then set as for a search.

    Raises:
        SpecError: If neither tables nor a space were named, or if a table cannot be read or has no rows.
    """
    source = arguments.source
    if all(document_suffix(text) in (*TABLES, *DOCUMENTS) for text in source):
        where = arguments.where
        if arguments.edition is not None:
            hint = f"choose rows: --where \"edition == '{arguments.edition}'\""
            problem = Problem(
                "", "a space to search", "tables, whose rows state their edition", hint
            )
            raise SpecError("--edition", problem)
        if arguments.changes:
            wanted_space = "a space to search: tables hold what was computed"
            raise SpecError("--set", Problem("", wanted_space, arguments.changes[0]))
        # Reading only the needed columns keeps large Parquet tables fast.
        wanted = {
            "edition",
            "preset",
            *_NAMES,
            *names,
            *(Condition.parse(where).names if where else ()),
        }
        return [
            Frame(path, read_rows(path, lambda name: name in wanted or also(name))).chosen(where)
            for path in source
        ]
    if len(source) != len(SPACE):
        wanted_text = "tables (.csv, .parquet, .json), or APP NUM_PROCS MAX_BATCH DATATYPE SYS"
        raise SpecError("plot", Problem("", wanted_text, " ".join(source)))
    vars(arguments).update(zip(SPACE, source, strict=True))
    if not arguments.max_batch_size.isdecimal():
        problem = Problem("", "a whole number of at least 1", repr(arguments.max_batch_size))
        raise SpecError("MAX_BATCH", problem)
    arguments.max_batch_size = int(arguments.max_batch_size)
    return []


def only_table(arguments: argparse.Namespace, names: Sequence[str]) -> Frame | None:
    """Read the single named table as in :func:`frames`; None if a space was named."""
    tables = frames(arguments, names)
    if len(tables) > 1:
        problem = Problem("", "one table", f"{len(tables)} of them")
        raise SpecError(f"plot {arguments.kind}", problem)
    return tables[0] if tables else None


def about(search: "Search") -> str:
    """Return the name of a search space, without its processor count."""
    most = "" if search.space().exact_batch else "≤ "
    return f"{search.model.name} on {search.system.name}, {search.datatype}, batch {most}{search.max_batch_size:,}"


def terms(search: "Search") -> str:
    """Return the edition of a search, and its preset unless it is a published form."""
    preset = search.space().preset
    return search.edition if preset.published else f"{search.edition}, {preset.name}"
