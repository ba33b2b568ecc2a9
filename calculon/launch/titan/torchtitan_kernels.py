"""torchtitan: compilation, activation recomputation, low-precision products, and the optimizer."""

from typing import Any

from calculon.launch.dialect import Fields, Reading, Writing
from calculon.launch.rows import first_names, row
from calculon.launch.texts.name_patterns import under
from calculon.launch.titan.torchtitan_files import CHECKPOINT, mixes, model_of, parallel
from calculon.launch.titan.torchtitan_words import (
    CONVERTERS,
    KEPT,
    OF_EXPERTS,
    OTHER_RECOMPUTES,
    QUANTIZED,
    RECOMPUTES,
    WRITTEN_RECIPES,
)

TOKENS = "training.num_tokens_per_microbatch_per_dp_rank"
LENGTH = "training.max_context_length"
_COMPONENTS = "compile.components"
_IMPLEMENTATIONS = {"fused": "fused", "foreach": "foreach", "for-loop": "loop"}


def _read_recompute(reading: Reading) -> Fields:
    """Read activation recomputation: a class since 2026, before a mode with an option for selective recomputation."""
    made, mode = reading.setting(CHECKPOINT), reading.setting(f"{CHECKPOINT}.mode")
    usual = "2" if made is None else "op"
    option = str(reading.get(f"{CHECKPOINT}.selective_ac_option", default=usual))
    stated = made if made is not None else mode
    kind = "selective" if stated is None else str(stated.value)
    kind = RECOMPUTES.get(kind, kind).lower()
    every = 1
    if kind == "selective" and option != "op":
        if not option.isdecimal() or int(option) < 1:
            found = reading.parsed.settings[f"{CHECKPOINT}.selective_ac_option"]
            raise reading.error(found, "op, or a number N to recompute every Nth layer")
        # Selective recomputation "every Nth layer" is full recomputation of these layers.
        kind, every = "full", int(option)
    if kind not in ("selective", "full", "none"):
        assert stated is not None
        if kind not in OTHER_RECOMPUTES:
            raise reading.error(stated, "selective, full or none")
        reading.not_modelled(stated.name, f"{OTHER_RECOMPUTES[kind]}: treated as selective")
        kind = "selective"
    if kind == "selective" and mixes(model_of(reading.parsed.settings)):
        effect = "the stored results of experts are not known: no recomputation is modeled"
        for name in (CHECKPOINT, f"{CHECKPOINT}.mode"):
            reading.not_modelled(name, effect)
        kind = "none"
    return {
        "activation_recompute": "full" if kind == "full" else "none",
        "recompute_modules": "ops" if kind == "selective" else "none",
        "recompute_every": every,
    }


def _write_recompute(writing: Writing) -> Fields:
    if writing["recompute_every"] != 1:
        raise writing.refuse("recompute_every", "1: recomputation applies to every layer")
    recompute, modules = writing["activation_recompute"], writing["recompute_modules"]
    if recompute == "full":
        return {CHECKPOINT: "FullAC"}
    if recompute != "none":
        raise writing.refuse("activation_recompute", "full, none", "flash attention stores no more")
    if modules not in ("ops", "none"):
        raise writing.refuse("recompute_modules", "ops, none")
    return {CHECKPOINT: "SelectiveAC" if modules == "ops" else None}


def _read_compile(reading: Reading) -> Fields:
    stated = reading.switch("compile.enable")
    older = reading.switch("training.compile")
    parts = reading.get(
        _COMPONENTS, default=["model"] if older and not stated else ["model", "loss"]
    )
    parts = parts if isinstance(parts, list) else [parts]
    compiled = (stated or older) and "model" in parts
    if (stated or older) and not compiled:
        reading.not_modelled(_COMPONENTS, "only the loss is compiled: treated as no compilation")
    asked = reading.stated(
        *("compile.enable_async_tensor_parallel", *parallel("enable_async_tensor_parallel")),
        default=False,
    )
    overlapped = asked.value is True and reading.execution["tensor_par"] > 1
    if overlapped and not compiled:
        raise reading.error(
            asked, "false without compile.enable, as the compiler makes the overlap"
        )
    scope = "blocks_and_loss" if "loss" in parts else "blocks"
    return {
        "fusion": "compile" if compiled else "none",
        "compile_scope": scope if compiled else "step",
        "tensor_par_overlap": "ring" if overlapped else "none",
    }


def _write_compile(writing: Writing) -> Fields:
    result: Fields = {}
    if writing["fusion"] == "compile":
        scopes = {"blocks_and_loss": {}, "blocks": {_COMPONENTS: ["model"]}}
        if writing["compile_scope"] not in scopes:
            raise writing.refuse("compile_scope", "blocks_and_loss, blocks")
        result = {"compile.enable": True, **scopes[writing["compile_scope"]]}
    elif writing["fusion"] != "none":
        raise writing.refuse("fusion", "none, compile")
    if writing["tensor_par_overlap"] == "pipe":
        raise writing.refuse("tensor_par_overlap", "none, ring")
    if writing["tensor_par_overlap"] == "ring":
        if not result:
            raise writing.refuse("tensor_par_overlap", "none without fusion: compile")
        result["compile.enable_async_tensor_parallel"] = True
    return result


