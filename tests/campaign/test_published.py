"""Published failures and footprints: facts with a source, read as they stand."""

import csv

import pytest

from calculon.base.errors import SpecError
from calculon.campaign import published
from calculon.campaign.published import (
    FOLDER,
    READ,
    RECALLED,
    failures_near,
    published_failures,
    published_footprints,
    published_trainings,
    same_name,
)
from calculon.declarations import catalog
from tests.cases import for_each
from tests.helpers import ROOT


def test_every_row_says_where_it_is_from():
    rows = (*published_failures(), *published_footprints())
    assert all(row.source and row.evidence in {READ, RECALLED} for row in rows)
    assert not any("/work" in row.source + row.note for row in rows)
    assert len({row.run for row in published_failures()}) == len(published_failures())


def test_times_between_failures_are_printed_or_follow_from_a_window():
    for row in published_failures():
        if row.failures and row.hours:
            assert row.mtbf_hours == row.hours / row.failures
        else:
            assert row.mtbf_hours == row.mttf_hours
        if row.mtbf_processor:
            assert row.mtbf_processor == row.mtbf_hours * row.num_procs


def test_failures_of_runs_of_a_size_come_first():
    sizes = [row.num_procs for row in failures_near(900)]
    ratios = [max(900 / n, n / 900) for n in sizes]
    assert ratios == sorted(ratios)
    assert all(row.mtbf_hours for row in failures_near(900))


def test_a_cell_that_is_no_number_is_named(tmp_path, monkeypatch):
    lines = (published.catalog.root() / published.FAILURES).read_text().splitlines()[:2]
    (tmp_path / "validation").mkdir()
    (tmp_path / published.FAILURES).write_text("\n".join(lines).replace("16384", "many"))
    monkeypatch.setattr(published.catalog, "root", lambda: tmp_path)
    published_failures.cache_clear()
    try:
        with pytest.raises(SpecError, match=r"line 2, num_procs.*'many'"):
            published_failures()
    finally:
        published_failures.cache_clear()


def test_every_row_with_hours_is_there():
    rows = []
    for file in sorted((ROOT / FOLDER).glob("*/measured.csv")):
        with file.open(encoding="utf-8", newline="") as stream:
            rows += [row for row in csv.DictReader(stream) if row["gpu_hours"]]
    told = [(one.run, one.processor_hours) for one in published_trainings()]
    assert told == [(row["run"], float(row["gpu_hours"])) for row in rows]
    assert len(told) > 8
    assert all(one.source for one in published_trainings())


@for_each(
    ("run", "model"),
    [
        ("Llama 3.1 405B", "llama3.1-405B"),
        ("BLOOM 176B", "bloom-176B"),
        ("DeepSeek-V3", "deepseek-v3"),
        ("Llama 3 70B", "llama3-70B"),
    ],
)
def test_trainings_are_found_by_models_of_the_catalog(run, model):
    assert model in catalog.names("model")
    assert [one.run for one in published_trainings() if same_name(one.run, model)] == [run]
