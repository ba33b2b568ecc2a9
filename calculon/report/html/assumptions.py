"""What an estimate takes for granted, and what it does not count: said on every report."""

ASSUMPTIONS = (
    "The iteration time is that of the most loaded processor: the pipeline stage with the most blocks, in a steady "
    "one-forward-one-backward schedule whose bubble is charged to it.",
    "Counted are transformer blocks: their matrix products, attention, norms, activations, dropout, residuals, "
    "optimizer step, and the traffic of tensor, pipeline and data parallelism and of offloading.",
    "Not counted in time or memory: embeddings, the output projection and the loss, biases, data loading, "
    "evaluation, writing checkpoints, and the gaps between kernels.",
    "Memory is the sum of tensors: weights, gradients, optimizer state, activations. The framework, communication "
    "buffers and fragmentation of the allocator come on top.",
    "Nothing fails and nobody waits for a slow processor: stragglers, restarts and jitter are not modelled.",
    "Each kind of traffic has its network to itself; a collective takes latency plus its bytes over the achieved "
    "bandwidth, whatever else is under way.",
    "How fast operations run is what the efficiency curves of the system file say for their size; whether those are "
    "measured or vendor figures stands in the notes on the systems.",
)
"""One sentence each."""

EDITIONS = {
    "sc23": "Edition sc23 is the published model (Isaev et al., SC'23, doi:10.1145/3581784.3607102), what looks odd "
    "in it included; validation/README.md lists that, with its effect.",
}
"""What is to be known about an edition of the model."""
