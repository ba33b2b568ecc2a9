"""Settings of Megatron-Bridge and NeMo that no row reads: without effect on time and memory, or not modeled.

Names are patterns; patterns of Megatron-LM (:mod:`calculon.launch.megatron.megatron_words`) apply in every section.
"""

from collections.abc import Mapping

from calculon.launch.megatron.megatron_words import NO_EFFECT
from calculon.launch.megatron.megatron_words import NOT_MODELLED as OF_FLAGS
from calculon.launch.texts.name_patterns import names_in, under


def _below(flags: str) -> str:
    """Return patterns of fields for patterns of flags: ``--lr-*`` is ``*.lr_*``."""
    return " ".join(f"*.{flag.lstrip('-').replace('-', '_')}" for flag in names_in(flags))


_PARTS = """
    scheduler logger profiling rng tokenizer dataset data checkpoint validation rerun_state_machine env_vars ft
    straggler nvrx_straggler resume inprocess_restart tensor_inspect optimizer_config_override_provider log run
    rng_config profiling_config
"""
_TRAIN = """
    eval_interval eval_iters manual_gc* check_* skip_* exit_* empty_unused_* decrease_batch_size_if_needed
    iterations_to_skip train_sync_interval
"""
_OPTIMIZER = """
    lr min_lr max_lr lr_* weight_decay *_weight_decay adam_* sgd_* muon_* lion_* decoupled_* loss_scale*
    initial_loss_scale min_loss_scale hysteresis log_* timers bf16 fp16 fp8_recipe params_dtype pin_cpu_*
    use_torch_optimizer_for_cpu_offload config_logger_dir barrier_* apply_wd_* overlap_param_gather
    main_params_dtype reuse_grad_buf_* store_param_remainders
"""
_DDP = """
    check_for_* disable_symmetric_registration gradient_reduce_div_fusion average_in_collective
    suggested_communication_unit_size param_name_patterns_* fsdp_manual_registration keep_fp8_transpose_cache
    reuse_grad_buf_* fp8_param_gather fsdp_all_gather_in_start_param_sync fsdp_db_*
    megatron_fsdp_main_params_dtype
"""
_DIST = """
    distributed_* flight_recorder_* lazy_mpu_init local_rank use_gloo_* external_gpu_device_mapping
    high_priority_stream_groups enable_megatron_core_* nccl_communicator_config_path use_decentralized_pg
    disable_jit_fuser align_*
"""
_PRECISION = """
    params_dtype pipeline_dtype autocast_* loss_scale* initial_loss_scale min_loss_scale hysteresis fp8_margin
    fp8_amax_* fp32 reuse_grad_buf_*
"""
_OVERLAP = "batch_p2p_comm data_parallel_size tp_comm_bootstrap_backend align_*"
_MODEL = """
    init_method* output_layer_init_method embedding_init_* layernorm_epsilon apply_query_key_layer_scaling
    attention_softmax_in_fp32 rotary_base rope_* rotary_scaling_factor rotary_interleaved yarn_* mscale* beta_*
    seq_len_* original_max_position_embeddings scale_* moe_aux_loss_coeff moe_z_loss_coeff moe_router_*
    moe_input_jitter_eps moe_token_drop* moe_grouped_gemm log_* moe_*_num_sms
    moe_per_layer_logging mtp_loss_scaling_factor perform_initialization init_model_with_meta_device
    use_cpu_initialization seed pipeline_dtype params_dtype autocast_* enable_autocast bf16 fp16 timers
    cuda_graph_* deterministic_mode batch_p2p_* bias_*_fusion masked_softmax_fusion persist_layer_norm
    memory_efficient_layer_norm fused_* load_weights hf_model_id transformer_layer_spec*
    parallel_output test_mode fp8_margin fp8_interval fp8_amax_* fp8_wgrad fp8_recipe fp4_recipe tp_comm_*
    overlap_p2p_comm restore_modelopt_state quant_* inference_* config_logger_dir softmax_* qk_clip* mup_*
    use_mup should_pad_vocab calculate_per_token_loss cross_entropy_fusion_impl barrier_* num_moe_experts_*
    moe_a2a_overlap use_mamba_mem_eff_path mtp_use_repeated_layer is_hybrid_model gradient_as_bucket_view ckpt_*
    use_te_rng_tracker disable_parameter_* clone_scatter_output_* scatter_embedding_* flash_decode
    cache_mla_latents cpu_offloading
"""
_TRAINER = """
    accelerator logger enable_checkpointing use_distributed_sampler max_* replace_sampler_ddp log_every_n_steps
    val_check_interval limit_* benchmark accumulate_grad_batches num_sanity_val_steps num_nodes devices
    callbacks.TimingCallback* plugins.*
"""

