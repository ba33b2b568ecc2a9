#!/bin/bash
# Source: NVIDIA/Megatron-LM, examples/academic_paper_scripts/sc21/run_figure_13.sh, CONFIG.sh and SBATCH.sh, 2021: runs
# of the SC'21 paper; settings only.
#SBATCH --ntasks-per-node=8
#SBATCH --nodes=8

# Pipeline-parallel size options = [2, 4, 8, 16, 32].
PP=8
GBS=32
TP=$((64/PP))

MBS=1
NLS=32
HS=20480
NAH=128
DDP=local
MEGATRON_EXTRA_PARAMS="--activations-checkpoint-method uniform "
export MEGATRON_PARAMS=" ${MEGATRON_EXTRA_PARAMS} \
	--tensor-model-parallel-size ${TP} \
	--pipeline-model-parallel-size ${PP} \
	--micro-batch-size ${MBS} \
	--global-batch-size ${GBS} \
        --num-layers ${NLS} \
        --hidden-size ${HS} \
        --num-attention-heads ${NAH} \
	--DDP-impl ${DDP} \
	--data-path ${MEGATRON_DATA} \
	--vocab-file ${BPE_VOCAB_FILE} \
	--merge-file ${BPE_MERGE_FILE} \
        --log-interval 5 \
        --seq-length 2048 \
        --max-position-embeddings 2048 \
        --train-iters 500 \
        --lr-decay-iters 320 \
        --lr 0.0001 \
	--min-lr 0.00001 \
        --lr-decay-style cosine \
        --lr-warmup-fraction 0.01 \
        --split 969,30,1 \
        --eval-iters 100 \
        --eval-interval 1000 \
        --clip-grad 1.0 \
        --fp16 \
	--loss-scale 8192 "
srun -l --output=%x.log sh -c "python -u pretrain_gpt.py ${MEGATRON_PARAMS}"
