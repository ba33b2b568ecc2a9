# Source: vllm-project/recipes, Qwen/Qwen3-Coder-480B-A35B.md, 2025 (0205f53): 8 H200, 16 bits.
vllm serve Qwen/Qwen3-Coder-480B-A35B-Instruct \
  --tensor-parallel-size 8 \
  --max-model-len 32000 \
  --enable-auto-tool-choice \
  --tool-call-parser qwen3_coder
