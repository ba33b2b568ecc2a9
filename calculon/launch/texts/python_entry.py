"""Choice of the function in a Python file that creates its configuration."""

import ast
from collections.abc import Collection, Mapping
from typing import Any

from calculon.base.errors import Problem, SpecError, nearest

Function = ast.FunctionDef | ast.AsyncFunctionDef

_NAMED = 6
"""Number of functions that a message names."""

_USUAL = ("pretrain_recipe", "pretrain_config")
"""Usual names of a recipe's main function; other functions of a file are for parts of it, or for fine-tuning."""


def entry(
    functions: Mapping[str, Function], file: str, recipe: str, variables: Collection[str]
) -> Function:
    """Return the function that creates the configuration: the named one, or the one that no other function calls.

    Args:
        functions: Functions of a file by name.
        file, recipe: File, and name of the function; empty for any.
        variables: Arguments with known values.

    Raises:
        SpecError: If the name is unknown, no function returns a value, or several functions are possible.
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
    # Narrow the candidates step by step, but ignore a criterion that none fulfils.
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
    hint = f"calculon import-flags FILE --env recipe={names[-1]} selects this one"
    raise SpecError(file, Problem("", "one recipe", f"{len(names)}: {_listed(names)}", hint))


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def returns(function: Function, kind: Any = ast.expr) -> bool:
    """Return true if a function returns an expression of some kind."""
    returned = (one.value for one in ast.walk(function) if isinstance(one, ast.Return))
    return any(isinstance(value, kind) for value in returned)


def _required(function: Function) -> list[str]:
    """Return the parameters of a function without a default."""
    places = function.args
    several = [*places.posonlyargs, *places.args]
    only = [a for a, b in zip(places.kwonlyargs, places.kw_defaults, strict=True) if b is None]
    return [one.arg for one in (*several[: len(several) - len(places.defaults)], *only)]
