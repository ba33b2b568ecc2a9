"""Rows of CSV files: cells with their places, and bounds of what is read."""

import pytest

from calculon.base.errors import SpecError
from calculon.declarations import csv_rows
from calculon.declarations.csv_rows import parse_csv, read_csv
from tests.helpers import refusal


def test_lines_have_their_cells_and_places(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes("\ufeff# mine\n a , b\n\n1,x\n 2 ,y\n".encode())
    first, second = read_csv(str(path), ["a"])
    assert (first.cells, first.place) == ({"a": "1", "b": "x"}, "line 4")
    assert (second.integer("a"), second.number_of("a")) == (2, 2.0)
    assert str(second.refuse("b", "more", "'y'")) == f"{path}: line 5, b: expected more, found 'y'"


def test_a_whole_number_is_one_that_any_field_takes():
    for text in ["9" * 19, "9" * 5000, "1.5", "-1", "", "x"]:
        (line,) = parse_csv("x.csv", f"a,b\n{text},1", ["a"])
        with pytest.raises(SpecError, match="line 2, a: expected a whole number of at least 1"):
            line.integer("a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n1\n2\n3\n", "line 4: expected at most 2 rows, found more"),
        ("a,b,c,d\n1,2,3,4\n", "line 1: expected at most 3 columns, found 4"),
        ("a,b,c\n1,2,3\n4,5,66666666\n", ""),  # as much of each as allowed
        ("a\n" + "1" * 30, "expected at most 0 MiB, found a longer file"),
    ],
)
def test_what_is_read_is_bounded(tmp_path, monkeypatch, text, message):
    monkeypatch.setattr(csv_rows, "MAX_BYTES", 25)
    monkeypatch.setattr(csv_rows, "MAX_ROWS", 2)
    monkeypatch.setattr(csv_rows, "MAX_COLUMNS", 3)
    (tmp_path / "x.csv").write_text(text)
    found = refusal(read_csv, str(tmp_path / "x.csv"), ["a"])
    assert bool(found) == bool(message)
    assert message in found


def test_an_endless_file_is_refused():
    with pytest.raises(SpecError, match="/dev/zero: expected at most 64 MiB"):
        read_csv("/dev/zero", ["a"])
