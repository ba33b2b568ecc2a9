"""Hypothesis strategies: valid models, systems and executions of odd shapes, as documents."""

import math
from itertools import pairwise
from random import Random
from typing import Any

from hypothesis import strategies as st

from calculon import inputs
from calculon.declarations.named_values import (
    FOLDED_SCHEDULES,
    PAIRED_SCHEDULES,
    SIMULATED_SCHEDULES,
)
from calculon.declarations.recipes import RECIPES
from calculon.plan.columns import FIELDS, field_of
from calculon.plan.plan import Plan
from calculon.plan.rules.all_rules import check

Document = dict[str, Any]

DATATYPES = ("float8", "float16", "bfloat16", "float32")
SWITCHES = ("weight_offload", "activations_offload", "optimizer_offload")
COLLECTIVES = ((1.0, 0), (1.5, -1), (2.0, -1), (0.75, 0.5), (1.0, 1), (3, -2))


def divisors(number: int) -> list[int]:
    """List the divisors of a small number."""
    return [d for d in range(1, number + 1) if number % d == 0]


def odd(largest: int) -> st.SearchStrategy[int]:
    """Whole numbers from 1, small and large ones alike."""
    return st.one_of(st.integers(1, min(largest, 7)), st.integers(1, largest))


def zero_or(smallest: float, largest: float) -> st.SearchStrategy[float]:
    """Numbers of a range, or 0: a file takes no number that is nearly 0."""
    return st.one_of(st.just(0.0), st.floats(smallest, largest))


@st.composite
def models(draw: st.DrawFn) -> Document:
    """Shapes that need not look like a transformer, whose widths share some divisors."""
    shared = draw(st.sampled_from((2, 3, 4, 6, 8, 12, 1)))
    return {
        "hidden": shared * draw(odd(2500)),
        "feedforward": shared * draw(odd(9000)),
        "seq_size": draw(odd(4096)),
        "attn_heads": shared * draw(odd(20)),
        "attn_size": draw(odd(257)),
        "num_blocks": draw(st.integers(1, 60)),
    }


@st.composite
def curves(draw: st.DrawFn, thresholds: tuple[float, ...]) -> list[list[float]]:
    """Efficiency curves with up to five steps in any order of efficiency."""
    chosen = sorted(draw(st.sets(st.sampled_from(thresholds), max_size=4)), reverse=True)
    efficiency = st.floats(0.05, 1.0)
    return [[threshold, draw(efficiency)] for threshold in [*chosen, 0]]


def engines(datatypes: tuple[str, ...], peak: tuple[float, float]) -> st.SearchStrategy[Document]:
    """One kind of engine in some datatypes."""
    engine = st.fixed_dictionaries(
        {
            "tflops": st.floats(*peak),
            "gflops_efficiency": curves((1e-6, 1e-3, 0.05, 1, 16, 128, 1000)),
        }
    )
    return st.fixed_dictionaries(dict.fromkeys(datatypes, engine))


def memories(
    capacities: tuple[float, ...], rate: tuple[float, float]
) -> st.SearchStrategy[Document]:
    """A tier of memory."""
    return st.fixed_dictionaries(
        {
            "GiB": st.sampled_from(capacities),
            "GBps": st.floats(*rate),
            "MB_efficiency": curves((1e-5, 1e-3, 0.1, 1, 10, 100)),
        }
    )


def networks() -> st.SearchStrategy[Document]:
    """A network, mostly large enough, sometimes without latency or without a share of the engines."""
    collective = st.sampled_from(COLLECTIVES).map(list)
    return st.fixed_dictionaries(
        {
            "bandwidth": st.floats(1, 1000),
            "efficiency": st.floats(0.1, 1),
            "size": st.sampled_from((8, 96, 10**4, 65536, 2**16 * 3**6)),
            "latency": st.one_of(st.just(0), st.floats(1e-7, 1e-3)),
            "ops": st.fixed_dictionaries(
                {
                    "p2p": st.sampled_from(([1.0, None], [2, None])),
                    "reduce_scatter": collective,
                    "all_gather": collective,
                    "all_reduce": collective,
                }
            ),
            "must_be_filled": st.sampled_from((False, False, False, True)),
            "processor_usage": st.one_of(st.just(0), st.floats(0.001, 0.9)),
        }
    )


@st.composite
def systems(draw: st.DrawFn) -> Document:
    """Systems with one to four networks, of either processing mode, mostly with much memory."""
    names = st.lists(st.sampled_from(DATATYPES), min_size=1, max_size=2, unique=True)
    datatypes = tuple(draw(names))
    return {
        "matrix": draw(engines(datatypes, (0.5, 2000))),
        "vector": draw(engines(datatypes, (0.1, 200))),
        "mem1": draw(memories((16, 1e5, 1e9), (50, 8000))),
        "mem2": draw(memories((0, 512, 1e9, 1e9), (1, 900))),
        "processing_mode": draw(st.sampled_from(("roofline", "no_overlap"))),
        "networks": draw(st.lists(networks(), min_size=1, max_size=4)),
    }


@st.composite
def executions(draw: st.DrawFn, model: Document, system: Document) -> Document:
    """Executions that no rule of the request forbids; networks and memories may be too small."""
    return _published_row(draw(st.randoms(use_true_random=True)), model, system)


CORRECTED = {"edition": "corrected", "preset": "published"}

OPTIONS: dict[str, tuple[Any, ...]] = {
    "attn_impl": ("eager", "flash"),
    "ce_impl": ("eager", "megatron", "fused"),
    "grad_buffer": ("sharded", "full"),
    "grad_comm_dtype": ("same", *DATATYPES),
    "optimizer": ("adam", "adam_8bit", "lion", "sgd_momentum", "sgd", "adafactor", "muon"),
    "optimizer_impl": ("fused", "foreach", "loop"),
    "optimizer_state_dtype": ("float32", "bfloat16"),
    "grad_dtype": ("auto", "float32", "bfloat16", "float16"),
    "main_grad": (False, True),
    "grad_flat": (False, True),
    "grad_sums": (False, True),
    "grad_fusion": (True, True, False),
    "grad_clip": (False, True),
    "latency_per_step": (False, True),
    "mem_reserved_mib": (-1, -1, 0, 512),
    "mem_fragments_percent": (-1, -1, 0, 3),
    "coll_algo": ("published", "published", "auto", "ring", "hierarchical", "pipelined"),
    "mesh_order": ("stated", "stated", "stated", "tp-dp-pp", "tp-pp-dp"),
}
"""Fields of an execution that only the corrected edition knows; the first value is their default."""

