"""The rate of products by shape: tiles, waves, depth and alignment, each on its own."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon.errors import Problem
from calculon.hardware.curve import Curve
from calculon.hardware.kernels.tiles import Gemm, Tile, Tiles, alignment

SMS = 108
ONE = Tiles((Tile(128, 128, 1.0),))
CURVE = Curve(np.array([0.0, 4, 8, 16, 128]), np.array([0.4, 0.5, 0.6, 0.95, 1.0]))


def _gemm(**changes):
    return Gemm(
        **{"max_efficiency": 1.0, "multiprocessors": SMS, "half_depth": 0.0, "tiles": ONE} | changes
    )


def _at(gemm, m, n, depth=4096, batch=1, aligned=128):
    return float(gemm.efficiency(*(np.array([float(v)]) for v in (batch, m, n, depth, aligned)))[0])


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
    """36 tiles on 108 multiprocessors: three parts fill them, each of a third of the depth."""
    whole = _at(_gemm(half_depth=64), 768, 768, depth=16384)
    assert whole == pytest.approx((16384 / 3) / (16384 / 3 + 64))
    assert _at(_gemm(half_depth=64), 768, 768, depth=256) == pytest.approx(36 / SMS * 256 / 320)


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
    forward, inputs, weights = _gemm(half_depth=64).of_passes(shapes, np.array([False]), 2)[:, 0]
    assert forward == pytest.approx(64 / (64 + 64))
    assert inputs == pytest.approx(0.5 * 128 / (128 + 64))  # half of each tile of the result
    parts = 128 * SMS // (4 * 64)  # of one tile: as deep as four half depths
    assert weights == pytest.approx(0.5 * (parts / SMS) * (256 / (256 + 64)))
    both = _gemm(half_depth=64).of_passes(shapes, np.array([True]), 2)[1, 0]
    assert both == pytest.approx(2 / (1 / inputs + 1 / weights))


SIZES = st.integers(1, 20_000)


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


@given(waves=st.integers(1, 50), finer=st.sampled_from(((128, 64, 0.85), (64, 64, 0.7))))
def test_where_tiles_and_waves_are_full_finer_tiles_are_never_faster(waves, finer):
    rows = 128 * SMS * waves
    coarse, fine = (_gemm(tiles=Tiles((tile,))) for tile in (Tile(128, 128, 0.96), Tile(*finer)))
    assert _at(fine, rows, 128) <= _at(coarse, rows, 128)


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ([], "tiles"),
        ("large", "tiles"),
        ([[128, 128]], "tiles[0]"),
        ([[128, 0, 1.0]], "tiles[0][1]"),
        ([[128, 128, 1.2]], "tiles[0][2]"),
        ([[128, 128, math.nan]], "tiles[0][2]"),
    ],
)
def test_malformed_tiles_are_told(raw, path):
    problems: list[Problem] = []
    assert Tiles.decode(raw, "tiles", problems, 1.0) is None
    assert [problem.field for problem in problems] == [path]
