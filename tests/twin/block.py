"""The layers of a transformer block, and what one block takes for one microbatch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .layers import (
    Activation,
    DropOut,
    Flags,
    Fork,
    Layer,
    MatMul,
    OverlappedLinear,
    Stage,
    TPComm,
    add,
    batch_matmul,
    layer_norm,
    linear,
    pointwise,
)
from .run import KINDS, Kind, Run


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
    again = ex.activation_recompute in ("full", "attn_only")
    unstored = Flags(recompute=again, stores_output=not again)
    mask = Flags(recompute=again, stores_activation=not again)
    products = ex.microbatch_size * a // ex.tensor_par
    scores = a // ex.tensor_par * s**2 * ex.microbatch_size
    key_query, values = batch_matmul(products, s, d, s), batch_matmul(products, s, s, d)
    return [
        Fork(run, "AttnBlock_Fork", residual, 2, plain),
        Layer(run, "AttnBlock_LayerNorm", layer_norm(residual, model.hidden), shared),
        *_projections(run, redo=again or ex.seq_par_ag_redo),
        MatMul(run, "AttnBlock_Multihead_Key_Query", key_query, unstored),
        Activation(run, "AttnBlock_Multihead_SoftMax", pointwise(scores, 5, 8), unstored),
        DropOut(run, "AttnBlock_Multihead_DropOut", scores, mask),
        MatMul(run, "AttnBlock_Multihead_Attn", values, plain),
        *_reduced(run, "AttnBlock_MLP", "AttnBlock_G", a * d),
        DropOut(run, "AttnBlock_DropOut", residual, plain),
        Layer(run, "AttnBlock_Residual", add(residual), shared),
    ]


def _projections(run: Run, redo: bool) -> list[Layer]:
    """Query, key and value."""
    ex, tokens, h, d = run.execution, run.tokens, run.model.hidden, run.model.attn_size
    heads = run.model.attn_heads * d  # width of all heads together
    _, shared = _common(run)
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
            TPComm(run, "AttnBlock_F", "gather", Flags(recomm=redo)),
            Fork(run, "AttnBlock_Multihead_Fork", run.activation, 3, split),
            MatMul(run, "AttnBlock_Query", query, shared),
            *key_value,
        ]
    gather = Flags(recompute=run.full_recompute, recomm=redo)
    if multihead:
        return [OverlappedLinear(run, "AttnBlock_QKV_AG", "gather", tokens, h, 3 * heads, gather)]
    return [
        OverlappedLinear(run, "AttnBlock_Query_AG", "gather", tokens, h, heads, gather),
        Fork(run, "AttnBlock_KV_Fork", run.activation, 2, split),
        *key_value,
    ]


def _mlp(run: Run) -> list[Layer]:
    model, ex, tokens, residual = run.model, run.execution, run.tokens, run.residual
    h, f = model.hidden, model.feedforward
    plain, shared = _common(run)
    redo = run.full_recompute or ex.seq_par_ag_redo
    gather = Flags(recompute=run.full_recompute, recomm=redo)
    widen: list[Layer] = [OverlappedLinear(run, "MlpBlock_Mlp1_AG", "gather", tokens, h, f, gather)]
    if ex.tensor_par_overlap == "none":
        split = Flags(recompute=run.full_recompute, stores_activation=not redo)
        widen = [
            TPComm(run, "MlpBlock_F", "gather", Flags(recomm=redo)),
            MatMul(run, "MlpBlock_Mlp1", linear(tokens, h, f // ex.tensor_par), split),
        ]
    gelu = pointwise(f * tokens // ex.tensor_par, 8, 13, fused=ex.fused_activation)
    return [
        Fork(run, "MlpBlock_Fork", residual, 2, plain),
        Layer(run, "MlpBlock_LayerNorm", layer_norm(residual, h), shared),
        *widen,
        Activation(run, "MlpBlock_GeLU", gelu, plain),
        *_reduced(run, "MlpBlock_Mlp2", "MlpBlock_G", f),
        DropOut(run, "MlpBlock_DropOut", residual, plain),
        Layer(run, "MlpBlock_Residual", add(residual), shared),
    ]


def _reduced(run: Run, name: str, comm_name: str, width: int) -> list[Layer]:
    """Linear layer from `width` back to the hidden width, and its reduction."""
    full, tokens, h = run.full_recompute, run.tokens, run.model.hidden
    if run.execution.tensor_par_overlap == "none":
        counts = linear(tokens, width // run.execution.tensor_par, h)
        reduced = Flags(recomm=full, stores_activation=False)
        return [
            MatMul(run, name, counts, Flags(recompute=full)),
            TPComm(run, comm_name, "reduce", reduced),
        ]
    flags = Flags(recompute=full, recomm=full)
    return [OverlappedLinear(run, f"{name}_RS", "reduce", tokens, width, h, flags)]


@dataclass
class Work:
    """Totals of one stage over the layers of a block, in the order of the statistics."""

    flops: float = 0
    flops_time: float = 0
    mem_accessed: float = 0
    mem_time: float = 0
    time: float = 0


def _zeros() -> dict[Kind, float]:
    return {"base": 0, "edge": 0}


@dataclass
class Comm:
    """TP communication of one stage of a block, for each kind of block."""

    size: dict[Kind, float] = field(default_factory=_zeros)
    time: dict[Kind, float] = field(default_factory=_zeros)
    exposed: dict[Kind, float] = field(default_factory=_zeros)


class Block:
    """One block and microbatch; what only training has is 0 in inference."""

    def __init__(self, run: Run) -> None:
        self.run, training = run, run.execution.training
        layers = block_layers(run)
        backward = layers if training else []
        again = [layer for layer in backward if layer.flags.recomm]
        self.fw, self.fw_tp = _work(layers, "fw"), _comm(layers, "fw")
        self.agrad, self.agrad_tp = _work(backward, "agrad"), _comm(backward, "agrad")
        self.wgrad, self.recomm = _work(backward, "wgrad"), _comm(again, "wgrad")
        self.optim, self.re = _work(backward, "optim"), _recompute(backward)
        stages: tuple[Stage, ...] = ("fw", "agrad") if training else ("fw",)
        self.tp_bandwidth = max(
            layer.required_bandwidth(stage, kind)
            for layer in layers
            for stage in stages
            for kind in KINDS
        )
        self.weight = sum(layer.weight_space for layer in layers)
        self.act_working = sum(
            layer.activation_space for layer in layers if not layer.flags.reuses_activation
        )
        # [O17] A checkpoint is the whole activation, even with sequence parallelism.
        self.checkpoint = run.element_bytes * run.activation if run.full_recompute else 0
        self.act_storage = 0 if run.full_recompute else sum(_stored(x, training) for x in layers)
        self.weight_grad = sum(layer.weight_grad_space for layer in backward)
        self.weight_grad_unsharded = sum(4 * layer.counts.weights for layer in backward)
        self.act_grad = sum(layer.activation_grad_space for layer in backward)
        self.optimizer = sum(layer.optimizer_space for layer in backward)


def _stored(layer: Layer, training: bool) -> float:
    """Activation bytes kept from the forward to the backward pass."""
    if not training:
        return layer.activation_space
    stored = layer.activation_space if layer.flags.stores_activation else 0
    # An output that is not stored has been counted as the activation of the next layer.
    return stored if layer.flags.stores_output else stored - layer.output_space


def _work(layers: Sequence[Layer], stage: Stage) -> Work:
    return Work(
        flops=sum(layer.flops[stage] for layer in layers),
        flops_time=sum(layer.flops_time(stage) for layer in layers),
        mem_accessed=sum(layer.mem_accessed[stage] for layer in layers),
        mem_time=sum(layer.mem_time(stage) for layer in layers),
        time=sum(layer.processing_time(stage) for layer in layers),
    )


def _recompute(layers: Sequence[Layer]) -> Work:
    """[O1] All but the time adds up running totals of the forward pass."""
    total = Work()
    for count, layer in enumerate(layers, start=1):
        if layer.flags.recompute:
            so_far = _work(layers[:count], "fw")
            total.flops += so_far.flops
            total.flops_time += so_far.flops_time
            total.mem_accessed += so_far.mem_accessed
            total.mem_time += so_far.mem_time
            total.time += layer.processing_time("fw")
    return total


def _comm(layers: Sequence[Layer], stage: Stage) -> Comm:
    comm = Comm()
    for layer in layers:
        # [O2] An overlapped linear exposes its repeated communication as in the forward pass.
        as_forward = stage == "wgrad" and isinstance(layer, OverlappedLinear)
        for kind in KINDS:
            comm.size[kind] += layer.comm_size(stage, kind)
            comm.time[kind] += layer.link_time(stage, kind)
            comm.exposed[kind] += layer.exposed_time("fw" if as_forward else stage, kind)
    return comm
