"""The layers of a transformer block, or of a part of one."""

from dataclasses import replace

from .attention import attention_core, latent_projections, projected_widths
from .communication import OverlappedLinear, TPComm, copied, hide_input_gradients
from .counted_states import inner
from .experts import NAMES as FUNCTIONS
from .experts import again_as_a_whole, gate, routed, router, shared_sum
from .fusion import fused
from .layers import Flags, Layer
from .linear_attention import columns, prefix, state_layers
from .operators import (
    activation,
    add,
    converted,
    dropout,
    fork,
    late_bias,
    linear,
    residual_norm,
)
from .run import Run


def block_layers(run: Run) -> list[Layer]:
    """Layers in the order of the forward pass."""
    part = run.model.part
    letter = run.model.layer_pattern[:1]
    if letter:
        layers = _attention(run) if letter in "M*" else _mlp(run)
    elif part == "linear":
        layers = _chain(run)
    elif part == "block" and run.model.parallel_attention:
        layers = _side_by_side(run)
    else:
        layers = [] if part == "mlp" else _attention(run)
        layers += [] if part == "attention" else _mlp(run)
    layers = fused(layers, run)
    if run.execution.tp_async:
        hide_input_gradients(layers)
    return layers


def _common(run: Run) -> tuple[Flags, Flags]:
    """Flags of a layer that keeps its own activation, and of one that shares another's."""
    again = run.full_recompute
    shared = Flags(recompute=again, stores_activation=False, reuses_activation=True)
    return Flags(recompute=again), shared


def _tiled(run: Run) -> bool:
    return run.execution.tensor_par_overlap != "none"


def _enter(run: Run, prefix: str, norms: int = 1, *, kept: bool = True) -> list[Layer]:
    """Fork off the residual stream, and normalize."""
    if run.model.part != "block":
        return []
    plain = Flags(recompute=run.full_recompute, stores_activation=kept)
    again = Flags(recompute=run.redoes_norm, stores_activation=False, reuses_activation=True)
    split = fork(run, f"{prefix}_Fork", run.residual, 1 + norms, plain, run.element_bytes)
    return [split, *(residual_norm(run, prefix, again) for _ in range(norms))]


def _leave(run: Run, prefix: str, *, again: bool | None = None) -> list[Layer]:
    """Return to the residual stream."""
    again = run.full_recompute if again is None else again
    plain = Flags(recompute=again)
    shared = Flags(recompute=again, stores_activation=False, reuses_activation=True)
    if run.model.part != "block":
        return []
    layers = []
    if run.model.norms == 4:
        layers.append(residual_norm(run, f"{prefix}_Post", plain))
    if run.model.dropout:
        dropped = dropout(run, f"{prefix}_DropOut", run.residual, plain)
        dropped.branch = True
        layers.append(dropped)
    return [*layers, add(run, f"{prefix}_Residual", run.residual, shared)]


def _attention(run: Run) -> list[Layer]:
    model = run.model
    if model.linear:
        return _without_scores(run)
    made = latent_projections(run) if model.kv_lora_rank else _stated_projections(run)
    return [
        *_enter(run, "AttnBlock"),
        *made,
        *attention_core(run),
        *_reduced(
            run,
            "AttnBlock_MLP",
            model.attn_heads * model.value_size,
            model.hidden if model.out_bias else 0,
            again=run.redoes_stream,
            kept=not (model.attention_gate and run.by_operator),
        ),
        *_leave(run, "AttnBlock", again=run.redoes_stream),
    ]


def _without_scores(run: Run) -> list[Layer]:
    """Attention with a state in place of keys and values."""
    name, redo, again = prefix(run.model), run.regathers_shared, run.full_recompute
    kept = run.full_recompute or not run.redoes_delta_norm
    return [
        *_enter(run, name),
        *_widen(run, f"{name}_In", columns(run), 0, redo, outermost=True, whole=again),
        *state_layers(run),
        *_reduced(run, f"{name}_Out", inner(run.model), kept=kept),
        *_leave(run, name),
    ]


