"""The settings of a configuration in Python: its syntax is read, and nothing of it executed.

Understood are assignments to attributes (``cfg.model.tensor_model_parallel_size = 4``), keyword arguments of calls,
arguments of functions of the file and their defaults, constants, and arithmetic on all of these. A value that rests on
anything else is :class:`~calculon.launch.dialect.Unresolved`.
"""

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from calculon.errors import Problem, SpecError
from calculon.launch.dialect import Unresolved
from calculon.launch.texts.tree import CALLS, TARGET, Leaf, Tree

Scope = dict[str, Any]

_DEEPEST = 30
"""Calls of functions of the file in each other."""

_LONGEST = 10_000
"""Elements of a list that a repetition may make."""

_WRAPPERS = ("Config", "Partial", "partial")
"""Functions whose first argument is what they configure: those of NeMo-Run and functools."""

_DTYPES = {"half": "float16", "float": "float32", "double": "float64"}
"""Types of torch that have two names."""

_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
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


def settings_in(text: str, file: str, variables: Mapping[str, str], recipe: str = "") -> Tree:
    """Return the settings that a Python file makes.

    Parameters
    ----------
    text, file : str
        What it contains, and its name.
    variables : mapping of str to str
        Values of arguments of the function that makes them, in place of their defaults.
    recipe : str
        That function, where there are several.

    Raises
    ------
    SpecError
        For a file that is no Python, and where it is not clear which of its functions is meant.
    """
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        found = f"a syntax error in line {line}" if line else str(error)
        raise SpecError(file, Problem("", "a configuration in Python", found)) from None
    reader = _Reader(module)
    made = _largest(reader.scope)
    if recipe or not made:
        given = {name: literal(value) for name, value in variables.items()}
        made = _largest({"": reader.call(_entry(reader, file, recipe), (), given)})
    return made


