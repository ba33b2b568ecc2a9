"""Figures of every system of the catalog beside those that vendors print (``systems/datasheets.csv``)."""

import csv
import re
from collections import Counter

import pytest

from calculon.declarations import catalog
from tests.helpers import ROOT, document

COLUMNS = ["system", "figure", "value", "unit", "source", "date"]

UNITS = {
    "TFLOPS": 1,
    "TFLOPS sparse": 1 / 2,  # half of the elements are zero: twice the rate of dense matrices
    "GB": 1,  # a capacity in GB is taken for GiB
    "GB/s": 1,
    "GB/s bidirectional": 1 / 2,  # both directions of a link together
    "Gb/s": 1 / 8,
    "GT/s x16": 16 * 128 / 130 / 8,  # PCIe of 16 lanes, 130 bits for 16 bytes
    "processors": 1,
    "W": 1,
}
"""How vendors print figures, and the factor to the unit of a system file: dense, and in one direction."""

TOLD = re.compile(
    r"(ext\.)?matrix\.\w+\.tflops|mem1\.(GiB|GBps)|networks\[\d+\]\.(bandwidth|size)|ext\.power\.tdp"
)
"""Figures that need a row: peak rates of the matrix engine, capacity and bandwidth of the memory, links, power."""

UNBOUNDED = 65536
"""Size of a network that ends nowhere: not a figure of a datasheet."""

with (ROOT / "systems" / "datasheets.csv").open(newline="") as file:
    READER = csv.DictReader(file)
    ROWS = list(READER)


def figures(value, path=""):
    """Yield the numbers of a document with their paths."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from figures(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from figures(inner, f"{path}[{i}]")
    else:
        yield path, value


def test_the_table_has_its_columns():
    assert READER.fieldnames == COLUMNS
    for row in ROWS:
        assert row["unit"] in UNITS
        assert row["source"]
        assert re.fullmatch(r"(19|20)\d\d(-\d\d){0,2}", row["date"]), row
    assert {row["system"] for row in ROWS} <= set(catalog.names("system"))
    told = Counter((row["system"], row["figure"]) for row in ROWS)
    assert [one for one, times in told.items() if times > 1] == []


def test_figures_are_those_of_the_datasheets():
    wrong = []
    for name in catalog.names("system"):
        found = dict(figures(catalog.load("system", name)[1]))
        for row in ROWS:
            path, printed = row["figure"], float(row["value"]) * UNITS[row["unit"]]
            if row["system"] == name and found.get(path) != pytest.approx(printed, rel=1e-3):
                wrong.append(f"{name}: {path}: {found.get(path)}, printed is {printed}")
    assert not wrong


def test_every_figure_that_a_file_states_has_a_row():
    rows = {(row["system"], row["figure"]) for row in ROWS}
    without = [
        f"{name}: {path}"
        for name in catalog.names("system")
        for path, value in figures(document("systems", name))
        if TOLD.fullmatch(path) and not (path.endswith("size") and value == UNBOUNDED)
        if (name, path) not in rows
    ]
    assert not without


def test_powers_have_the_source_and_the_date_of_their_rows():
    for row in ROWS:
        if row["figure"] == "ext.power.tdp":
            stated = document("systems", row["system"])["ext"]["power"]
            assert (stated["source"], stated["date"]) == (row["source"], row["date"])
