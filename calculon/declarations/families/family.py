"""Declaration of a model family, as its differences from a base family."""

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

from calculon.base.frozen import dataclass
from calculon.declarations.families.configuration import Configuration, Key

Fields = Mapping[str, Any]
"""Fields of a model known so far."""

Rule = Callable[[Configuration, Fields], Any]
"""Function that derives a field from several keys; rules run after the fields with a key."""

Source = Key | Rule | str | float
"""Source of a field of a model: its key, its rule, or its constant value in the family."""


def no_block(_: Configuration, __: Fields) -> int:
    """Return 0: no block has full attention."""
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Reader of the configurations of one ``model_type``.

    Attributes:
        fields: Source of each field of a model; fields that are not listed keep their default.
        window: Tokens of the sliding window; 0 for none.
        full_every: One of every n blocks has full attention, if there is a window and no ``layer_types``; 0: none.
        chunked: Windows restart after a fixed number of tokens instead of sliding.
        only: Keys, each with the values that a model can express.
        equal: Keys, each with the field that it must equal.
        blocks: Rule for fields that depend on lists and patterns of blocks, other than windows. It returns None for a
            field that was read but keeps its default.
        reads: Fields that ``blocks`` adds.
    """

    fields: Mapping[str, Source]
    window: Key | Rule | None = None
    full_every: Rule = no_block
    chunked: bool = False
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    equal: Mapping[str, str] = field(default_factory=dict)
    blocks: Rule | None = None
    reads: tuple[str, ...] = ()

    def but(self, *changes: Mapping[str, Source], **fields: Source) -> "Family":
        """Return a family with other sources of some fields."""
        merged = dict(self.fields)
        for change in (*changes, fields):
            merged |= change
        return replace(self, fields=merged)

    def with_window(self, window: Key | Rule, full_every: Rule = no_block) -> "Family":
        """Return a family with sliding windows in some blocks."""
        return replace(self, window=window, full_every=full_every)

    def only_if(self, keys: Mapping[str, tuple[Any, ...]]) -> "Family":
        """Return a family in which some keys must have certain values."""
        return replace(self, only={**self.only, **keys})

    def by_blocks(self, blocks: Rule, reads: tuple[str, ...] = ()) -> "Family":
        """Return a family with fields that depend on lists of blocks."""
        return replace(self, blocks=blocks, reads=reads)
