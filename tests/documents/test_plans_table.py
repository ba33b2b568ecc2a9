"""The best plans of a search in words."""

import pytest

from calculon.base.records import column
from calculon.base.units import GIB
from calculon.declarations.statistics import CorrectedStats
from calculon.documents.plans_table import TIED, apart, plans_table, ranks
from calculon.search.driver import search
from tests.documents.drawing import drawn_lines

SPACE = ("llama3-8B", "h100_80g_sxm", 64, 512, "bfloat16")


@pytest.fixture(scope="module")
def rows():
    found = search(*SPACE, top=10, edition="corrected", preset="megatron-lm", risk=1)
    executions = [one.execution.to_dict() for one in found]
    stats = [
        {**one.stats, "total_time_low": one.belief.low, "total_time_high": one.belief.high}
        for one in found
    ]
    return executions, stats, [found.space.preset.usual(one) for one in executions]


def _plans(rows, count=None, asked=(), **options):
    """Return the table of the first plans, with the statistics that are asked for."""
    executions, stats, usual = (values[:count] for values in rows)
    statistics = [column(CorrectedStats, name) for name in asked]
    return plans_table(executions, stats, statistics, usual, **options)


def test_what_all_share_is_said_once(rows):
    plans = _plans(rows)
    assert plans.shared == "All with batch 512, ZeRO-1:"
    assert not any("ZeRO-1" in row["words"] for row in plans.table.rows)
    one = _plans(rows, 1)
    assert one.shared == "With batch 512, microbatch 2, ZeRO-1, no sequence parallelism:"
    assert [c.title for c in one.table.columns] == [
        "plan",
        "GiB",
        "fits",
        "time",
        "90 %",
        "MFU",
        "seq/s",
    ]


def test_what_a_plan_cannot_have_does_not_keep_a_word_from_being_shared(rows):
    executions, stats, usual = rows
    alone = {**executions[0], "data_par": 1, "tensor_par": 1}
    plans = plans_table([executions[0], alone], stats[:2], usual=usual[:2])
    assert plans.shared == "All with batch 512, microbatch 2, ZeRO-1, no sequence parallelism:"


@pytest.mark.parametrize("asked", [(), ("mfu", "tp_comm_link_time"), ("proc_mem_tier1_cap_req",)])
def test_a_plan_takes_one_line(rows, asked):
    plans = _plans(rows, asked=asked)
    titles = max(column.title.count("\n") for column in plans.table.columns) + 1
    for width in (60, 80, 160):
        lines = drawn_lines(plans.table, width=width)
        assert max(map(len, lines)) <= width
        starts = [line.split()[0] for line in lines]
        assert all(starts.count(str(rank)) == 1 for rank in range(10)), width
        note = len(lines) - titles - 10
        assert note == 0 if "Columns hidden" not in " ".join(lines) else note in (1, 2), width


def test_a_mark_says_what_is_not_told_apart(rows):
    ties = [i in (1, 3) for i in range(len(rows[0]))]
    table = _plans(rows, ties=ties).table
    assert [row["tie"] for row in table.rows] == ["~" if tie else "" for tie in ties]
    lines = drawn_lines(table, width=80)[1:]
    assert ["~" in line.split()[:2] for line in lines[: len(ties)]] == ties
    plain = _plans(rows).table
    assert "tie" not in [column.key for column in plain.columns]


def test_all_words_are_there_where_they_are_asked(rows):
    cut = "\n".join(drawn_lines(_plans(rows).table, width=70))
    whole = "\n".join(drawn_lines(_plans(rows, whole=True).table, width=70))
    assert "..." in cut
    assert "..." not in whole


def test_numbers_have_the_digits_that_are_known(rows):
    executions, stats, usual = rows
    known = [
        {**one, "total_time": 6.057, "total_time_low": 5.46, "total_time_high": 7.11}
        for one in stats[:2]
    ]
    known[1]["total_time_low"] = None  # as tables without runs have it
    table = plans_table(executions[:2], known, usual=usual[:2]).table
    assert [row["interval"] for row in table.rows] == ["5.5-7.1 s", ""]
    assert [row["time"] for row in table.rows] == ["6.06 s", "6.057 s"]
    memory = stats[0]["proc_mem_tier1_cap_req"] / GIB
    assert table.rows[0]["memory"] == f"{memory:,.1f}"


def test_several_counts_have_ranks_of_their_own_and_a_rate_per_processor(rows):
    executions, stats, usual = rows
    two = [executions[0], executions[1], {**executions[0], "num_procs": 128}]
    assert ranks(two) == [0, 1, 0]
    table = plans_table(two, stats[:3], usual=usual[:3]).table
    assert {"procs", "/proc"} <= {column.title for column in table.columns}
    rate = stats[2]["sample_rate"] / 128
    assert float(table.rows[2]["each"]) == pytest.approx(rate, rel=1e-2)


def test_mfu_counts_what_the_attention_kernel_computes(rows):
    (row,) = _plans(rows, 1, ["mfu"]).table.rows
    stats = rows[1][0]
    assert row["share"] == f"{stats['mfu_causal'] * 100:.1f} %"
    assert row["mfu"] == f"{stats['mfu'] * 100:.1f} %"


def test_plans_that_differ_in_switches_are_not_apart(rows):
    executions = rows[0]
    switch = {**executions[0], "overlap_param_gather": False, "recompute_modules": "mlp"}
    other = {**executions[0], "activation_recompute": "full"}
    assert apart([executions[0], switch, other, switch]) == [0, 2]


def test_every_short_word_and_column_has_a_meaning_where_it_is_there(rows):
    several = _plans(rows, ties=[False] * (len(rows[0]) - 1) + [True])
    titles = {column.title for column in several.table.columns}
    for title in ("GiB", "90 %", "MFU", "seq/s", "/proc", TIED):
        assert (f"{title}: " in several.meaning) == (title in titles)
    cells = [f"{row['plan']} {row['words']}" for row in several.table.rows]
    for word, told in (("SP", "SP: "), ("mbs ", "mbs: "), (" x ", "PP 4 x 2: "), ("CP ", "CP: ")):
        assert (told in several.meaning) == any(word in cell for cell in cells)
    assert TIED not in _plans(rows, 1).meaning


def test_degrees_of_experts_are_explained_where_there_are_some(rows):
    executions, stats, usual = rows
    assert "EP: " not in _plans(rows, 1).meaning
    spread = {**executions[0], "expert_par": 8}
    told = plans_table([spread], stats[:1], usual=usual[:1]).meaning
    assert "; EP: " in told
    assert "ETP: " in told
