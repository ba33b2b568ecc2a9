"""Expansion of words in a shell script: variables, lists, defaults and integer arithmetic."""

import re
from collections.abc import Mapping, Sequence

from calculon.launch.dialect import Unresolved
from calculon.launch.texts.reading_budget import Budget
from calculon.launch.texts.shell_arithmetic import evaluate_integer
from calculon.launch.texts.shell_quotes import (
    ANSI_QUOTED,
    FIRST_OPEN,
    NAME,
    quote_end,
    resplit,
    substitution,
    unescaped,
)

OPEN_CHARACTER = re.compile(f"[{chr(FIRST_OPEN)}-\U0010ffff]")
_LONGEST = 300  # characters of an open value in messages
_EXPANSION = re.compile(rf"(#?)({NAME}|[0-9]+|[@*#?$!])(\[[^\]]*\])?(.*)", re.DOTALL)
_BRACES = re.compile(r"""(?<![$'"])\{([^{}'"$\s]{1,300})\}(?!['"])""")
"""Several words in one, such as {1..8}."""
_CALCULATED = re.compile(
    rf"\b({NAME})\s{{0,9}}(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)|(?:\+\+|--)({NAME})"
)


def open_in(word: str, openings: Sequence[Unresolved]) -> Unresolved | None:
    """Return the open value in a word, as the script spells it; None if all of the word is known."""

    def opening(match: re.Match[str]) -> Unresolved:
        return openings[ord(match[0]) - FIRST_OPEN]

    if (first := OPEN_CHARACTER.search(word)) is None:
        return None
    text = OPEN_CHARACTER.sub(lambda found: opening(found).text, word[:_LONGEST])
    return Unresolved(_cut(text), opening(first).needs)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def words_of(value: str | list[str]) -> list[str]:
    """Return the words of a variable's value."""
    return value if isinstance(value, list) else [value]


