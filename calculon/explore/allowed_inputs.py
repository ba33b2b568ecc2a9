"""Models, systems and presets that a page may request: from the catalog, or named by its owner.

Addresses may come from anyone, so they never name files: names are looked up here.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

from calculon import inputs
from calculon.base.errors import Problem, SpecError, nearest
from calculon.declarations import catalog
from calculon.declarations.files import STDIN
from calculon.declarations.named_values import PRESETS
from calculon.declarations.presets import PUBLISHED_FORMS
from calculon.declarations.spellings.catalog_words import meaning
from calculon.inputs import Source

MODEL, SYSTEM = "model", "system"


class AllowedInputs:
    """Names that may be requested.

    Args:
        model, system: Catalog names, or paths of files, given by the owner of the page.

    Raises:
        SpecError: For an unreadable file or an unknown name.
    """

    def __init__(self, model: str | None = None, system: str | None = None):
        self._given: dict[str, dict[str, Source]] = {MODEL: {}, SYSTEM: {}}
        self.model = self._add(MODEL, model) if model else ""
        self.system = self._add(SYSTEM, system) if system else ""

    def _add(self, kind: str, source: str) -> str:
        """Return the name of a spec; a file may be requested by its name from now on."""
        if source == STDIN:
            wanted = "a name or a file, which the page can read again"
            raise SpecError("explore", Problem(kind, wanted, "standard input"))
        exact = catalog.exact(kind, source)
        if exact in self._catalog[kind]:
            return exact
        read = inputs.model if kind == MODEL else inputs.system
        name = read(source).name
        # A file must not hide a catalog spec of the same name.
        name = f"{name} (file)" if name in self._catalog[kind] else name
        self._given[kind][name] = source
        return name

    @cached_property
    def _catalog(self) -> Mapping[str, Mapping[str, object]]:
        return {kind: catalog.names(kind) for kind in (MODEL, SYSTEM)}

    def names(self, kind: str) -> Sequence[str]:
        """Return the names of models or systems, those given by the owner first."""
        return [*self._given[kind], *self._catalog[kind]]

    @cached_property
    def presets(self) -> Sequence[str]:
        """Names of framework presets."""
        return [name for name in PRESETS if name != PUBLISHED_FORMS]

    def source(self, kind: str, name: str) -> Source:
        """Return the source to read for an exact name."""
        return self._given[kind].get(name, name)

    def exact(self, kind: str, text: str) -> str:
        """Return the exact name that a text means, in any usual spelling; never read a file.

        Raises:
            SpecError: If no name or several names match.
        """
        if text in self._given[kind] or text in self._catalog[kind]:
            return text
        known = catalog.names(kind)
        meant = meaning(kind, text, known)
        if len(meant.names) == 1:
            return meant.names[0]
        found = repr(text[:60])
        if meant.names:
            found = f"{found}, which matches {len(meant.names)} of them"
        hint = meant.hint or nearest(text[:60], list(known))
        raise SpecError("address", Problem(kind, f"a {kind} of the catalog", found, hint))

    def meant(self, kind: str, text: str) -> Sequence[str]:
        """Return the names that a text may mean, or similar names."""
        meant = meaning(kind, text, catalog.names(kind))
        return meant.names or meant.near
