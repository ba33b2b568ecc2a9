"""torchtitan: configurations of its TOML files up to 2025, and of its Python recipes since 2026.

Sources: pytorch/torchtitan, ``torchtitan/config/job_config.py`` and ``train_configs/*.toml`` (2024, 2025),
``torchtitan/config/configs.py`` and ``models/*/config_registry.py`` (2026). Those of August 2026 count tokens, not
sequences: they are written.
"""

from collections.abc import Mapping
from typing import Any

from calculon.errors import Problem, SpecError
from calculon.launch.dialect import Dialect, Fields, Reading, Row, Writing
from calculon.launch.rows import named
from calculon.launch.torchtitan_files import (
    Recipe,
    flavor_of,
    indivisible,
    model_of,
    parallel,
    parse,
    recognises,
    render,
)
from calculon.launch.torchtitan_pipeline import PIPELINE

_TOKENS = "training.num_tokens_per_microbatch_per_dp_rank"
_STEP_TOKENS = "training.num_tokens_per_train_step"
_LENGTH = "training.max_context_length"
_PP_MICROBATCHES = "parallelism.num_pp_microbatches"
_CHECKPOINT = "activation_checkpoint"
_COMPONENTS = "compile.components"

_RECOMPUTES = {
    "None": "none",
    "SelectiveAC": "selective",
    "FullAC": "full",
    "MemoryBudgetAC": "memory_budget",
    "RegionAC": "region",
    "SelectiveActivationRematConfig": "selective",
    "FullActivationRematConfig": "full",
}
"""Modes by the classes that have taken their place."""

_OTHER_RECOMPUTES = {
    "memory_budget": "the compiler chooses what is recomputed",
    "region": "regions are recomputed",
}
_EXCHANGES = {"allgather": "all_gather", "alltoall": "p2p"}
"""Exchanges of context parallelism; alltoall hands keys and values from neighbour to neighbour, a ring."""

_IMPLEMENTATIONS = {"fused": "fused", "foreach": "foreach", "for-loop": "loop"}

_CONVERTERS = {
    "float8": "tensorwise",
    "quantize.linear.float8": "tensorwise",
    "quantize.dense.float8": "tensorwise",
    "Float8LinearConverter": "tensorwise",
    "mx": "mxfp8",
    "quantize.linear.mx": "mxfp8",
    "MXLinearConverter": "mxfp8",
    "MXFP8LinearConverter": "mxfp8",
    "NVFP4LinearConverter": "nvfp4",
}
"""Recipes by the converters that replace products."""

_OF_EXPERTS = (
    "quantize.grouped_mm.float8",
    "quantize.moe.float8",
    "quantize.grouped_mm.mx",
    "Float8GroupedExpertsConverter",
    "MXFP8GroupedExpertsConverter",
)
_WRITTEN_RECIPES = {
    "tensorwise": "Float8LinearConverter",
    "mxfp8": "MXFP8LinearConverter",
    "nvfp4": "NVFP4LinearConverter",
}
_QUANTIZED = (
    "float8",
    "mx",
    *(name for name in (*_CONVERTERS, *_OF_EXPERTS) if name.startswith("quantize.")),
    *(f"converters.{name}" for name in (*_CONVERTERS, *_OF_EXPERTS) if name[0].isupper()),
)
"""Sections of converters."""

_KEPT = {"output", "lm_head", "router.gate", "moe.router.gate", "auto_filter_small_kn"}
"""Layers that keep 16 bits here, too, and small ones."""

