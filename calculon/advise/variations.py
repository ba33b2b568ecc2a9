"""Variations of one execution as columns: some fields change, and others follow from them.

Following fields are no decisions: replicas follow from the split of the processors, fields that a preset derives from
other fields follow unless they are stated, and options without meaning in combination with the others get their
default.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from calculon.base.units import Array
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.presets import find_preset
from calculon.plan.columns import (
    DEFAULTS,
    FIELDS,
    code,
    divisors,
    encoded,
    field_of,
    parse,
    type_of,
)
from calculon.plan.mesh import DEGREES
from calculon.plan.plan import NAMES, Plan, all_fields

UNSPLIT = ("auto", "0")
"""Values of ``zero_stage`` that shard nothing by themselves."""

Fields = dict[str, Any]

Rows = Mapping[str, tuple[Array, Array]]
"""Changed fields: the rows that change, and their values as stored in columns."""

_ASKED = ("microbatch_size", *(one.name for one in FIELDS if one.declaration.of == "question"))
"""Fields that stay as requested, although a preset could derive them: processors from their split."""

_ENDLESS = 10_000
"""Length from which on a range in a declaration counts as unbounded."""


class Variations:
    """Tables of variations of one execution.

    Args:
        model, execution: The execution may break rules.
        following: Fields that were not stated: they follow from the others, whatever their present value.

    Attributes:
        broken: Fields that do not have the value that follows from the other fields. They keep their value: changing it
            to the value that follows is a change like any other.
    """

    def __init__(self, model: Model, execution: Execution, following: Collection[str] = ()):
        before = all_fields(execution)
        self._model, self._base = model, {name: encoded(name, one) for name, one in before.items()}
        self._preset = find_preset(execution.preset)
        usual = self._preset.usual(before)
        self._derived = tuple(
            name
            for name, entry in self._preset.entries.items()
            if name not in (*_ASKED, "data_par")
            and not isinstance(entry.value, (bool, int, str))
            and usual[name] == before[name]
        )
        self.broken: frozenset[str] = frozenset()
        self.broken = self._broken() - frozenset(following)

    def _broken(self) -> frozenset[str]:
        """Return the fields that do not have the value that follows from the others.

        Fields that a preset derives are excluded if correcting the others would derive another value.
        """
        alone = self.table(1, {})
        corrected = {name: getattr(alone, name)[0] for name in NAMES}
        broken = {name for name in NAMES if corrected[name] != self._base[name]}
        if alone.malformed[0] >= 0:
            broken.add("data_par")
        table = _VariationTable(corrected, 1, {}, (), {})
        for name in broken.intersection(self._derived):
            if encoded(name, self._preset.computed(name, table)) != self._base[name]:
                broken.remove(name)
        return frozenset(broken)

    def table(self, rows: int, changes: Rows, followed: Mapping[str, Array] | None = None) -> Plan:
        """Return a table of variations.

        Args:
            rows: Number of variations.
            changes: Fields that change. A change that others rule out is replaced by the value that follows from them.
            followed: Rows in which a broken field gets the value that follows from the others.
        """
        table = _VariationTable(self._base, rows, changes, self.broken, followed or {})
        malformed = np.full(rows, -1, np.int8)
        _replicas(table, malformed)
        for name in self._derived:
            _derive(table, self._preset.computed(name, table), name, malformed)
        _published(table, self._model)
        for _ in range(2):  # a field may depend on a field that depends on a third one
            _without_meaning(table)
        return table.plan(malformed)

    def of_rows(self, rows: Sequence[Mapping[str, Any]]) -> Plan:
        """Return a table with a row for each set of changes, with values as in files."""
        changes: dict[str, tuple[Array, Array]] = {}
        for name in dict.fromkeys(name for row in rows for name in row):
            places = [place for place, row in enumerate(rows) if name in row]
            values = [encoded(name, rows[place][name]) for place in places]
            changes[name] = np.array(places), np.array(values, type_of(name))
        return self.table(len(rows), changes)


def varied(model: Model, execution: Execution, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an execution with some of them changed, as in files."""
    if (preset := changes.get("preset", execution.preset)) != execution.preset:
        execution = _under(execution, preset)
    table = Variations(model, execution).of_rows([changes])
    return {name: table.values(name)[0].item() for name in NAMES}


