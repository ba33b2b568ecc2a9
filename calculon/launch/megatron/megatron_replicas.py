"""Megatron-LM: data parallelism (ZeRO, FSDP), gradients, optimizer, activation recomputation, and offloading."""

from calculon.declarations.module_sets import ALIASES, MODULES, modules_of, written
from calculon.launch.dialect import Fields, Reading, Writing
from calculon.launch.rows import first_names, row, switch

_FSDP, _STRATEGY = "--use-megatron-fsdp", "--data-parallel-sharding-strategy"
_TORCH_FSDP = "--use-torch-fsdp2"
_STAGES = {"no_shard": "0", "optim": "1", "optim_grads": "2", "optim_grads_params": "3"}
_INSTANCES = "--num-distributed-optimizer-instances"
_BUCKET = "--ddp-bucket-size"
_MIB = 2**20


def _sharing(reading: Reading) -> Fields:
    """Read the sharding over replicas (ZeRO, FSDP); a single replica shards nothing."""
    replicas = reading.execution["data_par"] * reading.execution["context_par"]
    stage = _stage(reading)
    # A single replica has nothing to shard, whatever the flags say.
    stage = stage if replicas > 1 else "0"
    several = reading.count(_INSTANCES, default=1) or 1
    shards = replicas // several if several > 1 and stage != "0" else 0
    # FSDP2 always overlaps its reductions; only DDP has a switch.
    overlap = reading.switch("--overlap-grad-reduce") or stage == "fsdp"
    late = reading.switch("--overlap-param-gather")
    kept = reading.switch("--torch-fsdp2-no-reshard-after-forward")
    return {
        "zero_stage": stage,
        "optimizer_sharding": stage != "0",
        "dp_shard": shards,
        "data_par_overlap": overlap and replicas > 1,
        "overlap_param_gather": late and stage in ("1", "2"),
        "reshard_after_forward": not (kept and stage == "fsdp"),
    }


def _stage(reading: Reading) -> str:
    """Return the ZeRO stage, from the flags of every kind of sharding."""
    strategy = reading.stated(_STRATEGY, default="no_shard")
    distributed = reading.switch("--use-distributed-optimizer")
    stated = reading.count("--zero-stage", default=0)
    if reading.switch(_TORCH_FSDP):
        return "fsdp"
    if reading.switch(_FSDP):
        return _STAGES[reading.choice(strategy, _STAGES)]
    if _sums_apart(reading):
        return "1"
    return "1" if distributed else str(min(stated or 0, 3))


def _sums_apart(reading: Reading) -> bool:
    """Return true for DeepSpeed's BF16 optimizer: 2-byte gradients are added to separate, sharded 4-byte sums.

    Source: BigScience, script of BLOOM-176B: "bf16 must use z0! it implements its own zero stage 1 equivalent".
    """
    return (
        reading.switch("--deepspeed")
        and reading.switch("--bf16")
        and not reading.count("--zero-stage")
    )


def _write_sharing(writing: Writing) -> Fields:
    stage = writing["zero_stage"]
    found: Fields = {}
    if stage == "1":
        found["--use-distributed-optimizer"] = True
    elif stage in ("2", "3"):
        strategy = first_names(_STAGES)[stage]
        found |= {"--use-distributed-optimizer": True, _FSDP: True, _STRATEGY: strategy}
    elif stage == "fsdp":
        found[_TORCH_FSDP] = True
    # Megatron-FSDP prefetches parameters only if the all-gather overlap is on.
    gathers_ahead = stage == "3" and writing["data_par_overlap"]
    if writing["dp_shard"]:
        found[_INSTANCES] = writing["data_par"] * writing["context_par"] // writing["dp_shard"]
    flags = {
        "--overlap-grad-reduce": writing["data_par_overlap"] and stage != "fsdp",
        "--overlap-param-gather": writing["overlap_param_gather"] or gathers_ahead,
        "--torch-fsdp2-no-reshard-after-forward": not writing["reshard_after_forward"],
    }
    return found | {name: True for name, on in flags.items() if on}


