"""Multi-head latent attention (MLA) in training: queries, keys and values are projected through narrow latents.

Every tensor-parallel rank has the complete down-projections and latent norms, and applies them to its own tokens; the
up-projections, attention and the output product are divided by heads. So tensor parallelism gathers latents instead of
the residual stream.

Source: DeepSeek-AI, *DeepSeek-V2*, arXiv 2405.04434, section 2.1 (products and norms; equations 9 to 19); Megatron-LM,
``core/transformer/multi_latent_attention.py`` (division over ranks, and gathers of sequences).
"""

from collections.abc import Iterator
from dataclasses import replace

from calculon.architecture.layer import COLUMN_INPUT
from calculon.architecture.layers import RECOMPUTED, Flags, Layer, When, fork, norm, rotary
from calculon.architecture.projection import (
    DROPPED,
    border_collective,
    converted,
    gathered_input,
    project,
    with_copy,
)
from calculon.architecture.residual import SHARED
from calculon.architecture.shape import BlockShape
from calculon.base.units import Elements
from calculon.declarations.model import Model

_REGATHER, _GATHERED = When.REGATHER_ATTENTION, When.GATHERED_ATTENTION
_HEADS = Flags(recompute=When.RECOMPUTE_LATENT_HEADS)
"""Flags of layers that create heads from latents: the module that recomputation calls *mla_up_proj*.

Source: Megatron-LM, ``multi_latent_attention.py``, ``qkv_up_proj_and_rope_apply``.
"""

_UP = _HEADS._replace(drops_activation=DROPPED[_REGATHER])
"""Flags of a product with a latent: its input is not saved if it is gathered or normalized again."""


def replicated_weights(model: Model) -> int:
    """Return the number of latent weights per block that every tensor-parallel rank has: down-projections and gains."""
    query = model.q_lora_rank * (model.hidden + 1)
    width = model.kv_lora_rank + model.qk_rope_head_dim
    return query + model.hidden * width + model.kv_lora_rank


def latent_projections(shape: BlockShape) -> Iterator[Layer]:
    """Yield the products for queries, keys and values, with norms and collectives of the latents.

    Without a query latent, queries are a single product of the gathered stream.
    """
    model = shape.model
    keeps = RECOMPUTED._replace(drops_activation=When.RECOMPUTE_NORM)
    yield fork(
        "AttnBlock_Latent_Fork",
        shape.residual,
        2,
        dtype_bytes=shape.widths.operand,
        flags=keeps,
    )
    queries = shape.split(model.attn_heads * model.attn_size)
    if model.q_lora_rank:
        yield from _to_latent("AttnBlock_Query", shape, model.q_lora_rank)
        yield from _from_latent("AttnBlock_Query", shape, model.q_lora_rank, queries)
    else:
        yield from _whole_queries(shape, queries)
    keys_values = shape.split(model.attn_heads * (model.qk_nope_head_dim + model.v_head_dim))
    turned = model.qk_rope_head_dim
    yield from _to_latent("AttnBlock_KV", shape, model.kv_lora_rank, turned)
    yield from _from_latent("AttnBlock_KV", shape, model.kv_lora_rank, keys_values, turned)


def _whole_queries(shape: BlockShape, width: Elements) -> Iterator[Layer]:
    """Project the gathered stream to queries; each rank saves its share before the gather."""
    hidden, name = shape.model.hidden, "AttnBlock_Query"
    yield from converted(f"{name}_Cast", shape, hidden, width, 0.0, normed=True, side="gather")
    yield from gathered_input("AttnBlock_F", shape, regather=_REGATHER, gathered=When.ALWAYS)
    # Without sequence parallelism there is no gather, and the stream itself is saved already.
    shared = SHARED._replace(recompute=When.RECOMPUTE_LATENT_HEADS)
    flags = _UP if shape.choice.sequence_parallel else shared
    yield project(name, shape, hidden, width, 0.0, flags)


def _to_latent(name: str, shape: BlockShape, rank: int, extra: int = 0) -> Iterator[Layer]:
    """Project the tokens of this rank to a latent of `rank` elements and `extra` others; normalize the latent.

    The norm saves the complete projection, because the latent is a view of its storage.
    """
    local, model = shape.local, shape.model
    width = rank + extra
    cast = f"{name}_Down_Cast"
    yield from converted(cast, local, model.hidden, width, 0.0, normed=True)
    down = project(f"{name}_Down", local, model.hidden, width, 0.0, SHARED)
    yield down._replace(replicated=True)
    latent = norm(
        f"{name}_Norm",
        model.norm,
        local.tokens * rank,
        rank,
        gain_only=True,
        input_grad=shape.edition.writes_input_gradients,
        dtype_bytes=shape.widths.result,
        stored_bytes=shape.widths.stored,
        flags=Flags(recompute=When.RECOMPUTE_NORM),
    )
    kept = shape.widths.result * local.tokens * width
    yield latent._replace(activation=kept, replicated=True)


def _from_latent(
    name: str, shape: BlockShape, rank: int, width: Elements, extra: int = 0
) -> Iterator[Layer]:
    """Gather a normalized latent and `extra` other elements, and project it to the heads of this rank."""
    gathered = replace(shape, activation=shape.tokens * (rank + extra))
    yield from converted(
        f"{name}_Up_Cast",
        shape,
        rank,
        width,
        0.0,
        source=shape.widths.result,
        normed=True,
        side="gather",
    )
    flags = Flags(recommunicate=_REGATHER, drops_activation=_GATHERED)
    collective = border_collective(f"{name}_F", COLUMN_INPUT, gathered, flags)
    share = collective.activation * (rank / (rank + extra))  # the rest is saved before the norm
    yield from with_copy(collective._replace(activation=share), shape)
    yield project(f"{name}_Up", shape, rank, width, 0.0, _UP)


def latent_heads(shape: BlockShape) -> Iterator[Layer]:
    """Yield the layers that create heads from the projections: rotary embeddings, then concatenated keys.

    Queries are rotated in place, and so is the part of the keys that all heads share. Keys are concatenated in memory
    from both parts; the gradient of the shared part is a sum over heads. Source: Megatron-LM,
    ``core/fusions/fused_mla_yarn_rope_apply.py``; a single kernel for both has the same traffic.
    """
    model, tokens = shape.model, shape.tokens
    heads, size = shape.split(model.attn_heads), shape.widths.result
    turned = tokens * (heads + 1) * model.qk_rope_head_dim
    yield rotary("AttnBlock_Rotary", turned, dtype_bytes=size, flags=_HEADS)
    parts = tokens * (heads * model.qk_nope_head_dim + model.qk_rope_head_dim)
    keys = tokens * heads * model.attn_size
    moved = size * (parts + keys)
    yield Layer(
        name="AttnBlock_Key_Join",
        kernel="cast",
        flops=(0.0, tokens * heads * model.qk_rope_head_dim, 0.0),
        accessed=(moved, moved, 0.0),
        inputs=parts,
        outputs=keys,
        output_bytes=size * keys,
        activation_grad=size * keys,
        flags=_HEADS,
    )
