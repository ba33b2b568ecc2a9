"""Published figures of whole runs: failures and goodput, energy, CO2 and cost.

The rows are facts with their source. The default mean time between failures of a campaign comes from the first row of
:data:`FAILURES`; nothing else depends on them.
"""

import dataclasses
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from calculon.base.frozen import dataclass
from calculon.declarations import catalog
from calculon.declarations.csv_rows import Line, read_csv
from calculon.declarations.files import read_document

FAILURES = "validation/failures.csv"
FOOTPRINTS = "validation/footprints.csv"
"""Files below the root of the catalog."""

READ, RECALLED = "read", "recalled"
"""Evidence for a figure: compared with its source, or quoted without checking the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFailures:
    """Published failures of a run, or of the jobs of a machine; None for values that the source does not state.

    Attributes:
        run, processor: Name of the run, and short name of the processor.
        num_procs: Processors that worked together.
        hours, failures: A time window, and the number of unexpected interruptions in it.
        mttf_hours: Mean time to failure, if the source prints it.
        goodput: Time of useful steps over total time; `goodput_is` qualifies it: ``about``, ``more than``.
        interval, save: Seconds between two checkpoints, and seconds to save one.
        checkpoint_bytes, parameters: Size of a checkpoint, and parameters of its model.
        spare_nodes: Number of spare nodes.
        evidence, source, note: :data:`READ` or :data:`RECALLED`; the source; further remarks of the source.
    """

    run: str
    processor: str
    num_procs: int | None
    hours: float | None
    failures: float | None
    mttf_hours: float | None
    goodput: float | None
    goodput_is: str
    interval: float | None
    save: float | None
    checkpoint_bytes: float | None
    parameters: float | None
    spare_nodes: int | None
    evidence: str
    source: str
    note: str

    @property
    def mtbf_hours(self) -> float | None:
        """Mean hours between failures of the job: as printed, or the time window over its number of failures."""
        if self.hours is None or self.failures is None:
            return self.mttf_hours
        return self.hours / self.failures

    @property
    def mtbf_processor(self) -> float | None:
        """Mean hours to a failure of one processor: the MTBF of the job times its processors."""
        if self.mtbf_hours is None or self.num_procs is None:
            return None
        return self.mtbf_hours * self.num_procs


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFootprint:
    """Published energy, CO2 and cost of a run; None for values that the source does not state.

    Attributes:
        run, processor: Name of the run, and short name of the processor.
        processor_hours: Hours times processors.
        watts, pue, carbon: Power of a processor, power usage effectiveness, and g of CO2 per kWh that the source
            assumes.
        energy_kwh, co2_t: As printed.
        usd_per_hour, usd: Price of a processor-hour that the source assumes, and total cost.
        evidence, source, note: As in :class:`PublishedFailures`.
    """

    run: str
    processor: str
    processor_hours: float
    watts: float | None
    pue: float | None
    carbon: float | None
    energy_kwh: float | None
    co2_t: float | None
    usd_per_hour: float | None
    usd: float | None
    evidence: str
    source: str
    note: str


@cache
def published_failures() -> tuple[PublishedFailures, ...]:
    """Return the published failures of runs and machines, starting with the time window of Llama 3."""
    return _records(PublishedFailures, FAILURES)


@cache
def published_footprints() -> tuple[PublishedFootprint, ...]:
    """Return the published energy, CO2 and cost of runs."""
    return _records(PublishedFootprint, FOOTPRINTS)


def failures_near(num_procs: float) -> tuple[PublishedFailures, ...]:
    """Return the failures of runs of known size, ordered by how close their size is to `num_procs`.

    >>> failures_near(16_384)[0].run
    'Llama 3 405B'
    """
    known = [one for one in published_failures() if one.num_procs and one.mtbf_hours]
    return tuple(sorted(known, key=lambda one: _ratio(num_procs, one.num_procs or 1)))


def _ratio(one: float, other: float) -> float:
    return max(one / other, other / one)


def _records(cls: Any, name: str) -> tuple[Any, ...]:
    fields = dataclasses.fields(cls)
    lines = read_csv(str(catalog.root() / name), [field.name for field in fields])
    return tuple(
        cls(**{field.name: _value(field.type, line, field.name) for field in fields})
        for line in lines
    )


def _value(kind: Any, line: Line, column: str) -> Any:
    """Return a cell as text or a positive number; None if it is blank and may be.

    Raises:
        SpecError: For a cell that is not a number above 0.
    """
    text = line.cells[column]
    if kind is str:
        return text
    if not text and kind is not float:
        return None
    return int(line.number_of(column)) if kind == int | None else line.number_of(column)


# Processor-hours of published training runs: the rows of the studies in ``validation/campaign``.

FOLDER = "validation/campaign"
"""Studies of whole training runs, below the root of the catalog."""

_COLUMNS = ("run", "tokens_b", "num_gpus", "gpu_hours", "configuration", "hours_of", "source")
_GIGA = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTraining:
    """Published processor-hours of a training run.

    Attributes:
        run: Name of the run.
        tokens: Training tokens.
        system: The system that the study assumes.
        num_procs: Processors; for some rows the number that the study assumes.
        processor_hours: As printed.
        whole: True for hours of the whole run, False for hours of steps alone.
        configuration: How completely the source states batch and degrees of parallelism: ``known``, ``partly`` or
            ``unknown``.
        source: Source of the hours.
    """

    run: str
    tokens: float
    system: str
    num_procs: int
    processor_hours: float
    whole: bool
    configuration: str
    source: str


@cache
def published_trainings() -> tuple[PublishedTraining, ...]:
    """Return the training runs with published processor-hours."""
    # sorted, because the order of a folder depends on the file system
    files = sorted((catalog.root() / FOLDER).glob("*/measured.csv"))
    lines = ((file, line) for file in files for line in read_csv(str(file), _COLUMNS))
    systems = {file: _system_of(file.with_name("study.yaml")) for file in files}
    return tuple(
        PublishedTraining(
            run=line.cells["run"],
            system=systems[file],
            tokens=line.number_of("tokens_b") * _GIGA,
            num_procs=line.integer("num_gpus"),
            processor_hours=line.number_of("gpu_hours"),
            whole=line.cells["hours_of"] == "run",
            configuration=line.cells["configuration"],
            source=source_of_hours(line.cells["source"]),
        )
        for file, line in lines
        if line.cells["gpu_hours"]
    )


def _system_of(study: Path) -> str:
    document = read_document(str(study))
    return str(document["system"]) if isinstance(document, Mapping) else ""


def source_of_hours(sources: str) -> str:
    """Return the source of the processor-hours among the sources of all values of a row.

    >>> source_of_hours("arXiv:1 (processor-hours); arXiv:2 (degrees)"), source_of_hours("A blog: 9 days; the card")
    ('arXiv:1 (processor-hours)', 'A blog: 9 days')
    """
    parts = sources.split("; ")
    return next((one for one in parts if "processor-hours" in one), parts[0])


def same_name(one: str, other: str) -> bool:
    """Return True if two names denote the same model, apart from spelling.

    >>> same_name("Llama 3.1 405B", "llama3.1-405B"), same_name("Llama 3 70B", "llama2-70B")
    (True, False)
    """
    return _plain(one) == _plain(other)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
