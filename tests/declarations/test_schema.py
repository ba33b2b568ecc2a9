"""JSON Schema from the declarations: it accepts what is shipped, and rejects what the decoder rejects."""

import copy
from itertools import product
from typing import Any

import jsonschema
import pytest

from calculon.base.errors import SpecError
from calculon.campaign.record import Campaign
from calculon.declarations import catalog
from calculon.declarations.decode import decode
from calculon.declarations.execution import Execution
from calculon.declarations.fields import spec_fields
from calculon.declarations.files import read_document
from calculon.declarations.hybrid_fields import OF_LINEAR
from calculon.declarations.model import LATENT_WIDTHS, Model
from calculon.declarations.schema import schema
from calculon.hardware.system import System
from tests.draws import some
from tests.store import cache

KINDS = {"model": Model, "system": System, "execution": Execution, "campaign": Campaign}


def shipped(kind: str, name: str = "") -> Any:
    paths = catalog.names(kind)
    if name:
        return read_document(str(paths[name]))
    documents = (read_document(str(path)) for path in paths.values())
    return next(one for one in documents if "base" not in one)  # a whole one


@cache
def validator(kind: str) -> jsonschema.Draft202012Validator:
    found = schema(KINDS[kind])
    jsonschema.Draft202012Validator.check_schema(found)
    return jsonschema.Draft202012Validator(found)


def valid(kind: str, raw: object) -> bool:
    return validator(kind).is_valid(raw)


def decodes(kind: str, raw: object) -> bool:
    try:
        decode(KINDS[kind], raw, "file")
    except SpecError:
        return False
    return True


def test_every_shipped_file_is_valid():
    wrong = [
        f"{kind} {name}: {error.message}"
        for kind in KINDS
        for name in some(catalog.names(kind), 20)
        for error in validator(kind).iter_errors(shipped(kind, name))
    ]
    assert not wrong


VALUES = [
    *(None, True, 0, 1, -1, 0.5, 1.5, 3.0, 2**31, 1e31, -1e31),
    *("", "float16", "true", [], {}, [1]),
]
LATENT = ("q_lora_rank", "kv_lora_rank", *LATENT_WIDTHS)
OF_OTHERS = (
    *("norms", "kv_heads", "experts_per_token", "expert_feedforward", "shared_feedforward"),
    *("moe_latent", "shared_gate", "router_bias", "expert_bias"),
    *("router_groups", "router_group_topk"),
    *(*OF_LINEAR, "layer_pattern", "full_attention_every"),
    *("first_k_dense", "moe_layer_freq", "chunked_window", "mtp_layers"),
)
"""Fields of which another field says what they can be."""


def test_plain_fields_take_what_the_decoder_takes():
    for kind in ["model", "execution"]:
        whole = shipped(kind)
        cases = [(field.key, value) for field in spec_fields(KINDS[kind]) for value in VALUES]
        wrong = []
        for key, value in some(cases, 250):
            raw = whole | {key: value}
            by_schema, by_decoder = valid(kind, raw), decodes(kind, raw)
            strict = key not in (*OF_OTHERS, *LATENT)
            if by_decoder > by_schema or (strict and by_schema > by_decoder):
                wrong.append(f"{key}: {value!r}: valid is {by_schema}, decodes is {by_decoder}")
        assert not wrong, kind


PLACES = [
    ("processing_mode",),
    ("matrix", "float16", "tflops"),
    ("matrix", "float16", "gflops_efficiency"),
    ("matrix", "float16", "gflops_efficiency", 0),
    ("matrix", "float16", "gflops_efficiency", 3, 1),
    ("mem1", "GiB"),
    ("mem2",),
    ("networks",),
    ("networks", 0, "efficiency"),
    ("networks", 0, "processor_usage"),
    ("networks", 1, "must_be_filled"),
    ("networks", 1, "ops"),
    ("networks", 1, "ops", "p2p", 1),
    ("networks", 1, "ops", "all_reduce", 0),
    ("networks", 1, "ops", "all_reduce", 1),
]


def test_nested_fields_take_what_the_decoder_takes():
    whole, wrong = shipped("system", "a100_80g"), []
    for place, value in some(product(PLACES, VALUES), 120):
        raw = copy.deepcopy(whole)
        inside = raw
        for key in place[:-1]:
            inside = inside[key]
        inside[place[-1]] = value
        by_schema, by_decoder = valid("system", raw), decodes("system", raw)
        strict = place != ("matrix", "float16", "gflops_efficiency")
        if by_decoder > by_schema or (strict and by_schema > by_decoder):
            wrong.append(f"{place}: {value!r}: valid {by_schema}, decodes {by_decoder}")
    assert not wrong


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_that_is_not_optional_is_required(kind):
    whole = shipped(kind)
    for field in spec_fields(KINDS[kind]):
        raw = {key: value for key, value in whole.items() if key != field.key}
        assert valid(kind, raw) == decodes(kind, raw), field.key


def test_unknown_keys_are_open_where_they_are_a_warning():
    assert valid("model", shipped("model") | {"vocabulary": 1})
    assert valid("system", shipped("system") | {"about": {"source": "a datasheet"}})
    assert not valid("execution", shipped("execution") | {"tensor_paar": 1})
    raw = copy.deepcopy(shipped("system"))
    raw["networks"][0]["bandwith"] = 1
    assert not valid("system", raw)


def test_an_overlay_may_leave_anything_out():
    assert valid("system", {"base": "a100_80g", "mem1": {"GiB": 40}})
    assert not valid("system", {"base": 1})
    assert not valid("system", {"mem1": {"GiB": 40}})
    assert schema(KINDS["system"])["then"]["properties"]["base"]["description"]


def test_an_execution_that_a_preset_completes_may_leave_fields_out():
    short = {"tensor_par": 4, "pipeline_par": 4, "data_par": 64, "batch_size": 512}
    assert valid("execution", short | {"edition": "corrected"})
    assert valid("execution", short | {"preset": "megatron-lm"})
    assert not valid("execution", short)
    assert not valid("execution", short | {"edition": "sc23"})
    assert not valid("execution", short | {"preset": "published"})
    assert not valid("execution", short | {"edition": "corrected", "tensor_paar": 1})
