"""Megatron-LM: flags without effect on the time and memory of a step, flags that are not modelled, other spellings.

Patterns are those of file names: ``*`` stands for any letters. Names of older releases and of forks are among them:
Megatron-DeepSpeed, Pai-Megatron-Patch, ROCm.
"""

SPELLINGS = {
    "--use-custom-fsdp": "--use-megatron-fsdp",
    "--fp8": "--fp8-format",
    "--fp4": "--fp4-format",
    "--tp-size": "--tensor-model-parallel-size",
    "--pp-size": "--pipeline-model-parallel-size",
    "--moe-expert-parallel-size": "--expert-model-parallel-size",
    "--moe-train-capacity-factor": "--moe-expert-capacity-factor",
    "--max-length": "--seq-length",
    "--qk-nope-head-dim": "--qk-head-dim",
    "--qk-rope-head-dim": "--qk-pos-emb-head-dim",
    "--checkpoint-num-layers": "--activations-checkpoint-num-layers",
}
"""Other names of flags, of older releases and forks."""

NO_EFFECT = """
    # rates of learning, and seeds
    --lr --lr-* --min-lr --decoupled-* --weight-decay* --start-weight-decay --end-weight-decay --adam-* --muon-*
    --override-* --use-checkpoint-* --init-method* --seed --loss-scale* --initial-loss-scale --min-loss-scale
    --hysteresis --data-parallel-random-init --te-rng-tracker --inference-rng-tracker --calculate-per-token-loss
    --mtp-loss-scaling-factor --warmup --embedding-init* --no-weight-decay-cond-type --warmup-*
    --apply-wd-to-qk-layernorm --use-cpu-init* --perform-initialization --init-model-with-meta-device
    # data and tokenizers
    --data-path --data-args-path --data-cache-path --data-impl --dataset* --split --train-data-path
    --valid-data-path --test-data-path --per-split-data-args-path --train-weighted-split-paths*
    --valid-weighted-split-paths* --num-dataset-builder* --mock-data --vocab-file --merge-file --vocab-extra-ids
    --tokenizer-* --patch-tokenizer-type --extra-vocab-size --tiktoken-* --null-tokenizer* --dataloader-type
    --num-workers --no-mmap-bin-files --no-create-attention-mask* --eod-mask-loss --mask-* --short-seq-prob
    --data-sharding --train-mode --max-padding-length --sft --bert-* --titles-data-path --mmap-bin-files
    --full-validation --multiple-validation-sets --object-storage-cache-path --trust-remote-code
    --force-system-prompt
    # checkpoints and restarts
    --save --save-* --load --load-* --no-save-* --no-load-* --ckpt-* --dist-ckpt-* --use-dist-ckpt
    --use-persistent-ckpt-worker --finetune --auto-detect-ckpt-format --non-persistent-* --async-* --exit-*
    --exit-on* --pretrained-checkpoint --ckpt-format --strict-fsdp-dtensor-load --universal-*
    --use-mp-args-from-checkpoint-args --use-tokenizer-model-from-checkpoint-args --inprocess-restart
    --enable-ft-package --replication* --no-strict* --rerun-mode --error-injection-* --adlr-autoresume*
    --kill-switch-path
    # logs, profiles, evaluation
    --log-* --logging-level --tensorboard-* --wandb-* --timing-log-* --profile* --eval-* --skip-train
    --test-mode --enable-one-logger --no-one-logger --one-logger-* --use-pytorch-profiler*
    --record-memory-history --memory-snapshot* --manual-gc --manual-gc-interval --manual-gc-eval --report-*
    --no-barrier-with-level-1-timing --barrier-with-L1-time --codecarbon* --app-tag-run-* --no-log-*
    --disable-straggler-on-startup --straggler-* --moe-per-layer-logging --print-* --throughput*
    --no-pipeline-parallel-timers
    # starting
    --distributed-timeout-* --distributed-backend --local-rank --lazy-mpu-init --use-mcore-models
    --use-legacy-models --enable-experimental --spec --standalone-embedding-stage --model-name
    --no-initialization --yaml-cfg --check-for-nan* --no-check-for-nan* --check-weight-hash-* --deepspeed-config
    --no-pipeline-parallel --DDP-impl --use-gloo-process-groups --disable-gloo-process-groups
    --enable-gloo-process-groups --config-logger-dir --abort-on-unmet-fused-kernel-constraints
    --high-priority-stream-groups --disable-msc --no-use-tokenizer-model-from-checkpoint-args --seq-len-*
    # shapes that cost the same
    --rotary-base --rotary-scaling-factor --rotary-seq-len-* --use-rope-scaling --rope-scaling-factor --mscale*
    --beta-fast --beta-slow --rotary-interleaved --original-max-position-embeddings --yarn-* --no-rope-freq
    --rope-type --norm-epsilon --layernorm-epsilon --apply-layernorm-1p --layernorm-zero*
    --apply-query-key-layer-scaling --no-query-key-layer-scaling --attention-softmax-in-fp32 --softmax-scale
    --cross-entropy-fusion-impl --moe-aux-loss-coeff --moe-z-loss-coeff --moe-router-load-balancing-type
    --moe-router-score-function --moe-router-topk-scaling-factor --moe-router-bias-* --moe-router-pre-softmax
    --moe-router-force-load-balancing --moe-input-jitter-eps --moe-token-drop-policy --moe-expert-score-function
    --moe-use-legacy-grouped-gemm --moe-aux-loss-free* --moe-router-force-biased --moe-upcycling*
    --norm-topk-prob --moe-loss-coeff --moe-eval-capacity-factor --moe-min-capacity --create-moe-param-group
    --valid-num-workers --max-epochs --no-load-balancing* --moe-router-aux-loss* --qk-clip*
    --attention-dropout-*
"""
"""Flags that change neither time nor memory of a step, or not by anything that is estimated."""