_ONLY_WITH: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "training.enable_cpu_offload": (
        (False,),
        "weights, gradients and optimizer in host memory: counted on the processor",
    ),
    "training.dtype": (("float32",), "weights, gradients and moments of 2 bytes: counted with 4"),
    "optimizer.early_step_in_backward": ((False,), "steps beside the backward pass: after it"),
    "loss": (
        (None, "CrossEntropyLoss", "BaseLoss"),
        "logits exist in pieces only, which takes less memory: here they are whole",
    ),
    "parallelism.disable_loss_parallel": ((False,), "logits are gathered: here they stay split"),
    "parallelism.enable_fsdp_symm_mem": ((False,), "collectives by symmetric memory"),
    "parallelism.fsdp_symm_mem_scope": ((None,), "collectives by symmetric memory"),
    "parallelism.fsdp_defer_gradient_reduction": (
        (False,),
        "gradients are reduced once a step: here after every microbatch",
    ),
    "parallelism.pipeline_parallel_schedule_csv": (("", None), "a schedule of one's own"),
    "parallelism.enable_compiled_autograd": ((False,), "the backward pass is compiled as a whole"),
    "experimental.enable_compiled_autograd": ((False,), "the backward pass is compiled as a whole"),
    "training.deterministic": ((False,), "deterministic kernels are slower"),
    "debug.deterministic": ((False,), "deterministic kernels are slower"),
    "debug.batch_invariant": ((False,), "batch-invariant kernels are slower"),
    "debug.detect_anomaly": ((False,), "slower backward passes"),
    "model.use_flex_attn": ((False,), "attention kernel compiled for a mask"),
    "model.attn_mask_type": (("causal",), "documents do not see each other: packed_percent"),
    "fault_tolerance.enable": ((False,), "replicas that may leave"),
}
"""Settings whose value alone decides whether they change the result: values that do not, and how others do."""


def _read_degrees(one: Reading) -> Fields:
    tensor, pipeline, context, replicas = (
        one.count(*parallel(name), default=1) or 1
        for name in (
            "tensor_parallel_degree",
            "pipeline_parallel_degree",
            "context_parallel_degree",
            "data_parallel_replicate_degree",
        )
    )
    shards = one.count(
        *parallel("data_parallel_shard_degree"), "training.data_parallel_degree", default=-1
    )
    rest = tensor * pipeline * context * replicas
    product = f"tensor {tensor} x pipeline {pipeline} x context {context} x replicas {replicas}"
    if shards is None or shards < 0:
        processors = one.processors()
        if processors % rest:
            raise _contradiction(one, f"a divisor of {processors:,} processors", rest, product)
        shards = processors // rest
    processors = rest * shards
    if one.num_procs not in (None, processors):
        product = f"{product} x shards {shards}"
        raise _contradiction(one, f"{one.num_procs:,} processors", processors, product)
    ranks = replicas * shards * context
    split = shards * context > 1
    return {
        "num_procs": processors,
        "tensor_par": tensor,
        "pipeline_par": pipeline,
        "context_par": context,
        "data_par": replicas * shards,
        "zero_stage": "fsdp" if split else "0",
        "dp_shard": shards * context if split and replicas > 1 else 0,
        "optimizer_sharding": split,
        "data_par_overlap": ranks > 1,
    }


def _contradiction(one: Reading, wanted: str, found: int, product: str) -> SpecError:
    """Return the error of degrees that do not go with the processors."""
    place = one.parsed.file
    return SpecError(place, Problem("parallelism", wanted, f"{found:,} ({product})"))


def _write_degrees(one: Writing) -> Fields:
    context, data, shard = one["context_par"], one["data_par"], one["dp_shard"]
    ranks = context * data
    if ranks > 1 and not one["data_par_overlap"]:
        raise one.refuse("data_par_overlap", "true: FSDP and DDP overlap by themselves")
    if one["zero_stage"] == "fsdp" and ranks > 1:
        shards = (shard or ranks) // context
    elif one["zero_stage"] == "0" and (context == 1 or ranks == 1):
        shards = 1
    else:
        raise one.refuse("zero_stage", "fsdp, or 0 without context parallelism")
    found = {
        "tensor_parallel_degree": one["tensor_par"],
        "pipeline_parallel_degree": one["pipeline_par"],
        "context_parallel_degree": context,
        "data_parallel_replicate_degree": data // shards,
    }
    kept = {f"parallelism.{name}": value for name, value in found.items() if value != 1}
    return {"parallelism.data_parallel_shard_degree": shards, **kept}


