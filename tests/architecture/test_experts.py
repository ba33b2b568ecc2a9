"""Experts in place of the MLP: parameters, arithmetic, layers and what they keep."""

from dataclasses import replace

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.architecture.layer import Widths
from calculon.architecture.layers import Flags
from calculon.architecture.layers.routing import grouped_linear
from calculon.architecture.parameters import (
    active_count,
    model_flops_per_token,
    module_count,
    parameter_count,
)
from calculon.base.errors import SpecError
from calculon.hardware.kernels.kernel import Shapes, Types
from calculon.hardware.system import KERNELS
from tests.architecture.layers_by_name import SMALL, B, T, layers_of
from tests.architecture.parameters_by_hand import block_parameters
from tests.helpers import PLAIN, document

MODULES = {
    "deepseek-v3": (1, 11_610_068_224),
    "glm-4.5": (1, 3_988_069_792),
    "glm-4.5-air": (1, 2_375_059_584),
}
"""Modules that predict further tokens, and the parameters of one, without copies of embedding and head."""

HUB = {"glm-4.5": 358.3, "glm-4.5-air": 110.5, "deepseek-v3": 684.5}
"""Parameters of the weights on Hugging Face in 10^9: modules with copies of embedding and head."""

DENSE = replace(SMALL, feedforward=72, kv_heads=2, activation="swiglu", norm="rmsnorm")
DENSE = replace(DENSE, dropout=False)
MODEL = replace(DENSE, feedforward=120, num_experts=8, experts_per_token=2, expert_feedforward=72)
SHARED = replace(MODEL, shared_feedforward=36, shared_gate=True)
S, H, F, E, K = 20.0, 48.0, 72.0, 8.0, 2.0
M = B * S


# -- parameters -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODULES)
def test_modules_that_predict_further_tokens_are_counted_beside_the_model(name):
    """Source: arXiv 2412.19437, section 2.2: a block, two norms and one before the head, and a projection."""
    model, (count, parameters) = inputs.model(name), MODULES[name]
    assert model.mtp_layers == count
    assert module_count(model) == count * parameters
    last = block_parameters(model) + 2 * model.hidden**2 + 3 * model.hidden
    assert parameters == last
    copies = parameter_count(model) + parameters + 2 * model.vocab * model.hidden
    assert copies / 1e9 == pytest.approx(HUB[name], abs=0.05)


@pytest.mark.parametrize(
    "model", [MODEL, SHARED, replace(MODEL, router_bias=True, expert_bias=True)]
)
def test_active_parameters_are_all_but_the_experts_that_a_token_is_not_sent_to(model):
    each = 3 * 48 * 72 + (2 * 72 + 48) * model.expert_bias
    assert parameter_count(model) == 3 * block_parameters(model)
    assert parameter_count(model) - active_count(model) == 3 * (8 - 2) * each


def test_routed_experts_of_a_latent_are_as_narrow_as_it():
    """Source: ``config.json`` of Nemotron 3."""
    changes = {"activation": "squared_relu", "shared_feedforward": 36, "router_bias": True}
    model = replace(MODEL.only("mlp"), num_blocks=1, moe_latent=16, **changes)
    each, narrowed, shared = 2 * 16 * 72, 2 * 48 * 16, 2 * 48 * 36
    rest = narrowed + shared + 8 * (48 + 1)
    assert parameter_count(model) == 8 * each + rest
    assert active_count(model) == 2 * each + rest
    products = 2 * each + narrowed + shared
    assert float(model_flops_per_token(model, training=True)) == 6 * products


# -- model FLOP -------------------------------------------------------------------------------------------------------


def test_model_flops_count_the_matrices_of_chosen_experts_without_the_router():
    """Half of the tokens count as keys, and not (s + 1) / 2, as Megatron-LM has it (``training.py``).

    Source: xtuner prints 148.05 for Qwen3-235B at 4,096 tokens; recipes of Megatron-Bridge 259.98 for DeepSeek-V3, by
    their rate and time; NVIDIA/dgxc-benchmarking 108.9 for Llama 4 Maverick at 8,192.
    """
    for name, modules, billions in [
        ("qwen3-235B-a22B", 0, 148.03),
        ("qwen3-30B-a3B", 0, 23.006),
        ("deepseek-v3", 0, 249.81),
        ("deepseek-v3", 1, 259.99),
        ("llama4-maverick", 0, 108.88),
    ]:
        model = replace(inputs.model(name), mtp_layers=modules)
        found = float(model_flops_per_token(model, training=True, causal=True))
        widths = model.attn_heads * (model.attn_size + model.value_size)
        half_a_key = 3 * 2 * 0.5 * widths * (model.num_blocks + modules)
        assert (found - half_a_key) / 1e9 == pytest.approx(billions, rel=5e-5), (name, modules)


