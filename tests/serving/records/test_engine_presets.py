"""Presets of engines: values by machine, split and release, and files that are refused."""

import json
import random
import re

import pytest

import calculon
from calculon import inputs
from calculon.base.errors import SpecError
from calculon.declarations import catalog
from calculon.declarations.preset_file import Entry
from calculon.declarations.presets import find_preset
from calculon.declarations.serving_classes import PRESET_ENGINES, release_order
from calculon.search.deployments.serving_search import make_space
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.engine_presets import ENGINE_PRESETS, facts_of, find_engine
from calculon.serving.records.read_records import read_deployment
from calculon.serving.serve import question

MODEL = inputs.model("llama3-8B")
LOAD = {"prompt": 2000, "output": 200}


def _read(machine=None, **fields):
    facts = facts_of(MODEL, None if machine is None else inputs.system(machine))
    return read_deployment({"num_procs": 8, "tensor_par": 8, **fields}, facts=facts)


def test_the_catalog_has_every_preset_and_each_entry_a_source_with_its_date():
    assert sorted(catalog.names("engine")) == sorted(PRESET_ENGINES)
    for name in PRESET_ENGINES:
        preset = find_engine(name)
        entries = [*preset.entries.values()]
        entries += [one for change in preset.changes for one in change.fields.values()]
        for one in entries:
            assert isinstance(one, Entry)
            assert re.search(r"\b20[12]\d\b|\(recalled\)", one.why)


@pytest.mark.parametrize(
    ("engine", "machine", "tokens", "sequences"),
    [
        ("vllm", "h100_80g_sxm", 8192, 1024),
        ("vllm", "b200_sxm", 8192, 1024),
        ("vllm", "a100_80g_sxm", 2048, 256),
        ("vllm", "l40s", 2048, 256),
        ("vllm@0.8", "h100_80g_sxm", 8192, 1024),
        ("vllm@0.8", "b200_sxm", 2048, 256),
        ("sglang", "h100_80g_sxm", 0, 2048),
        ("tensorrt-llm", "h100_80g_sxm", 8192, 2048),
    ],
)
def test_limits_depend_on_the_machine_and_the_release(engine, machine, tokens, sequences):
    found = _read(machine, engine=engine)
    assert (found.token_budget, found.max_batch) == (tokens, sequences)


@pytest.mark.parametrize("engine", ["vllm", "tensorrt-llm"])
def test_limits_of_a_rank_hold_for_each_attention_rank_and_within_the_budget(engine):
    """A sequence takes a token, and each of its drafted tokens another one."""
    assert _read(engine=engine, attn_data_par=4).max_batch == 4 * _read(engine=engine).max_batch
    drafted = {"draft": "ngram", "draft_tokens": 3, "acceptance": 0.5}
    for budget in (64, 512):
        assert _read(engine=engine, token_budget=budget).max_batch == budget
        assert _read(engine=engine, token_budget=budget, **drafted).max_batch == budget // 4


@pytest.mark.parametrize("engine", ["any", "nim", "llama.cpp"])
def test_an_engine_without_a_preset_fills_in_nothing(engine):
    assert find_engine(engine) is None
    assert _read(engine=engine) == Deployment(num_procs=8, tensor_par=8, engine=engine)


def test_stated_fields_and_complete_records_are_kept():
    stated = _read(engine="vllm", max_batch=7, kv_block=32)
    assert (stated.max_batch, stated.kv_block, stated.token_budget) == (7, 32, 8192)
    plain = _read(max_batch=0)
    # A complete record states every field, so that an engine named later changes none of them.
    named = read_deployment(plain, {"engine": "sglang"})
    assert named.to_dict() == plain.to_dict() | {"engine": "sglang"}
    assert json.loads(json.dumps(_read(engine="vllm").to_dict())) == _read(engine="vllm").to_dict()


@pytest.mark.parametrize("name", PRESET_ENGINES)
def test_a_release_has_the_entries_before_the_changes_that_follow_it(name):
    preset = find_engine(name)
    releases = {preset.since, *(one.before for one in preset.changes)}
    for release in releases:
        found = find_engine(f"{name}@{release}")
        ahead = [
            one for one in preset.changes if release_order(release) < release_order(one.before)
        ]
        ahead.sort(key=lambda one: release_order(one.before))
        for field in found.entries:
            entries = [one.fields[field] for one in ahead if field in one.fields]
            assert found.entries[field] == [*entries, preset.entries.get(field)][0]
    assert find_engine(f"{name}@999").entries == preset.entries


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"engine": "vllm@0.1"}, "a release from 0.8 on, the first that vllm describes, found 0.1"),
        ({"engine": "vllm@new"}, "expected vllm@ and a release, such as vllm@0.8"),
        ({"engine": "nim@1.0"}, "expected one of any, vllm"),
        ({"engine": "vlm"}, "did you mean 'vllm'"),
        ({"engine": "vllm", "batching": "static"}, "continuous, as vllm runs it, found static"),
        ({"engine": 3}, "engine: expected one of"),
    ],
)
def test_a_wrong_engine_or_an_unsupported_value_is_refused(fields, said):
    with pytest.raises(SpecError, match=said):
        _read(**fields)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"since": "new"}, "since: expected a release"),
        ({"changes": [{"before": "2024-05", "fields": {}}]}, "before: expected a release"),
        ({"fields": {"max_bach": {"value": 1}}}, "a field of a deployment.*did you mean"),
        ({"fields": {"engine": {"value": "vllm"}}}, "a field of a deployment"),
        ({"fields": {"max_batch": {"value": "gib * 2", "tries": [0]}}}, "fields of a deployment"),
        ({"fields": {"max_batch": {"value": "token_budget"}}}, "the values to search"),
    ],
)
def test_a_wrong_file_is_told_by_its_place(tmp_path, change, said):
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps({"title": "Ours", "since": "1.0", "fields": {}, **change}))
    with pytest.raises(SpecError, match=said):
        find_preset(str(mine), ENGINE_PRESETS)


def test_words_files_numbers_and_searches_agree(tmp_path):
    """Each way to state an engine gives the same fields."""
    engine = random.choice(PRESET_ENGINES)
    fields = {"num_procs": 2, "tensor_par": 2, "pipeline_par": 1, "engine": engine}
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(fields))
    system = inputs.system("a100_80g_sxm")
    known = read_deployment(fields, facts=facts_of(MODEL, system))
    words = f"tp=2 engine={engine}"
    for source, changes in (
        (fields, None),
        (str(file), None),
        (words, None),
        ("tp=2", {"engine": engine}),
        (2, {"engine": engine}),
    ):
        assert question(MODEL, source, system, None, changes, LOAD).deployment == known
    space = make_space(MODEL, 2, system, None, LOAD, fix={"engine": engine})
    budgets = {space.deployment(i).token_budget for i in range(len(space))}
    assert budgets == {*find_engine(engine).tried("token_budget")}
    best = calculon.serve(MODEL, 2, system, changes={"engine": engine}, **LOAD).deployment
    assert (best.engine, best.admission, best.kv_block) == (
        engine,
        known.admission,
        known.kv_block,
    )
