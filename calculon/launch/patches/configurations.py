"""Configuration languages: positions of settings in YAML, TOML, JSON and Python, and the form of new settings."""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from calculon.launch.patches.entries import ARGUMENT, Entry, Names
from calculon.launch.texts import yaml_config
from calculon.launch.texts.python_syntax import parsed

_QUOTES = ("'", '"')
_ARGUMENTS = re.compile(r"^#[ \t]*arguments of the training script:.*$", re.MULTILINE)
_ARGUMENT = re.compile(r"--(\w+)[ =](\S+)")


class Yaml:
    """YAML, with arguments of the training script in comments."""

    def entries(self, text: str) -> list[Entry]:
        """Return the settings of a text in order."""
        import yaml  # imported late: it costs start-up time

        result = list(_in_yaml(yaml.compose(text, Loader=yaml.SafeLoader), text, ()))
        for line in _ARGUMENTS.finditer(text):
            for one in _ARGUMENT.finditer(line[0]):
                start, value = line.start() + one.start(), one.span(2)
                span = (line.start() + value[0], line.start() + value[1])
                result.append(Entry((one[1],), start, span, before=ARGUMENT))
        return result

    def value(self, value: Any, old: str) -> str:
        """Return a value as it is written in place of an old one."""
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(self.value(one, '') for one in value)}]"
        if old.startswith("_target_"):  # a torch type
            return re.sub(r"torch\.\w+", f"torch.{value}", old)
        if value is None or isinstance(value, bool):
            return {None: "null", True: "true", False: "false"}[value]
        text = str(value)
        quote = old[:1] if old[:1] in _QUOTES else "'"
        # Quotes are needed if YAML would read the text as another value, such as ``no`` or ``1e5``.
        plain = yaml_config.plain(text) == value and re.fullmatch(r"[\w.+/-]+", text)
        return text if plain and old[:1] not in _QUOTES else f"{quote}{text}{quote}"

    def entry(self, name: str, value: Any, indent: str) -> str:
        """Return a new setting."""
        if not isinstance(value, Mapping):
            return f"{name}: {self.value(value, '')}"
        lines = yaml_config.yaml_lines({name: value}, lambda one: self.value(one, ""))
        return f"\n{indent}".join(lines)

    def section(self, path: Names, value: Any, text: str) -> Iterator[str]:
        """Yield a text with an argument of the training script added to its comment."""
        if not path[0].startswith(ARGUMENT):
            return
        argument = f"{path[0]} {self.value(value, '')}"
        if found := _ARGUMENTS.search(text):
            yield f"{text[: found.end()]} {argument}{text[found.end() :]}"
        else:
            yield f"# arguments of the training script: {argument}\n{text}"


def _in_yaml(node: Any, text: str, above: Names) -> Iterator[Entry]:
    """Yield the settings of a mapping, and of nested mappings."""
    # Elements of lists have no names, so settings inside lists cannot be addressed.
    if node is None or node.id != "mapping":
        return
    for key, below in node.value:
        path = (*above, str(key.value))
        start, end = below.start_mark.index, below.end_mark.index
        if below.id != "scalar" and not below.flow_style:
            end = _trimmed(text, start, end)
        if start >= key.end_mark.index:  # otherwise an alias, whose value is written elsewhere
            yield Entry(path, key.start_mark.index, (start, end), bool(node.flow_style))
        yield from _in_yaml(below, text, path)


def _trimmed(text: str, start: int, end: int) -> int:
    """Return the end of a block without trailing blank lines and comments."""
    lines = text[start:end].split("\n")
    while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    return start + len("\n".join(lines).rstrip())


class Json:
    """JSON."""

    def entries(self, text: str) -> list[Entry]:
        """Return the settings of a text in order."""
        result: list[Entry] = []
        _in_json(text, _blank(text, 0), (), result)
        return result

    def value(self, value: Any, old: str) -> str:
        """Return a value as it is written."""
        del old
        return json.dumps(value)

    def entry(self, name: str, value: Any, indent: str) -> str:
        """Return a new setting."""
        del indent
        return f"{json.dumps(name)}: {json.dumps(value)}"

    def section(self, path: Names, value: Any, text: str) -> Iterator[str]:
        """Yield nothing: every setting of an object has a neighbor to insert it at."""
        del path, value, text
        yield from ()


_BLANK = re.compile(r"[ \t\r\n]*")


def _blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _in_json(text: str, at: int, above: Names, entries: list[Entry]) -> int:
    """Add the settings of the value at a position; return the position after it."""
    decoder = json.JSONDecoder()
    if not text.startswith("{", at):
        return decoder.raw_decode(text, at)[1]
    at = _blank(text, at + 1)
    while not text.startswith("}", at):
        start = at
        name, at = decoder.raw_decode(text, at)
        at = _blank(text, _blank(text, at) + 1)
        place = len(entries)
        end = _in_json(text, at, (*above, str(name)), entries)
        entries.insert(place, Entry((*above, str(name)), start, (at, end), comma=True))
        at = _blank(text, end)
        if text.startswith(",", at):
            at = _blank(text, at + 1)
    return at + 1


