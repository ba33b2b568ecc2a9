"""Engine options without effect on time and memory, and options whose effect is not modeled."""

from collections.abc import Mapping

_BOTH = """
    --host --port --api-key* --ssl-* --uvicorn-* --root-path --log-* --served-model-name --trust-remote-code
    --revision --code-revision --seed --tokenizer* --download-dir --load-format --model-loader-extra-config
    --chat-template* --tool-call-parser --reasoning-parser* --enable-metrics --stream-interval --config
    --config-format --hf-* --allowed-* --api-server-* --no-enable-log-* --enable-log-* --disable-log-*
    --decode-log-interval
"""

_SPECULATION = "speculative decoding: set it with calculon serve --set draft=..."
_KERNELS = "choice of kernels: the system file's measured kernels are used"
_HOST = "host time between passes: the system file's value is used"
_GRAPHS = "choice of passes that run as CUDA graphs: all or none are modeled"

VLLM_NO_EFFECT = f"""
    {_BOTH}
    --max-model-len --max-logprobs --enable-auto-tool-choice --structured-outputs-* --enable-prefix-caching
    --no-enable-prefix-caching --prefix-caching-hash-algo --generation-config --override-generation-config
    --middleware --return-* --distributed-executor-backend --nnodes --node-rank --master-* --headless
    --data-parallel-address --data-parallel-rpc-port --data-parallel-size-local --data-parallel-start-rank
    --data-parallel-rank --data-parallel-backend --data-parallel-hybrid-lb --data-parallel-external-lb --task
    --runner --model-impl --limit-mm-per-prompt --mm-* --use-v2-block-manager
    --optimization-level --enable-server-load-tracking --otlp-* --show-hidden-* --guided-decoding-*
    --enable-reasoning --worker-use-ray --engine-use-ray --max-seq-len-to-capture --disable-custom-all-reduce-*
"""
"""Options of vLLM without effect. The share of cached prefixes (prefix caching) is in the workload: ``prefix_hit``."""

VLLM_NOT_MODELLED: Mapping[str, str] = {
    _SPECULATION: "--speculative-* --spec-*",
    "disaggregated prefill and decode, or KV cache in host memory": "--kv-transfer-config",
    "kernel fusion, and " + _GRAPHS: "--compilation-config",
    _GRAPHS: "--cudagraph-* --cuda-graph-sizes",
    _HOST: "--num-scheduler-steps --multi-step-*",
    _KERNELS: "--attention-backend --attention-config* --all2all-backend --moe-backend",
    "all-reduce by NCCL instead of a custom kernel": "--disable-custom-all-reduce",
    "KV cache in host memory": "--swap-space --kv-offloading-*",
    "weights in host memory": "--cpu-offload-gb",
    "number of KV cache blocks, independent of free memory": "--num-gpu-blocks-override",
    "size of the KV cache, independent of free memory": "--kv-cache-memory*",
    "replicas of frequently used experts": "--enable-eplb --eplb-*",
    "expert communication that overlaps with the other half of a batch": "--dbo-*",
    "KV cache sharded by tokens over ranks (decode context parallelism)": "--decode-context-parallel-size -dcp",
    "LoRA adapters": "--enable-lora --lora-* --max-lora*",
    "chunk sizes of long prompts": "--long-prefill-token-threshold",
    "number of chunked prompts in flight": "--max-num-partial-prefills",
    "scheduling order of requests": "--scheduling-policy --scheduler-*",
    "scales of a quantized KV cache": "--calculate-kv-scales",
    "multimodal parts of the model are disabled": "--language-model-only",
}

