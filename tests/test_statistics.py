import re

from calculon.base.records import columns
from calculon.declarations.statistics import PARTS_OF_TIME, Stats

COLUMNS = columns(Stats)


def test_every_statistic_says_what_it_is_and_where_it_is_written():
    assert [c.name for c in COLUMNS if not c.help or not re.fullmatch(r"\d\.\d+", c.source)] == []
    assert [c.name for c in COLUMNS if "{" in c.help + c.name] == []
    assert len({c.help for c in COLUMNS}) == len({c.name for c in COLUMNS}) == len(COLUMNS)


UNITS = {
    r".*_time(_exposed)?": "s",
    r".*_flops": "FLOP",
    r".*(_accessed|_size|_space|_no_sharding|_with_offload|_cap_req)": "B",
    r".*_bw_(overlap_)?req(_chunk|_tail)?": "B/s",
    r".*_efficiency": "fraction",
    r"sample_rate": "samples/s",
}


def test_the_name_of_a_statistic_tells_its_unit():
    told = {
        c.name: [unit for pattern, unit in UNITS.items() if re.fullmatch(pattern, c.name)]
        for c in COLUMNS
    }
    assert told == {c.name: [c.unit.symbol] for c in COLUMNS}


def test_parts_of_time_are_exposed_times_and_computation():
    times = [c.name for c in COLUMNS if c.path[0] == "times"]
    assert set(times) - set(PARTS_OF_TIME) == {
        "total_time",
        *(name for name in times if name.endswith("_link_time")),
    }


def test_a_batch_has_every_part_of_the_statistics():
    from calculon.cost.batch import Batch

    parts = {column.path[0] for column in columns(Stats)}
    assert all(hasattr(Batch, part) for part in parts)
