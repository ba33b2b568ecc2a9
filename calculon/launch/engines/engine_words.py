"""Options of engines without effect on time and memory, and options whose effect is not modelled."""

from collections.abc import Mapping

_BOTH = """
    --host --port --api-key* --ssl-* --uvicorn-* --root-path --log-* --served-model-name --trust-remote-code
    --revision --code-revision --seed --tokenizer* --download-dir --load-format --model-loader-extra-config
    --chat-template* --tool-call-parser --reasoning-parser* --enable-metrics --stream-interval --config
    --config-format --hf-* --allowed-* --api-server-* --no-enable-log-* --enable-log-* --disable-log-*
    --decode-log-interval
"""

_SPECULATION = "tokens that a draft guesses: calculon serve --set draft=... states them"
_KERNELS = "the kernels of the engine: those of the system file were measured"
_HOST = "the time of the host between passes: that of the system file counts"
_GRAPHS = "which passes are graphs: all or none are"

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
"""Options of vLLM without effect. Of prefixes that the cache has, the workload says the share: ``prefix_hit``."""

VLLM_NOT_MODELLED: Mapping[str, str] = {
    _SPECULATION: "--speculative-* --spec-*",
    "pools of prefill and decoding apart, or a cache on the host": "--kv-transfer-config",
    "which kernels are fused, and " + _GRAPHS: "--compilation-config",
    _GRAPHS: "--cudagraph-* --cuda-graph-sizes --max-cudagraph-*",
    _HOST: "--async-scheduling --no-async-scheduling --num-scheduler-steps --multi-step-*",
    _KERNELS: "--attention-backend --attention-config* --all2all-backend --moe-backend",
    "reductions by the library instead of one kernel": "--disable-custom-all-reduce",
    "a cache on the host": "--swap-space --kv-offloading-*",
    "weights on the host": "--cpu-offload-gb",
    "blocks of the cache, whatever memory has room for": "--num-gpu-blocks-override",
    "bytes of the cache, whatever memory has room for": "--kv-cache-memory*",
    "copies of experts that are asked for often": "--enable-eplb --eplb-*",
    "exchanges of experts behind the other half of a batch": "--dbo-*",
    "a cache that ranks share by tokens": "--decode-context-parallel-size -dcp",
    "adapters beside the weights": "--enable-lora --lora-* --max-lora*",
    "how prompts are cut": "--long-prefill-token-threshold",
    "how many prompts are cut at a time": "--max-num-partial-prefills",
    "the order of requests": "--scheduling-policy --scheduler-*",
    "scales of the cache": "--calculate-kv-scales",
    "parts of the model that see pictures are left out": "--language-model-only",
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
    "pools of prefill and decoding apart": "--disaggregation-*",
    _GRAPHS: "--cuda-graph-* --disable-cuda-graph-padding",
    "which kernels are fused": "--enable-torch-compile --torch-compile-*",
    _KERNELS: (
        "--attention-backend --prefill-attention-backend --decode-attention-backend "
        "--moe-runner-backend --moe-a2a-backend --fp8-gemm-* --sampling-backend --enable-flashinfer-* "
        "--enable-triton-* --enable-symm-mem --enable-mscclpp --deepep-mode"
    ),
    "reductions by the library instead of one kernel": "--disable-custom-all-reduce",
    _HOST: "--disable-overlap-schedule --num-continuous-decode-steps --scheduler-recv-interval",
    "exchanges of experts behind other work": "--enable-single-batch-overlap",
    "copies of experts that are asked for often": "--enable-eplb",
    "the head of each attention rank alone": "--enable-dp-lm-head",
    "MLPs without experts, over fewer ranks": "--moe-dense-tp-size",
    "tokens of the cache, whatever memory has room for": "--max-total-tokens",
    "how early requests are admitted": "--schedule-conservativeness",
    "how the cache is split between windows and whole sequences": "--swa-full-tokens-ratio",
    "a cache on the host": "--hicache-*",
    "weights on the host": "--cpu-offload-gb",
    "adapters beside the weights": "--enable-lora --lora-* --max-lora*",
    "logits of 32 bits": "--enable-fp32-lm-head",
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
    _GRAPHS: "cuda_graph_config.* use_cuda_graph",
    _KERNELS: "moe_config.* attn_backend allreduce_strategy",
    "which kernels are fused": "torch_compile_config*",
    _HOST: "disable_overlap_scheduler",
    "how long requests wait for others": "batch_wait_* batching_wait_iters",
    "how requests are spread over attention ranks": "attention_dp_config.*",
    "pools of prefill and decoding apart": "cache_transceiver_config.*",
    "a cache on the host": "kv_cache_config.host_cache_size",
    "tokens of the cache, whatever memory has room for": "kv_cache_config.max_tokens",
    "windows other than those of the model": "kv_cache_config.max_attention_window*",
    "ranks of an expert, which follow from tensor and expert parallelism": (
        "moe_tensor_parallel_size"
    ),
    "experts over groups of nodes": "moe_cluster_parallel_size",
    "parts of a sequence on ranks": "context_parallel_size",
    "attention to some of the tokens": "sparse_attention_config.*",
    "adapters beside the weights": "lora_config.*",
    "the order of requests": "scheduler_config.*",
}
