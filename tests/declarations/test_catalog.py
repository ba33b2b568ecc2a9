import calendar
import json
import shutil
from dataclasses import replace

import pytest

from calculon import inputs
from calculon.base.errors import SpecError
from calculon.declarations import catalog
from calculon.declarations.decode import SpecWarning
from calculon.declarations.spellings import catalog_words
from tests.declarations.configurations import llama
from tests.draws import some
from tests.helpers import ROOT, document

LOADERS = {"model": inputs.model, "system": inputs.system, "execution": inputs.execution}
SHIPPED = [(kind, name) for kind in catalog.KINDS for name in catalog.names(kind)]


def test_every_shipped_spec_loads_by_name():
    for kind, name in SHIPPED:
        loaded = LOADERS[kind](name)
        assert getattr(loaded, "name", name) == name


def test_shipped_specs_load_by_path_and_as_a_mapping_too():
    for kind, name in some(SHIPPED, 12):
        raw = document(catalog.KINDS[kind], name)
        path = ROOT / catalog.KINDS[kind] / f"{name}.json"
        load = LOADERS[kind]
        by_name, by_path, by_text, by_mapping = load(name), load(path), load(str(path)), load(raw)
        assert load(by_name) is by_name
        if kind == "system":  # curves compare as objects
            assert by_name.name == by_path.name == name
            assert repr(by_name).replace(f"{name!r}", "'system'") == repr(by_mapping), name
        else:
            assert by_name == by_path == by_text == by_mapping, name


def test_the_page_of_the_models_states_the_month_of_the_catalog():
    year, month = catalog.AS_OF.split("-")
    text = (ROOT / "models" / "README.md").read_text()
    assert f"as of {calendar.month_name[int(month)]} {year}" in text


def test_an_unknown_name_is_refused_with_the_nearest_one(monkeypatch, tmp_path):
    for kind, source, hint in [
        ("model", "megatron-2T", "did you mean 'megatron-1T'?"),
        ("system", "8xH100", "system: h100_80g_sxm; state the number of processors separately"),
        ("system", "h100 x 8", "system: h100_80g_sxm; state the number of processors separately"),
        ("system", "a100_80g.json", "use its catalog name: a100_80g"),
        ("system", "somewhere/a100_80g", "use its catalog name"),
        ("execution", "zzz", "see: calculon catalog"),
    ]:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(SpecError) as error:
            catalog.load(kind, source)
        assert error.value.file == source, (kind, source)
        article = "an" if kind == "execution" else "a"
        assert error.value.expected.startswith(f"{article} {kind} file"), (kind, source)
        assert hint in error.value.hint, (kind, source)


def test_a_file_in_the_working_folder_comes_before_the_catalog(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    other = document("models", "megatron-126M") | {"num_blocks": 3}
    (tmp_path / "megatron-126M.json").write_text(json.dumps(other))
    assert inputs.model("megatron-126M.json").num_blocks == 3
    assert inputs.model("megatron-126M").num_blocks == 12


@pytest.mark.parametrize("name", ["x2.txt", "model", "63"])
def test_an_existing_file_is_read_whatever_its_name(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "models" / "megatron-1T.json", tmp_path / name)
    assert inputs.model(name).num_blocks == 128
    assert catalog.load("model", name)[0] == name


def test_a_name_or_a_document_of_another_kind_is_one_problem():
    with pytest.raises(SpecError) as error:
        catalog.load("execution", "a100_80g")
    assert error.value.found == "a system of the catalog"
    assert error.value.hint == "are execution and system swapped?"
    execution = next(iter(catalog.names("execution").values()))
    for kind, other, path in (
        ("model", "system", catalog.names("system")["a100_80g"]),
        ("system", "execution", execution),
    ):
        with pytest.raises(SpecError) as error:
            catalog.load(kind, str(path))
        assert len(error.value.problems) == 1
        assert error.value.hint == f"are {kind} and {other} swapped?"


def test_a_name_as_people_write_it_is_that_of_the_catalog(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "llama3 8b").mkdir()  # a folder is no model
    assert inputs.model("llama3 8b") == inputs.model("Meta-Llama-3-8B") == inputs.model("llama3-8B")
    assert inputs.system("h100").name == "h100_80g_sxm"
    assert catalog.load("preset", "Megatron LM")[0] == "megatron-lm"


def test_exact_names_read_no_other_file(monkeypatch):
    read = []
    monkeypatch.setattr(catalog_words, "_stated", read.append)
    for kind in ("model", "system"):
        for name, path in catalog.names(kind).items():
            assert catalog.find(kind, name) == str(path)
    assert read == []


def test_a_configuration_is_a_model(tmp_path):
    folder = tmp_path / "Llama-3-8B"
    folder.mkdir()
    path = folder / "config.json"
    path.write_text(json.dumps(llama()))
    by_path, by_folder, by_mapping = map(inputs.model, (path, folder, llama()))
    assert by_path == by_folder == replace(inputs.model("llama3-8B"), name="Llama-3-8B")
    assert replace(by_mapping, name="Llama-3-8B") == by_path


def test_a_long_context_of_a_configuration_is_said(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(llama(max_position_embeddings=131072)))
    with pytest.warns(SpecWarning, match="sequences of 131,072 tokens, its longest context"):
        assert inputs.model(path).seq_size == 131072


def test_studies_have_names_too():
    assert catalog.find("study", "tutorial") == str(ROOT / "examples/studies/tutorial.yaml")
    assert "tutorial" not in catalog.names("execution")


STATS = {"execution": {}, "stats": {}}


@pytest.mark.parametrize(
    ("kind", "results", "found"),
    [
        ("model", {"total_time": 1.0, "sample_rate": 2.0}, "the result of an estimate"),
        ("model", {"0": STATS, "1": STATS}, "the results of a search"),
        ("system", {"64": {"0": STATS}}, "the results of a search"),
    ],
)
def test_results_in_place_of_a_spec_are_named_as_such(kind, results, found, tmp_path):
    path = tmp_path / "best.json"
    path.write_text(json.dumps(results))
    with pytest.raises(SpecError) as error:
        catalog.load(kind, str(path))
    assert (len(error.value.problems), error.value.found) == (1, found)
