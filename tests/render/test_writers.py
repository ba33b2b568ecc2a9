"""Tables in files, also when the writing is given up."""

import sys

import numpy as np
import pytest

from calculon.render.writers import Labels, write_tables

pytest.importorskip("pyarrow")
TABLE = {"a": np.arange(3), "b": np.array([0.5, np.nan, 2.0])}


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.parquet"])
def test_an_interrupt_leaves_no_file_and_no_noise(name, tmp_path, monkeypatch):
    noise = []
    monkeypatch.setattr(sys, "unraisablehook", noise.append)

    def tables():
        yield TABLE
        raise KeyboardInterrupt

    empty = {key: column[:0] for key, column in TABLE.items()}
    with pytest.raises(KeyboardInterrupt):
        write_tables(str(tmp_path / name), tables(), empty)
    assert list(tmp_path.iterdir()) == []
    assert noise == []


@pytest.mark.parametrize("fast", [True, False])
def test_texts_of_csv_are_no_formulas(tmp_path, monkeypatch, fast):
    if not fast:
        monkeypatch.setitem(sys.modules, "polars", None)
    names = ("=1+1", "@x", "-y", "-1.5", "gpt3-175B")
    table = {"model": Labels(np.arange(5), names), "b": np.array([-1.0, 2.0, 3.0, 4.0, 5.0])}
    empty = {"model": Labels(np.arange(0), names), "b": np.zeros(0)}
    path = tmp_path / "x.csv"
    assert write_tables(str(path), [table, table], empty) == 10
    cells = [line.split(",") for line in path.read_text().splitlines()[1:]]
    assert [name for name, _ in cells] == ["'=1+1", "'@x", "'-y", "-1.5", "gpt3-175B"] * 2
    assert float(cells[0][1]) == -1.0
