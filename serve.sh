#!/bin/bash
# vLLM, written for release 0.11 (2025-10): 8 processors
# admission: 'mean', not 'reserve'
# prefill_graphs: false, not true
CHECKPOINT=${1:?name or folder of the checkpoint}

vllm serve "$CHECKPOINT" \
    --tensor-parallel-size 8 \
    --max-num-batched-tokens 8192 \
    --max-num-seqs 162 \
    --gpu-memory-utilization 0.8759674