def _stated_projections(run: Run) -> list[Layer]:
    """Convert and multiply by the weights of queries, keys and values."""
    model = run.model
    queries, keys = projected_widths(run)
    width = queries + 2 * keys
    weights = (model.hidden + model.qkv_bias) * width
    counts = weights, run.activation, run.tokens * width
    return [
        *converted(
            run, "AttnBlock_QKV_Cast", counts, run.element_bytes, normed=True, side="gather"
        ),
        *(_tiled_projections(run) if _tiled(run) else _projections(run)),
    ]


def _gathered(run: Run, name: str, redo: bool, *, outermost: bool = False) -> list[Layer]:
    """Gather the input of column-split products, unless all activations are gathered already.

    Its own input is needed only to gather it again.
    """
    if run.execution.tp_impl == "allgather":
        return []
    stored = redo or not run.rules.gathered_input_once
    flags = Flags(recomm=redo, stores_activation=stored and not run.drops_inputs)
    return copied(run, TPComm(run, name, "gather", flags, outermost=outermost))


def _projections(run: Run) -> list[Layer]:
    """Query, key and value; one product but in the published form."""
    tokens, model = run.tokens, run.model
    _, shared = _common(run)
    redo = run.regathers_attention
    layers = _gathered(run, "AttnBlock_F", redo, outermost=True)
    queries, keys = projected_widths(run)
    if run.execution.fusion != "published":
        stored = not redo and not run.drops_inputs
        kept = Flags(recompute=run.redoes_operators, stores_activation=stored)
        width = queries + 2 * keys
        bias = width if model.qkv_bias else 0
        product = linear(run, "AttnBlock_QKV", tokens, model.hidden, width, kept, bias)
        product.repeated = keys / width
        return [*layers, product]
    split = Flags(recompute=redo, stores_activation=not redo and not run.drops_inputs)
    layers.append(
        fork(run, "AttnBlock_Multihead_Fork", run.activation, 3, split, run.operand_bytes)
    )
    for name, width in (("Query", queries), ("Key", keys), ("Value", keys)):
        bias = width if model.qkv_bias else 0
        again = run.redoes_operators if name == "Key" else run.full_recompute
        flags = replace(shared, recompute=again)
        layers.append(linear(run, f"AttnBlock_{name}", tokens, model.hidden, width, flags, bias))
    return layers


def _tiled_projections(run: Run) -> list[Layer]:
    """Query, key and value beside the gather of their input; published only query of multiquery."""
    tokens, h = run.tokens, run.model.hidden
    _, shared = _common(run)
    redo = run.regathers_attention
    stored = not run.drops_inputs
    flags = Flags(recompute=run.redoes_operators, recomm=redo, stores_activation=stored)
    queries, keys = projected_widths(run)
    alone = run.execution.attention_type == "multiquery" and not run.rules.fused_projections
    name, width = ("Query", queries) if alone else ("QKV", queries + 2 * keys)
    bias = width if run.model.qkv_bias else 0
    shape = tokens, h, width
    gather = OverlappedLinear(
        run, f"AttnBlock_{name}_AG", "gather", shape, flags, bias=bias, outermost=True
    )
    gather.repeated = keys / width
    if not alone:
        return [gather]
    split = Flags(recompute=redo, stores_activation=not redo)
    return [
        gather,
        fork(run, "AttnBlock_KV_Fork", run.activation, 2, split, run.operand_bytes),
        linear(run, "AttnBlock_Key", tokens, h, keys, shared),
        linear(run, "AttnBlock_Value", tokens, h, keys, shared),
    ]