_SUMS = {"bfloat16": "bfloat16", "float16": "float16", "float32": "float32"}


def _gradients(reading: Reading) -> Fields:
    """Read the types of gradients: bfloat16 gradients accumulate in 4 bytes unless they are reduced in 2."""
    datatype = reading.execution["datatype"]
    wide = reading.switch("--accumulate-allreduce-grads-in-fp32")
    narrow = reading.switch("--grad-reduce-in-bf16")
    if datatype == "bfloat16":
        wide = not narrow
    kind = "float32" if wide else _SUMS[datatype]
    apart = _sums_apart(reading)
    bucket = reading.count(_BUCKET)
    size = 4 if kind == "float32" else 2
    # bucket sizes only apply to DDP and the distributed optimizer, not to sharded weights
    counts = bucket is not None and reading.execution["zero_stage"] in ("0", "1", "2")
    mib = round(bucket * size / _MIB) if counts and bucket else 0
    return {
        "grad_dtype": "bfloat16" if apart else kind,
        "grad_comm_dtype": kind,
        "grad_sums": apart,
        "ddp_bucket_mib": mib,
    }


def _write_gradients(writing: Writing) -> Fields:
    result: Fields = {}
    kind, datatype = writing["grad_dtype"], writing["datatype"]
    if datatype == "bfloat16" and kind == "bfloat16":
        result["--grad-reduce-in-bf16"] = True
    if datatype == "float16" and kind == "float32":
        result["--accumulate-allreduce-grads-in-fp32"] = True
    if writing["ddp_bucket_mib"]:
        size = 4 if kind == "float32" else 2
        result[_BUCKET] = writing["ddp_bucket_mib"] * _MIB // size
    return result


_OPTIMIZERS = {
    "adam": "adam",
    "sgd": "sgd_momentum",
    "muon": "muon",
    "dist_muon": "muon",
    "lion": "lion",
}
_WITHOUT_MOMENTS = ("sgd", "adafactor")


def _optimizer(reading: Reading) -> Fields:
    name = str(reading.get("--optimizer", default="adam"))
    if name not in _OPTIMIZERS:
        reading.not_modelled(
            "--optimizer", f"only {', '.join(_OPTIMIZERS)} are modeled; adam is used"
        )
        name = "adam"
    found = _OPTIMIZERS[name]
    if name == "sgd" and reading.get("--sgd-momentum", default=0.9) == 0:
        found = "sgd"
    clipped = reading.get("--clip-grad", default=1.0)
    small = _small_moments(reading) and found not in _WITHOUT_MOMENTS
    return {
        "optimizer": found,
        "optimizer_state_dtype": "bfloat16" if small else "float32",
        "grad_clip": isinstance(clipped, (int, float)) and clipped > 0,
    }


def _small_moments(reading: Reading) -> bool:
    """Return true if both moments have 2 bytes; report other combinations, which are not modeled."""
    aware = reading.switch("--use-precision-aware-optimizer")
    kinds = {
        name: reading.get(name, default="fp32")
        for name in ("--exp-avg-dtype", "--exp-avg-sq-dtype")
    }
    if not aware or all(kind == "fp32" for kind in kinds.values()):
        return False
    if all(kind == "bf16" for kind in kinds.values()):
        return True
    for name in kinds:
        reading.not_modelled(
            name, "only moments that are both bf16, or both fp32, are modeled; fp32 is used"
        )
    return False


def _write_optimizer(writing: Writing) -> Fields:
    names = {"sgd": "sgd"} | first_names(_OPTIMIZERS)
    if writing["optimizer"] not in names:
        raise writing.refuse("optimizer", ", ".join(names), "adam is the nearest")
    found: Fields = {}
    if writing["optimizer"] != "adam":
        found["--optimizer"] = names[writing["optimizer"]]
    if writing["optimizer"] == "sgd":
        found["--sgd-momentum"] = 0
    if writing["optimizer_state_dtype"] == "bfloat16":
        kinds = dict.fromkeys(("--exp-avg-dtype", "--exp-avg-sq-dtype"), "bf16")
        found |= {"--use-precision-aware-optimizer": True, **kinds}
    return found | ({} if writing["grad_clip"] else {"--clip-grad": 0})


