"""The function of a file that makes its configuration."""

import ast

import pytest

from calculon.base.errors import SpecError
from calculon.launch.texts.python_entry import Function, entry
from tests.launch.laws import not_refused


def _entry(text, recipe="", variables=()):
    module = ast.parse(text)
    functions = {one.name: one for one in module.body if isinstance(one, Function)}
    return entry(functions, "config.py", recipe, variables).name


A, B = "def a():\n    return C(x=1)\n", "def b():\n    return C(x=2)\n"


def test_one_is_found():
    rows = [
        (A, "a"),
        (f"{A}def b():\n    return 4096\n", "a"),
        (f"{A}def _b():\n    return C()\n", "a"),
        ("def _a():\n    return C()\n", "_a"),
        (f"{A}def b(size):\n    return C()\n", "a"),
        (f"{A}def b(*, size):\n    return C()\n", "a"),
        (f"{A}def b():\n    c = a()\n    return c\n", "b"),
        (f"{A}{B}def pretrain_recipe():\n    return C()\n", "pretrain_recipe"),
        (f"{A}def b_pretrain():\n    return C()\n", "b_pretrain"),
        ("async def a():\n    return C()\n", "a"),
    ]
    wrong = [(text, found) for text, name in rows if (found := _entry(text)) != name]
    assert wrong == []


def test_one_is_chosen_by_its_name():
    assert _entry(A + B, "b") == "b"


def test_one_whose_arguments_are_known_is_as_good_as_any():
    text = f"{A}def b(size):\n    return C()\n"
    with pytest.raises(SpecError, match="expected one recipe, found 2: a, b"):
        _entry(text, variables={"size"})


def test_what_is_not_clear_is_asked():
    rows = [
        (
            A + B,
            "",
            "found 2: a, b. Hint: calculon import-flags FILE --env recipe=b selects this one",
        ),
        ("def a():\n    return 1\ndef b():\n    return 2\n", "", "one recipe, found 2: a, b"),
        (A + B, "c", "one of the functions a, b, found 'c'"),
        ("def llama3_8b():\n    return A(x=1)", "llama3_8", "did you mean 'llama3_8b'"),
        ("def a():\n    pass\n", "", "a function that returns a configuration, or settings"),
    ]
    assert not_refused(_entry, rows) == []
