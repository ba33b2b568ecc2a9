"""Attention half of a block: projections and attention, with a score matrix or fused (FlashAttention).

Multi-head, multi-query and grouped-query attention differ in the number of key/value heads.

Source: Vaswani et al., *Attention is all you need*, arXiv 1706.03762, section 3.2; split by heads over tensor
parallelism: Shoeybi et al., *Megatron-LM*, arXiv 1909.08053, section 3 (sections 3.1 and 3.2 of the published model).
"""

from collections.abc import Iterator

import numpy as np

from calculon.architecture.context_exchange import (
    CoreShare,
    busiest_share,
    layers_after_core,
    layers_before_core,
    ring,
)
from calculon.architecture.latent_attention import latent_heads, latent_projections
from calculon.architecture.layers import (
    Flags,
    Layer,
    When,
    batched_matmul,
    dropout,
    flash_attention,
    fork,
    gate,
    norm,
    rotary,
    softmax,
)
from calculon.architecture.layers.matmul import STATISTIC_BYTES
from calculon.architecture.linear_attention import linear_attention_layers
from calculon.architecture.projection import (
    column_parallel_linear,
    converted,
    gathered_input,
    input_layers,
    output_layers,
    project,
)
from calculon.architecture.residual import SHARED, entry_layers, exit_layers
from calculon.architecture.ring_attention import Ring
from calculon.architecture.shape import BlockShape, sequence_lengths
from calculon.base.units import Bytes, Count, Elements
from calculon.declarations.model import Model
from calculon.declarations.named_values import HEAD_EXCHANGES

_REGATHER, _GATHERED = When.REGATHER_ATTENTION, When.GATHERED_ATTENTION


def attention_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield norm, projections, attention over the sequence, output product, dropout and residual sum.

    A block that consists of attention only has no norm, no dropout after it, and no residual connection.
    """
    if shape.model.has_linear:
        yield from linear_attention_layers(shape)
        return
    model, choice = shape.model, shape.choice
    if shape.whole_block:
        yield from entry_layers("AttnBlock", shape)
    fuses = choice.fusion != "published"
    if model.latent:
        yield from latent_projections(shape)
    elif shape.edition.fuses_projections(choice) if shape.overlapped else fuses:
        width = projection_width(shape)
        bias = width * model.qkv_bias
        yield from input_layers(
            "AttnBlock",
            "QKV",
            shape,
            width,
            bias=bias,
            regather=_REGATHER,
            gathered=_GATHERED,
            recompute=When.RECOMPUTE_OPERATORS,
            repeated=shape.key_value_width / width,
        )
    else:
        yield from _separate_projections(shape)
    yield from core_layers(shape)
    bias_out = model.hidden * model.out_bias
    again = When.RECOMPUTE_STREAM
    yield from output_layers(
        "AttnBlock",
        "MLP",
        shape,
        shape.value_width,
        bias=bias_out,
        joined=model.attention_gate,
        recompute=again,
        drops=When.REMAKES if model.attention_gate else When.NEVER,
    )
    if shape.whole_block:
        yield from exit_layers("AttnBlock", shape, recompute=again)


def projection_width(shape: BlockShape) -> Elements:
    """Return the width of the query, key and value projections on one rank, including the gates of queries."""
    return shape.split(shape.query_width) + 2 * shape.key_value_width


def _separate_projections(shape: BlockShape) -> Iterator[Layer]:
    """Project the gathered input to query, key and value one by one; only the query product overlaps its collective."""
    query, key_value = shape.split(shape.query_width), shape.key_value_width
    width, hidden, biased = projection_width(shape), shape.model.hidden, shape.model.qkv_bias
    bias = width * biased
    yield from converted(
        "AttnBlock_QKV_Cast", shape, hidden, width, bias, normed=True, side="gather"
    )
    name, users = ("KV_Fork", 2) if shape.overlapped else ("Multihead_Fork", 3)
    if shape.overlapped:
        yield column_parallel_linear(
            "AttnBlock_Query_AG", shape, query, bias=query * biased, regather=_REGATHER
        )
    else:
        yield from gathered_input("AttnBlock_F", shape, regather=_REGATHER, gathered=_GATHERED)
    yield fork(
        f"AttnBlock_{name}",
        shape.activation,
        users,
        dtype_bytes=shape.widths.operand,
        flags=Flags(recompute=_REGATHER, drops_activation=When.DROPPED_ATTENTION),
    )
    if not shape.overlapped:
        yield project("AttnBlock_Query", shape, hidden, query, query * biased, SHARED)
    again = SHARED._replace(recompute=When.RECOMPUTE_OPERATORS)
    for name, flags in (("AttnBlock_Key", again), ("AttnBlock_Value", SHARED)):
        yield project(name, shape, hidden, key_value, key_value * biased, flags)


def core_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield the layers between the projections: norms and rotary embeddings of queries and keys, then attention."""
    yield from (latent_heads(shape) if shape.model.latent else _plain_heads(shape))
    yield from layers_before_core(shape)
    yield from (_flash(shape) if shape.choice.flash else _eager(shape))
    yield from layers_after_core(shape)
    if shape.model.attention_gate:
        yield gate(
            "AttnBlock_Gate",
            shape.tokens * shape.split(shape.attention_width),
            dtype_bytes=shape.widths.result,
            flags=Flags(recompute=When.RECOMPUTE_OPERATORS),
        )


