"""Checks of numbers and switches that callers pass to public functions, and values as messages show them."""

from dataclasses import replace
from typing import Any

import numpy as np

from calculon.base.errors import Problem, SpecError
from calculon.declarations.fields import Declaration

_LONGEST = 60  # characters of a value in a message


def count(value: object, name: str, call: str) -> int:
    """Return a whole number of at least 1.

    Args:
        name, call: Names of the argument and of its function, for messages.

    Raises:
        SpecError: For anything else, including a number in quotes.
    """
    problem = Declaration(help="", at_least=1).problem(int, value, name)
    if problem is not None:
        raise SpecError(call, replace(problem, found=described(value)))
    number: Any = value
    return int(number)


def switch(value: object, name: str, call: str) -> bool:
    """Return True or False; arguments and errors as in :func:`count`."""
    if not isinstance(value, (bool, np.bool_)):
        raise SpecError(call, Problem(name, "True or False", described(value)))
    return bool(value)


def described(value: object) -> str:
    """Format an argument for a message: short, and on one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST else f"{kind(value)} {text[: _LONGEST - 3]}..."


def kind(value: object) -> str:
    """Return the type of a value with its article, such as ``a list``."""
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
