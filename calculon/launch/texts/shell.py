"""What a shell script would run, found without running anything.

Variables, lists, defaults and whole-number arithmetic are put in, conditions on known values are decided. What depends
on the environment stays open, and what differs from pass to pass of a loop: it is a character of its own in a word,
which :attr:`Script.open` explains. Commands are taken to succeed, bodies of functions and loops to be run.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from itertools import groupby

from calculon.frozen import dataclass
from calculon.launch.dialect import Unresolved
from calculon.launch.texts.reading_budget import Budget, reading
from calculon.launch.texts.shell_arithmetic import alike, decided, whole
from calculon.launch.texts.shell_quotes import (
    ANSI_QUOTED,
    FIRST_OPEN,
    NAME,
    quote_end,
    resplit,
    split,
    substitution,
    unescaped,
)
from calculon.launch.texts.shell_words import (
    Array,
    Choice,
    Function,
    Loop,
    Simple,
    Statement,
    Subshell,
    split_condition,
    statements,
)

OPEN_CHARACTER = re.compile(f"[{chr(FIRST_OPEN)}-\U0010ffff]")
_LONGEST = 300  # characters of an open value, which only messages show
_ASSIGNMENT = re.compile(rf"({NAME})(\+?)=(.*)", re.DOTALL)
_REFERENCE = re.compile(rf"\$\{{?({NAME})")
_DECLARES = ("export", "declare", "local", "readonly", "typeset")
_EXPANSION = re.compile(rf"(#?)({NAME}|[0-9]+|[@*#?$!])(\[[^\]]*\])?(.*)", re.DOTALL)
_CALCULATED = re.compile(
    rf"({NAME})\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)|(?:\+\+|--)({NAME})|({NAME})(?:\+\+|--)"
)
_RUN_DOCUMENTS = ("sbatch", "bash", "sh")
"""Commands that run a here document."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command with all of its words, and its line."""

    words: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class Script:
    """What a script would run.

    Attributes
    ----------
    commands : tuple of Command
        In order; those of branches that were not decided are among them.
    variables : mapping of str to str or list of str
        What variables hold at the end.
    sourced : tuple of str
        Other files that it reads, which were not.
    """

    commands: tuple[Command, ...]
    variables: Mapping[str, str | list[str]]
    sourced: tuple[str, ...]
    openings: Sequence[Unresolved] = field(default_factory=tuple, repr=False)

    def open(self, word: str) -> Unresolved | None:
        """Return what is open in a word, as the script writes it; nothing where all of it is known."""
        return _open(word, self.openings)

    def resplit(self, word: str) -> list[str]:
        """Return the words of a command that is one word, as after ``bash -c``."""
        return split(word, comments=True)


def _open(word: str, openings: Sequence[Unresolved]) -> Unresolved | None:
    def opening(found: re.Match[str]) -> Unresolved:
        return openings[ord(found[0]) - FIRST_OPEN]

    if (first := OPEN_CHARACTER.search(word)) is None:
        return None
    text = OPEN_CHARACTER.sub(lambda found: opening(found).text, word[:_LONGEST])
    return Unresolved(_cut(text), opening(first).needs)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def run(text: str, file: str, given: Mapping[str, str]) -> Script:
    """Return what a script would run, with some variables given.

    Raises
    ------
    SpecError
        Where a quotation, a list or an expansion has no end, and for a script that is more than the budget allows.
    """
    with reading(file) as budget:
        body = statements(OPEN_CHARACTER.sub("\N{REPLACEMENT CHARACTER}", text), file)
        shell = _Shell(given, frozenset(_assigned(body)), budget)
        shell.execute_apart(body)
    return Script(tuple(shell.commands), shell.values, tuple(shell.sourced), shell.openings)


