"""Python configurations, read without executing them.

A configuration is a tree of calls with keyword arguments (``Config(training=Training(steps=10))``), and assignments to
its parts (``cfg.model.tensor_model_parallel_size = 4``). The reader evaluates constants, arithmetic and names of
constants, conditions on them, and functions of the same file with their arguments. Any other value is
:class:`~calculon.launch.dialect.Unresolved`, and skipped statements are reported.
"""

import ast
import operator
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.launch.dialect import Unresolved
from calculon.launch.texts.python_entry import Function, entry, returns
from calculon.launch.texts.python_syntax import parsed
from calculon.launch.texts.reading_budget import LARGEST_NUMBER, Budget, reading
from calculon.launch.texts.tree import CALLS, TARGET, Leaf, Tree, spend_list

Scope = dict[str, Any]

_DEEPEST = 30
"""Depth of nested calls of functions in the file; the result of deeper calls, hence of recursion, is unresolved."""

_COURSES = (ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)
"""Statements that are not evaluated."""

_WRAPPER = re.compile(r"(?:[a-z_]\w*\.)*(?:Config|Partial|partial)")
"""Functions of NeMo-Run and functools whose first argument is the configured class; not a class within a class."""

_DTYPES = {"half": "float16", "float": "float32", "double": "float64"}
"""Torch types with two names."""

_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: lambda number, by: divmod(number, by)[1],  # not the formatting of a text
}
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}
_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda value, several: value in several,
    ast.NotIn: lambda value, several: value not in several,
}
_CASTS: Mapping[str, Callable[..., Any]] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "max": max,
    "min": min,
    "len": len,
}


class Call(Tree):
    """Result of a call: its keyword arguments and assigned attributes, by name.

    The name ``_target_`` holds the callee with dots, such as ``SelectiveAC.Config``; a dictionary, and an unset
    argument, lack it.

    Attributes:
        positional: Positional arguments: constants, lists, calls, or :class:`~calculon.launch.dialect.Unresolved`.
    """

    positional: tuple[Any, ...] = ()

    @property
    def name(self) -> str:
        """Name of the callee; empty if there is none."""
        made = self.get(TARGET)
        return str(made.value) if isinstance(made, Leaf) else ""

    @property
    def line(self) -> int:
        """Line of the call, or of the first setting if there is no callee."""
        return next((leaf.line for _, leaf in self.leaves()), 0)


@dataclass(frozen=True)
class Configuration:
    """A configuration in a file.

    Attributes:
        name: Function that returns it; empty for statements at module level.
        root: Returned configuration.
        imports: Modules of imported names.
        notes: Skipped statements.
    """

    name: str
    root: Call
    imports: Mapping[str, str]
    notes: tuple[str, ...] = ()


def read_configuration(text: str, file: str, variables: Mapping[str, str]) -> Configuration:
    """Read the configuration of a file: from its module-level statements, or else from one of its functions.

    Args:
        text, file: Contents and name of the file.
        variables: Values of arguments of the function, which override their defaults; ``recipe`` names the function if
            there are several.

    Raises:
        SpecError: For text that is not Python or too large, and if the function is ambiguous.
    """
    with reading(file) as budget:
        return _configuration(parsed(text, file), file, variables, budget)


def _configuration(
    module: ast.Module, file: str, variables: Mapping[str, str], budget: Budget
) -> Configuration:
    reader = _Reader(module, file, budget)
    # Module-level statements usually only define defaults: a function wins if one is named or returns a configuration.
    recipe, name = variables.get("recipe", ""), ""
    root = reader.largest(reader.scope.values())
    functions = reader.functions
    if recipe or not root or (any(map(returns, functions.values())) and not _acts(module, reader)):
        function = entry(functions, file, recipe, variables)
        name = function.name
        root = reader.entered(function, {key: literal(one) for key, one in variables.items()})
    if not root:
        raise SpecError(file, Problem(name, "a configuration: a call with settings", "none"))
    return Configuration(name, root, reader.imports, tuple(reader.notes_of(root)))


def short_name(target: str) -> str:
    """Return the name of a class or function without its package, and without a nested class ``Config``.

    >>> short_name("SelectiveAC.Config"), short_name("nl.MegatronStrategy"), short_name("Config")
    ('SelectiveAC', 'MegatronStrategy', 'Config')
    """
    names = [one for one in target.split(".") if one != "Config"] or ["Config"]
    return names[-1]