SGLANG_NO_EFFECT = f"""
    {_BOTH}
    --context-length --random-seed --skip-server-warmup --watchdog-timeout --disable-radix-cache --disable-radix
    --radix-eviction-policy --schedule-policy --dist-init-addr --nccl-init-addr --nccl-port --nnodes --node-rank
    --dist-timeout --enable-p2p-check --load-balance-method --admin-api-key --base-gpu-id --gpu-id-step --device
    --model-impl --warmups --grammar-backend --sampling-* --enable-cache-report --max-queued-requests
    --constrained-json-* --enable-request-time-stats-logging --crash-dump-folder --show-time-cost
    --enable-multimodal --tool-server --prefill-max-requests --max-prefill-tokens --mem-fraction --bucket-*
    --collect-* --file-storage-path --gc-*
"""

SGLANG_NOT_MODELLED: Mapping[str, str] = {
    _SPECULATION: "--speculative-*",
    "disaggregated prefill and decode": "--disaggregation-*",
    _GRAPHS: "--cuda-graph-bs --disable-cuda-graph-padding",
    "kernel fusion": "--enable-torch-compile --torch-compile-*",
    _KERNELS: (
        "--attention-backend --prefill-attention-backend --decode-attention-backend "
        "--moe-runner-backend --moe-a2a-backend --fp8-gemm-* --sampling-backend --enable-flashinfer-* "
        "--enable-triton-* --enable-symm-mem --enable-mscclpp --deepep-mode"
    ),
    "all-reduce by NCCL instead of a custom kernel": "--disable-custom-all-reduce",
    _HOST: "--num-continuous-decode-steps --scheduler-recv-interval",
    "expert communication that overlaps with other work": "--enable-single-batch-overlap",
    "replicas of frequently used experts": "--enable-eplb",
    "a separate LM head on each attention rank": "--enable-dp-lm-head",
    "dense MLPs sharded over fewer ranks": "--moe-dense-tp-size",
    "number of tokens in the KV cache, independent of free memory": "--max-total-tokens",
    "admission of requests": "--schedule-conservativeness",
    "split of the KV cache between sliding-window and full attention": "--swa-full-tokens-ratio",
    "KV cache in host memory": "--hicache-*",
    "weights in host memory": "--cpu-offload-gb",
    "LoRA adapters": "--enable-lora --lora-* --max-lora*",
    "32-bit logits": "--enable-fp32-lm-head",
}

TENSORRT_LLM_NO_EFFECT = """
    host port backend trust_remote_code tokenizer* log_level revision max_seq_len max_input_len max_beam_width
    reasoning_parser tool_parser config extra_llm_api_options extra_llm_options print_iter_log stream_interval
    num_postprocess_workers enable_iter_perf_stats enable_iter_req_stats metadata_*
    kv_cache_config.enable_block_reuse kv_cache_config.enable_partial_reuse gpus_per_node
    kv_cache_config.event_buffer_max_size server_role cluster_size postproc_* return_perf_metrics
    perf_metrics_max_requests chat_template hf_revision kv_cache_config.copy_on_partial_reuse served_model_name
    skip_tokenizer_init
"""

TENSORRT_LLM_NOT_MODELLED: Mapping[str, str] = {
    _SPECULATION: "speculative_config.* max_draft_len",
    _GRAPHS: "cuda_graph_config.enable_padding use_cuda_graph",
    _KERNELS: "moe_config.* attn_backend allreduce_strategy",
    "kernel fusion": "torch_compile_config*",
    "waiting time to fill a batch": "batch_wait_* batching_wait_iters",
    "distribution of requests over attention ranks": "attention_dp_config.*",
    "disaggregated prefill and decode": "cache_transceiver_config.*",
    "KV cache in host memory": "kv_cache_config.host_cache_size",
    "number of tokens in the KV cache, independent of free memory": "kv_cache_config.max_tokens",
    "attention windows that differ from the model's": "kv_cache_config.max_attention_window*",
    "tensor parallelism of experts, which follows from tensor and expert parallelism": (
        "moe_tensor_parallel_size"
    ),
    "expert parallelism over clusters of nodes": "moe_cluster_parallel_size",
    "context parallelism": "context_parallel_size",
    "sparse attention": "sparse_attention_config.*",
    "LoRA adapters": "lora_config.*",
    "scheduling order of requests": "scheduler_config.*",
}