MORE_OPTIONS: dict[str, tuple[Any, ...]] = {
    "fusion": ("published", "none", "compile", "max"),
    "compile_scope": ("step", "step", "blocks", "blocks_and_loss"),
    "rotary_impl": ("real", "real", "complex", "unfused"),
    "seq_par_copies": (False, True, True, True),
    "data_par_slowdown": (0, 0, 5, 60),
    "launch_mode": ("auto", "eager", "compile", "graph", "graph_parts", "blocking"),
    "vocab_pad_multiple": (1, 1, 8, 128),
    "seq_length": (0, 0, 1, 64, 300, 2048),
    "matmul_impl": ("gemm", "gemm", "gemm", "mul_sum", "mul_sum_fused"),
    "tp_impl": ("megatron", "megatron", "allgather"),
    "tp_async": (False, True),
    "tp_user_buffers": (False, True, True, True),
    "tp_hidden_percent": (100, 100, 0, 30),
    "bias_after_reduce": (False, True),
    "matmul_dtype": ("same", "same", *DATATYPES, "tfloat32"),
    "float8_scaling": ("delayed", "current"),
    "recompute_modules": (*field_of("recompute_modules").values, "mlp+moe", "norm+mlp+moe_act"),
    "recompute_every": (1, 1, 2, 3),
    "recompute_blocks": (0, 0, 1, 2, 3),
    "stage_stop_us": (0, 0, 500),
    "expert_par": (1, 2, 2, 3, 4, 8),
    "expert_par_net": (0, 0, 1),
    "expert_tensor_par": (0, 0, 1, 2),
    "moe_dispatcher": ("alltoall", "alltoall", "allgather", "deepep", "hybridep"),
    "moe_imbalance_percent": (100, 100, 130, 400),
    "moe_capacity_percent": (0, 0, 80, 150),
    "moe_pad_to_capacity": (False, True),
    "moe_router_fusion": (True, False),
    "moe_permute_fusion": (True, False),
    "dispatch_dtype": ("same", "float8", "bfloat16", "bfloat16"),
    "combine_dtype": ("same", "float8", "bfloat16", "bfloat16"),
    "fp8_recipe": ("none", "none", "none", *RECIPES),
    "fp8_param_gather": (False, True),
    "fp8_attention": (False, True),
    "ep_overlap": ("none", "1f1b", "two_batch", "two_batch"),
    "delay_wgrad": (False, True),
    "moe_shared_overlap": (False, True),
    "coll_algo": (*OPTIONS["coll_algo"], "tree", "nvls", "nvls_tree", "collnet"),
    "packed_percent": (100, 100, 29, 60),
    "pack_imbalance_percent": (100, 100, 130, 160),
}
"""Those that :func:`every_table` draws besides."""

PARTS: dict[str, tuple[Any, ...]] = {
    "context_par": (2, 2, 4),
    "context_par_net": (0, 1),
    "cp_comm": ("p2p", "p2p", "all_gather", "a2a", "a2a_p2p"),
    "cp_a2a_size": (0, 2),
    "cp_kv_replicate": (False, False, True),
    "cp_balance": ("zigzag", "contiguous", "striped"),
    "cp_skip": (False, False, True),
}
"""Those of executions whose sequences are split."""

RULED = {field.name: field.values for field in FIELDS if field.declaration.optional}
del RULED["preset"]  # frameworks have rules of their own
"""Optional fields, with values that often contradict the rest of an execution."""


@st.composite
def extended_models(draw: st.DrawFn, *, patterns: bool = True) -> Document:
    """Models with any of the fields that only the corrected edition knows, mostly with a vocabulary."""
    model = draw(models())
    options: dict[str, st.SearchStrategy[Any]] = {
        "kv_heads": st.sampled_from(divisors(model["attn_heads"])),
        "activation": st.sampled_from(("relu", "squared_relu", "swiglu", "geglu")),
        "norm": st.sampled_from(("layernorm_no_bias", "layernorm_plain", "rmsnorm")),
        "qk_norm": st.sampled_from(("head", "full")),
        "kv_lora_rank": odd(600),
        "parallel_attention": st.just(True),
        "dropout": st.just(False),
        "rotary": st.sampled_from((0.25, 0.5, 1.0)),
        "causal": st.just(False),
        "attention_sinks": st.just(True),
        "attention_gate": st.just(True),
        "sliding_window": odd(5000),
        "full_attention_every": st.integers(1, 7),
        "chunked_window": st.just(True),
        "positions": odd(4096),
        "vocab": st.integers(1, 150_000),
    }
    switches = ("qkv_bias", "out_bias", "mlp_bias", "head_bias", "tied", "embedding_norm")
    options |= dict.fromkeys(switches, st.just(True))
    chosen = draw(st.sets(st.sampled_from(sorted(options)), min_size=3)) - {"chunked_window"}
    if draw(st.sampled_from((True, True, False))):
        chosen.add("vocab")
    if "vocab" in chosen and draw(st.integers(0, 4)) == 0:
        chosen.add("mtp_layers")
    latent: Document = {}
    if "kv_lora_rank" in chosen:
        chosen -= {"kv_heads", "qk_norm", "rotary", "qkv_bias", "parallel_attention"}
        chosen -= {"attention_gate"}
        latent = draw(latent_widths())
    if draw(st.sampled_from((True, False))):
        chosen -= {"parallel_attention", "mlp_bias"}
        model |= draw(mixtures(model))
    if "sliding_window" in chosen and draw(st.booleans()):
        chosen.add("chunked_window")
    norms = st.sampled_from((1, 2) if "parallel_attention" in chosen else (2, 4))
    options["mtp_layers"] = st.integers(1, 3)
    stated = {name: draw(options[name]) for name in sorted(chosen)}
    if stated.get("sliding_window", 0) % 2:
        stated["chunked_window"] = True
    found = model | latent | stated | {"norms": draw(norms)}
    ways = ("", "", "", "period", "pattern" if patterns else "period")
    way = draw(st.sampled_from(ways))
    if not way or "parallel_attention" in found or not found.get("causal", True):
        return found
    return draw(patterned(found) if way == "pattern" else periodic(found))


_OF_SCORES = {
    *("kv_heads", "qk_norm", "qkv_bias", "out_bias", "rotary", "attention_sinks"),
    *("attention_gate", "sliding_window", "chunked_window"),
}
"""Fields of attention with softmax."""

