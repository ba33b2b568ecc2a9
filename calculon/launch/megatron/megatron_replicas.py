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


def _sharing(one: Reading) -> Fields:
    """Read the sharding over replicas (ZeRO, FSDP); a single replica shards nothing."""
    replicas = one.execution["data_par"] * one.execution["context_par"]
    stage = _stage(one)
    # A single replica has nothing to shard, whatever the flags say.
    stage = stage if replicas > 1 else "0"
    several = one.count(_INSTANCES, default=1) or 1
    shards = replicas // several if several > 1 and stage != "0" else 0
    # FSDP2 always overlaps its reductions; only DDP has a switch.
    overlap = one.switch("--overlap-grad-reduce") or stage == "fsdp"
    late = one.switch("--overlap-param-gather")
    kept = one.switch("--torch-fsdp2-no-reshard-after-forward")
    return {
        "zero_stage": stage,
        "optimizer_sharding": stage != "0",
        "dp_shard": shards,
        "data_par_overlap": overlap and replicas > 1,
        "overlap_param_gather": late and stage in ("1", "2"),
        "reshard_after_forward": not (kept and stage == "fsdp"),
    }


def _stage(one: Reading) -> str:
    """Return the ZeRO stage, from the flags of every kind of sharding."""
    strategy = one.stated(_STRATEGY, default="no_shard")
    distributed = one.switch("--use-distributed-optimizer")
    stated = one.count("--zero-stage", default=0)
    if one.switch(_TORCH_FSDP):
        return "fsdp"
    if one.switch(_FSDP):
        return _STAGES[one.choice(strategy, _STAGES)]
    if _sums_apart(one):
        return "1"
    return "1" if distributed else str(min(stated or 0, 3))


def _sums_apart(one: Reading) -> bool:
    """Return true for DeepSpeed's BF16 optimizer: 2-byte gradients are added to separate, sharded 4-byte sums.

    Source: BigScience, script of BLOOM-176B: "bf16 must use z0! it implements its own zero stage 1 equivalent".
    """
    return one.switch("--deepspeed") and one.switch("--bf16") and not one.count("--zero-stage")


def _write_sharing(one: Writing) -> Fields:
    stage = one["zero_stage"]
    found: Fields = {}
    if stage == "1":
        found["--use-distributed-optimizer"] = True
    elif stage in ("2", "3"):
        strategy = first_names(_STAGES)[stage]
        found |= {"--use-distributed-optimizer": True, _FSDP: True, _STRATEGY: strategy}
    elif stage == "fsdp":
        found[_TORCH_FSDP] = True
    # Megatron-FSDP prefetches parameters only if the all-gather overlap is on.
    gathers_ahead = stage == "3" and one["data_par_overlap"]
    if one["dp_shard"]:
        found[_INSTANCES] = one["data_par"] * one["context_par"] // one["dp_shard"]
    flags = {
        "--overlap-grad-reduce": one["data_par_overlap"] and stage != "fsdp",
        "--overlap-param-gather": one["overlap_param_gather"] or gathers_ahead,
        "--torch-fsdp2-no-reshard-after-forward": not one["reshard_after_forward"],
    }
    return found | {name: True for name, on in flags.items() if on}


_SUMS = {"bfloat16": "bfloat16", "float16": "float16", "float32": "float32"}


def _gradients(one: Reading) -> Fields:
    """Read the types of gradients: bfloat16 gradients accumulate in 4 bytes unless they are reduced in 2."""
    datatype = one.execution["datatype"]
    wide = one.switch("--accumulate-allreduce-grads-in-fp32")
    narrow = one.switch("--grad-reduce-in-bf16")
    if datatype == "bfloat16":
        wide = not narrow
    kind = "float32" if wide else _SUMS[datatype]
    apart = _sums_apart(one)
    bucket = one.count(_BUCKET)
    size = 4 if kind == "float32" else 2
    # bucket sizes only apply to DDP and the distributed optimizer, not to sharded weights
    counts = bucket is not None and one.execution["zero_stage"] in ("0", "1", "2")
    mib = round(bucket * size / _MIB) if counts and bucket else 0
    return {
        "grad_dtype": "bfloat16" if apart else kind,
        "grad_comm_dtype": kind,
        "grad_sums": apart,
        "ddp_bucket_mib": mib,
    }


