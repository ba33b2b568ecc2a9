"""Flags of Megatron-LM under the names of Megatron-Bridge and NeMo, which start the same code from configurations.

An unlisted flag is a field of the model in both, with underscores: ``--num-query-groups`` is
``model.num_query_groups``. Sources: NVIDIA-NeMo/Megatron-Bridge, *Megatron-LM to Megatron Bridge Guide*,
``recipes/common.py``, ``training/mixed_precision.py`` and ``training/comm_overlap.py``; NVIDIA/NeMo,
``examples/nlp/language_modeling/conf/megatron_gpt_config.yaml``.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from calculon.launch.dialect import Reading
from calculon.launch.renaming import Alias, Name, choice, opposite, when
from calculon.launch.texts.name_patterns import names_in

_FLAG_TYPES = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "uint8": "fp8",
}
"""Names of torch types in flags."""


def _fields(*names: str, default: Any = None, absent: Any = None) -> Alias:
    """Return the names of a setting whose values are the same everywhere."""
    return Alias(tuple(map(Name, names)), default, absent)


def _said(*names: Name) -> Alias:
    """Return the names of a setting that is off unless one of them is stated."""
    return Alias(names)


def _table(text: str) -> dict[str, Alias]:
    """Return the names in a table: each line has a flag, and the settings with the same values."""
    rows = (line.split() for line in text.strip().splitlines())
    return {flag: _fields(*names) for flag, *names in rows}


def _unsayable(flags: str) -> dict[str, Alias]:
    """Return empty names for flags that cannot be expressed."""
    return dict.fromkeys(names_in(flags), Alias(()))


def _on(*names: str) -> Alias:
    """Return the names of a switch that is on by default."""
    return _fields(*names, default=True, absent=False)


def _typed(name: str) -> Alias:
    return _said(choice(name, _FLAG_TYPES))


def _recipe(name: str) -> dict[str, Any]:
    """Return the flags that a named precision implies."""
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
"""8-bit and 4-bit precisions of Megatron-Bridge (``training/mixed_precision.py``)."""

PRECISION = "mixed_precision"


def _by_recipe(flag: str) -> Name:
    """Return the precision's name as a source of one of its flags."""

    def here(value: Any, _: Reading) -> Any:
        return _recipe(value.replace("-", "_")).get(flag) if isinstance(value, str) else None

    return Name(PRECISION, here)


def _precision(flag: str, *names: str, default: Any = None, absent: Any = None) -> Alias:
    """Return the names of a flag that a precision may imply."""
    own = tuple(Name(name) for name in names)
    return Alias((*own[:1], _by_recipe(flag), *own[1:]), default, absent)


def _listed_layout(value: Any, _: Reading) -> Any:
    """Return a stage layout in letters, converted from a list of the parts of each stage if necessary."""
    if not isinstance(value, list) or not all(isinstance(one, list) for one in value):
        return value
    letters = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
    return "|".join("".join(letters.get(str(part), "?") for part in stage) for stage in value)


def _last(value: Any, _: Reading) -> Any:
    """Return the last part of an attribute's name: ``AttnBackend.flash``."""
    return str(value).rpartition(".")[2]


def _grouped(value: Any, reading: Reading) -> Any:
    heads = reading.get("model.num_attention_heads")
    return True if value not in (None, heads) else None


_SILU = ("silu", "swiglu", "fast-swiglu", "F.silu", "torch.nn.functional.silu")
_RELU2 = ("squared_relu", "squared-relu")


def _is_squared(value: Any, _: Reading) -> Any:
    return True if str(value).rpartition(".")[2] in _RELU2 else None


GROUPED = Name("model.num_query_groups", _grouped, lambda _: None)

