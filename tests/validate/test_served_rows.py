"""Errors of published rows of served models: quantiles of what was measured over what is predicted."""

import numpy as np
import pytest

from calculon.declarations.named_values import CORRECTED
from calculon.declarations.serving_figures import ALL_ENGINES
from calculon.validate.run_rows import Measured, error_rows, quantiles, served_rows
from tests.shipped_studies import compared


@pytest.fixture(scope="module")
def nim():
    return compared("serving/nim", CORRECTED)


def test_ratios_are_those_of_the_rows(nim):
    rows = [row for row in served_rows([nim]) if row.figure == "tpot"]
    (one,) = (c for c in nim.own.comparisons if c.quantity.estimate.text == "tpot")
    assert [row.ratio for row in rows] == [
        m / p for m, p in zip(one.measured, one.estimated, strict=True)
    ]
    assert {(row.engine, row.study) for row in rows} == {("NIM", "serving/nim")}


def test_studies_count_alike_whatever_rows_they_have():
    many = [Measured("NIM", "tpot", "a", 1.0)] * 30
    few = [Measured("SGLang", "tpot", "b", 2.0)] * 2
    whole = next(one for one in error_rows([*many, *few]) if one.engine == ALL_ENGINES)
    assert (whole.rows, whole.studies) == (32, 2)
    assert (whole.low, whole.high) == (1.0, 2.0)


def test_one_stream_is_no_part_of_all():
    rows = [Measured("NIM", "tpot", "a", 1.0), Measured("llama.cpp", "tpot", "b", 9.0)]
    found = {one.engine: one for one in error_rows(rows)}
    assert found[ALL_ENGINES].high == 1.0
    assert found["llama.cpp"].low == 9.0


def test_quantiles_hold_nine_of_ten_of_many():
    values = np.random.default_rng(5).normal(size=2000)
    low, median, high = quantiles(values, np.ones(len(values)))
    assert np.mean((values >= low) & (values <= high)) == pytest.approx(0.9, abs=2e-3)
    assert np.mean(values <= median) == pytest.approx(0.5, abs=1e-3)
