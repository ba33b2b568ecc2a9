# Source: mlcommons/training_results_v5.1, Nebius/benchmarks/llama31_8b (4da2d1cd)
export FULL_CUDA_GRAPH=1
export MCORE_CUDA_GRAPH=1
export TORCH_NCCL_AVOID_RECORD_STREAMS=1
export OVERLAP_PARAM_GATHER_WITH_OPTIM_STEP=False
export DEFER_EMBEDDING_WGRAD_COMPUTE=False
