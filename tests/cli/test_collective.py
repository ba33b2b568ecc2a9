"""``calculon collective``: a page, a table, a file or a picture; and what is wrong with a question."""

import json
from argparse import ArgumentTypeError

import numpy as np
import pytest

from calculon import inputs
from calculon.cli.collective_tables import CollectiveQuery, curves
from calculon.cli.sizes import LARGEST, size
from calculon.documents.charts.collective_chart import BOLD, THIN, collective
from calculon.hardware.collectives.algorithm_times import bus_factor, fastest, times
from calculon.hardware.collectives.placement import place
from calculon.render.chart import Line
from tests.cases import for_each
from tests.documents.charts.reading import assert_in_sight, marks
from tests.helpers import csv_rows

SYSTEM = "h100_80g_sxm"


def expected(operation, message, ranks, per_node=None):
    """Return the fastest algorithm and its time."""
    system = inputs.system(SYSTEM)
    placement = place(system, ranks, per_node)
    found = times(system, operation, placement, np.array(float(message)))
    name, best = fastest(operation, found)
    return str(name), float(best)


@for_each(
    ("words", "expected"),
    [
        ("all_gather 1GiB 4", {"network_0_members": 4, "network_0_bytes": 3 / 4 * 2**30}),
        ("all_reduce 1GiB 8 -a tree", {"algorithm": "tree"}),
        ("p2p 64MB 2 -g 1", {"seconds": 2e-5 + 64e6 / (50e9 * 0.9), "network_1_members": 2}),
    ],
)
def test_a_row_has_time_and_bandwidths_and_where_the_bytes_go(run, words, expected):
    call = words.split()
    (row,) = json.loads(run("collective", *call[:3], SYSTEM, *call[3:], "-f", "json").out)
    assert {name: row[name] for name in expected} == pytest.approx(expected)
    assert row["seconds"] == row[f"{row['algorithm']}_seconds"]
    assert row["algbw"] == pytest.approx(row["bytes"] / row["seconds"] / 1e9)
    assert row["busbw"] == pytest.approx(row["algbw"] * bus_factor(call[0], int(call[2])))


def test_sizes_double_and_the_one_asked_for_is_among_them(run):
    arguments = ("all_reduce", "3KiB", 64, SYSTEM, "--from", "1KiB", "--to", "10KiB")
    found = csv_rows(run("collective", *arguments, "--format", "csv").out)
    assert [int(row["bytes"]) for row in found] == [1024, 2048, 3072, 4096, 8192, 10240]
    for row in found:
        name, seconds = expected("all_reduce", int(row["bytes"]), 64)
        assert (row["algorithm"], float(row["seconds"])) == (name, seconds)
        assert float(row[f"{name}_seconds"]) == seconds
    out = run("collective", *arguments).out
    assert [line.split()[:2] for line in out.splitlines()[1:3]] == [["1", "KiB"], ["2", "KiB"]]


def test_what_is_written_can_be_calibrated_with(output_of, spec, tmp_path):
    # of unknown kinds there is one protocol, and so a line
    spec("systems", SYSTEM, "plain.json", ext={})
    sizes = ("1KiB", 8, "plain.json", "--to", "1GiB")
    assert output_of("collective", "all_reduce", *sizes, "-o", "x.csv") == "Output: x.csv\n"
    output_of("calibrate", SYSTEM, "--collectives", "x.csv", "-o", "mine.json")
    fitted = json.loads((tmp_path / "mine.json").read_text())["networks"][0]
    assert fitted["latency"] == pytest.approx(1e-5, rel=1e-3)
    assert fitted["efficiency"] == pytest.approx(0.65, rel=1e-3)


def test_a_picture_has_a_line_for_each_algorithm_and_the_one_taken_is_bold():
    system = inputs.system(SYSTEM)
    asked = CollectiveQuery(system, "all_reduce", place(system, 64), "", 2**20)
    chart = curves(asked, 2**10, 2**33)
    assert_in_sight(chart)
    for panel in chart.panels:
        thin = {mark.name: mark.y for mark in panel.marks if mark.width == THIN}
        bold = [mark for mark in panel.marks if mark.width == BOLD]
        _, taken, _ = asked.answer(np.array(bold[0].x))
        assert {*taken} == {"tree", "ring"}
        wanted = [thin[name][i] for i, name in enumerate(taken)]
        np.testing.assert_array_equal(np.nansum([mark.y for mark in bold], axis=0), wanted)
    factor = bus_factor("all_reduce", 64)
    (time,), (rate,) = (marks(panel, Line, "ring") for panel in chart.panels)
    np.testing.assert_allclose(rate.y, factor * np.array(rate.x) / np.array(time.y) / 1e9)