def _read_experts(one: Reading) -> Fields:
    experts = one.count(*parallel("expert_parallel_degree"), default=1) or 1
    width = one.setting(*parallel("expert_tensor_parallel_degree"))
    tensor = one.execution["tensor_par"]
    if experts == 1 or tensor == 1 or width is None:
        split = 1 if experts > 1 and tensor > 1 else 0
    elif width.value not in (1, tensor):
        raise one.error(width, f"1, or tensor_parallel_degree={tensor}")
    else:
        split = 1 if width.value == 1 else 0
    return {"expert_par": experts, "expert_tensor_par": split}


def _write_experts(one: Writing) -> Fields:
    experts, width = one["expert_par"], one["expert_tensor_par"] or one["tensor_par"]
    if experts == 1 and width != one["tensor_par"]:
        raise one.refuse("expert_tensor_par", "0: experts are split as other layers")
    if experts > 1 and width != 1:
        raise one.refuse("expert_tensor_par", "1: experts take the ranks of tensor parallelism")
    return {} if experts == 1 else {"parallelism.expert_parallel_degree": experts}


def _read_batch(one: Reading) -> Fields:
    """Read length, microbatch and batch: of August 2026 in tokens, before in sequences."""
    tokens = any(
        name in one.parsed.settings for name in (_TOKENS, _STEP_TOKENS, _LENGTH, _PP_MICROBATCHES)
    )
    older = ("local_batch_size", "batch_size", "global_batch_size", "seq_len")
    stated = [name for key in older if (name := f"training.{key}") in one.parsed.settings]
    if tokens and stated:
        found = one.parsed.settings[stated[0]]
        raise one.error(found, "nothing, since tokens are counted", "use one version's names")
    return _read_tokens(one) if tokens else _read_sequences(one)


