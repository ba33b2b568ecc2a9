"""System file of a processor with measured kernels: its base, the fitted parts, and the source of each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import zip_longest
from typing import Any

import pandas as pd

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.calibrate.fit_result import copied
from calculon.calibrate.kernels.fitted_part import PROCESSORS, FittedPart
from calculon.calibrate.parts import quietly_decoded
from calculon.calibrate.solve import residuals
from calculon.hardware.system import System

Fit = Callable[[Mapping[str, pd.DataFrame], str, System], FittedPart | None]
"""Function from tables, a processor's name and a system with its peaks to a fitted part; None without usable rows."""

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "products": ("gemm", "sources"),
    "attention": ("attention",),
    "memory_bound": ("memory_bound", "launches"),
    "launches": ("launches",),
    "collectives": ("collectives",),
    "serving": (),
}
"""Modules of this package with a function ``fit``, in the order in which their parts are merged, and the tables that
each requires."""

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "gemm": (
        "source",
        "gpu",
        "dtype",
        "kernel",
        "batch",
        "m",
        "n",
        "k",
        "layout",
        "time_s",
        "tflops",
    ),
    "attention": (
        "source",
        "gpu",
        "dtype",
        "kernel",
        "pass",
        "causal",
        "batch",
        "heads_q",
        "heads_kv",
        "seq_q",
        "seq_kv",
        "dim_qk",
        "dim_v",
        "time_s",
    ),
    "memory_bound": ("source", "gpu", "op", "pass", "impl", "dtype", "rows", "cols", "time_s"),
    "collectives": (
        "source",
        "gpu",
        "op",
        "nodes",
        "num_gpus",
        "link",
        "bytes",
        "time_s",
        "library",
    ),
    "launches": ("gpu", "what", "time_s"),
    "moe": (
        "source",
        "gpu",
        "dtype",
        "tokens",
        "hidden",
        "ffn",
        "topk",
        "experts",
        "tp",
        "ep",
        "time_s",
    ),
    "moe_engines": (
        "source",
        "gpu",
        "dtype",
        "kernel",
        "tokens",
        "hidden",
        "ffn",
        "topk",
        "experts",
        "tp",
        "ep",
        "time_s",
    ),
    "sources": ("source", "certainty"),
}
"""Columns of each table that the fits read."""


def fits(tables: Mapping[str, pd.DataFrame]) -> list[Fit]:
    """Return the fits of the families whose tables are present."""
    package = __name__.rpartition(".")[0]
    return [
        import_module(f"{package}.{name}").fit
        for name, needed in FAMILIES.items()
        if all(one in tables for one in needed)
    ]


SUPERSEDED = {"gemm": "product", "attention": "attention"}
"""Former keys of ``ext`` by the kind of kernel whose rates are now under ``ext.kernels``."""

TOTALS = ("attention", "memory-bound", "collectives")
"""Families with a summary over all groups; products of different sizes and types have none."""

_SCORES = ("n", "median", "p90", "bias")


@dataclass(frozen=True, slots=True)
class Kernels:
    """A new system file, and the measured rows with their predictions.

    Attributes:
        document: Document of the file.
        processor: Name of the processor in the tables.
        rows: Measured rows of all families, as in :class:`FittedPart`.
    """

    document: dict[str, Any]
    processor: str
    rows: pd.DataFrame

    def residuals(self) -> list[dict[str, Any]]:
        """Return the errors of fitted and held-out rows in percent, by group and for :data:`TOTALS`."""
        records = []
        for group, rows in self._groups():
            for words, which in (("fitted", ~rows.held_out), ("held out", rows.held_out)):
                if which.any():
                    some = rows[which]
                    names = some.index.astype(str).tolist()
                    errors = residuals(
                        names, some.measured.to_numpy(float), some.predicted.to_numpy(float)
                    )
                    records.append({"group": group, "rows": words} | errors)
        return records

    def _groups(self) -> Iterator[tuple[str, pd.DataFrame]]:
        """Yield names and rows of the groups of each family, followed by the family as a group if it has a summary."""
        families = self.rows["group"].str.partition(", ")[0]
        for family, rows in self.rows.groupby(families, sort=False):
            groups = [(str(group), some) for group, some in rows.groupby("group", sort=False)]
            yield from groups
            if family in TOTALS and len(groups) > 1:
                yield f"{family}, all", rows


