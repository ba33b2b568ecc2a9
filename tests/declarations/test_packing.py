import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calculon
from calculon.declarations.packing import packed_percent_of
from tests.draws import draws

S = 64
FIELDS = ("packed_percent", "pack_imbalance_percent")


def _found(lengths, seq_length=S, **sizes):
    found = calculon.packing(lengths, seq_length, **sizes)
    assert tuple(found) == FIELDS
    return tuple(found.values())


def test_equal_documents_are_their_share_of_a_sequence():
    for count in [1, 2, 4, 16, 64]:
        assert _found([S // count] * 3 * count) == (max(1, round(100 / count)), 100)


def test_documents_are_cut_where_a_sequence_ends_and_what_is_left_over_is_left_out():
    assert _found([3 * S + 5]) == (100, 100)
    assert _found([S // 2, S, S // 2 + 7]) == (50, 100)
    assert _found([S, *[1] * S]) == _found([S, *[1] * S, S - 1])


def test_the_imbalance_is_that_of_sequences_that_wait_for_each_other():
    """Of one document each the first and the last sequence; of two the others."""
    half = S // 2
    lengths = [S, half, half, half, half, S]
    mean = (1 + 0.5 + 0.5 + 1) / 4
    assert _found(lengths) == (75, round(100 / mean))
    assert _found(lengths, sequences=2) == (75, 100)  # as much work in each pair
    assert _found(lengths, ranks=2) == (75, round(100 / mean))
    assert _found(lengths, ranks=1) == (75, 100)
    apart = [S, S, *[half] * 4]
    assert _found(apart, ranks=2) == (75, 100)  # (1 + 0.5) / 2 over the mean
    assert _found(apart, sequences=2) == (75, round(100 / mean))


@settings(max_examples=draws(8))
@given(st.lists(st.integers(1, 3 * S), min_size=2 * S, max_size=2 * S + 40))
def test_fields_are_sums_of_squares_and_make_a_valid_execution(lengths):
    ends = np.cumsum(lengths)
    owner = np.repeat(np.arange(len(lengths)), lengths)[: ends[-1] // S * S].reshape(-1, S)
    work = np.array([(np.unique(row, return_counts=True)[1] ** 2).sum() for row in owner])
    percent, imbalance = _found(lengths)
    assert percent == max(1, round(100 * work.mean() / S**2))
    assert imbalance == max(100, min(round(100 * work.max() / work.mean()), 10_000 // percent))
    assert percent * imbalance <= 100 * 100


def test_what_fills_no_sequence_is_refused():
    for arguments, field, found in [
        (([], S), "lengths", "an empty list"),
        (([3, 0], S), "lengths", "a length of 0"),
        (([3.5], S), "lengths", "a list of float64"),
        (([[3]], S), "lengths", "an array of 2 dimensions"),
        (([S - 1], S), "lengths", f"{S - 1} tokens"),
        (([S], 0), "seq_length", "0"),
    ]:
        with pytest.raises(calculon.SpecError) as refused:
            calculon.packing(*arguments)
        (problem,) = refused.value.problems
        assert (problem.field, problem.found) == (field, found)


@pytest.mark.parametrize("sizes", [{"sequences": 0}, {"sequences": 3}, {"ranks": 3}, {"ranks": -1}])
def test_so_do_sizes_that_two_sequences_do_not_fill(sizes):
    with pytest.raises(calculon.SpecError):
        calculon.packing([S, S], S, **sizes)


@pytest.mark.parametrize(("mean", "length"), [(500, 8192), (2048, 8192), (10_000, 8192)])
def test_documents_of_which_only_the_mean_is_known_have_exponential_lengths(mean, length):
    """Against lengths that are drawn, laid into sequences and cut."""
    drawn = np.random.default_rng(3).geometric(1 / mean, size=60_000)
    counted = calculon.packing(drawn, length)["packed_percent"]
    assert packed_percent_of(mean, length) == pytest.approx(counted, abs=1)


def test_documents_much_longer_or_shorter_than_a_sequence():
    assert packed_percent_of(2000 * S, S) == packed_percent_of(1000 * S, S) == 100
    assert packed_percent_of(S / 1000, S) == 1  # the least of the field
