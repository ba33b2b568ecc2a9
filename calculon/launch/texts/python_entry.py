"""The function of a Python file that makes its configuration."""

import ast
from collections.abc import Collection, Mapping
from typing import Any

from calculon.base.errors import Problem, SpecError, nearest

Function = ast.FunctionDef | ast.AsyncFunctionDef

_NAMED = 6
"""Functions that a message names."""

_USUAL = ("pretrain_recipe", "pretrain_config")
"""Names of the function of a recipe, beside which a file has others: for parts of it, for fine-tuning."""


def entry(
    functions: Mapping[str, Function], file: str, recipe: str, variables: Collection[str]
) -> Function:
    """Return the function that makes the configuration: the one that is named, or that no other function needs.

    Args:
        functions: The functions of a file by name.
        file, recipe: The file, and the name of a function; empty for any.
        variables: Arguments whose values are known.

    Raises:
        SpecError: Where there is none of the name, none that returns anything, or more than one that it may be.
    """
    if recipe in functions:
        return functions[recipe]
    if recipe:
        wanted = f"one of the functions {_listed(list(functions))}"
        hint = nearest(recipe, list(functions))
        raise SpecError(file, Problem("", wanted, f"'{recipe}'", hint))
    called = {
        node.func.id
        for one in functions.values()
        for node in ast.walk(one)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    names = [name for name, one in functions.items() if returns(one)]
    if not names:
        wanted = "a function that returns a configuration, or settings such as cfg.model.x = 1"
        raise SpecError(file, Problem("", wanted, "neither"))
    for fits in (
        lambda name: returns(functions[name], ast.Call | ast.Name),
        lambda name: not name.startswith("_"),
        lambda name: set(_required(functions[name])) <= set(variables),
    ):
        names = list(filter(fits, names)) or names
    for likely in (
        [name for name in names if name in _USUAL],
        [name for name in names if name not in called],
        [name for name in names if "pretrain" in name],
        names,
    ):
        if len(likely) == 1:
            return functions[likely[0]]
    hint = f"import-flags --env recipe={names[-1]} reads that one"
    raise SpecError(file, Problem("", "one recipe", f"{len(names)}: {_listed(names)}", hint))


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def returns(function: Function, kind: Any = ast.expr) -> bool:
    """Whether a function returns anything of a kind of expression."""
    returned = (one.value for one in ast.walk(function) if isinstance(one, ast.Return))
    return any(isinstance(value, kind) for value in returned)


def _required(function: Function) -> list[str]:
    """Return the parameters of a function without default."""
    places = function.args
    several = [*places.posonlyargs, *places.args]
    only = [a for a, b in zip(places.kwonlyargs, places.kw_defaults, strict=True) if b is None]
    return [one.arg for one in (*several[: len(several) - len(places.defaults)], *only)]
