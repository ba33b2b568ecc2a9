"""Mixture-of-experts (MoE) layers: the router and the experts that replace the MLP of a block.

Experts are spread over the ranks of a group, and each may be divided by width over some ranks;
:mod:`~calculon.architecture.expert_dispatch` sends tokens to them. Source of layers: Shazeer et al., arXiv 1701.06538,
section 2; Fedus et al., *Switch Transformers*, arXiv 2101.03961, section 2.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain

import numpy as np

from calculon.architecture.expert_dispatch import combine_layers, dispatch_layers
from calculon.architecture.layer import operator
from calculon.architecture.layers import Flags, Layer, When, fork
from calculon.architecture.layers.elementwise import ACTIVATIONS, activation
from calculon.architecture.layers.routing import (
    added_expert_bias,
    chosen_experts,
    grouped_linear,
    moved_rows,
    router,
)
from calculon.architecture.projection import (
    converted,
    input_layers,
    output_layers,
    project,
)
from calculon.architecture.shape import BlockShape
from calculon.base.units import Count
from calculon.declarations.model import Model
from calculon.hardware.collectives.dispatch import LIBRARIES

SHARED = "Shared_"
"""Prefix of the names of layers of shared experts."""

_PAD_KERNELS = 2
"""Kernels that pad the rows of experts, and their scores."""

_AGAIN = Flags(recompute=When.RECOMPUTE_ALL)
_SHARING = _AGAIN._replace(drops_activation=When.ALWAYS, shares_activation=True)


def _in_module(name: str, layers: Iterable[Layer]) -> Iterator[Layer]:
    """Assign layers to a module that may be checkpointed."""
    for layer in layers:
        yield layer._replace(flags=layer.flags._replace(module=name))


def router_layer(shape: BlockShape) -> Layer:
    """Return the product of the router, for the tokens of this rank in the residual region."""
    model = shape.model
    return router(
        "MlpBlock_Router",
        shape.residual / model.hidden,
        model.hidden,
        model.num_experts,
        bias=model.num_experts * model.router_bias,
        dtype_bytes=shape.dtype_bytes,
        flags=_AGAIN,
    )


def expert_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield router, dispatch, products of the experts, combination, and the shared experts.

    All layers except the input fork belong to the module that recomputation calls *moe*; shared experts and their gate
    are a module within it.
    """
    yield _readers(shape)
    yield from _in_module("moe", _routed(shape))
    if shape.model.shared_feedforward:
        yield from _in_module("shared_experts", _shared(shape))
        yield from _in_module("moe", [_with_shared(shape)])


def _routed(shape: BlockShape) -> Iterator[Layer]:
    """Yield the layers of routed experts, with the collectives around them."""
    model = shape.model
    yield router_layer(shape)
    yield chosen_experts(
        "MlpBlock_TopK",
        shape.residual / model.hidden,
        model.num_experts,
        model.experts_per_token,
        biased=model.router_bias and not model.expert_bias,
        fused=shape.choice.fuses_router,
        flags=_AGAIN,
    )
    inner = shape_of_rows(shape)
    if model.moe_latent:
        yield from _to_latents(shape)
    for layer in chain(dispatch_layers(inner), _padded(inner), combine_layers(inner)):
        yield layer._replace(routed=_depends_on_routing(layer))
    if model.moe_latent:
        yield from _from_latents(shape)


def _depends_on_routing(layer: Layer) -> bool:
    """Return whether the shape of a layer depends on the routing, unlike gathers of all tokens and of row counts."""
    collective = layer.collective
    if collective is None:
        return not layer.name.endswith("_Copy")  # of gathered tokens
    return collective.axis == "ep" and not collective.group


def shape_of_rows(shape: BlockShape) -> BlockShape:
    """Return the shape of dispatched rows and of the products of routed experts: as wide as their latents."""
    width = shape.model.moe_latent
    if not width:
        return shape
    return replace(
        shape,
        model=_of_width(shape.model),
        activation=shape.tokens * width,
        residual=shape.residual / shape.model.hidden * width,
    )


