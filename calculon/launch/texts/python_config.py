"""Configurations that are written in Python, read without executing them.

A configuration is a tree of calls with keyword arguments (``Config(training=Training(steps=10))``), and assignments to
parts of it (``config.training.steps = 20``). Constants, arithmetic of constants, names of them, and calls of functions
in the same file are followed; everything else stays as it is written, and is told as such where a setting needs it.
"""

import ast
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from typing import Any

from calculon.errors import Problem, SpecError, nearest
from calculon.frozen import dataclass
from calculon.launch.dialect import Setting, Unresolved

_DEEPEST = 20
"""Calls of functions of one file inside of each other."""

_LARGEST = 10**18
"""Numbers above are no settings."""

_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Call:
    """A call in a configuration.

    Attributes
    ----------
    name : str
        What is called, with its dots, such as ``SelectiveAC.Config``.
    line : int
        Where.
    positional : list
        Its positional arguments.
    parts : dict
        Its keyword arguments, and what was assigned to its attributes; a value is a constant, a list, another call or
        :class:`~calculon.launch.dialect.Unresolved`, each with its line.
    """

    name: str
    line: int
    positional: list[Any] = field(default_factory=list)
    parts: dict[str, tuple[Any, int]] = field(default_factory=dict)

    @property
    def short(self) -> str:
        """The name of the class or function: without its package, and without ``Config`` inside of a class."""
        names = [one for one in self.name.split(".") if one != "Config"] or ["Config"]
        return names[-1]


@dataclass(frozen=True)
class Configuration:
    """A configuration of a file.

    Attributes
    ----------
    name : str
        The function that returns it; empty for statements of the file itself.
    root : Call
        What it returns.
    imports : mapping of str to str
        Modules that names of the file are from.
    notes : tuple of str
        What was passed over.
    """

    name: str
    root: Call
    imports: Mapping[str, str]
    notes: tuple[str, ...] = ()


def read_configuration(text: str, file: str, name: str = "") -> Configuration:
    """Read a configuration.

    Parameters
    ----------
    text, file : str
        What a file contains, and its name.
    name : str
        The function that returns the configuration; empty where there is one.

    Raises
    ------
    SpecError
        For what is not Python, where there is no such function, or several and none is named.
    """
    try:
        return _configuration(text, file, name)
    except RecursionError:
        wanted = "a configuration that a person wrote"
        raise SpecError(file, Problem("", wanted, "one that is nested too deeply")) from None


def _configuration(text: str, file: str, name: str) -> Configuration:
    reader = _Reader(parsed(text, file), file)
    returning = [one for one in reader.functions.values() if _returns(one)]
    returning = [one for one in returning if not _required(one)] or returning
    if name:
        if name not in reader.functions:
            hint = nearest(name, list(reader.functions))
            raise SpecError(file, Problem("", "a function of the file", f"{name!r}", hint))
        chosen: Function | None = reader.functions[name]
    elif len(returning) > 1:
        names = ", ".join(one.name for one in returning[:8]) + (", ..." * (len(returning) > 8))
        hint = f"import-flags --env recipe={returning[-1].name} reads that one"
        found = f"{len(returning)}: {names}"
        raise SpecError(file, Problem("", "one function that returns a configuration", found, hint))
    else:
        chosen = returning[0] if returning else None
    root = reader.run(chosen) if chosen else reader.result(reader.statements)
    if root is None:
        wanted = "a configuration: a call with settings as keyword arguments"
        raise SpecError(file, Problem(chosen.name if chosen else "", wanted, "none"))
    imports = reader.imports
    return Configuration(chosen.name if chosen else "", root, imports, tuple(reader.notes))


def parsed(text: str, file: str) -> ast.Module:
    """Return the tree of a text of Python.

    Raises
    ------
    SpecError
        With the line of what is none.
    """
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        place = f"{file}:{line}" if line else file
        found = getattr(error, "msg", None) or str(error)
        raise SpecError(place, Problem("", "Python", str(found))) from None


