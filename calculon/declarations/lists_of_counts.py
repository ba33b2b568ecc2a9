"""Lists of counts as values of a field: ``[9, 8, 8, 7]`` in a file, ``9-8-8-7`` in a table and at the command line."""

import re
from collections.abc import Sequence
from typing import Any, overload

_TEXT = r"([1-9][0-9]*)(-[1-9][0-9]*)*"


class ListsOfCounts(Sequence[str]):
    """Values of a field that takes any list of counts, numbered in order of appearance; the empty list is first.

    A number identifies a list within one process only: files, tables and pickles hold the text.
    """

    wanted = "a list of counts of at least 1, such as [9, 8, 8, 7], or as text 9-8-8-7"

    def __init__(self) -> None:
        # Columns of tables hold numbers, so each list that is read gets one.
        self._texts = [""]
        self._numbers = {"": 0}

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[str]: ...
    def __getitem__(self, number: int | slice) -> str | Sequence[str]:
        return self._texts[number]

    def __contains__(self, value: object) -> bool:
        return isinstance(value, str) and (not value or bool(re.fullmatch(_TEXT, value)))

    def index(self, value: str, start: int = 0, stop: int | None = None) -> int:
        """Return the number of a list; a list not seen before gets a new number."""
        if value not in self:
            raise ValueError(value)
        if value not in self._numbers:
            self._numbers[value] = len(self._texts)
            self._texts.append(value)
        return self._numbers[value]

    def plain(self, value: Any) -> Any:
        """Return a list as its text, any other value unchanged."""
        if isinstance(value, (list, tuple)) and all(type(one) is int for one in value):
            return "-".join(map(str, value))
        return value

    def hint(self, value: object) -> str | None:
        """Return None for a list of counts as text, else an empty hint."""
        return None if value in self else ""

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of a list."""
        counts = {"type": "array", "items": {"type": "integer", "minimum": 1}}
        return {"anyOf": [{"type": "string", "pattern": f"^({_TEXT})?$"}, counts]}

    @staticmethod
    def counts(text: str) -> tuple[int, ...]:
        """Return the counts of a text.

        >>> ListsOfCounts.counts("9-8-8-7")
        (9, 8, 8, 7)
        """
        return tuple(map(int, text.split("-"))) if text else ()
