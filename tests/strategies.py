"""Hypothesis strategies: valid models, systems and executions of odd shapes, as documents."""

import math
from itertools import pairwise
from random import Random
from typing import Any

from hypothesis import strategies as st

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
    training = draw(st.sampled_from((True, True, True, False)))
    widths = math.gcd(model["hidden"], model["feedforward"], model["attn_heads"])
    degrees = divisors(widths)
    tensor_par = draw(st.sampled_from([*degrees, *degrees[1:]]))
    pipeline_par = draw(st.integers(1, min(6, model["num_blocks"])))
    data_par = draw(st.integers(1, 5))
    blocks = -(-model["num_blocks"] // pipeline_par)
    microbatch_size = draw(odd(9))
    even = microbatch_size * model["seq_size"] % tensor_par == 0
    comm_type = draw(st.sampled_from(("ar", "p2p_rs_ag", "rs_ag") if even else ("ar",)))
    recompute = draw(st.sampled_from(("full", "attn_only", "none"))) if training else "none"
    redo = comm_type == "rs_ag" and recompute != "full"
    offload = blocks >= 3
    network = st.integers(0, len(system["networks"]) - 1)

    def switch(possible: bool) -> bool:
        return possible and draw(st.booleans())

    return {
        "num_procs": tensor_par * pipeline_par * data_par,
        "tensor_par": tensor_par,
        "pipeline_par": pipeline_par,
        "data_par": data_par,
        "tensor_par_net": draw(network),
        "pipeline_par_net": draw(network),
        "data_par_net": draw(network),
        "batch_size": data_par * microbatch_size * draw(odd(40)),
        "microbatch_size": microbatch_size,
        "datatype": draw(st.sampled_from(sorted(system["matrix"]))),
        "fused_activation": draw(st.booleans()),
        "attention_type": draw(st.sampled_from(("multihead", "multiquery"))),
        "activation_recompute": recompute,
        "pipeline_interleaving": draw(st.sampled_from(divisors(blocks))) if pipeline_par > 1 else 1,
        "optimizer_sharding": switch(data_par > 1),
        "tensor_par_comm_type": comm_type,
        "tensor_par_overlap": draw(
            st.sampled_from(("none", "ring", "pipe") if tensor_par > 1 else ("none",))
        ),
        "seq_par_ag_redo": switch(redo),
        "data_par_overlap": switch(training and data_par > 1),
        "weight_offload": switch(offload),
        "activations_offload": switch(offload),
        "optimizer_offload": switch(offload and training),
        "training": training,
    }


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
    "rotary_impl": ("real", "real", "complex"),
    "seq_par_copies": (False, True, True, True),
    "data_par_slowdown": (0, 0, 5, 60),
    "launch_mode": ("auto", "eager", "compile", "graph", "blocking"),
    "vocab_pad_multiple": (1, 1, 8, 128),
    "seq_length": (0, 0, 1, 64, 300, 2048),
    "matmul_impl": ("gemm", "gemm", "gemm", "mul_sum", "mul_sum_fused"),
    "tp_impl": ("megatron", "megatron", "allgather"),
    "tp_async": (False, True),
    "tp_user_buffers": (False, True),
    "tp_hidden_percent": (100, 100, 0, 30),
    "bias_after_reduce": (False, True),
    "matmul_dtype": ("same", "same", *DATATYPES, "tfloat32"),
    "float8_scaling": ("delayed", "current"),
    "recompute_modules": ("none", "norm", "activation", "norm_activation", "mlp", "ops"),
    "recompute_every": (1, 1, 2, 3),
    "stage_stop_us": (0, 0, 500),
    "coll_algo": (*OPTIONS["coll_algo"], "tree", "nvls", "nvls_tree", "collnet"),
}
"""Those that :func:`every_table` draws besides."""

RULED: dict[str, tuple[Any, ...]] = {
    **OPTIONS,
    **MORE_OPTIONS,
    "attn_kernel": ("auto", "flash2", "cudnn"),
    "zero_stage": ("auto", "0", "1", "2", "3", "fsdp", "owner"),
    "dp_shard": (0, 1, 2, 3),
    "fsdp_unit": (1, 2, 5),
    "fsdp_prefetch": (0, 1, 2),
    "reshard_after_forward": (True, False),
    "ddp_bucket_mib": (0, 1, 25),
    "no_sync": (True, False),
    "grad_group": (1, 2),
    "overlap_param_gather": (False, True),
    "pp_schedule": ("1f1b", "gpipe", "zb_h1"),
    "pp_layout": ("uniform", "balanced", "embedding_as_block", "head_as_block", "both_as_blocks"),
    "first_stage_blocks": (0, 1, 3, 50),
    "last_stage_blocks": (0, 1, 3, 50),
    "p2p_overlap": (False, True),
}
"""Optional fields, with values that often contradict the rest of an execution."""


