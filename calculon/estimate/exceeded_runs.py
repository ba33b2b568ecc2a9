"""Fastest measured runs that a prediction exceeds.

Runs of ``validation/runs.csv`` are compared, and published rates of ``validation/fastest.csv``, whose sources may leave
open too much for a prediction.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations import catalog
from calculon.declarations.machine_provenance import short_name
from calculon.estimate.nearest_runs import relatives, same_processor
from calculon.estimate.run_table import Runs, kind, runs
from calculon.hardware.system import System

FASTEST = "validation/fastest.csv"
"""File of published rates, relative to the root of the catalog."""

MODEL, CLASS = "model", "class"
"""Runs to compare with: of the same model, or of all models of its class (dense or MoE)."""

_SAME_SIZE = 0.01
"""Largest difference of the logarithms of parameters of the same model, whose vocabulary may be padded differently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceededRun:
    """Fastest measured run of a model or of a class of models, which a prediction exceeds.

    Attributes:
        of: :data:`MODEL` for the fastest run of the same model, :data:`CLASS` for the fastest of all dense or of all
            MoE models.
        study, label: Study under ``validation/``, and its row.
        processor, type: Processor and type of matrix arithmetic of the run.
        relative: True if the run was measured on another processor: the one whose kernels the system borrows, or one of
            the same generation.
        num_procs: Processors of the run.
        experts: Experts of its model; 0 if dense.
        mfu: Predicted MFU, with causal attention.
        measured_mfu: MFU of the run, with causal attention.
        comparable_mfu: The same; if the run used narrower arithmetic than the prediction, its rate over the peak rate
            of the prediction.
        excess: Predicted over comparable MFU, minus 1.
    """

    of: str
    study: str
    label: str
    processor: str
    type: str
    relative: bool
    num_procs: int
    experts: int
    mfu: float
    measured_mfu: float
    comparable_mfu: float
    excess: float


@cache
def published() -> Runs:
    """Return the runs to compare with: only the columns that the comparison uses."""
    columns = {name: tuple(runs().columns[name]) for name in _COLUMNS}
    try:
        with (catalog.root() / FASTEST).open(encoding="utf-8", newline="") as file:
            rows = [*csv.DictReader(file)]
    except FileNotFoundError:
        rows = []
    return Runs({name: (*column, *(row[name] for row in rows)) for name, column in columns.items()})


_COLUMNS = (
    *("study", "label", "system", "accelerator", "family", "type", "peak", "bandwidth"),
    *("num_procs", "parameters", "hidden", "experts", "mfu_causal"),
)


def exceeded_runs(
    some: Runs, system: System, facts: Mapping[str, Any], mfu: float
) -> tuple[ExceededRun, ...]:
    """Return the fastest comparable run of the same model, and of its class, if the prediction exceeds them.

    Comparable runs have the same processor and width of arithmetic. If there are none, runs of other widths on the same
    processor are compared, then runs on a relative of the processor, and then on any processor of its generation. Wider
    arithmetic is compared by MFU, as if a higher peak helped in full; narrower arithmetic is compared by rate.

    Args:
        some: The runs (:func:`published`).
        system: System of the prediction.
        facts: Result of :func:`~calculon.estimate.run_table.about` for its execution.
        mfu: Predicted MFU, with causal attention.
    """
    here, related = same_processor(some, system), relatives(some, system)
    alike = (some.numbers("experts") > 0) == (facts["experts"] > 0)
    same = alike & (some.numbers("experts") == facts["experts"])
    same &= some.numbers("hidden") == facts["hidden"]
    same &= np.abs(np.log(some.numbers("parameters") / facts["parameters"])) < _SAME_SIZE
    narrow = some.kinds == kind(facts["type"])
    rates = some.numbers("mfu_causal") * _peaks(some, system, facts["type"])
    generation = some.where("family", facts["family"]) & bool(facts["family"])
    places = (here & narrow, here, related & narrow, generation & narrow)
    return tuple(
        _exceeded(some, of, rates, number, mfu, relative=not here[number])
        for of, rows in ((MODEL, same), (CLASS, alike))
        for number in _fastest(rates, [rows & place for place in places])
        if visible(mfu) > visible(float(rates[number]))
    )


def visible(mfu: float) -> float:
    """Return a utilization in percent as displayed: whole percent, or two digits below 10 %.

    >>> visible(0.604), visible(0.0634)
    (60.0, 6.3)
    """
    return float(f"{100 * mfu:.2g}")


def _peaks(some: Runs, system: System, datatype: str) -> Array:
    """Return the peak rate of the arithmetic of each run over the peak of a type on a system, at least 1."""
    peaks = {name: system.product_engine(name).peak for name in system.matmul_types}
    own = peaks.get(datatype, np.inf)
    return np.array([max(1.0, peaks.get(name, own) / own) for name in some.columns["type"]])


def _fastest(rates: Array, groups: Sequence[Array]) -> Iterator[int]:
    """Yield the fastest run of the first group that has any."""
    for rows in groups:
        if rows.any():
            numbers = np.flatnonzero(rows)
            yield int(numbers[rates[numbers].argmax()])
            return


def _exceeded(
    some: Runs, of: str, rates: Array, number: int, mfu: float, *, relative: bool
) -> ExceededRun:
    run = {name: some.columns[name][number] for name in _COLUMNS}
    comparable = float(rates[number])
    return ExceededRun(
        of=of,
        study=run["study"],
        label=run["label"],
        processor=short_name(run["system"]),
        type=run["type"],
        relative=relative,
        num_procs=int(run["num_procs"]),
        experts=int(run["experts"]),
        mfu=mfu,
        measured_mfu=float(run["mfu_causal"]),
        comparable_mfu=comparable,
        excess=mfu / comparable - 1,
    )
