"""Model FLOP per token, on any machine: the arithmetic that MFU counts."""

import numpy as np

from calculon.architecture.attention import mean_keys
from calculon.architecture.segments import model_totals, module_totals
from calculon.architecture.workload import document_lengths, sequence_lengths
from calculon.base.units import Array, Flops
from calculon.declarations.model import Model

TRAINING_PASSES = 3
"""The backward pass does each product twice: for the gradients of inputs and of weights."""


def model_flops_per_token(
    model: Model,
    *,
    training: bool,
    causal: bool = False,
    seq_length: Array | int = 0,
    packed_percent: Array | int = 100,
) -> Flops:
    """Matrix FLOP per token: products and attention, no recomputation; the lookup of the embedding is none.

    Args:
        training: Forward and backward pass, or forward alone.
        causal: Count the keys that a query attends to (half the sequence, less with windows), not the whole sequence.
        seq_length: Tokens per sequence, as executions state them; 0: the model's own.
        packed_percent: Share of a packed sequence that the document of a token has
            (:func:`~calculon.architecture.workload.document_lengths`): a token has the keys of that, causal or not.

    In training, modules that predict further tokens count with a head each (Megatron-LM, ``training.py``,
    ``num_floating_point_operations``).

    States of linear attention count by the convention of Megatron-LM: ``8 n_v d_k d_v`` of the gated delta rule, with
    its convolution; ``7 i N`` of Mamba-2; and ``4 a d^2`` of lightning attention.

    Source: Chowdhery et al., *PaLM*, arXiv 2204.02311, appendix B: ``6 N + 12 L H Q T`` with full attention.

    >>> shape = Model(hidden=8, feedforward=32, seq_size=4, attn_heads=2, attn_size=4, num_blocks=3)
    >>> float(model_flops_per_token(shape, training=True)) == 6 * 3 * 12 * 8**2 + 12 * 3 * 8 * 4
    True
    """
    length = document_lengths(sequence_lengths(model, np.asarray(seq_length)), packed_percent)
    keys = mean_keys(model, length) if causal else length
    own = model_totals(model)
    matrices, scores, states = own.matrices, own.scores, own.states
    if training and model.mtp_layers:
        further = module_totals(model)
        matrices, scores = matrices + further.matrices, scores + further.scores
        states = states + further.states
    forward = 2 * matrices + scores * keys + states
    return (TRAINING_PASSES if training else 1) * forward