def settings(
    root: Call, file: str, prefix: str = "", above: tuple[Call, ...] = ()
) -> Iterator[Setting]:
    """Yield the constants of a tree by dotted names, and as what each part is made, where its name does not say it.

    ``training=TrainingConfig(steps=10)`` is ``training.steps`` alone, ``loss=Chunked.Config(n=8)`` is ``loss`` and
    ``loss.n``; calls in a list are named by what is called.
    """
    above = (*above, root)
    for key, (value, line) in root.parts.items():
        name = f"{prefix}{key}"
        place = f"{file}:{line}"
        calls = [one for one in value if isinstance(one, Call)] if isinstance(value, list) else []
        if isinstance(value, Call):
            if value.short.lower() not in ("config", f"{key.replace('_', '')}config"):
                yield Setting(name, value.short, place)
            if not any(value is one for one in above):  # an assignment may make a ring
                yield from settings(value, file, f"{name}.", above)
        elif calls:
            yield from _listed(calls, file, name, above)
        else:
            yield Setting(name, value, place)


def _listed(
    calls: list[Call], file: str, prefix: str, above: tuple[Call, ...]
) -> Iterator[Setting]:
    """Yield the calls of a list, each by its short name, with a number where there are several of one."""
    seen: Counter[str] = Counter()
    for one in calls:
        seen[one.short] += 1
        name = f"{prefix}.{one.short}" + (f"#{seen[one.short]}" if seen[one.short] > 1 else "")
        yield Setting(name, True, f"{file}:{one.line}")
        if not any(one is other for other in above):
            yield from settings(one, file, f"{name}.", above)


