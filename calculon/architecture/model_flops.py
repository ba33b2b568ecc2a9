"""Arithmetic of a model per token, whatever runs it: what MFU counts."""

from calculon.architecture.attention import mean_keys
from calculon.spec.model import Model

TRAINING_PASSES = 3
"""The backward pass does each product twice: for the gradients of inputs and of weights."""

_MLP_PRODUCTS = {"attention": 0, "linear": 1}
"""Products of hidden x feedforward in parts that do not have all of the MLP's."""


def model_flops_per_token(model: Model, *, training: bool, causal: bool = False) -> float:
    """Matrix FLOP per token: products and attention, no recomputation; the lookup of the embedding is none.

    Parameters
    ----------
    training : bool
        Forward and backward pass, or forward alone.
    causal : bool
        Count the keys that a query attends to (half the sequence, less with windows), not the whole sequence.

    Source: Chowdhery et al., *PaLM*, arXiv 2204.02311, appendix B: ``6 N + 12 L H Q T`` with full attention.

    >>> shape = Model(hidden=8, feedforward=32, seq_size=4, attn_heads=2, attn_size=4, num_blocks=3)
    >>> model_flops_per_token(shape, training=True) == 6 * 3 * 12 * 8**2 + 12 * 3 * 8 * 4
    True
    """
    keys = mean_keys(model) if causal else float(model.seq_size)
    width = model.attn_heads * model.attn_size
    attention = 2 * 2 * keys * width if model.attends else 0
    products = 2 * (
        model.attends * model.hidden * (2 * width + 2 * model.key_value_heads * model.attn_size)
        + _MLP_PRODUCTS.get(model.part, 3 if model.gated else 2) * model.hidden * model.feedforward
    )
    forward = model.num_blocks * (products + attention) + 2 * model.hidden * model.vocab
    return float((TRAINING_PASSES if training else 1) * forward)
