#!/usr/bin/env bash
# Source: SemiAnalysisAI/InferenceX, benchmarks/gptoss_fp4_h100_slurm.sh, 2025 (2e46dba); settings only.
cat > config.yaml << EOF
async-scheduling: true
no-enable-prefix-caching: true
max-cudagraph-capture-size: 2048
max-num-batched-tokens: 8192
max-model-len: 10240
EOF

SERVER_LOG=$(mktemp /tmp/server-XXXXXX.log)
export VLLM_MXFP4_USE_MARLIN=1

set -x
PYTHONNOUSERSITE=1 vllm serve $MODEL --host=0.0.0.0 --port=$PORT \
--config config.yaml \
--gpu-memory-utilization=0.9 \
--tensor-parallel-size=$TP \
--max-num-seqs=$CONC  \
 > $SERVER_LOG 2>&1 &
