"""Words of torchtitan: converters, modes, and settings that no row reads."""

from calculon.launch.rows import Harmless
from calculon.launch.texts.name_patterns import under

RECOMPUTES = {
    "None": "none",
    "SelectiveAC": "selective",
    "FullAC": "full",
    "MemoryBudgetAC": "memory_budget",
    "RegionAC": "region",
    "SelectiveActivationRematConfig": "selective",
    "FullActivationRematConfig": "full",
}
"""Modes by the classes that have taken their place."""

OTHER_RECOMPUTES = {
    "memory_budget": "the compiler chooses what is recomputed",
    "region": "regions are recomputed",
}
CONVERTERS = {
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

OF_EXPERTS = (
    "quantize.grouped_mm.float8",
    "quantize.moe.float8",
    "quantize.grouped_mm.mx",
    "Float8GroupedExpertsConverter",
    "MXFP8GroupedExpertsConverter",
)
WRITTEN_RECIPES = {
    "tensorwise": "Float8LinearConverter",
    "mxfp8": "MXFP8LinearConverter",
    "nvfp4": "NVFP4LinearConverter",
}
QUANTIZED = (
    "float8",
    "mx",
    *(name for name in (*CONVERTERS, *OF_EXPERTS) if name.startswith("quantize.")),
    *(f"converters.{name}" for name in (*CONVERTERS, *OF_EXPERTS) if name[0].isupper()),
)
"""Sections of converters."""

_OF_CONVERTERS = "precompute_float8_dynamic_scale_for_fsdp fqns model_compile_* moe_fqns* emulate"
"""Options of converters without effect."""

KEPT = {"output", "lm_head", "router.gate", "moe.router.gate", "auto_filter_small_kn"}
"""Layers that keep 16 bits here, too, and small ones."""

ONLY_WITH: Harmless = {
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
NO_EFFECT = f"""
    job.* profil* metrics* lr_scheduler* validat* comm.* dump_folder dataloader* dataset.* tokenizer*
    hf_assets_path checkpoint* debug.* training.dataset* training.seed training.gc_* training.warmup_steps
    training.data_parallel_type optimizer.lr optimizer.beta* optimizer.eps optimizer.weight_decay
    optimizer.param_groups* optimizer.optimizers* model.tokenizer_path model.hf_assets_path
    model.print_after_conversion model.attn_backend model.norm_type model_converters hf_transformers.*
    memory_estimation.* fault_tolerance.* experimental.custom_* comm job activation_checkpoint.per_op_*
    activation_checkpoint.preserve_* activation_checkpoint.determinism_check activation_checkpoint.debug
    activation_checkpoint.early_stop compile.backend loss.loss_fn*
    {" ".join(under(section, _OF_CONVERTERS) for section in QUANTIZED)}
"""
"""Patterns of settings without effect on a step."""

NOT_MODELLED = {
    "buffers of experts of a fixed size": "model.non_blocking_capacity_factor",
    "moments of 2 bytes: counted with 4": "optim*.moment_dtype",
    "no step of the optimizer": "training.skip_optimizer_step",
    "memory is given back after every step": "training.clear_cache_between_steps",
    "layers of one's own": "override.*",
    "layers that are replaced": "transforms*",
    "logits exist in pieces only": "loss.*",
    "kernels of experts that are not modelled": "dist_moe*",
    "another implementation of the same collectives": "parallelism.spmd_backend",
}
"""What settings change of the result, but not here, and patterns of them."""
