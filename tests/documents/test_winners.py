"""The winners of a search, and why other executions cannot run."""

import pytest

from calculon.base.errors import REASONS
from calculon.base.units import GIB
from calculon.documents.confidence import ties_in_words
from calculon.documents.winners import (
    reasons_table,
    winners_table,
)
from calculon.plan.rules.data_rules import UNIT_RULES
from calculon.plan.rules.network_rules import MESH_RULES, NETWORK_RULES
from calculon.search.driver import search
from tests.documents.drawing import drawn_lines
from tests.store import cache


@cache
def _found(count):
    return search("megatron-22B", "a100_80g", count, 1536, top=3).estimates()


def _rows(*counts):
    found = [one for count in counts for one in _found(count)]
    return [one.execution.to_dict() for one in found], [one.stats for one in found]


def test_several_counts_have_ranks_of_their_own_and_a_rate_per_processor():
    executions, stats = _rows(8, 16)
    table = winners_table(executions, stats)
    assert [row["rank"] for row in table.rows] == [0, 1, 2, 0, 1, 2]
    titles = [column.title for column in table.columns]
    assert {"procs", "/proc"} <= set(titles)
    assert float(table.rows[0]["each"]) == pytest.approx(stats[0]["sample_rate"] / 8, rel=1e-3)


def test_every_number_is_there_whole():
    table = winners_table(*_rows(8, 16), ["total_efficiency", "bw_time"])
    cells = {c.text(row[c.key]) for row in table.rows for c in table.columns}
    for width in (60, 80, 160):
        words = " ".join(drawn_lines(table, width=width, terminal=True)).split()
        assert {word for cell in cells for word in cell.split()} <= {*words}, width


def test_what_is_not_told_apart_from_the_fastest():
    several = ties_in_words(2, 4, "TP 8, DP 8 (# 1)")
    assert several.startswith("2 of 4, including the fastest, are too close to call")
    assert several.endswith("the simplest: TP 8, DP 8 (# 1)")
    assert ties_in_words(1, 4, "").startswith("The fastest is clearly faster than all others")


def test_the_nearest_miss_is_in_one_unit():
    misses = {"mem1_capacity": 3.5 * GIB, "mem2_capacity": 1e4 * GIB}
    table = reasons_table(100, 50, {"mem1_capacity": 30, "mem2_capacity": 20}, misses)
    assert [row["miss"] for row in table.rows] == [None, ">= 3.50", ">= 10,000.00"]
    assert table.columns[-1].title == "GiB over"
    tiny = reasons_table(2, 1, {"mem1_capacity": 1}, {"mem1_capacity": 1.0})
    assert tiny.rows[1]["miss"] == "<0.01"
    assert max(map(len, drawn_lines(table, width=80, terminal=True))) <= 80


def test_every_reason_that_depends_on_degrees_has_words():
    malformed = {"network_number"}  # refused before anything is counted
    names = {rule.reason for rule in (*NETWORK_RULES, *MESH_RULES, *UNIT_RULES)}
    assert names - malformed <= set(REASONS)