def literal(text: str) -> Any:
    """Return the constant that a text is in Python; the text where it is none."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _largest(scope: Scope) -> Tree:
    """Return the tree with the most settings that something in a scope is; an empty one where none has any."""
    trees = [one for one in scope.values() if isinstance(one, Tree)]
    return max(trees, key=lambda tree: sum(1 for _ in tree.leaves()), default=Tree())


def _entry(reader: "_Reader", file: str, recipe: str) -> ast.FunctionDef:
    """Return the function that makes the configuration."""
    made = reader.functions
    if recipe:
        if recipe in made:
            return made[recipe]
        wanted = f"one of the functions {', '.join(_public(made))}"
        raise SpecError(file, Problem("", wanted, f"'{recipe}'"))
    called = {
        node.func.id
        for one in made.values()
        for node in ast.walk(one)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    public = [name for name in _public(made) if _returns(made[name])]
    for likely in (
        [name for name in public if name in _USUAL],
        [name for name in public if name not in called],
        [name for name in public if "pretrain" in name],
        public,
    ):
        if len(likely) == 1:
            return made[likely[0]]
    if not public:
        wanted_words = (
            "a function that returns a configuration, or settings such as cfg.model.x = 1"
        )
        raise SpecError(file, Problem("", wanted_words, "neither"))
    listed = ", ".join(public[:_NAMED]) + (", ..." if len(public) > _NAMED else "")
    hint = f"import-flags --env recipe={public[0]} reads that one"
    raise SpecError(file, Problem("", "one recipe", f"{len(public)}: {listed}", hint))


_NAMED = 6
"""Functions that a message names."""

_USUAL = ("pretrain_recipe", "pretrain_config")
"""Names of the function of a recipe, beside which a file has others: for parts of it, for fine-tuning."""


def _public(functions: Iterable[str]) -> list[str]:
    return [name for name in functions if not name.startswith("_")]


def _returns(function: ast.FunctionDef) -> bool:
    return any(isinstance(node, ast.Return) and node.value for node in ast.walk(function))


class _ReturnedError(Exception):
    """The end of a function, with what it returns."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Reader:
    """Follows a module, keeping what is known of its names.

    Values are plain Python values, :class:`Tree` for objects with settings, and :class:`Unresolved`.
    """

    def __init__(self, module: ast.Module) -> None:
        self.functions = {n.name: n for n in module.body if isinstance(n, ast.FunctionDef)}
        self.scope: Scope = {}
        self.depth = 0
        self.run(module.body, self.scope)

    def run(self, statements: Iterable[ast.stmt], scope: Scope) -> None:
        """Follow statements."""
        for one in statements:
            if isinstance(one, ast.Assign):
                value = self.value(one.value, scope)
                for target in one.targets:
                    self.assign(target, value, scope)
            elif isinstance(one, ast.AnnAssign) and one.value is not None:
                self.assign(one.target, self.value(one.value, scope), scope)
            elif isinstance(one, ast.AugAssign):
                held = self.value(_loaded(one.target), scope)
                value = _computed(
                    one, _BINARY.get(type(one.op)), held, self.value(one.value, scope)
                )
                self.assign(one.target, value, scope)
            elif isinstance(one, ast.Expr):
                self.value(one.value, scope)
            elif isinstance(one, ast.Return):
                raise _ReturnedError(one.value and self.value(one.value, scope))
            elif isinstance(one, ast.If):
                self.branch(one, scope)
            elif isinstance(one, (ast.For, ast.While, ast.With, ast.Try)):
                self.doubt(one, scope)

    def branch(self, one: ast.If, scope: Scope) -> None:
        """Follow the branch of a condition that is known; of any other, what both agree on is known."""
        test = self.value(one.test, scope)
        if "__main__" in ast.unparse(one.test):
            test = True
        if isinstance(test, Unresolved):
            self.doubt(one, scope)
        else:
            self.run(one.body if test else one.orelse, scope)

    def doubt(self, one: ast.stmt, scope: Scope) -> None:
        """Hold what a statement may assign, whose course is not known, for unknown."""
        parts = (getattr(one, name, None) for name in ("test", "iter"))
        condition = ast.unparse(next((part for part in parts if part is not None), one))
        for node in ast.walk(one):
            if not isinstance(node, ast.Assign):
                continue
            for target in node.targets:
                text = f"{ast.unparse(node.value)} (where {condition.partition(chr(10))[0]})"
                self.assign(target, Unresolved(text), scope)

    def assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        """Bind a name, or state a setting."""
        if isinstance(target, ast.Name):
            scope[target.id] = value
            return
        if isinstance(target, (ast.Tuple, ast.List)):
            parts: list[Any] = [Unresolved(ast.unparse(part)) for part in target.elts]
            if isinstance(value, list) and len(value) == len(parts):
                parts = value
            elif isinstance(value, Tree):  # what a call was given, whatever it returns
                parts[0] = value
            for part, one in zip(target.elts, parts, strict=True):
                self.assign(part, one, scope)
            return
        names = _path(target)
        if not names:
            return
        first, *rest = names
        tree = scope.get(first, self.scope.get(first))
        if not isinstance(tree, Tree):
            tree = scope[first] = Tree()
        if rest:
            tree.put(tuple(rest), _held(value, target.lineno))

    def value(self, node: ast.expr, scope: Scope) -> Any:
        """Return the value of an expression, as far as it is known."""
        read = _EXPRESSIONS.get(type(node))
        return Unresolved(ast.unparse(node)) if read is None else read(self, node, scope)

    def name(self, node: ast.Name, scope: Scope) -> Any:
        """Return the value of a name."""
        for known in (scope, self.scope):
            if node.id in known:
                return known[node.id]
        return Unresolved(node.id)

    def attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        """Return a setting of a tree, or the name of a type of torch."""
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
        return [self.value(one, scope) for one in node.elts]

    def mapping(self, node: ast.Dict, scope: Scope) -> Any:
        """Return a dictionary as a tree."""
        tree = Tree()
        for key, one in zip(node.keys, node.values, strict=True):
            value = self.value(one, scope)
            if key is not None:
                tree[str(self.value(key, scope))] = _held(value, one.lineno)
            elif isinstance(value, Tree):
                tree.update(value.copy())
        return tree

    def binary(self, node: ast.BinOp, scope: Scope) -> Any:
        """Return a sum, a product or the like."""
        left, right = self.value(node.left, scope), self.value(node.right, scope)
        return _computed(node, _BINARY.get(type(node.op)), left, right)

    def unary(self, node: ast.UnaryOp, scope: Scope) -> Any:
        """Return a negative number, or the opposite of a switch."""
        return _computed(node, _UNARY.get(type(node.op)), self.value(node.operand, scope))

    def compare(self, node: ast.Compare, scope: Scope) -> Any:
        """Return whether a comparison holds."""
        values = [self.value(one, scope) for one in (node.left, *node.comparators)]
        found: Any = True
        for i, sign in enumerate(node.ops):
            held = _computed(node, _COMPARED.get(type(sign)), values[i], values[i + 1])
            if isinstance(held, Unresolved):
                return held
            found = found and held
        return found

    def logic(self, node: ast.BoolOp, scope: Scope) -> Any:
        """Return the first value that decides an *and* or an *or*."""
        wanted = isinstance(node.op, ast.Or)
        value: Any = not wanted
        for one in node.values:
            value = self.value(one, scope)
            if isinstance(value, Unresolved) or bool(value) is wanted:
                return value
        return value

    def choice(self, node: ast.IfExp, scope: Scope) -> Any:
        """Return one of two values."""
        test = self.value(node.test, scope)
        if isinstance(test, Unresolved):
            return Unresolved(ast.unparse(node))
        return self.value(node.body if test else node.orelse, scope)

    def made(self, node: ast.Call, scope: Scope) -> Any:
        """Return what a call makes: a tree of its keyword arguments, or what a function of the file returns."""
        given = [self.value(one, scope) for one in node.args]
        words: dict[str, Any] = {}
        for one in node.keywords:
            value = self.value(one.value, scope)
            if one.arg is not None:
                words[one.arg] = value
            elif isinstance(value, Tree):
                words |= {k: v.value if isinstance(v, Leaf) else v for k, v in value.items()}
        text, name = ast.unparse(node.func), node.func.id if isinstance(node.func, ast.Name) else ""
        if name in self.functions and name not in scope:
            return self.call(self.functions[name], given, words)
        if name in _CASTS and not words:
            return _computed(node, _CASTS[name], *given)
        if text.endswith(".append") and isinstance(node.func, ast.Attribute) and given:
            several = self.value(node.func.value, scope)
            if isinstance(several, list):
                several.append(given[0])
            elif isinstance(several, Tree) and isinstance(given[0], Tree):
                several.update(_named([given[0]]))
            return None
        if text.rpartition(".")[2] in _WRAPPERS and node.args:
            text, given = ast.unparse(node.args[0]), given[1:]
        for one in given:
            if isinstance(one, Tree):  # which the function may change
                one.put((CALLS, text), Leaf(True, node.lineno))
        made = Tree({TARGET: Leaf(text, node.lineno)}) if text != "dict" else Tree()
        for key, value in words.items():
            made[key] = _held(value, node.lineno)
        return made

    def call(
        self, function: ast.FunctionDef, given: Iterable[Any], words: Mapping[str, Any]
    ) -> Any:
        """Return what a function of the file returns."""
        if self.depth > _DEEPEST:
            return Unresolved(function.name)
        spec = function.args
        names = [one.arg for one in (*spec.posonlyargs, *spec.args)]
        scope: Scope = {
            one: Unresolved(one, one) for one in (*names, *(a.arg for a in spec.kwonlyargs))
        }
        late = zip(names[len(names) - len(spec.defaults) :], spec.defaults, strict=True)
        pairs = zip((a.arg for a in spec.kwonlyargs), spec.kw_defaults, strict=True)
        for name, default in (*late, *pairs):
            if default is not None:
                scope[name] = self.value(default, self.scope)
        scope |= dict(zip(names, given, strict=False))
        others = {name: one for name, one in words.items() if name not in scope}
        scope |= {name: one for name, one in words.items() if name in scope}
        if spec.kwarg is not None:
            scope[spec.kwarg.arg] = Tree({k: _held(v, function.lineno) for k, v in others.items()})
        self.depth += 1
        try:
            self.run(function.body, scope)
        except _ReturnedError as end:
            return end.value
        finally:
            self.depth -= 1
        return None


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


