"""Words and statements of a shell script, for the constructs in launch scripts: POSIX shell with bash arrays.

Words keep their quotes; :mod:`calculon.launch.texts.shell` expands them.
Source: IEEE Std 1003.1 (POSIX), *Shell Command Language*; GNU Bash manual, *Arrays*, *Here Strings*.
"""

import re
from collections.abc import Sequence, Set
from typing import NamedTuple

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.launch.texts.reading_budget import Budget, reading
from calculon.launch.texts.shell_quotes import ANSI_QUOTED, BRACKETS, after_bracket


@dataclass(frozen=True, slots=True)
class Simple:
    """A command: its words with their quotes, its line, and the ``text`` of a here document."""

    words: tuple[str, ...]
    line: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Array:
    """An assignment of a list: ``NAME=( ... )``, or ``NAME+=( ... )``, which appends."""

    name: str
    adds: bool
    words: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Choice:
    """Alternative statements, of which the first with a true condition runs: ``if``, ``case``, ``&&`` and ``||``.

    Each branch has the words of its condition; they are empty if it always holds.
    """

    branches: tuple[tuple[tuple[str, ...], "tuple[Statement, ...]"], ...]
    line: int


@dataclass(frozen=True, slots=True)
class Group:
    """Statements between braces."""

    body: "tuple[Statement, ...]"


@dataclass(frozen=True, slots=True)
class Subshell:
    """Statements between parentheses, whose assignments end with them."""

    body: "tuple[Statement, ...]"


@dataclass(frozen=True, slots=True)
class Function:
    """A function and its body."""

    name: str
    body: "tuple[Statement, ...]"


@dataclass(frozen=True, slots=True)
class Loop:
    """The body of a loop; ``for`` also has a variable and the words that it takes."""

    body: "tuple[Statement, ...]"
    variable: str = ""
    words: tuple[str, ...] = ()


Statement = Simple | Array | Choice | Group | Subshell | Function | Loop

SUCCEEDS = ("true",)
"""Condition of statements after a command that is assumed to succeed, as all are except :data:`_QUESTIONS`."""
_LONGEST_CONDITION = 100
"""Length in words from which a condition counts as open."""
_TESTS = {"[", "[[", "test", "true", "false"}
_QUESTIONS = {
    *("grep", "egrep", "fgrep", "pgrep", "command", "which", "type", "hash", "diff", "cmp", "read"),
    *("ls", "python", "python3", "nvidia-smi", "scontrol", "git", "pip", "ping", "curl"),
}
"""Commands whose failure is informative."""

_ENDS = re.compile(r"&&|\|\||;;|[;&|\n()]")
_BLANKS = re.compile(r"[ \t\r]+")
_PLAIN = re.compile(r"[^ \t\r\n;&|()<>\\'\"`$]+")
"""Characters without special meaning in a word."""

_RESERVED = {"then", "elif", "else", "fi", "do", "done", "esac", "}", ")", ";;"}
_ASSIGNS_ARRAY = re.compile(r"([A-Za-z_]\w*)(\+?)=\Z")
_REDIRECTS = re.compile(r"&>|\d*[<>]")
_REDIRECTION = re.compile(r"\d*(<<<|<<-|<<|&>>|&>|>>|>&|<&|>\||>|<)[ \t]*")


class _Token(NamedTuple):
    """A word or an operator; an array has words, a here document has a text."""

    text: str
    line: int
    operator: bool = False
    words: tuple[str, ...] | None = None


