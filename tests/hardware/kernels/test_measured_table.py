"""Tables of measured kernels: rows are reproduced, and bound what is around them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon.hardware.kernels.stated_rates import MeasuredTable, Rows
from tests.cases import for_each
from tests.hardware.kernels.layers import layer, product, times
from tests.hardware.kernels.test_kernels import SCORES, TYPE, raw_system, stated

PEAK, BANDWIDTH = 989e12, 3350e9


def table(rows, values="share"):
    rows = np.array(rows, dtype=float)
    return MeasuredTable(table=Rows(rows[:, :-1], rows[:, -1]), values=values)


GRID = table(
    [
        [m, n, k, 0.9 * m / (m + 200) * n / (n + 300) * k / (k + 100)]
        for m in (64, 256, 1024, 4096)
        for n in (128, 1024, 8192)
        for k in (64, 512, 4096)
    ]
)


def work(sizes):
    return 2 * np.prod(sizes, axis=-1)


# -- lookup -----------------------------------------------------------------------------------------------------------


def test_a_row_gives_exactly_what_was_measured():
    sizes, values = GRID.table
    assert (GRID.at(*sizes.T) == values).all()
    assert [GRID.at(*one).item() for one in sizes[:5]] == values[:5].tolist()


def test_the_rate_between_two_rows_of_one_column_is_a_power_of_the_size_and_goes_on_beyond_the_ends():
    curve = table([[1e6, 0.8], [1e4, 0.2], [1e12, 0.9]])
    sizes = [0.0, 1.0, 1e4, 10**4.5, 1e5, 1e12, 1e15]
    expected = [0.2, 0.2, 0.2, 0.2 * 4**0.25, 0.2 * 4**0.5, 0.9, 0.9]
    assert curve.at(np.array(sizes)).tolist() == pytest.approx(expected)
    one = table([[64, 128, 256, 0.4]])
    assert one.at(np.array([1.0, 64, 1e6]), 128.0, 256.0).tolist() == [0.4] * 3


def test_among_the_corners_of_a_cell_the_rate_is_their_geometric_mean():
    corners = [[m, n, k] for m in (64, 256) for n in (64, 256) for k in (64, 256)]
    shares = np.linspace(0.3, 0.37, 8)
    far = [[1e6, 1e6, 1e6, 0.9]]
    found = table([[*one, share] for one, share in zip(corners, shares, strict=True)] + far)
    middle = found.at(*np.full((3, 1), 128.0)).item()
    assert middle == pytest.approx(np.exp(np.log(shares).mean()))


SIZES = st.integers(1, 100_000)


@given(m=SIZES, n=SIZES, k=SIZES)
def test_nothing_is_faster_than_the_best_row_or_slower_than_the_worst(m, n, k):
    share = GRID.at(*(np.array([float(one)]) for one in (m, n, k))).item()
    assert GRID.table.values.min() <= share <= GRID.table.values.max()


@given(m=SIZES, n=SIZES, k=SIZES)
def test_rows_bound_the_times_of_what_is_larger_or_smaller(m, n, k):
    size = np.array([m, n, k], dtype=float)
    time = work(size) / GRID.at(*size)
    rows = work(GRID.table.sizes) / GRID.table.values
    smaller, larger = (GRID.table.sizes <= size).all(1), (GRID.table.sizes >= size).all(1)
    assert (rows[smaller] <= time * (1 + 1e-12)).all()
    assert (rows[larger] >= time * (1 - 1e-12)).all()


@for_each(
    ("slow", "k", "share"),
    [(0.05, 1024, 0.05 * 16), (0.05, 256, 0.9 / 16), (0.01, 1024, 0.9), (0.01, 256, 0.01)],
)
def test_the_nearer_of_two_rows_counts_within_the_times_of_both(slow, k, share):
    """The smaller row bounds what would be faster, the larger one what would be slower, unless it takes less."""
    found = table([[64, 64, 64, slow], [64, 64, 4096, 0.9]])
    assert found.at(*(np.array([float(one)]) for one in (64, 64, k))) == pytest.approx([share])


@given(size=st.floats(1.0, 1e12), factor=st.floats(1.0, 100.0))
def test_where_the_rows_of_one_column_take_longer_with_size_so_does_what_is_between(size, factor):
    curve = table([[1e3, 0.1], [1e5, 0.5], [1e6, 0.45], [1e9, 0.9]])
    small, large = curve.at(np.array([size, size * factor]))
    assert size * factor / large >= size / small * (1 - 1e-9)


@given(st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=1, max_size=20))
def test_many_sizes_are_found_as_each_alone(sizes):
    columns = np.array(sizes, dtype=float).T
    alone = [GRID.at(*(np.array([one]) for one in row)).item() for row in columns.T]
    assert GRID.at(*columns).tolist() == alone


# -- kernels ----------------------------------------------------------------------------------------------------------

MEASURED = [[4096, 1024, 8192, 0.7], [4096, 8192, 1024, 0.6], [8192, 1024, 4096, 0.5]]
"""The passes of one product: m x n results, sums over k."""


def test_each_pass_of_a_product_is_looked_up_as_the_product_that_it_is():
    system = stated("product", {"table": MEASURED, "values": "share"})
    arithmetic, memory = times(system, product(4096, 8192, 1024), TYPE)
    flops = 2 * 4096 * 8192 * 1024
    np.testing.assert_allclose(arithmetic, [flops / (PEAK * share) for share in (0.7, 0.6, 0.5)])
    assert memory is None


def test_seconds_are_those_of_the_whole_kernel():
    rows = [[*sizes, 1e-4 * (i + 1)] for i, (*sizes, _) in enumerate(MEASURED)]
    system = stated("product", {"table": rows, "values": "seconds"})
    arithmetic, memory = times(system, product(4096, 8192, 1024), TYPE)
    np.testing.assert_allclose(arithmetic, [1e-4, 2e-4, 3e-4], rtol=1e-14)
    assert not memory.any()


def test_a_batch_is_one_product_of_as_many_rows():
    one = SCORES.product
    rows = [[one.batch * one.m, one.k, one.n, 0.3], [1, 1, 1, 0.01], [1e6, 1e6, 1e6, 0.9]]
    system = stated("product", {"table": rows, "values": "share"})
    forward = times(system, SCORES, TYPE)[0][0]
    assert forward == pytest.approx(SCORES.flops[0] / (PEAK * 0.3))


def test_attention_is_looked_up_by_keys_and_head_width():
    rows = [[1024, 128, 0.5], [1024, 64, 0.3], [8192, 128, 0.6]]
    system = stated("attention", {"table": rows, "values": "share"})
    for keys, width, share in rows:
        one = layer("attention", (4e9, 1e10, 0.0), keys=keys, head_width=width)
        expected = np.array(one.flops) / (PEAK * share)
        np.testing.assert_allclose(times(system, one, TYPE)[0], expected, rtol=1e-15)


def test_memory_bound_kernels_are_looked_up_by_bytes():
    one = layer("norm", (1e7, 2e7, 1e6), (1e6, 1e8, 0.0))
    engine = raw_system()["vector"][TYPE]["tflops"] * 1e12
    shares = stated("norm", {"table": [[1e6, 0.4], [1e8, 0.9]], "values": "share"})
    arithmetic, memory = times(shares, one, TYPE)
    np.testing.assert_allclose(memory, [1e6 / (BANDWIDTH * 0.4), 1e8 / (BANDWIDTH * 0.9), 0.0])
    assert (arithmetic >= np.array(one.flops) / engine).all()
    seconds = stated("norm", {"table": [[1e6, 3e-6], [1e8, 4e-5]], "values": "seconds"})
    arithmetic, memory = times(seconds, one, TYPE)
    np.testing.assert_allclose(memory, [3e-6, 4e-5, 0.0])
    assert not arithmetic.any()
