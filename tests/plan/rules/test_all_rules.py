import dataclasses
import json
import re

import pytest

import calculon
from calculon import inputs
from calculon.declarations.statistics import MEMORIES
from calculon.plan.plan import NAMES
from calculon.plan.rules.all_rules import MEMORY_REASONS, REASONS, RULES
from calculon.plan.rules.failures import failures
from calculon.plan.rules.preset_rules import PRESET_RULES
from tests.cases import for_each
from tests.helpers import PLAIN, document
from tests.plan.rules import (
    context_cases,
    data_cases,
    expert_cases,
    linear_cases,
    overlap_cases,
    packed_cases,
    pipeline_cases,
    recipe_cases,
)
from tests.store import cache

MODEL = document("models", "megatron-126M") | {"num_blocks": 12, "seq_size": 2048}
LATENT = MODEL | {
    "kv_lora_rank": 24,
    "qk_nope_head_dim": MODEL["attn_size"] - 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 40,
}
SYSTEM = inputs.system("a100_80g")
BASE = PLAIN | {
    "num_procs": 16,
    "tensor_par": 4,
    "pipeline_par": 2,
    "data_par": 2,
    "pipeline_par_net": 1,
    "data_par_net": 1,
    "batch_size": 32,
    "microbatch_size": 4,
    "fused_activation": True,
}
ALONE = {"num_procs": 2, "tensor_par": 1, "pipeline_par": 1}
INFERENCE = {"training": False}
CORRECTED = {"edition": "corrected"}