# -- layers -----------------------------------------------------------------------------------------------------------


def test_the_layers_of_a_mixture_in_order():
    before = ["Fork", "RMSNorm", "Experts_Fork", "Router", "TopK"]
    products = ["Experts1", "SwiGLU", "Experts2"]
    sent = ["Counts", "Permute", "Dispatch", "Rows_F", "Sort"]
    returned = ["Unsort", "Rows_G", "Combine", "Unpermute"]
    gathered = ["Routing", "F", "EP_Routing", "EP_F", "Permute"]
    for dispatcher, there, back in (
        ("alltoall", sent, returned),
        ("allgather", gathered, ["Unpermute", "EP_G", "G"]),
    ):
        block = layers_of(MODEL, tensor_par_comm_type="rs_ag", moe_dispatcher=dispatcher)
        names = [name for name in block if name.startswith("MlpBlock")]
        wanted = [*before, *there, *products, *back, "Residual"]
        assert names == [f"MlpBlock_{name}" for name in wanted]
    shared = [name for name in layers_of(SHARED) if name.startswith("Shared")]
    ends = ["Mlp1", "SwiGLU", "Mlp2", "G", "Gate", "Sum"]
    assert shared == [f"Shared_{name}" for name in ("F", *ends)]


def test_each_row_is_multiplied_once_and_all_weights_are_read_by_every_pass():
    layers = layers_of(MODEL)
    first, second = layers["MlpBlock_Experts1"], layers["MlpBlock_Experts2"]
    rows, inner = K * M, F / T
    for layer, n, k in ((first, H, 2 * inner), (second, inner, H)):
        weights = E * n * k
        for flops in layer.flops:
            np.testing.assert_allclose(flops, 2 * rows * n * k)
        for accessed in layer.accessed:
            np.testing.assert_allclose(accessed, 2 * (rows * n + rows * k + weights))
        np.testing.assert_allclose(layer.weights, weights)
        np.testing.assert_allclose(layer.activation, 2 * rows * n)
        assert layer.product.batch == E
        np.testing.assert_allclose(layer.product.m, rows / E)


def test_the_router_computes_in_four_bytes_on_the_share_of_a_split_sequence():
    for comm_type, tokens in (("ar", M), ("rs_ag", M / T)):
        router = layers_of(MODEL, tensor_par_comm_type=comm_type)["MlpBlock_Router"]
        np.testing.assert_allclose(router.flops[0], 2 * tokens * H * E)
        np.testing.assert_allclose(router.accessed[0], tokens * (2 * H + 4 * E) + 4 * H * E)
        assert router.weights == H * E


def test_rows_are_copied_and_added_up():
    layers = layers_of(MODEL)
    for name in ("MlpBlock_Permute", "MlpBlock_Unpermute"):
        for accessed in layers[name].accessed[:2]:
            np.testing.assert_allclose(accessed, 2 * M * H * (1 + K))


def test_rows_are_padded_by_a_copy_for_narrow_products_unless_a_dispatcher_pads_them():
    narrow = {"matmul_dtype": "float8", "tensor_par_comm_type": "rs_ag"}
    names = {"MlpBlock_Experts_Pad", "MlpBlock_Experts_Unpad"}
    for dispatcher in ("alltoall", "allgather"):
        layers = layers_of(MODEL, moe_dispatcher=dispatcher, **narrow)
        for name in names:
            for accessed in layers[name].accessed[:2]:
                np.testing.assert_allclose(accessed, 2 * 2 * K * M * H)
    for changes in (
        {"matmul_dtype": "same"},
        {"moe_dispatcher": "deepep"},
        {"moe_pad_to_capacity": True, "moe_capacity_percent": 100},
    ):
        assert not names & layers_of(MODEL, **(narrow | changes)).keys()


def test_the_collectives_are_those_of_an_mlp_and_of_the_scores():
    layers, dense = (
        layers_of(MODEL, tensor_par_comm_type="rs_ag", moe_dispatcher="allgather"),
        layers_of(DENSE, tensor_par_comm_type="rs_ag"),
    )
    for name in ("MlpBlock_F", "MlpBlock_G"):
        assert layers[name].collective.operations == dense[name].collective.split_operations
        np.testing.assert_array_equal(
            layers[name].collective.message, dense[name].collective.message
        )
    marks = layers["MlpBlock_Routing"].collective
    there = T > 1
    np.testing.assert_allclose(marks.size("reduce_scatter"), 4 * M * E * there)
    np.testing.assert_allclose(marks.size("all_gather"), 5 * M * E * there)


