"""Lists of counts as values of a field: ``[9, 8, 8, 7]`` in a file, ``9-8-8-7`` in a table and at the command line.

Lists of the blocks of pipeline stages may also be written as Megatron-LM's layout, such as ``Et*9|t*8|t*8|t*7L``. An
``m`` after a count marks the chunk of the MTP modules, if it is not the chunk of the loss: ``2-2-1m-0``.
"""

import re
from collections.abc import Sequence
from typing import Any, overload

_COUNT = "(0|[1-9][0-9]*)"
_TEXT = rf"{_COUNT}(-{_COUNT})*(m-{_COUNT}(-{_COUNT})*)?"
_LETTERS = "EtmL|"
_LONGEST = 20_000
"""Largest length in characters of an expanded layout, which limits malicious input."""


def chunks_in_letters(text: str) -> list[str] | None:
    """Return the letters of each chunk of a pipeline layout; None if it is malformed.

    ``E`` is the embedding, ``t`` a block, ``m`` an MTP module, and ``L`` the loss; ``|`` ends a chunk; ``*n`` repeats a
    letter or a parenthesis. Source: Megatron-LM, documentation of ``--pipeline-model-parallel-layout``.

    >>> chunks_in_letters("Et*3|(tt|)*2mL")
    ['Ettt', 'tt', 'tt', 'mL']
    """
    if unbalanced_parenthesis(text):
        return None
    text = re.sub(r"[\s,'\"]", "", text)
    while found := re.search(r"(?:\(([^()]*)\)|([EtmL|]))\*(\d+)", text):
        part = found[1] if found[1] is not None else found[2]
        # Nested repetitions grow exponentially in the length of the text.
        if len(part) * int(found[3]) > _LONGEST:
            return None
        text = text[: found.start()] + part * int(found[3]) + text[found.end() :]
    text = re.sub(r"[()]", "", text)
    return text.split("|") if re.fullmatch(r"[EtmL|]+", text) else None


def unbalanced_parenthesis(text: str) -> str:
    """Return the problem with the parentheses of a layout, or an empty text.

    >>> unbalanced_parenthesis("Et|(t|t|tL"), unbalanced_parenthesis("Et|t)|tL"), unbalanced_parenthesis("Et|(t|)*2L")
    ('unbalanced parenthesis at character 4', 'unbalanced parenthesis at character 5', '')
    """
    opened: list[int] = []
    for position, letter in enumerate(text, start=1):
        if letter == "(":
            opened.append(position)
        elif letter == ")" and not opened:
            return f"unbalanced parenthesis at character {position}"
        elif letter == ")":
            opened.pop()
    return f"unbalanced parenthesis at character {opened[-1]}" if opened else ""


def counts_in_letters(text: str) -> str | None:
    """Return the blocks of each chunk of a layout as text; None unless E, blocks, MTP modules of one chunk, L follow.

    >>> counts_in_letters("Et*3|(tt|)*2mL"), counts_in_letters("Et|tm|L"), counts_in_letters("Et|mt|L")
    ('3-2-2-0', '1-1m-0', None)
    """
    chunks = chunks_in_letters(text)
    if chunks is None or not re.fullmatch(r"Et*(\|t*)*m*\|*L", "|".join(chunks)):
        return None
    return "-".join(f"{one.count('t')}{'m' * ('m' in one)}" for one in chunks).removesuffix("m")


def modules_in_letters(text: object) -> int | None:
    """Return the number of MTP modules of a layout; None for a list of counts, or a malformed layout.

    >>> modules_in_letters("Et|tm*2L"), modules_in_letters("1-1")
    (2, None)
    """
    chunks = chunks_in_letters(text) if isinstance(text, str) else None
    return None if chunks is None else "".join(chunks).count("m")


class ListsOfCounts(Sequence[str]):
    """Values of a field that takes any list of counts, numbered in order of appearance; the empty list is first.

    A number identifies a list within one process only: files, tables and pickles hold the text.
    """

    wanted = (
        "a list of counts, such as [9, 8, 8, 7] or as text 9-8-8-7, or a layout in Megatron-LM's letters, such as "
        "Et*9|(t*8|)*2t*7mL, whose MTP modules (m) may be the end of an earlier chunk"
    )

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
        """Return a list, or a layout in letters, as the text of its counts; any other value unchanged."""
        if isinstance(value, str) and set(value) & set(_LETTERS):
            value = counts_in_letters(value) or value
        if isinstance(value, (list, tuple)) and all(type(one) is int for one in value):
            return "-".join(map(str, value))
        return value

    def hint(self, value: object) -> str | None:
        """Return None for a list of counts as text, else a hint, which may be empty."""
        if value in self:
            return None
        if isinstance(value, str) and chunks_in_letters(value):
            return "E begins the first chunk, L ends the last one, and all m are in one chunk after all t"
        return unbalanced_parenthesis(value) if isinstance(value, str) else ""

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of a list."""
        counts = {"type": "array", "items": {"type": "integer", "minimum": 0}}
        letters = r"[EtmL|()*0-9\s,]+"
        return {"anyOf": [{"type": "string", "pattern": f"^({_TEXT}|{letters})?$"}, counts]}

    @staticmethod
    def counts(text: str) -> tuple[int, ...]:
        """Return the counts of a text.

        >>> ListsOfCounts.counts("9-8-8-7")
        (9, 8, 8, 7)
        """
        return tuple(map(int, text.replace("m", "").split("-"))) if text else ()

    @staticmethod
    def place_of_modules(text: str) -> int | None:
        """Return the number of the chunk that has the MTP modules; None if that is the chunk of the loss.

        >>> ListsOfCounts.place_of_modules("2-2-1m-0"), ListsOfCounts.place_of_modules("2-2-1-0")
        (2, None)
        """
        return text.partition("m")[0].count("-") if "m" in text else None
