"""``calculon matmul``: a page, one row of everything, and what is wrong with a question."""

import csv
import io
import json

import pytest

from calculon import inputs
from calculon.inspect.product import beside_copy, matrix_product
from calculon.units import duration

SYSTEM = "h100_80g_sxm"
CUBE = (16384, 16384, 16384)


@pytest.fixture
def product():
    return matrix_product(inputs.system(SYSTEM), *CUBE, "bfloat16")


def test_a_page_says_what_the_product_takes(run, product):
    code, out, err = run("matmul", *CUBE, SYSTEM)
    assert (code, err) == (0, "")
    assert out.startswith("16,384 x 16,384 times 16,384 x 16,384 in bfloat16 on h100_80g_sxm\n")
    assert f"8.796 TFLOP, {duration(product.arithmetic)}\n" in out
    assert f"1.500 GiB, {duration(product.memory)}\n" in out
    assert f"  time          {duration(product.time)}: " in out
    assert "copy" not in out


def test_a_page_says_what_a_copy_beside_it_hides(run, product):
    out = run("matmul", *CUBE, SYSTEM, "--copy", "1GiB").out
    both = beside_copy(product, 2**30)
    assert "Beside a copy of 1 GiB between host and processor, on a second stream\n" in out
    assert f"  copy alone    {duration(both.copy)}: " in out
    assert f"  product ends  after {duration(both.product)}\n" in out
    assert f"  together      {duration(both.together)}; one after the other " in out
    assert f"  hidden        {duration(both.hidden)}, " in out


@pytest.mark.parametrize("copy", [(), ("-c", "1GiB")])
def test_formats_and_files_have_the_same_row(run, tmp_path, product, copy):
    call = ("matmul", *CUBE, SYSTEM, *copy)
    (row,) = json.loads(run(*call, "-f", "json").out)
    (text,) = csv.DictReader(io.StringIO(run(*call, "-f", "csv").out))
    assert row["seconds"] == product.time
    assert row["flops"] == 2 * 16384**3
    assert list(text) == list(row)
    assert float(text["seconds"]) == product.time
    assert ("together_seconds" in row) == bool(copy)
    for name in ("row.json", "row.csv"):
        assert run(*call, "-o", name).out == f"Output: {name}\n"
    assert json.loads((tmp_path / "row.json").read_text()) == row
    (written,) = csv.DictReader(io.StringIO((tmp_path / "row.csv").read_text()))
    assert written == text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("16 16 16", "the following arguments are required: SYS"),
        ("16 0 16 S", "expected a whole number above 0, found '0'"),
        ("16 16 16 S -d float64", "expected one of float8, float16"),
        ("16 16 16 v100_sxm2_32g -d float8", "a type of the matrix engine of v100_sxm2_32g"),
        ("16 16 16 S -c 1GX", "expected a size such as"),
        ("16 16 16 S -f csv -o x.csv", "--format for what is printed, or --output"),
        ("16 16 16 S -o x.png", ".csv"),
        ("16 16 16 S -o -", "--format csv or json prints"),
        ("16 16 16 nowhere", "nowhere"),
    ],
)
def test_what_is_wrong_is_said(run, arguments, expected):
    done = run("matmul", *arguments.replace(" S", f" {SYSTEM}").split())
    assert done.code == 2
    assert expected in done.err
