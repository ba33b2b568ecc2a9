"""What is wrong with a study is told with file, row and field."""

import copy

import pytest

from calculon import SpecError
from calculon.validate.measured_and_predicted import compare
from tests.cases import for_each
from tests.validate.conftest import CSV, STUDY


def _set(**values):
    return lambda study: study.update(values)


def _drop(*path):
    def change(study):
        for key in path[:-1]:
            study = study[key]
        del study[path[-1]]

    return change


def _quantity(**values):
    return lambda study: study["quantities"][0].update(values)


def _execution(**values):
    return lambda study: study["execution"].update(values)


def _changed(change):
    content = copy.deepcopy(STUDY)
    change(content)
    return content


STUDY_PROBLEMS = {
    "a measurement without unit": (_drop("quantities", 0, "unit"), "quantities[0].unit", "missing"),
    "an unknown unit": (_quantity(unit="MiB"), "quantities[0].unit", "GiB"),
    "a unit that is not the statistic's": (
        _quantity(unit="GiB"), "quantities[0].estimate", "total_time in s"),
    "an unknown statistic": (_quantity(estimate="total_tme"), "quantities[0].estimate", "total_time"),
    "an unknown statistic beside": (
        _quantity(table={"title": "T", "rows": "model", "columns": "mode", "beside": "nope"}),
        "quantities[0].table.beside",
        "a statistic",
    ),
    "time of one stage": (_quantity(stage="last"), "quantities[0].stage", "bytes"),
    "an unknown stage": (_quantity(stage="second"), "quantities[0].stage", "'second'"),
    "a broken condition": (
        _quantity(unit="%", relative_to="mode =="), "quantities[0].relative_to", "an expression"),
    "no statistic": (_quantity(estimate="1 + 1"), "quantities[0].estimate", "no unit"),
    "a bound of nothing": (_quantity(bound=0), "quantities[0].bound", "above 0"),
    "a bound for one edition only": (
        _quantity(bound={"sc23": 5}), "quantities[0].bound.corrected", "found nothing"),
    "a bound of nothing in an edition": (
        _quantity(bound={"sc23": 5, "corrected": 0}), "quantities[0].bound.corrected", "above 0"),
    "a bound for an unknown edition": (
        _quantity(bound={"sc23": 5, "corrected": 5, "sc24": 5}), "quantities[0].bound.sc24", "'sc23'"),
    "a bound that is no number": (_quantity(bound="5"), "quantities[0].bound", "no quotes"),
    "an edition in the recipe": (_execution(edition="corrected"), "execution.edition", "unknown"),
    "no quantity": (_set(quantities=[]), "quantities", "at least one"),
    "quantities that are no list": (_set(quantities="time"), "quantities", "a list"),
    "an unknown model": (_set(model="megatron-23B"), "model", "megatron-22B"),
    "an unknown system": (_set(system="a100_80gg"), "system", "a100_80g"),
    "no system": (_drop("system"), "system", "name of a system"),
    "a missing execution file": (_set(execution="x.json"), "execution", "no file 'x.json'"),
    "an unknown execution field": (_execution(tensor_parr=1), "execution.tensor_parr", "tensor_par"),
    "a missing execution field": (
        _drop("execution", "training"), "execution.training", "found nothing"),
    "an impossible optional constant": (
        _execution(latency_per_step=3), "execution.latency_per_step", "true or false"),
    "an impossible constant": (_execution(tensor_par=0), "execution.tensor_par", "at least 1"),
    "a broken expression": (_execution(tensor_par="tp +"), "execution.tensor_par", "expression"),
    "a column that is not there": (_execution(tensor_par="tpp"), "execution.tensor_par", "'tp'"),
    "an override of nothing": (
        _set(override={"mem1.GB": 40}), "override.mem1.GB", "no such field"),
    "an override that no system takes": (
        _set(override={"mem1.GiB": "many"}), "override.mem1.GiB", "a number"),
    "a label without column": (_set(label="{name}"), "label", "'name'"),
    "a derived column of nothing": (_set(derive={"x": "y"}), "derive.x", "'y'"),
    "an unknown field": (_set(modle="x"), "modle", "did you mean 'model'"),
    "a sweep that is no list": (_set(sweep="tp"), "sweep", "a list of texts"),
    "an empty choice": (_set(choices={"x": ""}), "choices.x", "text"),
    "a choice that a default fills in": (
        _set(choices={"coll_algo, attn_impl": "rings"}), "chosen.coll_algo", "found nothing"),
    "a choice that does not run": (
        _set(choices={"attn_impl": "flash"}, chosen={"attn_impl": "flash"}),
        "chosen.attn_impl", "expected eager, the value with which line 2 (a) runs, found flash"),
    "choices by name": (_set(chosen="flash.json"), "chosen", "an object"),
    "an impossible choice": (_set(chosen={"tensor_par": 0}), "chosen.tensor_par", "at least 1"),
    "an alternative without reason": (
        _set(alternatives=[{"name": "x"}]), "alternatives[0].why", "missing"),
    "rows excluded under an unknown edition": (
        _set(exclude=[{"when": "tp == 8", "reason": "x", "edition": "sc24"}]),
        "exclude[0].edition",
        "'sc23'",
    ),
    "evidence of an unknown kind": (_set(evidence="hearsay"), "evidence", "one of measured"),
}  # fmt: skip