def _write_gradients(one: Writing) -> Fields:
    found: Fields = {}
    kind, datatype = one["grad_dtype"], one["datatype"]
    if datatype == "bfloat16" and kind == "bfloat16":
        found["--grad-reduce-in-bf16"] = True
    if datatype == "float16" and kind == "float32":
        found["--accumulate-allreduce-grads-in-fp32"] = True
    if one["ddp_bucket_mib"]:
        size = 4 if kind == "float32" else 2
        found[_BUCKET] = one["ddp_bucket_mib"] * _MIB // size
    return found


_OPTIMIZERS = {
    "adam": "adam",
    "sgd": "sgd_momentum",
    "muon": "muon",
    "dist_muon": "muon",
    "lion": "lion",
}
_WITHOUT_MOMENTS = ("sgd", "adafactor")


def _optimizer(one: Reading) -> Fields:
    name = str(one.get("--optimizer", default="adam"))
    if name not in _OPTIMIZERS:
        one.not_modelled("--optimizer", f"only {', '.join(_OPTIMIZERS)} are modelled; adam is used")
        name = "adam"
    found = _OPTIMIZERS[name]
    if name == "sgd" and one.get("--sgd-momentum", default=0.9) == 0:
        found = "sgd"
    clipped = one.get("--clip-grad", default=1.0)
    small = _small_moments(one) and found not in _WITHOUT_MOMENTS
    return {
        "optimizer": found,
        "optimizer_state_dtype": "bfloat16" if small else "float32",
        "grad_clip": isinstance(clipped, (int, float)) and clipped > 0,
    }


def _small_moments(one: Reading) -> bool:
    """Return true if both moments have 2 bytes; report other combinations, which are not modelled."""
    aware = one.switch("--use-precision-aware-optimizer")
    kinds = {
        name: one.get(name, default="fp32") for name in ("--exp-avg-dtype", "--exp-avg-sq-dtype")
    }
    if not aware or all(kind == "fp32" for kind in kinds.values()):
        return False
    if all(kind == "bf16" for kind in kinds.values()):
        return True
    for name in kinds:
        one.not_modelled(
            name, "only moments that are both bf16, or both fp32, are modelled; fp32 is used"
        )
    return False


def _write_optimizer(one: Writing) -> Fields:
    names = {"sgd": "sgd"} | first_names(_OPTIMIZERS)
    if one["optimizer"] not in names:
        raise one.refuse("optimizer", ", ".join(names), "adam is the nearest")
    found: Fields = {}
    if one["optimizer"] != "adam":
        found["--optimizer"] = names[one["optimizer"]]
    if one["optimizer"] == "sgd":
        found["--sgd-momentum"] = 0
    if one["optimizer_state_dtype"] == "bfloat16":
        kinds = dict.fromkeys(("--exp-avg-dtype", "--exp-avg-sq-dtype"), "bf16")
        found |= {"--use-precision-aware-optimizer": True, **kinds}
    return found | ({} if one["grad_clip"] else {"--clip-grad": 0})


_STATES = "--offload-optimizer-states"


def _offload(one: Reading) -> Fields:
    """Read offloading to host memory; partial offloading is modelled as complete offloading."""
    state = one.switch("--optimizer-cpu-offload") or one.switch(_STATES)
    share = one.get("--optimizer-offload-fraction", default=1.0)
    if state and share != 1:
        one.not_modelled(
            "--optimizer-offload-fraction",
            "partial offload: all of the state is modelled as offloaded",
        )
    blocks = one.count("--cpu-offloading-num-layers", default=0)
    most = one.count("--num-layers", "--encoder-num-layers")
    if blocks and most and blocks < most - 1:
        one.not_modelled(
            "--cpu-offloading-num-layers", "partial offload: all blocks are modelled as offloaded"
        )
    return {"optimizer_offload": state, "activations_offload": blocks > 0}


def _write_offload(one: Writing) -> Fields:
    found: Fields = {}
    if one["optimizer_offload"]:
        gathered = one["fp8_param_gather"] and one["fp8_recipe"] != "delayed"
        on_host = {"--optimizer-cpu-offload": True, "--use-precision-aware-optimizer": True}
        found |= (
            {_STATES: True} if gathered else on_host
        )  # optimizer-cpu-offload refuses 8-bit weights
    if not one["activations_offload"]:
        return found
    if one.model is None:
        hint = "the flag counts blocks, so the model must be known"
        raise one.refuse("activations_offload", "false if the model is not known", hint)
    # Megatron-LM requires fewer offloaded blocks than blocks: the backward pass of the last one starts at once.
    return found | {"--cpu-offloading-num-layers": one.model.num_blocks - 1}


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


