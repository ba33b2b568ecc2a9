"""Names in torchtitan: converters, recomputation modes, and settings that no row reads."""

from calculon.launch.rows import IgnoredValues
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
"""Recomputation modes by the configuration classes that replaced them."""

OTHER_RECOMPUTES = {
    "memory_budget": "the compiler chooses the recomputed operators",
    "region": "recomputation of regions",
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
"""Precision recipes by the converters that replace linear layers."""

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
"""Converter options without effect."""

KEPT = {"output", "lm_head", "router.gate", "moe.router.gate", "auto_filter_small_kn"}
"""Layers that stay in 16 bits in the model as well, and small layers."""

IGNORED_VALUES: IgnoredValues = {
    "training.enable_cpu_offload": (
        (False,),
        "weights, gradients and optimizer state in host memory: counted as device memory",
    ),
    "training.dtype": (("float32",), "16-bit weights, gradients and moments: counted as 32-bit"),
    "optimizer.early_step_in_backward": (
        (False,),
        "optimizer steps during the backward pass: modeled after it",
    ),
    "loss": (
        (None, "CrossEntropyLoss", "BaseLoss"),
        "chunked logits, which need less memory: complete logits are modeled",
    ),
    "parallelism.disable_loss_parallel": ((False,), "gathered logits: sharded logits are modeled"),
    "parallelism.enable_fsdp_symm_mem": ((False,), "collectives in symmetric memory"),
    "parallelism.fsdp_symm_mem_scope": ((None,), "collectives in symmetric memory"),
    "parallelism.fsdp_defer_gradient_reduction": (
        (False,),
        "gradient reduction once per step: reduction after every microbatch is modeled",
    ),
    "parallelism.pipeline_parallel_schedule_csv": (("", None), "a custom pipeline schedule"),
    "parallelism.enable_compiled_autograd": ((False,), "a compiled backward pass"),
    "experimental.enable_compiled_autograd": ((False,), "a compiled backward pass"),
    "training.deterministic": ((False,), "deterministic kernels are slower"),
    "debug.deterministic": ((False,), "deterministic kernels are slower"),
    "debug.batch_invariant": ((False,), "batch-invariant kernels are slower"),
    "debug.detect_anomaly": ((False,), "slower backward passes"),
    "model.use_flex_attn": ((False,), "attention kernel compiled for a mask"),
    "model.attn_mask_type": (("causal",), "attention limited to documents: see packed_percent"),
    "fault_tolerance.enable": ((False,), "replicas that may drop out"),
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
    "fixed-size buffers of experts": "model.non_blocking_capacity_factor",
    "16-bit moments: counted as 32-bit": "optim*.moment_dtype",
    "a skipped optimizer step": "training.skip_optimizer_step",
    "memory that is freed after every step": "training.clear_cache_between_steps",
    "custom layers": "override.*",
    "replaced layers": "transforms*",
    "chunked logits": "loss.*",
    "expert kernels that are not modeled": "dist_moe*",
    "a different implementation of the same collectives": "parallelism.spmd_backend",
}
"""Effects of settings that are not modeled, with patterns of the settings."""
