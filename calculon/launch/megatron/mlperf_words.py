"""MLPerf Training: benchmarks, values of the published common files, and variables without a row.

Sources: mlcommons/training_results v3.1 (NVIDIA, gpt3: ``config_fp8.sh``), v4.1 (NVIDIA, gpt3: ``config_common.sh``,
``conf/custom.yaml``), v5.1 (NVIDIA, llama31_405b, Nebius and Lambda, llama31_8b: ``config_common*.sh``,
``conf/custom.yaml``, ``pretrain.py``; Cisco, llama2_70b_lora: ``config_common.sh``), and v6.0 (NVIDIA, deepseekv3_671b,
Inventec, gpt_oss_20b: ``config_common*.sh``).
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from calculon.base.frozen import dataclass

GPT3, LORA = "gpt3", "llama2_70b_lora"
LLAMA_8B, LLAMA_405B = "llama31_8b", "llama31_405b"
DEEPSEEK, GPT_OSS = "deepseekv3_671b", "gpt_oss_20b"


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark of language models.

    Attributes:
        model: Model of the catalog.
        size: Value of ``MODEL_SIZE`` that selects it; empty if its files do not state one.
        pattern: Regular expression of the name or the text of its files, or of their folder.
        changes: Fields in which the trained model differs from the model of the catalog.
    """

    model: str
    size: str
    pattern: str
    changes: Mapping[str, Any] = field(default_factory=dict)


_NEMO_GPT: Mapping[str, Any] = {
    **dict.fromkeys(("qkv_bias", "out_bias", "mlp_bias", "tied"), True),
    **{"dropout": False, "vocab": 51_200, "positions": 2048},
}
"""GPT-3 in NeMo: the catalog has its blocks only, as the published model (``conf/custom.yaml``, tokenizer of C4)."""


BENCHMARKS: Mapping[str, Benchmark] = {
    LORA: Benchmark("llama2-70B", "", r"_lora\b|^export (TP|CP|MBS)="),
    GPT3: Benchmark("gpt3-175B", "", r"\bgpt3\b|\bconfig_fp8\.sh", _NEMO_GPT),
    DEEPSEEK: Benchmark("deepseek-v3", "671b", r"deepseek|\b671b\b"),
    GPT_OSS: Benchmark("gpt-oss-20b", "20b", r"gpt[-_]?oss|\b20b\b"),
    LLAMA_8B: Benchmark("llama3-8B", "8b", r"_8b|\b8b\b"),
    LLAMA_405B: Benchmark("llama3.1-405B", "405b", r"405b"),
}
"""Benchmarks by name, in the order in which the patterns are tried."""

_8_BITS = "FP8=True FP8_PARAM_GATHER=True"
_LLAMA = f"{_8_BITS} FP8_RECIPE=tensorwise TP_PP_DP_MAPPING=True"
_GRAPH = "FULL_CUDA_GRAPH=1 MCORE_CUDA_GRAPH=1"

PUBLISHED: Mapping[tuple[str, str], str] = {
    ("", "config_common.sh"): f"{_LLAMA} MICRO_BATCH_SIZE=1",
    ("", "config_common_8b.sh"): "MODEL_SIZE=8b OVERWRITTEN_NUM_LAYERS=32",
    ("", "config_common_405b.sh"): "MODEL_SIZE=405b OVERWRITTEN_NUM_LAYERS=126",
    ("", "config_common_cg.sh"): _GRAPH,
    ("", "config_common_fp4.sh"): (
        "FP4=True FP8=False FP4_RECIPE=nvfp4 FP8_PARAM_GATHER=False TP_COMM_OVERLAP=False NVTE_NVFP4_DISABLE_RHT=1"
    ),
    ("", "config_common_fp8attn.sh"): "FP8_DPA=True",
    ("", "config_common_mxfp8.sh"): "FP8=True FP8_RECIPE=mxfp8 FP8_PARAM_GATHER=False",
    (GPT3, "config_common.sh"): "FP8_PARAMS=True MICRO_BATCH_SIZE=2",
    (GPT3, "config_fp8.sh"): "FP8=True",
    (LORA, "config_common.sh"): "FP8=True PP=1 SP=1 MBS=1 DGXNGPU=8 TP_COMM_OVERLAP=True",
    (DEEPSEEK, "config_common.sh"): "MODEL_SIZE=671b",
    (DEEPSEEK, "config_common_mxfp8.sh"): f"{_8_BITS} FP8_DPA=True FP8_RECIPE=mxfp8",
    (GPT_OSS, "config_common.sh"): f"{_LLAMA} MODEL_SIZE=20b",
    (GPT_OSS, "config_common_cg.sh"): "CUDA_GRAPH_IMPLEMENTATION=local",
}
"""Variables of the published common files that rows read, by benchmark (empty for all others) and name of the file."""

