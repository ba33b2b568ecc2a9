# Source: vllm-project/recipes, Qwen/Qwen3-Coder-480B-A35B.md, 2025 (0205f53): 8 H200, 8 bits.
VLLM_USE_DEEP_GEMM=1 vllm serve Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8 \
  --enable-expert-parallel \
  --data-parallel-size 8 \
  --enable-auto-tool-choice \
  --tool-call-parser qwen3_coder