def _under(execution: Execution, name: str) -> Execution:
    """Return an execution with another preset, which replaces the fields that have the present preset's values."""
    before = all_fields(execution)
    usual = find_preset(execution.preset).usual(before)
    kept = {n: v for n, v in before.items() if n in _ASKED or usual.get(n, ...) != v}
    stated = {**kept, "preset": name}
    return Execution(**{**before, **DEFAULTS, **find_preset(name).completed(stated), **stated})


class _VariationTable(Mapping[str, Any]):
    """Columns of variations for preset expressions: named values as text, unchanged fields as scalars."""

    def __init__(
        self,
        base: Mapping[str, Any],
        rows: int,
        changes: Rows,
        broken: Collection[str],
        followed: Mapping[str, Array],
    ):
        self.base, self.rows = base, rows
        self._columns: dict[str, Array] = {}
        self._stated: dict[str, Array] = {}
        self._held = {name: np.ones(rows, bool) for name in broken}
        for name, free in followed.items():
            self._held[name][free] = False
        for name, (places, values) in changes.items():
            # Only changed fields become arrays: most of the hundred fields stay scalars.
            column: Array = np.full(rows, base[name], type_of(name))
            stated = np.zeros(rows, bool)
            column[places], stated[places] = values, True
            self._columns[name], self._stated[name] = column, stated

    def of(self, name: str) -> Any:
        """Return a column, or the scalar value of all rows."""
        return self._columns.get(name, self.base[name])

    def is_one(self, name: str, *values: str) -> Any:
        """Return a mask of the rows in which a field has one of some named values."""
        return _table(name, values)[self.of(name)]

    def stated(self, name: str) -> Any:
        """Return a mask of the rows in which a field is changed."""
        return self._stated.get(name, False)

    def free(self, name: str, where: Any) -> Array:
        """Return the given rows in which a field follows from others, without rows in which it stays broken."""
        rows: Array = np.broadcast_to(where, self.rows)
        return rows & ~self._held[name] if name in self._held else rows

    def put(self, name: str, where: Any, values: Any) -> None:
        """Set a field in some rows; a broken field only in rows in which it follows."""
        where, now = self.free(name, where), self.of(name)
        if where.any() and not np.array_equal(found := np.where(where, values, now), now):
            self._columns[name] = np.broadcast_to(found, self.rows).astype(type_of(name))

    def plan(self, malformed: Array) -> Plan:
        """Return the table as a plan."""
        columns = {
            name: self._columns[name]
            if name in self._columns
            else np.full(self.rows, self.base[name], type_of(name))
            for name in NAMES
        }
        return Plan(columns, malformed)

    def __getitem__(self, name: str) -> Any:
        value, choices = self.of(name), field_of(name).declaration.choices
        if not choices:
            return value
        if isinstance(value, np.ndarray):
            return np.array([*choices])[value]
        return choices[value]

    def __iter__(self) -> Iterator[str]:
        return iter(self.base)

    def __len__(self) -> int:
        return len(self.base)


@cache
def _table(name: str, values: tuple[str, ...]) -> Array:
    """Return a mask over the named values of a field, by code, that are in `values`."""
    return np.array([one in values for one in field_of(name).declaration.choices])


def _replicas(table: _VariationTable, malformed: Array) -> None:
    """Set the data-parallel degree that the split leaves; a split that leaves none is malformed."""
    inner: Any = 1
    for name in DEGREES:
        if name != "data_par":
            inner = inner * np.asarray(table.of(name), np.int64)
    count, rest = np.divmod(np.asarray(table.of("num_procs"), np.int64), inner)
    follows = ~np.broadcast_to(table.stated("data_par"), table.rows)
    table.put("data_par", follows, np.maximum(count, 1))
    uneven = table.free("data_par", follows) & ((rest > 0) | (count == 0))
    malformed[uneven] = NAMES.index("data_par")


