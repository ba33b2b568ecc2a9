#!/bin/bash
# Llama 3 8B on 64 processors with Megatron-LM, as a team may run it today.
TP=${TP:-4}
GPUS_PER_NODE=8
NUM_NODES=8

MODEL_ARGS=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336
    --num-attention-heads 32 --group-query-attention --num-query-groups 8
    --seq-length 8192 --max-position-embeddings 8192
    --position-embedding-type rope --rotary-base 500000
    --normalization RMSNorm --swiglu --disable-bias-linear
    --attention-dropout 0.0 --hidden-dropout 0.0
    --untie-embeddings-and-output-weights --vocab-size 128256
)
PLAN_ARGS=(
    --tensor-model-parallel-size $TP --sequence-parallel
    --pipeline-model-parallel-size 2
    --micro-batch-size 1 --global-batch-size 256
    --use-distributed-optimizer --overlap-grad-reduce
    --bf16 --no-masked-softmax-fusion --manual-gc
)
if [ "$TP" -gt 1 ]; then
    export CUDA_DEVICE_MAX_CONNECTIONS=1
fi
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODES pretrain_gpt.py \
    "${MODEL_ARGS[@]}" "${PLAN_ARGS[@]}" \
    --lr 3e-4 --min-lr 3e-5 --lr-decay-style cosine --train-iters 500000 \
    --tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Meta-Llama-3-8B \
    --data-path "$DATA" --split 99,1,0 --save-interval 1000 --log-interval 10
