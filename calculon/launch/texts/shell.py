"""Commands that a shell script would run, found without running anything.

The reader expands variables, lists, defaults and whole-number arithmetic, and decides conditions on known values.
Values that depend on the environment, or vary between iterations of a loop, stay open: each is a private-use character
within a word, which :attr:`Script.open` explains. Commands are assumed to succeed, except those that test something.
Functions run when they are called; functions that nothing calls run at the end, for their commands only.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from itertools import groupby

from calculon.base.frozen import dataclass
from calculon.launch.dialect import Unresolved
from calculon.launch.texts.reading_budget import Budget, reading
from calculon.launch.texts.shell_arithmetic import alike, comparison_result, literal
from calculon.launch.texts.shell_expansion import OPEN_CHARACTER, Expansion, open_in, words_of
from calculon.launch.texts.shell_quotes import NAME, split
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

_ASSIGNMENT = re.compile(rf"({NAME})(\+?)=(.*)", re.DOTALL)
_REFERENCE = re.compile(rf"\$\{{?({NAME})")
_DECLARES = ("export", "declare", "local", "readonly", "typeset")
_ELEMENT = re.compile(rf"({NAME})\[[^\]]*\]\+?=")
_INDEXED = re.compile(r"\[[^\]]*\]=")
_SETS = ("set", "shift", "unset", "let", "read", "mapfile", "readarray", "getopts", "printf")
"""Commands that set variables."""
_IN_FOLDER = re.compile(
    r"""["']?(?:\$\(dirname "?\$\{?BASH_SOURCE(?:\[0\])?\}?"?\)/|\./)?([\w.-]+)["']?"""
)
"""Name of a file in the folder of the script, as the argument of ``source``."""
_RUN_DOCUMENTS = ("sbatch", "bash", "sh")
"""Commands that run a here document."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command with all of its words, and its line."""

    words: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class Script:
    """Result of reading a script.

    Attributes:
        commands: Commands in order, including commands of undecided branches.
        variables: Values of variables at the end.
        sourced: Other files that the script sources and that were not read.
    """

    commands: tuple[Command, ...]
    variables: Mapping[str, str | list[str]]
    sourced: tuple[str, ...]
    openings: Sequence[Unresolved] = field(default_factory=tuple, repr=False)

    def open(self, word: str) -> Unresolved | None:
        """Return the open value in a word, as the script spells it; None if all of the word is known."""
        return open_in(word, self.openings)

    def resplit(self, word: str) -> list[str]:
        """Split a command that is passed as one word, as after ``bash -c``."""
        return split(word, comments=True)


Source = Callable[[str], str | None]
"""Function from the name of a file in the folder of a script to its text; None if it is not read."""


def run(
    text: str, file: str, given: Mapping[str, str], source: Source = lambda name: None
) -> Script:
    """Return the commands that a script would run.

    Args:
        text, file: Script, and its name.
        given: Values of variables that override the script's assignments.
        source: Function that returns the texts of files that the script sources from its folder.

    Raises:
        SpecError: For a quotation, list or expansion without an end, and for a script that exceeds the budget.
    """
    with reading(file) as budget:
        # Private-use characters mark open values, so the script's own ones must go.
        body = statements(OPEN_CHARACTER.sub("\N{REPLACEMENT CHARACTER}", text), file)
        shell = _Shell(given, frozenset(_assigned(body)), budget, source)
        shell.run_all(body)
    return Script(tuple(shell.commands), shell.values, tuple(shell.sourced), shell.openings)