def test_fusion_leaves_fewer_launches():
    """Router and permutation are fused only if other operators are. A bias comes with sigmoid scores."""

    def launched(model=MODEL, **choices):
        layers = layers_of(model, **choices)
        return [layers[f"MlpBlock_{name}"].launches[0] for name in ("TopK", "Permute", "Unpermute")]

    router, rows = {"moe_router_fusion": False}, {"moe_permute_fusion": False}
    apart = replace(MODEL, router_bias=True)
    assert launched(fusion="compile") == launched(apart, fusion="compile") == [5, 3, 3]
    assert launched(fusion="compile", **router) == [22, 3, 3]
    assert launched(fusion="compile", **rows) == [5, 6, 6]
    assert launched(fusion="none") == launched(fusion="none", **router, **rows) == [22, 6, 6]
    assert launched(apart, fusion="none") == [34, 6, 6]
    assert launched(replace(apart, expert_bias=True), fusion="none") == [22, 6, 6]


# -- laws -------------------------------------------------------------------------------------------------------------


def test_one_expert_is_the_dense_mlp_and_a_router():
    alone = layers_of(replace(MODEL, num_experts=1, experts_per_token=1))
    dense = layers_of(DENSE)
    router = alone.pop("MlpBlock_Router")
    assert list(alone) == list(dense)
    for name, layer in alone.items():
        for field, value in layer._asdict().items():
            np.testing.assert_equal(value, getattr(dense[name], field))
    np.testing.assert_array_equal(router.weights, H)
    np.testing.assert_array_equal(router.flops[0], 2 * M * H)


def of_experts(system, experts, rows, n=1024, k=512, loop=None):
    """Return times and memory times of products of experts in all passes, at the rate of a kind.

    The host launches them in a loop, or with `loop` 1 all at once.
    """
    loop = np.array([float(experts)]) if loop is None else loop
    types = Types("bfloat16", "bfloat16", "bfloat16")
    widths = Widths(2, 2, 2)
    layer = grouped_linear("x", experts, 8, rows, n, k, loop=loop, widths=widths, flags=Flags())
    sizes_of = np.array(layer.flops)[:, None, None], np.array(layer.accessed)[:, None, None]
    shapes = Shapes(*sizes_of, [layer], np.array([0]))
    return [
        KERNELS[kind](system, types).times(shapes, system.mem1)
        for kind in ("grouped_product", "product")
    ]


def calling(kind="grouped_product", **law):
    """Return a system whose products of experts, or other products, are calls of the host."""
    raw = document("systems", "h100_80g_sxm")
    raw["ext"]["kernels"][kind] = {"bfloat16": {"law": "calls"} | law}
    return inputs.system(raw)


@pytest.mark.parametrize("name", ["h100_80g_sxm", "l40s"])
def test_one_kernel_of_all_experts_is_a_batch_of_products_with_their_rows(name):
    (own, memory), (plain, same) = of_experts(inputs.system(name), 64, 6400.0, loop=1.0)
    np.testing.assert_array_equal(own, plain)
    np.testing.assert_array_equal(memory, same)


def test_experts_that_are_called_one_by_one_share_no_multiprocessors():
    plain = inputs.system("h100_80g_sxm")
    alone = np.array(of_experts(plain, 2, 200.0)[1])
    together, both = of_experts(calling(together=2, call=0.0), 64, 6400.0)
    np.testing.assert_allclose(together, 32 * alone)
    assert np.all(together[0] >= both[0])  # waves of a few experts are less full
    four = of_experts(calling(together=64, call=0.0), 64, 6400.0)
    np.testing.assert_array_equal(four[0], four[1])
    (limited, _), _ = of_experts(calling(together=2, call=1e-4), 64, 6400.0)
    np.testing.assert_allclose(limited, 64 * 1e-4)
    (one, _), (same, _) = of_experts(calling(together=2, call=1e-4), 1, 100.0)
    np.testing.assert_array_equal(one, same)  # there is no other call to wait for


@pytest.mark.parametrize(
    ("law", "field", "expected"),
    [
        ({"together": 0, "call": 0}, "together", "at least 1"),
        ({"together": 1, "call": 2}, "call", "at most 1"),
        ({"together": 1}, "call", "a number"),
    ],
)
def test_wrong_constants_of_calls_are_refused(law, field, expected):
    with pytest.raises(SpecError) as error:
        calling(**law)
    (problem,) = error.value.problems
    assert problem.field == f"ext.kernels.grouped_product.bfloat16.{field}"
    assert expected in problem.expected


@pytest.mark.parametrize("kind", ["product", "router"])
def test_only_products_of_experts_are_calls(kind):
    with pytest.raises(SpecError, match="one of tiles, found 'calls'"):
        calling(kind, together=1, call=0)


