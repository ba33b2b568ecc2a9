# Source: vllm-project/recipes, Llama/Llama3.3-70B.md, 2025-11 (07a4163): the branch of Hopper, with its configuration.
cat > Llama3.3_Hopper.yaml << 'EOF'
kv-cache-dtype: fp8
async-scheduling: true
no-enable-prefix-caching: true
max-num-batched-tokens: 8192
EOF
DTYPE="FP8"
YAML_CONFIG="Llama3.3_Hopper.yaml"

# Launch the vLLM server
vllm serve nvidia/Llama-3.3-70B-Instruct-$DTYPE \
  --config ${YAML_CONFIG} \
  --tensor-parallel-size 1 \
  --max-num-seqs 512 \
  --max-model-len 10240 &