_OF_LATENTS = {"kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}


@st.composite
def periodic(draw: st.DrawFn, model: Document) -> Document:
    """The model with linear attention in all of its blocks, or in all but one of so many."""
    left_out = {*_OF_LATENTS, "sliding_window", "chunked_window", "full_attention_every"}
    every = draw(st.integers(0, min(5, model["num_blocks"])))
    if every < 2:
        left_out |= _OF_SCORES
    stated = {"full_attention_every": every} if every > 1 else {}
    kept = {name: value for name, value in model.items() if name not in left_out}
    return kept | stated | draw(linear_attention(model))


@st.composite
def patterned(draw: st.DrawFn, model: Document) -> Document:
    """The model with blocks that are parts, in any order."""
    left_out = {*_OF_LATENTS, "full_attention_every", "first_k_dense", "moe_layer_freq"}
    left_out.add("norms")
    letters = draw(st.sampled_from(("M*-E", "M-*", "ME", "M", "*-E", "M-")))
    letters = letters if "num_experts" in model else letters.replace("E", "-")
    count = model["num_blocks"]
    random = draw(st.randoms(use_true_random=True))
    pattern = "".join(random.choice(letters) for _ in range(count))
    if "*" not in pattern:
        left_out |= _OF_SCORES
    if "-" not in pattern:
        left_out.add("mlp_bias")
    if not ("*" in pattern and {*"-E"} & {*pattern}):
        left_out.add("mtp_layers")
    if "E" not in pattern:
        left_out |= OF_EXPERTS
    stated = draw(linear_attention(model)) if "M" in pattern else {}
    kept = {name: value for name, value in model.items() if name not in left_out}
    return kept | stated | {"layer_pattern": pattern}


OF_EXPERTS = {
    *("num_experts", "experts_per_token", "expert_feedforward", "shared_feedforward"),
    *("shared_gate", "router_bias", "expert_bias", "moe_latent"),
    *("router_groups", "router_group_topk"),
}
"""Fields of experts."""


@st.composite
def linear_attention(draw: st.DrawFn, model: Document) -> Document:
    """Fields of linear attention, whose heads share the divisors of other widths."""
    common = math.gcd(model["hidden"], model["feedforward"], model["attn_heads"])
    random = draw(st.randoms(use_true_random=True))
    kind = random.choice(("gated_delta", "mamba2", "lightning"))
    found: Document = {"linear_attention": kind}
    if kind == "gated_delta":
        heads = common * random.randint(1, 4)
        found |= {"linear_key_heads": heads, "linear_value_heads": heads * random.randint(1, 3)}
        sizes = ("linear_key_dim", "linear_value_dim")
        found |= {name: random.randint(1, 200) for name in sizes}
        found["linear_conv"] = random.randint(1, 6)
    if kind == "mamba2":
        groups = random.choice((1, common))
        found |= {"ssm_heads": common * random.randint(1, 9), "ssm_groups": groups}
        found |= {"ssm_head_dim": random.randint(1, 100), "ssm_state": random.randint(1, 300)}
        found |= {"ssm_conv": random.randint(1, 6), "ssm_chunk": random.choice((32, 128, 1000))}
    return found


@st.composite
def latent_widths(draw: st.DrawFn) -> Document:
    """Widths of latent attention beside that of the latent of keys and values."""
    nope, rope = draw(st.integers(1, 130)), draw(st.integers(1, 65))
    return {
        "attn_size": nope + rope,
        "q_lora_rank": draw(st.one_of(st.just(0), odd(1600))),
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": draw(st.integers(1, 300)),
    }


@st.composite
def mixtures(draw: st.DrawFn, model: Document) -> Document:
    """Fields of experts; widths share the divisors of the others."""
    random = draw(st.randoms(use_true_random=True))
    experts = random.choice((1, 2, 3, 5, 8, 16, 60, 128))
    common = math.gcd(model["hidden"], model["feedforward"], model["attn_heads"])
    fields: Document = {"num_experts": experts, "experts_per_token": random.randint(1, experts)}
    for name in ("expert_feedforward", "shared_feedforward"):
        if random.random() < 0.8:
            fields[name] = common * random.randint(1, 300)
    for name, share in (("router_bias", 0.5), ("expert_bias", 0.5), ("shared_gate", 0.9)):
        fields[name] = random.random() < share
    if experts == 1:
        fields.pop("shared_feedforward", None)
    fields["shared_gate"] &= "shared_feedforward" in fields
    if experts > 1 and random.random() < 0.25:
        fields["moe_latent"] = random.randint(1, 300)
    if random.random() < 0.5:
        fields["first_k_dense"] = random.randrange(min(4, model["num_blocks"]))
        rest = model["num_blocks"] - fields["first_k_dense"]
        fields["moe_layer_freq"] = random.randint(1, min(4, rest))
    return fields | router_groups(random, experts, fields["experts_per_token"])


def router_groups(random: Random, experts: int, each: int) -> Document:
    """Fields of a choice of groups first; none where no group can be left out."""
    counts = [groups for groups in range(2, experts + 1) if experts % groups == 0]
    groups = random.choice(counts) if counts else 0
    least = -(-each * groups // experts)
    if least >= groups or random.random() < 0.5:
        return {}
    return {"router_groups": groups, "router_group_topk": random.randint(least, groups - 1)}


def mixes(model: Document) -> bool:
    """Say whether blocks have experts."""
    return "num_experts" in model and model.get("part", "block") in ("block", "mlp")


def _modules_of(model: Document, row: Document, modules: str) -> str:
    """Leave out what no block of a model has, and attention where it is said otherwise."""
    experts, pattern = mixes(model), model.get("layer_pattern", "")
    hybrid = "linear_attention" in model or pattern
    scores = "*" in pattern if pattern else not hybrid or "full_attention_every" in model
    there = {
        "ops": not experts and not model.get("kv_lora_rank") and not hybrid,
        "gdn_norm_out": model.get("linear_attention") == "gated_delta",
        "mlp": "-" in pattern
        if pattern
        else not experts or model.get("first_k_dense", 0) + model.get("moe_layer_freq", 1) > 1,
        "moe": experts and model["num_experts"] > 1,
        "moe_act": experts and model["num_experts"] > 1,
        "shared_experts": experts and "shared_feedforward" in model,
        "mla_up_proj": "kv_lora_rank" in model,
        "core_attn": row["activation_recompute"] == "none" and scores,
    }
    return "+".join(one for one in modules.split("+") if there.get(one, True)) or "none"


@st.composite
def parts(draw: st.DrawFn) -> Document:
    """Models of parts of blocks."""
    model = draw(extended_models(patterns=False))
    part = draw(st.sampled_from(("attention", "mlp", "linear")))
    for name in ("vocab", "tied", "positions", "embedding_norm", "head_bias", "mtp_layers"):
        model.pop(name, None)
    if part == "linear":
        model["feedforward"] = model["hidden"]
        if model.get("activation") in ("swiglu", "geglu"):
            model["activation"] = "gelu"
    return model | {"part": part}


def _published_row(random: Random, model: Document, system: Document) -> Document:
    """Choose an execution of the published edition that no rule of the request forbids."""

    def either(possible: bool = True) -> bool:
        return possible and random.random() < 0.5

    training = random.random() < 0.8
    degrees = divisors(math.gcd(model["hidden"], model["feedforward"], model["attn_heads"]))
    groups = model.get("kv_heads", model["attn_heads"])
    degrees = [degree for degree in degrees if groups % degree == 0 or degree % groups == 0]
    tensor_par = random.choice([*degrees, *degrees[1:]])
    pipeline_par = random.randint(1, min(6, model["num_blocks"]))
    data_par = random.choice((1, 2, 2, 3, 4))
    blocks = -(-model["num_blocks"] // pipeline_par)
    microbatch_size = random.choice((1, 2, 3, tensor_par))
    even = microbatch_size * model["seq_size"] % tensor_par == 0
    comm_type = random.choice(("ar", "p2p_rs_ag", "rs_ag")) if even else "ar"
    recompute = random.choice(("full", "attn_only", "none")) if training else "none"
    networks = range(len(system["networks"]))
    return {
        "num_procs": tensor_par * pipeline_par * data_par,
        "tensor_par": tensor_par,
        "pipeline_par": pipeline_par,
        "data_par": data_par,
        "tensor_par_net": random.choice(networks),
        "pipeline_par_net": random.choice(networks),
        "data_par_net": random.choice(networks),
        "batch_size": data_par * microbatch_size * random.choice((1, 2, 3, 4, 7, 16)),
        "microbatch_size": microbatch_size,
        "datatype": random.choice(sorted(system["matrix"])),
        "fused_activation": either(),
        "attention_type": random.choice(("multihead", "multihead", "multiquery")),
        "activation_recompute": recompute,
        "pipeline_interleaving": random.choice(divisors(blocks)) if pipeline_par > 1 else 1,
        "optimizer_sharding": either(data_par > 1),
        "tensor_par_comm_type": comm_type,
        "tensor_par_overlap": random.choice(
            ("none", "ring", "pipe") if tensor_par > 1 else ("none",)
        ),
        "seq_par_ag_redo": either(comm_type == "rs_ag" and recompute != "full"),
        "data_par_overlap": either(training and data_par > 1),
        "weight_offload": either(blocks >= 3) and either(),
        "activations_offload": either(blocks >= 3) and either(),
        "optimizer_offload": either(training and blocks >= 3) and either(),
        "training": training,
    }


def _corrected_row(random: Random, model: Document, system: Document) -> Document:
    """Choose an execution of the corrected edition that no rule of the request forbids."""
    row = _published_row(random, model, system) | CORRECTED
    row |= _sound({name: random.choice(values) for name, values in OPTIONS.items()})
    if model.get("kv_lora_rank"):
        row |= _of_latents(row)
    if model.get("layer_pattern") and row["tensor_par_comm_type"] == "p2p_rs_ag":
        row["tensor_par_comm_type"] = "ar"
    if mixes(model) or "mtp_layers" in model:
        row |= {"tensor_par_overlap": "none"}
    blocks = -(-model["num_blocks"] // row["pipeline_par"])
    return row | _form(random, row, blocks) if row["training"] and random.random() < 0.5 else row


def _shares_experts(row: Document, ranks: int) -> bool:
    """Say whether replicas of experts that so many ranks have once can be as the row has replicas."""
    tensor_par = row["tensor_par"]
    if row.get("dp_shard") and tensor_par * row["dp_shard"] % ranks:
        return False
    inside = row["mesh_order"] == "tp-pp-dp" and row["data_par"] > 1 and row["pipeline_par"] > 1
    owned = row.get("zero_stage") == "owner"
    return not (inside and ranks != tensor_par) and not (owned and ranks < tensor_par)


def _of_latents(row: Document) -> Document:
    """Choose what latent attention can be combined with, where it cannot be with the choice."""
    fixed = {"attention_type": "multihead", "tensor_par_overlap": "none"}
    if row["tensor_par_comm_type"] == "p2p_rs_ag":
        fixed["tensor_par_comm_type"] = "ar"
    return fixed


def _form(random: Random, row: Document, blocks: int) -> Document:
    """Choose how replicas share what they hold."""
    data_par = row["data_par"]
    owners = ("owner",) if blocks % data_par == 0 else ()
    split = ("1", "2", "3", "3", "fsdp", *owners) if data_par > 1 else ()
    stage = random.choice(("0", *split))
    form: Document = {"zero_stage": stage, "optimizer_sharding": stage != "0"}
    form["grad_buffer"] = "sharded" if stage not in ("0", "1") else row["grad_buffer"]
    if stage in ("3", "fsdp", "owner"):
        form["weight_offload"] = False
    if stage in ("3", "fsdp"):
        form["fsdp_unit"] = random.choice(divisors(blocks // row["pipeline_interleaving"]))
        form["fsdp_prefetch"] = random.choice((0, 1, 1, 2))
        form["reshard_after_forward"] = random.random() < 0.7
        form["sync_once"] = random.random() < 0.3
    if stage in ("1", "2", "3", "fsdp"):
        form["dp_shard"] = random.choice((0, *divisors(data_par)[1:]))
    if stage in ("0", "1", "2"):
        form["ddp_bucket_mib"] = random.choice((0, 1, 25))
        small = row["grad_dtype"] in ("bfloat16", "float16") and not row["main_grad"]
        form["grad_sums"] = small and random.random() < 0.5
    if stage in ("0", "1"):
        form["no_sync"] = random.random() < 0.7
    if stage == "2":
        form["grad_group"] = random.choice((1, 1, 2, 3))
    if stage in ("1", "2"):
        form["overlap_param_gather"] = random.random() < 0.5
    return form


def _sound(options: dict[str, Any]) -> dict[str, Any]:
    """Drop what an optimizer step cannot have, and a latency that is paid twice."""
    if options["coll_algo"] != "published":
        options["latency_per_step"] = False
    if options["optimizer"] not in ("adam", "lion", "sgd_momentum", "muon"):
        options["optimizer_state_dtype"] = "float32"
    small = options["grad_dtype"] in ("bfloat16", "float16")
    options["main_grad"] = options["main_grad"] and small
    options["grad_sums"] = False  # which a form of data parallelism has
    return options


@st.composite
def extended_pairs(draw: st.DrawFn) -> tuple[Document, Document]:
    """A model with any fields, and a system with or without ``ext`` that is never too small.

    Communication takes less than half of the engines.
    """
    model = draw(extended_models())
    system = draw(systems())
    for tier in ("mem1", "mem2"):
        system[tier]["GiB"] = 1e12
    for network in system["networks"]:
        network["size"], network["must_be_filled"] = 10**8, False
        network["processor_usage"] = min(network["processor_usage"], 0.49)
    if draw(st.booleans()):
        kernel = st.fixed_dictionaries({"efficiency": curves((64, 512, 2000))})
        attention = {name: draw(kernel) for name in system["matrix"]}
        latency = st.one_of(st.just(0), st.floats(1e-7, 1e-3))
        link = st.fixed_dictionaries({"step_latency": latency, "ramp": latency})
        links = [draw(link) for _ in system["networks"]]
        system |= {"ext": {"attention": attention, "networks": links}}
    return model, system


@st.composite
def tori(draw: st.DrawFn, size: int) -> Document:
    """Tori of some processors along one axis or two."""
    first = draw(st.sampled_from([n for n in (2, 3, 4, 8) if size % n == 0 and size > n] or [size]))
    sides = [first, size // first] if first < size else [size]
    return {"sides": sides} | draw(st.sampled_from(({}, {"cube": 2}, {"cube": 4})))


@st.composite
def measured_collectives(draw: st.DrawFn) -> Document:
    """Operations of a network as they are stated where they were measured."""
    latency, shares = st.floats(1e-7, 1e-3), st.floats(0.05, 1.9)
    found = {}
    names = st.sampled_from(("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "p2p"))
    for name in draw(st.sets(names, min_size=1)):
        ranks = sorted(draw(st.sets(st.sampled_from((2, 3, 4, 8, 16, 64)), min_size=1)))
        rates = [[n, draw(shares), draw(st.one_of(st.just(0), latency))] for n in ranks]
        found[name] = {"latency": draw(latency), "rates": rates}
        if draw(st.booleans()):
            found[name]["rank_latency"] = draw(latency)
        if draw(st.booleans()):
            found[name] |= {"long_step": draw(latency), "least_step": draw(latency)}
            found[name] |= draw(st.sampled_from(({}, {"ring_ranks": 4})))
    return found


@st.composite
def fused_attention(draw: st.DrawFn) -> Document:
    """Constants of kernels of fused attention, of which wider heads take no less time."""

    def one() -> Document:
        narrow, more = draw(st.floats(0.1, 0.9)), draw(st.floats(0.5, 1))
        keys = st.sampled_from((0, 3.5, 200))
        shares = draw(st.sampled_from(([[64, narrow]], [[32, narrow], [100, more * narrow]])))
        return {"shares": shares, "lead": draw(keys), "causal_lead": draw(keys)}

    names = draw(st.permutations(("flash1", "triton", "flash2", "flash3", "cudnn")))[:4]
    return {
        "law": "fused",
        "default": names[0],
        "multiprocessors": draw(odd(150)),
        "kernels": {
            name: {
                "forward": one(),
                "backward": one(),
                "tail": draw(st.sampled_from((0, 1.5))),
                "start": draw(st.sampled_from((0, 1e-5))),
                "sustained": draw(st.sampled_from((1, 0.8))),
            }
            for name in names
        },
    }


@st.composite
def extensions(draw: st.DrawFn, system: Document) -> Document:
    """What a system may have under ``ext``: rates by shape, kernels, launches and links."""
    types = [*system["matrix"], "tfloat32"]
    tile = st.tuples(*(st.sampled_from((32, 64, 128, 256)),) * 2, st.floats(0.3, 1)).map(list)
    gemm = st.fixed_dictionaries(
        {"max_efficiency": st.floats(0.1, 1), "multiprocessors": odd(150)},
        optional={
            "half_depth": st.sampled_from((0, 10, 100.5)),
            "wave_overlap": zero_or(0.01, 1),
            "start": st.sampled_from((0, 1e-6)),
            "memory_efficiency": st.floats(0.2, 1),
            "sustained": st.floats(0.5, 1),
            "weight_gradients": st.floats(0.5, 1.2),
            "gradients": st.floats(0.5, 1.0),
            "alignment": curves((4, 16, 64, 128)),
            "tiles": st.lists(tile, min_size=1, max_size=3),
        },
    )
    seconds = st.one_of(st.just(0), st.floats(1e-7, 1e-3))
    uplink = st.fixed_dictionaries({"processors": odd(40), "bandwidth": st.floats(0.1, 500)})
    link = st.fixed_dictionaries(
        {},
        optional={
            "kind": st.sampled_from(("nvlink", "pcie", "net")),
            "step_latency": seconds,
            "ramp": seconds,
            "in_network_reduction": st.booleans(),
            "operations": measured_collectives(),
            "processor_usage": zero_or(0.001, 0.49),
            "synchronous": st.booleans(),
            "uplink": uplink,
        },
    )
    more = draw(st.sampled_from((("tfloat32",), *2 * (("tfloat32", "float4"),))))
    ext: Document = {"matrix": draw(engines(more, (0.5, 2000)))}
    ext |= draw(st.fixed_dictionaries({}, optional={"linear_efficiency": st.floats(0.05, 1)}))
    use = st.fixed_dictionaries({}, optional={"transposes": st.booleans()})
    every = {"recipes": {name: draw(use) for name in RECIPES}}
    ext |= draw(st.sampled_from(({}, every, every)))
    if draw(st.sampled_from((True, True, False))):
        law = {"law": "calls", "together": draw(st.integers(1, 5)), "call": draw(seconds)}
        calls = draw(st.sampled_from(({}, {"grouped_product": dict.fromkeys(types, law)})))
        ext["kernels"] = {"attention": dict.fromkeys(types, draw(fused_attention())), **calls}
    kernel = st.fixed_dictionaries({"efficiency": curves((64, 512, 2000))})
    for key, one in (("attention", kernel), ("gemm", gemm)):
        if draw(st.booleans()) and not (key == "attention" and "kernels" in ext):
            known = [*types, "float4"] if key == "gemm" else types
            ext[key] = {
                name: draw(one) for name in draw(st.sets(st.sampled_from(known), min_size=1))
            }
    if draw(st.booleans()):
        ext["processing_mode"] = draw(st.sampled_from(("roofline", "no_overlap")))
    if draw(st.booleans()):
        ext["networks"] = draw(st.lists(link, max_size=len(system["networks"])))
        for one, network in zip(ext["networks"], system["networks"], strict=False):
            if network["size"] > 1 and draw(st.booleans()):
                one["torus"] = draw(tori(network["size"]))
    if draw(st.booleans()):
        names = ("kernel", "eager", "training", "compile", "product_loop", "graph", "step")
        ext["launch"] = {name: draw(seconds) for name in names}
    if draw(st.booleans()):
        shares = st.floats(0.1, 1)
        ext["traffic"] = {"efficiency": draw(shares), "start": draw(seconds)}
        if draw(st.booleans()):
            ext["traffic"]["backward"] = draw(shares)
    if draw(st.booleans()):
        mebibytes = st.sampled_from((0, 12, 512, 1526.5))
        use = {f"{name}_MiB": mebibytes for name in ("context", "workspaces", "communicator")}
        portions = {"fragmentation": zero_or(0.001, 0.1), "host_share": zero_or(0.01, 1)}
        use |= {"withheld_GiB": zero_or(0.01, 2), **portions}
        ext["memory"] = draw(st.fixed_dictionaries({}, optional=use))
    return ext | draw(host_and_library(len(system["networks"])))


def host_and_library(networks: int) -> st.SearchStrategy[Document]:
    """A host of a node and a library of experts, or one of them, or neither."""
    host = {"GBps": st.floats(1, 1000), "efficiency": st.floats(0.1, 1), "processors": odd(16)}
    shared = {"network": st.sampled_from(range(networks))}
    library = {f"{link}_efficiency": st.floats(0.1, 1) for link in ("nvlink", "nic")}
    library |= {"num_sms": st.integers(0, 60), "multiprocessors": st.integers(61, 150)}
    both = {
        "host": st.fixed_dictionaries(host, optional=shared),
        "ep_library": st.fixed_dictionaries(library),
    }
    return st.fixed_dictionaries({}, optional=both)


def _more(random: Random, row: Document, model: Document, system: Document) -> Document:
    """Choose what :func:`every_table` draws besides; what the rules forbid is left out."""
    chosen = {name: random.choice(values) for name, values in MORE_OPTIONS.items()}
    chosen |= {"matmul_impl": "gemm"} if mixes(model) else {}
    if mixes(model) or model.get("kv_lora_rank") or "mtp_layers" in model:
        chosen["tp_impl"] = "megatron"
    chosen["recompute_modules"] = _modules_of(model, row, chosen["recompute_modules"])
    alone = row["tensor_par_overlap"] == "none"
    whole = alone and row["tensor_par_comm_type"] == "ar"
    part = model.get("part", "block")
    if not whole:
        chosen["tp_impl"] = "megatron"
    megatron = chosen["tp_impl"] == "megatron"
    chosen["tp_async"] &= alone and megatron and row["training"] and row["tensor_par"] > 1
    split = row["tensor_par"] > 1 and row["tensor_par_comm_type"] == "rs_ag"
    chosen["seq_par_copies"] &= alone and split and not chosen["tp_async"]
    if chosen["fusion"] not in ("compile", "max"):
        chosen["compile_scope"] = "step"
    if chosen["fusion"] == "published":
        chosen["rotary_impl"] = "real"
    rings = row["tensor_par_overlap"] == "ring" and row["tensor_par_comm_type"] == "rs_ag"
    chosen["tp_user_buffers"] &= rings
    if alone:
        chosen["tp_hidden_percent"] = 100
    biased = part in ("block", "attention") and model.get("out_bias", False)
    biased = biased or (part in ("block", "mlp") and model.get("mlp_bias", False))
    chosen["bias_after_reduce"] &= biased and megatron
    stored = {"float8": 1, "float32": 4, "tfloat32": 4}
    types = [*system["matrix"], *system.get("ext", {}).get("matrix", ()), "same"]
    wide = stored.get(chosen["matmul_dtype"], 2) > stored.get(row["datatype"], 2)
    if chosen["matmul_dtype"] not in types or wide:
        chosen["matmul_dtype"] = "same"
    if chosen["matmul_dtype"] != "float8":
        chosen["float8_scaling"] = "delayed"
    chosen |= _narrow(random, chosen, row, model, system)
    if not alone or chosen["matmul_dtype"] != "same" or chosen["fp8_recipe"] != "none":
        chosen["matmul_impl"] = "gemm"
    halves = part == "block" and not model.get("parallel_attention", False)
    plain = megatron and chosen["matmul_impl"] == "gemm" and halves
    chosen |= _recomputed(chosen, row, possible=plain)
    if chosen["coll_algo"] != "published":
        chosen["latency_per_step"] = False
    chosen |= _kernel(random, chosen, row, system)
    chosen |= _packed(chosen, row, part)
    if not _fits(chosen["seq_length"], row, model):
        chosen["seq_length"] = 0
    chosen |= _spread(random, row | chosen, model, system)
    chosen |= pipelines(random, row, model)
    return chosen | _beside_experts(random, row | chosen, model)


def _kernel(random: Random, chosen: Document, row: Document, system: Document) -> Document:
    """Choose a kernel of attention that the system has, in 8 bits if that is chosen."""
    fused = system.get("ext", {}).get("kernels", {}).get("attention", {})
    known = next((one["kernels"] for one in fused.values() if "kernels" in one), ())
    if not known or row["attn_impl"] != "flash":
        return {}
    kernels = ("auto", "cudnn") if chosen["fp8_attention"] else ("auto", *known, *known)
    return {"attn_kernel": random.choice(kernels)}


def _narrow(
    random: Random, chosen: Document, row: Document, model: Document, system: Document
) -> Document:
    """Choose a recipe that the system runs, and what it can be combined with."""
    ext = system.get("ext", {})
    engines_of = {name: "float4" if "fp4" in name else "float8" for name in RECIPES}
    known = (*system["matrix"], *ext.get("matrix", ()))
    run = [n for n in ext.get("recipes", ("delayed", "tensorwise")) if engines_of[n] in known]
    if chosen["fp8_recipe"] == "none" or not run or row["datatype"] == "float8":
        return {"fp8_recipe": "none", "fp8_param_gather": False, "fp8_attention": False}
    recipe = random.choice(run)
    engine = engines_of[recipe]
    found: Document = {"matmul_dtype": "same", "float8_scaling": "delayed", "fp8_recipe": recipe}
    again = {"norm", "norm_activation", "moe_act"} & {*chosen["recompute_modules"].split("+")}
    if recipe == "delayed" and again:
        found["recompute_modules"] = "none"
    if engine in system["matrix"] and random.random() < 0.2:
        found["matmul_dtype"] = "float8"
        found["float8_scaling"] = "current" if recipe == "tensorwise" else "delayed"
    keeps = row["training"] and "fp4" not in recipe and not row["weight_offload"]
    law = ext.get("kernels", {}).get("attention", {}).get("float8", {})
    if (
        recipe == "blockwise"
        or row["attn_impl"] != "flash"
        or "cudnn" not in law.get("kernels", ())
    ):
        found["fp8_attention"] = False
    if not keeps or row.get("zero_stage") in ("3", "owner") or model.get("mtp_layers", 0):
        found["fp8_param_gather"] = False
    return found


def _beside_experts(random: Random, row: Document, model: Document) -> Document:
    """Choose what runs beside the exchange of experts, as far as anything can."""
    chosen: Document = {"ep_overlap": "none", "delay_wgrad": False, "moe_shared_overlap": False}
    if row["expert_par"] == 1 or row["moe_dispatcher"] == "allgather":
        return chosen
    if model.get("layer_pattern"):
        return chosen
    ways = ["none"]
    half = row["microbatch_size"] // 2 * (row["seq_length"] or model["seq_size"])
    if row["microbatch_size"] % 2 == 0 and half % row["tensor_par"] == 0:
        ways.append("two_batch")
    p, v = row["pipeline_par"], row["pipeline_interleaving"]
    microbatches = row["batch_size"] // row["data_par"] // row["microbatch_size"]
    stays = row.get("zero_stage", "auto") in ("auto", "0", "1") and row.get("no_sync", True)
    stays = stays and not (row["weight_offload"] or row["activations_offload"])
    modules = row["recompute_modules"].split("+")
    stores = row["training"] and row["activation_recompute"] != "full" and "moe" not in modules
    stores = stores and model.get("mtp_layers", 0) <= 1
    schedule = row.get("pp_schedule", "1f1b")
    listed = schedule in PAIRED_SCHEDULES
    chunks = listed or (schedule == "1f1b" and (p == 1 or v > 1))
    chunks = chunks and microbatches * v > (v - 1) * p + 1
    if stays and stores and chunks and row["datatype"] != "float32":
        ways = ["1f1b"] if listed else [*ways, *["1f1b"] * 3]
    elif listed:
        chosen |= {"pp_schedule": "1f1b", "p2p_overlap": row.get("p2p_overlap", False) and v > 1}
    chosen["ep_overlap"] = random.choice(ways)
    chosen["delay_wgrad"] = chosen["ep_overlap"] == "1f1b" and random.random() < 0.5
    shared = model.get("shared_feedforward", 0) and chosen["ep_overlap"] == "none"
    shared = shared and not model.get("moe_latent", 0)
    if shared and "shared_experts" not in modules:
        chosen["moe_shared_overlap"] = random.random() < 0.7
    return chosen


def _packed(chosen: Document, row: Document, part: str) -> Document:
    """Choose documents where a fused kernel knows them, and imbalance where there are several in a sequence."""
    percent, imbalance = chosen["packed_percent"], chosen["pack_imbalance_percent"]
    if row["attn_impl"] == "eager" or part in ("mlp", "linear"):
        percent = 100
    return {
        "packed_percent": percent,
        "pack_imbalance_percent": imbalance if percent < 100 else 100,
    }


def _recomputed(chosen: Document, row: Document, *, possible: bool) -> Document:
    """Choose modules where blocks have them, and blocks where something is recomputed."""
    modules, every = chosen["recompute_modules"], chosen["recompute_every"]
    if not (row["training"] and possible and row["activation_recompute"] != "full"):
        modules = "none"
    again = row["activation_recompute"] != "none" or modules != "none"
    if not again or row["activations_offload"]:
        every = 1
    some = min(chosen["recompute_blocks"], every) if again else 0
    return {"recompute_modules": modules, "recompute_every": every, "recompute_blocks": some}


def _spread(random: Random, row: Document, model: Document, system: Document) -> Document:
    """Choose how experts are spread over ranks, as far as they can be."""
    names = [
        name
        for name in MORE_OPTIONS
        if name.startswith(("expert_", "moe_")) and name != "moe_shared_overlap"
    ]
    plain: Document = {
        name: MORE_OPTIONS[name][0] for name in (*names, "dispatch_dtype", "combine_dtype")
    }
    if not mixes(model) or model["num_experts"] == 1:
        return plain
    chosen = {name: row[name] for name in plain}
    t, ranks = row["tensor_par"], row["tensor_par"] * row["data_par"]
    split = row["tensor_par_comm_type"] == "rs_ag"
    widths = [u for u in divisors(t) if split or u == t]
    width = random.choice(widths)
    chosen["expert_tensor_par"] = random.choice((0, t)) if width == t else width
    spread = [e for e in divisors(model["num_experts"]) if ranks % (e * width) == 0]
    if t > 1 and not split:
        spread = [1]
    if row["mesh_order"] != "stated":
        shards = t * (row.get("dp_shard", 0) or 1)

        def nests(size: int) -> bool:
            around = size % t == 0 and (size % shards == 0 or shards % size == 0)
            return t % size == 0 or (around and row["mesh_order"] == "tp-dp-pp")

        spread = [e for e in spread if nests(e * width)]
    largest = len(system["networks"]) - 1
    net = random.choice((0, largest))
    if row["mesh_order"] == "stated":
        spread = [e for e in spread if e == 1 or e * width <= system["networks"][net]["size"]]
    spread = [1, *(e for e in spread if e > 1 and _shares_experts(row, e * width))]
    chosen["expert_par"] = random.choice([*spread[1:], *spread[1:], 1])
    if not _shares_experts(row, chosen["expert_par"] * width):
        chosen["expert_tensor_par"] = 0
    chosen["expert_par_net"] = net if chosen["expert_par"] > 1 else 0
    chosen |= _dispatcher(chosen, t, system)
    if chosen["expert_par"] == 1 or chosen["moe_pad_to_capacity"]:
        chosen["moe_imbalance_percent"] = 100
    most = 100 * chosen["expert_par"]
    chosen["moe_imbalance_percent"] = min(chosen["moe_imbalance_percent"], most)
    chosen["moe_pad_to_capacity"] &= chosen["moe_capacity_percent"] > 0
    sizes = {"float8": 1, "float32": 4, "tfloat32": 4}
    stored = sizes.get(row["datatype"], 2)
    operand = stored if row["matmul_dtype"] == "same" else sizes.get(row["matmul_dtype"], 2)
    if row["fp8_recipe"] != "none":
        operand = 1
    result = min(stored, max(2, min(stored, operand)))
    for name in ("dispatch_dtype", "combine_dtype"):
        exchanged = chosen["expert_par"] > 1 and chosen["moe_dispatcher"] != "allgather"
        if not exchanged or {"float8": 1 + 1 / 32, "bfloat16": 2}.get(chosen[name], 0) >= result:
            chosen[name] = "same"
    return chosen


def _dispatcher(row: Document, tensor_par: int, system: Document) -> Document:
    """Choose another dispatcher where a library of experts has no whole experts on several ranks, or no ports."""
    if row["moe_dispatcher"] in ("alltoall", "allgather"):
        return {}
    whole = row["expert_par"] > 1 and (row["expert_tensor_par"] or tensor_par) == 1
    if not whole or any("torus" in link for link in system.get("ext", {}).get("networks", ())):
        return {"moe_dispatcher": "alltoall"}
    return {"moe_pad_to_capacity": False}


def _fits(length: int, row: Document, model: Document) -> bool:
    """Say whether sequences may be so long: their tokens divide, and each has its learned position."""
    even = row["microbatch_size"] * length % row["tensor_par"] == 0
    if not even and row["tensor_par_comm_type"] != "ar":
        return False
    return not model.get("positions") or length <= max(model["positions"], model["seq_size"])


def pipelines(random: Random, row: Document, model: Document) -> Document:
    """Choose schedule and layout of a pipeline."""
    p, total = row["pipeline_par"], model["num_blocks"]
    if p == 1:
        return {}
    chosen: Document = {}
    chunks = row["pipeline_interleaving"]
    microbatches = row["batch_size"] // (row["data_par"] * row["microbatch_size"])
    if row["training"] and chunks <= 2:
        chosen["pp_schedule"] = random.choice(_schedules(row, microbatches))
    folded = chosen.get("pp_schedule") in FOLDED_SCHEDULES
    if total > p * chunks and random.random() < 0.2:
        breaks = sorted(random.sample(range(1, total), p * chunks - 1))
        counts = [after - before for before, after in pairwise([0, *breaks, total])]
        if counts[0] % 2:  # the last chunk may be empty, or the second
            counts[-2:] = [counts[-2] + counts[-1], 0]
        elif counts[0] % 3 == 0 and len(counts) > 2:
            counts[:2] = [counts[0] + counts[1], 0]
        if all(count % row.get("fsdp_unit", 1) == 0 for count in counts):
            listed = list(map(str, counts))
            if model.get("mtp_layers") and p > 2 and not folded and row.get("fsdp_unit", 1) == 1:
                listed = with_place(random, counts, p)
            chosen["stage_blocks"] = "-".join(listed)
    elif not folded and (chunks == 1 or row.get("fsdp_unit", 1) == 1):
        counted = {
            "embedding_as_block": total + 1,
            "head_as_block": total + 1,
            "both_as_blocks": total + 2,
        }
        ends = [name for name, blocks in counted.items() if blocks >= 2 * p]
        layout = random.choice(("uniform", "balanced", "first", "last", "both", *ends))
        most = total - p + 1  # of one stage
        if layout == "balanced" or layout in ends:
            chosen["pp_layout"] = layout
        if layout in ("first", "both") and total > p:
            chosen["first_stage_blocks"] = random.randint(1, max(1, min(most, 2 * total // p)))
        if layout in ("last", "both") and (p > 2 or layout == "last"):
            left = most + 1 - chosen.get("first_stage_blocks", 1)
            chosen["last_stage_blocks"] = random.randint(1, max(1, min(left, 2 * total // p)))
    overlapping = ("gpipe", *SIMULATED_SCHEDULES)
    due = chunks > 1 or chosen.get("pp_schedule") in overlapping if row["training"] else chunks == 1
    if due and microbatches >= p:
        chosen["p2p_overlap"] = random.random() < 0.5
    return chosen


def with_place(random: Random, counts: list[int], stages: int) -> list[str]:
    """Give MTP modules a stage in the middle, and the blocks that follow it to that stage or to the one before."""
    place = len(counts) - stages + random.randint(1, stages - 2)
    left = sum(counts[place + 1 :])
    found = [*counts[: place + 1], *[0] * (len(counts) - place - 1)]
    found[place - random.randint(0, 1)] += left
    return [f"{count}{'m' * (number == place)}" for number, count in enumerate(found)]


def _schedules(row: Document, microbatches: int) -> tuple[str, ...]:
    """Return the schedules that a pipeline may have."""
    p, full = row["pipeline_par"], microbatches >= 2 * row["pipeline_par"]
    if row["pipeline_interleaving"] == 2:
        return ("1f1b", "zbv", *(["dualpipev"] if full else []))
    names = ("1f1b", "gpipe", "zb_h1", "zb_h2")
    even = p % 2 == 0 and microbatches % 2 == 0
    replicated = row.get("zero_stage", "auto") in ("auto", "0", "1")
    return (*names, "dualpipe") if even and full and replicated else names


def _in_parts(
    random: Random, row: Document, model: Document, system: Document, network: int | None
) -> Document:
    """Split sequences over as many ranks more, some way that no rule forbids; none if there is none at hand."""
    decoded = inputs.model(model), inputs.system(system)
    for _ in range(4):
        split = row | {name: random.choice(values) for name, values in PARTS.items()}
        if split["cp_comm"] != "a2a" or random.random() < 0.5:
            split["attn_impl"] = "flash"
        if split["cp_comm"] != "a2a_p2p":
            split["cp_a2a_size"] = 0
        if split["cp_comm"] not in ("a2a", "a2a_p2p"):
            split["cp_kv_replicate"] = False
        if split["cp_comm"] == "a2a":
            split["cp_balance"] = "zigzag"
        if split["cp_comm"] not in ("p2p", "a2a_p2p"):
            split["cp_skip"] = False
        if network is not None:
            split["context_par_net"] = network
        parts = split["context_par"]
        split["num_procs"] *= parts
        split["dp_shard"] = row.get("dp_shard", 0) * parts
        if not check(*decoded, Plan.from_records([split]))[0]:
            return split
    return row


@st.composite
def every_table(
    draw: st.DrawFn, rows: int = 12, contradicting: int = 0
) -> tuple[Document, Document, list[Document]]:
    """Executions of the corrected edition, with every field of executions, models and ``ext`` that there is.

    Networks may nest, for ranks that are numbered; other groups are then all on the largest. Some rows come again with
    one optional field changed, which may contradict the others.
    """
    _, system = draw(extended_pairs())
    model = draw(st.one_of(extended_models(), extended_models(), parts()))
    system.pop("ext", None)
    if draw(st.booleans()):
        system["ext"] = draw(extensions(system))
    nested = draw(st.booleans())
    if nested:
        size = 1
        for network in system["networks"][:-1]:
            size *= draw(st.sampled_from((1, 2, 4, 5, 6, 8, 9, 12)))
            network["size"] = size
    random = draw(st.randoms(use_true_random=True))
    found = []
    for _ in range(rows):
        row = _corrected_row(random, model, system)
        if model.get("part") == "linear":
            row |= {"tensor_par_comm_type": "ar", "tensor_par_overlap": "none"}
            row["seq_par_ag_redo"] = False
        row |= _more(random, row, model, system)
        last = len(system["networks"]) - 1
        if nested:
            row |= dict.fromkeys(("tensor_par_net", "pipeline_par_net", "data_par_net"), last)
            if random.random() < 0.7:
                row["mesh_order"] = random.choice(("tp-dp-pp", "tp-pp-dp"))
        if random.random() < 0.3:
            row = _in_parts(random, row, model, system, last if nested else None)
        found.append(row)
    faults = check(inputs.model(model), inputs.system(system), Plan.from_records(found))
    sound = [row for row, fault in zip(found, faults, strict=True) if not fault]
    for row in sound[:contradicting]:  # of two faults it would be open which is named
        name = random.choice(sorted(RULED))
        found.append(row | {name: random.choice(RULED[name])})
    return model, system, found


CHANGES: dict[str, tuple[Any, ...]] = {
    "num_procs": (1, 7),
    "tensor_par": (1, 5, 48),
    "pipeline_par": (1, 4, 61),
    "data_par": (1, 7),
    "tensor_par_net": (3, 9),
    "pipeline_par_net": (3, 9),
    "data_par_net": (3, 9),
    "batch_size": (1, 13),
    "microbatch_size": (1, 11),
    "datatype": DATATYPES,
    "activation_recompute": ("full", "attn_only", "none"),
    "pipeline_interleaving": (2, 5, 1000),
    "optimizer_sharding": (True,),
    "tensor_par_comm_type": ("p2p_rs_ag", "rs_ag"),
    "tensor_par_overlap": ("ring",),
    "seq_par_ag_redo": (True,),
    "data_par_overlap": (True,),
    "weight_offload": (True,),
    "optimizer_offload": (True,),
    "training": (False, True),
}
"""Values that a field may take, but that often contradict the rest of an execution."""

NONSENSE: tuple[tuple[str, Any], ...] = (
    ("num_procs", 0),
    ("tensor_par", -1),
    ("data_par", 2.5),
    ("batch_size", 2**40),
    ("microbatch_size", "4"),
    ("datatype", "float64"),
    ("activation_recompute", None),
    ("training", 1),
    ("weight_offload", "true"),
    ("pipeline_par_net", -1),
)
"""Values that a field never takes."""


@st.composite
def changed(draw: st.DrawFn, execution: Document) -> Document:
    """Return an execution with one field changed, which may contradict the others."""
    name = draw(st.sampled_from(sorted(CHANGES)))
    return execution | {name: draw(st.sampled_from(CHANGES[name]))}


@st.composite
def questions(draw: st.DrawFn) -> tuple[Document, Document, Document]:
    """A model, an execution and a system, of which most go together."""
    model, system = draw(models()), draw(systems())
    execution = draw(executions(model, system))
    if draw(st.sampled_from((False, False, True))):
        execution = draw(changed(execution))
    return model, execution, system


@st.composite
def tables(draw: st.DrawFn) -> tuple[Document, Document, list[Document]]:
    """A model, a system and a mixed lot of executions: feasible, infeasible, malformed."""
    model, system = draw(models()), draw(systems())
    rows = draw(st.lists(executions(model, system), min_size=2, max_size=10))
    others = [draw(changed(row)) for row in draw(st.lists(st.sampled_from(rows), max_size=3))]
    nonsense = draw(st.lists(st.sampled_from(NONSENSE), max_size=2))
    rows = [*rows, *others, *(rows[0] | {name: value} for name, value in nonsense)]
    return model, system, draw(st.permutations(rows))
