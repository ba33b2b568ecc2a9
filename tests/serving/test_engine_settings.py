"""The engine's own defaults next to the best limits of its scheduler."""

import json

import pytest

from calculon.declarations.serving_classes import PRESET_ENGINES
from calculon.documents.serving_page import serving_page
from calculon.serving.records.engine_presets import facts_of, find_engine
from calculon.serving.records.read_records import read_deployment
from calculon.serving.served_record import read_served
from tests.documents.drawing import drawn
from tests.serving.given import H100, SMALL, small


@pytest.mark.parametrize("engine", ["any", *PRESET_ENGINES, "vllm@0.8"])
@pytest.mark.parametrize("load", [{}, {"users": 40}, {"ttft_limit": 0.05}])
def test_the_defaults_of_the_engine_are_never_better_than_what_is_achievable(engine, load):
    """Without an engine they are those of vLLM; the split and the types are those of the deployment."""
    changes = {"engine": engine, "tensor_par": 2, "kv_dtype": "float8", "max_batch": 9}
    found = small(changes, procs=2, **load)
    untuned, achievable = found.settings
    named = engine if find_engine(engine) else "vllm"
    fields = {"num_procs": 2, "tensor_par": 2, "kv_dtype": "float8", "engine": named}
    own = read_deployment(fields, facts=facts_of(SMALL, H100))
    assert (untuned.name, untuned.engine, achievable.name) == ("untuned", named, "achievable")
    assert (untuned.max_batch, untuned.token_budget) == (own.max_batch, own.token_budget)
    if "users" in load:
        assert untuned.tpot >= achievable.tpot
    else:
        assert untuned.output_rate <= achievable.output_rate
        assert found["output_rate"] <= achievable.output_rate


def test_the_stated_limits_are_the_achievable_ones_without_an_engine():
    found = small({"max_batch": 500, "admission": "mean"})
    untuned, achievable = found.settings
    assert achievable.output_rate == max(found["output_rate"], untuned.output_rate)
    assert (untuned.engine, achievable.engine) == ("vllm", "vllm")


def test_static_batches_have_no_engine_with_a_preset():
    assert small({"batching": "static", "max_batch": 4}).settings == ()


def test_files_and_pages_have_both():
    found = small({"engine": "sglang"})
    raw = json.loads(json.dumps(found.to_dict()))
    assert read_served(raw, "x.json").settings == found.settings
    text = drawn(serving_page(found.record), width=100)
    assert "SGLang, untuned and achievable: defaults reach" in text
    assert read_served({n: v for n, v in raw.items() if n != "settings"}, "x.json").settings == ()