MALFORMED = {
    "degrees_product": ({"num_procs": 17}, "num_procs: = 16"),
    "batch_split": ({"batch_size": 33}, "batch_size: a multiple of data_par=2"),
    "microbatch_split": (
        {"microbatch_size": 5},
        "microbatch_size: a divisor of batch_size / data_par = 16",
    ),
    "recompute_needs_training": (
        INFERENCE | {"activation_recompute": "full"},
        "activation_recompute: none",
    ),
    "interleaving_needs_pipeline": (
        ALONE | {"pipeline_interleaving": 2},
        "pipeline_interleaving: 1, since pipeline_par is 1",
    ),
    "sharding_needs_data_par": (
        {"num_procs": 8, "data_par": 1, "optimizer_sharding": True},
        "optimizer_sharding: false, since data_par is 1",
    ),
    "overlap_needs_tensor_par": (
        ALONE | {"tensor_par_overlap": "ring"},
        "tensor_par_overlap: none, since tensor_par is 1",
    ),
    "redo_needs_sequence_parallel": ({"seq_par_ag_redo": True}, "seq_par_ag_redo: rs_ag"),
    "dp_overlap_needs_training": (
        INFERENCE | {"data_par_overlap": True},
        "data_par_overlap: training",
    ),
    "optimizer_offload_needs_training": (
        INFERENCE | {"optimizer_offload": True},
        "optimizer_offload: no optimizer",
    ),
    "state_dtype_needs_moments": (
        CORRECTED | {"optimizer": "sgd", "optimizer_state_dtype": "bfloat16"},
        "optimizer_state_dtype: float32 with optimizer: sgd, which keeps no moments",
    ),
    "main_grad_needs_small_gradients": (
        CORRECTED | {"main_grad": True},
        "main_grad: false with grad_dtype: auto, since no smaller type is stated",
    ),
    "grad_sums_need_small_gradients": (
        CORRECTED | {"zero_stage": 0, "grad_sums": True},
        "grad_sums: false with grad_dtype: auto",
    ),
    "modules_need_training": (
        INFERENCE | CORRECTED | {"recompute_modules": "norm"},
        "recompute_modules: none, since there is no backward pass in inference",
    ),
    "modules_alone": (
        CORRECTED | {"recompute_modules": "ops", "activation_recompute": "full"},
        "recompute_modules: none with activation_recompute: full",
    ),
    "modules_of_products": (
        CORRECTED | {"recompute_modules": "mlp", "matmul_impl": "mul_sum"},
        "recompute_modules: none, unless tp_impl is megatron and matmul_impl is gemm",
    ),
    "modules_of_blocks": (
        CORRECTED | {"recompute_modules": "norm_activation"},
        "recompute_modules: none, since blocks of model are not attention and then an MLP",
    ),
    "modules_of_model": (
        CORRECTED | {"recompute_modules": "norm+mlp"},
        "recompute_modules: a set without mlp, since every block has experts in model",
    ),
    "modules_say_attention": (
        CORRECTED | {"recompute_modules": "core_attn", "activation_recompute": "attn_only"},
        "recompute_modules: a set without core_attn, which is activation_recompute: attn_only",
    ),
    "some_blocks_recompute": (
        CORRECTED | {"recompute_blocks": 3, "recompute_every": 2, "activation_recompute": "full"},
        "recompute_blocks: at most recompute_every = 2",
    ),
    "every_block_recomputes": (
        CORRECTED | {"recompute_every": 2, "activation_recompute": "none"},
        "recompute_every: 1, unless something is recomputed",
    ),
    "experts_tensor_par_overlap": (
        CORRECTED | {"tensor_par_overlap": "ring"},
        "tensor_par_overlap: none, since model has experts",
    ),
    "experts_tp_impl": (
        CORRECTED | {"tp_impl": "allgather"},
        "tp_impl: megatron, since model has experts",
    ),
    "experts_matmul_impl": (
        CORRECTED | {"matmul_impl": "mul_sum"},
        "matmul_impl: gemm, since model has experts",
    ),
    "network_number": ({"data_par_net": 2}, "data_par_net: numbered 0 to 1"),
    "tokens_split": (
        {"num_procs": 12, "tensor_par": 3, "tensor_par_net": 1, "tensor_par_comm_type": "rs_ag"},
        "tensor_par: a divisor of microbatch_size x seq_size = 8192",
    ),
    "hidden_split": (
        {"num_procs": 20, "tensor_par": 5, "tensor_par_net": 1},
        "tensor_par: a divisor of the model's hidden=768",
    ),
    "feedforward_split": (
        {"num_procs": 4096, "tensor_par": 1024, "tensor_par_net": 1},
        "tensor_par: a divisor of the model's feedforward=3073",
    ),
    "attn_heads_split": (
        {"num_procs": 12, "tensor_par": 3, "tensor_par_net": 1},
        "tensor_par: a divisor of the model's attn_heads=16",
    ),
    "edition_fields": ({"attn_impl": "flash"}, "edition: corrected, which attn_impl=flash", "sc23"),
    "multiquery_heads": (
        {"attention_type": "multiquery", "edition": "corrected"},
        "attention_type: multihead, since the model states kv_heads=4",
    ),
    "latent_multiquery": (
        CORRECTED | {"attention_type": "multiquery"},
        "attention_type: multihead, since kv_lora_rank=24",
    ),
    "latent_overlap": (
        CORRECTED | {"tensor_par_overlap": "ring"},
        "tensor_par_overlap: none, since kv_lora_rank=24",
    ),
    "latent_comm": (
        CORRECTED | {"tensor_par_comm_type": "p2p_rs_ag"},
        "tensor_par_comm_type: ar or rs_ag, since kv_lora_rank=24",
    ),
    "latent_tp_impl": (
        CORRECTED | {"tp_impl": "allgather"},
        "tp_impl: megatron, since kv_lora_rank=24",
    ),
    "latent_operators": (
        CORRECTED | {"recompute_modules": "ops"},
        "recompute_modules: a value other than ops, since kv_lora_rank=24",
    ),
    "mtp_overlap": (
        CORRECTED | {"tensor_par_overlap": "ring"},
        "tensor_par_overlap: none, since mtp_layers=1",
    ),
    "mtp_tp_impl": (CORRECTED | {"tp_impl": "allgather"}, "tp_impl: megatron, since mtp_layers=1"),
    "kv_heads_split": (
        {"num_procs": 16, "tensor_par": 4, "edition": "corrected"},
        "tensor_par: a divisor or a multiple of the model's kv_heads=6",
    ),
    "linear_comm": (
        CORRECTED | {"tensor_par_comm_type": "rs_ag"},
        "tensor_par_comm_type: ar, since a linear layer alone has no row-split product",
    ),
    "tp_impl_comm": (
        CORRECTED | {"tp_impl": "allgather", "tensor_par_overlap": "ring"},
        "tp_impl: megatron, unless tensor_par_comm_type is ar and tensor_par_overlap none",
    ),
    "tp_async_needs_backward": (
        CORRECTED | {"tp_async": True, "tensor_par_overlap": "pipe"},
        "tp_async: false, since tensor_par_overlap: pipe already hides collectives",
    ),
    "copies_need_split": (
        CORRECTED | {"seq_par_copies": True},
        "seq_par_copies: false, unless tensor_par is above 1, tensor_par_comm_type rs_ag and "
        "nothing overlaps with the collectives",
    ),
    "scope_needs_compiler": (
        CORRECTED | {"compile_scope": "blocks"},
        "compile_scope: step, unless fusion is compile or max",
    ),
    "rotary_needs_kernels": (
        CORRECTED | {"rotary_impl": "complex"},
        "rotary_impl: real, unless fusion is none, compile or max",
    ),
    "user_buffers_need_ring": (
        CORRECTED | {"tp_user_buffers": True, "tensor_par_overlap": "ring"},
        "tp_user_buffers: false, unless tensor_par_overlap is ring and tensor_par_comm_type rs_ag",
    ),
    "hidden_needs_overlap": (
        CORRECTED | {"tp_hidden_percent": 25},
        "tp_hidden_percent: 100, since tensor_par_overlap is none",
    ),
    "scaling_needs_float8": (
        CORRECTED | {"float8_scaling": "current"},
        "float8_scaling: delayed, unless matmul_dtype is float8",
    ),
    "bias_needs_reduction": (
        CORRECTED | {"bias_after_reduce": True},
        "bias_after_reduce: false, since no row-split product of model has a bias",
    ),
    "mul_sum_needs_vector": (
        CORRECTED | {"matmul_impl": "mul_sum", "tensor_par_overlap": "ring"},
        "matmul_impl: gemm, unless tensor_par_overlap is none and matmul_dtype same",
    ),
    "positions_cover_sequence": (
        CORRECTED | {"seq_length": 8192},
        "seq_length: at most 4096: model has 4096 learned positions",
    ),
    "datatype_engine": ({"datatype": "float8"}, "datatype: float16", "'float8'"),
    "matmul_wider": (
        CORRECTED | {"matmul_dtype": "tfloat32"},
        "matmul_dtype: a type of at most 2 bytes, as datatype=float16",
        "'tfloat32'",
    ),
    "matmul_engine": (
        CORRECTED | {"matmul_dtype": "float8"},
        "matmul_dtype: a type that a100_80g multiplies: float16",
        "'float8'",
    ),
    "kernel_needs_flash": (
        CORRECTED | {"attn_kernel": "flash2"},
        "attn_kernel: auto, unless attn_impl is flash",
    ),
    "attention_kernel": (
        CORRECTED | {"attn_impl": "flash", "attn_kernel": "flash2"},
        "attn_kernel: auto, since a100_80g has no kernels of attention by name in this type",
        "'flash2'",
    ),
} | data_cases.MALFORMED
MALFORMED |= pipeline_cases.MALFORMED | expert_cases.MALFORMED
MIXTURE = MODEL | {"num_experts": 8, "experts_per_token": 2}
SHAPES = {
    "experts_tensor_par_overlap": MIXTURE,
    "experts_tp_impl": MIXTURE,
    "experts_matmul_impl": MIXTURE,
    "expert_shards_split": MIXTURE,
    "expert_replicas_apart": MIXTURE,
    "owner_experts": MIXTURE,
    "modules_of_model": MIXTURE,
    "modules_of_blocks": MODEL | {"parallel_attention": True, "norms": 1},
    "feedforward_split": MODEL | {"hidden": 1024, "feedforward": 3073},
    "linear_comm": MODEL | {"part": "linear", "feedforward": MODEL["hidden"]},
    "multiquery_heads": MODEL | {"kv_heads": 4},
    **dict.fromkeys(
        (
            "latent_multiquery",
            "latent_overlap",
            "latent_comm",
            "latent_tp_impl",
            "latent_operators",
        ),
        LATENT,
    ),
    **dict.fromkeys(("mtp_overlap", "mtp_tp_impl"), MODEL | {"vocab": 1000, "mtp_layers": 1}),
    "positions_cover_sequence": MODEL | {"vocab": 1000, "positions": 4096},
    "kv_heads_split": MODEL | {"kv_heads": 6, "attn_heads": 12},
    "packed_needs_attention": MODEL | {"part": "mlp"},
} | expert_cases.SHAPES

