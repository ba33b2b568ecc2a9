"""Names of fields are in their declarations: elsewhere few literals list several of them, as each has to be kept."""

import ast
from pathlib import Path

import calculon
from calculon.declarations.execution import Execution
from calculon.declarations.fields import spec_fields

PACKAGE = Path(calculon.__file__).parent
TABLES = ("declarations", "plan/rules", "launch")
"""Packages of declarations and rules, and tables of flags, whose subject is single fields."""

SEVERAL = 3
MOST = 10
"""Literals with several names that may be elsewhere, such as the order of the loops of a search."""

FIELDS = {field.name for field in spec_fields(Execution)}


def named(node):
    """Return the names of fields that a literal lists: its elements, its keys, or the patterns of its cases."""
    match node:
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            pass
        case ast.Dict(keys=parts):
            pass
        case ast.Match(cases=cases):
            patterns = [one for case in cases for one in ast.walk(case.pattern)]
            parts = [one.value for one in patterns if isinstance(one, ast.MatchValue)]
        case _:
            parts = []
    return {one.value for one in parts if isinstance(one, ast.Constant)} & FIELDS


def listed(text):
    """Return the lines of literals of a module that list several fields, with the names."""
    found = ((node, named(node)) for node in ast.walk(ast.parse(text)))
    return {node.lineno: names for node, names in found if len(names) >= SEVERAL}


def test_few_literals_list_fields():
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {', '.join(sorted(names))}"
        for path in PACKAGE.rglob("*.py")
        if not path.relative_to(PACKAGE).as_posix().startswith(TABLES)
        for line, names in listed(path.read_text(encoding="utf-8")).items()
    ]
    assert len(found) <= MOST, "\n".join(found)


def test_every_kind_of_literal_counts():
    three = '"tensor_par", "data_par", "zero_stage"'
    keys = three.replace(",", ": 1,") + ": 1"
    cases = "match name:\n    case " + three.replace(", ", " | ") + ": pass"
    for text in (f"({three})", f"[{three}]", f"{{{three}}}", f"{{{keys}}}", cases):
        assert [len(names) for names in listed(text).values()] == [SEVERAL], text
    assert not listed('("tensor_par", "data_par", "data_par", "name", 1)')
