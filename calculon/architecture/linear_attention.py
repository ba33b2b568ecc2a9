"""Linear attention: attention whose cost is linear in the sequence length, instead of softmax attention.

One product creates all inputs of a token; a short convolution or SiLU follows; then the state, which has a fixed size
and is passed between chunks of tokens; a gated norm; and the output product. Tensor parallelism divides all of it by
heads, as in attention. With context parallelism, ranks exchange their parts of sequences for whole sequences of some
heads, and back.

Source: gated delta rule: Yang et al., arXiv 2412.06464 (Qwen3-Next, Megatron-LM ``core/ssm/gated_delta_net.py``);
Mamba-2: Dao and Gu, arXiv 2405.21060 (Megatron-LM ``core/ssm/mamba_mixer.py``); lightning attention: Qin et al., arXiv
2401.04658 (MiniMax-01, arXiv 2501.08313, section 2.2).
"""

from collections.abc import Iterator

import numpy as np

from calculon.architecture.layer import Number
from calculon.architecture.layers import (
    RECOMPUTED,
    Flags,
    Layer,
    When,
    activation,
    communication,
)
from calculon.architecture.layers.state import (
    Core,
    gated_norm,
    linear_core,
    short_convolution,
)
from calculon.architecture.projection import input_layers, output_layers
from calculon.architecture.residual import entry_layers, exit_layers
from calculon.architecture.shape import BlockShape
from calculon.base.units import Elements
from calculon.declarations.model import Model

PREFIXES = {"gated_delta": "DeltaBlock", "mamba2": "MambaBlock", "lightning": "LightningBlock"}
"""Prefixes of layer names."""

CHUNK = 64
"""Tokens of a chunk of the gated delta rule and of lightning attention.

Source: flash-linear-attention, ``ops/gated_delta_rule/chunk.py``; Qin et al., arXiv 2401.04658, section 3.3, whose
kernels have blocks of 64.
"""

STATE_BYTES = 4
"""Bytes per element of a Mamba-2 state, and of the products within a chunk (``states_in_fp32``)."""


def linear_attention_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield norm, input product, convolution or SiLU, state, gated norm, output product, and residual sum.

    Recomputation of the gated norm repeats the exchange after it (Megatron-LM, module *gdn_norm_out*).
    """
    model, name = shape.model, PREFIXES[shape.model.linear_attention]
    if shape.whole_block:
        yield from entry_layers(name, shape)
    yield from input_layers(
        name,
        "In",
        shape,
        input_width(shape),
        bias=0.0,
        regather=When.REGATHER_SHARED,
        gathered=When.GATHERED_SHARED,
        outer=True,
    )
    yield from _exchanged(f"{name}_Heads_In", shape, _sent(shape), When.RECOMPUTE_ALL)
    yield _before_state(name, shape)
    yield linear_core(
        f"{name}_State",
        shape.tokens,
        _core(shape),
        dtype_bytes=shape.widths.result,
        stored_bytes=shape.dtype_bytes,
        flags=RECOMPUTED,
    )
    delta = model.linear_attention == "gated_delta"
    again = When.RECOMPUTE_GDN_NORM if delta else When.RECOMPUTE_ALL
    width = shape.split(inner_width(model))
    yield gated_norm(
        f"{name}_Norm",
        shape.tokens * width,
        float(model.linear_value_dim) if delta else width,
        dtype_bytes=shape.widths.result,
        stored_bytes=shape.dtype_bytes,
        flags=Flags(recompute=again),
    )
    yield from _exchanged(f"{name}_Heads_Out", shape, width, again)
    yield from output_layers(
        name,
        "Out",
        shape,
        inner_width(model),
        bias=0,
        joined=False,
        drops=When.RECOMPUTE_GDN_NORM if delta else When.NEVER,
    )
    if shape.whole_block:
        yield from exit_layers(name, shape)


def inner_width(model: Model) -> int:
    """Return the width of the state's output, which the output product reads."""
    match model.linear_attention:
        case "gated_delta":
            return model.linear_value_heads * model.linear_value_dim
        case "mamba2":
            return model.ssm_heads * model.ssm_head_dim
    return model.attn_heads * model.attn_size


