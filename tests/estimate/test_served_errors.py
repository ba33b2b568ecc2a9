"""Errors of published rows of served models: as the file has them, and none without it."""

from calculon.declarations.serving_figures import ALL_ENGINES, SERVING_FIGURES
from calculon.estimate import served_errors as module
from calculon.estimate.served_errors import FIGURES, FILE, published_errors, served_errors
from tests.helpers import ROOT


def test_every_line_of_the_file_is_an_error():
    lines = (ROOT / FILE).read_text().splitlines()
    assert len(served_errors()) == len(lines) - 1
    for one in served_errors():
        assert 0 < one.low <= one.median <= one.high
        assert one.rows >= one.studies >= 1
        assert one.figure in SERVING_FIGURES


def test_figures_have_the_errors_of_all_engines_and_of_each():
    found = published_errors()
    assert tuple(found) == FIGURES
    for engines in found.values():
        batching = {
            name: one for name, one in engines.items() if name not in (ALL_ENGINES, "llama.cpp")
        }
        assert engines[ALL_ENGINES]["rows"] == sum(one["rows"] for one in batching.values())


def test_without_a_file_there_are_none(monkeypatch, tmp_path):
    monkeypatch.setattr(module.catalog, "root", lambda: tmp_path)
    served_errors.cache_clear()
    try:
        assert served_errors() == ()
        assert published_errors() == {}
    finally:
        served_errors.cache_clear()
