"""The shipped studies, each compared once in a run of the suite for all tests that look at its errors."""

from dataclasses import replace
from functools import cache, partial

from calculon.apps.validate.library import Library
from calculon.apps.validate.measured_and_predicted import Reading, Result, compare
from calculon.apps.validate.published_study import Study
from calculon.spec.named_values import PUBLISHED
from tests.store import stored

NAMES = Library.at().names()
"""The studies of the catalog; their names are those of folders, and reading them reads no file."""


@cache
def shipped() -> dict[str, Study]:
    """Return the studies of the catalog by name."""
    return {study.name: study for study in Library.at().studies()}


def compared(name: str, edition: str = PUBLISHED) -> Result:
    """Return a study of the catalog, compared under an edition; its alternatives are evaluated on first use."""
    return _compared(name, edition)


def compare_once(study: Study, library: Library | None = None, edition: str = PUBLISHED) -> Result:
    """Do what ``compare`` does, of what is shipped once."""
    library = library or Library.at()
    if library == Library.at() and study == shipped().get(study.name):
        return compared(study.name, edition)
    return compare(study, library, edition)


@stored
def _compared(name: str, edition: str) -> Result:
    return replace(_run(name, edition), others=partial(_alternatives, name, edition))


@stored
def _alternatives(name: str, edition: str) -> tuple[Reading, ...]:
    return _run(name, edition).alternatives


@cache
def _run(name: str, edition: str) -> Result:
    return compare(shipped()[name], Library.at(), edition)