@for_each(("first", "last"), [(5000, 6000), (1, 3), (1024, 2**40)])
def test_any_range_has_ticks(first, last):
    system = inputs.system(SYSTEM)
    asked = CollectiveQuery(system, "all_gather", place(system, 8), "", first)
    for panel in curves(asked, first, last).panels:
        for axis in (panel.x, panel.y):
            low, high = axis.limits
            assert axis.ticks is None or sum(low <= tick <= high for tick, _ in axis.ticks) >= 2


@pytest.mark.parametrize(("ratio", "scale"), [(9.9, "linear"), (10.1, "log")])
def test_times_that_differ_much_are_on_a_logarithmic_axis(ratio, scale):
    lines = {"ring": [1e-3, 1e-3 * ratio]}
    time, _ = collective("", [1, 2], lines, lines, ["ring", "ring"]).panels
    assert time.y.scale == scale


def test_says_what_is_wrong(refuses, tmp_path):
    wrong = [
        ("all_redduce 1GB 8 h100_80g_sxm", "did you mean 'all_reduce'?"),
        ("all_reduce 1GB 8 h100_80g_sxm -a rnig", "did you mean 'ring'?"),
        ("all_reduce 1G 8 h100_80g_sxm", "write GB (powers of 1000) or GiB (powers of 1024)"),
        ("all_reduce 1XB 8 h100_80g_sxm", "units are B, kB"),
        ("all_reduce big 8 h100_80g_sxm", "a size such as 4096, 64MB or 1.5GiB, found 'big'"),
        ("all_reduce 0.3KiB 8 h100_80g_sxm", "a whole number of bytes"),
        ("all_reduce 0 8 h100_80g_sxm", "a whole number of bytes is needed, 1 to"),
        ("all_reduce 1GB 0 h100_80g_sxm", "a whole number above 0, found '0'"),
        ("all_reduce 1GB 12 h100_80g_sxm", "--per-node 6"),
        ("all_reduce 1GB 16 h100_80g_sxm -g 3", "a multiple of 3, which are in each node"),
        (
            "all_gather 1GB 8 h100_80g_sxm -a tree",
            "hierarchical, pipelined, measured for all_gather",
        ),
        ("all_reduce 1GB 8 h100_80g_sxm --from 2GB", "--from: expected a size of at most SIZE"),
        ("all_reduce 1GB 8 h100_80g_sxm --to 2MB", "--to: expected a size of at least SIZE"),
        ("all_reduce 1GB 8 h100_80g_sxm -o x.txt", "ends in .csv"),
        ("all_reduce 1GB 8 h100_80g_sxm -o x.png", "a range of sizes for a picture"),
        ("all_reduce 1GB 8 h100_80g_sxm --to 2GB -o x.png.gz", "without .gz"),
        ("all_reduce 1GB 1 h100_80g_sxm --to 2GB -o x.png", "2 or more, for a picture"),
        ("all_reduce 1GB 8 h100_80g_sxm --format csv -o x.csv", "or --output, found both"),
    ]
    refuses(("collective",), wrong)
    impossible = [
        ("all_reduce 1GB 100000 h100_80g_sxm", "networks[1], 65,536"),
        ("all_reduce 1GB 8 h100_80g_sxm -a hierarchical", "needs a group in several networks"),
        ("all_reduce 1GB 16 h100_80g_sxm -g 16", "the 8 of networks[0]"),
        ("all_reduce 1GB 16 h100_80g_sxm -a nvls", "nvls needs a group in one network"),
        ("all_reduce 1GB 16 h100_80g_sxm -a collnet", "ext.networks[1].in_network_reduction"),
    ]
    refuses(("collective",), impossible, code=1)
    assert list(tmp_path.iterdir()) == []


@for_each(
    ("text", "value"),
    [("4096", 4096), ("64MB", 64 * 10**6), ("64mib", 2**26), ("1.5GiB", 3 * 2**29), ("0.1kB", 100)],
)
def test_sizes(text, value):
    assert size(text) == value


def test_sizes_are_whole_bytes_from_1_to_the_largest():
    assert (size("1"), size("0.5 KiB"), size(str(LARGEST))) == (1, 512, LARGEST)
    for text in ("0", "1.5", "0.3kiB", str(LARGEST + 1)):
        with pytest.raises(ArgumentTypeError, match="a whole number of bytes"):
            size(text)
