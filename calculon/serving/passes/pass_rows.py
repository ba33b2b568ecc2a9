"""Rows of a forward pass: the layers of a model for a number of rows of tokens, on one rank.

Everything except attention equals training on sequences of one token: matrix products, norms and activations as a
compiler fuses them, experts, and projections of latents. For a token with a KV cache these projections also equal
training: the products that absorb the up-projection of keys and values have its weights and FLOP (DeepSeek-V2, arXiv
2405.04434, section 2.1.2).
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from calculon.architecture.layer import Flags, Layer
from calculon.architecture.layers import flash_attention
from calculon.architecture.segments import (
    EMBEDDING,
    HEAD,
    ONE_RANK,
    Segment,
    kinds_of_block,
    prediction_module,
)
from calculon.architecture.shape import BlockShape, Sizes
from calculon.base.units import Array, Bytes, Count, Flops
from calculon.declarations.model import Model
from calculon.declarations.named_values import ENGINE_BYTES
from calculon.editions import CORRECTED
from calculon.serving.caches.cache import CachedBlocks, cached_width, heads_of_rank
from calculon.serving.passes.exchange import (
    COMBINE,
    DISPATCH,
    FASTEST_EXCHANGE,
    Exchange,
    activated_experts,
    busiest,
)
from calculon.serving.passes.pass_sizes import PassSizes, seen_keys
from calculon.serving.passes.split_cache import SplitCache
from calculon.serving.records.number_types import (
    ACTIVATION_BYTES,
    QUANTISED,
    WEIGHT_TYPES,
    WIDE,
    NumberTypes,
)

LAYOUT = replace(
    ONE_RANK,
    datatype="bfloat16",
    attn_impl="flash",
    fusion="compile",
    fused_activation=True,
)
"""Layers of inference: FlashAttention, and one kernel for each chain of elementwise operators."""

ROWS = (
    "embedding",
    "qkv",
    "attention",
    "decode attention",
    "split cache",
    "output",
    "mlp",
    "router",
    DISPATCH,
    "experts",
    COMBINE,
    "small kernels",
    "quantize",
    "reduce",
    "head",
    "sampling",
    "draft",
    "host",
)
"""Rows of a pass, in the order of pages."""

LOGIT_BYTES = 4
"""Bytes of a logit; sampling uses 32 bits (vLLM, ``vllm/v1/sample/sampler.py``)."""

AVOIDED = ("MlpBlock_Sort", "MlpBlock_Unsort", "MlpBlock_Experts_Bias")
"""Layers of training that inference avoids: sorting the rows of several ranks by expert, and biases expert by expert.

