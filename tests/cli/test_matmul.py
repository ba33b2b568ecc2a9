"""``calculon matmul``: a page, one row of everything, and what is wrong with a question."""

import json

import pytest

from calculon import inputs
from calculon.estimate.product import matrix_product
from tests.helpers import csv_rows

SYSTEM = "h100_80g_sxm"
CUBE = (16384, 16384, 16384)


@pytest.fixture
def product():
    return matrix_product(inputs.system(SYSTEM), *CUBE, "bfloat16")


@pytest.mark.parametrize("copy", [(), ("-c", "1GiB")])
def test_formats_and_files_have_the_same_row(run, tmp_path, product, copy):
    call = ("matmul", *CUBE, SYSTEM, *copy)
    (row,) = json.loads(run(*call, "-f", "json").out)
    (text,) = csv_rows(run(*call, "-f", "csv").out)
    assert row["seconds"] == product.time
    assert row["flops"] == 2 * 16384**3
    assert list(text) == list(row)
    assert float(text["seconds"]) == product.time
    assert ("together_seconds" in row) == bool(copy)
    for name in ("row.json", "row.csv"):
        assert run(*call, "-o", name).out == f"Output: {name}\n"
    assert json.loads((tmp_path / "row.json").read_text()) == row
    (written,) = csv_rows((tmp_path / "row.csv").read_text())
    assert written == text


def test_what_is_wrong_is_said(refuses):
    rows = [
        ("", "the following arguments are required: SYS"),
        ("nowhere", "nowhere"),
        (f"{SYSTEM} -d float64", "expected one of float8, float16"),
        ("v100_sxm2_32g -d float8", "a type of the matrix engine of v100_sxm2_32g"),
        (f"{SYSTEM} -c 1GX", "expected a size such as"),
        (f"{SYSTEM} -f csv -o x.csv", "--format for what is printed, or --output"),
        (f"{SYSTEM} -o x.png", ".csv"),
        (f"{SYSTEM} -o -", "--format csv or json prints"),
    ]
    refuses(("matmul", 16, 16, 16), rows)
    refuses(("matmul", 16, 0, 16), [(SYSTEM, "expected a whole number above 0, found '0'")])
