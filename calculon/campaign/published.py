"""What sources print of whole runs: failures and goodput, and energy, CO2 and money.

The rows are facts with their source. The default time between failures of a campaign is that of the first row of
:data:`FAILURES`; nothing else follows from them.
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
"""Whether a figure was compared with its source, or a quotation of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFailures:
    """How often a run, or the jobs of a machine, failed; None is what the source does not say.

    Attributes:
        run, processor: Its name, and the processor in short.
        num_procs: Processors that worked together.
        hours, failures: A window of time, and the unexpected interruptions in it.
        mttf_hours: Mean time to a failure, where that is printed.
        goodput: Time of useful steps over all time; `goodput_is` says how it is meant: ``about``, ``more than``.
        interval, save: Seconds between two checkpoints, and to save one.
        checkpoint_bytes, parameters: Size of a checkpoint, and the parameters of its model.
        spare_nodes: Nodes that stood by.
        evidence, source, note: :data:`READ` or :data:`RECALLED`; where it stands; what else the source says.
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
        """Hours between failures of the job: as printed, or the window over the failures in it."""
        if self.hours is None or self.failures is None:
            return self.mttf_hours
        return self.hours / self.failures

    @property
    def mtbf_processor(self) -> float | None:
        """Hours of one processor to a failure: those of the job times its processors."""
        if self.mtbf_hours is None or self.num_procs is None:
            return None
        return self.mtbf_hours * self.num_procs


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFootprint:
    """Energy, CO2 and money of a run as its source prints them; None is what it does not say.

    Attributes:
        run, processor: Its name, and the processor in short.
        processor_hours: Hours times processors.
        watts, pue, carbon: Power of a processor, power usage effectiveness, and g of CO2 for a kWh, that the source
            reckons with.
        energy_kwh, co2_t: As printed.
        usd_per_hour, usd: Price of a processor that the source assumes, and the whole.
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
    """Return the published failures of runs and machines, the window of Llama 3 first."""
    return _records(PublishedFailures, FAILURES)


@cache
def published_footprints() -> tuple[PublishedFootprint, ...]:
    """Return the published energy, CO2 and cost of runs."""
    return _records(PublishedFootprint, FOOTPRINTS)


def failures_near(num_procs: float) -> tuple[PublishedFailures, ...]:
    """Return the failures of runs whose size is known, those of a size near `num_procs` first.

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
    """Return a cell as a text or a number above 0; nothing of a blank one where it may be so.

    Raises:
        SpecError: For a cell that is no number above 0.
    """
    text = line.cells[column]
    if kind is str:
        return text
    if not text and kind is not float:
        return None
    return int(line.number_of(column)) if kind == int | None else line.number_of(column)


# Processor-hours of published trainings: the rows of the studies of ``validation/campaign``.

FOLDER = "validation/campaign"
"""Studies of whole trainings, below the root of the catalog."""

_COLUMNS = ("run", "tokens_b", "num_gpus", "gpu_hours", "configuration", "hours_of", "source")
_GIGA = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTraining:
    """The processor-hours of a training as its source prints them.

    Attributes:
        run: Its name.
        tokens: Tokens.
        system: The system that its study runs it on.
        num_procs: Processors; of some rows those that the study takes.
        processor_hours: As printed.
        whole: Whether they are hours of the whole run, and not of steps alone.
        configuration: How much of batch and degrees the source states: ``known``, ``partly`` or ``unknown``.
        source: Where the hours stand.
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
    """Return the trainings whose processor-hours are printed."""
    files = sorted((catalog.root() / FOLDER).glob("*/measured.csv"))
    lines = ((file, line) for file in files for line in read_csv(str(file), _COLUMNS))
    systems = {file: _system_of(file.with_name("study.yaml")) for file in files}
    return tuple(
        PublishedTraining(
            run=line.cells["run"],
            system=systems[file],
            tokens=line.number_of("tokens_b") * _GIGA,
            num_procs=line.whole("num_gpus"),
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
    """Return where processor-hours stand, of the sources of all that a row states.

    >>> source_of_hours("arXiv:1 (processor-hours); arXiv:2 (degrees)"), source_of_hours("A blog: 9 days; the card")
    ('arXiv:1 (processor-hours)', 'A blog: 9 days')
    """
    parts = sources.split("; ")
    return next((one for one in parts if "processor-hours" in one), parts[0])


def same_name(one: str, other: str) -> bool:
    """Whether two names are of the same model, but for their spelling.

    >>> same_name("Llama 3.1 405B", "llama3.1-405B"), same_name("Llama 3 70B", "llama2-70B")
    (True, False)
    """
    return _plain(one) == _plain(other)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
