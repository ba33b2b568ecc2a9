"""The models, systems and presets that a page may ask for: those of the catalog, and those that its owner named.

An address may come from anybody, so it never names a file: what it says is looked up here.
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


class Offer:
    """What may be asked for by name.

    Args:
        model, system: Names of the catalog or paths of files that the owner of the page named.

    Raises:
        SpecError: For a file that cannot be read, and a name that is none.
    """

    def __init__(self, model: str | None = None, system: str | None = None):
        self._given: dict[str, dict[str, Source]] = {MODEL: {}, SYSTEM: {}}
        self.model = self._add(MODEL, model) if model else ""
        self.system = self._add(SYSTEM, system) if system else ""

    def _add(self, kind: str, source: str) -> str:
        """Return the name of a spec; that of a file may be asked for from now on."""
        if source == STDIN:
            wanted = "a name or a file, which the page reads when it is needed"
            raise SpecError("explore", Problem(kind, wanted, "standard input"))
        exact = catalog.exact(kind, source)
        if exact in self._catalog[kind]:
            return exact
        read = inputs.model if kind == MODEL else inputs.system
        name = read(source).name
        name = f"{name} (file)" if name in self._catalog[kind] else name
        self._given[kind][name] = source
        return name

    @cached_property
    def _catalog(self) -> Mapping[str, Mapping[str, object]]:
        return {kind: catalog.names(kind) for kind in (MODEL, SYSTEM)}

    def names(self, kind: str) -> Sequence[str]:
        """Return the names of models or systems: those that the owner named first."""
        return [*self._given[kind], *self._catalog[kind]]

    @cached_property
    def presets(self) -> Sequence[str]:
        """Names of the presets of frameworks."""
        return [name for name in PRESETS if name != PUBLISHED_FORMS]

    def source(self, kind: str, name: str) -> Source:
        """Return what is read for an exact name."""
        return self._given[kind].get(name, name)

    def exact(self, kind: str, text: str) -> str:
        """Return the exact name that a text means, also as people write it; no file is looked for.

        Raises:
            SpecError: When it means nothing, or several.
        """
        if text in self._given[kind] or text in self._catalog[kind]:
            return text
        known = catalog.names(kind)
        meant = meaning(kind, text, known)
        if len(meant.names) == 1:
            return meant.names[0]
        found = f"a word for {len(meant.names)} of them" if meant.names else repr(text[:60])
        hint = meant.hint or nearest(text[:60], list(known))
        raise SpecError("address", Problem(kind, f"a {kind} of the catalog", found, hint))

    def meant(self, kind: str, text: str) -> Sequence[str]:
        """Return the names that a text may mean, or that resemble it."""
        meant = meaning(kind, text, catalog.names(kind))
        return meant.names or meant.near
