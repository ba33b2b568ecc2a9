"""Published failures and footprints: facts with a source, read as they stand."""

import pytest

from calculon.campaign import published
from calculon.campaign.published import (
    READ,
    RECALLED,
    failures_near,
    published_failures,
    published_footprints,
)
from calculon.campaign.record import Reliability
from calculon.errors import SpecError

HOUR = 3600.0


def test_every_row_says_where_it_is_from():
    rows = (*published_failures(), *published_footprints())
    assert all(row.source and row.evidence in {READ, RECALLED} for row in rows)
    assert not any("/work" in row.source + row.note for row in rows)
    assert len({row.run for row in published_failures()}) == len(published_failures())


def test_the_default_of_campaigns_is_that_of_the_first_row():
    """419 interruptions in 54 days on 16,384 processors."""
    first = published_failures()[0]
    assert first.mtbf_processor == 54 * 24 * 16_384 / 419
    default = float(Reliability().mtbf_processor) / HOUR
    assert default == pytest.approx(first.mtbf_processor, rel=1e-5)


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