def _derive(table: _VariationTable, values: Any, name: str, malformed: Array) -> None:
    """Set a field as its preset derives it, unless it is changed."""
    found = np.asarray(values)
    if found.dtype.kind in "fiU":
        found, bad = parse(field_of(name), np.atleast_1d(found))
        malformed[np.broadcast_to(bad, table.rows)] = NAMES.index(name)
    table.put(name, ~np.broadcast_to(table.stated(name), table.rows), found)


def _published(table: _VariationTable, model: Model) -> None:
    """Set the published fields, and the kind of data parallelism, that follow from the others."""
    ranks = np.asarray(table.of("data_par"), np.int64) * table.of("context_par")
    alone, training = ranks == 1, table.of("training")
    split = ~table.is_one("zero_stage", *UNSPLIT)
    table.put("zero_stage", alone & split, code("zero_stage", "0"))
    split = ~table.is_one("zero_stage", *UNSPLIT)
    table.put("optimizer_sharding", alone, False)
    table.put("optimizer_sharding", ~table.is_one("zero_stage", "auto"), split)
    table.put("data_par_overlap", alone | ~np.asarray(training), False)
    table.put(
        "tensor_par_overlap",
        np.equal(table.of("tensor_par"), 1),
        code("tensor_par_overlap", "none"),
    )
    whole_ranks = np.equal(table.of("tensor_par"), 1) & table.stated("tensor_par_comm_type")
    table.put("tensor_par_comm_type", whole_ranks, code("tensor_par_comm_type", "ar"))
    table.put("pipeline_interleaving", *_chunks(table, model))
    whole = table.is_one("activation_recompute", "full")
    every = table.of("recompute_every") == np.maximum(1, table.of("recompute_blocks"))
    keeps = table.is_one("tensor_par_comm_type", "rs_ag") & ~(whole & every)
    table.put("seq_par_ag_redo", ~np.asarray(keeps), False)


def _chunks(table: _VariationTable, model: Model) -> tuple[Any, Any]:
    """Return the rows with another number of stages, and the maximum valid number of chunks up to the present one."""
    before, now = table.base["pipeline_par"], table.base["pipeline_interleaving"]
    stages = np.broadcast_to(table.of("pipeline_par"), table.rows)
    uniform = not (table.base["pp_schedule"] or table.base["stage_blocks"])
    values = np.full(table.rows, now)
    # Stated schedules and block lists fix the chunks; only uniform stages adapt.
    for count in np.unique(stages).tolist() if uniform else ():
        blocks = -(-model.num_blocks // count)
        values[stages == count] = max(n for n in divisors(blocks) if n <= now)
    values[stages == 1] = 1
    changed = (stages != before) & ~np.asarray(table.stated("pipeline_interleaving"))
    return changed | (stages == 1), values


def _without_meaning(table: _VariationTable) -> None:
    """Set optional fields to their defaults if they have no meaning in combination with the others."""
    for field in FIELDS:
        declared = field.declaration
        if not declared.needs or not declared.optional:
            continue
        default, value = encoded(field.name, DEFAULTS[field.name]), table.of(field.name)
        if not isinstance(value, np.ndarray) and value == default:
            continue
        for name, wanted in declared.needs.items():
            met = _met(table, name, wanted)
            if field.name in _REPEATED:
                met = met | ~np.asarray(table.is_one("recompute_modules", "none"))
            table.put(field.name, ~np.asarray(met), default)


_REPEATED = ("recompute_every", "recompute_blocks")
"""Fields that require some recomputation, no matter which field requests it."""


def _met(table: _VariationTable, name: str, wanted: Collection[Any]) -> Any:
    """Return a mask of the rows in which a field has a value that another field requires."""
    value = table.of(name)
    if field_of(name).named and field_of(name).declaration.choices:
        return table.is_one(name, *wanted)
    if isinstance(wanted, range):
        last = wanted[-1] if len(wanted) < _ENDLESS else np.inf
        return (np.asarray(value) >= wanted[0]) & (np.asarray(value) <= last)
    return np.isin(value, list(wanted))