@for_each("case", STUDY_PROBLEMS)
def test_a_wrong_study_names_file_and_field(refuses, case):
    change, field, words = STUDY_PROBLEMS[case]
    refuses("study.yaml", field, words, _changed(change))


TABLE_PROBLEMS = {
    "a missing column": (CSV.replace("seconds", "secs"), "line 1", "found no column seconds"),
    "a measurement that is no number": (CSV.replace("1.9", "fast"), "line 3 (b), seconds", "'fast'"),
    "a measurement of 0": (CSV.replace("1.9", "0"), "line 3 (b), seconds", "above 0"),
    "a blank cell that is needed": (
        CSV.replace("b,8,8,8", "b,8,8,"), "line 3 (b), execution.batch_size", "a blank cell"),
    "a blank cell in arithmetic": (
        CSV.replace("b,8,8", "b,8,"), "line 3 (b), execution.tensor_par", "a blank cell"),
    "a row that does not divide": (
        CSV.replace("b,8,8", "b,8,3"), "line 3 (b), execution.data_par", "2.666"),
    "a value that no field takes": (
        CSV.replace("none", "some"), "line 3 (b), execution.activation_recompute", "'some'"),
    "a ragged row": (CSV + "c,1\n", "line 4", "7 columns"),
    "no rows": ("id,seconds\n", "", "no rows"),
    "an empty file": ("", "", "found nothing"),
}  # fmt: skip


@for_each("case", TABLE_PROBLEMS)
def test_a_wrong_table_names_file_row_and_field(refuses, content, case):
    table, field, words = TABLE_PROBLEMS[case]
    refuses("measured.csv", field, words, content, table)


def test_a_table_that_is_not_there(library, content):
    place = library(content)
    (place.base / "validation" / "small" / "measured.csv").unlink()
    (study,) = place.studies()
    with pytest.raises(SpecError, match=r"measured\.csv: expected a readable file"):
        compare(study, place)


@for_each(
    ("change", "place", "words"),
    [
        (_execution(data_par="gpus / (tp - 8)"), "execution.data_par", "gpus=8, tp=8"),
        (_execution(attn_impl="mode"), "execution.attn_impl", "eager, flash"),
        (_quantity(unit="%", relative_to="mode == 'seq'"), "quantities.time.relative_to", ""),
        (_set(model="{id}"), "model", "expected the name"),
        (_set(execution="{id}.json"), "execution", "no file 'a.json'"),
    ],
)
def test_what_a_row_makes_of_a_study_names_the_row(refuses, change, place, words):
    field = f"line 2 (a), {place}"
    refuses("measured.csv", field, words, _changed(change), edition="corrected")
