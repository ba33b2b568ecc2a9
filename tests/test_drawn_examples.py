"""Examples of property tests: the same whether a test runs alone or after others."""

import importlib
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.draws import draws
from tests.helpers import ROOT


def drawn() -> list[int]:
    """Return the examples of one property, in their order."""
    values = []

    @settings(max_examples=draws(100))
    @given(st.integers())
    def keep(value: int) -> None:
        values.append(value)

    keep()
    return values


def test_examples_do_not_depend_on_the_modules_that_are_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = drawn()
    (tmp_path / "drawn_constants.py").write_text("VALUES = (918273645, 5647382910, 1029384756)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "drawn_constants", importlib.import_module("drawn_constants"))
    assert drawn() == alone


def test_no_test_draws_a_fixed_number_of_examples():
    """So that ``scripts/test --large`` draws more of each."""
    fixed = [
        f"{path.relative_to(ROOT)}: {found}"
        for path in (ROOT / "tests").rglob("*.py")
        for found in re.findall(r"max_examples=\d+", path.read_text(encoding="utf-8"))
    ]
    assert not fixed
