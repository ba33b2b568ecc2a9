"""Every study that is shipped: runs, stays within its bound, and says what the published tool says."""

import csv
import itertools
import sys
from dataclasses import replace

import numpy as np
import pytest

from calculon import inputs
from calculon.architecture.parameters import parameter_count
from calculon.base.errors import SpecError
from calculon.declarations.expression import Expression
from calculon.declarations.fields import spec_fields
from calculon.declarations.model import Model
from calculon.declarations.named_values import EDITION_NAMES
from calculon.declarations.presets import find_preset
from calculon.validate.measured_and_predicted import compare
from calculon.validate.published_fields import ExecutionFields
from calculon.validate.study_rows import field_values, read_rows
from scripts import rendering
from tests.draws import FACTOR
from tests.helpers import ROOT
from tests.shipped_studies import NAMES, SAMPLED, compare_once, compared, shipped

ROWS = {
    "bigscience": (30, 30), "megatron_2020": (12, 12), "mt_nlg": (3, 3), "sc21/table1": (10, 10),
    "seqsel/layer": (5, 5), "seqsel/steps": (8, 8), "seqsel/tab5": (8, 8), "vtrain/multi": (62, 62),
    "vtrain/single": (720, 720), "megatron_2024": (9, 9), "mosaic": (79, 79), "bloom": (1, 1), "litgpt": (2, 2),
    "llmc": (3, 3), "megatron_tests": (4, 4), "mlperf/gpt3_175b": (13, 13), "pythia": (8, 8),
    "dgxc/gpt3_5b": (4, 4), "dgxc/nemotron4_15b": (25, 25), "nemo/launcher": (11, 11),
    "dgxc/llama31_8b": (0, 30), "dgxc/nemotron_h": (0, 1), "llama3": (2, 3), "mlperf/llama31_8b": (11, 23),
    "nemo/bridge": (10, 12), "sc21/table2": (6, 12), "simumax": (12, 16), "torchtitan": (23, 26),
}  # fmt: skip
"""Rows whose time each edition can represent: of these sources all, of these some, and of these more in one edition."""


@pytest.fixture(scope="module")
def both():
    return {edition: {name: compared(name, edition) for name in NAMES} for edition in EDITION_NAMES}


def test_studies_stay_within_their_bounds(both):
    wrong = [
        f"{name} under {edition}: above its bound"
        for edition, results in both.items()
        for name, result in results.items()
        if not result.passes
    ]
    assert not wrong


def test_alternatives_change_rows_and_choices_are_what_runs():
    offences = []
    for name in NAMES:
        try:
            _ = compared(name, "corrected").alternatives
        except SpecError as error:
            offences += [f"{name}: {one}" for one in error.problems]
    assert offences == []


def test_the_share_that_cut_products_hide_is_the_one_that_fits_best():
    """Over the rows that the studies and the preset name; a sum of errors that are about linear has one minimum."""
    studies = [one for one in shipped().values() if "tp_hidden_percent" in one.fitted]
    assert [one.name for one in studies] == ["dgxc/float8", "dgxc/nemotron4_15b"]
    entry = find_preset("megatron-lm-ub").entries["tp_hidden_percent"]
    best = entry.tries[0]
    errors = {}
    for share in (best - 5, best, best + 5) if FACTOR == 1 else range(0, 100, 5):
        values = {"tp_hidden_percent": Expression.parse(f"{share} if tp > 1 else 100")}
        fields = ExecutionFields(values=values)
        tried = [
            replace(one, execution=one.execution.changed(fields), chosen=ExecutionFields())
            for one in studies
        ]
        found = [compare(one, edition="corrected").own.comparisons[0] for one in tried]
        errors[share] = [
            abs(error)
            for one in found
            for row, error in zip(one.rows, one.errors, strict=True)
            if row.cells["tp"] > 1
        ]
    assert len(errors[best]) == 49
    assert min(errors, key=lambda share: np.mean(errors[share])) == best
    assert f"{np.mean(errors[best]):.2f} %" in entry.why


def test_the_corrected_edition_counts_what_the_paper_counts(both):
    for name, limit in (("seqsel/fig1", 0.1), ("seqsel/fig7", 4.1)):
        assert both["corrected"][name].own.comparisons[0].score.mean <= limit, name


def test_compares_the_rows_that_an_edition_can_represent(both):
    found = {
        name: tuple(len(both[edition][name].own.comparisons[0].rows) for edition in EDITION_NAMES)
        for name in ROWS
    }
    assert found == ROWS