INFEASIBLE = {
    "network_size": (
        {"num_procs": 64, "tensor_par": 16},
        "connects 8 processors, and tensor_par=16 needs 16 (8 too many)",
    ),
    "network_filled": (
        {"num_procs": 12, "tensor_par": 3},
        "tensor_par=3 makes groups of 3, which do not divide its 8 processors",
    ),
    "interleaving_size": (
        {"pipeline_interleaving": 7},
        "pipeline_interleaving=7 is more than the 6 blocks of a pipeline stage",
    ),
    "interleaving_split": (
        {"pipeline_interleaving": 4},
        "the 6 blocks of a pipeline stage do not divide into pipeline_interleaving=4",
    ),
    "offload_blocks": (
        {"num_procs": 48, "pipeline_par": 6, "weight_offload": True},
        "at least 3 blocks per pipeline stage; here there are 2",
    ),
}
INFEASIBLE |= data_cases.INFEASIBLE | expert_cases.INFEASIBLE

MALFORMED |= overlap_cases.MALFORMED | packed_cases.MALFORMED | context_cases.MALFORMED
SHAPES |= overlap_cases.SHAPES
SHAPES |= {reason: MODEL | shape for reason, shape in context_cases.SHAPES.items()}
INFEASIBLE |= context_cases.INFEASIBLE
MALFORMED |= linear_cases.MALFORMED
SHAPES |= {reason: MODEL | shape for reason, shape in linear_cases.SHAPES.items()}
MALFORMED |= recipe_cases.MALFORMED
SHAPES["gather_without_modules"] = MODEL | {"vocab": 512, "mtp_layers": 1}
SHAPES["modules_place"] = SHAPES["gather_without_modules"]