def literal(text: str) -> Any:
    """Return the constant that a text denotes in Python; the text itself if it is none."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text


def _acts(module: ast.Module, reader: "_Reader") -> bool:
    """Return true if module-level statements change or pass on a configuration, or call a function of the file.

    Other statements only define constants for the functions.
    """
    for statement in module.body:
        if isinstance(statement, Function | ast.ClassDef):
            continue
        left: list[tuple[ast.AST, bool, bool]] = [(statement, False, False)]
        while left:
            node, in_call, in_expression = left.pop()
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                return True
            if isinstance(node, ast.Name) and (
                (in_call and node.id in reader.functions)
                or (in_expression and isinstance(reader.scope.get(node.id), Call))
            ):
                return True
            in_call = in_call or isinstance(node, ast.Call)
            in_expression = in_expression or isinstance(node, ast.Expr)
            left += ((below, in_call, in_expression) for below in ast.iter_child_nodes(node))
    return False


class _ReturnedError(Exception):
    """Return from a function, with its value."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Reader:
    """Evaluator of a module that records the known values of its names.

    Values are plain Python values, :class:`Call` for objects with settings, and
    :class:`~calculon.launch.dialect.Unresolved`.
    """

    def __init__(self, module: ast.Module, file: str, budget: Budget) -> None:
        self.file, self.budget = file, budget
        self.notes: list[str] = []
        # Nested functions are skipped: they depend on variables of their enclosing function.
        self.functions = {one.name: one for one in module.body if isinstance(one, Function)}
        self.imports: dict[str, str] = {}
        for one in ast.walk(module):
            if isinstance(one, ast.ImportFrom):
                source = "." * one.level + (one.module or "")
                self.imports |= {each.asname or each.name: source for each in one.names}
        self.begun: list[tuple[Call, ast.expr]] = []
        self.arguments: dict[str, Call] = {}
        self.depth = 0
        self.scope: Scope = {}
        self.follow(module.body, self.scope)

    def entered(self, function: Function, given: Mapping[str, Any]) -> Call:
        """Return the configuration that a function returns, or creates if it returns none."""
        self.notes.clear()
        self.begun.clear()
        scope = self.bound(function, (), given)
        found = self.follow(function.body, scope)
        several = found if isinstance(found, list) else [found]
        return self.largest(several) or self.largest(scope.values())

    def largest(self, values: Iterable[Any]) -> Call:
        """Return the call with the most settings among values; an empty call if none has settings."""
        calls = {id(one): one for one in values if isinstance(one, Call)}
        return max(calls.values(), key=lambda one: one.spend(self.budget), default=Call())

    def notes_of(self, root: Call) -> list[str]:
        """Return the notes on skipped statements and on assignments that belong to no configuration."""
        parts = {id(one) for one in root.trees()}
        lost = [target for tree, target in self.begun if id(tree) not in parts]
        for one in lost:
            self.note(one, f"'{ast.unparse(one)}' belongs to nothing that was read")
        return self.notes

    def note(self, node: ast.stmt | ast.expr, text: str) -> None:
        """Record a skipped statement."""
        self.notes.append(f"{self.file}:{node.lineno}: {text}")

    def follow(self, statements: Iterable[ast.stmt], scope: Scope) -> Any:
        """Evaluate statements and return their return value."""
        try:
            self.run(statements, scope)
        except _ReturnedError as end:
            return end.value
        return None

    def run(self, statements: Iterable[ast.stmt], scope: Scope) -> None:
        """Evaluate statements."""
        for one in statements:
            self.budget.spend_statement()
            if isinstance(one, ast.Assign):
                value = self.value(one.value, scope)
                for target in one.targets:
                    self.assign(target, value, scope)
            elif isinstance(one, ast.AnnAssign) and one.value is not None:
                self.assign(one.target, self.value(one.value, scope), scope)
            elif isinstance(one, ast.AugAssign):
                held = self.value(_loaded(one.target), scope)
                value = self.computed(
                    one, _BINARY.get(type(one.op)), held, self.value(one.value, scope)
                )
                self.assign(one.target, value, scope)
            elif isinstance(one, ast.Expr):
                self.value(one.value, scope)
            elif isinstance(one, ast.Return):
                # An exception leaves nested branches as Python's return does.
                raise _ReturnedError(one.value and self.value(one.value, scope))
            elif isinstance(one, ast.If):
                self.branch(one, scope)
            elif isinstance(one, _COURSES):
                self.doubt(one, scope)

    def branch(self, one: ast.If, scope: Scope) -> None:
        """Evaluate the branch of a decided condition; otherwise mark the assignments of all branches as unresolved."""
        test = self.value(one.test, scope)
        # A launch runs the file as the main program.
        if "__main__" in ast.unparse(one.test):
            test = True
        if isinstance(test, Unresolved):
            self.doubt(one, scope)
        else:
            self.run(one.body if test else one.orelse, scope)

    def doubt(self, one: ast.stmt, scope: Scope) -> None:
        """Mark the assignments of a statement that is not evaluated as unresolved."""
        self.note(one, f"'{type(one).__name__.lower()}' was not followed")
        parts = (getattr(one, name, None) for name in ("test", "iter"))
        condition = ast.unparse(next((part for part in parts if part is not None), one))
        for node in ast.walk(one):
            if not isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) or not node.value:
                continue
            self.budget.spend_statement()
            text = f"{ast.unparse(node.value)} (where {condition.partition(chr(10))[0]})"
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self.assign(target, Unresolved(text), scope)

    def assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        """Bind a name, or set a setting."""
        if isinstance(target, ast.Name):
            scope[target.id] = value
            return
        if isinstance(target, (ast.Tuple, ast.List)):
            parts: list[Any] = [Unresolved(ast.unparse(part)) for part in target.elts]
            if isinstance(value, list) and len(value) == len(parts):
                parts = value
            elif isinstance(value, Call):
                # The first of several results may be the call's configuration.
                parts[:1] = [value]
            for part, one in zip(target.elts, parts, strict=True):
                self.assign(part, one, scope)
            return
        names = _path(target)
        if not names:
            self.note(target, f"'{ast.unparse(target)}' belongs to nothing that was read")
            return
        first, *rest = names
        tree = self.known(first, scope)
        if not isinstance(tree, Call):
            needs = tree.needs if isinstance(tree, Unresolved) else ""
            tree = scope[first] = Call()
            self.begun.append((tree, target))
            if needs:
                self.arguments[needs] = tree
        tree.put(tuple(rest), held(value, target.lineno))

    def value(self, node: ast.expr, scope: Scope) -> Any:
        """Return the value of an expression, unresolved if it is not known."""
        self.budget.spend_values(1)
        read = _EXPRESSIONS.get(type(node))
        return Unresolved(ast.unparse(node)) if read is None else read(self, node, scope)

    def name(self, node: ast.Name, scope: Scope) -> Any:
        """Return the value of a name."""
        return self.known(node.id, scope)

    def known(self, name: str, scope: Scope) -> Any:
        """Return the value of a name; for an unset argument, a tree of the assignments to its attributes."""
        result = scope[name] if name in scope else self.scope.get(name, Unresolved(name))
        if isinstance(result, Unresolved) and result.needs:
            return self.arguments.get(result.needs, result)
        return result

    def attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        """Return a setting of a tree, or the name of a torch type."""
        below = self.value(node.value, scope)
        if isinstance(below, Tree):
            found = below.get(node.attr)
            if found is not None:
                return found.value if isinstance(found, Leaf) else found
        if ast.unparse(node.value) == "torch":
            return _DTYPES.get(node.attr, node.attr)
        return Unresolved(ast.unparse(node))

    def several(self, node: ast.List | ast.Tuple, scope: Scope) -> Any:
        """Return a list."""
        result = [self.value(one, scope) for one in node.elts]
        spend_list(result, self.budget)
        return result

    def mapping(self, node: ast.Dict, scope: Scope) -> Any:
        """Return a dictionary as a tree."""
        tree = Call()
        for key, one in zip(node.keys, node.values, strict=True):
            value = self.value(one, scope)
            if key is not None:
                tree[self.key(key, scope)] = held(value, one.lineno)
            elif isinstance(value, Tree):
                tree.update(value.copied(self.budget))
            else:
                self.note(one, f"'**{ast.unparse(one)}' was not followed")
        return tree

    def key(self, node: ast.expr, scope: Scope) -> str:
        """Return the key of a dictionary as a name."""
        value = self.value(node, scope)
        return ast.unparse(node) if isinstance(value, Tree | list) else str(value)

    def binary(self, node: ast.BinOp, scope: Scope) -> Any:
        """Return the value of a binary operation."""
        left, right = self.value(node.left, scope), self.value(node.right, scope)
        return self.computed(node, _BINARY.get(type(node.op)), left, right)

    def unary(self, node: ast.UnaryOp, scope: Scope) -> Any:
        """Return the value of a unary operation."""
        return self.computed(node, _UNARY.get(type(node.op)), self.value(node.operand, scope))

    def compare(self, node: ast.Compare, scope: Scope) -> Any:
        """Return the value of a comparison."""
        values = [self.value(one, scope) for one in (node.left, *node.comparators)]
        result: Any = True
        for i, sign in enumerate(node.ops):
            held = self.computed(node, _COMPARED.get(type(sign)), values[i], values[i + 1])
            if isinstance(held, Unresolved):
                return held
            result = result and held
        return result

    def logic(self, node: ast.BoolOp, scope: Scope) -> Any:
        """Return the first operand that decides an *and* or an *or*."""
        wanted = isinstance(node.op, ast.Or)
        value: Any = not wanted
        for one in node.values:
            value = self.value(one, scope)
            if isinstance(value, Unresolved) or bool(value) is wanted:
                return value
        return value

    def choice(self, node: ast.IfExp, scope: Scope) -> Any:
        """Return the value of a conditional expression."""
        test = self.value(node.test, scope)
        if isinstance(test, Unresolved):
            return Unresolved(ast.unparse(node))
        return self.value(node.body if test else node.orelse, scope)

    def made(self, node: ast.Call, scope: Scope) -> Any:
        """Return the result of a call: a tree of keyword arguments, or the return value of a function in the file."""
        given = [self.value(one, scope) for one in node.args]
        words: dict[str, Any] = {}
        lines = {one.arg: one.value.lineno for one in node.keywords}
        for one in node.keywords:
            value = self.value(one.value, scope)
            if one.arg is not None:
                words[one.arg] = value
            elif isinstance(value, Tree):
                self.budget.spend_values(len(value))
                words |= {k: v.value if isinstance(v, Leaf) else v for k, v in value.items()}
            else:
                self.note(node, f"'**{ast.unparse(one.value)}' was not followed")
        text = ast.unparse(node.func)
        if text in self.functions and text not in scope:
            return self.called(self.functions[text], given, words)
        if text in _CASTS and not words:
            return self.computed(node, _CASTS[text], *given)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "append" and given:
            self.append(node.func.value, given[0], scope)
            return None
        if _WRAPPER.fullmatch(text) and given:
            text, given = ast.unparse(node.args[0]), given[1:]
        for one in given:
            if isinstance(one, Tree):  # the function may change it
                one.put((CALLS, text), Leaf(True, node.lineno))
        made = Call({TARGET: Leaf(text, node.lineno)} if text != "dict" else {})
        made.positional = tuple(given)
        for key, value in words.items():
            made[key] = held(value, lines.get(key, node.lineno))
        return made

    def append(self, target: ast.expr, value: Any, scope: Scope) -> None:
        """Evaluate an addition to a list; a list of configurations is a tree."""
        several = self.value(target, scope)
        if isinstance(several, list):
            spend_list(value, self.budget)
            nested = isinstance(value, list) and any(isinstance(one, list) for one in value)
            several.append(Unresolved("a list of lists") if nested else value)
            self.assign(target, several, scope)
        elif isinstance(several, Tree) and isinstance(value, Tree):
            _add(several, value)
        else:
            self.note(target, f"'{ast.unparse(target)}.append' was not followed")

    def called(self, function: Function, given: Iterable[Any], words: Mapping[str, Any]) -> Any:
        """Return the return value of a function in the file."""
        # Recursion has no bound that could be known without executing it.
        if self.depth > _DEEPEST:
            return Unresolved(function.name)
        scope = self.bound(function, given, words)
        self.depth += 1
        try:
            return self.follow(function.body, scope)
        finally:
            self.depth -= 1

    def bound(self, function: Function, given: Iterable[Any], words: Mapping[str, Any]) -> Scope:
        """Return the arguments of a function call by name."""
        spec = function.args
        self.budget.spend_values(len(spec.args) + len(spec.kwonlyargs))
        names = [one.arg for one in (*spec.posonlyargs, *spec.args)]
        late = zip(names[len(names) - len(spec.defaults) :], spec.defaults, strict=True)
        only = [one.arg for one in spec.kwonlyargs]
        scope: Scope = {one: Unresolved(one, one) for one in (*names, *only)}
        for name, default in (*late, *zip(only, spec.kw_defaults, strict=True)):
            if default is not None:
                scope[name] = self.value(default, self.scope)
        scope |= dict(zip(names, given, strict=False))
        others = {name: one for name, one in words.items() if name not in scope}
        scope |= {name: one for name, one in words.items() if name in scope}
        if spec.kwarg is not None:
            scope[spec.kwarg.arg] = Call({k: held(v, function.lineno) for k, v in others.items()})
        return scope

    def computed(self, node: ast.AST, apply: Callable[..., Any] | None, *values: Any) -> Any:
        """Apply a function to known values; the result is unresolved if it is not known or fails."""
        if apply is None or any(isinstance(one, Unresolved) for one in values):
            return Unresolved(ast.unparse(node))
        for one in values if apply not in (operator.is_, operator.is_not) else ():
            self.spend(one)  # functions traverse a value each time it occurs
        if apply is operator.mul:
            count = max((one for one in values if isinstance(one, int)), default=0)
            self.budget.spend_characters(
                count * max((len(one) for one in values if isinstance(one, (list, str))), default=0)
            )
        try:
            result = apply(*values)
        except (TypeError, ValueError, ArithmeticError):
            return Unresolved(ast.unparse(node))
        if isinstance(result, (int, float)):
            return result if abs(result) < LARGEST_NUMBER else Unresolved(ast.unparse(node))
        self.spend(result)
        return result

    def spend(self, value: Any) -> None:
        """Spend the characters of a text, or all values of a list or a tree."""
        if isinstance(value, str):
            self.budget.spend_characters(len(value))
        elif isinstance(value, Tree):
            value.spend(self.budget)
        else:
            spend_list(value, self.budget)