def _widen(
    run: Run, name: str, width: int, bias: int, redo: bool, *, outermost: bool = False, whole: bool
) -> list[Layer]:
    """Return a column-split product of so many columns on this rank, with its gather; all of it may be made again."""
    h = run.model.hidden
    counts = h * width + bias, run.activation, run.tokens * width
    layers = converted(run, f"{name}_Cast", counts, run.element_bytes, normed=True, side="gather")
    again = whole or (run.by_operator and run.model.gated)
    stored, shape = not run.drops_inputs, (run.tokens, h, width)
    if _tiled(run):
        flags = Flags(recompute=again, recomm=redo, stores_activation=stored)
        product: Layer = OverlappedLinear(
            run, f"{name}_AG", "gather", shape, flags, bias=bias, outermost=outermost
        )
    else:
        flags = Flags(recompute=again, stores_activation=stored and not redo)
        layers += _gathered(run, f"{_part_of(name)}_F", redo, outermost=outermost)
        product = linear(run, name, *shape, flags, bias)
    product.repeated = 1 / 2  # of gate and other half
    return [*layers, product]


def _part_of(name: str) -> str:
    """Return the prefix of the name of a product: its block, half of a block, or shared experts."""
    return name.rpartition("_")[0]


def _inner_width(run: Run) -> int:
    """Columns of the first product of the MLP on one rank, with those of a gate."""
    return (2 if run.model.gated else 1) * (run.model.inner_width // run.execution.tensor_par)


def _function(run: Run, prefix: str = "MlpBlock") -> Layer:
    name = f"{prefix}_{FUNCTIONS[run.model.activation]}"
    kept = not run.drops_mlp
    layer = activation(run, name, Flags(recompute=run.redoes_function, stores_activation=kept))
    if run.by_operator and run.model.gated and not run.execution.fused_activation:
        layer.remade = layer.activation_space / 2
    return layer


def _shared(run: Run) -> list[Layer]:
    """The MLP of experts that every token passes, as any other."""
    width = run.model.shared_feedforward // run.execution.tensor_par
    columns = (2 if run.model.gated else 1) * width
    redo, whole = run.regathers_shared, run.full_recompute
    again = Flags(recompute=run.redoes_shared_function)
    kept = run.full_recompute or not run.redoes_shared_function
    layers = [
        *_widen(run, "Shared_Mlp1", columns, 0, redo, whole=whole),
        activation(run, f"Shared_{FUNCTIONS[run.model.activation]}", again, width * run.tokens),
        *_reduced(run, "Shared_Mlp2", run.model.shared_feedforward, kept=kept),
        *gate(run),
    ]
    if run.redoes_shared:
        again_as_a_whole(layers)
    return [*layers, shared_sum(run)]


def _mlp(run: Run) -> list[Layer]:
    model, width = run.model, _inner_width(run)
    if model.num_experts > 1:
        return [
            *_enter(run, "MlpBlock", kept=not run.drops_stream),
            *routed(run),
            *(_shared(run) if model.shared_feedforward else []),
            *_leave(run, "MlpBlock"),
        ]
    biased = model.expert_bias if model.num_experts else model.mlp_bias
    bias = width if biased else 0
    redo, whole = run.regathers_mlp, run.redoes_mlp
    return [
        *_enter(run, "MlpBlock", kept=not run.drops_stream),
        *([router(run)] if model.num_experts else []),
        *_widen(run, "MlpBlock_Mlp1", width, bias, redo, whole=whole),
        _function(run),
        *_reduced(
            run,
            "MlpBlock_Mlp2",
            model.inner_width,
            model.hidden if biased else 0,
            last=True,
            again=run.redoes_mlp,
            kept=run.full_recompute or not run.redoes_function,
        ),
        *_leave(run, "MlpBlock"),
    ]


def _side_by_side(run: Run) -> list[Layer]:
    """Attention and MLP of the same input: one product before both, one after."""
    model = run.model
    queries, keys = projected_widths(run)
    attention, inner = queries + 2 * keys, _inner_width(run)
    width = attention + inner
    bias = attention * model.qkv_bias + inner * model.mlp_bias
    redo, whole = run.regathers_attention, run.redoes_mlp
    out = model.attn_heads * model.attn_size + model.feedforward
    return [
        *_enter(run, "Block", norms=model.norms),
        *_widen(run, "Block_In", width, bias, redo, outermost=True, whole=whole),
        *attention_core(run),
        _function(run),
        *_reduced(
            run, "Block_Out", out, model.hidden * (model.out_bias + model.mlp_bias), last=True
        ),
        *_leave(run, "Block"),
    ]


def _reduced(
    run: Run,
    name: str,
    width: int,
    bias: int = 0,
    *,
    last: bool = False,
    again: bool | None = None,
    kept: bool = True,
) -> list[Layer]:
    """Linear layer from `width` back to the hidden width, and its reduction."""
    full, tokens, h = run.full_recompute if again is None else again, run.tokens, run.model.hidden
    ex, t = run.execution, run.execution.tensor_par
    if ex.tp_impl == "allgather":
        return _gathered_output(run, name, width, bias)
    share, prefix = width // t, _part_of(name)
    counts = share * h + bias, tokens * share, tokens * h
    # attention is a kernel of its own, but for what scales its result
    apart = name == "AttnBlock_MLP" and not run.model.attention_gate
    apart = apart or (name.endswith("Block_Out") and name != "Block_Out")
    layers = converted(run, f"{name}_Cast", counts, run.result_bytes, apart=apart, side="reduce")
    if _tiled(run):
        flags = Flags(recompute=full, recomm=full, stores_activation=kept)
        shape = tokens, share, h
        product = OverlappedLinear(
            run, f"{name}_RS", "reduce", shape, flags, bias=bias, outermost=last
        )
        layers.append(product)
    else:
        reduced = Flags(recomm=full, stores_activation=False)
        flags = Flags(recompute=full, stores_activation=kept)
        layers += [
            linear(run, name, tokens, share, h, flags, bias),
            *copied(run, TPComm(run, f"{prefix}_G", "reduce", reduced, outermost=last)),
        ]
    if bias and ex.bias_after_reduce:
        layers.append(late_bias(run, f"{prefix}_BiasAdd", Flags(recompute=full)))
    return layers


def _whole(run: Run, name: str, count: int, *, summed: bool = True) -> Layer:
    """Gather the columns of a product."""
    flags = Flags(recomm=run.full_recompute, stores_activation=False)
    return TPComm(run, name, "collect" if summed else "join", flags, count=count)


def _gathered_output(run: Run, name: str, width: int, bias: int) -> list[Layer]:
    """Gather the input of a product that is split by columns, too, and its output."""
    tokens, h, t = run.tokens, run.model.hidden, run.execution.tensor_par
    columns, own = h // t, bias // t
    counts = width * columns + own, tokens * width, tokens * columns
    return [
        _whole(run, f"{name}_Gather", tokens * width),
        *converted(run, f"{name}_Cast", counts, run.result_bytes, apart=True),
        linear(run, name, tokens, width, columns, Flags(recompute=run.full_recompute), own),
        _whole(run, f"{_part_of(name)}_Gather", run.activation),
    ]


def _chain(run: Run) -> list[Layer]:
    """One square product, split by columns, and its activation."""
    h, columns = run.model.hidden, run.model.hidden // run.execution.tensor_par
    bias = columns if run.model.mlp_bias else 0
    counts = h * columns + bias, run.activation, run.tokens * columns
    layers = converted(run, "Linear_Cast", counts, run.element_bytes)
    gathers = run.execution.tp_impl == "allgather"
    if not gathers:
        layers += copied(run, TPComm(run, "Linear_F", "gather", Flags(stores_activation=False)))
    again = Flags(recompute=run.full_recompute)
    return [
        *layers,
        linear(run, "Linear_Product", run.tokens, h, columns, again, bias),
        _function(run, "Linear"),
        _whole(run, "Linear_Gather", run.activation, summed=gathers),
    ]