@st.composite
def extended_models(draw: st.DrawFn) -> Document:
    """Models with any of the fields that only the corrected edition knows, mostly with a vocabulary."""
    model = draw(models())
    options: dict[str, st.SearchStrategy[Any]] = {
        "kv_heads": st.sampled_from(divisors(model["attn_heads"])),
        "activation": st.sampled_from(("relu", "squared_relu", "swiglu", "geglu")),
        "norm": st.sampled_from(("layernorm_no_bias", "layernorm_plain", "rmsnorm")),
        "qk_norm": st.sampled_from(("head", "full")),
        "parallel_attention": st.just(True),
        "dropout": st.just(False),
        "rotary": st.sampled_from((0.25, 0.5, 1.0)),
        "causal": st.just(False),
        "sliding_window": odd(5000),
        "full_attention_every": st.integers(1, 7),
        "positions": odd(4096),
        "vocab": st.integers(1, 150_000),
    }
    switches = ("qkv_bias", "out_bias", "mlp_bias", "head_bias", "tied", "embedding_norm")
    options |= dict.fromkeys(switches, st.just(True))
    chosen = draw(st.sets(st.sampled_from(sorted(options)), min_size=3))
    if draw(st.sampled_from((True, True, False))):
        chosen.add("vocab")
    norms = st.sampled_from((1, 2) if "parallel_attention" in chosen else (2, 4))
    return model | {name: draw(options[name]) for name in sorted(chosen)} | {"norms": draw(norms)}


@st.composite
def parts(draw: st.DrawFn) -> Document:
    """Models of parts of blocks."""
    model = draw(extended_models())
    part = draw(st.sampled_from(("attention", "mlp", "linear")))
    for name in ("vocab", "tied", "positions", "embedding_norm", "head_bias"):
        model.pop(name, None)
    if part == "linear":
        model["feedforward"] = model["hidden"]
        if model.get("activation") in ("swiglu", "geglu"):
            model["activation"] = "gelu"
    return model | {"part": part}


