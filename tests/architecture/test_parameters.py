import json
from dataclasses import replace

import pytest

from calculon import inputs
from calculon.architecture.parameters import VOCABULARY, parameter_count
from calculon.declarations import catalog
from calculon.declarations.files import read_document
from calculon.declarations.model import Model
from tests.architecture.parameters_by_hand import block_parameters, counted

COUNTS = {
    "gpt3-125M": 125_226_240,
    "gpt3-350M": 355_871_744,
    "gpt3-760M": 760_300_032,
    "gpt3-1.3B": 1_315_723_264,
    "gpt3-2.7B": 2_651_553_280,
    "gpt3-6.7B": 6_658_404_352,
    "gpt3-13B-hf": 12_853_386_240,
    "gpt3-175B-hf": 174_604_259_328,
    "minicpm3-4B": 4_073_875_968,
    "gemma3-12B": 11_765_788_416,
    "opt-175B": 174_604_468_224,
    "palm-540B-hf": 540_356_474_880,
    "mpt-30B": 29_957_200_896,
    "olmo2-32B": 32_234_279_936,
}
"""Totals of the weights, where papers and files state them rounded; other files state theirs."""

OF_THE_PUBLISHED_TOOL = 13
SUFFIXES = {"M": 1e6, "B": 1e9, "T": 1e12}

SMALL = Model(
    hidden=96,
    feedforward=256,
    seq_size=64,
    attn_heads=8,
    attn_size=16,
    num_blocks=3,
    kv_heads=2,
    activation="swiglu",
    norm="rmsnorm",
    vocab=1000,
)
"""A small model; its heads are together wider than its residual stream."""

QUERIES, KEYS = 8 * 16, 2 * 16


def test_the_published_count_is_about_what_the_name_says():
    billions = {"megatron-126M": 0.126, "gpt3-13B": 13, "gpt3-175B": 175, "megatron-1T": 1008}
    found = {name: parameter_count(inputs.model(name)) / 1e9 for name in billions}
    assert found == pytest.approx(billions, rel=0.02)


def test_each_block_of_the_published_count_adds_its_projections_biases_and_norms():
    model = inputs.model("lamda")
    h, f, width = model.hidden, model.feedforward, model.attn_heads * model.attn_size
    assert width != h
    products = 3 * h * width + width * h + h * f + f * h
    biases = 3 * width + h + f + h
    norms = 2 * (h + h)
    embeddings = VOCABULARY * h + model.seq_size * h
    expected = model.num_blocks * (products + biases + norms) + embeddings
    assert parameter_count(model) == expected


def test_files_of_the_catalog_name_their_source_and_agree_with_it():
    models = {name: inputs.model(name) for name in catalog.names("model")}
    extended = {name: model for name, model in models.items() if model.extensions}
    assert len(models) - len(extended) == OF_THE_PUBLISHED_TOOL
    for name, model in extended.items():
        path, counted = catalog.names("model")[name], parameter_count(model)
        about = read_document(str(path))["about"]
        assert about["source"], name
        stated = about.get("parameters")
        if isinstance(stated, int):
            assert counted == stated, name
        elif stated is not None:
            rounded = float(stated[:-1]) * SUFFIXES[stated[-1]]
            assert counted == pytest.approx(rounded, rel=0.02), name
        assert counted == COUNTS.get(name, counted), name
        whole = json.dumps(model.to_dict() | {"about": about}, indent=2) + "\n"
        assert path.read_text(encoding="utf-8") == whole


def test_a_paper_counts_blocks_and_embeddings_apart():
    model = inputs.model("nemotron4-15B")  # "3.2 billion embedding and 12.5 billion non-embedding"
    assert model.num_blocks * block_parameters(model) / 1e9 == pytest.approx(12.5, abs=0.05)
    both = parameter_count(model) - model.num_blocks * block_parameters(model)
    assert both / 1e9 == pytest.approx(3.2, abs=0.1)


# -- formulas ---------------------------------------------------------------------------------------------------------


def _block(**changes):
    """Return the parameters of one of three blocks."""
    return parameter_count(replace(SMALL, vocab=0, **changes)) / 3


BLOCK = 96 * QUERIES + 2 * 96 * KEYS + QUERIES * 96 + 3 * 96 * 256 + 2 * 96
"""Of queries, keys and values, output, MLP and norms."""


def test_all_heads_have_keys_and_values_unless_groups_are_stated():
    all_heads, groups_of_one, groups = (_block(kv_heads=each) for each in (0, 8, 2))
    assert all_heads == groups_of_one == groups + (8 - 2) * 2 * 96 * 16


def test_a_field_adds_to_a_block_what_it_stands_for():
    for changes, more in [
        ({"activation": "geglu"}, 0),
        ({"activation": "gelu"}, -96 * 256),
        ({"activation": "squared_relu"}, -96 * 256),
        ({"qkv_bias": True}, QUERIES + 2 * KEYS),
        ({"attention_gate": True}, 96 * QUERIES),
        ({"attention_gate": True, "qkv_bias": True}, (96 + 1) * QUERIES + QUERIES + 2 * KEYS),
        ({"out_bias": True}, 96),
        ({"mlp_bias": True}, 2 * 256 + 96),
        ({"mlp_bias": True, "activation": "relu"}, 256 + 96 - 96 * 256),
        ({"norm": "layernorm"}, 2 * 96),
        ({"norm": "layernorm_no_bias"}, 0),
        ({"norm": "layernorm_plain"}, -2 * 96),
        ({"norms": 1, "parallel_attention": True}, -96),
        ({"norms": 4}, 2 * 96),
        ({"qk_norm": "head"}, 2 * 16),
        ({"qk_norm": "head", "norm": "layernorm_plain"}, 2 * 16 - 2 * 96),
        ({"qk_norm": "full"}, QUERIES + KEYS),
        ({"parallel_attention": True}, 0),
        ({"rotary": 0.5, "dropout": False, "causal": False, "sliding_window": 8}, 0),
    ]:
        assert _block(**changes) - BLOCK == more, changes


def test_embedding_and_head_count_with_a_vocabulary():
    for changes, embedding, head in [
        ({}, 1000 * 96, 1000 * 96 + 96),
        ({"tied": True}, 1000 * 96, 96),
        ({"positions": 64}, (1000 + 64) * 96, 1000 * 96 + 96),
        ({"embedding_norm": True}, 1000 * 96 + 96, 1000 * 96 + 96),
        ({"embedding_norm": True, "norm": "layernorm"}, 1002 * 96, 1002 * 96),
        ({"head_bias": True}, 1000 * 96, 1000 * 96 + 96 + 1000),
        ({"norm": "layernorm_plain"}, 1000 * 96, 1000 * 96),
        ({"vocab": 0, "positions": 64, "embedding_norm": True, "head_bias": True}, 0, 0),
    ]:
        model = replace(SMALL, **changes)
        norms = {"norm": model.norm}
        assert parameter_count(model) == embedding + 3 * _block(**norms) + head, changes


def test_layers_hold_the_parameters_that_the_twin_counts():
    for name in catalog.names("model"):
        model = inputs.model(name)
        assert (name, parameter_count(model)) == (name, counted(model))