class _Lexer:
    """Tokenizer of a script."""

    def __init__(self, text: str, file: str, budget: Budget) -> None:
        self.text, self.file, self.budget = text, file, budget
        self.place, self.line = 0, 1
        self.in_test = False
        self.documents: list[tuple[str, bool, bool, int]] = []
        self.found: list[_Token] = []

    def tokens(self) -> list[_Token]:
        """Return all tokens."""
        while self.place < len(self.text):
            self._next()
        return self.found

    def _next(self) -> None:
        text, at = self.text, self.place
        # The order of these cases matters: redirections begin like operators, and (( like a subshell.
        if blanks := _BLANKS.match(text, at):
            self.place = blanks.end()
        elif text.startswith("\\\n", at):
            self.place, self.line = at + 2, self.line + 1
        elif text[at] == "#":
            end = text.find("\n", at)
            self.place = len(text) if end < 0 else end
        elif self.in_test and text[at] in "<>":
            self.found.append(_Token(text[at], self.line))
            self.place += 1
        elif _REDIRECTS.match(text, at):
            self._redirection()
        elif text.startswith("((", at) and (end := self._calculation_end(at)):
            self.found.append(_Token(text[at:end], self.line))
            self.line += text.count("\n", at, end)
            self.place = end
        elif operator := _ENDS.match(text, at):
            self.found.append(_Token(operator[0], self.line, operator=True))
            self.place = operator.end()
            if operator[0] == "\n":
                self.line += 1
                self._read_documents()
        else:
            self._word()

    def _word(self) -> None:
        self.budget.spend_values(1)
        line, start = self.line, self.place
        self.place = self._word_end(start)
        word = self.text[start : self.place]
        self.in_test = word == "[[" or (self.in_test and word != "]]")
        array = _ASSIGNS_ARRAY.fullmatch(word)
        if array and self.text.startswith("(", self.place):
            self.place += 1
            self.found.append(_Token(word, line, words=self._list()))
            return
        self.found.append(_Token(word.replace("\\\n", ""), line))

    def _list(self) -> tuple[str, ...]:
        """Read the words of an array up to its closing parenthesis."""
        words: list[str] = []
        while not self.text.startswith(")", self.place):
            if self.place >= len(self.text):
                raise self._open("(")
            before = len(self.found)
            self._next()
            words += [one.text for one in self.found[before:] if not one.operator]
            del self.found[before:]
        self.place += 1
        return tuple(words)

    def _word_end(self, at: int) -> int:
        """Return the position after the word that starts at a position."""
        text = self.text
        while at < len(text):
            char = text[at]
            if plain := _PLAIN.match(text, at):
                at = plain.end()
            elif char == "\\":
                self.line += text.startswith("\\\n", at)
                at += 2
            elif char in "'\"`" or text.startswith(("$(", "${", "$'"), at):
                end = self._closing(at)
                self.line += text.count("\n", at, end)
                at = end
            elif char in " \t\r\n;&|()<>":
                break
            else:
                at += 1
        return min(at, len(text))

    def _closing(self, at: int) -> int:
        """Return the position after a quoted part, a substitution, or an expansion."""
        text = self.text
        quote = text[at]
        if text.startswith("$'", at):
            if found := ANSI_QUOTED.match(text, at):
                return found.end()
            raise self._open("$'")
        if quote == "'":
            end = text.find("'", at + 1)
            if end < 0:
                raise self._open(quote)
            return end + 1
        closing = quote if quote in '"`' else BRACKETS[text[at + 1]]
        inner = at + (1 if quote in '"`' else 2)
        while inner < len(text) and text[inner] != closing:
            if text[inner] == "\\":
                inner += 2
            elif text.startswith(("$(", "${"), inner) or (
                text[inner] in "'\"`" and (closing != '"' or text[inner] == "`")
            ):
                inner = self._closing(inner)
            elif closing == ")" and text[inner] == "(":
                inner = self._parenthesis(inner)
            elif closing == ")" and text[inner] == "#" and text[inner - 1].isspace():
                end = text.find("\n", inner)
                inner = len(text) if end < 0 else end
            else:
                inner += 1
        if inner >= len(text):
            raise self._open(text[at : at + 2].strip())
        return inner + 1

    def _parenthesis(self, at: int) -> int:
        """Return the position after a parenthesis inside a substitution."""
        if end := after_bracket(self.text, at):
            return end
        raise self._open("(")

    def _calculation_end(self, at: int) -> int:
        """Return the position after ``(( ... ))``; 0 if it has no end."""
        end = after_bracket(self.text, at)
        self.budget.spend_characters((end or len(self.text)) - at)
        return end if self.text.endswith("))", at, end) else 0

    def _redirection(self) -> None:
        """Skip a redirection and its target; record a here document."""
        found = _REDIRECTION.match(self.text, self.place)
        assert found
        self.place = end = found.end()
        self.place = self._word_end(end)
        word = self.text[end : self.place]
        if found[1] in ("<<", "<<-"):
            name = re.sub(r"[\\'\"]", "", word)
            self.documents.append((name, name != word, found[1] == "<<-", len(self.found)))
            self.found.append(_Token("<<", self.line, words=("",)))

    def _read_documents(self) -> None:
        """Read the here documents that begin on this line."""
        for name, quoted, tabs, place in self.documents:
            lines = []
            while self.place < len(self.text):
                end = self.text.find("\n", self.place)
                end = len(self.text) if end < 0 else end
                line = self.text[self.place : end]
                self.place, self.line = end + 1, self.line + 1
                if (line.lstrip("\t") if tabs else line) == name:
                    break
                lines.append(re.sub(r"([\\$`])", r"\\\1", line) if quoted else line)
            # Here documents inside a list are ignored.
            if place < len(self.found) and self.found[place].text == "<<":
                self.found[place] = _Token("<<", self.found[place].line, words=("\n".join(lines),))
        self.documents.clear()

    def _open(self, what: str) -> SpecError:
        place = f"{self.file}:{self.line}"
        return SpecError(place, Problem("", f"a closing mark for {what}", "the end of the file"))