@lru_cache(maxsize=256)
def _of_width(model: Model) -> Model:
    """Return a model whose residual stream is as wide as the latents of routed experts."""
    return replace(model, hidden=model.moe_latent, moe_latent=0)


def _to_latents(shape: BlockShape) -> Iterator[Layer]:
    """Project the tokens of this rank to the latents that are dispatched.

    Every tensor-parallel rank has the complete weights; as for the router, the sum of their gradients over tensor ranks
    is not counted. An input that is as wide as results is saved once for all layers that read it.
    Source: NVIDIA, *Nemotron 3*, arXiv 2512.20856, section 2.2 (LatentMoE); Megatron-LM, ``moe/moe_layer.py``,
    ``fc1_latent_proj`` and ``fc2_latent_proj``.
    """
    local, name, model = shape.local, "MlpBlock_Latent_Down", shape.model
    yield from converted(f"{name}_Cast", local, model.hidden, model.moe_latent, 0.0, normed=True)
    narrow = shape.widths.operand < shape.widths.result
    flags = _AGAIN._replace(drops_activation=When.RECOMPUTE_NORM) if narrow else _SHARING
    layer = project(name, local, model.hidden, model.moe_latent, 0.0, flags)
    yield layer._replace(replicated=True)


def _from_latents(shape: BlockShape) -> Iterator[Layer]:
    """Project the summed expert outputs of each token of this rank back; the sums are saved."""
    local, name, model = shape.local, "MlpBlock_Latent_Up", shape.model
    result = shape.widths.result
    yield from converted(
        f"{name}_Cast", local, model.moe_latent, model.hidden, 0.0, source=result, joined=False
    )
    layer = project(name, local, model.moe_latent, model.hidden, 0.0, _AGAIN)
    yield layer._replace(replicated=True)


def _readers(shape: BlockShape) -> Layer:
    """Return the fork of the input to router and experts; the first product of shared experts saves it, too."""
    keeps = When.KEPT_BY_SHARED if shape.model.shared_feedforward else When.RECOMPUTE_NORM
    users = 3 if shape.model.shared_feedforward else 2
    layer = fork(
        "MlpBlock_Experts_Fork",
        shape.residual,
        users,
        dtype_bytes=shape.widths.result,
        flags=_AGAIN._replace(drops_activation=keeps),
    )
    return layer._replace(kernel="add")  # no adjacent kernel can add the gradients


def _padded(shape: BlockShape) -> Iterator[Layer]:
    """Yield the products of the experts, with copies of their rows if products need multiples of 16 or more rows.

    Products in 8 or 4 bits do. Each pass copies the rows of all experts, without the padding between them, and the
    results. Rows padded to a capacity are not padded again, and expert libraries pad them as they create them. The few
    rows of padding are not counted. Source: Megatron-LM, ``moe/experts.py``, ``TEGroupedMLP.forward``,
    ``quantization_padding``; Transformer Engine, ``pytorch/module/fp8_padding.py``.
    """
    choice, elements = shape.choice, shape.rows * shape.model.hidden
    if shape.recipe is None or choice.moe_pad_to_capacity or choice.moe_dispatcher in LIBRARIES:
        yield from _products(shape)
        return
    copy = partial(moved_rows, elements=elements, dtype_bytes=shape.widths.result, flags=_AGAIN)
    yield copy("MlpBlock_Experts_Pad", kernels=_PAD_KERNELS)
    yield from _products(shape)
    yield copy("MlpBlock_Experts_Unpad", kernels=1)