class _Ended(Exception):
    """``exit`` or ``return``, with its status."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.failed = status not in ("", "0")


class _Shell:
    """The state of a script on its way."""

    def __init__(self, given: Mapping[str, str], assigned: frozenset[str], budget: Budget) -> None:
        self.values: dict[str, str | list[str]] = dict(given)
        self.assigned = assigned
        self.given = frozenset(given)
        self.commands: list[Command] = []
        self.sourced: list[str] = []
        self.openings: list[Unresolved] = []
        self.places: dict[Unresolved, int] = {}
        self.budget = budget

    # Statements

    def execute(self, body: Sequence[Statement]) -> None:
        """Run statements in order."""
        for one in body:
            self.budget.spend_statement()
            if isinstance(one, Simple):
                self._simple(one)
            elif isinstance(one, Array):
                words = [part for word in one.words for part in self.expand(word)]
                before = self.values.get(one.name, []) if one.adds else []
                before = [before] if isinstance(before, str) else before
                self.budget.spend_values(len(before) + len(words))
                self.values[one.name] = [*before, *words]
            elif isinstance(one, Choice):
                self._choose(one)
            elif isinstance(one, Loop):
                self._loop(one)
            elif isinstance(one, Subshell):
                outside = dict(self.values)
                self.execute_apart(one.body)
                self.values = outside
            elif isinstance(one, Function):
                self.execute_apart(one.body)
            else:
                self.execute(one.body)

    def execute_apart(self, body: Sequence[Statement]) -> None:
        """Run statements whose ``exit`` or ``return`` ends nothing but them."""
        with suppress(_Ended):
            self.execute(body)

    def _loop(self, loop: Loop) -> None:
        """Run the body once; what further passes would change is open, in the body and after it."""
        passes = 2
        self._calculate(loop.variable)  # of for ((i=0; i<n; i++))
        if loop.variable and not loop.variable.startswith("(("):
            words = [part for word in loop.words for part in self.expand(word)]
            shown = " or ".join(dict.fromkeys(map(self._shown, words)))
            passes = len(words) if words and not any(map(self._open, words)) else 2
            self.values[loop.variable] = (
                words[0]
                if len(words) == 1
                else self._opened(shown or f"${loop.variable}", loop.variable)
            )
        before, commands, sourced = dict(self.values), len(self.commands), len(self.sourced)
        self.execute_apart(loop.body)
        if passes == 1:
            return
        once = dict(self.values)
        changed = self._changed_again(loop.body)
        self.values = once
        if changed:
            del self.commands[commands:], self.sourced[sourced:]
            self.values = before | changed
            self.execute_apart(loop.body)
            self.values |= changed

    def _changed_again(self, body: Sequence[Statement]) -> dict[str, str | list[str]]:
        """Run the body of a loop again without its commands; return the variables that this changes, open."""
        once, commands, sourced = dict(self.values), self.commands, self.sourced
        self.budget.spend_values(len(once))
        self.commands, self.sourced = [], []
        self.execute_apart(body)
        self.commands, self.sourced = commands, sourced
        changed: dict[str, str | list[str]] = {}
        for name, value in self.values.items():
            first = once.get(name, "")
            both_open = all(any(map(self._open, _words(one))) for one in (first, value))
            if value == first or both_open:
                continue
            if _has_flags([first, value]):
                changed[name] = self._merged_lists([_listed(first), _listed(value)], "in a loop")
            else:
                shown = f"{self._shown(str(first))}, {self._shown(str(value))}, ..."
                changed[name] = self._opened(f"{shown} in a loop")
        return changed

    def _simple(self, one: Simple) -> None:
        words = list(one.words)
        if words and words[0] in _DECLARES:
            words = [word for word in words[1:] if not word.startswith("-")]
            for word in words:
                if found := _ASSIGNMENT.match(word):
                    self._assign(found)
            return
        while words and (found := _ASSIGNMENT.match(words[0])):
            self._assign(found)
            words.pop(0)
        if not words:
            return
        if words[0].startswith("(("):
            self._calculate(words[0])
        elif words[0] in ("source", "."):
            self.sourced += [self._shown(" ".join(self.expand(word))) for word in words[1:2]]
        elif words[0] == "read" and one.text:
            self.values[words[-1]] = " ".join(self._quoted(one.text))
        elif words[0] in _RUN_DOCUMENTS and one.text:
            document = " ".join(self._quoted(one.text))
            self.budget.spend_characters(len(document))
            self.execute_apart(statements(document, words[0]))
        else:
            self._command(words, one.line)

    def _command(self, words: Sequence[str], line: int) -> None:
        fields = [part for word in words for part in self.expand(word)]
        if fields[:1] == ["eval"]:
            fields = split(" ".join(fields[1:]))
        if fields:
            self.commands.append(Command(tuple(fields), line))
        if fields[:1] in (["exit"], ["return"]):
            raise _Ended("".join(fields[1:2]))

    def _calculate(self, text: str) -> None:
        """Leave the variables open that an arithmetic expression assigns."""
        for name in map("".join, _CALCULATED.findall(text)):
            self.values[name] = self._opened(text)

    def _assign(self, found: re.Match[str]) -> None:
        name, adds, raw = found.groups()
        if name in self.given:
            return  # what was given holds against the script's own
        value = " ".join(self.expand(raw, splits=False))
        before = self.values.get(name, "") if adds else ""
        self.budget.spend_characters(len(value) + sum(map(len, before)))
        if isinstance(before, list):
            self.values[name] = [(before or [""])[0] + value, *before[1:]]
        else:
            self.values[name] = before + value

    # Conditions

    def _choose(self, choice: Choice) -> None:
        """Run the branch whose condition holds; where that is open, all that may, and keep what they have in common."""
        possible: list[tuple[Statement, ...]] = []
        unsure: tuple[str, ...] = ()
        for words, body in choice.branches:
            holds = self.holds(words) if words else True
            if holds is None:
                unsure = unsure or words
            if holds is not False:
                possible.append(body)
            if holds:
                break
        else:
            possible.append(())
        if not unsure:
            try:
                self.execute(possible[0])
            except _Ended as ended:
                # A script that asks for something, and fails without it, is read as though it had it.
                if not ended.failed:
                    raise
            return
        before, ends = dict(self.values), []
        for body in possible:
            self.budget.spend_values(len(before))
            self.values = dict(before)
            with suppress(_Ended):
                self.execute(body)
                ends.append(self.values)
        if not ends:
            raise _Ended("")
        self.values = self._merged(ends, unsure)

    def _merged(
        self, ends: Sequence[Mapping[str, str | list[str]]], condition: Sequence[str]
    ) -> dict[str, str | list[str]]:
        """Return what variables hold after branches of which one is run."""
        text = self._shown(
            " ".join(word for word in condition if word not in ("[", "[[", "]", "]]"))
        )
        needs = next((m[1] for word in condition if (m := re.search(r"\$\{?(\w+)", word))), "")
        merged: dict[str, str | list[str]] = {}
        for name in dict.fromkeys(name for end in ends for name in end):
            values = [end.get(name, "") for end in ends]
            if all(value == values[0] for value in values):
                merged[name] = values[0]
            elif _has_flags(values):
                lists = [_listed(value) for value in values]
                merged[name] = self._merged_lists(lists, f"where {text}", needs)
            else:
                shown = dict.fromkeys(self._shown(str(v)) or "nothing" for v in values)
                merged[name] = self._opened(" or ".join(shown), needs)
        return merged

    def _merged_lists(self, lists: Sequence[list[str]], text: str, needs: str = "") -> list[str]:
        """Return the words that lists begin with in common, then the others, each flag open."""
        common = []
        for words in zip(*lists, strict=False):
            if len(set(words)) > 1:
                break
            common.append(words[0])
        open_flag = self._opened(text, needs)
        rest = [word for words in lists for word in words[len(common) :] if word.startswith("-")]
        return [*common, *(f"{word.partition('=')[0]}{open_flag}" for word in dict.fromkeys(rest))]

    def holds(self, words: Sequence[str]) -> bool | None:
        """Return whether a condition holds; nothing where that is open."""
        if words[0] == "case":
            subject = "".join(self.expand(words[1], splits=False))
            if _open(subject, self.openings):
                return None
            patterns = ("".join(self.expand(word, splits=False)) for word in words[2:])
            return any(alike(subject, pattern, self.budget) for pattern in patterns)
        tests, operators = split_condition(words)
        result = self._test(tests[0])
        for operator, test in zip(operators, tests[1:], strict=True):
            result = _joined(operator, result, self._test(test))
        return result

    def _test(self, words: list[str]) -> bool | None:
        negated = False
        while words[:1] == ["!"]:
            negated, words = not negated, words[1:]
        if words and words[0].startswith("(("):
            value = self._arithmetic(words[0][2:-2])
            found = None if self._open(value) else value != "0"
        elif words[:1] == ["[["]:
            found = self._either([word for word in words[1:] if word != "]]"])
        elif words and words[0] in ("[", "test"):
            found = self._compared([word for word in words[1:] if word != "]"])
        else:
            found = {"true": True, "false": False}.get(words[0] if len(words) == 1 else "")
        return (not found) if negated and found is not None else found

    def _either(self, words: list[str]) -> bool | None:
        """Return whether what is in ``[[ ]]`` holds; nothing for conditions in parentheses."""
        if "(" in words:
            return None
        result: bool | None = False
        for part in _parts(words, "||"):
            both: bool | None = True
            for one in _parts(part, "&&"):
                both = _joined("&&", both, self._compared(one))
            result = _joined("||", result, both)
        return result

    def _compared(self, words: list[str]) -> bool | None:
        if words[:1] == ["!"]:
            found = self._compared(words[1:])
            return None if found is None else not found
        parts = ["".join(self.expand(word, splits=False)) for word in words]
        if len(parts) == 2 and words[0] in ("-z", "-n"):
            return self._empty(parts[1], words[0] == "-z")
        if any(_open(part, self.openings) for part in parts) or len(parts) not in (1, 3):
            return None
        return (
            bool(parts[0])
            if len(parts) == 1
            else decided(parts[0], words[1], parts[2], self.budget)
        )

    def _empty(self, part: str, wanted: bool) -> bool | None:
        """Return whether a text is empty, or is not; a variable that nothing sets is, as with its default."""
        opening = _open(part, self.openings)
        if opening is None:
            return (not part) is wanted
        unset = len(part) == 1 and opening.text == f"${opening.needs}"
        return wanted if unset and opening.needs not in self.values else None

    # Words

    def expand(self, word: str, *, splits: bool = True) -> list[str]:
        """Return the words that a word of the script becomes."""
        fields: list[str] = []
        current: list[str] = []
        started, at = False, 0
        while at < len(word):
            char = word[at]
            if ansi := ANSI_QUOTED.match(word, at):
                pieces, started, at = [unescaped(ansi[1])], True, ansi.end()
            elif char in "'\"":
                end = quote_end(word, at)
                inner = word[at + 1 : end]
                pieces = [inner] if char == "'" else self._quoted(inner)
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
        """Return whether a text is ``${LIST[@]}`` of a list without words, which is no word even in quotes."""
        found = re.fullmatch(rf"\$\{{({NAME})\[@\]\}}", text)
        return found is not None and self.values.get(found[1]) == []

    def _quoted(self, text: str) -> list[str]:
        """Return the words of a text inside of double quotes: one, but of ``"${LIST[@]}"``."""
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
        """Return what a substitution stands for: several words of a list."""
        if text.startswith("$((") and text.endswith("))"):
            return [self._arithmetic(text[3:-2])]
        inner = text[2:-1] if text.startswith("${") else text[1:]
        found = _EXPANSION.fullmatch(inner)
        if text[0] == "`" or found is None:
            return ["$"] if text == "$" else [self._opened(text)]
        length, name, index, rest = found.groups()
        value = self.values.get(name)
        if length:
            known = value is not None and not any(_open(v, self.openings) for v in _words(value))
            if isinstance(value, list) and index not in ("[@]", "[*]"):
                value = self._element(value, index, text)[0]
            return [str(len(value or ""))] if known else [self._opened(text, name)]
        if not isinstance(value, list):
            return [self._modified(value, name, rest, text)]
        if rest:
            return [self._opened(text, name)]
        return value if index in ("[@]", "[*]") else self._element(value, index, text)

    def _element(self, value: list[str], index: str | None, text: str) -> list[str]:
        number = (index or "[0]")[1:-1]
        if number.lstrip("-").isdigit() and -len(value) <= int(number) < len(value):
            return [value[int(number)]]
        return [self._opened(text)] if value else [""]

    def _modified(self, value: str | None, name: str, rest: str, text: str) -> str:
        """Return the value of a variable, changed as its expansion says."""
        if default := re.fullmatch(r"(:?)([-=+?])(.*)", rest, re.DOTALL):
            return self._defaulted(value, name, *default.groups())
        if value is None:
            return "" if name in self.assigned else self._opened(f"${name}", name)
        if rest in (",,", "^^"):
            return value.lower() if rest == ",," else value.upper()
        swapped = re.fullmatch(r"(//?)([\w.,:+-]+)/([\w.,:+-]*)", rest)
        if swapped and not _open(value, self.openings):
            self.budget.spend_characters(value.count(swapped[2]) * len(swapped[3]))
            return value.replace(swapped[2], swapped[3], -1 if swapped[1] == "//" else 1)
        return self._opened(text, name) if rest else value

    def _defaulted(self, value: str | None, name: str, colon: str, kind: str, raw: str) -> str:
        """Return the value of a variable, or what stands for it where it has none: ``${NAME:-default}``."""
        missing = value is None or (colon and value == "")
        if kind == "+":
            return "" if missing else self.expand(raw, splits=False)[0]
        if not missing:
            return value or ""
        if kind == "?":
            return self._opened(f"${name}", name)
        found = self.expand(raw, splits=False)[0]
        if kind == "=":
            self.values[name] = found
        return found

    def _arithmetic(self, text: str) -> str:
        """Return the value of an arithmetic expression of whole numbers."""
        put_in = "".join(self._quoted(text))
        if opening := _open(put_in, self.openings):
            return self._opened(f"$(({self._shown(put_in).strip()}))", opening.needs)
        self.budget.spend_tokens(put_in)
        try:
            return str(whole(put_in, self._number))
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, OverflowError):
            needs = next((n for n in re.findall(NAME, put_in) if n not in self.values), "")
            return self._opened(f"$(({put_in.strip()}))", needs)

    def _number(self, name: str) -> int:
        """Return a variable as a whole number; ValueError where it is none."""
        value = self.values.get(name)
        return int(value if isinstance(value, str) else "?")

    def _opened(self, text: str, needs: str = "") -> str:
        """Return a character for a value that is open."""
        one = Unresolved(_cut(text), needs)
        if one not in self.places:
            self.budget.spend_values(2)  # so that there are more characters than open values
            self.places[one] = len(self.openings)
            self.openings.append(one)
        return chr(FIRST_OPEN + self.places[one])

    def _open(self, word: str) -> Unresolved | None:
        return _open(word, self.openings)

    def _shown(self, word: str) -> str:
        opening = self._open(word)
        return word if opening is None else opening.text


def _assigned(body: Sequence[Statement]) -> Iterator[str]:
    """Yield the variables that statements set, of whatever branch: unset, these are empty and not the environment's.

    Those that are set to what they are, or to a default, are the environment's.
    """
    for one in body:
        if isinstance(one, Array):
            yield one.name
        elif isinstance(one, Simple):
            for word in one.words:
                found = _ASSIGNMENT.match(word)
                if found and found[1] not in _REFERENCE.findall(found[3]):
                    yield found[1]
        elif isinstance(one, Choice):
            for _, inside in one.branches:
                yield from _assigned(inside)
        else:
            yield from _assigned(one.body)


def _joined(operator: str, first: bool | None, second: bool | None) -> bool | None:
    """Return two conditions joined, each of which may be open."""
    if operator == "||":
        return True if first or second else None if None in (first, second) else False
    return False if first is False or second is False else None if None in (first, second) else True


def _words(value: str | list[str]) -> list[str]:
    return value if isinstance(value, list) else [value]


def _has_flags(values: Sequence[str | list[str]]) -> bool:
    return any(isinstance(one, list) or one.lstrip().startswith("--") for one in values)


def _parts(words: list[str], operator: str) -> Iterator[list[str]]:
    """Yield what is between operators."""
    for joins, part in groupby(words, operator.__eq__):
        if not joins:
            yield list(part)


def _listed(value: str | list[str]) -> list[str]:
    return value if isinstance(value, list) else value.split()