def input_width(shape: BlockShape) -> Elements:
    """Return the columns of the input product on one rank: convolved channels, the gate, and scalars of each head."""
    return _channels(shape, _groups(shape)) + _gate_width(shape)


def _gate_width(shape: BlockShape) -> Elements:
    """Return the columns of the gate, and of the scalars of each head."""
    model = shape.model
    gate = shape.split(inner_width(model))
    match model.linear_attention:
        case "gated_delta":
            return gate + 2 * shape.split(model.linear_value_heads)
        case "mamba2":
            return gate + shape.split(model.ssm_heads)
    return gate


def _channels(shape: BlockShape, groups: Elements) -> Elements:
    """Return the channels of the convolution or SiLU: queries, keys and values, or their equivalents.

    Groups of heads of Mamba-2 share the projections that write and read the state; their number is given.
    """
    model, inner = shape.model, shape.split(inner_width(shape.model))
    match model.linear_attention:
        case "gated_delta":
            return 2 * shape.split(model.linear_key_heads * model.linear_key_dim) + inner
        case "mamba2":
            return inner + 2 * groups * model.ssm_state
    return 3 * inner


def _groups(shape: BlockShape) -> Elements:
    """Return the groups of Mamba-2 heads on one rank: its share, or one group shared with other ranks.

    Source: Megatron-LM, ``core/ssm/mamba_mixer.py``.
    """
    return np.ceil(shape.model.ssm_groups / shape.tensor_par)


def _exchanged_groups(shape: BlockShape) -> Elements:
    """Return the groups per token after the exchange of heads, with a copy on each rank that needs a group.

    After the exchange, a rank has more tokens by the number of exchanging ranks, each with fewer heads: the result is
    the number of groups per token before the exchange.

    Source: Megatron-LM, ``core/ssm/mamba_context_parallel.py``.
    """
    parts = shape.sizes.context_par
    return np.ceil(shape.model.ssm_groups / (shape.tensor_par * parts)) * parts


def _sent(shape: BlockShape) -> Elements:
    """Return the elements per token that are exchanged: all outputs of the input product."""
    return _channels(shape, _exchanged_groups(shape)) + _gate_width(shape)


def _exchanged(name: str, shape: BlockShape, width: Elements, again: str) -> Iterator[Layer]:
    """Exchange tokens of all heads of a rank for heads of all tokens, or back; nothing is saved.

    Source: Megatron-LM, ``core/ssm/mamba_context_parallel.py``; as attention does with ``cp_comm: a2a``.
    """
    parts = shape.sizes.context_par
    if (parts > 1).any():
        layer = communication(
            name,
            "cp",
            shape.tokens * width,
            parts,
            forward="all_to_all",
            backward="all_to_all",
            dtype_bytes=shape.widths.result,
            flags=Flags(recommunicate=again, drops_activation=When.ALWAYS),
        )
        yield layer._replace(activation_grad=0.0)


def _before_state(name: str, shape: BlockShape) -> Layer:
    """Return the short convolution with SiLU, or SiLU alone (lightning attention).

    The fused Mamba-2 kernel saves only the input product, and repeats the convolution in its backward pass.
    Source: state-spaces/mamba, ``ssd_combined.py``, ``MambaSplitConv1dScanCombinedFn``.
    """
    model, result = shape.model, shape.widths.result
    kind = model.linear_attention
    if kind == "lightning":
        return activation(
            f"{name}_SiLU",
            "silu",
            shape.tokens * _channels(shape, _groups(shape)),
            fused=shape.choice.fused_activation,
            input_grad=shape.edition.writes_input_gradients,
            dtype_bytes=result,
            flags=RECOMPUTED,
        )
    mamba = kind == "mamba2"
    return short_convolution(
        f"{name}_Conv",
        shape.tokens,
        _channels(shape, _exchanged_groups(shape)),
        model.ssm_conv if mamba else model.linear_conv,
        bias=mamba,
        stored=_channels(shape, _groups(shape)),
        again=mamba,
        dtype_bytes=result,
        stored_bytes=shape.dtype_bytes,
        flags=RECOMPUTED,
    )