Ranks with the same tokens select their own rows, and an exchange delivers rows in that order (DeepEP,
``low_latency_dispatch``). Grouped products add the biases (FlashInfer, ``trtllm_fp4_block_scale_moe``).
"""

COPIES = ("MlpBlock_Permute", "MlpBlock_Unpermute")
"""Layers that copy tokens to rows of experts, or sum these rows."""

JOINED = ("sum",)
"""Operators that are fused with the next norm and have no floor (vLLM and TensorRT-LLM, fused add and RMSNorm)."""


class Row(NamedTuple):
    """A row of a pass, on one rank.

    Attributes:
        name: One of :data:`ROWS`.
        layer: FLOP, bytes and shape; None for all-reduces, decode attention and rows that only have bytes.
        times: Number of occurrences in a pass through all stages.
        stage: Location: ``block``, ``first`` or ``last``.
        engine: Type of the arithmetic, for a product with weights.
        stored: Type of these weights, one of :data:`~calculon.serving.records.number_types.WEIGHT_TYPES`.
        flops, moved: FLOP, and bytes in tier-1 memory, per occurrence.
        weights, cache: Bytes of weights and of the KV cache among these.
        message: Bytes of an all-reduce over the ranks with the same tokens.
        keys: Keys read per sequence, for decode attention.
        kernels: Kernels that it launches.
        exchange: Data exchanged with experts.
        parts: Parts of the batch, each of which has the row.
        split: Data exchanged by ranks that split the tokens of a KV cache.
    """

    name: str
    layer: Layer | None
    times: int
    stage: str
    flops: Flops
    moved: Bytes
    engine: str = ""
    weights: Bytes | float = 0.0
    cache: Bytes | float = 0.0
    message: Bytes | None = None
    keys: Count | None = None
    kernels: int = 1
    exchange: Exchange | None = None
    parts: Count | float = 1.0
    split: SplitCache | None = None
    stored: str = ""


class LayerStack(NamedTuple):
    """Blocks of a pass between embedding and LM head.

    Attributes:
        segments: Kinds of block, each with its number of blocks.
        cached: Blocks by the tokens that they cache.
        reductions: All-reduces over the ranks of ``tensor_par``.
    """

    segments: tuple[Segment, ...]
    cached: CachedBlocks
    reductions: int


def layer_stack(model: Model, *, module: bool = False) -> LayerStack:
    """Return the blocks of a model, or of one of its multi-token prediction modules.

    A module joins hidden states with embeddings in a product, whose output is gathered, and has one block like the last
    one (DeepSeek-V3, arXiv 2412.19437, section 2.2).
    """
    # parallel attention and MLP add up before a single all-reduce; otherwise each has its own
    halves = 1 if model.parallel_attention else 2
    if not module:
        of_all = CachedBlocks.of(model)
        return LayerStack(kinds_of_block(executed(model)), of_all, halves * model.num_blocks)
    one = prediction_module(model)
    assert one is not None
    return LayerStack((replace(one, count=1),), CachedBlocks.of_last(model), halves + 1)


def pass_rows(
    model: Model,
    types: NumberTypes,
    sizes: PassSizes,
    *,
    shared_heads: bool = True,
    routing: str = "balanced",
    exchange: str = FASTEST_EXCHANGE,
    overlap: str = "none",
    module: bool = False,
) -> list[Row]:
    """Return the rows of passes, in the order of :data:`ROWS`.

    Args:
        model: Its blocks have softmax attention (:func:`~calculon.serving.caches.cache.check_served`).
        types: Data types of weights and KV cache.
        sizes: Sizes of the passes, as columns.
        shared_heads: Whether a key/value head is read once for all query heads that share it.
        routing: Distribution of tokens over experts: one of :data:`~calculon.serving.passes.exchange.ROUTINGS`.
        exchange: Implementation of the exchange: one of :data:`~calculon.serving.passes.exchange.EXCHANGES`.
        overlap: Work that overlaps the exchange with experts; with ``two_batches`` each block processes two parts of
            the batch in turn.
        module: Whether the pass runs through a multi-token prediction module instead of the blocks.
    """
    chain, model, group = layer_stack(model, module=module), executed(model), sizes.of_group
    rows = [*_ends(model, types, sizes, group.tokens, "first")]
    parts: Count | float = 1.0
    if overlap == "two_batches" and model.mixes and np.any(sizes.attn_data_par > 1):
        parts = np.where(sizes.attn_data_par > 1, 2.0, 1.0)
    of_parts = _blocks(
        model,
        types,
        sizes.parts(parts),
        chain,
        routing=routing,
        exchange=exchange,
        shared_heads=shared_heads,
    )
    rows += (row._replace(parts=parts) for row in of_parts)
    rows += _ends(model, types, sizes, group.logits, "last")
    rows.append(_sampling(model, group))
    return sorted(rows, key=lambda row: ROWS.index(row.name))


def _blocks(
    model: Model,
    types: NumberTypes,
    sizes: PassSizes,
    chain: LayerStack,
    *,
    routing: str,
    exchange: str,
    shared_heads: bool,
) -> Iterator[Row]:
    """Yield the rows between embedding and LM head."""
    fullest = _fullest(model, sizes, routing)
    for kind in chain.segments:
        has_experts = False
        for layer in pass_layers(model, sizes, kind, fullest):
            local = _of_local_experts(layer, sizes, fullest)
            yield from _of_layer(model, types, sizes, local, kind.count, routing)
            has_experts |= layer.kernel == "grouped_product"
        if has_experts:
            sent = Exchange.of(model, types, sizes, routing, exchange)
            yield from _exchange(sizes, kind.count, sent)
    group = sizes.of_group
    yield from _attention(model, types, group, chain.cached, shared_heads=shared_heads)
    message = group.tokens * model.hidden * ACTIVATION_BYTES
    yield _reduce(message, chain.reductions, "block")


def _fullest(model: Model, sizes: PassSizes, routing: str) -> Array | float:
    """Return the tokens of the busiest rank of experts, relative to equal tokens in all groups."""
    if not model.mixes:
        return 1.0
    uneven = busiest(model, sizes.expert_par, sizes.copies, sizes.tokens, routing)
    return uneven * sizes.filled


def _of_local_experts(layer: Layer, sizes: PassSizes, fullest: Array | float) -> Layer:
    """Return the copy of rows for the experts of the busiest rank only, if all ranks have the same tokens.

    Source: TensorRT-LLM, ``cutlass_kernels/moe_gemm/moe_kernels.cu``, ``expandInputRowsKernel``: rows of experts of
    other ranks are skipped.
    """
    if layer.name not in COPIES or not np.any(sizes.expert_par > 1):
        return layer
    rows = np.maximum(layer.inputs, layer.outputs)
    others = np.where(sizes.attn_data_par > 1, 0.0, 1 - fullest / sizes.expert_par)
    moved = layer.accessed[0] - ACTIVATION_BYTES * others * rows
    return layer._replace(accessed=(moved, *layer.accessed[1:]))


def _exchange(sizes: PassSizes, count: int, exchange: Exchange) -> Iterator[Row]:
    """Yield dispatch and combine of blocks with experts, if ranks have different tokens."""
    if np.any(sizes.attn_data_par > 1):
        nothing = np.zeros(sizes.count)
        for name in (DISPATCH, COMBINE):
            yield Row(name, None, count, "block", nothing, nothing, exchange=exchange)


def pass_layers(
    model: Model, sizes: PassSizes, segment: Segment, fullest: Array | float = 1.0
) -> Iterable[Layer]:
    """Return the layers of a segment of an executed model in passes, on the rank with the busiest experts."""
    return segment.layers(_shape(model, sizes, sizes.of_group.tokens, fullest))


def executed(model: Model) -> Model:
    """Return the parts of a model that run in inference: no dropout, and no multi-token prediction modules."""
    return replace(model.executed(training=False), dropout=False)


def _shape(
    model: Model, sizes: PassSizes, tokens: Count, fullest: Array | float = 1.0
) -> BlockShape:
    """Return the shape of layers with a number of rows per rank, each a sequence of one token."""
    one, zero = np.ones_like(tokens), np.zeros(tokens.shape, np.int64)
    plain = Sizes(
        tensor_par=sizes.of_group.tensor_par,
        microbatch_size=tokens,
        tensor_par_net=zero,
        vocab_pad_multiple=one,
        seq_length=one,
        moe_imbalance_percent=100 * fullest * one,
    )
    further = dict(plain.further)
    further |= {
        "expert_par": sizes.expert_par,
        "expert_tensor_par": sizes.tensor_par / sizes.expert_par,
    }
    return BlockShape.of(model, LAYOUT, replace(plain, further=further), CORRECTED)


def _of_layer(
    model: Model, types: NumberTypes, sizes: PassSizes, layer: Layer, count: int, routing: str
) -> Iterator[Row]:
    """Yield the rows of a layer of a block; none for attention and collectives, which serving models itself."""
    skipped = layer.collective is not None or layer.kernel == "attention" or layer.name in AVOIDED
    if skipped or not np.any(layer.accessed[0]):
        return
    if layer.product is None:
        yield _small(layer, count, "block")
        return
    # the router stays in 16 bits whatever the type of other weights: vLLM, ``GateLinear``
    if layer.kernel == "router":
        yield from _product("router", layer, count, "block", WIDE, types.wide)
        return
    # engines[0], [1], [2] belong to weights, experts and head
    experts = layer.kernel == "grouped_product"
    stored, engine = (
        (types.experts, types.engines[1]) if experts else (types.weights, types.engines[0])
    )
    if experts:
        layer = _activated(model, sizes, layer, routing)
    yield from _product(_name(layer), layer, count, "block", stored, engine)


def _name(layer: Layer) -> str:
    """Return the name of the row for a product of a block."""
    if layer.kernel == "grouped_product":
        return "experts"
    if not layer.name.startswith("AttnBlock"):
        return "mlp"
    return "output" if layer.name == "AttnBlock_MLP" else "qkv"


def _flops(layer: Layer) -> Flops:
    return np.asarray(layer.flops[0], float)


def _product(
    name: str, layer: Layer, count: int, stage: str, stored: str, engine: str
) -> Iterator[Row]:
    """Yield a product with weights of a type, preceded by the quantization of its inputs if its engine needs it.

    Quantization reads the inputs once more and writes them in the type of the engine, one kernel per product. Source:
    DeepSeek-V3, arXiv 2412.19437, section 3.3.1.
    """
    operand = ENGINE_BYTES[engine] if engine in QUANTISED else ACTIVATION_BYTES
    if engine in QUANTISED:
        moved = np.asarray(layer.inputs * (ACTIVATION_BYTES + operand), float)
        yield Row("quantize", _plain(layer, moved), count, stage, 0.0 * _flops(layer), moved)
    weights = layer.weights * WEIGHT_TYPES[stored].bytes
    moved = np.asarray(layer.inputs * operand + layer.outputs * ACTIVATION_BYTES + weights, float)
    yield Row(name, layer, count, stage, _flops(layer), moved, engine, weights, stored=stored)


def _plain(layer: Layer, moved: Bytes) -> Layer:
    """Return the layer of a conversion that moves a number of bytes."""
    return Layer(
        name=f"{layer.name}_Cast",
        kernel="cast",
        flops=(0.0, 0.0, 0.0),
        accessed=(moved, 0.0, 0.0),
        inputs=layer.inputs,
    )


def _small(layer: Layer, count: int, stage: str) -> Row:
    """Return the row of an elementwise operator or a reduction."""
    name = "embedding" if layer.kernel == "embedding" else "small kernels"
    kernels = 0 if layer.kernel in JOINED else 1
    moved = np.asarray(layer.accessed[0], float)
    # an embedding reads single rows of its table, which count as activations
    weights = 0.0 if layer.kernel == "embedding" else layer.weight_bytes
    return Row(name, layer, count, stage, _flops(layer), moved, weights=weights, kernels=kernels)


def _activated(model: Model, sizes: PassSizes, layer: Layer, routing: str) -> Layer:
    """Return the product of experts, reading only the weights of experts that are activated by some token."""
    assert layer.product is not None
    local = model.num_experts / sizes.expert_par
    touched = activated_experts(model, sizes.expert_par, sizes.copies, sizes.tokens, routing)
    # the expected number may be below 1, but the slowest rank always has an expert to run
    touched = np.maximum(touched, np.where(sizes.tokens > 0, 1.0, 0.0))
    product = layer.product
    rows = product.batch * product.m / np.maximum(touched, 1.0)
    return layer._replace(
        weights=layer.weights * (touched / local),
        product=product._replace(batch=touched, m=rows),
    )


def _attention(
    model: Model, types: NumberTypes, sizes: PassSizes, blocks: CachedBlocks, *, shared_heads: bool
) -> Iterator[Row]:
    """Yield attention of prompt chunks and of new tokens, by the tokens that blocks cache."""
    for count, window in ((blocks.full, 0), (blocks.windowed, blocks.window)):
        if count:
            yield _prefill_attention(model, types, sizes, count, window)
            yield _decode_attention(model, types, sizes, count, window, shared_heads=shared_heads)
            if np.any(sizes.context_par > 1):
                nothing, split = np.zeros(sizes.count), SplitCache.of(model, types, sizes, window)
                yield Row("split cache", None, count, "block", nothing, nothing, split=split)


def _prefill_attention(
    model: Model, types: NumberTypes, sizes: PassSizes, count: int, window: int
) -> Row:
    """Return attention of prompt chunks to their prompts, both to the KV cache and to the chunk itself."""
    tokens = sizes.prompts * sizes.chunk
    keys = seen_keys(sizes.cached, sizes.chunk, window, chunked=model.chunked_window)
    mean = keys / np.maximum(sizes.chunk, 1.0)
    seen = np.minimum(sizes.cached, float(window) if window else np.inf)
    heads = np.ceil(model.attn_heads / sizes.tensor_par)
    shared = heads if model.latent else heads_of_rank(model, sizes.tensor_par)
    layer = flash_attention(
        "Attention",
        tokens,
        heads,
        shared,
        model.attn_size,
        value_size=model.value_size,
        key_tokens=sizes.prompts * (sizes.chunk + seen),
        keys=np.maximum(mean, 1.0),
        causal=model.causal,
        dtype_bytes=ACTIVATION_BYTES,
        flags=Flags(),
    )
    elements = sizes.prompts * seen * cached_width(model, sizes.tensor_par)
    read, moved = elements * types.cache, np.asarray(layer.accessed[0], float)
    if not model.latent:  # latent attention expands cached latents to full heads, and reads those
        moved = moved - elements * ACTIVATION_BYTES + read
    return Row("attention", layer, count, "block", _flops(layer), moved, cache=read)


def _decode_attention(
    model: Model,
    types: NumberTypes,
    sizes: PassSizes,
    count: int,
    window: int,
    *,
    shared_heads: bool,
) -> Row:
    """Return attention of new tokens to their KV caches; latent attention reads latents as wide keys and values.

    All rows of a sequence share one reading of its cache. Ranks that split a cache have all queries for it, and their
    own part of its tokens.
    """
    widest, further = float(window) if window else np.inf, sizes.verified - 1
    parts = sizes.context_par
    seen = np.minimum(sizes.context + further / 2, widest) / parts
    keys = (np.minimum(sizes.context, widest) + further) / parts
    heads = np.ceil(model.attn_heads * parts / sizes.tensor_par)
    widths = model.attn_size + model.value_size
    if model.latent:
        widths = 2 * model.kv_lora_rank + model.qk_rope_head_dim
    width = cached_width(model, sizes.tensor_par)
    if not shared_heads and not model.latent:
        width = width * (heads / heads_of_rank(model, sizes.tensor_par))
    cache = sizes.decoded * keys * width * types.cache
    activations = sizes.decoded * sizes.verified * heads * widths * ACTIVATION_BYTES
    flops = 2.0 * sizes.decoded * sizes.verified * seen * heads * widths
    return Row(
        "decode attention",
        None,
        count,
        "block",
        flops,
        np.where(keys > 0, cache + activations, 0.0),
        cache=cache,
        keys=keys,
    )


def _reduce(message: Bytes, count: int, stage: str) -> Row:
    """Return all-reduces of the results of row-parallel products."""
    nothing = np.zeros_like(message)
    return Row("reduce", None, count, stage, nothing, nothing, message=message)


def _ends(
    model: Model, types: NumberTypes, sizes: PassSizes, tokens: Count, stage: str
) -> Iterator[Row]:
    """Yield the embedding, or the final norm and the LM head, for a number of rows."""
    segment = EMBEDDING if stage == "first" else HEAD
    for layer in segment.layers(_shape(model, sizes, tokens)):
        if layer.kernel == "loss" or not np.any(layer.accessed[0]):
            continue
        if layer.collective is not None:
            # ranks sample from their own part of the vocabulary, so the LM head needs no collective
            if stage == "first":
                yield _reduce(tokens * model.hidden * ACTIVATION_BYTES, 1, stage)
        elif layer.product is not None:
            yield from _product("head", layer, 1, stage, types.head, types.engines[2])
        else:
            yield _small(layer, 1, stage)


def _sampling(model: Model, sizes: PassSizes) -> Row:
    """Return the sampling of tokens from the logits; each rank handles its part of the vocabulary."""
    moved = sizes.logits * np.ceil(model.vocab / sizes.tensor_par) * LOGIT_BYTES
    layer = Layer(
        name="Sampling",
        kernel="cast",
        flops=(0.0, 0.0, 0.0),
        accessed=(moved, 0.0, 0.0),
        inputs=moved,
    )
    return Row("sampling", layer, 1, "last", np.zeros_like(moved), moved)
