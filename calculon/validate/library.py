"""The studies of a folder or of the catalog, and the specs that they name."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.declarations import catalog
from calculon.declarations.files import SUFFIXES, document_suffix, read_document
from calculon.validate.published_study import FILE, Study, read_study

ROOM = "validation"
_COLUMN = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Library:
    """Studies and specs below a folder, and those of the catalog.

    Attributes:
        base: A folder with ``validation``, and maybe ``models`` and ``systems``, whose files go before those of the
            catalog. A folder whose ``validation`` holds executions only, as the published tool has it, is given the
            studies of the catalog.
    """

    base: Path

    @classmethod
    def at(cls, base: str | Path | None = None) -> "Library":
        """Return the library of a folder; of the catalog when there is none.

        Raises:
            SpecError: When the folder holds no validation studies.
        """
        found = cls(catalog.root() if base is None else Path(base))
        if not (found.base / ROOM).is_dir():
            wanted = f"a folder that holds the folder {ROOM!r}"
            missing = "no such folder" if not found.base.is_dir() else f"none in {found.base}"
            raise SpecError(str(base), Problem("", wanted, missing))
        return found

    @property
    def room(self) -> Path:
        """The folder whose studies are run."""
        own = self.base / ROOM
        return own if any(own.rglob(FILE)) else catalog.root() / ROOM

    def names(self) -> list[str]:
        """List the studies: their folders, relative to the folder of all."""
        return sorted(
            path.parent.relative_to(self.room).as_posix() for path in self.room.rglob(FILE)
        )

    def studies(self, name: str = "") -> list[Study]:
        """Read all studies, or those of a name: a whole name, a folder with several, else the last part of a name.

        Raises:
            SpecError: When there is no study of this name, or for anything wrong with one.
        """
        known = self.names()
        chosen = [one for one in known if not name or f"{one}/".startswith(f"{name}/")]
        chosen = chosen or [one for one in known if one.rpartition("/")[2] == name]
        if not chosen:
            hint = nearest(name, [*known, *(one.rpartition("/")[2] for one in known)])
            listing = hint or "known are " + ", ".join(known)
            raise SpecError(str(self.room), Problem("", "a study", f"no study {name!r}", listing))
        return [read_study(self.room / one, one) for one in chosen]

    def spec(self, kind: str, source: str, study: Study) -> tuple[str, Any]:
        """Read a spec that a study names: a file of the study, or a name of this folder or the catalog.

        Args:
            kind: ``model``, ``system`` or ``execution``.
            source: A file name with a suffix, or a name.
            study: The study that names it.

        Returns:
            The place of the document, and the document.
        """
        if document_suffix(source) in SUFFIXES:
            places = (self.base / ROOM / study.name, study.folder)
            path = next((p / source for p in places if (p / source).is_file()), None)
            if path is None:
                wanted = f"a {kind} file in {study.folder}"
                raise SpecError(study.file, Problem(kind, wanted, f"no file {source!r}"))
            return str(path), catalog.whole(kind, read_document(str(path)), str(path))
        own = self.base / catalog.KINDS[kind] / f"{source}.json"
        if own.is_file():
            return str(own), catalog.whole(kind, read_document(str(own)), str(own))
        try:
            return source, catalog.load(kind, source)[1]
        except SpecError as error:
            known = list(catalog.names(kind))
            hint = nearest(source, known) or "known are " + ", ".join(known)
            problem = Problem(kind, f"the name of a {kind}", repr(source), hint)
            raise SpecError(study.file, problem) from error


def fill(template: str, cells: Mapping[str, object]) -> str:
    """Replace every ``{column}`` of a template by its cell; KeyError for a column that is not there.

    >>> fill("{model}_{mode}.json", {"model": "gpt3-175B", "mode": "full"})
    'gpt3-175B_full.json'
    """
    return _COLUMN.sub(lambda match: str(cells[match[1]]), template)
