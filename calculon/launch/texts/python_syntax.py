"""Syntax trees of untrusted Python files."""

import ast
import warnings

from calculon.base.errors import Problem, SpecError
from calculon.launch.texts.reading_budget import LARGEST_NUMBER, reading, too_large


def parsed(text: str, file: str) -> ast.Module:
    """Return the syntax tree of a Python text.

    Raises:
        SpecError: For text that is not Python or exceeds the budget, and for a number that is too large for a setting.
    """
    with reading(file) as budget:
        budget.spend_tokens(text)
    try:
        with warnings.catch_warnings():
            # Python's style warnings, which lack the name of the file.
            warnings.simplefilter("ignore")
            module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        place = f"{file}:{line}" if line else file
        found = getattr(error, "msg", None) or str(error)
        raise SpecError(place, Problem("", "a configuration in Python", found)) from None
    for node in ast.walk(module):
        for below in ast.iter_child_nodes(node):
            if not isinstance(below, ast.Constant) or not isinstance(below.value, int):
                continue
            if below.value >= LARGEST_NUMBER:
                raise too_large(f"{file}:{below.lineno}", _set_by(node))
    return module


def _set_by(node: ast.AST) -> str:
    """Return the name that a syntax node assigns a value to; empty for any other node."""
    if isinstance(node, ast.Assign | ast.AnnAssign):
        try:
            return ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
        except ValueError:  # a large number as the key
            return ""
    return (node.arg or "") if isinstance(node, ast.keyword) else ""
