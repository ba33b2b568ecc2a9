# Source: NVIDIA/NeMo, nemo/collections/llm/recipes/mixtral_8x7b.py (2024-09); its settings.
def trainer(num_nodes: int = 8, num_gpus_per_node: int = 8):
    strategy = run.Config(
        nl.MegatronStrategy,
        tensor_model_parallel_size=1,
        pipeline_model_parallel_size=4,
        pipeline_dtype=torch.bfloat16,
        virtual_pipeline_model_parallel_size=8,
        context_parallel_size=1,
        sequence_parallel=True,
        expert_model_parallel_size=8,
        gradient_as_bucket_view=True,
        ckpt_async_save=True,
        ckpt_parallel_load=True,
        ddp=run.Config(DistributedDataParallelConfig, check_for_nan_in_grad=True, grad_reduce_in_fp32=True),
    )
    return run.Config(
        nl.Trainer,
        accelerator="gpu",
        accumulate_grad_batches=1,
        devices=num_gpus_per_node,
        limit_test_batches=50,
        limit_val_batches=32,
        log_every_n_steps=10,
        max_steps=1168251,
        num_nodes=num_nodes,
        plugins=run.Config(nl.MegatronMixedPrecision, precision="bf16-mixed"),
        strategy=strategy,
        use_distributed_sampler=False,
        val_check_interval=2000,
    )


def pretrain_recipe(name: str = "default", num_nodes: int = 8, num_gpus_per_node: int = 8, fn=pretrain):
    return run.Partial(
        fn,
        model=run.Config(MixtralModel, config=run.Config(MixtralConfig8x7B)),
        trainer=trainer(num_nodes=num_nodes, num_gpus_per_node=num_gpus_per_node),
        data=run.Config(MockDataModule, seq_length=8192, global_batch_size=512, micro_batch_size=1),
        optim=distributed_fused_adam_with_cosine_annealing(max_lr=3e-4),
    )
