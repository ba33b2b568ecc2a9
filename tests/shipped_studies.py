"""The shipped studies, each compared once in a run of the suite for all tests that look at its errors."""

from dataclasses import replace
from functools import partial
from unittest import mock

from calculon.declarations.named_values import PUBLISHED
from calculon.validate import measured_and_predicted
from calculon.validate.measured_and_predicted import Reading, Result, compare
from calculon.validate.published_study import Library, Study
from calculon.validate.study_rows import Row, read_rows
from tests.draws import FACTOR, some
from tests.store import cache, stored

NAMES = Library.at().names()
"""The studies of the catalog; their names are those of folders, and reading them reads no file."""

SAMPLED = (
    {
        "serving/trtllm_inflight": 29, "serving/mlperf": 16, "serving/trtllm_static": 8, "serving/misc": 4,
        "serving/mtp": 3, "serving/inferencex": 37, "serving/aiconfigurator": 41,
    }
    if FACTOR == 1
    else {}
)  # fmt: skip
"""Served studies that take long, and every which row of them is compared; all of them under ``--large``."""

ALTERNATIVES = 1 if FACTOR == 1 else None
"""How many alternatives of a study are evaluated: they would take most of the time of all studies."""
WITH_ALTERNATIVES = {"bigscience", *some(NAMES, 15)} - SAMPLED.keys() if FACTOR == 1 else NAMES
"""Studies whose alternatives are evaluated; those of all studies under ``--large``."""


@cache
def shipped() -> dict[str, Study]:
    """Return the studies of the catalog by name."""
    return {study.name: study for study in Library.at().studies()}


def compared(name: str, edition: str = PUBLISHED) -> Result:
    """Return a study of the catalog, compared under an edition; its alternatives are evaluated on first use."""
    return _compared(name, edition)


def compare_once(study: Study, library: Library | None = None, edition: str = PUBLISHED) -> Result:
    """Do what ``compare`` does, of what is shipped once, and with the alternatives that are evaluated here."""
    library = library or Library.at()
    if study != shipped().get(study.name):
        return compare(study, library, edition)
    if library == Library.at():
        return compared(study.name, edition)
    return replace(compare(_with_some_alternatives(study), library, edition), study=study)


@stored
def _compared(name: str, edition: str) -> Result:
    others = partial(_alternatives, name, edition)
    return replace(_run(name, edition), study=shipped()[name], others=others)


@stored
def _alternatives(name: str, edition: str) -> tuple[Reading, ...]:
    return _run(name, edition).alternatives


@cache
def _run(name: str, edition: str) -> Result:
    with mock.patch.object(measured_and_predicted, "read_rows", _some_rows):
        return compare(_with_some_alternatives(shipped()[name]), Library.at(), edition)


def _some_rows(study: Study) -> list[Row]:
    return read_rows(study)[:: SAMPLED.get(study.name, 1)]


def _with_some_alternatives(study: Study) -> Study:
    count = ALTERNATIVES if study.name in WITH_ALTERNATIVES else 0
    return replace(study, alternatives=study.alternatives[:count])