class Toml:
    """TOML with one setting per line."""

    def entries(self, text: str) -> list[Entry]:
        """Return the settings of a text in order."""
        result: list[Entry] = []
        section: Names = ()
        for line in _TOML_LINE.finditer(text):
            if line["section"]:
                section = tuple(line["section"].replace('"', "").split("."))
            else:
                path = (*section, *line["name"].replace('"', "").split("."))
                result.append(Entry(path, line.start("name"), line.span("value")))
        return result

    def value(self, value: Any, old: str) -> str:
        """Return a value as it is written."""
        if isinstance(value, str) and old.startswith("'"):
            return f"'{value}'"
        return json.dumps(value)

    def entry(self, name: str, value: Any, indent: str) -> str:
        """Return a new setting."""
        del indent
        return f"{name} = {self.value(value, '')}"

    def section(self, path: Names, value: Any, text: str) -> Iterator[str]:
        """Yield a text with a new section at its end."""
        if len(path) > 1:
            head = f"[{'.'.join(path[:-1])}]"
            yield f"{text.rstrip()}\n\n{head}\n{self.entry(path[-1], value, '')}\n"


_TOML_LINE = re.compile(
    r"""^[ \t]*(?:\[[ \t]*(?P<section>[\w."-]+)[ \t]*\]|(?P<name>[\w."-]+)[ \t]*=[ \t]*"""
    r"""(?P<value>"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|\[[^\n]*\]|[^#\n]*?)[ \t]*(?:\#[^\n]*)?$)""",
    re.MULTILINE,
)


class Python:
    """Python: keyword arguments, keys of dictionaries, attributes and constants."""

    def entries(self, text: str) -> list[Entry]:
        """Return the settings of a text in order."""
        return sorted(_InPython(text).found, key=lambda one: one.start)

    def value(self, value: Any, old: str) -> str:
        """Return a value as it is written."""
        if old.startswith("torch."):
            return f"torch.{value}"
        if isinstance(value, str) and not old.startswith("'"):
            return json.dumps(value)
        return repr(value)

    def entry(self, name: str, value: Any, indent: str) -> str:
        """Return a new setting: an attribute, a keyword argument, or a key of a dictionary."""
        del indent
        if isinstance(value, Mapping):
            (below, inner), *_ = value.items()
            return self.entry(f"{name}.{below}", inner, "") if "." in name else ""
        if name.startswith('"'):
            return f'{name}": {self.value(value, "")}'
        between = " = " if "." in name else "="
        return f"{name}{between}{self.value(value, '')}"

    def section(self, path: Names, value: Any, text: str) -> Iterator[str]:
        """Yield nothing: sections are created by code whose form cannot be guessed."""
        del path, value, text
        yield from ()


class _InPython:
    """Finder of the settings in a Python file."""

    def __init__(self, text: str) -> None:
        self.text, self.found = text, list[Entry]()
        self.starts = [0]
        for line in text.split("\n"):
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.visit(parsed(text, ""), ())

    def place(self, line: int, column: int) -> int:
        """Return the position in the text of a line and a column in bytes."""
        start = self.starts[line - 1]
        ahead = self.text[start : self.starts[line]].encode()[:column]
        return start + len(ahead.decode())

    def add(self, path: Names, node: Any, value: ast.expr, before: str, *, comma: bool) -> None:
        """Add a setting, and the settings in its value."""
        end = self.place(value.end_lineno or value.lineno, value.end_col_offset or 0)
        span = (self.place(value.lineno, value.col_offset), end)
        refers = value.id if isinstance(value, ast.Name) else ""
        start = self.place(node.lineno, node.col_offset)
        self.found.append(Entry(path, start, span, comma, before=before, refers=refers))
        self.visit(value, path)

    def visit(self, node: ast.AST, above: Names) -> None:
        """Add the settings below a syntax node."""
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            names = ast.unparse(target).split(".")
            path = tuple(names[1:] or names)
            before = ".".join(names[:-1]) + "." if len(names) > 1 else ""
            if isinstance(node.value, ast.Call) and len(names) == 1:
                self.visit(node.value, ())
            else:
                self.add(path, node, node.value, before, comma=False)
            return
        if isinstance(node, ast.Call):
            self.visit(node.func, above)
            for argument in node.args:
                self.visit(argument, above)
            for keyword in node.keywords:
                if keyword.arg is not None:
                    self.add((*above, keyword.arg), keyword, keyword.value, "", comma=True)
            return
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    self.add((*above, key.value), key, value, '"', comma=True)
            return
        for below in ast.iter_child_nodes(node):
            self.visit(below, above)
