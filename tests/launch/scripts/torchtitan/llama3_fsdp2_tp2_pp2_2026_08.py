# Source: github.com/pytorch/torchtitan, torchtitan_recipes/tests/h100.py at 06fc49e (2026-08): one configuration derived from another
from torchtitan.models.llama3.config_registry import llama3_debugmodel_float8
from torchtitan.trainer import Trainer


def llama3_debugmodel_float8_fsdp2_tp2_pp2_asynctp_compile() -> Trainer.Config:
    config = llama3_debugmodel_float8(seq_len=2048)
    config.compile.enable = True
    config.parallelism.data_parallel_shard_degree = 2
    config.parallelism.tensor_parallel_degree = 2
    config.parallelism.pipeline_parallel_degree = 2
    config.parallelism.num_pp_microbatches = 8
    config.compile.enable_async_tensor_parallel = True
    config.training.num_tokens_per_microbatch_per_dp_rank = 2048
    config.training.disable_cuda_graphs = True
    return config