_STATES = "--offload-optimizer-states"


def _offload(reading: Reading) -> Fields:
    """Read offloading to host memory; partial offloading is modeled as complete offloading."""
    state = reading.switch("--optimizer-cpu-offload") or reading.switch(_STATES)
    share = reading.get("--optimizer-offload-fraction", default=1.0)
    if state and share != 1:
        reading.not_modelled(
            "--optimizer-offload-fraction",
            "partial offload: all of the state is modeled as offloaded",
        )
    blocks = reading.count("--cpu-offloading-num-layers", default=0)
    most = reading.count("--num-layers", "--encoder-num-layers")
    if blocks and most and blocks < most - 1:
        reading.not_modelled(
            "--cpu-offloading-num-layers", "partial offload: all blocks are modeled as offloaded"
        )
    return {"optimizer_offload": state, "activations_offload": blocks > 0}


def _write_offload(writing: Writing) -> Fields:
    result: Fields = {}
    if writing["optimizer_offload"]:
        gathered = writing["fp8_param_gather"] and writing["fp8_recipe"] != "delayed"
        on_host = {"--optimizer-cpu-offload": True, "--use-precision-aware-optimizer": True}
        # --optimizer-cpu-offload refuses 8-bit weights.
        result |= {_STATES: True} if gathered else on_host
    if not writing["activations_offload"]:
        return result
    if writing.model is None:
        hint = "the flag counts blocks, so the model must be known"
        raise writing.refuse("activations_offload", "false if the model is not known", hint)
    # Megatron-LM requires fewer offloaded blocks than blocks: the backward pass of the last one starts at once.
    return result | {"--cpu-offloading-num-layers": writing.model.num_blocks - 1}


REPLICAS = (
    row(
        "zero_stage optimizer_sharding dp_shard data_par_overlap overlap_param_gather "
        "reshard_after_forward",
        f"--use-distributed-optimizer {_FSDP} {_STRATEGY} {_TORCH_FSDP} {_INSTANCES} --zero-stage "
        "--overlap-grad-reduce --overlap-param-gather --torch-fsdp2-no-reshard-after-forward",
        _sharing,
        _write_sharing,
    ),
    row(
        "grad_dtype grad_comm_dtype grad_sums ddp_bucket_mib",
        f"--deepspeed --accumulate-allreduce-grads-in-fp32 --grad-reduce-in-bf16 {_BUCKET}",
        _gradients,
        _write_gradients,
    ),
    switch("--no-gradient-accumulation-fusion", "grad_fusion", on=False, off=True),
    switch("--cross-entropy-loss-fusion", "ce_impl", on="fused", off="megatron"),
    row(
        "optimizer optimizer_state_dtype grad_clip",
        "--optimizer --sgd-momentum --clip-grad --use-precision-aware-optimizer --exp-avg-dtype "
        "--exp-avg-sq-dtype",
        _optimizer,
        _write_optimizer,
    ),
    row(
        "optimizer_offload activations_offload",
        f"--optimizer-cpu-offload {_STATES} --optimizer-offload-fraction --cpu-offloading-num-layers",
        _offload,
        _write_offload,
    ),
)

_GRANULARITY, _METHOD = "--recompute-granularity", "--recompute-method"
_COUNT, _MODULES, _SHORT = (
    "--recompute-num-layers",
    "--recompute-modules",
    "--recompute-activations",
)
_OLD = ("--checkpoint-activations", "--deepspeed-activation-checkpointing")
_OLD_METHOD = "--activations-checkpoint-method"
_NAMES = first_names(ALIASES)