def _plain_heads(shape: BlockShape) -> Iterator[Layer]:
    """Yield the norm and rotary embedding of queries and keys."""
    model = shape.model
    turned = shape.tokens * (shape.split(shape.attention_width) + shape.key_value_width)
    again = Flags(recompute=When.RECOMPUTE_OPERATORS)
    if model.qk_norm != "none":
        per_head = model.qk_norm == "head"
        heads = 1 if per_head else model.attn_heads
        yield norm(
            "AttnBlock_QK_Norm",
            model.norm,
            turned,
            2 * model.attn_size if per_head else (heads + model.key_value_heads) * model.attn_size,
            gain_only=True,
            input_grad=shape.edition.writes_input_gradients,
            dtype_bytes=shape.widths.result,
            stored_bytes=shape.widths.stored,
            flags=again,
        )
    if model.rotary:
        yield rotary(
            "AttnBlock_Rotary",
            turned * model.rotary,
            dtype_bytes=shape.widths.result,
            flags=again,
        )


def mean_keys(model: Model, seq_length: Count | int = 0) -> Count:
    """Return the mean number of keys per query, over a sequence (0: the model's own length) and over the blocks.

    A causal query attends to itself and earlier tokens: ``(s + 1) / 2`` keys; a window of `w` tokens reduces this to
    ``w - w (w - 1) / (2 s)``. Chunks that restart every `w` tokens are separate sequences: ``(w + 1) / 2``.

    Documents of packed sequences are separate sequences, too. For the mean document length over tokens
    (:func:`~calculon.architecture.shape.document_lengths`), the result is exact without windows, for documents of any
    lengths. With windows it is an upper bound that assumes equal documents, because the number of keys is concave in
    the document length (except for chunks).

    >>> model = Model(hidden=8, feedforward=8, seq_size=4, attn_heads=1, attn_size=8, num_blocks=2)
    >>> mean_keys(model, np.array([4.0, 8.0]))
    array([2.5, 4.5])
    """
    length, window = sequence_lengths(model, np.asarray(seq_length)), model.sliding_window
    whole = (length + 1) / 2 if model.causal else length
    if not window:
        return whole
    cut = _keys_of_window(model, length)
    every = model.full_attention_every
    full = model.num_blocks // every if every else 0
    mean = (full * whole + (model.num_blocks - full) * cut) / model.num_blocks
    return np.where(window < length, mean, whole)