SHAPE = {
    "hidden": "hidden", "ffn": "feedforward", "layers": "num_blocks", "heads": "attn_heads",
    "kv_heads": "key_value_heads", "seq": "seq_size", "vocab": "vocab",
}  # fmt: skip
"""Columns of studies, and the fields of a model that they state."""


def test_a_model_of_the_catalog_has_the_shape_of_the_source():
    """Rows that are excluded, too."""
    wrong = []
    for name in ("dgxc/nemotron4_15b", "dgxc/gpt3_5b", "dgxc/llama31_8b", "mlperf/llama31_8b"):
        study = shipped()[name]
        model = inputs.model(study.model.source)
        wrong += [
            f"{name}: {row.label}: {column} {row.cells[column]}"
            for row in read_rows(study)
            for column, field in SHAPE.items()
            if row.cells[column] != getattr(model, field)
        ]
    assert not wrong


@pytest.mark.parametrize("name", ["mosaic", "torchtitan"])
def test_a_model_has_the_parameters_that_the_source_states(name):
    """To the last one, in every row."""
    study = shipped()[name]
    rows = read_rows(study)
    stated = {
        field.name: field_values(study, field, study.model.values[field.key], rows, field.key)
        for field in spec_fields(Model)
        if field.key in study.model.values
    }
    for i, row in enumerate(rows):
        model = Model(**{name: values[i] for name, values in stated.items()})
        assert parameter_count(model) == row.cells["params"]


def _errors(both, chosen, quantity=0):
    """Return the errors of rows whose cells are chosen, in percent, under edition corrected."""
    found = []
    for name, study in shipped().items():
        cells = {row.label: row.cells for row in read_rows(study)}
        for one in both["corrected"][name].own.comparisons[quantity : quantity + 1]:
            rows = zip(one.rows, one.errors, strict=True)
            found += [error for row, error in rows if chosen(name, cells[row.label])]
    return np.abs(found)


def _splits_sequences(_, cells):
    return (cells.get("cp") or 1) > 1


def test_split_sequences_are_met_in_the_median(both):
    times = _errors(both, _splits_sequences)
    assert len(times) == 50
    assert np.median(times) <= 12
    memory = _errors(
        both, lambda name, cells: name == "simumax" and _splits_sequences(name, cells), 1
    )
    assert len(memory) == 4
    assert memory.max() <= 3


def test_low_precision_is_met_in_the_median(both):
    times = _errors(both, lambda _, cells: "fp" in str(cells.get("precision", "")).lower())
    assert len(times) > 70
    assert np.median(times) <= 12


def test_studies_say_where_every_row_comes_from():
    wrong = []
    for name in NAMES:
        with (ROOT / "validation" / name / "measured.csv").open(newline="") as stream:
            rows = list(csv.DictReader(stream))
        wrong += [f"{name}: {row}" for row in rows if not row["source"] or "/work" in str(row)]
    assert not wrong


def test_heads_that_tensor_parallelism_does_not_divide_are_not_represented():
    study = shipped()["bigscience"]
    few = tuple(one for one in study.alternatives if "120" in one.name)
    (reading,) = compare(replace(study, alternatives=few)).alternatives
    assert reading.unrepresented == {"attn_heads_split": 4}


def test_the_tables_in_the_documentation_are_current(monkeypatch, capsys):
    """Of long tables some lines: of what is compared here, and of few executions; all of them under ``--large``."""
    monkeypatch.setattr(rendering, "compare", compare_once)
    monkeypatch.setattr(sys, "argv", ["render", "--check"])
    if FACTOR == 1:
        few = list(itertools.islice(rendering._reference_cases(), 3))
        monkeypatch.setattr(rendering, "_reference_cases", lambda: iter(few))
        monkeypatch.setattr(rendering, "SUBSETS", ())
        sampled = tuple(f"| [{name}]" for name in SAMPLED)
        for file, part in (
            ("editions.md", "effect"),
            ("studies.md", "studies"),
            ("served.csv", "served"),
        ):
            written = (ROOT / "validation" / file).read_text(encoding="utf-8").splitlines()
            made = getattr(rendering, part)().splitlines()
            whole = {line for line in made if not line.startswith(sampled)}
            assert len(whole) > 2
            assert not whole - set(written)
        monkeypatch.setattr(
            rendering, "FILES", [one for one in rendering.FILES if "runs" in one[0]]
        )
        others = tuple(
            part for part in rendering.PARTS if part[1] not in ("effect", "studies", "figures")
        )
        monkeypatch.setattr(rendering, "PARTS", others)
    assert rendering.render() == 0
    assert capsys.readouterr() == ("", "")
