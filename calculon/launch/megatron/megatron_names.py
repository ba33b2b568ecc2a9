"""Flags of Megatron-LM under the names of Megatron-Bridge and NeMo, which start the same code from configurations.

A flag that is not listed is a field of the model in both, with underscores: ``--num-query-groups`` is
``model.num_query_groups``. Sources: NVIDIA-NeMo/Megatron-Bridge, *Megatron-LM to Megatron Bridge Guide*, its
``recipes/common.py``, ``training/mixed_precision.py`` and ``training/comm_overlap.py``; NVIDIA/NeMo,
``examples/nlp/language_modeling/conf/megatron_gpt_config.yaml``.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from calculon.launch.dialect import Reading
from calculon.launch.renaming import Name, Spelling, choice, opposite, when

_FLAG_TYPES = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "uint8": "fp8",
}
"""Types of torch, as flags name them."""


def _fields(*names: str, default: Any = None, absent: Any = None) -> Spelling:
    """Return the spelling of a setting that has the same values everywhere."""
    return Spelling(tuple(map(Name, names)), default, absent)


def _on(*names: str) -> Spelling:
    """Return the spelling of a switch that is on where nothing is said."""
    return _fields(*names, default=True, absent=False)


def _typed(name: str) -> Spelling:
    return Spelling((choice(name, _FLAG_TYPES),))


_STORED = {"bf16": "bfloat16", "fp16": "float16"}


def _recipe(name: str) -> dict[str, Any]:
    """Return what the precision of a name says, by flag."""
    stored, _, narrow = name.removesuffix("_mixed").partition("_with_")
    kind = next((flags for word, flags in _NARROW.items() if word in narrow), {})
    if name.startswith("nanov2"):
        kind = {**kind, "--fp8-recipe": "blockwise"}
    half = "fp16" if "fp16" in stored else "bf16"
    reduced = {"--grad-reduce-in-bf16": True} if half == "fp16" else {}
    return {f"--{half}": True, **reduced, **kind}


_HYBRID = {"--fp8-format": "hybrid", "--fp8-param-gather": True}
_NARROW: Mapping[str, Mapping[str, Any]] = {
    "fp8_delayed_scaling": {**_HYBRID, "--fp8-recipe": "delayed"},
    "fp8_current_scaling": {**_HYBRID, "--fp8-recipe": "tensorwise"},
    "fp8_subchannel_scaling": {"--fp8-format": "hybrid", "--fp8-recipe": "blockwise"},
    "mxfp8": {"--fp8-format": "e4m3", "--fp8-param-gather": True, "--fp8-recipe": "mxfp8"},
    "nvfp4": {"--fp4-format": "e2m1", "--fp4-recipe": "nvfp4"},
}
"""Precisions of Megatron-Bridge with narrow products (``training/mixed_precision.py``)."""

PRECISION = "mixed_precision"


def _by_recipe(flag: str) -> Name:
    """Return the name of a precision as a source of one of its flags."""

    def here(value: Any, _: Reading) -> Any:
        return _recipe(value.replace("-", "_")).get(flag) if isinstance(value, str) else None

    return Name(PRECISION, here)


def _precision(flag: str, *names: str, default: Any = None, absent: Any = None) -> Spelling:
    """Return the spelling of a flag that a precision may say, too."""
    own = tuple(Name(name) for name in names)
    return Spelling((*own[:1], _by_recipe(flag), *own[1:]), default, absent)


def _listed_layout(value: Any, _: Reading) -> Any:
    """Return a layout of stages in letters, also where it is a list of the parts of each."""
    if not isinstance(value, list) or not all(isinstance(one, list) for one in value):
        return value
    letters = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
    return "|".join("".join(letters.get(str(part), "?") for part in stage) for stage in value)


def _last(value: Any, _: Reading) -> Any:
    """Return the last name of an attribute: ``AttnBackend.flash``."""
    return str(value).rpartition(".")[2]


def _grouped(value: Any, one: Reading) -> Any:
    heads = one.get("model.num_attention_heads")
    return True if value not in (None, heads) else None


_SILU = ("silu", "swiglu", "fast-swiglu", "F.silu", "torch.nn.functional.silu")
_RELU2 = ("squared_relu", "squared-relu")


def _is_squared(value: Any, _: Reading) -> Any:
    return True if str(value).rpartition(".")[2] in _RELU2 else None


GROUPED = Name("model.num_query_groups", _grouped, lambda _: None)

BRIDGE: Mapping[str, Spelling] = {
    "--num-virtual-stages-per-pipeline-rank": _fields("model.virtual_pipeline_model_parallel_size"),
    "--num-layers-per-virtual-pipeline-stage": Spelling(()),
    "--model-parallel-size": Spelling(()),
    "--decoder-first-pipeline-num-layers": _fields("model.num_layers_in_first_pipeline_stage"),
    "--decoder-last-pipeline-num-layers": _fields("model.num_layers_in_last_pipeline_stage"),
    "--pipeline-model-parallel-layout": Spelling(
        (Name("model.pipeline_model_parallel_layout", _listed_layout),)
    ),
    "--micro-batch-size": _fields("train.micro_batch_size"),
    "--global-batch-size": _fields("train.global_batch_size"),
    "--rampup-batch-size": _fields("train.rampup_batch_size"),
    "--step-batch-size-schedule": Spelling(()),
    "--batch-size": Spelling(()),
    "--seq-length": _fields(
        *("model.seq_length", "dataset.seq_length", "dataset.sequence_length", "data.seq_length")
    ),
    "--encoder-seq-length": Spelling(()),
    "--tp-comm-overlap": _fields("comm_overlap.tp_comm_overlap"),
    "--tp-comm-overlap-cfg": _fields("comm_overlap.tp_comm_overlap_cfg"),
    "--no-async-tensor-model-parallel-allreduce": Spelling(()),
    "--no-overlap-p2p-communication": Spelling((opposite("comm_overlap.overlap_p2p_comm"),)),
    "--overlap-grad-reduce": _on("ddp.overlap_grad_reduce", "comm_overlap.overlap_grad_reduce"),
    "--overlap-param-gather": _on("ddp.overlap_param_gather", "comm_overlap.overlap_param_gather"),
    "--overlap-param-gather-with-optimizer-step": _fields(
        "comm_overlap.overlap_param_gather_with_optimizer_step",
        "optimizer.overlap_param_gather_with_optimizer_step",
    ),
    "--use-distributed-optimizer": _on(
        "ddp.use_distributed_optimizer", "optimizer.use_distributed_optimizer"
    ),
    "--num-distributed-optimizer-instances": _fields("ddp.num_distributed_optimizer_instances"),
    "--use-megatron-fsdp": _fields("ddp.use_megatron_fsdp", "dist.use_megatron_fsdp"),
    "--use-custom-fsdp": _fields("ddp.use_custom_fsdp"),
    "--use-torch-fsdp2": _fields("dist.use_torch_fsdp2"),
    "--torch-fsdp2-no-reshard-after-forward": Spelling(()),
    "--data-parallel-sharding-strategy": _fields("ddp.data_parallel_sharding_strategy"),
    "--ddp-bucket-size": _fields("ddp.bucket_size", "comm_overlap.bucket_size"),
    "--ddp-average-in-collective": _fields("ddp.average_in_collective"),
    "--recompute-activations": Spelling(
        (Name("model.recompute_granularity", lambda _, __: None, lambda _: "selective"),)
    ),
    "--attention-backend": Spelling((Name("model.attention_backend", _last),)),
    "--use-flash-attn": Spelling(()),
    "--use-flash-attn-v2": Spelling(()),
    "--cross-entropy-loss-fusion": _on("model.cross_entropy_loss_fusion"),
    "--bf16": _precision("--bf16", f"{PRECISION}.bf16", default=True, absent=False),
    "--fp16": _precision("--fp16", f"{PRECISION}.fp16"),
    "--fp8-format": _precision("--fp8-format", f"{PRECISION}.fp8"),
    "--fp8": Spelling(()),
    "--fp8-hybrid": Spelling(()),
    "--fp8-e4m3": Spelling(()),
    "--fp8-recipe": _precision("--fp8-recipe", f"{PRECISION}.fp8_recipe", default="tensorwise"),
    "--fp8-param-gather": _precision(
        "--fp8-param-gather", f"{PRECISION}.fp8_param_gather", f"{PRECISION}.fp8_param"
    ),
    "--fp8-param": Spelling(()),
    "--fp4-format": _precision("--fp4-format", f"{PRECISION}.fp4"),
    "--fp4": Spelling(()),
    "--fp4-recipe": _precision("--fp4-recipe", f"{PRECISION}.fp4_recipe"),
    "--accumulate-allreduce-grads-in-fp32": Spelling(()),
    "--grad-reduce-in-bf16": Spelling(
        (
            opposite(f"{PRECISION}.grad_reduce_in_fp32"),
            _by_recipe("--grad-reduce-in-bf16"),
            opposite("ddp.grad_reduce_in_fp32"),
        )
    ),
    "--use-precision-aware-optimizer": _fields("optimizer.use_precision_aware_optimizer"),
    "--main-grads-dtype": _typed("optimizer.main_grads_dtype"),
    "--main-params-dtype": _typed("optimizer.main_params_dtype"),
    "--exp-avg-dtype": _typed("optimizer.exp_avg_dtype"),
    "--exp-avg-sq-dtype": _typed("optimizer.exp_avg_sq_dtype"),
    "--optimizer": _fields("optimizer.optimizer"),
    "--clip-grad": _fields("optimizer.clip_grad", "trainer.gradient_clip_val"),
    "--optimizer-cpu-offload": _fields("optimizer.optimizer_cpu_offload"),
    "--optimizer-offload-fraction": _fields("optimizer.optimizer_offload_fraction"),
    "--use-tp-pp-dp-mapping": _fields("dist.use_tp_pp_dp_mapping"),
    "--no-gradient-accumulation-fusion": Spelling(
        (opposite("model.gradient_accumulation_fusion"),)
    ),
    "--num-experts": _fields("model.num_moe_experts"),
    "--overlap-moe-expert-parallel-comm": _fields(
        "comm_overlap.overlap_moe_expert_parallel_comm", "model.overlap_moe_expert_parallel_comm"
    ),
    "--delay-wgrad-compute": _fields(
        *("comm_overlap.delay_wgrad_compute", "model.delay_wgrad_compute"),
        "ddp.delay_wgrad_compute",
    ),
    "--group-query-attention": Spelling((GROUPED,)),
    "--swiglu": _fields("model.gated_linear_unit"),
    "--squared-relu": Spelling(
        (Name("model.activation_func", _is_squared, lambda _: "squared_relu"),)
    ),
    "--disable-bias-linear": Spelling((opposite("model.add_bias_linear"),)),
    "--untie-embeddings-and-output-weights": Spelling(
        (opposite("model.share_embeddings_and_output_weights"),)
    ),
    "--apply-layernorm-1p": _fields("model.layernorm_zero_centered_gamma"),
    "--qk-layernorm": _fields("model.qk_layernorm"),
    "--use-rotary-position-embeddings": Spelling(()),
    "--encoder-num-layers": Spelling(()),
    "--activations-checkpoint-method": Spelling(()),
    "--activations-checkpoint-num-layers": Spelling(()),
    "--checkpoint-num-layers": Spelling(()),
    "--checkpoint-activations": Spelling(()),
    "--deepspeed-activation-checkpointing": Spelling(()),
    "--zero-stage": Spelling(()),
    "--tokenizer-type": _fields("tokenizer.tokenizer_type"),
    "--merge-file": _fields("tokenizer.merge_file"),
    "--sgd-momentum": _fields("optimizer.sgd_momentum"),
    "--cuda-graph-scope": _fields("model.cuda_graph_scope"),
    "--hybrid-override-pattern": _fields(
        "model.hybrid_layer_pattern", "model.hybrid_override_pattern"
    ),
    "--train-iters": _fields("train.train_iters"),
    "--train-samples": _fields("train.train_samples"),
    "--save-interval": _fields("checkpoint.save_interval"),
    "--async-save": _fields("checkpoint.async_save"),
    "--non-persistent-save-interval": _fields("checkpoint.non_persistent_save_interval"),
}
"""The names of Megatron-Bridge, whose recipes also shard the optimizer, overlap its traffic and store 16 bits."""


def _only_full(value: Any, one: Reading) -> Any:
    """Return what only counts where whole blocks are computed again."""
    full = one.get("model.activations_checkpoint_granularity") == "full"
    return value if full else None


def _format(value: Any, one: Reading) -> Any:
    if value is not True:
        return None
    return "e4m3" if one.get("model.fp8_e4m3") is True else "hybrid"


_SHARDED = ("mcore_distributed_optim", "distributed_fused_adam")
_PRECISIONS: Mapping[Any, str] = {
    16: "--fp16",
    "16": "--fp16",
    "16-mixed": "--fp16",
    "bf16": "--bf16",
    "bf16-mixed": "--bf16",
}


def _stored(flag: str, value: Any, _: Reading) -> Any:
    return True if _PRECISIONS.get(value) == flag else None


_NORMS = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm"}


def _norm(value: Any, _: Reading) -> Any:
    return _NORMS.get(str(value), "LayerNorm" if str(value).startswith("layernorm") else value)


def _sharded(value: Any, _: Reading) -> Any:
    return True if value in _SHARDED else None


_OWN: Mapping[str, Spelling] = {
    "--micro-batch-size": _fields("model.micro_batch_size"),
    "--global-batch-size": _fields("model.global_batch_size"),
    "--rampup-batch-size": _fields("model.rampup_batch_size"),
    "--seq-length": _fields("model.encoder_seq_length", "model.data.seq_length"),
    "--tp-comm-overlap": _fields("model.ub_tp_comm_overlap"),
    "--tp-comm-overlap-cfg": _fields("model.ub_tp_comm_overlap_cfg"),
    "--no-overlap-p2p-communication": Spelling(
        (opposite("model.overlap_p2p_comm"),), default=True, absent=True
    ),
    "--overlap-grad-reduce": _on("model.optim.overlap_grad_sync"),
    "--overlap-param-gather": _fields("model.optim.overlap_param_sync"),
    "--overlap-param-gather-with-optimizer-step": Spelling(()),
    "--use-distributed-optimizer": Spelling(
        (Name("model.optim.name", _sharded, lambda _: _SHARDED[0]),)
    ),
    "--num-distributed-optimizer-instances": Spelling(()),
    "--use-megatron-fsdp": Spelling(()),
    "--use-custom-fsdp": Spelling(()),
    "--use-torch-fsdp2": _fields("model.fsdp"),
    "--data-parallel-sharding-strategy": Spelling(()),
    "--ddp-bucket-size": Spelling(()),
    "--ddp-average-in-collective": Spelling(()),
    "--recompute-granularity": _fields("model.activations_checkpoint_granularity"),
    "--recompute-activations": Spelling(
        (
            Name(
                "model.activations_checkpoint_granularity",
                lambda _, __: None,
                lambda _: "selective",
            ),
        )
    ),
    "--recompute-method": Spelling((Name("model.activations_checkpoint_method", _only_full),)),
    "--recompute-num-layers": Spelling(
        (Name("model.activations_checkpoint_num_layers", _only_full),)
    ),
    "--recompute-modules": Spelling(()),
    "--attention-backend": Spelling(()),
    "--use-flash-attn": _fields("model.use_flash_attention"),
    "--cross-entropy-loss-fusion": _fields("model.cross_entropy_loss_fusion"),
    "--bf16": Spelling(
        (
            Name("trainer.precision", partial(_stored, "--bf16"), lambda _: "bf16"),
            Name("model.precision", partial(_stored, "--bf16")),
        )
    ),
    "--fp16": Spelling((Name("trainer.precision", partial(_stored, "--fp16"), lambda _: 16),)),
    "--fp8-format": Spelling((Name("model.fp8", _format, lambda _: True),)),
    "--fp8-recipe": _fields("model.fp8_recipe"),
    "--fp8-param-gather": _fields("model.fp8_params"),
    "--fp4-format": Spelling(()),
    "--fp4-recipe": Spelling(()),
    "--grad-reduce-in-bf16": Spelling((when("model.optim.grad_sync_dtype", "bf16"),)),
    "--use-precision-aware-optimizer": Spelling(()),
    "--main-grads-dtype": Spelling(()),
    "--main-params-dtype": Spelling(()),
    "--exp-avg-dtype": Spelling(()),
    "--exp-avg-sq-dtype": Spelling(()),
    "--optimizer": Spelling(()),
    "--tokenizer-type": _fields("model.tokenizer.type"),
    "--merge-file": _fields("model.tokenizer.merge_file"),
    "--sgd-momentum": Spelling(()),
    "--clip-grad": _fields("trainer.gradient_clip_val", default=0.0, absent=1.0),
    "--optimizer-cpu-offload": Spelling(()),
    "--optimizer-offload-fraction": Spelling(()),
    "--use-tp-pp-dp-mapping": _fields("model.use_tp_pp_dp_mapping"),
    "--overlap-moe-expert-parallel-comm": Spelling(()),
    "--delay-wgrad-compute": Spelling(()),
    "--swiglu": Spelling(
        (
            Name(
                "model.activation",
                lambda value, _: True if value in _SILU else None,
                lambda _: "fast-swiglu",
            ),
        )
    ),
    "--squared-relu": Spelling((Name("model.activation", _is_squared, lambda _: _RELU2[1]),)),
    "--normalization": Spelling(
        (Name("model.normalization", _norm, lambda value: str(value).lower()),)
    ),
    "--disable-bias-linear": Spelling((opposite("model.bias"),)),
    "--rotary-percent": _fields("model.rotary_percentage"),
    "--train-iters": _fields("trainer.max_steps"),
    "--train-samples": Spelling((Name("trainer.max_samples"),)),
    "--save-interval": _fields("exp_manager.checkpoint_callback_params.every_n_train_steps"),
    "--async-save": _fields("exp_manager.checkpoint_callback_params.async_save"),
    "--non-persistent-save-interval": Spelling(()),
}

NEMO: Mapping[str, Spelling] = {**BRIDGE, **_OWN}
"""The names of NeMo before 2.0."""


def spelled(names: Mapping[str, Spelling], flag: str) -> Spelling:
    """Return the names of a flag: those listed, or those of a field of the model."""
    return names.get(flag) or _fields(f"model.{flag.lstrip('-').replace('-', '_')}")