def _keys_of_window(model: Model, length: Count) -> Count | int:
    """Return the mean keys of a query in a block with a window that is narrower than the sequence."""
    window = model.sliding_window
    if model.chunked_window:
        rest = np.mod(length, window)  # tokens of the last chunk
        seen = [(n + 1) / 2 if model.causal else n for n in (window, rest)]
        return ((length - rest) * seen[0] + rest * seen[1]) / length
    return window - window * (window - 1) / (2 * length) if model.causal else window


def _with_sinks(layer: Layer, shape: BlockShape) -> Layer:
    """Add the learned attention sink of each head, an additional term in the sum of the softmax.

    Source: OpenAI, *gpt-oss model card*, arXiv 2508.10925, section 2.2; Xiao et al., arXiv 2309.17453, section 3.
    """
    if not shape.model.attention_sinks:
        return layer
    heads = shape.split(shape.model.attn_heads)
    return layer._replace(weights=heads, weight_bytes=shape.dtype_bytes * heads)


def _flash(shape: BlockShape) -> Iterator[Layer]:
    """Yield the fused attention kernel, which applies the mask itself and needs no stored dropout mask."""
    model, share = shape.model, CoreShare.of(shape)
    heads, steps = share.key_value_heads, ring(shape, mean_keys)
    size = shape.choice.attention_bytes
    layer = flash_attention(
        "AttnBlock_Flash",
        share.tokens,
        share.heads,
        heads,
        model.attn_size,
        key_tokens=share.key_tokens,
        value_size=model.value_size,
        keys=mean_keys(model, shape.document),
        slowest=shape.sizes.pack_imbalance_percent / 100 * busiest_share(shape, mean_keys),
        causal=model.causal,
        dtype_bytes=size,
        flags=Flags(recompute=When.RECOMPUTE_ATTENTION),
    )
    outputs = shape.widths.result * layer.outputs
    layer = layer._replace(output_bytes=outputs, activation_grad=outputs)
    others = share.key_tokens - share.tokens  # other ranks store their keys and values
    kept = layer.inputs - others * heads * (model.attn_size + model.value_size)
    if shape.choice.fp8_attention:
        yield _narrowed(layer, kept, shape)
    if steps is not None:
        layer = _in_steps(layer, steps, size)
    layer = layer._replace(activation=layer.activation + _own_output(layer, shape))
    layer = _with_sinks(layer, shape)
    if model.latent:
        yield _made_of_latents(layer, size * kept)
        return
    # If the projections are recomputed by operator, the key projection remakes the keys.
    yield layer._replace(remade=size * share.tokens * heads * model.attn_size)


def _narrowed(layer: Layer, inputs: Elements, shape: BlockShape) -> Layer:
    """Return the kernels that convert `inputs` of attention, and the gradient of its output, to 8 bits.

    Tensors are read once more if their largest values are measured. Results in 8 bits are converted back.

    Source: Transformer Engine, ``FusedAttnFunc``: ``combine_and_quantize``, ``dequantize``.
    """
    recipe, wide = shape.recipe, shape.widths.result
    assert recipe is not None
    reads = 1 + recipe.measured
    made = reads * wide + 1
    back = (1 + wide) * shape.choice.narrow_outputs
    kernels = reads + shape.choice.narrow_outputs
    return Layer(
        name=f"{layer.name}_Cast",
        kernel="cast",
        flops=(0.0, 0.0, 0.0),
        accessed=(made * inputs + back * layer.outputs, made * layer.outputs + back * inputs, 0.0),
        inputs=inputs,
        flags=Flags(recompute=When.RECOMPUTE_ATTENTION),
        launches=(kernels, kernels, 0),
    )


