"""Assumptions of an estimate and costs that it leaves out, for every report."""

from collections.abc import Sequence

EDITIONS = {
    "sc23": "Edition sc23 is the published model (Isaev et al., SC'23, doi:10.1145/3581784.3607102), its "
    "oddities included; validation/editions.md lists them with their effect.",
    "corrected": "Edition corrected is the published model with its defects fixed, each listed with its effect in "
    "validation/editions.md, and with features that it lacks: grouped key/value heads, gated MLPs, other norms, "
    "sliding windows, flash attention, latent attention, linear attention, experts, embedding, LM head and loss.",
}
"""Each edition in a sentence."""

_ITERATION = (
    "The iteration time is that of the most loaded processor: the pipeline stage with the most blocks, in a steady "
    "one-forward-one-backward schedule, whose pipeline bubble is charged to it."
)
_SCHEDULED = (
    "The iteration time is that of the most loaded processor, in the pipeline schedule and layout that the execution "
    "states (one-forward-one-backward of equal stages by default), whose pipeline bubble is charged to it."
)
_BLOCKS = (
    "Counted are transformer blocks: their matrix products, attention, norms, activations, dropout, residuals, "
    "optimizer step, and the traffic of tensor, pipeline and data parallelism and of offloading."
)
_TENSORS = "Memory is the sum of tensors: weights, gradients, optimizer state, activations."
_MEMORY = f"{_TENSORS} The framework, communication buffers and fragmentation of the allocator come on top."
_FAILURES = "Nothing fails and nobody waits for a slow processor: stragglers, restarts and jitter are not modelled."
_CURVES = (
    "The speed of operations follows the efficiency curves of the system file; whether these are measured or vendor "
    "figures is said in the notes on the systems."
)

ASSUMPTIONS = {
    "sc23": (
        _ITERATION,
        _BLOCKS,
        "Not counted in time or memory: embeddings, the LM head and the loss, biases, data loading, "
        "evaluation, writing checkpoints, and the gaps between kernels.",
        _MEMORY,
        _FAILURES,
        "Each kind of traffic has its network to itself; a collective takes latency plus its bytes over the achieved "
        "bandwidth, whatever else is under way.",
        _CURVES,
    ),
    "corrected": (
        _SCHEDULED,
        _BLOCKS,
        "Embedding, LM head and loss count when the model states a vocabulary, in the first and the last stage: "
        "the slower of the two sets the time, the fuller one the memory. Without a vocabulary they are left out.",
        "Blocks of a dense model count as their mean: where some have a sliding window, each has the average number of "
        "keys. Of one with experts or linear attention, each kind of block counts on the stages where it is.",
        "Of a model with experts, each gets as many rows as any other, those of the busiest processor more by what "
        "moe_imbalance_percent says: for it the others wait.",
        "States of linear attention take the time of memory, or of their arithmetic at a share of the matrix engine's "
        "peak: 0.3, assumed at roofline level and not measured, where the system states none (ext.linear_efficiency).",
        "With context parallelism only a ring hides traffic, behind attention of the same step. Packed documents "
        "count by the sum of their squared lengths (packed_percent), and the others wait for the slowest rank as "
        "pack_imbalance_percent says.",
        "Recipes of products in 8 or 4 bits convert operands in passes of their own, where no kernel before them does. "
        "Shares of the peak are of the rate in the recipe's type. What fewer bits do to the loss is not modelled.",
        "Not counted in time or memory: data loading, evaluation, writing checkpoints, and the gaps between kernels.",
        "MFU is the matrix arithmetic of the model over the peak of the matrix engine: no recomputation, LM head "
        "included, attention counted in full (arXiv 2204.02311, appendix B), in packed sequences over each document. "
        "The causal figure counts only what a token attends to. HFU counts what is executed: recomputation too, masked "
        "attention only where the kernel computes it.",
        f"{_TENSORS} Where zero_stage states a form of data parallelism, weights that are gathered and gradients on "
        "their way count too. Context, libraries, communicators and fragments of the allocator count as the system "
        "states them (ext.memory), or the execution (mem_reserved_mib, mem_fragments_percent).",
        _FAILURES,
        "The interval of the time rests on measured training steps (validation/runs.csv): it is to hold 90 % of those "
        "of a source not seen. Numbers are rounded by it; memory has no interval. Two plans of one model on one system "
        "err alike in what their times share: they are told apart by the parts that differ.",
        "A collective takes latency, once or in every step of its ring as the execution says, plus its bytes over the "
        "achieved bandwidth; data parallelism hides only behind work that leaves its network and the memory free.",
        _CURVES,
    ),
}
"""Assumptions of each edition, one sentence each."""


def assumptions(editions: Sequence[str]) -> list[str]:
    """Return the assumptions of some editions; one that not all of them share names its edition."""
    found = [EDITIONS[edition] for edition in editions]
    for text in dict.fromkeys(text for edition in editions for text in ASSUMPTIONS[edition]):
        own = [edition for edition in editions if text in ASSUMPTIONS[edition]]
        found.append(text if len(own) == len(editions) else f"Edition {own[0]}: {text}")
    return found