MEASURED = [
    # system, experts, rows, n, k, seconds of the forward pass
    ("b200_sxm", 160, 154, 5120, 1536, 1.487e-3),
    ("b200_sxm", 256, 128, 7168, 2048, 2.400e-3),
    ("b200_sxm", 128, 256, 7168, 2048, 1.409e-3),
    ("b200_sxm", 32, 1024, 7168, 2048, 1.113e-3),
    ("b200_sxm", 40, 9832, 3072, 5120, 11.585e-3),
    ("a100_80g_pcie", 40, 616, 5120, 1536, 1.974e-3),
    ("a100_80g_pcie", 20, 1232, 3072, 5120, 3.512e-3),
]
"""Source: SimuMax, configurations of systems at commit 4dcaae5."""


def test_grouped_products_take_what_was_measured():
    for name, experts, rows, n, k, seconds in MEASURED:
        (own, _), _ = of_experts(inputs.system(name), experts, float(experts * rows), k, n)
        assert float(own[0].item()) == pytest.approx(seconds, rel=0.06), (name, experts)


@pytest.mark.parametrize(("experts", "rows", "tflops"), [(8, 4096, 627.9), (16, 2048, 553.9)])
def test_grouped_products_of_hopper_are_as_fast_as_one_after_another(experts, rows, tflops):
    """Short calls of Transformer Engine 2.7 on an H100, (m, 2048) x (2048, 768) for each expert.

    Source: NVIDIA/TransformerEngine pull request 2045, ``general_grouped_gemm`` on several streams.
    """
    raw = document("systems", "h100_80g_sxm")
    raw["ext"]["kernels"]["product"]["bfloat16"]["sustained"] = 1.0
    (own, _), (batch, _) = of_experts(inputs.system(raw), experts, float(experts * rows), 2048, 768)
    measured = 2 * experts * rows * 2048 * 768 / (tflops * 1e12)
    assert float(own[0].item()) == pytest.approx(measured, rel=0.06)
    assert float(batch[0].item()) < 0.88 * measured


@pytest.mark.parametrize(("system", "rate"), [("h100_80g_sxm", "float32"), ("a100_80e", "float16")])
def test_the_router_runs_in_four_bytes_where_the_engine_has_them(system, rate):
    found = inputs.system(system)
    types = Types("float16", "float16", "float16")
    assert KERNELS["router"](found, types).engine == found.product_engine(rate)


# -- fields -----------------------------------------------------------------------------------------------------------


def test_a_field_of_experts_without_effect_is_refused():
    for changes, field, expected in [
        ({"num_experts": 0}, "experts_per_token", "1, since num_experts is 0"),
        ({"num_experts": 0, "router_bias": True}, "router_bias", "false, since num_experts is 0"),
        ({"num_experts": 0, "shared_feedforward": 9}, "shared_feedforward", "0, since num_experts"),
        ({"experts_per_token": 9}, "experts_per_token", "at most num_experts=8"),
        ({"shared_gate": True}, "shared_gate", "false, since shared_feedforward is 0"),
        ({"mlp_bias": True}, "mlp_bias", "false, since experts take the place of the MLP"),
        ({"parallel_attention": True}, "parallel_attention", "false, since experts read"),
        (
            {"num_experts": 1, "experts_per_token": 1, "shared_feedforward": 24},
            "shared_feedforward",
            "0, since every token passes the only expert",
        ),
        ({"router_group_topk": 2}, "router_group_topk", "0, since router_groups is 0"),
        (
            {"router_groups": 3, "router_group_topk": 2},
            "router_groups",
            "a divisor of num_experts=8",
        ),
        ({"router_groups": 4}, "router_group_topk", "from 1 to less than router_groups=4"),
        (
            {"router_groups": 4, "router_group_topk": 4},
            "router_group_topk",
            "from 1 to less than router_groups=4",
        ),
        (
            {"router_groups": 8, "router_group_topk": 1},
            "router_group_topk",
            "at least 2, to have experts_per_token=2 in groups of 1",
        ),
    ]:
        with pytest.raises(SpecError, match=f"{field}: expected {expected}"):
            replace(MODEL, **changes)


def test_the_published_edition_does_not_know_experts():
    model = replace(MODEL.published(), num_experts=8)
    with pytest.raises(SpecError, match="num_experts=8 needs"):
        calculon.estimate(model, document("examples", "3072_t4_p64_d12_mbs4_full"), "a100_80e")


def test_the_width_of_experts_is_what_tensor_parallelism_divides():
    wide = replace(MODEL, hidden=48 * 16, attn_heads=16, kv_heads=16, feedforward=48)
    ranks = {"num_procs": 16, "tensor_par": 16, "tensor_par_net": 1, "edition": "corrected"}
    shared = {"expert_feedforward": 80, "shared_feedforward": 36}
    for changes, named in (({}, "expert_feedforward=72"), (shared, "shared_feedforward=36")):
        with pytest.raises(SpecError, match=f"divisor of the model's {named}"):
            calculon.estimate(replace(wide, **changes), PLAIN | ranks, "a100_80e")