BRIDGE: Mapping[str, Alias] = {
    **_unsayable("""
    --num-layers-per-virtual-pipeline-stage --model-parallel-size --step-batch-size-schedule --batch-size
    --encoder-seq-length --no-async-tensor-model-parallel-allreduce --torch-fsdp2-no-reshard-after-forward
    --use-flash-attn --use-flash-attn-v2 --fp8 --fp8-hybrid --fp8-e4m3 --fp8-param --fp4
    --accumulate-allreduce-grads-in-fp32 --use-rotary-position-embeddings --encoder-num-layers
    --activations-checkpoint-method --activations-checkpoint-num-layers --checkpoint-num-layers
    --checkpoint-activations --deepspeed-activation-checkpointing --zero-stage
"""),
    **_table("""
    --num-virtual-stages-per-pipeline-rank model.virtual_pipeline_model_parallel_size
    --decoder-first-pipeline-num-layers model.num_layers_in_first_pipeline_stage
    --decoder-last-pipeline-num-layers model.num_layers_in_last_pipeline_stage
    --micro-batch-size train.micro_batch_size
    --global-batch-size train.global_batch_size
    --rampup-batch-size train.rampup_batch_size
    --seq-length model.seq_length dataset.seq_length dataset.sequence_length data.seq_length
    --tp-comm-overlap comm_overlap.tp_comm_overlap
    --tp-comm-overlap-cfg comm_overlap.tp_comm_overlap_cfg
    --num-distributed-optimizer-instances ddp.num_distributed_optimizer_instances
    --use-megatron-fsdp ddp.use_megatron_fsdp dist.use_megatron_fsdp
    --use-custom-fsdp ddp.use_custom_fsdp
    --use-torch-fsdp2 dist.use_torch_fsdp2
    --data-parallel-sharding-strategy ddp.data_parallel_sharding_strategy
    --ddp-bucket-size ddp.bucket_size comm_overlap.bucket_size
    --ddp-average-in-collective ddp.average_in_collective
    --use-precision-aware-optimizer optimizer.use_precision_aware_optimizer
    --optimizer optimizer.optimizer
    --clip-grad optimizer.clip_grad trainer.gradient_clip_val
    --optimizer-cpu-offload optimizer.optimizer_cpu_offload
    --optimizer-offload-fraction optimizer.optimizer_offload_fraction
    --use-tp-pp-dp-mapping dist.use_tp_pp_dp_mapping
    --num-experts model.num_moe_experts
    --delay-wgrad-compute comm_overlap.delay_wgrad_compute model.delay_wgrad_compute ddp.delay_wgrad_compute
    --swiglu model.gated_linear_unit
    --apply-layernorm-1p model.layernorm_zero_centered_gamma
    --qk-layernorm model.qk_layernorm
    --tokenizer-type tokenizer.tokenizer_type
    --merge-file tokenizer.merge_file
    --sgd-momentum optimizer.sgd_momentum
    --cuda-graph-scope model.cuda_graph_scope
    --hybrid-override-pattern model.hybrid_layer_pattern model.hybrid_override_pattern
    --train-iters train.train_iters
    --train-samples train.train_samples
    --save-interval checkpoint.save_interval
    --async-save checkpoint.async_save
    --non-persistent-save-interval checkpoint.non_persistent_save_interval
"""),
    "--pipeline-model-parallel-layout": _said(
        Name("model.pipeline_model_parallel_layout", _listed_layout)
    ),
    "--no-overlap-p2p-communication": _said(opposite("comm_overlap.overlap_p2p_comm")),
    "--overlap-grad-reduce": _on("ddp.overlap_grad_reduce", "comm_overlap.overlap_grad_reduce"),
    "--overlap-param-gather": _on("ddp.overlap_param_gather", "comm_overlap.overlap_param_gather"),
    "--overlap-param-gather-with-optimizer-step": _fields(
        "comm_overlap.overlap_param_gather_with_optimizer_step",
        "optimizer.overlap_param_gather_with_optimizer_step",
    ),
    "--use-distributed-optimizer": _on(
        "ddp.use_distributed_optimizer", "optimizer.use_distributed_optimizer"
    ),
    "--recompute-activations": _said(
        Name("model.recompute_granularity", lambda _, __: None, lambda _: "selective")
    ),
    "--attention-backend": _said(Name("model.attention_backend", _last)),
    "--cross-entropy-loss-fusion": _on("model.cross_entropy_loss_fusion"),
    "--bf16": _precision("--bf16", f"{PRECISION}.bf16", default=True, absent=False),
    "--fp16": _precision("--fp16", f"{PRECISION}.fp16"),
    "--fp8-format": _precision("--fp8-format", f"{PRECISION}.fp8"),
    "--fp8-recipe": _precision("--fp8-recipe", f"{PRECISION}.fp8_recipe", default="tensorwise"),
    "--fp8-param-gather": _precision(
        "--fp8-param-gather", f"{PRECISION}.fp8_param_gather", f"{PRECISION}.fp8_param"
    ),
    "--fp8-dot-product-attention": _precision(
        "--fp8-dot-product-attention", f"{PRECISION}.fp8_dot_product_attention"
    ),
    "--fp4-format": _precision("--fp4-format", f"{PRECISION}.fp4"),
    "--fp4-recipe": _precision("--fp4-recipe", f"{PRECISION}.fp4_recipe"),
    "--grad-reduce-in-bf16": _said(
        opposite(f"{PRECISION}.grad_reduce_in_fp32"),
        _by_recipe("--grad-reduce-in-bf16"),
        opposite("ddp.grad_reduce_in_fp32"),
    ),
    "--main-grads-dtype": _typed("optimizer.main_grads_dtype"),
    "--main-params-dtype": _typed("optimizer.main_params_dtype"),
    "--exp-avg-dtype": _typed("optimizer.exp_avg_dtype"),
    "--exp-avg-sq-dtype": _typed("optimizer.exp_avg_sq_dtype"),
    "--no-gradient-accumulation-fusion": _said(opposite("model.gradient_accumulation_fusion")),
    "--overlap-moe-expert-parallel-comm": _fields(
        "comm_overlap.overlap_moe_expert_parallel_comm", "model.overlap_moe_expert_parallel_comm"
    ),
    "--no-rope-fusion": _said(opposite("model.apply_rope_fusion")),
    "--moe-permute-fusion": _on("model.moe_permute_fusion"),
    "--group-query-attention": _said(GROUPED),
    "--squared-relu": _said(Name("model.activation_func", _is_squared, lambda _: "squared_relu")),
    "--disable-bias-linear": _said(opposite("model.add_bias_linear")),
    "--untie-embeddings-and-output-weights": _said(
        opposite("model.share_embeddings_and_output_weights")
    ),
}
"""Names of Megatron-Bridge, whose recipes also shard the optimizer, overlap its traffic and store 16-bit weights."""


