"""How many parameters a model has."""

import numpy as np

from calculon.architecture.segments import model_totals, module_totals
from calculon.base.units import Count
from calculon.declarations.model import Model

VOCABULARY = 51200
"""Vocabulary size that the published count assumes for every model."""


def parameter_count(model: Model) -> int:
    """Count parameters: as published for a model of the published fields, those of all layers for any other.

    Embedding, learned positions, final norm and head count when the vocabulary is stated; modules that predict further
    tokens do not (:func:`module_count`).

    >>> llama = Model(hidden=4096, feedforward=14336, seq_size=8192, attn_heads=32, attn_size=128, num_blocks=32,
    ...               kv_heads=8, activation="swiglu", norm="rmsnorm", vocab=128256)
    >>> parameter_count(llama)
    8030261248
    """
    return model_totals(model).parameters if model.extensions else published_count(model)


def active_count(model: Model) -> int:
    """Count the parameters that one token passes: all but the experts that it is not sent to.

    >>> mixture = Model(hidden=8, feedforward=16, seq_size=4, attn_heads=2, attn_size=4, num_blocks=1, num_experts=4)
    >>> parameter_count(mixture) - active_count(mixture) == 3 * 2 * 8 * 16
    True
    """
    return model_totals(model).active if model.num_experts else parameter_count(model)


def computing_count(model: Model) -> int:
    """Count active parameters without the input embedding, whose rows are looked up: as technical reports count.

    A table that embedding and head share counts, as the head multiplies by it. gpt-oss-120b: 5.13 billion of 5.71
    (OpenAI 2025, arXiv:2508.10925, table 1).

    >>> from dataclasses import replace
    >>> one = Model(hidden=8, feedforward=16, seq_size=4, attn_heads=2, attn_size=4, num_blocks=1, vocab=10)
    >>> active_count(one) - computing_count(one), active_count(replace(one, tied=True)) == computing_count(one)
    (80, True)
    """
    return active_count(model) - (0 if model.tied else model.vocab * model.hidden)


def module_count(model: Model) -> int:
    """Count the parameters of modules that predict further tokens, beside those of the model.

    Published totals are without them. Embedding and head are the model's.

    >>> from dataclasses import replace
    >>> one = Model(hidden=8, feedforward=16, seq_size=4, attn_heads=2, attn_size=4, num_blocks=3, norm="rmsnorm",
    ...             vocab=10)
    >>> block = parameter_count(replace(one, num_blocks=4)) - parameter_count(one)
    >>> module_count(replace(one, mtp_layers=2)) == 2 * (block + 2 * 8**2 + 3 * 8)
    True
    """
    return module_totals(model).parameters


def padding_count(model: Model, tensor_par: Count, vocab_pad_multiple: Count) -> Count:
    """Count the parameters of words that only fill up the vocabulary of tensor-parallel ranks.

    Each rank has an equal share of the words, filled up to a multiple; a word has a row of the embedding, and one of
    the head unless both share a table. Rows: :attr:`calculon.architecture.shape.BlockShape.vocab_rows`.

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
    """Count as the published tool does: projections with biases, two norms per block, token and position embeddings.

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
