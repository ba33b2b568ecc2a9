#!/usr/bin/env bash
# Source: SemiAnalysisAI/InferenceX, benchmarks/70b_fp8_h200_slurm.sh, 2025 (409e9a4); settings only.
cat > config.yaml << EOF
kv-cache-dtype: fp8
async-scheduling: true
no-enable-prefix-caching: true
max-num-batched-tokens: 8192
max-model-len: $CALCULATED_MAX_MODEL_LEN
EOF

SERVER_LOG=$(mktemp /tmp/server-XXXXXX.log)
PORT=$(( 8888 + $PORT_OFFSET ))

PYTHONNOUSERSITE=1 vllm serve $MODEL --host 0.0.0.0 --port $PORT --config config.yaml \
 --gpu-memory-utilization 0.9 --tensor-parallel-size $TP --max-num-seqs $CONC  \
 --disable-log-requests > $SERVER_LOG 2>&1 &