class _Reader:
    """Follows the statements of a file."""

    def __init__(self, tree: ast.Module, file: str) -> None:
        self.file = file
        self.notes: list[str] = []
        self.statements = tree.body
        self.imports: dict[str, str] = {}
        self.functions = {one.name: one for one in tree.body if isinstance(one, Function)}
        self.constants: dict[str, Any] = {}
        self._depth = 0
        for statement in ast.walk(tree):
            if isinstance(statement, ast.ImportFrom):
                module = "." * statement.level + (statement.module or "")
                self.imports |= {one.asname or one.name: module for one in statement.names}
        for statement in tree.body:
            if isinstance(statement, ast.Assign | ast.AnnAssign):
                self._assign(statement, self.constants)

    def run(self, function: Function) -> Call | None:
        """Follow a function as it is called without arguments; what it needs is taken for a configuration."""
        needed = {one.arg: Call(one.arg, function.lineno) for one in _required(function)}
        return self.result(function.body, {**self._defaults(function, {}), **needed})

    def result(self, body: list[ast.stmt], names: dict[str, Any] | None = None) -> Call | None:
        """Follow statements, and return what they return, or the last configuration that they make."""
        known = dict(self.constants) | (names or {})
        for statement in body:
            if isinstance(statement, ast.Assign | ast.AnnAssign):
                self._assign(statement, known)
            elif isinstance(statement, ast.Return) and statement.value is not None:
                found = self._value(statement.value, known)
                return found if isinstance(found, Call) else None
            elif isinstance(statement, ast.If | ast.For | ast.While | ast.With | ast.Try):
                kind = type(statement).__name__.lower()
                self.notes.append(f"{self.file}:{statement.lineno}: '{kind}' was not followed")
        made = [one for one in known.values() if isinstance(one, Call) and one.parts]
        return made[-1] if made else None

    def _assign(self, statement: ast.Assign | ast.AnnAssign, known: dict[str, Any]) -> None:
        """Follow an assignment to a name, or to a part of a configuration."""
        if statement.value is None:
            return
        value = self._value(statement.value, known)
        single = isinstance(statement, ast.AnnAssign)
        for target in [statement.target] if single else statement.targets:  # type: ignore[union-attr]
            if isinstance(target, ast.Name):
                known[target.id] = value
            elif isinstance(target, ast.Attribute):
                owner = self._owner(target.value, known)
                if owner is not None:
                    owner.parts[target.attr] = value, target.lineno
                else:
                    written = ast.unparse(target)
                    place = f"{self.file}:{target.lineno}"
                    self.notes.append(f"{place}: '{written}' belongs to nothing that was read")

    def _owner(self, node: ast.expr, known: Mapping[str, Any]) -> Call | None:
        """Return the part of a configuration that an attribute is assigned to; made where it is not there yet."""
        if isinstance(node, ast.Name):
            found = known.get(node.id)
            return found if isinstance(found, Call) else None
        if not isinstance(node, ast.Attribute):
            return None
        owner = self._owner(node.value, known)
        if owner is None:
            return None
        part, line = owner.parts.get(node.attr, (None, node.lineno))
        if not isinstance(part, Call):
            part = Call("Config", line)
            owner.parts[node.attr] = part, line
        return part

    def _value(self, node: ast.expr, known: Mapping[str, Any]) -> Any:
        """Return the value of an expression: a constant, a list, a call, or what is written."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name) and node.id in known:
            return known[node.id]
        if isinstance(node, ast.List | ast.Tuple):
            return [self._value(one, known) for one in node.elts]
        if isinstance(node, ast.Call):
            return self._call(node, known)
        if isinstance(node, ast.Dict):
            return self._mapping(node, known)
        found = self._computed(node, known)
        return Unresolved(ast.unparse(node)) if found is None else found

    def _computed(self, node: ast.expr, known: Mapping[str, Any]) -> Any:
        """Return the value of arithmetic, or of an attribute; None where it is not known."""
        if isinstance(node, ast.Attribute):
            owner = self._value(node.value, known)
            if isinstance(owner, Call) and node.attr in owner.parts:
                return owner.parts[node.attr][0]
            return None
        if isinstance(node, ast.UnaryOp):
            one = self._value(node.operand, known)
            negative = isinstance(node.op, ast.USub) and _number(one)
            return -one if negative else None
        if not isinstance(node, ast.BinOp) or type(node.op) not in _ARITHMETIC:
            return None
        left, right = self._value(node.left, known), self._value(node.right, known)
        with suppress(ArithmeticError):
            if _number(left) and _number(right):
                return _ARITHMETIC[type(node.op)](left, right)
        return None

    def _mapping(self, node: ast.Dict, known: Mapping[str, Any]) -> Call:
        found = Call("Config", node.lineno)
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant):
                found.parts[str(key.value)] = self._value(value, known), value.lineno
        return found

    def _call(self, node: ast.Call, known: Mapping[str, Any]) -> Any:
        """Return a call; of a function of the file what it returns."""
        name = ast.unparse(node.func)
        given = {one.arg: self._value(one.value, known) for one in node.keywords if one.arg}
        function = self.functions.get(name)
        if function is not None and self._depth < _DEEPEST:
            self._depth += 1
            defaults = self._defaults(function, known)
            positional = (self._value(one, known) for one in node.args)
            named = zip((one.arg for one in function.args.args), positional, strict=False)
            found = self.result(function.body, {**defaults, **dict(named), **given})
            self._depth -= 1
            if found is not None:
                return found
        found = Call(name, node.lineno, [self._value(one, known) for one in node.args])
        for one in node.keywords:
            if one.arg:
                found.parts[one.arg] = given[one.arg], one.value.lineno
            else:
                written = ast.unparse(one.value)
                self.notes.append(f"{self.file}:{node.lineno}: '**{written}' was not followed")
        return found

    def _defaults(self, function: Function, known: Mapping[str, Any]) -> dict[str, Any]:
        """Return the default values of the parameters of a function."""
        places = function.args
        named = dict(zip(reversed(places.args), reversed(places.defaults), strict=False))
        only = {k: v for k, v in zip(places.kwonlyargs, places.kw_defaults, strict=True) if v}
        return {one.arg: self._value(value, known) for one, value in {**named, **only}.items()}


def _required(function: Function) -> list[ast.arg]:
    """Return the parameters of a function without default."""
    places = function.args
    only = [a for a, b in zip(places.kwonlyargs, places.kw_defaults, strict=True) if b is None]
    return [*places.args[: len(places.args) - len(places.defaults)], *only]


def _returns(function: Function) -> bool:
    """Whether a function returns a configuration: a call, or a name."""
    last = next((one for one in reversed(function.body) if isinstance(one, ast.Return)), None)
    return last is not None and isinstance(last.value, ast.Call | ast.Name)


def _number(value: object) -> bool:
    """Whether a value is a number of a size that settings have."""
    sized = isinstance(value, (int, float)) and not isinstance(value, bool)
    return sized and abs(value) < _LARGEST  # type: ignore[arg-type]
