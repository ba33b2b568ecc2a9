"""Megatron-LM: flags without effect on the time and memory of a step, flags that are not modeled, and aliases.

Patterns are glob patterns: ``*`` matches any text. Names of older releases and forks are included: Megatron-DeepSpeed,
Pai-Megatron-Patch, ROCm.
"""

ALIASES = {
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
"""Aliases of flags in older releases and forks."""

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
    --save --save-* --load --load-* --no-save-* --no-load-* --no-ckpt-* --ckpt-* --dist-ckpt-* --use-dist-ckpt
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
    --attention-dropout-* --apply-rope-fusion
"""
"""Flags without effect on the time and memory of a step, or without effect on any estimated quantity."""

NOT_MODELLED = {
    "operators that are modeled as fused": (
        "--no-bias-gelu-fusion --no-bias-swiglu-fusion --no-bias-dropout-fusion --bias-*-fusion "
        "--mla-down-proj-fusion --no-masked-softmax-fusion "
        "--masked-softmax-fusion --gradient-reduce-div-fusion --no-gradient-reduce-div-fusion"
    ),
    "a different kernel of the same operator": (
        "--no-persist-layer-norm --use-fused-* --use-turbo-* --use-te-* --te-* "
        "--use-transformer-engine* "
        "--use-torch-optimizer-for-cpu-offload"
    ),
    "memory of norms": "--memory-efficient-layer-norm",
    "number types of single operators": (
        "--moe-router-dtype --moe-apply-probs-on-input --accumulate-bf16* --fp8-margin --fp8-interval"
    ),
    "padding of expert inputs": (
        "--moe-router-padding-for-* --moe-router-padding* --moe-pad-experts*"
    ),
    "multiprocessors used by expert communication": "--moe-deepep-num-sms --moe-hybridep-num-sms",
    "recomputation of MoE blocks": "--moe-layer-recompute",
    "experts sharded over more ranks": "--moe-extended-tp",
    "number of shared experts": "--enable-shared-expert --num-shared-experts",
    "barriers between expert-parallel ranks": "--moe-ep-barrier",
    "a 32-bit residual stream": "--fp32-residual-connection",
    "type of the main gradients": "--main-grads-dtype",
    "type of the master weights": "--main-params-dtype --store-param-remainders",
    "reduction of amax values for 8-bit operands": "--fp8-amax-* --tp-only-amax-red",
    "16-bit weight-gradient products": "--fp8-wgrad --no-fp8-wgrad",
    "8-bit attention without conversions": "--fp8-multi-head-attention",
    "8-bit output projection": "--fp8-output-proj",
    "a custom precision recipe": "--fp8-quantizer-factory --fp4-quantizer-factory",
    "4-bit all-gather of weights": "--fp4-param*",
    "cached transposed copies of weights": "--keep-fp8-*",
    "16-bit blocks within a low-precision recipe": "--first-last-layers-bf16 --num-layers-at-*-in-bf16",
    "memory of gathered weights": "--reuse-grad-buf-for-mxfp8-param-ag",
    "timing of weight all-gathers": "--delay-param-gather",
    "timing of weight all-gathers or gradient reductions": "--align-* --no-align-*",
    "weight all-gathers that overlap with the optimizer step": "--overlap-param-gather-with-optimizer-step",
    "head gradients after the pipeline drain": (
        "--defer-embedding-wgrad-compute --wgrad-deferral-limit"
    ),
    "overlapped transfers during pipeline fill and drain": "--overlap-p2p-communication-warmup-flush",
    "a different order of backward passes": "--overlap-dispatch-backward*",
    "a different order of microbatches": "--microbatch-group-size-per-virtual-pipeline-stage",
    "recomputation that varies by microbatch": "--num-microbatches-with-partial-activation-checkpoints",
    "checkpoints sharded over tensor-parallel ranks": (
        "--distribute-saved-activations --partition-activations"
    ),
    "checkpoints in host memory": "--checkpoint-in-cpu",
    "synchronization between blocks": "--synchronize-each-layer",
    "memory layout of checkpoints": "--contigious-checkpointing",
    "choice of the offloaded activations": "--cpu-offloading-* --no-cpu-offloading-*",
    "offloading of single modules": "--offload-* --fine-grained-*",
    "choice of the offloaded optimizer state": "--optimizer-offload-*",
    "copies that overlap with a CPU optimizer step": "--overlap-cpu-optimizer-*",
    "speed of copies to and from the host": "--no-pin-cpu-* --pin-cpu-*",
    "registered buffers of collectives": "--use-nccl-ub",
    "buffers of gathered weights": "--fsdp-double-buffer --fsdp-*",
    "size of weight all-gathers": "--suggested-communication-unit-size",
    "averaging of gradients in the collective": "--ddp-average-in-collective",
    "sizes of buckets": "--ddp-pad-buckets* --ddp-num-buckets",
    "settings of collectives": "--nccl-*",
    "collectives in switches": "--use-sharp --sharp-*",
    "sharding over outer data-parallel groups": "--outer-dp-sharding-strategy",
    "choice of the overlapped products": "--tp-comm-* --disable-tp-comm-*",
    "pipeline communication method": (
        "--use-ring-exchange-p2p --no-scatter-gather-tensors-in-pipeline --no-pipeline-*"
    ),
    "CUDA graphs of parts of a step": "--cuda-graph-*",
    "memory that is freed during a step": "--empty-unused-memory-level",
    "deterministic kernels": "--deterministic-mode --batch-invariant-mode",
    "attention limited to documents": "--packing --reset-position-ids --reset-attention-mask",
    "variable sequence lengths": "--variable-seq-lengths",
    "increments of the batch ramp": "--decrease-batch-size-if-needed",
    "an encoder": "--encoder-*",
    "a decoder": "--decoder-*",
    "heterogeneous blocks": "--heterogeneous-*",
    "a different attention": "--linear-*",
    "growing sequence lengths": "--curriculum-learning*",
    "options of the distributed optimizer": "--use-distributed-optimizer-*",
    "the optimizer step on the CPU": "--cpu-optimizer*",
    "an experimental attention variant": "--experimental-*",
    "order of norms": "--apply-residual-connection-post-layernorm",
    "communication of context parallelism": "--context-parallel-* --hybrid-context-parallel",
    "types of the optimizer state": "--use-precision-aware-optimizer-*",
}
"""Effects on the time or memory of a step that are not modeled, with the flags that have them."""
