import json
from dataclasses import replace

import pytest

from calculon import inputs
from calculon.architecture.parameters import VOCABULARY, parameter_count
from calculon.spec import catalog
from calculon.spec.files import read_document
from calculon.spec.model import Model
from tests.architecture.layers_by_name import block_parameters, counted

COUNTS = {
    "gpt2-124M": 124_439_808,
    "gpt2-355M": 354_823_168,
    "gpt2-774M": 774_030_080,
    "gpt2-1.5B": 1_557_611_200,
    "gpt3-125M": 125_226_240,
    "gpt3-350M": 355_871_744,
    "gpt3-760M": 760_300_032,
    "gpt3-1.3B": 1_315_723_264,
    "gpt3-2.7B": 2_651_553_280,
    "gpt3-6.7B": 6_658_404_352,
    "gpt3-13B-hf": 12_853_386_240,
    "gpt3-175B-hf": 174_604_259_328,
    "llama2-7B": 6_738_415_616,
    "llama2-13B": 13_015_864_320,
    "llama2-70B": 68_976_648_192,
    "llama3-8B": 8_030_261_248,
    "llama3-70B": 70_553_706_496,
    "llama3.1-405B": 405_853_388_800,
    "llama3.2-1B": 1_235_814_400,
    "llama3.2-3B": 3_212_749_824,
    "minicpm3-4B": 4_073_875_968,
    "mistral-7B": 7_241_732_096,
    "qwen2.5-0.5B": 494_032_768,
    "qwen2.5-1.5B": 1_543_714_304,
    "qwen2.5-3B": 3_085_938_688,
    "qwen2.5-7B": 7_615_616_512,
    "qwen2.5-14B": 14_770_033_664,
    "qwen2.5-32B": 32_763_876_352,
    "qwen2.5-72B": 72_706_203_648,
    "qwen3-0.6B": 596_049_920,
    "qwen3-1.7B": 1_720_574_976,
    "qwen3-4B": 4_022_468_096,
    "qwen3-8B": 8_190_735_360,
    "qwen3-14B": 14_768_307_200,
    "qwen3-32B": 32_762_123_264,
    "gemma2-2B": 2_614_341_888,
    "gemma2-9B": 9_241_705_984,
    "gemma2-27B": 27_227_128_320,
    "gemma3-1B": 999_885_952,
    "gemma3-4B": 3_880_099_328,
    "gemma3-12B": 11_765_788_416,
    "gemma3-27B": 27_009_002_240,
    "falcon-180B": 179_522_565_120,
    "bloom-176B": 176_247_271_424,
    "opt-175B": 174_604_468_224,
    "palm-540B-hf": 540_356_474_880,
    "mpt-7B": 6_649_286_656,
    "mpt-30B": 29_957_200_896,
    "mpt-125M": 125_311_488,
    "mpt-350M": 355_985_408,
    "mpt-760M": 760_470_528,
    "mpt-1B": 1_315_950_592,
    "mpt-3B": 2_651_837_440,
    "mpt-7B-foundry": 6_658_859_008,
    "mpt-13B": 12_853_954_560,
    "mpt-30B-foundry": 29_975_214_080,
    "mpt-70B": 64_862_437_376,
    "phi-2": 2_779_683_840,
    "phi-3-mini": 3_821_079_552,
    "phi-3-medium": 13_960_238_080,
    "phi-4": 14_659_507_200,
    "olmo-7B": 6_888_095_744,
    "olmo2-7B": 7_298_617_344,
    "olmo2-13B": 13_716_198_400,
    "olmo2-32B": 32_234_279_936,
    "mixtral-8x7B": 46_702_792_704,
    "mixtral-8x22B": 140_630_071_296,
    "qwen3-30B-a3B": 30_532_122_624,
    "qwen3-235B-a22B": 235_093_634_560,
    "dbrx": 131_596_523_520,
    "olmoe-1B-7B": 6_919_161_856,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v3": 671_026_419_200,
    "qwen3-next-80B": 79_674_391_296,
    "linear-2x1024": 2_097_152,
    "mlp-2x1024": 2_097_152,
    "mlp-4x1024": 4_194_304,
    "nanogpt-mlp": 526_848,
}
"""Published facts: the totals that the weights on Hugging Face, or the papers, state (rounded ones in full)."""

ROUNDED = (
    "gpt3-5B",
    "nemotron4-15B",
    "qwen1.5-moe",
    "qwen2-57B-a14B",
    "qwen3-480B-a35B",
    "gpt-oss-20b",
    "gpt-oss-120b",
    "grok-1",
    "granite3-1B",
    "granite3-3B",
    "minimax-m2",
    "phi-3.5-moe",
    "kimi-k2",
    "moonlight-16B",
    "glm-4.5",
    "glm-4.5-air",
    "glm-5",
    "llama4-scout",
    "qwen3.5-397B",
    "minimax-text-01",
    "granite4-h-small",
    "nemotron-h-56B",
    "nemotron3-nano",
    "nemotron3-super",
    "nemotron3-ultra",
    "llama4-maverick",
)
"""Models whose exact count nobody states."""

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


def test_models_of_the_catalog_have_their_published_parameters():
    assert {name: parameter_count(inputs.model(name)) for name in COUNTS} == COUNTS


def test_every_model_of_the_catalog_is_counted_or_has_the_published_fields_only():
    models = {name: inputs.model(name) for name in catalog.names("model")}
    published = [name for name, model in models.items() if not model.extensions]
    assert len(published) == OF_THE_PUBLISHED_TOOL
    assert set(models) == {*published, *COUNTS, *ROUNDED}


def test_files_of_the_catalog_name_their_source_and_agree_with_it():
    for name in (*COUNTS, *ROUNDED):
        path, model = catalog.names("model")[name], inputs.model(name)
        about = read_document(str(path))["about"]
        assert about["source"], name
        stated, counted = about.get("parameters"), parameter_count(model)
        if isinstance(stated, int):
            assert counted == stated, name
        elif stated is not None:
            rounded = float(stated[:-1]) * SUFFIXES[stated[-1]]
            assert counted == pytest.approx(rounded, rel=0.02), name
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