def _corrected_row(random: Random, model: Document, system: Document) -> Document:
    """Choose an execution of the corrected edition that no rule of the request forbids."""

    def either(possible: bool = True) -> bool:
        return possible and random.random() < 0.5

    training = random.random() < 0.8
    degrees = divisors(math.gcd(model["hidden"], model["feedforward"], model["attn_heads"]))
    tensor_par = random.choice([*degrees, *degrees[1:]])
    pipeline_par = random.randint(1, min(6, model["num_blocks"]))
    data_par = random.choice((1, 2, 2, 3, 4))
    blocks = -(-model["num_blocks"] // pipeline_par)
    microbatch_size = random.choice((1, 2, 3, tensor_par))
    even = microbatch_size * model["seq_size"] % tensor_par == 0
    comm_type = random.choice(("ar", "p2p_rs_ag", "rs_ag")) if even else "ar"
    recompute = random.choice(("full", "attn_only", "none")) if training else "none"
    networks = range(len(system["networks"]))
    row = {
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
        **CORRECTED,
        **_sound({name: random.choice(values) for name, values in OPTIONS.items()}),
    }
    return row | _form(random, row, blocks) if training and either() else row


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
def corrected_tables(draw: st.DrawFn, rows: int = 12) -> tuple[Document, Document, list[Document]]:
    """A model, a system with or without `ext` that is never too small, and executions of the corrected edition.

    Communication takes less than half of the engines. The executions are cheap to draw, and do not shrink.
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
    random = draw(st.randoms(use_true_random=True))
    return model, system, [_corrected_row(random, model, system) for _ in range(rows)]


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
    names = st.sampled_from(("all_reduce", "reduce_scatter", "all_gather", "p2p"))
    for name in draw(st.sets(names, min_size=1)):
        ranks = sorted(draw(st.sets(st.sampled_from((2, 3, 4, 8, 16, 64)), min_size=1)))
        rates = [[n, draw(shares), draw(st.one_of(st.just(0), latency))] for n in ranks]
        found[name] = {"latency": draw(latency), "rates": rates}
        if draw(st.booleans()):
            found[name]["rank_latency"] = draw(latency)
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
    link = st.fixed_dictionaries(
        {},
        optional={
            "kind": st.sampled_from(("nvlink", "pcie", "net")),
            "step_latency": seconds,
            "ramp": seconds,
            "in_network_reduction": st.booleans(),
            "operations": measured_collectives(),
            "processor_usage": zero_or(0.001, 0.49),
        },
    )
    ext: Document = {"matrix": draw(engines(("tfloat32",), (0.5, 2000)))}
    if draw(st.booleans()):
        ext["kernels"] = {"attention": dict.fromkeys(types, draw(fused_attention()))}
    kernel = st.fixed_dictionaries({"efficiency": curves((64, 512, 2000))})
    for key, one in (("attention", kernel), ("gemm", gemm)):
        if draw(st.booleans()) and not (key == "attention" and "kernels" in ext):
            ext[key] = {
                name: draw(one) for name in draw(st.sets(st.sampled_from(types), min_size=1))
            }
    if draw(st.booleans()):
        ext["processing_mode"] = draw(st.sampled_from(("roofline", "no_overlap")))
    if draw(st.booleans()):
        ext["networks"] = draw(st.lists(link, max_size=len(system["networks"])))
        for one, network in zip(ext["networks"], system["networks"], strict=False):
            if network["size"] > 1 and draw(st.booleans()):
                one["torus"] = draw(tori(network["size"]))
    if draw(st.booleans()):
        names = ("kernel", "eager", "compile", "graph", "step")
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
    if draw(st.booleans()):
        host = {"GBps": st.floats(1, 1000), "efficiency": st.floats(0.1, 1), "processors": odd(16)}
        ext["host"] = draw(st.fixed_dictionaries(host))
    return ext


def _more(random: Random, row: Document, model: Document, system: Document) -> Document:
    """Choose what :func:`every_table` draws besides; what the rules forbid is left out."""
    chosen = {name: random.choice(values) for name, values in MORE_OPTIONS.items()}
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
    if not alone or chosen["matmul_dtype"] != "same":
        chosen["matmul_impl"] = "gemm"
    halves = part == "block" and not model.get("parallel_attention", False)
    plain = megatron and chosen["matmul_impl"] == "gemm" and halves
    if not (row["training"] and plain and row["activation_recompute"] != "full"):
        chosen["recompute_modules"] = "none"
    again = row["activation_recompute"] != "none" or chosen["recompute_modules"] != "none"
    if not again or row["activations_offload"]:
        chosen["recompute_every"] = 1
    if chosen["coll_algo"] != "published":
        chosen["latency_per_step"] = False
    fused = system.get("ext", {}).get("kernels", {}).get("attention", {})
    known = next((one["kernels"] for one in fused.values() if "kernels" in one), ())
    if known and row["attn_impl"] == "flash":
        chosen["attn_kernel"] = random.choice(("auto", *known, *known))
    if not _fits(chosen["seq_length"], row, model):
        chosen["seq_length"] = 0
    return chosen | pipelines(random, row, model)


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
    if chunks == 1 and row["training"]:
        chosen["pp_schedule"] = random.choice(("1f1b", "gpipe", "zb_h1"))
    if total > p * chunks and random.random() < 0.2:
        breaks = sorted(random.sample(range(1, total), p * chunks - 1))
        counts = [after - before for before, after in pairwise([0, *breaks, total])]
        if all(count % row.get("fsdp_unit", 1) == 0 for count in counts):
            chosen["stage_blocks"] = "-".join(map(str, counts))
    elif chunks == 1 or row.get("fsdp_unit", 1) == 1:
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
    microbatches = row["batch_size"] // (row["data_par"] * row["microbatch_size"])
    due = chunks > 1 or chosen.get("pp_schedule") == "gpipe" if row["training"] else chunks == 1
    if due and microbatches >= p:
        chosen["p2p_overlap"] = random.random() < 0.5
    return chosen


@st.composite
def every_table(
    draw: st.DrawFn, rows: int = 12, contradicting: int = 0
) -> tuple[Document, Document, list[Document]]:
    """As :func:`corrected_tables`, with every field of executions, models and ``ext`` that there is.

    Networks may nest, for ranks that are numbered; other groups are then all on the largest. Some rows come again with
    one optional field changed, which may contradict the others.
    """
    model, system, _ = draw(corrected_tables(0))
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
        found.append(row)
    for row in found[:contradicting]:
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