NOT_MODELLED = {
    "operators that a fused kernel joins here": (
        "--no-bias-gelu-fusion --no-bias-swiglu-fusion --no-bias-dropout-fusion --bias-*-fusion "
        "--no-rope-fusion --apply-rope-fusion --mla-down-proj-fusion --no-masked-softmax-fusion "
        "--masked-softmax-fusion --gradient-reduce-div-fusion --no-gradient-reduce-div-fusion"
    ),
    "another kernel of the same operator": (
        "--no-persist-layer-norm --use-fused-* --use-turbo-* --use-te-* --te-* "
        "--use-transformer-engine* --moe-permute-fusion --moe-router-fusion "
        "--use-torch-optimizer-for-cpu-offload"
    ),
    "memory of norms": "--memory-efficient-layer-norm",
    "types of single operators": (
        "--moe-router-dtype --moe-apply-probs-on-input --accumulate-bf16* --fp8-margin --fp8-interval"
    ),
    "rows that fill experts up": (
        "--moe-router-padding-for-* --moe-router-padding* --moe-pad-experts*"
    ),
    "multiprocessors of the exchange of rows": "--moe-deepep-num-sms --moe-hybridep-num-sms",
    "blocks of experts that are computed again": "--moe-layer-recompute",
    "experts over more ranks": "--moe-extended-tp",
    "shared experts, by their number": "--enable-shared-expert --num-shared-experts",
    "waiting of ranks with experts": "--moe-ep-barrier",
    "a residual stream of 4 bytes": "--fp32-residual-connection",
    "the type of the optimizer's gradients": "--main-grads-dtype",
    "the type of master weights": "--main-params-dtype --store-param-remainders",
    "reductions of largest values of 8-bit operands": "--fp8-amax-* --tp-only-amax-red",
    "products of gradients of weights in 16 bits": "--fp8-wgrad --no-fp8-wgrad",
    "attention in 8 bits": "--fp8-dot-product-attention --fp8-multi-head-attention",
    "a head in 8 bits": "--fp8-output-proj",
    "a recipe of its own": "--fp8-quantizer-factory --fp4-quantizer-factory",
    "weights that are gathered in 4 bits": "--fp4-param*",
    "copies of weights that stay": "--keep-fp8-*",
    "blocks in 16 bits under a recipe": "--first-last-layers-bf16 --num-layers-at-*-in-bf16",
    "memory of gathered weights": "--reuse-grad-buf-for-mxfp8-param-ag",
    "when weights are gathered": "--delay-param-gather",
    "when weights are gathered, or gradients reduced": "--align-* --no-align-*",
    "weights gathered beside the step": "--overlap-param-gather-with-optimizer-step",
    "gradients of the head after the pipeline": (
        "--defer-embedding-wgrad-compute --wgrad-deferral-limit"
    ),
    "transfers beside filling and draining": "--overlap-p2p-communication-warmup-flush",
    "another order of backward passes": "--overlap-dispatch-backward*",
    "another order of microbatches": "--microbatch-group-size-per-virtual-pipeline-stage",
    "microbatches that recompute less": "--num-microbatches-with-partial-activation-checkpoints",
    "activations that are split over tensor ranks": (
        "--distribute-saved-activations --partition-activations"
    ),
    "recomputed inputs on the host": "--checkpoint-in-cpu",
    "waiting between blocks": "--synchronize-each-layer",
    "memory of recomputed inputs": "--contigious-checkpointing",
    "what is offloaded of it": "--cpu-offloading-* --no-cpu-offloading-*",
    "single modules on the host": "--offload-* --fine-grained-*",
    "what of the optimizer is offloaded": "--optimizer-offload-*",
    "copies beside the step on the host": "--overlap-cpu-optimizer-*",
    "copies to and from the host": "--no-pin-cpu-* --pin-cpu-*",
    "buffers of collectives": "--use-nccl-ub",
    "buffers of gathered weights": "--fsdp-double-buffer --fsdp-*",
    "how much is gathered together": "--suggested-communication-unit-size",
    "where gradients are averaged": "--ddp-average-in-collective",
    "sizes of buckets": "--ddp-pad-buckets* --ddp-num-buckets",
    "settings of collectives": "--nccl-*",
    "collectives in switches": "--use-sharp --sharp-*",
    "what replicas of groups share": "--outer-dp-sharding-strategy",
    "which products are cut": "--tp-comm-* --disable-tp-comm-*",
    "how stages exchange": (
        "--use-ring-exchange-p2p --no-scatter-gather-tensors-in-pipeline --no-pipeline-*"
    ),
    "parts of a step as graphs": "--cuda-graph-*",
    "memory that is given back in a step": "--empty-unused-memory-level",
    "kernels that always give the same bits": "--deterministic-mode --batch-invariant-mode",
    "documents that do not see each other": "--packing --reset-position-ids --reset-attention-mask",
    "sequences of several lengths": "--variable-seq-lengths",
    "steps of the ramp of the batch": "--decrease-batch-size-if-needed",
    "an encoder": "--encoder-*",
    "a decoder": "--decoder-*",
    "blocks that are not alike": "--heterogeneous-*",
    "another attention": "--linear-*",
    "sequences that grow": "--curriculum-learning*",
    "what replicas share": "--use-distributed-optimizer-*",
    "the step on the host": "--cpu-optimizer*",
    "an attention of its own": "--experimental-*",
    "the order of norms": "--apply-residual-connection-post-layernorm",
    "how parts of sequences are exchanged": "--context-parallel-* --hybrid-context-parallel",
    "types of the optimizer's state": "--use-precision-aware-optimizer-*",
}
"""What flags change of time or memory of a step, but not here, and these flags."""