def _recompute(one: Reading) -> Fields:
    """Read activation recomputation: full, selective by modules, or none."""
    stated, short = one.stated(_GRANULARITY, default=None), one.switch(_SHORT)
    old = True in [one.switch(name) for name in _OLD] or one.get(_OLD_METHOD) is not None
    kind = "selective" if short else "full" if old else stated.value
    found: Fields = {
        "activation_recompute": "none",
        "recompute_modules": "none",
        "recompute_every": 1,
        "recompute_blocks": 0,
    }
    if kind == "full":
        return found | {"activation_recompute": "full"} | _some_blocks(one)
    one.used |= {_METHOD, _COUNT, "--activations-checkpoint-num-layers"}
    if kind == "selective":
        return found | _modules(one, short)
    if kind is not None:
        raise one.error(stated, "full or selective")
    one.used.add(_MODULES)
    return found


def _modules(one: Reading, short: bool) -> Fields:
    """Read the modules of selective recomputation; core attention by default."""
    stated = one.setting(_MODULES)
    if stated is None:
        return {"activation_recompute": "attn_only"}
    names = stated.value if isinstance(stated.value, list) else str(stated.value).split(",")
    modules = {ALIASES.get(str(name), str(name)) for name in names}
    if strange := sorted(modules - {*MODULES}):
        known = ", ".join(_NAMES.get(name, name) for name in MODULES)
        raise one.error(stated, f"modules among {known}", f"{strange[0]} is not a module")
    modules -= modules_of("moe_act+shared_experts") if "moe" in modules else set()
    if not short:
        return {"recompute_modules": written(modules)}
    return {
        "activation_recompute": "attn_only",
        "recompute_modules": written(modules - {"core_attn"}) or "none",
    }


def _some_blocks(one: Reading) -> Fields:
    """Read the number of recomputed blocks of each chunk: all, or the first ones (method ``block``)."""
    one.used.add(_MODULES)
    method = one.get(_METHOD, _OLD_METHOD, default="uniform")
    count = one.count(_COUNT, "--activations-checkpoint-num-layers", "--checkpoint-num-layers")
    if method == "uniform" and count and count > 1:
        one.not_modelled(
            _COUNT, "checkpoints of groups of blocks: one checkpoint per block is modelled"
        )
    if method != "block" or not count:
        return {}
    blocks = one.count("--num-layers", "--encoder-num-layers")
    stages = one.execution["pipeline_par"] * one.execution["pipeline_interleaving"]
    if not blocks or blocks % stages:
        one.not_modelled(_COUNT, "chunks differ: recomputation of all blocks is modelled")
        return {}
    chunk = blocks // stages
    return {"recompute_every": chunk, "recompute_blocks": count} if count < chunk else {}


def _write_recompute(one: Writing) -> Fields:
    kind, modules = one["activation_recompute"], one["recompute_modules"]
    if kind == "full":
        some = one["recompute_every"] > 1
        method = {_METHOD: "block" if some else "uniform"}
        return {_GRANULARITY: "full", **method, _COUNT: one["recompute_blocks"] if some else 1}
    if kind == "none" and modules == "none":
        return {}
    found: Fields = {_SHORT: True} if kind == "attn_only" else {_GRANULARITY: "selective"}
    if modules == "none":
        return found
    chosen = modules_of(modules) | (modules_of("core_attn") if kind == "attn_only" else set())
    names = [_NAMES.get(name, name) for name in MODULES if name in chosen]
    if not names:  # single operators, as in torchtitan
        raise one.refuse("recompute_modules", f"none, or some of {', '.join(MODULES)}")
    return found | {_MODULES: names[0] if len(names) == 1 else names}


RECOMPUTE = row(
    "activation_recompute recompute_modules recompute_every recompute_blocks",
    f"{_GRANULARITY} {_METHOD} {_COUNT} {_MODULES} {_SHORT} {' '.join(_OLD)} {_OLD_METHOD} "
    "--activations-checkpoint-num-layers --checkpoint-num-layers",
    _recompute,
    _write_recompute,
)