def _only_full(value: Any, reading: Reading) -> Any:
    """Return a value that only matters with full recomputation; None otherwise."""
    full = reading.get("model.activations_checkpoint_granularity") == "full"
    return value if full else None


def _format(value: Any, reading: Reading) -> Any:
    if value is not True:
        return None
    return "e4m3" if reading.get("model.fp8_e4m3") is True else "hybrid"


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


_OWN: Mapping[str, Alias] = {
    **_unsayable("""
    --overlap-param-gather-with-optimizer-step --num-distributed-optimizer-instances --use-megatron-fsdp
    --use-custom-fsdp --data-parallel-sharding-strategy --ddp-bucket-size --ddp-average-in-collective
    --recompute-modules --attention-backend --fp4-format --fp4-recipe --use-precision-aware-optimizer
    --main-grads-dtype --main-params-dtype --exp-avg-dtype --exp-avg-sq-dtype --optimizer --sgd-momentum
    --optimizer-cpu-offload --optimizer-offload-fraction --overlap-moe-expert-parallel-comm
    --delay-wgrad-compute --non-persistent-save-interval
"""),
    **_table("""
    --micro-batch-size model.micro_batch_size
    --global-batch-size model.global_batch_size
    --rampup-batch-size model.rampup_batch_size
    --seq-length model.encoder_seq_length model.data.seq_length
    --tp-comm-overlap model.ub_tp_comm_overlap
    --tp-comm-overlap-cfg model.ub_tp_comm_overlap_cfg
    --overlap-param-gather model.optim.overlap_param_sync
    --use-torch-fsdp2 model.fsdp
    --recompute-granularity model.activations_checkpoint_granularity
    --use-flash-attn model.use_flash_attention
    --cross-entropy-loss-fusion model.cross_entropy_loss_fusion
    --fp8-recipe model.fp8_recipe
    --fp8-param-gather model.fp8_params
    --tokenizer-type model.tokenizer.type
    --merge-file model.tokenizer.merge_file
    --use-tp-pp-dp-mapping model.use_tp_pp_dp_mapping
    --rotary-percent model.rotary_percentage
    --train-iters trainer.max_steps
    --train-samples trainer.max_samples
    --save-interval exp_manager.checkpoint_callback_params.every_n_train_steps
    --async-save exp_manager.checkpoint_callback_params.async_save
"""),
    "--no-overlap-p2p-communication": Alias(
        (opposite("model.overlap_p2p_comm"),), default=True, absent=True
    ),
    "--overlap-grad-reduce": _on("model.optim.overlap_grad_sync"),
    "--use-distributed-optimizer": _said(Name("model.optim.name", _sharded, lambda _: _SHARDED[0])),
    "--recompute-activations": _said(
        Name(
            "model.activations_checkpoint_granularity",
            lambda _, __: None,
            lambda _: "selective",
        )
    ),
    "--recompute-method": _said(Name("model.activations_checkpoint_method", _only_full)),
    "--recompute-num-layers": _said(Name("model.activations_checkpoint_num_layers", _only_full)),
    "--bf16": _said(
        Name("trainer.precision", partial(_stored, "--bf16"), lambda _: "bf16"),
        Name("model.precision", partial(_stored, "--bf16")),
    ),
    "--fp16": _said(Name("trainer.precision", partial(_stored, "--fp16"), lambda _: 16)),
    "--fp8-format": _said(Name("model.fp8", _format, lambda _: True)),
    "--grad-reduce-in-bf16": _said(when("model.optim.grad_sync_dtype", "bf16")),
    "--clip-grad": _fields("trainer.gradient_clip_val", default=0.0, absent=1.0),
    "--swiglu": _said(
        Name(
            "model.activation",
            lambda value, _: True if value in _SILU else None,
            lambda _: "fast-swiglu",
        )
    ),
    "--squared-relu": _said(Name("model.activation", _is_squared, lambda _: _RELU2[1])),
    "--normalization": _said(Name("model.normalization", _norm, lambda value: str(value).lower())),
    "--disable-bias-linear": _said(opposite("model.bias")),
}

NEMO: Mapping[str, Alias] = {**BRIDGE, **_OWN}
"""Names of NeMo before 2.0."""


def spelled(names: Mapping[str, Alias], flag: str) -> Alias:
    """Return the names of a flag: listed ones, or the name of a model field."""
    return names.get(flag) or _fields(f"model.{flag.lstrip('-').replace('-', '_')}")