def _products(shape: BlockShape) -> Iterator[Layer]:
    """Yield both expert products, with the activation and the scores between them."""
    model, result = shape.model, shape.widths.result
    experts, each = shape.local_experts, model.experts_per_token
    rows, inner = shape.rows, shape.expert_width
    width = shape.mlp_products * inner
    loop = experts if shape.choice.loops_over_experts else 1.0
    dropped = _AGAIN._replace(drops_activation=When.RECOMPUTE_EXPERT_ACTIVATION)
    for name, n, k, bias, flags in (
        ("MlpBlock_Experts1", model.hidden, width, width * model.expert_bias, _AGAIN),
        ("MlpBlock_Experts2", inner, model.hidden, model.hidden * model.expert_bias, dropped),
    ):
        if name == "MlpBlock_Experts2":
            elements = rows * model.inner_width / shape.sizes.expert_tensor_par
            yield _activation(shape, np.floor(elements))
        yield from converted(
            f"{name}_Cast", shape, n, k, bias, source=result, rows=rows, copies=experts, loop=loop
        )
        yield grouped_linear(
            name,
            experts,
            each / model.num_experts,
            rows,
            n,
            k,
            bias=bias,
            loop=loop,
            widths=shape.widths,
            flags=flags,
        )
    if model.expert_bias:
        yield added_expert_bias(
            "MlpBlock_Experts_Bias", experts, rows * model.hidden, dtype_bytes=result, flags=_AGAIN
        )


def _activation(shape: BlockShape, elements: Count) -> Layer:
    """Return the activation of experts, which multiplies its output by the score of the row.

    With the scores applied here, outputs of experts need not be saved. Source: Megatron-LM, ``moe/experts.py``,
    ``activation_func_with_probs``.
    """
    layer = activation(
        f"MlpBlock_{ACTIVATIONS[shape.model.activation]}",
        shape.model.activation,
        elements,
        fused=shape.choice.fused_activation,
        input_grad=shape.edition.writes_input_gradients,
        dtype_bytes=shape.widths.result,
        flags=Flags(recompute=When.RECOMPUTE_EXPERT_ACTIVATION),
    )
    forward, backward, none = layer.flops
    return layer._replace(flops=(forward + elements, backward + 2 * elements, none))


def _shared(shape: BlockShape) -> Iterator[Layer]:
    """Yield the shared experts, which process every token: an MLP with its own collectives, and their gate."""
    model, result = shape.model, shape.widths.result
    width = shape.mlp_products * shape.split(model.shared_feedforward)
    yield from input_layers(
        "Shared",
        "Mlp1",
        shape,
        width,
        bias=0.0,
        regather=When.REGATHER_SHARED,
        gathered=When.GATHERED_SHARED,
    )
    yield activation(
        f"Shared_{ACTIVATIONS[model.activation]}",
        model.activation,
        np.floor(model.shared_feedforward * shape.tokens / shape.tensor_par),
        fused=shape.choice.fused_activation,
        input_grad=shape.edition.writes_input_gradients,
        dtype_bytes=result,
        flags=Flags(recompute=When.RECOMPUTE_SHARED_ACTIVATION),
    )
    yield from output_layers(
        "Shared",
        "Mlp2",
        shape,
        model.shared_feedforward,
        bias=0,
        drops=When.RECOMPUTE_SHARED_ACTIVATION,
    )
    elements = shape.residual
    if model.shared_gate:
        # A product with one column, whose sigmoid multiplies the output of the shared experts.
        yield operator(
            "Shared_Gate",
            "routing",
            (3 * elements, 4 * elements, 2 * elements),
            inputs=2 * elements,
            outputs=elements,
            weights=float(model.hidden),
            saved=elements,
            grad=elements,
            dtype_bytes=result,
            flags=_AGAIN,
        )._replace(weight_bytes=float(shape.dtype_bytes * model.hidden))


def _with_shared(shape: BlockShape) -> Layer:
    """Return the sum of the outputs of shared and routed experts."""
    elements, result = shape.residual, shape.widths.result
    return Layer(
        name="Shared_Sum",
        kernel="add",
        flops=(elements, 0.0, 0.0),
        accessed=(3 * result * elements, 0.0, 0.0),
        inputs=2 * elements,
        outputs=elements,
        output_bytes=result * elements,
        flags=_AGAIN,
    )
