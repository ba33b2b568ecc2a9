"""How many parameters a model has."""

from calculon.spec.model import Model

VOCABULARY = 51200
"""Vocabulary size that the published count assumes for every model."""


def parameter_count(model: Model) -> int:
    """Count parameters: projections with biases, two norms per block, token and position embeddings.

    Source: section 7 of the published model; the vocabulary is fixed at 51200 and multi-query attention is not
    considered. The cost model itself ignores biases and embeddings.

    >>> parameter_count(Model(hidden=12288, feedforward=49152, seq_size=2048, attn_heads=96, attn_size=128,
    ...                       num_blocks=96))
    174615822336
    """
    hidden, feedforward = model.hidden, model.feedforward
    width = model.attn_heads * model.attn_size
    weights = 2 * hidden * feedforward + 4 * hidden * width
    biases = (hidden + feedforward) + (3 * width + hidden)
    norms = 4 * hidden
    return model.num_blocks * (weights + biases + norms) + (VOCABULARY + model.seq_size) * hidden