_EVERYWHERE = f"""
    {_PARTS} {" ".join(f"{part}.*" for part in names_in(_PARTS))}
    usual.* _target_ *._target_ name restore_from_path optimizer optim.* optim
    {under("trainer", _TRAINER)} {_below(NO_EFFECT)}
"""

IGNORED = f"""
    {_EVERYWHERE} {under("train", _TRAIN)} {under("optimizer", _OPTIMIZER)} {under("ddp", _DDP)}
    {under("dist", _DIST)} {under("mixed_precision", _PRECISION)} {under("comm_overlap", _OVERLAP)}
    {under("model", _MODEL)}
"""
"""Settings of Megatron-Bridge without effect on the time and memory of a step."""

ON_BY_DEFAULT = """
    model.bias_*_fusion model.bias_dropout_add_fusion model.masked_softmax_fusion
    model.persist_layer_norm model.fp8_wgrad *.pin_cpu_* mixed_precision.fp8_wgrad
    ddp.gradient_reduce_div_fusion model.tp_comm_bulk_* model.tp_comm_split_*
    model.gradient_accumulation_fusion model.cpu_offloading_activations optimizer.store_param_remainders
"""
"""Patterns of switches that are on by default."""

NOT_MODELLED: Mapping[str, str] = {
    "settings made by code in another file": "calls.*",
    "settings of a recipe in another file are unknown": "recipe",
    "delayed weight gradients of the head": (
        "comm_overlap.defer_embedding_wgrad_compute model.defer_embedding_wgrad_compute "
        "comm_overlap.wgrad_deferral_limit model.wgrad_deferral_limit"
    ),
    "16-bit products in some blocks": (
        "mixed_precision.first_last_layers_bf16 mixed_precision.num_layers_at_*_in_bf16 "
        "model.first_last_layers_bf16 model.num_layers_at_*_in_bf16"
    ),
    **{effect: _below(flags) for effect, flags in OF_FLAGS.items()},
}
"""Effects of Megatron-Bridge settings that are not modeled, with the settings."""

_NEMO_MODEL = """
    tokenizer.* nsys_profile.* data.* native_amp_* hysteresis apex_* onnx_safe resume_from_checkpoint
    gradient_as_bucket_view grad_allreduce_chunk_size_mb grad_div_ar_fusion sync_batch_comm batch_p2p_comm
    gc_interval pre_process post_process use_scaled_init_method headscale openai_gelu deteministic_mode
    normalize_attention_scores do_layer_norm_weight_decay use_emha fp8_e4m3 fp8_hybrid fp32_residual_connection
    fp16_lm_cross_entropy enable_vboost sharp get_attention_mask_from_fusion reduce_amax mcore_gpt
    megatron_amp_O2 ffn_dropout transformer_block_type attention_type mcore_customization_config.* precision
    bias_*_fusion bias_dropout_add_fusion masked_softmax_fusion transformer_engine activations_checkpoint_method
    activations_checkpoint_num_layers fsdp_sharded_checkpoint optim.lr optim.weight_decay optim.betas
    optim.sched.* optim.name optim.eps optim.contiguous_* optim.dtype fsdp_sharding_strategy
    fsdp_grad_reduce_dtype
"""

NEMO_IGNORED = f"""
    {_EVERYWHERE} exp_manager.* hydra.* defaults {under("model", _MODEL)} {under("model", _NEMO_MODEL)}
"""
"""Settings of NeMo without effect on the time and memory of a step."""

NEMO_NOT_MODELLED: Mapping[str, str] = {
    "gradient accumulation in a separate pass": "model.gradient_accumulation_fusion",
    "size of gradient buckets": "model.optim.bucket_cap_mb",
    "recomputed blocks that vary by microbatch": (
        "model.num_micro_batches_with_partial_activation_checkpoints"
    ),
    "recomputed blocks that vary by stage": "model.activations_checkpoint_layers_per_pipeline",
    **NOT_MODELLED,
}
"""Effects of NeMo settings that are not modeled, with the settings."""
