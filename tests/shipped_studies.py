"""The studies that are shipped, each compared once in a process for all tests that look at its errors."""

from functools import cache

from calculon.apps.validate.library import Library
from calculon.apps.validate.measured_and_predicted import Result, compare
from calculon.apps.validate.published_study import Study
from calculon.spec.named_values import PUBLISHED


@cache
def shipped() -> dict[str, Study]:
    """Return the studies of the catalog by name."""
    return {study.name: study for study in Library.at().studies()}


@cache
def compared(name: str, edition: str = PUBLISHED) -> Result:
    """Return a study of the catalog, compared under an edition."""
    return compare(shipped()[name], Library.at(), edition)


def compare_once(study: Study, library: Library | None = None, edition: str = PUBLISHED) -> Result:
    """Do what ``compare`` does, of what is shipped once."""
    library = library or Library.at()
    if library == Library.at() and study == shipped().get(study.name):
        return compared(study.name, edition)
    return compare(study, library, edition)