class _Grammar:
    """Parser of tokens to statements."""

    def __init__(self, tokens: Sequence[_Token], budget: Budget) -> None:
        self.tokens, self.at, self.budget = tokens, 0, budget
        self.functions: set[str] = set()

    def body(self, *ends: str) -> tuple[Statement, ...]:
        """Read statements up to one of several reserved words, which is not consumed, or to the end."""
        found: list[Statement] = []
        while (token := self._token()) is not None:
            if token.text in ends:
                break
            if (token.operator or token.text in _RESERVED) and token.text != "(":
                self.at += 1
                continue
            found += self._and_or()
        return tuple(found)

    def _token(self) -> _Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def _is(self, *texts: str) -> bool:
        token = self._token()
        return token is not None and token.text in texts

    def _and_or(self) -> list[Statement]:
        """Read statements joined by ``&&``, ``||`` and ``|``; the first two depend on the statement before them."""
        first = self._statement()
        status = _status(first, self.functions)
        result: list[Statement] = [first]
        if _is_test(first) and self._is("&&", "||"):
            result.clear()  # the test becomes the condition of the following statements
        while self._is("&&", "||", "|"):
            operator, line = self.tokens[self.at].text, self.tokens[self.at].line
            self.at += 1
            while self._is("\n"):
                self.at += 1
            following = self._statement()
            own = _status(following, self.functions)
            self.budget.spend_values(len(status))
            if operator == "|":  # each side of a pipe is a separate process
                result[-1:] = [
                    one if isinstance(one, Simple) else Subshell((one,))
                    for one in (*result[-1:], following)
                ]
                status = own
                continue
            _add_branch(result, status if operator == "&&" else _negated(status), following, line)
            status = _joined_status(status, operator, own)
            # Chains of && and || repeat earlier conditions, so their length would grow quadratically.
            if len(status) > _LONGEST_CONDITION:
                status = ("$?",)
        return result

    def _statement(self) -> Statement:
        token = self._token()
        if token is None:
            return Group(())
        readers = {"if": self._if, "case": self._case, "for": self._for}
        readers |= {
            "while": self._while,
            "until": self._while,
            "{": self._braces,
            "(": self._subshell,
        }
        readers["function"] = self._function
        if token.words is None and token.text in readers:
            self.at += 1
            return readers[token.text](token.line)
        return self._simple()

    def _expect(self, text: str) -> None:
        if self._is(text):
            self.at += 1

    def _condition(self, end: str) -> tuple[str, ...]:
        """Return the words of a condition, including its operators."""
        start = self.at
        while (token := self._token()) is not None and not (
            token.text == end and self.tokens[self.at - 1].text in (";", "\n", ")")
        ):
            self.at += 1
        tokens = self.tokens[start : self.at]
        self._expect(end)
        words = [token.text for token in tokens]
        while words and words[-1] in (";", "\n"):
            words.pop()
        return tuple(words)

    def _if(self, line: int) -> Statement:
        branches = []
        condition = self._condition("then")
        while True:
            branches.append((condition, self.body("elif", "else", "fi")))
            if not self._is("elif"):
                break
            self.at += 1
            condition = self._condition("then")
        if self._is("else"):
            self.at += 1
            branches.append(((), self.body("fi")))
        self._expect("fi")
        return Choice(tuple(branches), line)

    def _case(self, line: int) -> Statement:
        subject = self.tokens[self.at].text if self._token() else ""
        self.at += 1
        while self._is("in", "\n"):
            self.at += 1
        branches: list[tuple[tuple[str, ...], tuple[Statement, ...]]] = []
        while (token := self._token()) is not None and token.text != "esac":
            if token.text in ("\n", ";;", "(", ";"):
                self.at += 1
                continue
            patterns = []
            while (token := self._token()) is not None and token.text != ")":
                patterns.append(token.text)
                self.at += 1
            self.at += 1
            words = ("case", subject, *(one for one in patterns if one != "|"))
            branches.append((() if "*" in patterns else words, self.body(";;", "esac")))
        self._expect("esac")
        return Choice(tuple(branches), line)

    def _for(self, _line: int) -> Statement:
        variable = self.tokens[self.at].text if self._token() else ""
        words = [one for one in self._condition("do") if one not in (";", "\n")]
        return Loop(self._loop(), variable, tuple(words[2:]))

    def _while(self, _line: int) -> Statement:
        self._condition("do")
        return Loop(self._loop())

    def _loop(self) -> tuple[Statement, ...]:
        body = self.body("done")
        self._expect("done")
        return body

    def _braces(self, _line: int) -> Statement:
        body = self.body("}")
        self._expect("}")
        return Group(body)

    def _subshell(self, _line: int) -> Statement:
        body = self.body(")")
        self._expect(")")
        return Subshell(body)

    def _function(self, _line: int) -> Statement:
        name = self.tokens[self.at].text if self._token() else ""
        self.at += 1
        return self._function_named(name)

    def _simple(self) -> Statement:
        first = self.tokens[self.at]
        words: list[str] = []
        text = ""
        while (token := self._token()) is not None:
            in_test = "[[" in words[:2] and words[-1] != "]]"  # inside [[ ]], && and ( are words
            if token.operator and not in_test:
                break
            self.at += 1
            if token.text == "<<" and token.words is not None:
                text = token.words[0]
            elif token.words is not None and (found := _ASSIGNS_ARRAY.fullmatch(token.text)):
                return Array(found[1], found[2] == "+", token.words, token.line)
            else:
                words.append(token.text)
        if len(words) == 1 and self._is("(") and self._follows(")"):
            return self._function_named(words[0])
        if not words and self.at < len(self.tokens):
            self.at += self.tokens[self.at] is first
        return Simple(tuple(words), first.line, text)

    def _follows(self, text: str) -> bool:
        return self.at + 1 < len(self.tokens) and self.tokens[self.at + 1].text == text

    def _function_named(self, name: str) -> Statement:
        self.functions.add(name)
        while self._is("(", ")", "\n"):
            self.at += 1
        return Function(name, (self._statement(),))


