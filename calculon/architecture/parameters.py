"""Number of parameters of a model, and its FLOP per token (the numerator of MFU)."""

import numpy as np

from calculon.architecture.attention import mean_keys
from calculon.architecture.segments import model_totals, module_totals
from calculon.architecture.shape import document_lengths, sequence_lengths
from calculon.base.units import Array, Count, Flops
from calculon.declarations.model import Model

VOCABULARY = 51200
"""Vocabulary size in the published count, for every model."""


def parameter_count(model: Model) -> int:
    """Return the number of parameters: as published for published fields, else of all layers.

    Embedding, learned positions, final norm and head count if the vocabulary is stated; MTP modules do not count
    (:func:`module_count`).

    >>> llama = Model(hidden=4096, feedforward=14336, seq_size=8192, attn_heads=32, attn_size=128, num_blocks=32,
    ...               kv_heads=8, activation="swiglu", norm="rmsnorm", vocab=128256)
    >>> parameter_count(llama)
    8030261248
    """
    return model_totals(model).parameters if model.extensions else published_count(model)


def active_count(model: Model) -> int:
    """Return the parameters that one token uses: all except experts to which it is not sent.

    >>> mixture = Model(hidden=8, feedforward=16, seq_size=4, attn_heads=2, attn_size=4, num_blocks=1, num_experts=4)
    >>> parameter_count(mixture) - active_count(mixture) == 3 * 2 * 8 * 16
    True
    """
    return model_totals(model).active if model.num_experts else parameter_count(model)


def computing_count(model: Model) -> int:
    """Return the active parameters without the input embedding, whose rows are looked up, as technical reports do.

    A table that embedding and head share counts, because the head multiplies by it. gpt-oss-120b: 5.13 billion of 5.71
    (OpenAI 2025, arXiv:2508.10925, table 1).

    >>> from dataclasses import replace
    >>> one = Model(hidden=8, feedforward=16, seq_size=4, attn_heads=2, attn_size=4, num_blocks=1, vocab=10)
    >>> active_count(one) - computing_count(one), active_count(replace(one, tied=True)) == computing_count(one)
    (80, True)
    """
    return active_count(model) - (0 if model.tied else model.vocab * model.hidden)


def module_count(model: Model) -> int:
    """Return the number of parameters of multi-token prediction (MTP) modules, in addition to the model's.

    Published totals exclude them. Embedding and head belong to the model.

    >>> from dataclasses import replace
    >>> one = Model(hidden=8, feedforward=16, seq_size=4, attn_heads=2, attn_size=4, num_blocks=3, norm="rmsnorm",
    ...             vocab=10)
    >>> block = parameter_count(replace(one, num_blocks=4)) - parameter_count(one)
    >>> module_count(replace(one, mtp_layers=2)) == 2 * (block + 2 * 8**2 + 3 * 8)
    True
    """
    return module_totals(model).parameters


def padding_count(model: Model, tensor_par: Count, vocab_pad_multiple: Count) -> Count:
    """Return the number of parameters that only pad the vocabulary of tensor-parallel ranks.

    Each rank has an equal share of the tokens, padded to a multiple; a token has a row of the embedding, and one of the
    head unless both share a table. Rows: :attr:`calculon.architecture.shape.BlockShape.vocab_rows`.

    Source: Megatron-LM, ``--make-vocab-size-divisible-by``.

    >>> gpt2 = Model(hidden=768, feedforward=3072, seq_size=1024, attn_heads=12, attn_size=64, num_blocks=12,
    ...              vocab=50257, tied=True)
    >>> int(padding_count(gpt2, 1, 128)) == (50304 - 50257) * 768
    True
    """
    rows = np.ceil(model.vocab / (vocab_pad_multiple * tensor_par)) * vocab_pad_multiple
    tables = 1 if model.tied else 2
    return (rows * tensor_par - model.vocab) * (tables * model.hidden + model.head_bias)


def published_count(model: Model) -> int:
    """Return the count of the published tool: projections with biases, two norms per block, token and position tables.

    Source: section 7 of the published model; the vocabulary is fixed at 51200 and multi-query attention is not
    considered. The cost model itself ignores biases and embeddings.

    >>> published_count(Model(hidden=12288, feedforward=49152, seq_size=2048, attn_heads=96, attn_size=128,
    ...                       num_blocks=96))
    174615822336
    """
    hidden, feedforward = model.hidden, model.feedforward
    width = model.attn_heads * model.attn_size
    weights = 2 * hidden * feedforward + 4 * hidden * width
    biases = (hidden + feedforward) + (3 * width + hidden)
    norms = 4 * hidden
    return model.num_blocks * (weights + biases + norms) + (VOCABULARY + model.seq_size) * hidden


# Model FLOP per token, independent of the machine: the arithmetic that MFU counts.

TRAINING_PASSES = 3
"""Passes of training: the backward pass computes each product twice, for gradients of inputs and of weights."""


def model_flops_per_token(
    model: Model,
    *,
    training: bool,
    causal: bool = False,
    seq_length: Array | int = 0,
    packed_percent: Array | int = 100,
) -> Flops:
    """Return the matrix FLOP per token: products and attention, without recomputation and embedding lookups.

    Args:
        training: True for forward and backward pass, False for the forward pass only.
        causal: True to count only keys that a query attends to (half the sequence, less with windows).
        seq_length: Tokens per sequence, as executions state them; 0: the model's own.
        packed_percent: Mean length of a token's document in percent of a packed sequence
            (:func:`~calculon.architecture.shape.document_lengths`): a token attends within it, causal or not.

    In training, MTP modules count, each with a head (Megatron-LM, ``training.py``,
    ``num_floating_point_operations``).

    States of linear attention count as in Megatron-LM: ``8 n_v d_k d_v`` for the gated delta rule, with its
    convolution; ``7 i N`` for Mamba-2; and ``4 a d^2`` for lightning attention.

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