def _recompute(reading: Reading) -> Fields:
    """Read activation recomputation: full, selective by modules, or none."""
    stated, short = reading.stated(_GRANULARITY, default=None), reading.switch(_SHORT)
    old = True in [reading.switch(name) for name in _OLD] or reading.get(_OLD_METHOD) is not None
    kind = "selective" if short else "full" if old else stated.value
    result: Fields = {
        "activation_recompute": "none",
        "recompute_modules": "none",
        "recompute_every": 1,
        "recompute_blocks": 0,
    }
    if kind == "full":
        return result | {"activation_recompute": "full"} | _some_blocks(reading)
    reading.used |= {_METHOD, _COUNT, "--activations-checkpoint-num-layers"}
    if kind == "selective":
        return result | _modules(reading, short)
    if kind is not None:
        raise reading.error(stated, "full or selective")
    reading.used.add(_MODULES)
    return result


def _modules(reading: Reading, short: bool) -> Fields:
    """Read the modules of selective recomputation; core attention by default."""
    stated = reading.setting(_MODULES)
    if stated is None:
        return {"activation_recompute": "attn_only"}
    names = stated.value if isinstance(stated.value, list) else str(stated.value).split(",")
    modules = {ALIASES.get(str(name), str(name)) for name in names}
    if strange := sorted(modules - {*MODULES}):
        known = ", ".join(_NAMES.get(name, name) for name in MODULES)
        raise reading.error(stated, f"modules among {known}", f"{strange[0]} is not a module")
    modules -= modules_of("moe_act+shared_experts") if "moe" in modules else set()
    if not short:
        return {"recompute_modules": written(modules)}
    return {
        "activation_recompute": "attn_only",
        "recompute_modules": written(modules - {"core_attn"}) or "none",
    }


def _some_blocks(reading: Reading) -> Fields:
    """Read the number of recomputed blocks of each chunk: all, or the first ones (method ``block``)."""
    reading.used.add(_MODULES)
    method = reading.get(_METHOD, _OLD_METHOD, default="uniform")
    count = reading.count(_COUNT, "--activations-checkpoint-num-layers", "--checkpoint-num-layers")
    if method == "uniform" and count and count > 1:
        reading.not_modelled(
            _COUNT, "checkpoints of groups of blocks: one checkpoint per block is modeled"
        )
    if method == "block" and count == 0:  # how the examples of Primus switch recomputation off
        return {"activation_recompute": "none"}
    if method != "block" or not count:
        return {}
    blocks = reading.count("--num-layers", "--encoder-num-layers")
    stages = reading.execution["pipeline_par"] * reading.execution["pipeline_interleaving"]
    if not blocks or blocks % stages:
        reading.not_modelled(_COUNT, "chunks differ: recomputation of all blocks is modeled")
        return {}
    chunk = blocks // stages
    return {"recompute_every": chunk, "recompute_blocks": count} if count < chunk else {}


def _write_recompute(writing: Writing) -> Fields:
    kind, modules = writing["activation_recompute"], writing["recompute_modules"]
    if kind == "full":
        some = writing["recompute_every"] > 1
        method = {_METHOD: "block" if some else "uniform"}
        count = max(1, writing["recompute_blocks"]) if some else 1
        return {_GRANULARITY: "full", **method, _COUNT: count}
    if kind == "none" and modules == "none":
        return {}
    result: Fields = {_SHORT: True} if kind == "attn_only" else {_GRANULARITY: "selective"}
    if modules == "none":
        return result
    chosen = modules_of(modules) | (modules_of("core_attn") if kind == "attn_only" else set())
    names = [_NAMES.get(name, name) for name in MODULES if name in chosen]
    if not names:  # single operators, as in torchtitan
        raise writing.refuse("recompute_modules", f"none, or some of {', '.join(MODULES)}")
    return result | {_MODULES: names[0] if len(names) == 1 else names}


RECOMPUTE = row(
    "activation_recompute recompute_modules recompute_every recompute_blocks",
    f"{_GRANULARITY} {_METHOD} {_COUNT} {_MODULES} {_SHORT} {' '.join(_OLD)} {_OLD_METHOD} "
    "--activations-checkpoint-num-layers --checkpoint-num-layers",
    _recompute,
    _write_recompute,
)
