"""Scalar parameters of a system by their path in its file, and systems with changed parameters."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Any, cast

import numpy as np

from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.fields import Declaration, SpecField, spec_fields
from calculon.declarations.paths import joined
from calculon.hardware.curve import EFFICIENCY, Curve
from calculon.hardware.extension import ExpertLibrary, Link
from calculon.hardware.kernels.kernel import ENGINES, Rate
from calculon.hardware.kernels.laws import FusedAttention, Gemm
from calculon.hardware.kernels.stated_kernels import ANY, StatedKernels
from calculon.hardware.kernels.stated_rates import ExpertCalls, MeasuredTable, Stream
from calculon.hardware.processor import Host
from calculon.hardware.residuals import Spread
from calculon.hardware.system import System

IN_FORMULAS = frozenset(
    {
        (ExpertCalls, "together"),
        (ExpertLibrary, "multiprocessors"),
        (ExpertLibrary, "num_sms"),
        (FusedAttention, "multiprocessors"),
        (Gemm, "multiprocessors"),
        (Host, "processors"),
    }
)
"""Counts that formulas use like any other parameter; all other counts may determine which groups exist."""

OF_WHOLE_RUNS = ("ext.power.", "ext.price.")
"""Path prefixes of parameters that no step depends on: energy and cost of whole runs."""

OF_SERVING = ("ext.serving.",)
"""Path prefixes of parameters that only serving depends on."""

_SHARES = "efficiencies"
"""Attribute of a curve with its efficiencies."""

Place = tuple[Any, ...]
"""Place of a parameter in a record: attributes, mapping keys and list positions, outermost first."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number in a system file.

    Attributes:
        path: Its path, as ``--set`` takes it.
        value: Its value in the unit of the file.
        kind: ``int`` for a count, which has no values in between; else ``float``.
        declaration: Its unit, limits and meaning.
        place: Its place in the record.
        builds: True if it determines the structure of the machine. Other parameters may differ within a column of
            machines, unless they are 0 for some and not for others, which may switch a formula off.
        of_curve: True for the efficiency of a curve step.
    """

    path: str
    value: float
    kind: type
    declaration: Declaration
    place: Place
    builds: bool = False
    of_curve: bool = False

    @property
    def unit(self) -> str:
        """Unit in the file; empty for shares and counts."""
        return self.declaration.unit

    @property
    def name(self) -> str:
        """Name in a few words, from its help."""
        words = self.declaration.help
        ends = [at for mark in (":", ";", " (") if (at := words.find(mark)) > 0]
        return words[: min(ends, default=len(words))]

    def problem(self, value: object, place: str = "") -> Problem | None:
        """Return the problem with another value, in the unit of the file; None if it is valid."""
        return self.declaration.problem(self.kind, value, place or self.path)


def figures_of(
    system: System, *, points: bool = False, whole_runs: bool = False, serving: bool = False
) -> dict[str, Figure]:
    """Return all scalar parameters that a system states, by path, in the order of declarations.

    Parameters of optional parts are included if the system has the part. With `points`, efficiencies of curves are
    included, for example ``mem1.MB_efficiency[0][1]``; rows of tables are not, nor identifiers such as the number of a
    network. `whole_runs` adds parameters that affect only whole runs (prices and power); `serving` adds parameters of
    kernels that training does not use.
    """
    found = _in_record(system, "", ())
    left_out = (*(() if whole_runs else OF_WHOLE_RUNS), *(() if serving else OF_SERVING))
    return {
        one.path: one
        for one in found
        if (points or not one.of_curve) and not one.path.startswith(left_out)
    }


def _in_record(record: Any, path: str, place: Place) -> Iterator[Figure]:
    """Yield the parameters in a record and its nested records."""
    kind: Any = type(record)
    for field in spec_fields(kind):
        value = getattr(record, field.name)
        inside = joined(path, field.key), (*place, field.name)
        if field.annotation in (int, float):
            if (found := _figure(kind, field, value, *inside)) is not None:
                yield found
        elif not (field.declaration.optional and value == field.default):
            yield from _in_part(value, *inside)


def _in_part(value: object, path: str, place: Place) -> Iterator[Figure]:
    """Yield the parameters in a value of a record that is not a number."""
    if isinstance(value, StatedKernels):
        for (kind, name), rate in _rates(value).items():
            yield from _in_record(rate, f"{path}.{kind}.{name}", (*place, rate))
    elif isinstance(value, Curve):  # which files state from the largest size on
        shares = value.efficiencies.tolist()
        for i, share in enumerate(reversed(shares)):
            there = (*place, _SHARES, len(shares) - 1 - i)
            yield Figure(f"{path}[{i}][1]", share, float, EFFICIENCY, there, of_curve=True)
    elif isinstance(value, (dict, tuple)):
        members = value.items() if isinstance(value, dict) else enumerate(value)
        for step, member in members:
            yield from _in_part(member, joined(path, step), (*place, step))
    elif is_dataclass(value):
        yield from _in_record(value, path, place)


def _rates(kernels: StatedKernels) -> dict[tuple[str, str], Any]:
    """Return the kernel rates by their keys in the file; a rate shared by all unstated types has the key ``any``."""
    result: dict[tuple[str, str], Any] = {}
    for (kind, name), rate in kernels.rates.items():
        shared = [key for key, one in kernels.rates.items() if key[0] == kind and one is rate]
        result[kind, ANY if len(shared) > 1 else name] = rate
    return result


def _figure(record: type, field: SpecField, value: Any, path: str, place: Place) -> Figure | None:
    """Return a number of a record as a parameter; None if a file would not state it."""
    declared = field.declaration
    if value is None or (field.annotation is int and declared.optional and field.default is None):
        return None  # absent, or an identifier such as the number of a network
    stated = _in_file_units(value, declared.scale) if declared.scale != 1.0 else value
    if declared.problem(field.annotation, stated, path) is not None:
        return None
    builds = field.annotation is int and (record, field.name) not in IN_FORMULAS
    return Figure(path, stated, field.annotation, declared, place, builds)


def _in_file_units(value: float, scale: float) -> float:
    """Return the shortest number that gives the value when scaled."""
    quotient = value / scale
    short = (float(f"{quotient:.{digits}g}") for digits in (12, 15, 16))
    return next((one for one in short if one * scale == value), quotient)


def with_figures(
    system: System,
    values: Mapping[str, float | Array],
    known: Mapping[str, Figure] | None = None,
) -> System:
    """Return a system with other values of some parameters, in the units of its file; they are not checked.

    Arrays of values, all of shape (rows,), make a column of machines.

    Args:
        known: Parameters of the system, if the caller has them; avoids collecting them again.

    Raises:
        SpecError: If a path is not a parameter of the system, or parameters contradict each other.
    """
    if known is None:
        known = figures_of(system, points=True, whole_runs=True, serving=True)
    tree: dict[Any, Any] = {}
    for path, value in values.items():
        if path not in known:
            hint = nearest(path, list(known))
            raise SpecError(
                "system", Problem(path, "a figure of the system", "an unknown path", hint)
            )
        figure, branch = known[path], tree
        for step in figure.place[:-1]:
            branch = branch.setdefault(id(step) if is_dataclass(step) else step, {})
        scale = figure.declaration.scale
        branch[figure.place[-1]] = value * scale if scale != 1.0 else value
    variants = max((len(one) for one in values.values() if isinstance(one, np.ndarray)), default=0)
    variants = variants or system.variants
    return cast("System", _changed(system, {**tree, "variants": variants}))


def _changed(value: Any, tree: Mapping[Any, Any]) -> Any:
    """Return a part of a system with the values of a tree at their places."""
    if isinstance(value, StatedKernels):
        new = {id(rate): rate for rate in value.rates.values()}  # several types may share a rate
        new |= {key: _changed(new[key], branch) for key, branch in tree.items()}
        return StatedKernels({key: new[id(rate)] for key, rate in value.rates.items()})
    if isinstance(value, np.ndarray):
        shares = [tree.get(i, one) for i, one in enumerate(value)]
        return np.stack(np.broadcast_arrays(*shares))
    if isinstance(value, dict):
        return {k: _changed(one, tree[k]) if k in tree else one for k, one in value.items()}
    if isinstance(value, tuple):
        return tuple(_changed(one, tree[i]) if i in tree else one for i, one in enumerate(value))
    parts = {
        name: _changed(getattr(value, name), new) if isinstance(new, dict) else new
        for name, new in tree.items()
    }
    return replace(value, **parts)


def of_rows(system: System, rows: Array) -> System:
    """Return the machines of some rows of a column of machines; a single machine serves every row."""
    if not system.variants:
        return system
    if len(rows) == system.variants and (rows == np.arange(len(rows))).all():
        return system
    part = cast("System", _of_rows(system, rows))
    return replace(part, variants=len(rows))


def _of_rows(value: Any, rows: Array) -> Any:
    """Return a part of a column of machines for some rows; the part itself if it has no columns."""
    if isinstance(value, StatedKernels):
        new = {id(rate): _of_rows(rate, rows) for rate in value.rates.values()}
        return StatedKernels({key: new[id(rate)] for key, rate in value.rates.items()})
    if isinstance(value, Curve):
        shares = value.efficiencies
        return value if shares.ndim == 1 else replace(value, efficiencies=shares[:, rows])
    if isinstance(value, dict):
        return {key: _of_rows(one, rows) for key, one in value.items()}
    if isinstance(value, tuple):
        return tuple(_of_rows(one, rows) for one in value)
    changes = {}
    kind: Any = type(value)
    for field in spec_fields(kind) if is_dataclass(value) else ():
        nested = getattr(value, field.name)
        if field.annotation in (int, float):
            if isinstance(nested, np.ndarray):
                changes[field.name] = nested.take(rows)
        elif is_dataclass(nested) or (nested and type(nested) in (dict, tuple)):
            new = _of_rows(nested, rows)
            if new is not nested:
                changes[field.name] = new
    return replace(value, **changes) if changes else value


# A system with one part slower or faster than its file states.


def slowed(system: System, spread: Spread, factor: float) -> System:
    """Return a system on which the operations of a spread take `factor` times as long.

    A spread of all sizes or of large sizes slows a whole network, or the fused attention of a matrix engine; a spread
    of small sizes slows only the latencies of a network. A missing part changes nothing. Products with a rate of their
    own (``ext.gemm``, ``ext.kernels.product``) are slowed through the peak, by a spread of all sizes or of large sizes;
    any other ``ext.kernels.KIND.TYPE`` through its rate; the law ``stream`` also through ``mem1``.

    Args:
        factor: Slower above 1, faster below.
    """
    kind, _, datatype = spread.part.rpartition(".")
    kind = "ext.kernels.product" if kind == "ext.gemm" else kind
    if spread.part in ("mem1", "mem2"):
        return _slowed_memory(system, spread, factor)
    if kind in ("ext.kernels.product", "matrix") and system.rate("product", datatype) is not None:
        return _slowed_products(system, spread, kind, datatype, factor)
    if kind in ("matrix", "vector") and datatype in getattr(system, kind):
        return _slowed_engine(system, spread, kind, datatype, factor)
    stated = (kind.removeprefix("ext.kernels."), datatype)
    if kind.startswith("ext.kernels.") and stated in system.ext.rates:
        return _slowed_rates(system, [stated], factor, spread.start, spread.end)
    for number in range(len(system.networks)):
        if spread.part == f"networks[{number}]":
            return _slowed_network(system, spread, number, factor)
    return system


def _slowed_memory(system: System, spread: Spread, factor: float) -> System:
    """Slow a memory tier, and kernels whose rate is a share of its bandwidth."""
    memory, span = getattr(system, spread.part), (spread.start, spread.end)
    curve = memory.efficiency.scaled(1 / factor, *span)
    changed = replace(system, **{spread.part: replace(memory, efficiency=curve)})
    if spread.part == "mem2":
        return changed
    if (stream := changed.ext.traffic) is not None:
        ext = replace(changed.ext, traffic=stream.slowed(factor, *span))
        changed = replace(changed, ext=ext)
    rates = changed.ext.rates.items()
    streams = [part for part, rate in rates if isinstance(rate, Stream)]
    return _slowed_rates(changed, streams, factor, *span)


def _slowed_engine(
    system: System, spread: Spread, kind: str, datatype: str, factor: float
) -> System:
    engine = getattr(system, kind)[datatype]
    curve = engine.efficiency.scaled(1 / factor, spread.start, spread.end)
    engines = getattr(system, kind) | {datatype: replace(engine, efficiency=curve)}
    changed = replace(system, **{kind: engines})
    attention = ("attention", datatype)
    if kind == "vector" or spread.operations == "small" or attention not in system.ext.rates:
        return changed
    return _slowed_rates(changed, [attention], factor)


def _slowed_products(
    system: System, spread: Spread, kind: str, datatype: str, factor: float
) -> System:
    """Slow products with a stated rate, and everything else stated relative to the peak of their engine."""
    if datatype not in system.matrix or (spread.operations == "small" and kind != "matrix"):
        return system  # small products are bound by memory and launches
    engine = system.matrix[datatype]
    engines = system.matrix | {datatype: replace(engine, peak=engine.peak / factor)}
    absolute = [
        (one, name)
        for (one, name), rate in system.ext.rates.items()
        if name == datatype and ENGINES[one] != "vector" and not rate.follows_engine
    ]
    slower = _slowed_rates(replace(system, matrix=engines), absolute, factor)
    laws = {
        part: rate.slowed_with_engine(factor)
        for part, rate in slower.ext.rates.items()
        if part[1] == datatype and isinstance(rate, Gemm)
    }
    return replace(slower, ext=slower.ext.with_rates({**slower.ext.rates, **laws}))


def _slowed_rates(
    system: System,
    parts: Sequence[tuple[str, str]],
    factor: float,
    start: float = 0.0,
    end: float = math.inf,
) -> System:
    """Slow rates that the system states, by kind of kernel and type."""
    if not parts:
        return system
    rates = {part: system.ext.rates[part].slowed(factor, start, end) for part in parts}
    return replace(system, ext=system.ext.with_rates({**system.ext.rates, **rates}))


def _slowed_network(system: System, spread: Spread, number: int, factor: float) -> System:
    networks, links = list(system.networks), list(system.ext.networks)
    network = networks[number]
    bandwidth = network.bandwidth if spread.operations == "small" else network.bandwidth / factor
    networks[number] = replace(network, bandwidth=bandwidth, latency=network.latency * factor)
    if number < len(links):
        link = links[number]
        names = [field.name for field in spec_fields(Link) if field.declaration.unit == "s"]
        times = {name: getattr(link, name) for name in names}
        # The constant of its kind cannot be slowed, so it becomes an explicit latency.
        if link.kind is not None:
            times["step_latency"] = link.step(network.latency)
        slower: dict[str, Any] = {
            name: time * factor for name, time in times.items() if time is not None
        }
        if link.operations:
            laws = link.operations.items()
            slower["operations"] = {name: law.slowed(factor) for name, law in laws}
        links[number] = replace(link, **slower)
    ext = replace(system.ext, networks=tuple(links))
    return replace(system, networks=tuple(networks), ext=ext)


def with_slower_lists(system: System, factor: float) -> System:
    """Return a system with listed times multiplied by `factor`; they are not scalar parameters.

    These are the ramps of collectives by group size, and kernel tables in seconds.
    """
    links = tuple(_with_slower_ramps(link, factor) for link in system.ext.networks)
    rates = {
        part: rate.slowed(factor, 0.0, math.inf) if _in_seconds(rate) else rate
        for part, rate in system.ext.rates.items()
    }
    return replace(system, ext=replace(system.ext, networks=links).with_rates(rates))


def _in_seconds(rate: Rate) -> bool:
    return isinstance(rate, MeasuredTable) and rate.values == "seconds"


def _with_slower_ramps(link: Link, factor: float) -> Link:
    if not link.operations:
        return link
    laws = {}
    for name, law in link.operations.items():
        ramps = tuple(ramp * factor for ramp in law.rates.ramps)
        laws[name] = replace(law, rates=replace(law.rates, ramps=ramps))
    return replace(link, operations=laws)