def _read_optimizer(reading: Reading) -> Fields:
    """Read the optimizer: named since 2024, created by a class or a function since 2026."""
    made, stated = reading.setting("optimizer"), reading.setting("optimizer.name")
    for found in (made, stated):
        name = "adam" if found is None else str(found.value).lower()
        if found is not None and not any(word in name for word in ("adam", "optimizerscontainer")):
            reading.not_modelled(found.name, "treated as AdamW")
    older = reading.setting("optimizer.fused")
    implementation = reading.setting("optimizer.implementation")
    if implementation is not None and str(implementation.value) not in _IMPLEMENTATIONS:
        raise reading.error(implementation, f"one of {', '.join(_IMPLEMENTATIONS)}")
    if implementation is not None:
        return {"optimizer": "adam", "optimizer_impl": _IMPLEMENTATIONS[str(implementation.value)]}
    loose = older is not None and older.value is False
    return {"optimizer": "adam", "optimizer_impl": "foreach" if loose else "fused"}


def _write_optimizer(writing: Writing) -> Fields:
    if writing["optimizer"] != "adam":
        raise writing.refuse("optimizer", "adam")
    implementation = first_names(_IMPLEMENTATIONS)[writing["optimizer_impl"]]
    return {} if implementation == "fused" else {"optimizer.implementation": implementation}


def _read_launches(reading: Reading) -> Fields:
    """Read CUDA graphs of steps, the default since August 2026."""
    eager = reading.switch("training.disable_cuda_graphs")
    # Files that count tokens are of August 2026 or later, when CUDA graphs became the default.
    graphs = not eager and any(name in reading.parsed.settings for name in (TOKENS, LENGTH))
    return {"launch_mode": "graph" if graphs else "auto"}


def _write_launches(writing: Writing) -> Fields:
    mode, compiled = writing["launch_mode"], writing["fusion"] == "compile"
    if mode == "graph":
        return {}
    if mode not in ("auto", "compile" if compiled else "eager"):
        raise writing.refuse("launch_mode", "auto, graph")
    return {"training.disable_cuda_graphs": True}


def _read_recipe(reading: Reading) -> Fields:
    """Read low-precision products: converters by name with a section each until 2025, by class since then."""
    listed = reading.get("model.converters", default=[])
    listed = listed.split(",") if isinstance(listed, str) else listed or []
    listed = listed if isinstance(listed, list) else [listed]
    asked = {str(name).strip() for name in listed} - {""}
    known = {*CONVERTERS, *OF_EXPERTS}
    if strangers := sorted(asked - known):
        reading.not_modelled("model.converters", f"{', '.join(strangers)} is unknown")
    asked |= {name for name in known if reading.setting(f"converters.{name}") is not None}
    found = [recipe for name, recipe in CONVERTERS.items() if name in asked]
    if reading.get("training.enable_float8_linear", "float8.enable_float8_linear"):
        found.append("tensorwise")
    if not found and not asked.isdisjoint(OF_EXPERTS):
        for name in ("model.converters", *(f"converters.{each}" for each in OF_EXPERTS)):
            reading.not_modelled(name, "8-bit products of experts only: modeled in 16 bits")
    gather, scaled, names = (
        [reading.setting(f"{section}.{option}") for section in QUANTIZED]
        for option in ("enable_fsdp_float8_all_gather", "recipe_name", "filter_fqns")
    )
    reading.setting("training.enable_fsdp_float8_all_gather")
    if not found:
        return {"fp8_recipe": "none", "fp8_param_gather": False}
    recipe = found[0]
    for setting in scaled:
        if setting is not None and str(setting.value).startswith("rowwise"):
            reading.not_modelled(setting.name, "row-wise scales: treated as per-tensor scales")
    for setting in names:
        if setting is not None and not _usual_exceptions(setting.value):
            reading.not_modelled(
                setting.name, "more 16-bit layers than the head: none of them is modeled"
            )
    wide = any(setting is not None and setting.value is True for setting in gather)
    return {"fp8_recipe": recipe, "fp8_param_gather": wide and recipe == "tensorwise"}


def _usual_exceptions(names: Any) -> bool:
    """Return true if the excluded layers, head and router, are excluded in the model as well."""
    listed = names.split(",") if isinstance(names, str) else names
    return isinstance(listed, list) and {*map(str, listed)} <= KEPT


def _write_recipe(writing: Writing) -> Fields:
    recipe = writing["fp8_recipe"]
    if writing["fp8_param_gather"]:
        raise writing.refuse(
            "fp8_param_gather", "false: torchtitan gathers weights in 16 bits since 2026"
        )
    if recipe == "none":
        return {}
    made = WRITTEN_RECIPES.get(recipe)
    if made is None:
        raise writing.refuse("fp8_recipe", f"none, {', '.join(WRITTEN_RECIPES)}")
    chosen = {f"converters.{made}.recipe_name": "rowwise"} if recipe == "tensorwise" else {}
    return {f"converters.{made}": True, **chosen}


KERNELS = (
    row(
        "fp8_recipe fp8_param_gather",
        under("converters", " ".join(WRITTEN_RECIPES.values())),
        _read_recipe,
        _write_recipe,
    ),
    row(
        "activation_recompute recompute_modules recompute_every",
        CHECKPOINT,
        _read_recompute,
        _write_recompute,
    ),
    row(
        "fusion compile_scope tensor_par_overlap",
        f"compile.enable {_COMPONENTS} compile.enable_async_tensor_parallel",
        _read_compile,
        _write_compile,
    ),
    row("launch_mode", "training.disable_cuda_graphs", _read_launches, _write_launches),
    row(
        "optimizer optimizer_impl",
        "optimizer.implementation",
        _read_optimizer,
        _write_optimizer,
    ),
)
"""Rows of precision, recomputation, compilation, kernel launches and the optimizer."""