SYSTEMS = {
    "library_needs_ports": document("systems", "a100_80g")
    | {"ext": {"networks": [{"torus": {"sides": [2, 4]}}]}}
} | recipe_cases.SYSTEMS
for _reason, _size in context_cases.SIZES.items():
    SYSTEMS[_reason] = document("systems", "a100_80g")
    SYSTEMS[_reason]["networks"][1]["size"] = _size
"""The systems of cases that a100_80g does not have."""


def _table_reason(execution):
    return calculon.evaluate(MODEL, SYSTEM, [execution]).reason[0]


@cache
def _table_reasons():
    """Return the reason of each case in a table of those with the same model and system."""
    tables = {}
    for reason, (changes, *_) in {**MALFORMED, **INFEASIBLE}.items():
        question = SHAPES.get(reason, MODEL), SYSTEMS.get(reason, SYSTEM)
        rows = tables.setdefault(tuple(map(id, question)), (question, {}))[1]
        rows[reason] = BASE | changes
    return {
        reason: found
        for question, rows in tables.values()
        for reason, found in zip(
            rows, calculon.evaluate(*question, list(rows.values())).reason, strict=True
        )
    }


def _refusal(reason, changes, kind):
    """Return the error of an estimate; its reason is that of a table and of the first failure."""
    model = inputs.model(SHAPES.get(reason, MODEL))
    system = inputs.system(SYSTEMS[reason]) if reason in SYSTEMS else SYSTEM
    execution = inputs.execution(BASE | changes)
    with pytest.raises(kind) as error:
        calculon.estimate(model, execution, system)
    first = failures(model, execution, system)[0]
    assert first.reason == _table_reasons()[reason] == reason
    assert first.malformed == (kind is calculon.SpecError)
    assert str(first) in str(error.value)
    return error.value


def test_every_rule_has_a_case():
    frameworks = {rule.reason for rule in PRESET_RULES}  # tests/test_presets.py has theirs
    assert {rule.reason for rule in RULES} - frameworks == set(MALFORMED) | set(INFEASIBLE)
    assert len(set(REASONS)) == len(REASONS) == 1 + len(NAMES) + len(RULES) + len(MEMORY_REASONS)


@for_each("reason", MALFORMED)
def test_malformed_requests_name_field_requirement_and_value(reason):
    """The value is that of the field, unless another is told."""
    changes, requirement, *told = MALFORMED[reason]
    field, _, expected = requirement.partition(": ")
    error = _refusal(reason, changes, calculon.SpecError)
    value = (BASE | changes).get(field)
    found = told[0] if told else value if isinstance(value, str) else json.dumps(value)
    assert (error.file, error.field, error.found) == ("execution", field, found)
    assert expected in error.expected


@for_each("layout", ["6m-6-0", "12m-0-0", "4-8-0m-0-0-0"])
def test_illegal_places_of_modules_are_refused(layout):
    """Blocks follow, the first stage, not the last chunk of a stage."""
    chunks = {"pipeline_interleaving": 2} if layout.count("-") == 5 else {}
    _refusal(
        "modules_place",
        pipeline_cases.THREE | chunks | {"stage_blocks": layout},
        calculon.SpecError,
    )


def test_models_without_modules_have_no_place_for_them():
    execution = inputs.execution(BASE | pipeline_cases.THREE | {"stage_blocks": "6-6m-0"})
    with pytest.raises(calculon.SpecError, match="no m, since model has no MTP modules"):
        calculon.estimate(inputs.model(MODEL), execution, SYSTEM)


@for_each("reason", INFEASIBLE)
def test_infeasible_executions_say_which_limit_and_by_how_much(reason):
    changes, message = INFEASIBLE[reason]
    error = _refusal(reason, changes, calculon.Infeasible)
    assert error.reason == reason
    assert message in str(error)