def split_condition(words: Sequence[str]) -> tuple[list[list[str]], list[str]]:
    """Return the tests of a condition, and the operators between them outside ``[[ ]]``."""
    tests: list[list[str]] = [[]]
    operators = []
    for word in words:
        inside = "[[" in tests[-1] and tests[-1][-1] != "]]"
        if word in ("&&", "||", ";") and not inside:
            operators.append(word)
            tests.append([])
        else:
            tests[-1].append(word)
    return tests, operators


def _is_test(statement: Statement) -> bool:
    """Return true for a statement that only tests a condition."""
    words = statement.words if isinstance(statement, Simple) else ()
    first = next((word for word in words if word != "!"), "")
    return first in _TESTS or first.startswith("((")


def _status(statement: Statement, functions: Set[str]) -> tuple[str, ...]:
    """Return the condition under which a statement succeeds."""
    if isinstance(statement, Simple):
        first = next((word for word in statement.words if word != "!"), "")
        if first in _QUESTIONS or first in functions or _is_test(statement):
            return statement.words
        if statement.words[:1] == ("!",):
            return ("!", *SUCCEEDS)
    if isinstance(statement, Group | Subshell) or (
        isinstance(statement, Simple) and statement.words[:1] and statement.words[0][:1] == "$"
    ):
        return ("$?",)
    return SUCCEEDS


def _negated(condition: tuple[str, ...]) -> tuple[str, ...]:
    """Return the negation of a condition: each test negated, and ``&&`` and ``||`` exchanged."""
    tests, operators = split_condition(condition)
    opposites = [test[1:] if test[0] == "!" else ["!", *test] for test in tests]
    words = list(opposites[0])
    for operator, test in zip(operators, opposites[1:], strict=True):
        words += ["||" if operator == "&&" else "&&", *test]
    return tuple(words)


def _joined_status(
    first: tuple[str, ...], operator: str, second: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the condition under which two joined statements succeed."""
    if first == SUCCEEDS:
        return second if operator == "&&" else first
    if second == SUCCEEDS:
        return first if operator == "&&" else second
    return (*first, operator, *second)


def _add_branch(
    statements: list[Statement], condition: tuple[str, ...], following: Statement, line: int
) -> None:
    """Add a conditional statement, to the branches of the preceding choice if the conditions match."""
    last = statements[-1] if statements else None
    if condition == SUCCEEDS:
        statements.append(following)
    elif isinstance(last, Choice) and last.branches[0][0] == condition:
        (_, body), *others = last.branches
        statements[-1] = Choice(((condition, (*body, following)), *others), last.line)
    elif isinstance(last, Choice) and _negated(last.branches[0][0]) == condition:
        statements[-1] = Choice((last.branches[0], ((), (following,))), last.line)
    else:
        statements.append(Choice(((condition, (following,)),), line))


def statements(text: str, file: str) -> tuple[Statement, ...]:
    """Return the statements of a script.

    Args:
        text, file: Script, and its name for messages.

    Raises:
        SpecError: For a quotation, list or expansion without an end.
    """
    with reading(file) as budget:
        tokens = _Lexer(text.replace("\r\n", "\n"), file, budget).tokens()
        return _Grammar(tokens, budget).body()
