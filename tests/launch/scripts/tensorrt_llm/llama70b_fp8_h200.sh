#!/usr/bin/env bash
# Source: SemiAnalysisAI/InferenceX, benchmarks/70b_fp8_h200_trt_slurm.sh, 2025 (73ef922); settings only.
if [[ "$ISL" == "1024" && "$OSL" == "1024" && ${TP} -lt 8 ]]; then
cat > llama-config.yml << 'EOF'
batch_wait_max_tokens_ratio: 0.9
batch_wait_timeout_iters: 20
cuda_graph_config: 
  enable_padding: true 
  max_batch_size: 1024 
kv_cache_config: 
  dtype: fp8 
  enable_block_reuse: false 
stream_interval: 10
EOF
else 
cat > llama-config.yml << 'EOF'
cuda_graph_config: 
  enable_padding: true 
  max_batch_size: 1024 
kv_cache_config: 
  dtype: fp8 
  enable_block_reuse: false 
stream_interval: 10
EOF
fi

mpirun -n 1 --oversubscribe --allow-run-as-root trtllm-serve $MODEL --tp_size $TP --trust_remote_code --max_seq_len $MAX_MODEL_LEN --max_num_tokens $MAX_MODEL_LEN --num_postprocess_workers 2 --extra_llm_api_options llama-config.yml --port $PORT > $SERVER_LOG 2>&1 &
