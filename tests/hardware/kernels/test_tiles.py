"""The rate of products by shape: tiles, waves, depth and alignment, each on its own."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon import inputs
from calculon.base.errors import Problem, SpecError
from calculon.hardware.curve import Curve
from calculon.hardware.kernels.laws import DEFAULT_TILES, Gemm, Processor, Tile, Tiles, alignment
from tests.helpers import document

SMS = 108
ONE = Tiles((Tile(128, 128, 1.0),))
ON = Processor(peak=1e15, bandwidth=1e12, element_bytes=2.0)
CURVE = Curve(np.array([0.0, 4, 8, 16, 128]), np.array([0.4, 0.5, 0.6, 0.95, 1.0]))


def _gemm(**changes):
    return Gemm(
        **{"max_efficiency": 1.0, "multiprocessors": SMS, "half_depth": 0.0, "tiles": ONE} | changes
    )


def _at(gemm, m, n, depth=4096, batch=1, aligned=128):
    sizes = (np.array([float(v)]) for v in (batch, m, n, depth, aligned))
    return float(gemm.efficiency(*sizes, ON)[0])


def _seconds(gemm, m, n, depth, batch=1, aligned=128):
    return float(gemm.seconds(*map(np.array, (batch, m, n, depth, aligned)), ON))


def test_whole_tiles_and_waves_reach_the_largest_efficiency():
    assert _at(_gemm(max_efficiency=0.87), 128 * SMS, 128) == pytest.approx(0.87)


def test_a_tile_beyond_the_result_is_lost():
    rows = 128 * SMS - 100
    assert _at(_gemm(), rows, 128) == pytest.approx(rows / (128 * SMS))


@pytest.mark.parametrize(
    ("sms", "waves", "share"), [(108, 8, 0.889), (132, 6, 0.970)], ids=["A100", "H100"]
)
def test_multiprocessors_without_a_tile_in_the_last_wave_are_lost(sms, waves, share):
    """2048 x 12288 in tiles of 256 x 128 is 768 tiles: 7.1 waves of an A100, 5.8 of an H100."""
    tiles = Tiles((Tile(256, 128, 1.0),))
    found = _at(_gemm(multiprocessors=sms, tiles=tiles), 2048, 12288)
    assert found == pytest.approx(768 / sms / waves)
    assert round(found, 3) == pytest.approx(share, abs=1e-3)


def test_half_the_depth_is_half_the_rate():
    assert _at(_gemm(half_depth=64), 128 * SMS, 128, depth=64) == pytest.approx(0.5)
    assert _at(_gemm(half_depth=64), 128 * SMS, 128, depth=192) == pytest.approx(0.75)


def test_a_product_of_few_tiles_is_split_along_its_depth():
    """20 tiles on 108 multiprocessors: four parts are 80, whose sums are written and read in 4 bytes."""
    parts, depth, m, n = 4, 65536, 5 * 128, 4 * 128
    tile = 2 * 128 * 128 * (depth / parts + 64) * SMS / ON.peak
    sums = 2 * 4 * parts * m * n / ON.bandwidth
    assert _seconds(_gemm(half_depth=64), m, n, depth) == pytest.approx(tile + sums)
    later = _seconds(_gemm(half_depth=64, start=1e-6), m, n, depth)
    assert later == pytest.approx(tile + sums + 2e-6)  # two kernels
    assert _at(_gemm(half_depth=64), m, n, depth=256) == pytest.approx(20 / SMS * 256 / 320)


def test_the_best_tile_is_taken():
    several = Tiles((Tile(256, 128, 1.0), Tile(64, 64, 0.7)))
    gemm = _gemm(tiles=several, multiprocessors=1)
    assert _at(gemm, 256, 128) == pytest.approx(1.0)
    assert _at(gemm, 64, 64, depth=1) == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("width", "element", "found"), [(50257, 2, 2), (50304, 2, 256), (50257, 4, 4), (768, 1, 256)]
)
def test_rows_are_aligned_to_the_largest_power_of_two(width, element, found):
    assert alignment([np.array([float(width)])], element) == [found]


def test_the_worst_aligned_row_counts():
    assert alignment([np.array([768.0]), np.array([50257.0])], 2) == [2]
    assert _at(_gemm(alignment=CURVE), 128 * SMS, 128, aligned=2) == pytest.approx(0.4)


def test_each_pass_has_its_own_depth():
    shapes = np.array([1.0, 128 * SMS, 64, 128])[:, None]
    gemm = _gemm(half_depth=64)
    forward, inputs, weights = gemm.of_passes(shapes, np.array([False]), ON)[:, 0]
    assert forward == pytest.approx(64 / (64 + 64))
    assert inputs == pytest.approx(0.5 * 128 / (128 + 64))  # half of each tile of the result
    depth, flops = 128 * SMS, 2 * 128 * SMS * 64 * 128
    tile = 2 * 128 * 128 * (depth / 16 + 64) * SMS / ON.peak  # one tile, in 16 parts
    sums = 2 * 4 * 16 * 64 * 128 / ON.bandwidth
    assert weights == pytest.approx(flops / ON.peak / (tile + sums))
    both = gemm.of_passes(shapes, np.array([True]), ON)[1, 0]
    assert both == pytest.approx(2 / (1 / inputs + 1 / weights))


def test_gradients_whose_sums_are_promoted_are_slower_than_forward_products():
    """A cube, whose three products are alike: 8-bit gradients at 0.8 of the rate, those of weights at 0.5 of that."""
    shapes = np.array([1.0, 128 * SMS, 128 * SMS, 128 * SMS])[:, None]
    plain, slower = (
        _gemm(**constants).of_passes(shapes, np.array([False]), ON)[:, 0]
        for constants in ({}, {"gradients": 0.8, "weight_gradients": 0.5})
    )
    assert slower / plain == pytest.approx([1.0, 0.8, 0.4])


def test_a_last_wave_that_overlaps_costs_less_than_a_whole_one():
    """Half of a wave: of 1.5 waves two count, 1.5, or in between."""
    full = 2 * 128 * 128 * 4096 * SMS / ON.peak
    for overlap, waves in ((0, 2), (1, 1.5), (0.25, 1.875)):
        found = _seconds(_gemm(wave_overlap=overlap), 128 * SMS * 1.5, 128, 4096)
        assert found == pytest.approx(waves * full)
    assert _seconds(_gemm(wave_overlap=1.0), 128, 128, 16) == pytest.approx(full / 256)


def test_operands_are_read_and_the_result_is_written_once():
    """Hardly any arithmetic is left beside the traffic of a product with one row; both are rounded where alike."""
    gemm = _gemm(memory_efficiency=0.5, start=3e-6)
    moved = 2 * (1 * 8192 + 8192 * 8192 + 1 * 8192)
    assert _seconds(gemm, 1, 8192, 8192) == pytest.approx(3e-6 + moved / 0.5e12, rel=1e-3)
    arithmetic = _seconds(_gemm(), 4096, 4096, 4096)
    memory = 3 * 2 * 4096**2 / 0.5e12
    together = (arithmetic**3 + memory**3) ** (1 / 3)
    assert _seconds(gemm, 4096, 4096, 4096) == pytest.approx(3e-6 + together)
    eight = Processor(ON.peak, ON.bandwidth, 1.0)  # bits: the result has 16
    sizes = map(np.array, (1, 1, 8192, 16, 128))
    moved = (1 * 16 + 16 * 8192) + 2 * 8192
    least = gemm.seconds(*sizes, eight) - 3e-6
    assert least >= moved / 0.5e12


def test_continuous_work_is_slower_in_arithmetic_alone():
    short, long = (_seconds(_gemm(sustained=s), 8192, 8192, 8192) for s in (1.0, 0.8))
    assert long == pytest.approx(short / 0.8)


SIZES = st.integers(1, 20_000)


@given(
    m=SIZES,
    n=SIZES,
    depth=SIZES,
    batch=st.integers(1, 64),
    more=st.integers(1, 20_000),
    overlap=st.floats(0, 1),
    half_depth=st.sampled_from((0.0, 64.0, 900.0)),
    memory=st.sampled_from((None, 0.8)),
    tiles=st.sampled_from((ONE, DEFAULT_TILES)),
)
def test_more_work_is_never_faster(m, n, depth, batch, more, overlap, half_depth, memory, tiles):
    law = {"max_efficiency": 0.8, "wave_overlap": overlap, "memory_efficiency": memory}
    gemm = _gemm(**law, half_depth=half_depth, start=2e-6, tiles=tiles)
    least = _seconds(gemm, m, n, depth, batch)
    for larger in (
        (m + more, n, depth, batch),
        (m, n + more, depth, batch),
        (m, n, depth + more, batch),
        (m, n, depth, batch + more),
    ):
        assert _seconds(gemm, *larger) >= least * (1 - 1e-12)


@given(
    m=SIZES,
    n=SIZES,
    depth=SIZES,
    batch=st.integers(1, 64),
    aligned=st.sampled_from((2, 4, 8, 16, 128)),
)
def test_less_alignment_or_fewer_tiles_to_choose_from_are_never_faster(m, n, depth, batch, aligned):
    several = Tiles((Tile(256, 128, 1.0), Tile(128, 128, 0.96), Tile(64, 64, 0.7)))
    fewer = Tiles(several.tiles[1:])
    best = _at(_gemm(tiles=several, alignment=CURVE, half_depth=64), m, n, depth, batch, 128)
    assert _at(_gemm(tiles=fewer, alignment=CURVE, half_depth=64), m, n, depth, batch, 128) <= best
    less = _at(_gemm(tiles=several, alignment=CURVE, half_depth=64), m, n, depth, batch, aligned)
    assert 0 < less <= best <= 1


def test_malformed_tiles_are_told():
    for raw, path in [
        ([], "tiles"),
        ("large", "tiles"),
        ([[128, 128]], "tiles[0]"),
        ([[128, 0, 1.0]], "tiles[0][1]"),
        ([[128, 128, 1.2]], "tiles[0][2]"),
        ([[128, 128, math.nan]], "tiles[0][2]"),
    ]:
        problems: list[Problem] = []
        assert Tiles.decode(raw, "tiles", problems, 1.0) is None, (raw, path)
        assert [problem.field for problem in problems] == [path], (raw, path)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"weight_gradients": 3.0}, "weight_gradients"),
        ({"gradients": 3.0}, "gradients"),
        ({"start": 1e30}, "start"),
    ],
)
def test_figures_that_no_kernel_has_are_refused(change, field):
    raw = document("systems", "h100_80g_sxm")
    raw["ext"]["kernels"]["product"]["bfloat16"] |= change
    with pytest.raises(SpecError, match=rf"ext\.kernels\.product\.bfloat16\.{field}: expected"):
        inputs.system(raw)
