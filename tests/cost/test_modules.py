"""Recomputation by sets of modules: what each frees, what runs again, and which sets there are."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.base.errors import SpecError
from calculon.declarations.execution import Execution
from calculon.declarations.module_sets import MODULES
from calculon.editions import CORRECTED
from calculon.estimate.layer_list import operator_tables
from calculon.plan.columns import field_of
from calculon.plan.plan import Plan
from tests.cases import for_each
from tests.draws import some
from tests.helpers import CORRECTED_FLASH

HUGE = inputs.system({"base": "h100_80g_sxm", "mem1": {"GiB": 1_000_000}})
GIB = 2**30
TOKENS = 4096
DEEPSEEK_V3 = replace(
    inputs.model("deepseek-v3"), seq_size=TOKENS, first_k_dense=0, mtp_layers=0, vocab=0
)
"""With experts in all of its blocks: of the first three, and of the embedding, nothing is asked."""

GATED = replace(DEEPSEEK_V3, shared_gate=True)
GROUPED = replace(inputs.model("mixtral-8x7B"), seq_size=TOKENS, vocab=0)

EXECUTION = CORRECTED_FLASH
SPLIT = EXECUTION | {
    "num_procs": 4,
    "tensor_par": 4,
    "tensor_par_comm_type": "rs_ag",
    "seq_par_ag_redo": True,
}
"""As Megatron-LM splits sequences: inputs are kept split."""


WIDTHS = ("q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
DENSE = {
    "num_experts": 0,
    "experts_per_token": 1,
    "expert_feedforward": 0,
    "shared_feedforward": 0,
    "router_bias": False,
    "router_groups": 0,
    "router_group_topk": 0,
}


def stats(modules="none", model=DEEPSEEK_V3, execution=EXECUTION, **changes):
    return calculon.estimate(
        model, execution | {"recompute_modules": modules} | changes, HUGE
    ).stats


def freed(modules, model=DEEPSEEK_V3, execution=EXECUTION):
    """Bytes of a block and microbatch that are no longer kept."""
    kept = [stats(one, model, execution)["block_act_storage_space"] for one in ("none", modules)]
    return kept[0] - kept[1]


def sets_of(model):
    """Sets of the modules that a model with latents and shared experts has in every block."""
    lacking = {"mlp", "gdn_norm_out"} if model.latent else {"mlp", "gdn_norm_out", "mla_up_proj"}
    own = [one for one in MODULES if one not in lacking]
    own = [one for one in own if model.shared_feedforward or one != "shared_experts"]
    values = field_of("recompute_modules").declaration.choices
    sets = ["+".join(parts) for n in range(1, len(own) + 1) for parts in combinations(own, n)]
    return [one for one in sets if one in values]


# -- what a block keeps -----------------------------------------------------------------------------------------------


def test_a_token_of_deepseek_v3_keeps_455_kilobytes_in_a_block_with_experts():
    """2h and latents, queries, keys, values and their result; k rows of experts, shared experts, scores."""
    h, a, wide, value, inner, rank = 7168, 128, 192, 128, 2048, 1536 + 512 + 64 + 1536 + 512
    attention = 2 * (2 * h + rank + 2 * a * wide + 2 * a * value) + 4 * a
    experts = 2 * (2 * h + 8 * (h + 3 * inner) + 3 * inner)
    choices = 4 * 256 + 12 * 8
    assert stats()["block_act_bytes_per_token"] == attention + experts + choices
    assert round(attention / 1e3) == 201
    assert round(experts / 1e3) == 254
    assert round((attention + experts) / 1e3) == 455


@pytest.mark.parametrize(("split", "kilobytes"), [(2, 258), (1, 242)])
def test_a_token_of_mixtral_keeps_242_kilobytes_of_experts_that_are_not_split(split, kilobytes):
    """4h + (2a + 2g) d elements, 4 bytes of each head, k (u h + 3 f), 4 bytes of each score, 12 of each row.

    Of a split sequence: a rank has 1 / u of the tokens, and the rows of all.
    """
    elements = 4 * 4096 + (2 * 32 + 2 * 8) * 128 + 2 * (split * 4096 + 3 * 14336)
    expected = 2 * elements + 4 * 32 + 4 * 8 + 12 * 2
    if split == 1:
        found = stats(model=GROUPED)["block_act_storage_space"] / TOKENS
    else:
        two = SPLIT | {"num_procs": split, "tensor_par": split}
        found = stats(model=GROUPED, execution=two)["block_act_storage_space"] * split / TOKENS
    assert found == expected
    assert round(found / 1e3) == kilobytes


# -- what modules free ------------------------------------------------------------------------------------------------


def test_what_modules_free_of_deepseek_v3_is_what_was_published():
    """61 blocks of 4096 tokens: 30.5 GiB of heads, 7.6 of norms, and 3.8 of activations of experts in 8 bits.

    Published of Megatron-LM: 30.4, 8.2 and 3.8 GB (arXiv 2603.07685).
    """
    blocks = 61 / GIB
    heads = 2 * 128 * (2 * 192 + 128) * TOKENS
    assert freed("mla_up_proj") == heads
    assert round(heads * blocks, 1) == 30.5
    norms = 2 * (2 * 7168 + 1536 + 512) * TOKENS
    assert freed("layernorm") == norms
    assert round(norms * blocks, 1) == 7.6
    products = EXECUTION | {"matmul_dtype": "float8"}
    rows = 8 * 2048 * TOKENS
    assert freed("moe_act", execution=products) == rows
    assert round(rows * blocks, 1) == 3.8


@for_each("model", [DEEPSEEK_V3, GATED, GROUPED])
def test_what_the_modules_of_experts_free(model):
    """Activations of rows; everything of shared experts; everything but the output of the norm."""
    h, k, inner, experts = (
        model.hidden,
        model.experts_per_token,
        model.inner_width,
        model.num_experts,
    )
    activation = 2 * k * inner * TOKENS
    assert freed("moe_act", model) == activation
    shared = 2 * (3 * model.shared_feedforward + h * model.shared_gate) * TOKENS
    if model.shared_feedforward:
        assert freed("shared_experts", model) == shared
    routed = (2 * k * (h + 3 * inner) + 4 * experts + 12 * k) * TOKENS
    assert freed("moe", model) == routed + shared


def evaluated(model, execution, sets):
    """Sets with what each keeps of a block, needs of memory, and takes of time."""
    rows = [execution | {"recompute_modules": one} for one in sets]
    found = calculon.evaluate(model, HUGE, Plan.from_records(rows))
    columns = (found[name] for name in ("block_act_storage_space", "act_space", "total_time"))
    return dict(zip(sets, zip(*columns, strict=True), strict=True))


@for_each("execution", [EXECUTION, SPLIT, EXECUTION | {"attn_impl": "eager"}])
@for_each("model", [GATED, GROUPED])
def test_a_set_frees_what_its_members_free_and_less_than_all(model, execution):
    single, several = (
        [one for one in sets_of(model) if ("+" in one) == more] for more in (False, True)
    )
    sets = single + some(several, 20)
    found = evaluated(model, execution, ["none", *sets])
    again = {"activation_recompute": "full", "seq_par_ag_redo": False}
    full = stats(model=model, execution=execution | again)
    most, _, quickest = found["none"]
    freed = {one: most - kept for one, (kept, _, _) in found.items()}
    checkpoint = full["act_checkpoint_size"] / model.num_blocks
    for one in sets:
        gained, time = freed[one], found[one][2]
        assert gained == pytest.approx(sum(freed[part] for part in one.split("+")), rel=1e-12)
        assert 0 <= gained <= most - checkpoint
        assert quickest <= time <= full["total_time"] * (1 + 1e-12)


def test_dense_blocks_among_others_have_modules_of_their_own():
    """Three of 61 blocks have an MLP, all others experts: each module is of its kind of block."""
    dense, of_experts = 3, ["moe_act", "shared_experts", "moe"]
    model = replace(GATED, first_k_dense=dense)
    sets = ["none", *of_experts, "mlp", "mlp+moe"]
    mixed = evaluated(model, EXECUTION, sets)
    alone = evaluated(GATED, EXECUTION, sets[:4])
    saved = {one: mixed["none"][0] - kept for one, (kept, _, _) in mixed.items()}
    count, mlp = model.num_blocks, 2 * 3 * model.feedforward * TOKENS
    assert saved["mlp"] == pytest.approx(mlp * dense / count, rel=1e-9)
    for module in of_experts:
        whole = alone["none"][0] - alone[module][0]
        assert saved[module] == pytest.approx(whole * (count - dense) / count, rel=1e-9)
    assert saved["mlp+moe"] == pytest.approx(saved["mlp"] + saved["moe"], rel=1e-9)


# -- what runs again --------------------------------------------------------------------------------------------------


def operators(modules="none", model=GATED, execution=SPLIT):
    """Operators of the one kind of block."""
    plan = Plan.from_records([execution | {"recompute_modules": modules}])
    (found,) = operator_tables(model, HUGE, plan, CORRECTED)
    return found


def repeated(modules, model, execution):
    """Layers, and which of them are computed again, and which communicate again."""
    found = operators(modules, model, execution)
    table = found.layout.table
    flags = (
        table.flagged(flag, found.choice, CORRECTED)[:, 0]
        for flag in ("recompute", "recommunicate")
    )
    return table.layers, *flags


def again(modules, model=GATED, execution=SPLIT):
    """Names of the layers that are computed again, and of those that communicate again only then."""
    found, computed, sent = repeated(modules, model, execution)
    before = repeated("none", model, execution)[2]
    names = np.array([layer.name.partition("Block_")[2] or layer.name for layer in found])
    return set(names[computed]), set(names[sent & ~before])


EXPERTS = {"Router", "TopK", "Permute", "Sort", "Experts1", "SwiGLU", "Experts2"}
EXPERTS |= {"Unsort", "Unpermute"}
SENT = {"Counts", "Dispatch", "Rows_F", "Rows_G", "Combine"}
SHARED = {"Shared_Mlp1", "Shared_SwiGLU", "Shared_Mlp2", "Shared_Gate"}


@for_each(
    ("modules", "computed", "sent"),
    [
        ("none", set(), set()),
        ("core_attn", {"Flash"}, set()),
        ("layernorm", {"RMSNorm", "Query_Norm", "KV_Norm"}, set()),
        ("mla_up_proj", {"Query_Up", "KV_Up", "Rotary", "Key_Join"}, set()),
        ("moe_act", {"SwiGLU"}, set()),
        ("shared_experts", SHARED, {"Shared_G"}),
        ("moe", EXPERTS | SHARED | {"Shared_Sum"}, SENT | {"Shared_G"}),
    ],
)
def test_what_a_module_computes_and_communicates_again(modules, computed, sent):
    """Shared experts read their gathered input again in any case."""
    assert again(modules) == (computed, sent)


def test_what_is_made_of_latents_gathers_them_again():
    """Kept whole otherwise, they stay split."""
    kept = SPLIT | {"seq_par_ag_redo": False}
    _, sent = again("mla_up_proj", execution=kept)
    assert sent == {"Query_F", "KV_F"}
    heads = 2 * 128 * (2 * 192 + 128) / 4
    latents = 2 * (1536 + 512) * 3 / 4
    assert freed("mla_up_proj", GATED, kept) == (heads + latents) * TOKENS


@pytest.mark.parametrize("dispatcher", ["alltoall", "allgather"])
def test_experts_that_are_recomputed_dispatch_and_combine_once_more(dispatcher):
    """One exchange forward, one in the backward pass of each, and one more: six of four."""
    spread = {"expert_par": 4, "expert_tensor_par": 1, "moe_dispatcher": dispatcher}
    spread["coll_algo"] = "auto"
    names = ("Dispatch", "Combine") if dispatcher == "alltoall" else ("EP_F", "EP_G")
    for modules, times in (("none", 4), ("moe_act+shared_experts", 4), ("moe", 6)):
        found = operators(modules, GATED, SPLIT | spread)
        layers = [found.layout.table.layers[i] for i in found.layout.table.collective_rows("ep")]
        link = found.cost.further["ep"].link
        exchanges = [i for i, layer in enumerate(layers) if layer.name.endswith(names)]
        assert np.count_nonzero(link[:, exchanges]) == times
        again = link[2].sum()
        assert again == pytest.approx(link[0].sum() if modules == "moe" else 0)


# -- which sets there are ---------------------------------------------------------------------------------------------


@for_each(
    ("written", "held"),
    [
        ("layernorm", "norm"),
        ("moe_act+mla_up_proj", "mla_up_proj+moe_act"),
        (["moe_act", "layernorm", "mla_up_proj"], "norm+mla_up_proj+moe_act"),
        (["mlp"], "mlp"),
        ([], "none"),
        ("norm_activation", "norm_activation"),
    ],
)
def test_a_set_is_held_in_one_order_however_it_is_written(written, held):
    assert Execution(**(EXECUTION | {"recompute_modules": written})).recompute_modules == held
    table = Plan.from_records([EXECUTION | {"recompute_modules": written}])
    assert table.row(0).recompute_modules == held


@for_each(
    ("written", "hint"),
    [
        ("moe+moe_act", "leave out moe_act: part of moe"),
        (["shared_experts", "moe"], "leave out shared_experts: part of moe"),
        ("norm+ops", "ops cannot be combined with others"),
        ("activation+moe", "activation cannot be combined with others"),
        ("mla_upproj", "did you mean 'mla_up_proj'?"),
        ("norm+norm", ""),
        (3, ""),
    ],
)
def test_what_is_no_set_is_refused_with_a_hint(written, hint):
    with pytest.raises(SpecError) as error:
        Execution(**(EXECUTION | {"recompute_modules": written}))
    (problem,) = error.value.problems
    assert problem.field == "recompute_modules"
    assert problem.expected == (
        "one of none, norm, activation, norm_activation, mlp, ops, "
        "or a set of norm, core_attn, mla_up_proj, mlp, moe_act, shared_experts, moe, gdn_norm_out"
    )
    assert problem.hint == hint


@for_each(
    ("changes", "modules", "expected"),
    [
        ({"kv_lora_rank": 0, **dict.fromkeys(WIDTHS, 0)}, "mla_up_proj", "kv_lora_rank is 0"),
        ({"shared_feedforward": 0}, "norm+shared_experts", "shared_feedforward is 0"),
        ({}, "mlp+moe", "every block has experts"),
        (DENSE, "moe_act", "num_experts is 0"),
        (DENSE, "moe", "num_experts is 0"),
    ],
)
def test_modules_that_a_model_lacks_are_refused_by_name(changes, modules, expected):
    model = replace(DEEPSEEK_V3, **changes)
    with pytest.raises(SpecError, match=f"a set without .*, since {expected}"):
        stats(modules, model)


def test_attention_is_said_once():
    with pytest.raises(SpecError, match="a set without core_attn, which is activation_recompute"):
        stats("core_attn+moe", activation_recompute="attn_only")
    one, other = stats("core_attn"), stats(activation_recompute="attn_only")
    assert one == other
