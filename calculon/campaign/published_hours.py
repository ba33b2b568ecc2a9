"""Processor-hours of published trainings: the rows of the studies of ``validation/campaign``."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from calculon.base.frozen import dataclass
from calculon.declarations import catalog
from calculon.declarations.csv_rows import read_csv
from calculon.declarations.files import read_document

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