class Expansion:
    """Variables of a script, and the expansion of words."""

    def __init__(self, given: Mapping[str, str], assigned: frozenset[str], budget: Budget) -> None:
        self.values: dict[str, str | list[str]] = dict(given)
        self.assigned = assigned
        self.openings: list[Unresolved] = []
        self.places: dict[Unresolved, int] = {}
        self.budget = budget

    def expand(self, word: str, *, splits: bool = True) -> list[str]:
        """Return the words that a word of the script expands to."""
        # Brace expansion yields several words, which no launch flag needs: leave it open.
        if splits and any("," in one or ".." in one for one in _BRACES.findall(word)):
            return [self.opened(word)]
        fields: list[str] = []
        current: list[str] = []
        started, at = False, 0
        while at < len(word):
            char = word[at]
            if word.startswith('$"', at):
                pieces, at = [], at + 1  # same as without the dollar
            elif ansi := ANSI_QUOTED.match(word, at):
                pieces, started, at = [unescaped(ansi[1])], True, ansi.end()
            elif char in "'\"":
                end = quote_end(word, at)
                inner = word[at + 1 : end]
                pieces = [inner] if char == "'" else self.quoted(inner)
                started, at = started or not self._is_empty_list(inner), end + 1
            elif char == "\\":
                pieces, at = [word[at + 1 : at + 2].replace("\n", "")], at + 2
            elif char in "$`":
                text, at = substitution(word, at)
                pieces = self._value(text)
                if splits:
                    pieces = resplit(pieces)
            else:
                pieces, at = [char], at + 1
            current.append(pieces[0] if pieces else "")
            for piece in pieces[1:]:
                fields.append("".join(current))
                current = [piece]
        fields.append("".join(current))
        self.budget.spend_values(len(fields))
        self.budget.spend_characters(sum(map(len, fields)))
        return [one for one in fields if one or started] if splits else [" ".join(fields)]

    def _is_empty_list(self, text: str) -> bool:
        """Return true for ``${LIST[@]}`` of an empty list, which is no word even in quotes."""
        found = re.fullmatch(rf"\$\{{({NAME})\[@\]\}}", text)
        return found is not None and self.values.get(found[1]) == []

    def quoted(self, text: str) -> list[str]:
        """Return the words of a text inside double quotes: one, except for ``"${LIST[@]}"``."""
        pieces: list[list[str]] = [[]]
        at = 0
        while at < len(text):
            if text[at] == "\\" and text[at + 1 : at + 2] in ('"', "$", "\\", "`", "\n"):
                pieces[-1].append(text[at + 1].replace("\n", ""))
                at += 2
            elif text[at] in "$`":
                part, at = substitution(text, at)
                first, *others = self._value(part) or [""]
                pieces[-1].append(first)
                pieces += ([one] for one in others)
            else:
                pieces[-1].append(text[at])
                at += 1
        return ["".join(piece) for piece in pieces]

    def _value(self, text: str) -> list[str]:
        """Return the words that a substitution stands for; a list has several."""
        if text.startswith("$((") and text.endswith("))"):
            return [self.arithmetic(text[3:-2])]
        inner = text[2:-1] if text.startswith("${") else text[1:]
        found = _EXPANSION.fullmatch(inner)
        if text[0] == "`" or found is None:
            return ["$"] if text == "$" else [self.opened(text)]
        length, name, index, rest = found.groups()
        value = self.values.get(name)
        if length:
            known = value is not None and not any(map(self.open, words_of(value)))
            if isinstance(value, list) and index not in ("[@]", "[*]"):
                value = self._element(value, index, text)[0]
            return [str(len(value or ""))] if known else [self.opened(text, name)]
        if not isinstance(value, list):
            return [self._modified(value, name, rest, text)]
        if rest:
            return [self.opened(text, name)]
        whole_list = index in ("[@]", "[*]") or name in ("@", "*")
        return value if whole_list else self._element(value, index, text)

    def _element(self, value: list[str], index: str | None, text: str) -> list[str]:
        number = (index or "[0]")[1:-1]
        if re.fullmatch(r"-?[0-9]{1,9}", number) and -len(value) <= int(number) < len(value):
            return [value[int(number)]]
        return [self.opened(text)] if value else [""]

    def _modified(self, value: str | None, name: str, rest: str, text: str) -> str:
        """Return the value of a variable, modified by its expansion."""
        if default := re.fullmatch(r"(:?)([-=+?])(.*)", rest, re.DOTALL):
            return self._defaulted(value, name, *default.groups())
        if value is None:
            return "" if name in self.assigned else self.opened(f"${name}", name)
        if rest in (",,", "^^"):
            return value.lower() if rest == ",," else value.upper()
        swapped = re.fullmatch(r"(//?)([\w.,:+-]+)/([\w.,:+-]*)", rest)
        if swapped and not self.open(value):
            self.budget.spend_characters(value.count(swapped[2]) * len(swapped[3]))
            return value.replace(swapped[2], swapped[3], -1 if swapped[1] == "//" else 1)
        return self.opened(text, name) if rest else value

    def _defaulted(self, value: str | None, name: str, colon: str, kind: str, raw: str) -> str:
        """Return the value of a variable, or its default: ``${NAME:-default}``."""
        missing = value is None or (colon and value == "")
        if kind == "+":
            if value and self.open(value):
                return self.opened(f"${{{name}{colon}+{raw}}}", name)
            return "" if missing else self.expand(raw, splits=False)[0]
        if not missing:
            return value or ""
        if kind == "?":
            return self.opened(f"${name}", name)
        result = self.expand(raw, splits=False)[0]
        if kind == "=":
            self.values[name] = result
        return result

    def arithmetic(self, text: str) -> str:
        """Return the value of an integer expression."""
        put_in = "".join(self.quoted(text))
        if _CALCULATED.search(put_in) or "#" in put_in:
            self.calculate(put_in)
            return self.opened(f"$(({self.shown(put_in).strip()}))")
        if opening := self.open(put_in):
            return self.opened(f"$(({self.shown(put_in).strip()}))", opening.needs)
        self.budget.spend_tokens(put_in)
        try:
            return str(evaluate_integer(put_in, self._number))
        except (
            SyntaxError,
            ValueError,
            ZeroDivisionError,
            RecursionError,
            OverflowError,
            MemoryError,
        ):
            needs = next((n for n in re.findall(NAME, put_in) if n not in self.values), "")
            return self.opened(f"$(({put_in.strip()}))", needs)

    def _number(self, name: str) -> int:
        """Return a variable as an integer; ValueError if it is none."""
        value = self.values.get(name)
        text = value if isinstance(value, str) else "?"
        return int(text, 8 if text.startswith("0") else 10)

    def opened(self, text: str, needs: str = "") -> str:
        """Return the private-use character of an open value."""
        one = Unresolved(_cut(text), needs)
        if one not in self.places:
            self.budget.spend_values(2)  # limits open values to the available characters
            self.places[one] = len(self.openings)
            self.openings.append(one)
        return chr(FIRST_OPEN + self.places[one])

    def open(self, word: str) -> Unresolved | None:
        """Return the open value in a word; None if all of the word is known."""
        return open_in(word, self.openings)

    def shown(self, word: str) -> str:
        """Return a word for messages, with open values as the script spells them."""
        opening = self.open(word)
        return word if opening is None else opening.text

    def calculate(self, text: str) -> None:
        """Mark variables that an arithmetic expression assigns as open."""
        for name in map("".join, _CALCULATED.findall(text)):
            self.values[name] = self.opened(text)
