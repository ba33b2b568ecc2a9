"""The shipped studies, each compared once in a run of the suite for all tests that look at its errors."""

from dataclasses import replace
from functools import partial

from calculon.apps.validate.library import Library
from calculon.apps.validate.measured_and_predicted import Reading, Result, compare
from calculon.apps.validate.published_study import Study
from calculon.spec.named_values import PUBLISHED
from tests.draws import FACTOR
from tests.store import cache, stored

NAMES = Library.at().names()
"""The studies of the catalog; their names are those of folders, and reading them reads no file."""

ALTERNATIVES = 2 if FACTOR == 1 else None
"""How many alternatives of each study are evaluated: most of the time of all studies goes to them."""
WHOLE = ("bigscience",)
"""Studies with all of their alternatives in every run."""


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
    return compare(_with_some_alternatives(shipped()[name]), Library.at(), edition)


def _with_some_alternatives(study: Study) -> Study:
    if study.name in WHOLE:
        return study
    return replace(study, alternatives=study.alternatives[:ALTERNATIVES])