def _core(shape: BlockShape) -> Core:
    """Return the cost of the state per token."""
    match shape.model.linear_attention:
        case "gated_delta":
            return _delta(shape)
        case "mamba2":
            return _mamba(shape)
    return _lightning(shape)


def _chunk(shape: BlockShape, tokens: int) -> Number:
    """Return the tokens of a chunk, at most the sequence length."""
    return np.minimum(float(tokens), shape.workload.keys)


def _delta(shape: BlockShape) -> Core:
    """Return the state of the gated delta rule, keys x values for each value head.

    The forward pass takes 8 FLOP per element of the state (products with key, value and query, and the sum of the
    update), and the products within a chunk of `C` tokens: ``C (5 d_k + 3 d_v)``. Its kernels exchange states in the
    type of keys, both sides of the WY form and the new values; queries, keys, values, decay, step and the inverse of a
    chunk are saved.

    Source: Yang et al., arXiv 2412.06464, section 3.3; flash-linear-attention, ``ops/gated_delta_rule/chunk.py``;
    counted FLOP: Megatron-LM, ``training.py``, ``num_floating_point_operations`` (with the convolution).
    """
    model, result = shape.model, shape.widths.result
    keys, values = model.linear_key_dim, model.linear_value_dim
    heads, key_heads = shape.split(model.linear_value_heads), shape.split(model.linear_key_heads)
    chunk = _chunk(shape, CHUNK)
    read = 2 * key_heads * keys + heads * (values + 2)
    between = heads * (keys * values / chunk + keys + 2 * values + chunk)
    channels = 2 * model.linear_key_heads * keys + model.linear_value_heads * values
    return Core(
        flops=heads * (8 * keys * values + chunk * (5 * keys + 3 * values)),
        read=read,
        written=heads * values,
        between=result * between,
        saved=result * (read + heads * chunk),
        weights=2 * heads,
        counted=8.0 * model.linear_value_heads * keys * values + 2 * model.linear_conv * channels,
    )


def _mamba(shape: BlockShape) -> Core:
    """Return the state of Mamba-2, ``ssm_state`` for each element of a head.

    The forward pass takes two products with the state, and two within a chunk of `Q` tokens:
    ``4 i N + 2 Q (n_g N + i)``, where `i` is the width of all heads. Its kernels exchange states and products of a
    group, in 4 bytes. Of its inputs, only the time step and its decay (in 4 bytes) are saved: the others are in the
    output of the input product.

    Source: Dao and Gu, arXiv 2405.21060, section 6; state-spaces/mamba, ``ssd_combined.py``; counted FLOP: Megatron-LM,
    ``training.py``, ``mamba_layer_flops``.
    """
    model, result = shape.model, shape.widths.result
    heads, state = shape.split(model.ssm_heads), model.ssm_state
    inner, groups = shape.split(inner_width(model)), _exchanged_groups(shape)
    written = groups * state
    chunk = _chunk(shape, model.ssm_chunk)
    return Core(
        flops=4 * inner * state + 2 * chunk * (written + inner),
        read=inner + 2 * written + heads,
        written=inner,
        between=STATE_BYTES * (inner * state / chunk + groups * chunk),
        saved=(result + STATE_BYTES) * heads,
        weights=3 * heads,
        counted=7.0 * inner_width(model) * state,
    )


def _lightning(shape: BlockShape) -> Core:
    """Return the state of lightning attention, keys x values for each head; it stays on the multiprocessors.

    The forward pass takes two products with the state, and two within a chunk of `C` tokens, half of which is masked:
    ``4 d d + 2 C d`` for each head of width `d`. Queries, keys and values are saved.

    Source: Qin et al., arXiv 2401.04658, algorithms 1 and 2; MiniMax-01, arXiv 2501.08313, section 2.2.
    """
    model, result = shape.model, shape.widths.result
    heads, size = shape.split(model.attn_heads), model.attn_size
    chunk = _chunk(shape, CHUNK)
    return Core(
        flops=heads * (4 * size**2 + 2 * chunk * size),
        read=3 * heads * size,
        written=heads * size,
        between=0.0,
        saved=result * 3 * heads * size,
        weights=0.0,
        counted=4.0 * model.attn_heads * size**2,
    )