def _own_output(layer: Layer, shape: BlockShape) -> Bytes | float:
    """Return the bytes of the output that attention saves because the layer that reads it saves a narrower copy.

    Source: Transformer Engine, ``module/linear.py``: a product in 8 bits saves its input in 8 bits;
    ``attention/dot_product_attention/backends.py``, ``FusedAttnFunc``: attention saves its output in 16 bits, or an
    output written in 8 bits as such. The gate, and the exchange of heads, save it as it is.
    """
    if shape.choice.narrow_outputs:
        return layer.outputs
    if shape.widths.operand >= shape.widths.result or shape.model.attention_gate:
        return 0.0
    exchanged = shape.choice.cp_comm in HEAD_EXCHANGES
    return layer.output_bytes * ~(exchanged & (shape.sizes.context_par > 1))


def _in_steps(layer: Layer, steps: Ring, dtype_bytes: int) -> Layer:
    """Return the attention layer of a ring: each step reads the queries, and writes its own partial outputs.

    The backward pass also reads outputs and their gradients, and accumulates query gradients in 4 bytes.
    """
    queries = layer.outputs / layer.value_width * layer.head_width
    once = dtype_bytes * (queries + layer.outputs)
    again = (steps.steps - 1) * np.array([once, 2 * once + 2 * STATISTIC_BYTES * queries])
    forward, backward, weights = layer.accessed
    accessed = forward + again[0], backward + again[1], weights
    return layer._replace(ring=steps, rounds=steps.steps, accessed=accessed)


def _made_of_latents(layer: Layer, remade: Bytes | float) -> Layer:
    """Return an attention layer whose saved queries, keys or values can be recomputed from latents."""
    flags = layer.flags._replace(remakes=When.DROPS_LATENT_HEADS)
    return layer._replace(remade=remade, flags=flags)


def _eager(shape: BlockShape) -> Iterator[Layer]:
    """Yield attention with a score matrix in memory: score product, softmax, dropout and weighted values.

    Selective activation recomputation repeats these layers. Source: Korthikanti et al., arXiv 2205.05198, section 5.
    """
    model, dtype_bytes, again = shape.model, shape.widths.result, When.RECOMPUTE_ATTENTION
    work, share, attn_size = shape.workload, CoreShare.of(shape), float(model.attn_size)
    products = np.floor(work.sequences * model.attn_heads / share.ranks)
    key_values = np.floor(work.sequences * share.key_value_heads)
    scores = share.heads * share.queries * work.keys * work.sequences
    input_grad = shape.edition.writes_input_gradients
    drops = again if model.dropout else When.NEVER
    softmax_flags = Flags(recompute=again, drops_output=again)
    if not model.dropout:
        softmax_flags = softmax_flags._replace(drops_activation=When.ALWAYS, shares_activation=True)
    scored = batched_matmul(
        "AttnBlock_Multihead_Key_Query",
        products,
        share.queries,
        attn_size,
        work.keys,
        shared=key_values,
        input_grad=input_grad,
        dtype_bytes=dtype_bytes,
        flags=Flags(recompute=again, drops_output=drops),
    )
    yield _made_of_latents(scored, scored.activation) if model.latent else scored
    normalized = softmax(
        "AttnBlock_Multihead_SoftMax",
        scores,
        input_grad=input_grad,
        dtype_bytes=dtype_bytes,
        flags=softmax_flags,
    )
    yield _with_sinks(normalized, shape)
    if model.dropout:
        yield dropout(
            "AttnBlock_Multihead_DropOut",
            scores,
            grad_bytes=shape.edition.dropout_grad_bytes(dtype_bytes),
            dtype_bytes=dtype_bytes,
            flags=Flags(recompute=again, drops_activation=again),
        )
    weighted = batched_matmul(
        "AttnBlock_Multihead_Attn",
        products,
        share.queries,
        work.keys,
        float(model.value_size),
        shared=key_values,
        input_grad=input_grad,
        dtype_bytes=dtype_bytes,
        flags=Flags(recompute=When.RECOMPUTE_VALUES),
    )
    values = dtype_bytes * key_values * work.keys * model.value_size
    yield _made_of_latents(weighted, values) if model.latent else weighted
