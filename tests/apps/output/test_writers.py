"""Tables in files, also when the writing is given up."""

import sys

import numpy as np
import pytest

from calculon.apps.output.writers import write_tables

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