class _Ended(Exception):
    """Raised by ``exit``, ``return``, ``break``, ``continue`` or ``exec``; the first two have a status."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.failed = status not in ("", "0")


class _Shell(Expansion):
    """State of a running script."""

    def __init__(
        self, given: Mapping[str, str], assigned: frozenset[str], budget: Budget, source: Source
    ) -> None:
        super().__init__(given, assigned, budget)
        self.source = source
        self.given = frozenset(given)
        self.commands: list[Command] = []
        self.sourced: list[str] = []
        self.functions: dict[str, Function] = {}
        self.called: set[str] = set()
        self.locals: list[dict[str, str | list[str] | None]] = []

    # Statements

    def run_all(self, body: Sequence[Statement]) -> None:
        """Run a script, and then the functions that it does not call, for their commands only."""
        self.execute_apart(body)
        for name in [name for name in self.functions if name not in self.called]:
            # Uncalled functions may contain the training command, but must not change variables.
            values = dict(self.values)
            self.execute_apart(self.functions[name].body)
            self.values = values

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
                # Explicit indices may leave gaps, so the elements' order is not known.
                if any(_INDEXED.match(word) for word in one.words):  # [3]=x
                    words = [self.opened(f"${{{one.name}[@]}}", one.name)]
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
                self.functions[one.name] = one
            else:
                self.execute(one.body)

    def execute_apart(self, body: Sequence[Statement]) -> None:
        """Run statements whose ``exit`` or ``return`` ends only these statements."""
        with suppress(_Ended):
            self.execute(body)

    def _call(self, words: Sequence[str]) -> None:
        """Run a function with arguments; its local variables and arguments end with it."""
        name, *arguments = words
        self.called.add(name)
        self.budget.spend_values(len(self.values))
        positions = {key: value for key, value in self.values.items() if not key.isidentifier()}
        for key in positions:
            del self.values[key]
        self._set_arguments(arguments)
        self.locals.append({})
        self.execute_apart(self.functions[name].body)
        outside = {key: value for key, value in self.values.items() if key.isidentifier()}
        for key, value in self.locals.pop().items():
            outside.pop(key, None)
            if value is not None:
                outside[key] = value
        self.values = outside | positions

    def _set_arguments(self, words: list[str]) -> None:
        """Set ``$1`` and so on, ``$#`` and ``$@``."""
        self.values |= {str(number): word for number, word in enumerate(words, 1)}
        self.values |= {str(number): "" for number in range(len(words) + 1, 10)}
        self.values |= {"#": str(len(words)), "@": words, "*": words}

    def _loop(self, loop: Loop) -> None:
        """Run the body once; variables that further iterations change are open, in the body and after it."""
        passes, sure = 2, False
        self.calculate(loop.variable)  # for ((i=0; i<n; i++))
        if loop.variable and not loop.variable.startswith("(("):
            words = [part for word in loop.words for part in self._range(word)]
            shown = " or ".join(dict.fromkeys(map(self.shown, words)))
            sure = bool(words) and not any(re.search(r"[*?]", w) or self.open(w) for w in words)
            passes = len(words) if sure else 2
            self.values[loop.variable] = (
                words[0]
                if len(words) == 1
                else self.opened(shown or f"${loop.variable}", loop.variable)
            )
        before, commands, sourced = dict(self.values), len(self.commands), len(self.sourced)
        self.execute_apart(loop.body)
        if passes == 1:
            return
        # A second iteration reveals variables that depend on the iteration; more iterations reveal no others.
        once = dict(self.values)
        changed = self._changed_again(loop.body)
        self.values = once
        if changed:
            del self.commands[commands:], self.sourced[sourced:]
            self.values = before | changed
            self.execute_apart(loop.body)
        if not sure:  # the loop may have no iteration
            self.values = self._merged([self.values, before], ("a loop",))
        self.values |= changed

    def _range(self, word: str) -> list[str]:
        """Return the words of ``for`` that a word expands to; numbers for ``{1..8}``."""
        found = re.fullmatch(r"\{(\d{1,4})\.\.(\d{1,4})\}", word)
        if not found:
            return self.expand(word)
        numbers = [str(number) for number in range(int(found[1]), int(found[2]) + 1)]
        self.budget.spend_values(len(numbers))
        return numbers

    def _changed_again(self, body: Sequence[Statement]) -> dict[str, str | list[str]]:
        """Run the body of a loop again without its commands; return the variables that this changes, as open values."""
        once, commands, sourced = dict(self.values), self.commands, self.sourced
        self.budget.spend_values(len(once))
        self.commands, self.sourced = [], []
        self.execute_apart(body)
        self.commands, self.sourced = commands, sourced
        changed: dict[str, str | list[str]] = {}
        for name, value in self.values.items():
            first = once.get(name, "")
            both_open = all(any(map(self.open, words_of(one))) for one in (first, value))
            if value == first or both_open:
                continue
            if _has_flags([first, value]):
                changed[name] = self._merged_lists([_listed(first), _listed(value)], "in a loop")
            else:
                shown = f"{self.shown(str(first))}, {self.shown(str(value))}, ..."
                changed[name] = self.opened(f"{shown} in a loop")
        return changed

    def _simple(self, one: Simple) -> None:
        words = list(one.words)
        if words and words[0] in _DECLARES:
            is_local = words[0] in ("local", "declare", "typeset") and bool(self.locals)
            words = [word for word in words[1:] if not word.startswith("-")]
            for word in words:
                if is_local:
                    name = word.partition("=")[0]
                    self.locals[-1].setdefault(name, self.values.get(name))
                if found := _ASSIGNMENT.match(word):
                    self._assign(found)
            return
        while words and (found := _ASSIGNMENT.match(words[0])):
            self._assign(found)
            words.pop(0)
        if not words:
            return
        if words[0].startswith("(("):
            self.calculate(words[0])
        elif words[0] in ("source", "."):
            self._source(words[1:2])
        elif words[0] == "read" and one.text:
            self.values[words[-1]] = " ".join(self.quoted(one.text))
        elif words[0] in _SETS:
            self._set_by_command(words)
        elif words[0] in _RUN_DOCUMENTS and one.text:
            document = " ".join(self.quoted(one.text))
            self.budget.spend_characters(len(document))
            self.execute_apart(statements(document, words[0]))
        else:
            self._command(words, one.line)

    def _source(self, words: Sequence[str]) -> None:
        """Run a sourced file of the script's folder; record a file that is not read."""
        for word in words:
            found = _IN_FOLDER.fullmatch(word)
            text = self.source(found[1]) if found else None
            if found is None or text is None:
                self.sourced.append(self.shown(" ".join(self.expand(word))))
                continue
            body = statements(OPEN_CHARACTER.sub("\N{REPLACEMENT CHARACTER}", text), found[1])
            self.assigned |= frozenset(_assigned(body))
            self.execute_apart(body)

    def _command(self, words: Sequence[str], line: int) -> None:
        fields = [part for word in words for part in self.expand(word)]
        if fields[:1] == ["eval"]:
            fields = split(" ".join(fields[1:]))
            while fields and (found := _ASSIGNMENT.match(fields[0])):
                self._assign(found)
                fields.pop(0)
        if fields and fields[0] in self.functions:
            self._call(fields)
            return
        if fields and (found := _ELEMENT.match(fields[0])):
            self.values[found[1]] = [self.opened(fields[0])]
            return
        if fields:
            self.commands.append(Command(tuple(fields), line))
        if fields[:1] in (["exit"], ["return"], ["break"], ["continue"]):
            raise _Ended("".join(fields[1:2]))
        if fields[:1] == ["exec"] and len(fields) > 1:
            raise _Ended("")

    def _set_by_command(self, words: Sequence[str]) -> None:
        """Mark variables that a command sets as open, or remove them."""
        names = [word for word in words[1:] if word.isidentifier()]
        if words[0] == "set":
            if words[1:2] == ["--"]:
                self._set_arguments([part for word in words[2:] for part in self.expand(word)])
        elif words[0] == "shift":
            if isinstance(known := self.values.get("@"), list):
                self._set_arguments(
                    known[int(words[1]) if words[1:] and words[1].isdecimal() else 1 :]
                )
        elif words[0] == "unset":
            for name in names:
                self.values.pop(name, None)
        elif words[0] == "let":
            self.calculate(" ".join(word.strip("'\"") for word in words[1:]))
        elif words[0] in ("mapfile", "readarray"):
            self.values |= {name: [self.opened(" ".join(words))] for name in names[-1:]}
        elif words[0] != "printf" or "-v" in words:
            chosen = names[:1] if words[0] == "printf" else names
            self.values |= {name: self.opened(f"${name}", name) for name in chosen}

    def _assign(self, match: re.Match[str]) -> None:
        name, adds, raw = match.groups()
        if name in self.given:
            return  # given values override the script's assignments
        value = " ".join(self.expand(raw, splits=False))
        before = self.values.get(name, "") if adds else ""
        self.budget.spend_characters(len(value) + sum(map(len, before)))
        if isinstance(before, list):
            self.values[name] = [(before or [""])[0] + value, *before[1:]]
        else:
            self.values[name] = before + value

    # Conditions

    def _choose(self, choice: Choice) -> None:
        """Run the branch whose condition holds; if undecided, run all possible branches and keep common values."""
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
                # A script that checks for something and fails without it is read as if the check succeeded.
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
        """Return the values of variables after branches of which only one runs."""
        text = self.shown(
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
                shown = dict.fromkeys(self.shown(str(v)) or "nothing" for v in values)
                merged[name] = self.opened(" or ".join(shown), needs)
        return merged

    def _merged_lists(self, lists: Sequence[list[str]], text: str, needs: str = "") -> list[str]:
        """Return the common leading words of lists, followed by all other flags, each marked as open."""
        # Branches usually append flags to a common list: only the tails differ.
        common = []
        for words in zip(*lists, strict=False):
            if len(set(words)) > 1:
                break
            common.append(words[0])
        open_flag = self.opened(text, needs)
        rest = [word for words in lists for word in words[len(common) :] if word.startswith("-")]
        return [*common, *(f"{word.partition('=')[0]}{open_flag}" for word in dict.fromkeys(rest))]

    def holds(self, words: Sequence[str]) -> bool | None:
        """Return the value of a condition; None if it is open."""
        if words[0] == "case":
            subject = "".join(self.expand(words[1], splits=False))
            if self.open(subject):
                return None
            patterns = (
                literal("".join(self.expand(word, splits=False)), word) for word in words[2:]
            )
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
            value = self.arithmetic(words[0][2:-2])
            found = None if self.open(value) else value != "0"
        elif words[:1] == ["[["]:
            found = self._either([word for word in words[1:] if word != "]]"])
        elif words and words[0] in ("[", "test"):
            found = self._compared([word for word in words[1:] if word != "]"], patterns=False)
        else:
            found = {"true": True, "false": False}.get(words[0] if len(words) == 1 else "")
        return (not found) if negated and found is not None else found

    def _either(self, words: list[str]) -> bool | None:
        """Return the value of a condition in ``[[ ]]``; None for conditions in parentheses."""
        if "(" in words:
            return None
        result: bool | None = False
        for part in _parts(words, "||"):
            both: bool | None = True
            for one in _parts(part, "&&"):
                both = _joined("&&", both, self._compared(one))
            result = _joined("||", result, both)
        return result

    def _compared(self, words: list[str], *, patterns: bool = True) -> bool | None:
        if words[:1] == ["!"]:
            found = self._compared(words[1:], patterns=patterns)
            return None if found is None else not found
        parts = ["".join(self.expand(word, splits=False)) for word in words]
        if (
            len(parts) == 2
            and words[0] == "-n"
            and not (patterns or parts[1] or words[1][0] in "'\"")
        ):
            return True  # [ -n $EMPTY ] has the only word -n, which is not empty
        if len(parts) == 2 and words[0] in ("-z", "-n"):
            return self._empty(parts[1], words[0] == "-z")
        if any(self.open(part) for part in parts) or len(parts) not in (1, 3):
            return None
        if len(parts) == 1:
            return bool(parts[0])
        second = literal(parts[2], words[2] if patterns else "''")
        return comparison_result(parts[0], words[1], second, self.budget)

    def _empty(self, part: str, wanted: bool) -> bool | None:
        """Return true if a text is empty (or not); a variable that nothing sets is empty, as its default would be."""
        opening = self.open(part)
        if opening is None:
            return (not part) is wanted
        unset = len(part) == 1 and opening.text == f"${opening.needs}"
        return wanted if unset and opening.needs not in self.values else None


def _assigned(body: Sequence[Statement]) -> Iterator[str]:
    """Yield the variables that statements set in any branch: while unset, these are empty and not the environment's.

    Variables that are set to themselves, or to a default, come from the environment.
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
    """Return two conditions joined by an operator, each of which may be open."""
    if operator == "||":
        return True if first or second else None if None in (first, second) else False
    return False if first is False or second is False else None if None in (first, second) else True


def _has_flags(values: Sequence[str | list[str]]) -> bool:
    return any(isinstance(one, list) or one.lstrip().startswith("--") for one in values)


def _parts(words: list[str], operator: str) -> Iterator[list[str]]:
    """Yield the words between operators."""
    for joins, part in groupby(words, operator.__eq__):
        if not joins:
            yield list(part)


def _listed(value: str | list[str]) -> list[str]:
    return value if isinstance(value, list) else value.split()