def fitted_system(
    base: Mapping[str, Any],
    file: str,
    name: str,
    tables: Mapping[str, pd.DataFrame],
    processor: str | None,
) -> Kernels:
    """Fit all families of kernels and return the system file.

    Args:
        base: Document of the system to start from.
        file, name: Path of the base, for messages, and its name.
        tables: Measured kernels by the stem of their file.
        processor: Name of the processor in the tables; None takes the name that the document states.

    Raises:
        SpecError: For an unknown processor, or one without measured kernels. Families without a table are left
            unchanged.
    """
    gpu = processor or _about(base).get("processor")
    if not isinstance(gpu, str) or gpu not in PROCESSORS:
        known = ", ".join(PROCESSORS)
        where = "--processor" if processor else file
        problem = Problem("" if processor else "about.processor", f"one of {known}", f"{gpu!r}")
        raise SpecError(where, problem)
    system = quietly_decoded(base, file, name)
    # Kernels were measured on real hardware, so shares refer to the datasheet bandwidth of the measured processor.
    memory = replace(system.mem1, bandwidth=PROCESSORS[gpu].bandwidth)
    measured = replace(system, mem1=memory)
    parts = [part for fit in fits(tables) if (part := fit(tables, gpu, measured)) is not None]
    fitted = [part.rows for part in parts if len(part.rows)]
    if not fitted:
        needed = " or ".join(
            " with ".join(f"{name}.csv" for name in one) for one in FAMILIES.values() if one
        )
        there = ", ".join(f"{name}.csv" for name in sorted(tables))
        raise SpecError(
            file, Problem("", f"measured kernels of {gpu} in {needed}", f"none in {there}")
        )
    rows = pd.concat(fitted, ignore_index=True)
    document = copied(base)
    for part in parts:
        document = _with_part(document, part)
    result = Kernels(document, gpu, rows)
    about = document["about"]
    about["processor"] = gpu
    about["kernels"] = {
        record["group"]: {score: record[score] for score in _SCORES}
        for record in result.residuals()
        if record["rows"] == "held out"
    }
    return result


def _about(document: Mapping[str, Any]) -> Mapping[str, Any]:
    about = document.get("about")
    return about if isinstance(about, Mapping) else {}


def _with_part(document: Mapping[str, Any], part: FittedPart) -> dict[str, Any]:
    """Return a document with a fitted part merged in; earlier statements about the same values are removed."""
    result: dict[str, Any] = _merged(document, part.fragment)
    extension = result.get("ext", {})
    # A fitted kind replaces its rates under the former key; rates of types that were not fitted stay there.
    gone = list(part.sources)
    for former, kind in SUPERSEDED.items():
        fitted = part.fragment.get("ext", {}).get("kernels", {}).get(kind, {})
        left = {key: one for key, one in extension.get(former, {}).items() if key not in fitted}
        if former in extension and fitted:
            extension[former] = left
            if not left:
                del extension[former]
                gone.append(f"ext.{former}")
    gone += [path for line in part.assumed for path in _paths(line)]
    about = dict(_about(result))
    sources, assumed = about.get("sources", {}), about.get("assumed", [])
    kept = {path: text for path, text in sources.items() if not _within(path, gone)}
    lines = [line for line in assumed if not all(_within(path, gone) for path in _paths(line))]
    about |= {"sources": kept | part.sources, "assumed": [*lines, *part.assumed]}
    result["about"] = about
    return result


def _merged(target: Any, patch: Any) -> Any:
    """Merge a value over another one: objects field by field, except rates; lists of objects element by element."""
    # A rate (a law, a curve or a table) is replaced as a unit: fields of two laws must not mix.
    if isinstance(patch, Mapping) and not {"law", "curve", "table"} & set(patch):
        old = target if isinstance(target, Mapping) else {}
        return {**old, **{key: _merged(old.get(key), one) for key, one in patch.items()}}
    if isinstance(patch, list) and any(isinstance(one, Mapping) for one in patch):
        known = target if isinstance(target, list) else []
        pairs = zip_longest(known, patch)
        return [old if new is None else _merged(old, new) for old, new in pairs]
    return copied(patch)


def _paths(line: str) -> list[str]:
    """Return the paths that a line of ``about.assumed`` concerns: those before its colon."""
    return line.partition(": ")[0].split(", ")


def _within(path: str, others: Sequence[str]) -> bool:
    """Return true if a path equals one of others or is below one; `others` may end in ``.*``."""
    above = [one.removesuffix(".*") for one in others]
    return any(path == one or path.startswith((f"{one}.", f"{one}[")) for one in (*others, *above))
