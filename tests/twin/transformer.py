"""The layers of a transformer block."""

from __future__ import annotations

from .communication import OverlappedLinear, TPComm
from .counts import add, batch_matmul, layer_norm, linear, pointwise
from .layers import Activation, DropOut, Flags, Fork, Layer, MatMul
from .run import Run


def block_layers(run: Run) -> list[Layer]:
    """Layers in the order of the forward pass."""
    return [*_attention(run), *_mlp(run)]


def _common(run: Run) -> tuple[Flags, Flags]:
    """Flags of a layer that keeps its own activation, and of one that shares another's."""
    again = run.full_recompute
    shared = Flags(recompute=again, stores_activation=False, reuses_activation=True)
    return Flags(recompute=again), shared


def _attention(run: Run) -> list[Layer]:
    model, ex, residual = run.model, run.execution, run.residual
    s, a, d = model.seq_size, model.attn_heads, model.attn_size
    plain, shared = _common(run)
    again = run.recomputes_attention
    unstored = Flags(recompute=again, stores_output=not again)
    mask = Flags(recompute=again, stores_activation=not again)
    products = ex.microbatch_size * a // ex.tensor_par
    scores = a // ex.tensor_par * s**2 * ex.microbatch_size
    # [O22] Published is a key and a value per query head, in multiquery too.
    one_head = run.rules.one_key_value_head and ex.attention_type == "multiquery"
    key_heads = ex.microbatch_size if one_head else products
    key_query = batch_matmul(products, s, d, s, key_heads)
    values = batch_matmul(products, s, s, d, key_heads)
    weighted = Flags(recompute=again if run.rules.values_recomputed else run.full_recompute)
    return [
        Fork(run, "AttnBlock_Fork", residual, 2, plain),
        Layer(run, "AttnBlock_LayerNorm", layer_norm(residual, model.hidden), shared),
        *_projections(run),
        MatMul(run, "AttnBlock_Multihead_Key_Query", key_query, unstored),
        Activation(run, "AttnBlock_Multihead_SoftMax", pointwise(scores, 5, 8), unstored),
        DropOut(run, "AttnBlock_Multihead_DropOut", scores, mask),
        MatMul(run, "AttnBlock_Multihead_Attn", values, weighted),
        *_reduced(run, "AttnBlock_MLP", "AttnBlock_G", a * d, last=False),
        DropOut(run, "AttnBlock_DropOut", residual, plain),
        Layer(run, "AttnBlock_Residual", add(residual), shared),
    ]


def _projections(run: Run) -> list[Layer]:
    """Query, key and value."""
    ex, tokens, h, d = run.execution, run.tokens, run.model.hidden, run.model.attn_size
    heads = run.model.attn_heads * d  # width of all heads together
    _, shared = _common(run)
    redo = run.regathers_attention
    split = Flags(recompute=redo, stores_activation=not redo)
    multihead = ex.attention_type == "multihead"
    # [O22] In multiquery every TP rank has the one key and value head.
    kv = linear(tokens, h, heads // ex.tensor_par if multihead else d)
    key_value: list[Layer] = [
        MatMul(run, "AttnBlock_Key", kv, shared),
        MatMul(run, "AttnBlock_Value", kv, shared),
    ]
    if ex.tensor_par_overlap == "none":
        query = linear(tokens, h, heads // ex.tensor_par)
        return [
            TPComm(run, "AttnBlock_F", "gather", _gather(run, redo), outermost=True),
            Fork(run, "AttnBlock_Multihead_Fork", run.activation, 3, split),
            MatMul(run, "AttnBlock_Query", query, shared),
            *key_value,
        ]
    flags = Flags(recompute=run.full_recompute, recomm=redo)
    name, width = ("QKV", 3 * heads) if multihead else ("Query", heads)
    if run.rules.fused_projections and not multihead:
        multihead, name, width = True, "QKV", heads + 2 * d * ex.tensor_par
    gather = OverlappedLinear(
        run, f"AttnBlock_{name}_AG", "gather", tokens, h, width, flags, outermost=True
    )
    if multihead:
        return [gather]
    return [
        gather,
        Fork(run, "AttnBlock_KV_Fork", run.activation, 2, split),
        *key_value,
    ]


def _mlp(run: Run) -> list[Layer]:
    model, ex, tokens, residual = run.model, run.execution, run.tokens, run.residual
    h, f = model.hidden, model.feedforward
    plain, shared = _common(run)
    redo = run.regathers_mlp
    gather = Flags(recompute=run.full_recompute, recomm=redo)
    widen: list[Layer] = [OverlappedLinear(run, "MlpBlock_Mlp1_AG", "gather", tokens, h, f, gather)]
    if ex.tensor_par_overlap == "none":
        split = Flags(recompute=run.full_recompute, stores_activation=not redo)
        widen = [
            TPComm(run, "MlpBlock_F", "gather", _gather(run, redo)),
            MatMul(run, "MlpBlock_Mlp1", linear(tokens, h, f // ex.tensor_par), split),
        ]
    gelu = pointwise(f * tokens // ex.tensor_par, 8, 13, fused=ex.fused_activation)
    return [
        Fork(run, "MlpBlock_Fork", residual, 2, plain),
        Layer(run, "MlpBlock_LayerNorm", layer_norm(residual, h), shared),
        *widen,
        Activation(run, "MlpBlock_GeLU", gelu, plain),
        *_reduced(run, "MlpBlock_Mlp2", "MlpBlock_G", f, last=True),
        DropOut(run, "MlpBlock_DropOut", residual, plain),
        Layer(run, "MlpBlock_Residual", add(residual), shared),
    ]


def _gather(run: Run, redo: bool) -> Flags:
    """Flags of a gather by itself, whose input is needed again to `redo` it."""
    return Flags(recomm=redo, stores_activation=redo or not run.rules.gathered_input_once)


def _reduced(run: Run, name: str, comm_name: str, width: int, last: bool) -> list[Layer]:
    """Linear layer from `width` back to the hidden width, and its reduction."""
    full, tokens, h = run.full_recompute, run.tokens, run.model.hidden
    if run.execution.tensor_par_overlap == "none":
        counts = linear(tokens, width // run.execution.tensor_par, h)
        reduced = Flags(recomm=full, stores_activation=False)
        return [
            MatMul(run, name, counts, Flags(recompute=full)),
            TPComm(run, comm_name, "reduce", reduced, outermost=last),
        ]
    flags = Flags(recompute=full, recomm=full)
    scatter = OverlappedLinear(run, f"{name}_RS", "reduce", tokens, width, h, flags, outermost=last)
    return [scatter]