_EXPRESSIONS: Mapping[type[ast.expr], Callable[[_Reader, Any, Scope], Any]] = {
    ast.Constant: lambda _, node, __: node.value,
    ast.Name: _Reader.name,
    ast.Attribute: _Reader.attribute,
    ast.List: _Reader.several,
    ast.Tuple: _Reader.several,
    ast.Dict: _Reader.mapping,
    ast.BinOp: _Reader.binary,
    ast.UnaryOp: _Reader.unary,
    ast.Compare: _Reader.compare,
    ast.BoolOp: _Reader.logic,
    ast.IfExp: _Reader.choice,
    ast.Call: _Reader.made,
}


def held(value: Any, line: int) -> Leaf | Tree:
    """Return a value for a tree; configurations in a list are named after their constructors."""
    if isinstance(value, Tree):
        return value
    if not isinstance(value, list) or not any(isinstance(one, Tree) for one in value):
        return Leaf(value, line)
    result = Tree()
    for one in value:
        if isinstance(one, Tree):
            _add(result, one)
    if others := [one for one in value if not isinstance(one, Tree)]:
        result[""] = Leaf(others, line)
    return result


def _add(several: Tree, one: Tree) -> None:
    """Add a configuration to a list, with a number if its name is taken."""
    made = one.get(TARGET)
    name = short_name(str(made.value)) if isinstance(made, Leaf) else str(len(several))

    def label(number: int) -> str:
        return name if number == 1 else f"{name}#{number}"

    # Labels are taken in order, so the first free number can be bisected: lists may be long.
    numbers = range(1, len(several) + 2)
    free = bisect_left(numbers, True, key=lambda number: label(number) not in several)
    several[label(numbers[free])] = one


def _path(target: ast.expr) -> list[str]:
    """Return the names of an attribute, outermost first; empty for any other expression."""
    names: list[str] = []
    while isinstance(target, ast.Attribute):
        names.insert(0, target.attr)
        target = target.value
    return [target.id, *names] if isinstance(target, ast.Name) else []


def _loaded(target: ast.expr) -> ast.expr:
    """Return the expression that reads an assignment target."""
    found = ast.parse(ast.unparse(target), mode="eval").body
    return ast.copy_location(found, target)