def _computed(node: ast.AST, apply: Callable[..., Any] | None, *values: Any) -> Any:
    """Return what a function gives for known values; an unknown value where it cannot be told."""
    if apply is None or any(isinstance(one, Unresolved) for one in values):
        return Unresolved(ast.unparse(node))
    counts = [one for one in values if isinstance(one, int)]
    longest = max((len(one) for one in values if isinstance(one, (list, str))), default=0)
    if apply is operator.mul and longest * max(counts, default=0) > _LONGEST:
        return Unresolved(ast.unparse(node))
    try:
        return apply(*values)
    except (TypeError, ValueError, ArithmeticError):
        return Unresolved(ast.unparse(node))


def _held(value: Any, line: int) -> Leaf | Tree:
    """Return a value as a tree has it; configurations in a list are below the names of what makes them."""
    if isinstance(value, Tree):
        return value
    if isinstance(value, list) and value and all(isinstance(one, Tree) for one in value):
        return _named(value)
    return Leaf(value, line)


def _named(several: Iterable[Tree]) -> Tree:
    """Return configurations of a list below the names of what they configure."""
    return Tree(
        (str(one[TARGET].value).rpartition(".")[2] if TARGET in one else str(i), one)
        for i, one in enumerate(several)
    )


def _path(target: ast.expr) -> list[str]:
    """Return the names of an attribute, outermost first; nothing for what is none."""
    names: list[str] = []
    while isinstance(target, ast.Attribute):
        names.insert(0, target.attr)
        target = target.value
    return [target.id, *names] if isinstance(target, ast.Name) else []


def _loaded(target: ast.expr) -> ast.expr:
    """Return the expression that reads what a target writes."""
    found = ast.parse(ast.unparse(target), mode="eval").body
    return ast.copy_location(found, target)