def _read_tokens(one: Reading) -> Fields:
    length = one.count(_LENGTH, "model.seq_len", default=2048) or 2048
    tokens = one.count(_TOKENS, default=16384) or 16384
    passes = one.count(_PP_MICROBATCHES, default=1) or 1
    passes = passes if one.execution["pipeline_par"] > 1 else 1
    if tokens % length:
        raise indivisible(one, _TOKENS, f"a multiple of max_context_length={length:,}", tokens)
    at_once = tokens * passes * one.execution["data_par"]
    step = one.count(_STEP_TOKENS, default=-1)
    step = at_once if step is None or step < 0 else step
    if step % at_once:
        product = f"{tokens:,} x {passes} x data {one.execution['data_par']}"
        raise indivisible(one, _STEP_TOKENS, f"a multiple of {at_once:,} ({product})", step)
    if step > at_once and one.execution["pipeline_par"] > 1:
        one.not_modelled(_STEP_TOKENS, _refilled(step // at_once))
    return _batch(tokens // length, step // length, length)


def _read_sequences(one: Reading) -> Fields:
    length = one.count("training.seq_len", default=2048) or 2048
    local = one.count("training.local_batch_size", "training.batch_size", default=8) or 8
    each = one.count(*parallel("pipeline_parallel_microbatch_size"), default=1) or 1
    passes = one.count(*parallel("pipeline_parallel_microbatches"))
    micro = local
    if one.execution["pipeline_par"] > 1:
        micro = local // passes if passes else each
        if micro < 1 or local % micro:
            wanted = f"a multiple of the {passes or each} of the pipeline's microbatches"
            raise indivisible(one, "training.local_batch_size", wanted, local)
    at_once = local * one.execution["data_par"]
    step = one.count("training.global_batch_size", default=-1)
    step = at_once if step is None or step < 0 else step
    if step % at_once:
        product = f"{local:,} x data {one.execution['data_par']}"
        wanted = f"a multiple of {at_once:,} ({product})"
        raise indivisible(one, "training.global_batch_size", wanted, step)
    if step > at_once and one.execution["pipeline_par"] > 1:
        one.not_modelled("training.global_batch_size", _refilled(step // at_once))
    return _batch(micro, step, length)


def _batch(micro: int, batch: int, length: int) -> Fields:
    return {"microbatch_size": micro, "batch_size": batch, "seq_length": length}


def _refilled(times: int) -> str:
    return f"the pipeline is filled and drained {times} times in a step: counted once"


def _write_batch(one: Writing) -> Fields:
    length = one["seq_length"] or (one.model.seq_size if one.model else 0)
    if not length:
        raise one.refuse("seq_length", "a stated length, since tokens are counted", "or a model")
    micro, batch, data = one["microbatch_size"], one["batch_size"], one["data_par"]
    if batch % (micro * data):
        raise one.refuse("batch_size", f"a multiple of microbatch {micro} x data {data}")
    found = {_TOKENS: micro * length, _LENGTH: length}
    passes = batch // (micro * data)
    if one["pipeline_par"] > 1:
        return {**found, _PP_MICROBATCHES: passes}
    return found if passes == 1 else {**found, _STEP_TOKENS: batch * length}


def _read_recompute(one: Reading) -> Fields:
    """Read what is recomputed: a class since 2026, before a mode and, of selective, an option."""
    made, mode = one.setting(_CHECKPOINT), one.setting(f"{_CHECKPOINT}.mode")
    usual = "op" if made is not None or _recipe(one) else "2"
    option = str(one.get(f"{_CHECKPOINT}.selective_ac_option", default=usual))
    stated = made if made is not None else mode
    kind = "selective" if stated is None else str(stated.value)
    kind = _RECOMPUTES.get(kind, kind).lower()
    every = 1
    if kind == "selective" and option != "op":
        if not option.isdecimal() or int(option) < 1:
            found = one.parsed.settings[f"{_CHECKPOINT}.selective_ac_option"]
            raise one.error(found, "op, or of how many layers one is recomputed")
        kind, every = "full", int(option)
    if kind not in ("selective", "full", "none"):
        assert stated is not None
        if kind not in _OTHER_RECOMPUTES:
            raise one.error(stated, "selective, full or none")
        one.not_modelled(stated.name, f"{_OTHER_RECOMPUTES[kind]}: taken for selective")
        kind = "selective"
    return {
        "activation_recompute": "full" if kind == "full" else "none",
        "recompute_modules": "ops" if kind == "selective" else "none",
        "recompute_every": every,
    }


def _write_recompute(one: Writing) -> Fields:
    if one["recompute_every"] != 1:
        raise one.refuse("recompute_every", "1: every layer is recomputed, or its operators are")
    whole, modules = one["activation_recompute"], one["recompute_modules"]
    if whole == "full":
        return {_CHECKPOINT: "FullAC"}
    if whole != "none":
        raise one.refuse("activation_recompute", "full, none", "flash attention stores no more")
    if modules not in ("ops", "none"):
        raise one.refuse("recompute_modules", "ops, none")
    return {_CHECKPOINT: "SelectiveAC" if modules == "ops" else None}


def _recipe(one: Reading) -> bool:
    return isinstance(one.parsed, Recipe)


def _read_compile(one: Reading) -> Fields:
    stated = one.switch("compile.enable")
    older = one.switch("training.compile")
    parts = one.get(_COMPONENTS, default=["model"] if older and not stated else ["model", "loss"])
    parts = parts if isinstance(parts, list) else [parts]
    compiled = (stated or older) and "model" in parts
    if (stated or older) and not compiled:
        one.not_modelled(_COMPONENTS, "the loss is compiled alone: taken for none")
    asked = one.setting(
        "compile.enable_async_tensor_parallel", *parallel("enable_async_tensor_parallel")
    )
    overlapped = asked is not None and asked.value is True and one.execution["tensor_par"] > 1
    if overlapped and not compiled:
        assert asked is not None
        raise one.error(asked, "false without compile.enable, since only the compiler overlaps")
    scope = "blocks_and_loss" if "loss" in parts else "blocks"
    return {
        "fusion": "compile" if compiled else "none",
        "compile_scope": scope if compiled else "step",
        "tensor_par_overlap": "ring" if overlapped else "none",
    }


def _write_compile(one: Writing) -> Fields:
    found: Fields = {}
    if one["fusion"] == "compile":
        scopes = {"blocks_and_loss": {}, "blocks": {_COMPONENTS: ["model"]}}
        if one["compile_scope"] not in scopes:
            raise one.refuse("compile_scope", "blocks_and_loss, blocks")
        found = {"compile.enable": True, **scopes[one["compile_scope"]]}
    elif one["fusion"] != "none":
        raise one.refuse("fusion", "none, compile")
    if one["tensor_par_overlap"] == "pipe":
        raise one.refuse("tensor_par_overlap", "none, ring")
    if one["tensor_par_overlap"] == "ring":
        if not found:
            raise one.refuse("tensor_par_overlap", "none without fusion: compile")
        found["compile.enable_async_tensor_parallel"] = True
    return found


def _read_sequence_parallel(one: Reading) -> Fields:
    on = one.switch("parallelism.enable_sequence_parallel", default=True)
    return {"tensor_par_comm_type": "rs_ag" if on and one.execution["tensor_par"] > 1 else "ar"}


def _write_sequence_parallel(one: Writing) -> Fields:
    kind = one["tensor_par_comm_type"]
    if one["tensor_par"] == 1 or kind == "rs_ag":
        return {}
    if kind != "ar":
        raise one.refuse("tensor_par_comm_type", "rs_ag, ar")
    return {"parallelism.enable_sequence_parallel": False}


def _read_context(one: Reading) -> Fields:
    method = one.setting(*parallel("context_parallel_rotate_method"))
    balancer = one.setting("parallelism.context_parallel_load_balancer")
    if one.execution["context_par"] == 1:
        return {"cp_comm": "p2p", "cp_balance": "zigzag"}
    exchange = "allgather" if method is None else method.value
    if exchange not in _EXCHANGES:
        assert method is not None
        raise one.error(method, f"one of {', '.join(_EXCHANGES)}")
    balance = "headtail" if balancer is None else balancer.value
    if balance == "ptrr":
        one.not_modelled("parallelism.context_parallel_load_balancer", "taken for headtail")
    elif balance not in ("headtail", None):
        assert balancer is not None
        raise one.error(balancer, "headtail, ptrr or None")
    return {
        "cp_comm": _EXCHANGES[exchange],
        "cp_balance": "contiguous" if balance is None else "zigzag",
    }


def _write_context(one: Writing) -> Fields:
    if one["context_par"] == 1:
        return {}
    if one["cp_comm"] != "all_gather":
        raise one.refuse("cp_comm", "all_gather, the one exchange since 2026")
    if one["cp_balance"] == "zigzag":
        return {}
    if one["cp_balance"] != "contiguous":
        raise one.refuse("cp_balance", "zigzag, contiguous")
    return {"parallelism.context_parallel_load_balancer": None}


def _read_reshard(one: Reading) -> Fields:
    found = one.setting(*parallel("fsdp_reshard_after_forward"))
    policy = "default" if found is None else found.value
    if policy not in ("default", "always", "never"):
        assert found is not None
        raise one.error(found, "default, always or never")
    usual = one.execution["pipeline_par"] == 1 or one.execution["zero_stage"] != "fsdp"
    kept = policy == "never" and one.execution["zero_stage"] == "fsdp"
    return {"reshard_after_forward": usual if policy == "default" else not kept}


def _write_reshard(one: Writing) -> Fields:
    if one["zero_stage"] != "fsdp" or one["reshard_after_forward"] == (one["pipeline_par"] == 1):
        return {}
    policy = "always" if one["reshard_after_forward"] else "never"
    return {"parallelism.fsdp_reshard_after_forward": policy}


def _read_optimizer(one: Reading) -> Fields:
    """Read the optimizer, which is named since 2024, or made by a class or a function since 2026."""
    made, stated = one.setting("optimizer"), one.setting("optimizer.name")
    for found in (made, stated):
        name = "adam" if found is None else str(found.value).lower()
        if found is not None and not any(word in name for word in ("adam", "optimizerscontainer")):
            one.not_modelled(found.name, "taken for AdamW")
    older = one.setting("optimizer.fused")
    way = one.setting("optimizer.implementation")
    if way is not None and way.value not in _IMPLEMENTATIONS:
        raise one.error(way, f"one of {', '.join(_IMPLEMENTATIONS)}")
    if way is not None:
        return {"optimizer": "adam", "optimizer_impl": _IMPLEMENTATIONS[way.value]}
    loose = older is not None and older.value is False
    return {"optimizer": "adam", "optimizer_impl": "foreach" if loose else "fused"}


def _write_optimizer(one: Writing) -> Fields:
    if one["optimizer"] != "adam":
        raise one.refuse("optimizer", "adam")
    ways = {ours: theirs for theirs, ours in _IMPLEMENTATIONS.items()}
    way = ways[one["optimizer_impl"]]
    return {} if way == "fused" else {"optimizer.implementation": way}


def _read_clipping(one: Reading) -> Fields:
    found = one.setting("training.max_norm")
    return {"grad_clip": found is None or bool(found.value)}


def _write_clipping(one: Writing) -> Fields:
    if not one["grad_clip"]:
        raise one.refuse("grad_clip", "true: gradients are clipped in every step")
    return {}


def _read_launches(one: Reading) -> Fields:
    """Read whether steps are graphs: as they are since August 2026, unless asked otherwise."""
    eager = one.switch("training.disable_cuda_graphs")
    graphs = not eager and any(name in one.parsed.settings for name in (_TOKENS, _LENGTH))
    return {"launch_mode": "graph" if graphs else "auto"}


def _write_launches(one: Writing) -> Fields:
    mode, compiled = one["launch_mode"], one["fusion"] == "compile"
    if mode == "graph":
        return {}
    if mode not in ("auto", "compile" if compiled else "eager"):
        raise one.refuse("launch_mode", "auto, graph")
    return {"training.disable_cuda_graphs": True}


def _read_recipe(one: Reading) -> Fields:
    """Read products in fewer bits: converters by name and a section of each until 2025, since then by class."""
    listed = one.get("model.converters", default=[])
    listed = listed.split(",") if isinstance(listed, str) else listed or []
    asked = {str(name).strip() for name in listed} - {""}
    known = {*_CONVERTERS, *_OF_EXPERTS}
    if strangers := sorted(asked - known):
        one.not_modelled("model.converters", f"{', '.join(strangers)} is not known")
    asked |= {name for name in known if one.setting(f"converters.{name}") is not None}
    found = [recipe for name, recipe in _CONVERTERS.items() if name in asked]
    if one.get("training.enable_float8_linear", "float8.enable_float8_linear"):
        found.append("tensorwise")
    if not found and not asked.isdisjoint(_OF_EXPERTS):
        for name in ("model.converters", *(f"converters.{each}" for each in _OF_EXPERTS)):
            one.not_modelled(name, "products of experts alone in 8 bits: counted in 16")
    gather, scaled, names = (
        [one.setting(f"{section}.{option}") for section in _QUANTIZED]
        for option in ("enable_fsdp_float8_all_gather", "recipe_name", "filter_fqns")
    )
    one.setting("training.enable_fsdp_float8_all_gather")
    if not found:
        return {"fp8_recipe": "none", "fp8_param_gather": False}
    recipe = found[0]
    for setting in scaled:
        if setting is not None and str(setting.value).startswith("rowwise"):
            one.not_modelled(setting.name, "factors of rows: taken for one of the tensor")
    for setting in names:
        if setting is not None and not _usual_exceptions(setting.value):
            one.not_modelled(setting.name, "more layers than the head keep 16 bits: here none does")
    wide = any(setting is not None and setting.value is True for setting in gather)
    return {"fp8_recipe": recipe, "fp8_param_gather": wide and recipe == "tensorwise"}


def _usual_exceptions(names: Any) -> bool:
    """Whether only layers are left out that keep their type here, too: head and router."""
    listed = names.split(",") if isinstance(names, str) else names
    return isinstance(listed, list) and {*map(str, listed)} <= _KEPT


def _write_recipe(one: Writing) -> Fields:
    recipe = one["fp8_recipe"]
    if one["fp8_param_gather"]:
        raise one.refuse("fp8_param_gather", "false: weights are gathered in 16 bits since 2026")
    if recipe == "none":
        return {}
    made = _WRITTEN_RECIPES.get(recipe)
    if made is None:
        raise one.refuse("fp8_recipe", f"none, {', '.join(_WRITTEN_RECIPES)}")
    chosen = {f"converters.{made}.recipe_name": "rowwise"} if recipe == "tensorwise" else {}
    return {f"converters.{made}": True, **chosen}


def _read_model(one: Reading) -> Fields:
    one.setting("model.name")
    one.setting("model.flavor")
    name = model_of(one.parsed.settings)
    return {"name": name} if name else {}


def _write_model(one: Writing) -> Fields:
    names = flavor_of(one.model) if one.model is not None else None
    return {} if names is None else {"model.name": names[0], "model.flavor": names[1]}


def _read_campaign(one: Reading) -> Fields:
    found: Fields = {}
    if steps := one.count("training.steps"):
        found["tokens"] = steps * one.execution["batch_size"] * one.execution["seq_length"]
    saves = one.switch("checkpoint.enable") or one.switch("checkpoint.enable_checkpoint")
    if saves and (interval := one.count("checkpoint.interval", default=500)):
        found["save_interval"] = interval
    return found


def _write_campaign(one: Writing) -> Fields:
    found: Fields = {}
    length = one["seq_length"] or (one.model.seq_size if one.model else 0)
    if tokens := one.campaign.get("tokens"):
        found["training.steps"] = -(-int(tokens) // (one["batch_size"] * length))
    if interval := one.campaign.get("save_interval"):
        found["checkpoint.interval"] = int(interval)
    return found


def _read_values(one: Reading) -> Fields:
    """Say of settings whose value alone decides whether they are modelled that they are not."""
    for name, (harmless, effect) in _ONLY_WITH.items():
        found = one.setting(name)
        if found is not None and found.value not in harmless:
            one.not_modelled(name, effect)
    return {}


_ROWS = (
    Row(
        (
            *("num_procs", "tensor_par", "pipeline_par", "context_par", "data_par"),
            *("zero_stage", "dp_shard", "optimizer_sharding", "data_par_overlap"),
        ),
        tuple(
            f"parallelism.{name}"
            for name in (
                "data_parallel_shard_degree",
                "data_parallel_replicate_degree",
                "tensor_parallel_degree",
                "pipeline_parallel_degree",
                "context_parallel_degree",
            )
        ),
        _read_degrees,
        _write_degrees,
    ),
    Row(("name",), ("model.name", "model.flavor"), _read_model, _write_model, "model"),
    Row(
        ("expert_par", "expert_tensor_par"),
        ("parallelism.expert_parallel_degree",),
        _read_experts,
        _write_experts,
    ),
    named(
        "model.moe_comm_backend",
        "moe_dispatcher",
        {"standard": "alltoall", "deepep": "deepep", "hybridep": "hybridep"},
        "standard",
    ),
    Row(
        ("microbatch_size", "batch_size", "seq_length"),
        (_TOKENS, _LENGTH, _STEP_TOKENS, _PP_MICROBATCHES),
        _read_batch,
        _write_batch,
    ),
    PIPELINE,
    Row(
        ("tensor_par_comm_type",),
        ("parallelism.enable_sequence_parallel",),
        _read_sequence_parallel,
        _write_sequence_parallel,
    ),
    Row(
        ("cp_comm", "cp_balance"),
        ("parallelism.context_parallel_load_balancer",),
        _read_context,
        _write_context,
    ),
    Row(
        ("reshard_after_forward",),
        ("parallelism.fsdp_reshard_after_forward",),
        _read_reshard,
        _write_reshard,
    ),
    named(
        "training.mixed_precision_param",
        "datatype",
        {"bfloat16": "bfloat16", "float32": "float32"},
        "bfloat16",
    ),
    named(
        "training.mixed_precision_reduce",
        "grad_comm_dtype",
        {"float32": "float32", "bfloat16": "bfloat16"},
        "float32",
    ),
    Row(
        ("fp8_recipe", "fp8_param_gather"),
        tuple(f"converters.{name}" for name in _WRITTEN_RECIPES.values()),
        _read_recipe,
        _write_recipe,
    ),
    Row(
        ("activation_recompute", "recompute_modules", "recompute_every"),
        (_CHECKPOINT,),
        _read_recompute,
        _write_recompute,
    ),
    Row(
        ("fusion", "compile_scope", "tensor_par_overlap"),
        ("compile.enable", _COMPONENTS, "compile.enable_async_tensor_parallel"),
        _read_compile,
        _write_compile,
    ),
    Row(
        ("launch_mode",),
        ("training.disable_cuda_graphs",),
        _read_launches,
        _write_launches,
    ),
    Row(
        ("optimizer", "optimizer_impl"),
        ("optimizer.implementation",),
        _read_optimizer,
        _write_optimizer,
    ),
    Row(("grad_clip",), ("training.max_norm",), _read_clipping, _write_clipping),
    Row(
        ("tokens", "save_interval"),
        ("training.steps", "checkpoint.interval"),
        _read_campaign,
        _write_campaign,
        "campaign",
    ),
    Row((), tuple(_ONLY_WITH), _read_values, lambda one: {}, "campaign"),
)

TORCHTITAN = Dialect(
    name="torchtitan",
    title="torchtitan",
    version="its main branch of August 2026",
    preset="torchtitan",
    rows=_ROWS,
    no_effect=(
        *("job.*", "profil*", "metrics*", "lr_scheduler*", "validat*", "comm.*", "dump_folder"),
        *("dataloader*", "dataset.*", "tokenizer*", "hf_assets_path", "checkpoint*", "debug.*"),
        *("training.dataset*", "training.seed", "training.gc_*", "training.warmup_steps"),
        *("training.data_parallel_type", "optimizer.lr", "optimizer.beta*", "optimizer.eps"),
        *("optimizer.weight_decay", "optimizer.param_groups*", "optimizer.optimizers*"),
        *("model.tokenizer_path", "model.hf_assets_path", "model.print_after_conversion"),
        *("model.attn_backend", "model.norm_type", "model_converters", "hf_transformers.*"),
        *("memory_estimation.*", "fault_tolerance.*", "experimental.custom_*", "comm", "job"),
        *("activation_checkpoint.per_op_*", "activation_checkpoint.preserve_*"),
        *("activation_checkpoint.determinism_check", "activation_checkpoint.debug"),
        *("activation_checkpoint.early_stop", "compile.backend", "loss.loss_fn*"),
        *(f"{section}.precompute_float8_dynamic_scale_for_fsdp" for section in _QUANTIZED),
        *(f"{section}.{name}" for section in _QUANTIZED for name in ("fqns", "model_compile_*")),
        *(f"{section}.{name}" for section in _QUANTIZED for name in ("moe_fqns*", "emulate")),
    ),
    not_modelled={
        "model.non_blocking_capacity_factor": "buffers of experts of a fixed size",
        "optim*.moment_dtype": "moments of 2 bytes: counted with 4",
        "training.skip_optimizer_step": "no step of the optimizer",
        "training.clear_cache_between_steps": "memory is given back after every step",
        "override.*": "layers of one's own",
        "transforms*": "layers that are replaced",
        "loss.*": "logits exist in pieces only",
        "dist_moe*": "kernels of experts that are not modelled",
        "parallelism.spmd_backend": "another implementation of the same collectives",
    },
    parse=parse,
    render=render,
    recognises=recognises,
    suffix=".py",
)
"""Configurations of torchtitan."""