MORE = (
    ({"optimizer": "adam_8bit", "optimizer_state_dtype": "bfloat16"}, "have 8 bits"),
    ({"optimizer": "adafactor", "optimizer_state_dtype": "bfloat16"}, "4-byte sums"),
    ({"grad_dtype": "float32", "main_grad": True}, "gradients have 4 bytes"),
    ({"tp_async": True} | INFERENCE, "no backward pass"),
    ({"tp_async": True} | ALONE, "tensor_par is 1"),
    ({"tp_async": True, "tp_impl": "allgather"}, "no gradient that only weights wait for"),
    ({"bias_after_reduce": True, "tp_impl": "allgather"}, "reduces no outputs"),
    (
        {"matmul_impl": "mul_sum_fused", "datatype": "float32", "matmul_dtype": "bfloat16"},
        "in the datatype",
    ),
    *pipeline_cases.MORE,
    *packed_cases.MORE,
)
"""Further refusals of rules with several requirements, and what they say."""


@for_each(("changes", "expected"), MORE)
def test_each_requirement_of_a_rule_says_why(changes, expected):
    with pytest.raises(calculon.SpecError, match=re.escape(expected)):
        calculon.estimate(MODEL | {"mlp_bias": True}, BASE | CORRECTED | changes, SYSTEM)


VALID = (
    {},
    CORRECTED | {"optimizer": "muon", "optimizer_state_dtype": "bfloat16"},
    CORRECTED | {"grad_dtype": "bfloat16", "main_grad": True},
    CORRECTED | {"grad_dtype": "float16", "main_grad": True},
    *pipeline_cases.VALID,
)
"""What fits together."""


def test_what_fits_together_is_valid():
    found = calculon.evaluate(MODEL, SYSTEM, [BASE | changes for changes in VALID])
    assert found.reason.tolist() == [""] * len(VALID)


@pytest.mark.parametrize("tier", [1, 2])
def test_a_memory_message_has_need_capacity_and_excess(tier):
    execution = BASE | {"weight_offload": True}
    needed = calculon.estimate(MODEL, execution, SYSTEM).stats[f"proc_mem_tier{tier}_cap_req"]
    memory = dataclasses.replace(getattr(SYSTEM, f"mem{tier}"), capacity=needed / 2)
    small = dataclasses.replace(SYSTEM, **{f"mem{tier}": memory})
    with pytest.raises(calculon.Infeasible) as error:
        calculon.estimate(MODEL, execution, small)
    assert error.value.reason == f"mem{tier}_capacity"
    unit = 2**30 if needed >= 2**30 else 2**20
    assert str(error.value).count(f"{needed / 2 / unit:.2f}") == 2
    assert f"{needed / unit:.2f}" in str(error.value)
    assert str(error.value).startswith(f"{MEMORIES[tier - 1]} of a100_80g is too small")


@for_each(
    ("changes", "reason"),
    [
        ({"num_procs": 17, "batch_size": 33}, "degrees_product"),
        ({"batch_size": 33, "pipeline_interleaving": 7}, "batch_split"),
        ({"data_par_net": 5, "num_procs": 64, "tensor_par": 16}, "network_number"),
        ({"num_procs": 12, "tensor_par": 3, "pipeline_interleaving": 7}, "network_filled"),
        ({"pipeline_interleaving": 7, "datatype": "float8"}, "interleaving_size"),
        (
            {"num_procs": 20, "tensor_par": 5, "tensor_par_net": 1, "datatype": "float8"},
            "hidden_split",
        ),
        ({"datatype": "float64", "num_procs": 17}, "invalid_datatype"),
    ],
)
def test_the_first_rule_that_fails_gives_the_reason(changes, reason):
    assert _table_reason(BASE | changes) == reason


def test_degrees_of_one_need_no_network():
    changes = {"num_procs": 2, "tensor_par": 1, "pipeline_par": 2, "data_par": 1}
    assert _table_reason(BASE | changes | {"tensor_par_net": 0}) == ""


def test_degrees_on_the_same_network_multiply():
    changes = {"pipeline_par_net": 0, "data_par_net": 0}
    assert _table_reason(BASE | changes) == "network_size"
    with pytest.raises(
        calculon.Infeasible, match="tensor_par=4 x pipeline_par=2 x data_par=2 needs 16"
    ):
        calculon.estimate(MODEL, BASE | changes, "a100_80g")


def test_a_product_of_degrees_beyond_a_double_is_not_mistaken():
    huge = {"tensor_par": 2**31 - 1, "pipeline_par": 2**31 - 1, "data_par": 2**31 - 1}
    assert _table_reason(BASE | huge) == "degrees_product"