NO_EFFECT = """
    # learning rates, length of the run, target
    LR LR_* MIN_LR WARMUP* MAX_STEPS* OPT_LR_* VAL_* LIMIT_* TARGET* SEED SKIP_EVALS EXTEND_* INIT_* OVERRIDE_ZERO_*
    HEALING_* MOE_AUX_LOSS_* MOE_ROUTER_FORCE_LOAD_BALANCING PROXY_GBS TRAIN_ONLY EVAL_*
    # data, checkpoints, compliance
    DATA* LEGACY_DATASET LOAD_* CHECKPOINT_* *_CKPT* CHECK_COMPLIANCE MOCK_* NUM_WORKERS TOKENIZERS_* HF_* MODEL
    TRANSFORMERS_OFFLINE FORCE_SUCCESS_STATUS EXCHANGE_INDICES_* USE_DIST_CHECKPOINTING
    # starting, logs, profiles
    DGXSYSTEM WALLTIME* NEXP MLPERF_* BIND* EXTRA_ARGS HYDRA_* TQDM_* LOG_* *_LOG_* *_LOGS PYTHON*
    MODEL_TFLOP_* PROFILE* NCCL_TEST CONT HANG_* CUDA_ENABLE_* CUDA_COREDUMP_* ATTEMPT_* SBATCH_* PMIX_*
    CUDA_GRAPH_WARMUP_STEPS
    DISABLE_* PRINT_* POSSIBLE_* NEMO_LOG_* GPU_ARCH BASE_TIME BATCHSIZE FRAMEWORK BENCHMARK APILOG_* OMP_* CC
    TORCH_CPP_LOG_LEVEL NVTE_DEBUG* GC_* NEMO_MANUAL_GC_* MEMORY_PROFILE_* VBOOST_VALUE MAX_GPU_CLK SET_GPU_CLK
    NVTE_TP_OVERLAP_TRAINING_ONLY CUDA_DEVICE_MAX_CONNECTIONS FP8_HYBRID
    NVTE_ALLOW_NONDETERMINISTIC_ALGO ENABLE_PERF_CONFIGS
"""
"""Variables without effect on the time and memory of a step, or whose effect another variable has."""

NOT_MODELLED = {
    "settings of collectives": (
        "NCCL_* TORCH_NCCL_* SHARP USE_SHARP UB_SKIPMC USE_MNNVL NUM_OF_HYBRID_EP_* MOE_HYBRIDEP_*"
    ),
    "choice of the overlapped products and their splits": (
        "MC_TP_* TE_UB_* NVTE_UB_* NVTE_RS_* UB_TP_* QKV_* FC1_* FC2_* PROJ_* *_TP_COMM_OVERLAP*"
    ),
    "multiprocessors left to communication": "NVTE_*_MARGIN* CUDNNFE_*_MARGIN",
    "a different kernel of the same operator": (
        "NVTE_NORM_* NVTE_FLASH_ATTN NVTE_FUSED_ATTN* NVTE_CUTEDSL_* USE_TE_OPS FUSED_QKV_ROPE CE_FUSION_IMPL "
        "CUDNN_* CUBLAS_* AVERAGE_IN_COLLECTIVE"
    ),
    "details of 8-bit and 4-bit recipes": (
        "NVTE_DPA_* NVTE_FP8_* FP8_AMAX_* FP8_REDUCE_AMAX FP8_ACT TP_ONLY_AMAX_RED REUSE_GRAD_BUF_*"
    ),
    "16-bit blocks within a low-precision recipe": "FIRST_LAST_LAYERS_BF16 NUM_LAYERS_AT_*",
    "timing of weight all-gathers": "ALIGN_PARAM_GATHER OVERLAP_PARAM_GATHER_WITH_OPTIM_STEP",
    "head gradients after the pipeline drain": "DEFER_EMBEDDING_* WGRAD_DEFERRAL_*",
    "size of the buckets of Apex's optimizer": "BUCKET_CAP_MB",
    "behavior of the memory allocator": "PYTORCH_*ALLOC_CONF",
    "number types of single operators": "MOE_ROUTER_DTYPE",
    "padding and storage of expert inputs": "MOE_EXPERT_RANK_CAPACITY_* MOE_PAGED_*",
    "streams of expert communication": "USE_DYNAMIC_COMP_STREAM HIGH_PRIORITY_A2A_*",
    "CUDA graphs of the optimizer": "OPTIMIZER_CG ON_DEVICE_CLIP_GRAD CG_WEIGHT_CACHING",
    "adapters": "LORA_*",
}
"""Effects on the time or memory of a step that are not modeled, with the variables that have them."""
