"""Products that a rate by shape makes give its parameters back; what they do not tell is refused."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from calculon.base.errors import SpecError
from calculon.calibrate.kernels.products import UNKNOWNS, _law
from calculon.calibrate.parts import quietly_decoded
from calculon.calibrate.readers import read_gemm
from calculon.calibrate.shapes import Products, fit_shapes, product_times
from calculon.hardware.figures import slowed
from tests.calibrate.measured import calibrated
from tests.helpers import document, refusal

BASE = "h100_80g_sxm"
PART = "ext.gemm.bfloat16"
TRUTH = {
    "max_efficiency": 0.77,
    "multiprocessors": 132,
    "half_depth": 96.0,
    "alignment": [[128, 1.0], [16, 0.95], [8, 0.7], [4, 0.5], [0, 0.3]],
}
WIDTHS = [4096, 8192, *(4096 + step for step in (1, 2, 4, 8, 32))]
SHAPES = [(m, n, k) for m in (512, 2048, 8192) for n in WIDTHS for k in (1024, 4096, n)]
SHAPES += [(m, 4096, k) for m in (1024, 4096, 8192) for k in (384, 512, 768, 2048, 16384)]


def base(**extension):
    raw = document("systems", BASE)
    del raw["ext"]["kernels"]
    raw["ext"] |= extension
    return raw


def system(raw=None):
    return quietly_decoded(raw or base(), "test.json", BASE)


def measured(folder, shapes=SHAPES, truth=TRUTH, noise=0.0, raw=None):
    """Return rows with the times of a rate by shape, read from a file."""
    path = folder / "g.csv"
    shapes = list(dict.fromkeys(shapes))
    lines = [f"{m},{n},{k},bfloat16,1" for m, n, k in shapes]
    path.write_text("\n".join(["m,n,k,datatype,seconds", *lines]))
    rows, _ = read_gemm(str(path), system(), shapes=True)
    raw = raw or base()
    raw["ext"]["gemm"] = {"bfloat16": truth}
    times = product_times(system(raw), PART, rows)
    times *= np.exp(np.random.default_rng(0).normal(0, noise, len(rows)))
    return [replace(row, seconds=time) for row, time in zip(rows, times.tolist(), strict=True)]


def test_tiles_of_one_size_have_one_efficiency_whichever_side_is_longer():
    of_size = {256 * 128: 1.0, 128 * 128: 0.9, 128 * 64: 0.8, 64 * 64: 0.7}
    known = dict(zip(("medium", "narrow", "small"), [*of_size.values()][1:], strict=True))
    values = {name: one.start for name, one in UNKNOWNS.items()} | known
    law = _law(values, SimpleNamespace(multiprocessors=132))
    tiles = {(one.m, one.n): one.efficiency for one in law.tiles.tiles}
    assert set(tiles.values()) == set(of_size.values())
    assert all(of_size[m * n] == one == tiles[n, m] for (m, n), one in tiles.items())


def test_a_product_takes_at_least_its_launch_and_the_time_of_its_bytes(tmp_path):
    made, rows = system(base(launch={"kernel": 1e-4})), measured(tmp_path)
    moved = np.array([2.0 * (m * k + k * n + m * n) for m, n, k in (row.shape for row in rows)])
    least = Products.of(made, "bfloat16", rows).least
    assert least == pytest.approx(np.maximum(1e-4, made.mem1.time(moved)))
    assert 1e-4 == least.min() < least.max()


@pytest.mark.parametrize(("largest", "depth"), [(0.77, 96.0), (0.6, 20.0), (0.95, 300.0)])
def test_the_rate_by_shape_comes_back(tmp_path, largest, depth):
    truth = TRUTH | {"max_efficiency": largest, "half_depth": depth}
    rows = measured(tmp_path, truth=truth)
    values, left, _ = fit_shapes(system(), PART, rows, 132)
    assert values["max_efficiency"] == pytest.approx(largest, rel=1e-3)
    assert values["half_depth"] == pytest.approx(depth, rel=0.01)
    assert values["alignment"] == [
        [size, pytest.approx(v, rel=1e-3)] for size, v in TRUTH["alignment"]
    ]
    assert values["multiprocessors"] == 132
    assert left.sum() <= 1


def test_the_document_has_what_was_fitted_and_unseen_products_are_predicted(tmp_path):
    rows = measured(tmp_path, noise=0.03)
    found = calibrated(base(), rows, hold_out=0.3, multiprocessors=132)
    gemm = found.document["ext"]["gemm"]["bfloat16"]
    (fit,) = found.document["calibration"]["fits"]
    assert (fit["part"], fit["parameters"]) == (PART, gemm)
    assert found.document["matrix"] == base()["matrix"]
    assert found.document["ext"]["traffic"] == base()["ext"]["traffic"]
    held = next(one for one in found.residuals() if one["rows"] == "held out")
    assert held["mape"] < 5
    spread = fit["spreads"][-1]
    assert 0.9 < spread["low"] < 1 < spread["high"] < 1.1
    new = system(found.document)
    assert new.gemm("bfloat16").alignment.at(np.array([2.0, 64.0])).tolist() == [
        gemm["alignment"][-1][1],
        gemm["alignment"][1][1],
    ]
    slower = slowed(new, new.calibration.spreads[-1], 2.0)
    assert slower.matrix["bfloat16"].peak == new.matrix["bfloat16"].peak / 2
    small = replace(new.calibration.spreads[-1], start=0.0, end=1e9)
    assert slowed(new, small, 2.0) is new


def test_shares_fall_even_where_measurements_do_not(tmp_path):
    odd = TRUTH | {"alignment": [[128, 1.0], [16, 0.6], [8, 0.9], [4, 0.5], [0, 0.55]]}
    values, _, _ = fit_shapes(system(), PART, measured(tmp_path, truth=odd), 132)
    shares = [share for _, share in values["alignment"]]
    assert shares == sorted(shares, reverse=True)


def test_classes_without_products_have_what_the_base_says_or_no_loss_of_their_own(tmp_path):
    some = [shape for shape in SHAPES if not {4097, 4098, 4100} & set(shape)]
    values, _, _ = fit_shapes(system(), PART, measured(tmp_path, some), 132)
    assert [share for _, share in values["alignment"]] == [
        1.0,
        *[pytest.approx(0.95, rel=1e-3)] * 4,
    ]
    known = base(gemm={"bfloat16": TRUTH})
    values, _, _ = fit_shapes(system(known), PART, measured(tmp_path, some), None)
    assert [size for size, _ in values["alignment"]] == [128, 16, 8, 4, 0]
    assert [v for _, v in values["alignment"][2:]] == [0.7, 0.5, 0.3]


def test_the_number_of_multiprocessors_is_that_of_the_caller_or_of_the_base(tmp_path):
    rows = measured(tmp_path)
    other = base(gemm={"float16": {"max_efficiency": 0.5, "multiprocessors": 99}})
    assert fit_shapes(system(other), PART, rows, None)[0]["multiprocessors"] == 99
    assert fit_shapes(system(other), PART, rows, 132)[0]["multiprocessors"] == 132
    with pytest.raises(SpecError, match=r"--multiprocessors N, or ext\.gemm in the system"):
        fit_shapes(system(), PART, rows, None)


def test_products_that_memory_or_launches_bind_do_not_count(tmp_path):
    small = [(m, n, 1024) for m in (1, 16) for n in (1024, 4096, 4097)]
    rows = measured(tmp_path, [*SHAPES, *small], raw=base(launch={"kernel": 5e-6}))
    values, left, notes = fit_shapes(system(), PART, rows, 132)
    assert {row.shape for row, no in zip(rows, left, strict=True) if no} == set(small)
    assert notes == [f"{PART}: 6 products are bound by memory or by their launch and were left out"]
    assert values["max_efficiency"] == pytest.approx(0.77, rel=1e-3)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(8192, 4096, 4096)], "at least 2 products that memory and launch do not bind, for max_"),
        ([(8192, 4097, 4096), (8192, 4097, 8192)] * 2, "aligned to 128 bytes, for max_efficiency"),
        (
            [(m, n, 4096) for m in (4096, 8192) for n in (4096, 8192)],
            "that separate max_efficiency from half_depth",
        ),
        ([(1, 64, 64), (1, 64, 128), (1, 64, 256)], "at least 2 products"),
    ],
)
def test_what_products_do_not_tell_is_refused(tmp_path, shapes, message):
    rows = measured(tmp_path, shapes, raw=base(launch={"kernel": 1e-5}))
    made = system(base(launch={"kernel": 1e-5}))
    assert message in refusal(fit_shapes, made, PART, rows, 132)
