"""Counts of parts of a space add up."""

from calculon.search.search_counts import Counts


def test_counts_add_up():
    counts = Counts()
    counts.add(Counts(10, 4))
    other = Counts(5, 2)
    other.reasons["mem1_capacity"] += 3
    other.nearest_miss["mem1_capacity"] = 7.0
    counts.add(other)
    counts.add(other)
    assert (counts.total, counts.good, counts.bad) == (20, 8, 12)
    assert counts.reasons == {"mem1_capacity": 6}
    assert counts.nearest_miss == {"mem1_capacity": 7.0}
    closer = Counts(nearest_miss={"mem1_capacity": 2.0})
    counts.add(closer)
    assert counts.nearest_miss == {"mem1_capacity": 2.0}
