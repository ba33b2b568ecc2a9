"""Assumptions of estimates and costs that they leave out, for all reports."""

from collections.abc import Sequence

EDITIONS = {
    "sc23": "Edition sc23 is the published model (Isaev et al., SC'23, doi:10.1145/3581784.3607102), its "
    "oddities included; validation/editions.md lists them with their effect.",
    "corrected": "Edition corrected is the published model with its defects fixed, each listed with its effect in "
    "validation/editions.md, and with features that it lacks: grouped key/value heads, gated MLPs, other norms, "
    "sliding windows, flash attention, latent attention, linear attention, experts, embedding, LM head and loss.",
}
"""One sentence on each edition."""

_ITERATION = (
    "The iteration time is the time of the most loaded processor: the pipeline stage with the most blocks, in a steady "
    "one-forward-one-backward (1F1B) schedule; the pipeline bubble is part of it."
)
_SCHEDULED = (
    "The iteration time is the time of the most loaded processor, in the pipeline schedule and layout of the execution "
    "(by default 1F1B with equal stages); the pipeline bubble is part of it."
)
_BLOCKS = (
    "The estimate includes the transformer blocks: their matrix products, attention, norms, activations, dropout, "
    "residuals, optimizer step, and the traffic of tensor, pipeline and data parallelism and of offloading."
)
_TENSORS = "Memory is the sum of tensors: weights, gradients, optimizer state, activations."
_MEMORY = (
    f"{_TENSORS} The framework, communication buffers and allocator fragmentation are not included."
)
_FAILURES = "Failures, stragglers, restarts and jitter are not modeled."
_CURVES = (
    "The speed of operations follows the efficiency curves of the system file; the notes on the systems say if "
    "these are measured or vendor figures."
)

ASSUMPTIONS = {
    "sc23": (
        _ITERATION,
        _BLOCKS,
        "Not included in time or memory: embeddings, the LM head and the loss, biases, data loading, "
        "evaluation, writing checkpoints, and the gaps between kernels.",
        _MEMORY,
        _FAILURES,
        "Each kind of traffic has its network to itself; a collective takes latency plus its bytes over the achieved "
        "bandwidth, regardless of concurrent traffic.",
        _CURVES,
    ),
    "corrected": (
        _SCHEDULED,
        _BLOCKS,
        "Embedding, LM head and loss count if the model states a vocabulary, in the first and the last stage: "
        "the slower stage sets the time, the fuller one the memory. Without a vocabulary they are left out.",
        "Dense models have average blocks: if some blocks have a sliding window, every block has the average number of "
        "keys. In models with experts or linear attention, each kind of block counts on its own stages.",
        "Experts get equally many rows; with moe_imbalance_percent, the busiest processor has more, "
        "and the others wait for it.",
        "States of linear attention take the longer of memory time and arithmetic time, at a share of the matrix "
        "engine's peak: 0.05, as measured for prompts of the gated delta rule, if the system states none "
        "(ext.linear_efficiency).",
        "Without graphs of whole iterations, the host waits in each block with experts for the numbers of rows, unless "
        "these are fixed by a capacity.",
        "With context parallelism, only a ring hides traffic, behind attention of the same step. Packed documents "
        "count with the sum of their squared lengths (packed_percent), and all ranks wait for the slowest "
        "(pack_imbalance_percent).",
        "8-bit and 4-bit recipes convert operands in separate passes, unless the previous kernel does so. "
        "Utilization is relative to the peak of the recipe's type. Effects of fewer bits on the loss are not modeled.",
        "Not included in time or memory: data loading, evaluation, writing checkpoints, and the gaps between kernels.",
        "MFU is the matrix arithmetic of the model over the peak of the matrix engine: without recomputation, with LM "
        "head and full attention (arXiv 2204.02311, appendix B), within each document if sequences are packed. "
        "The causal figure counts only the tokens that a token attends to. HFU counts executed arithmetic: with "
        "recomputation, and masked attention only if the kernel computes it.",
        f"{_TENSORS} Gathered weights and gradients being reduced count too if zero_stage selects a form of sharding "
        "(ZeRO, FSDP). "
        "CUDA context, libraries, communicators and allocator fragments count as the system states them "
        "(ext.memory), or the execution (mem_reserved_mib, mem_fragments_percent).",
        _FAILURES,
        "The prediction interval of the time is based on measured training steps (validation/runs.csv): it should hold "
        "90 % of the steps of an unseen source. Numbers are rounded accordingly; memory has no interval. Two plans of "
        "one model on one system share the errors of the common parts of their times: only the differing parts "
        "are compared.",
        "A collective takes latency, once or in every step of its ring (as the execution states), plus its bytes over "
        "the achieved bandwidth; data parallelism overlaps only with work that leaves its network and memory free.",
        _CURVES,
    ),
}
"""Assumptions of each edition, one sentence each."""


def assumptions(editions: Sequence[str]) -> list[str]:
    """Return the assumptions of some editions; an assumption that not all share names its edition."""
    result = [EDITIONS[edition] for edition in editions]
    for text in dict.fromkeys(text for edition in editions for text in ASSUMPTIONS[edition]):
        own = [edition for edition in editions if text in ASSUMPTIONS[edition]]
        result.append(text if len(own) == len(editions) else f"Edition {own[0]}: {text}")
    return result
