"""Expert parallelism: dispatch of tokens to the experts on other ranks, and combination of the results.

A group of ``e`` ranks has all experts once, ``E / e`` each; `u` tensor-parallel ranks may have parts of the same
experts, and then also all rows of each other. Each of the ``T_e`` tokens of a rank is routed to `k` experts:

- ``alltoall``: rows are copied, sent by all-to-all over `e`, and gathered over `u`; results return the same way;
- ``allgather``: every rank of the group gathers all tokens, and selects the rows of its experts;
- ``deepep``, ``hybridep``: a rank receives one copy of a token for all of its experts, and creates their rows from it;
  their sum is returned (:mod:`~calculon.hardware.collectives.dispatch`).

The backward pass sends the same volume in the opposite direction. Source: Megatron-LM, ``moe/token_dispatcher.py``,
``MoEAlltoAllTokenDispatcher``, ``MoEAllGatherTokenDispatcher`` and ``MoEFlexTokenDispatcher``; Lepikhin et al.,
*GShard*, arXiv 2006.16668, section 3.2.
"""

from collections.abc import Iterator

import numpy as np

from calculon.architecture.layer import COLUMN_INPUT, ROW_OUTPUT, Number, TensorOperator
from calculon.architecture.layers import RECOMPUTED, Layer, communication, tensor_collective
from calculon.architecture.layers.routing import (
    INDEX_BYTES,
    SCORE_BYTES,
    converted_rows,
    copied_rows,
    sorted_rows,
)
from calculon.architecture.projection import SENT, border_collective, with_copy
from calculon.architecture.shape import BlockShape
from calculon.base.units import Count, Elements
from calculon.declarations.named_values import exchanged_bytes
from calculon.hardware.collectives.dispatch import (
    ENTRY_BYTES,
    LIBRARIES,
    Routing,
    copy_bytes,
    distinct_parts,
)

COUNT_BYTES = 8
"""Bytes of a row count; ranks exchange one count per expert."""

_COUNT_KERNELS = 10
"""Kernels that sum and exchange row counts, and copy the splits of all-to-all and products to the host.

Source: Megatron-LM, ``moe/token_dispatcher.py``, ``MoEAlltoAllTokenDispatcher.preprocess`` and
``_maybe_dtoh_and_synchronize``.
"""

_ROW_EXCHANGES = (2, 2, 0)
"""All-to-all operations of a dispatch: rows, and their scores (``MoEAlltoAllTokenDispatcher.token_dispatch``)."""

_DISPATCH_KERNELS, _COMBINE_KERNELS = (3, 1, 0), (1, 2, 0)
"""Kernels of an expert library, forward and backward; the gradient of a combine is a dispatch with known counts."""


def dispatch_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield the layers that bring rows to the experts of this rank, in the order of the experts."""
    if not shape.choice.sequence_parallel:
        yield tensor_collective(
            "MlpBlock_Routing",
            COLUMN_INPUT,
            shape.tokens * shape.model.num_experts,
            shape.tensor_par,
            sequence_parallel=False,
            dtype_bytes=SCORE_BYTES,
            flags=SENT,
        )
        result = shape.widths.result
        yield border_collective("MlpBlock_F", COLUMN_INPUT, shape, SENT, dtype_bytes=result)
    if shape.choice.moe_dispatcher == "allgather":
        yield from _gathered_tokens(shape)
    elif shape.choice.moe_dispatcher in LIBRARIES:
        yield from _sent_copies(shape)
    else:
        yield from _sent_rows(shape)


def combine_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield the layers that return the results of experts to the ranks of their tokens, and sum them."""
    if shape.choice.moe_dispatcher == "allgather":
        yield from _summed_tokens(shape)
    elif shape.choice.moe_dispatcher in LIBRARIES:
        yield from _returned_copies(shape)
    else:
        yield from _returned_rows(shape)
    if not shape.choice.sequence_parallel:
        yield border_collective(
            "MlpBlock_G", ROW_OUTPUT, shape, SENT, outer=True, dtype_bytes=shape.widths.result
        )


# -- all-gather: every rank has all tokens ----------------------------------------------------------------------------


def _gathered_tokens(shape: BlockShape) -> Iterator[Layer]:
    """Yield the gathers of scores and tokens, and the copies of rows for the experts of this rank."""
    elements = shape.expert_tokens * shape.model.hidden
    scores = shape.expert_tokens * shape.model.num_experts
    marked = SCORE_BYTES, SCORE_BYTES + INDEX_BYTES
    if shape.choice.sequence_parallel:
        yield _of_group("MlpBlock_Routing", COLUMN_INPUT, shape, scores, *marked, group="width")
        layer = _of_group("MlpBlock_F", COLUMN_INPUT, shape, elements, group="width")
        yield from with_copy(layer, shape)
    yield _of_group("MlpBlock_EP_Routing", COLUMN_INPUT, shape, scores, *marked)
    yield _of_group("MlpBlock_EP_F", COLUMN_INPUT, shape, elements)
    yield _permuted(shape, elements, shape.rows)


def _summed_tokens(shape: BlockShape) -> Iterator[Layer]:
    """Yield the sums of the rows of each token, and their reduction over all ranks."""
    elements = shape.expert_tokens * shape.model.hidden
    yield _permuted(shape, elements, shape.rows, back=True)
    yield _of_group("MlpBlock_EP_G", ROW_OUTPUT, shape, elements)
    if shape.choice.sequence_parallel:
        layer = _of_group("MlpBlock_G", ROW_OUTPUT, shape, elements, group="width")
        yield from with_copy(layer, shape)


def _of_group(
    name: str,
    operator: TensorOperator,
    shape: BlockShape,
    elements: Elements,
    dtype_bytes: int | None = None,
    gathered_bytes: int | None = None,
    *,
    group: str = "all",
) -> Layer:
    """Gather or reduce over the ranks that hold all experts once, or over ``width`` if all experts are local."""
    sizes = shape.sizes
    apart = sizes.expert_par > 1
    if group == "all":
        ranks, axis = np.where(apart, sizes.expert_par * sizes.expert_tensor_par, 1.0), "ep"
    else:
        ranks, axis = np.where(apart, 1.0, sizes.expert_tensor_par), "tp"
    return _split(name, operator, shape, elements, ranks, axis, group, dtype_bytes, gathered_bytes)


def _split(
    name: str,
    operator: TensorOperator,
    shape: BlockShape,
    elements: Elements,
    ranks: Count,
    axis: str,
    group: str,
    dtype_bytes: int | None = None,
    gathered_bytes: int | None = None,
) -> Layer:
    """Gather a tensor that ranks share, or reduce-scatter it; by default in the bytes of results."""
    layer = tensor_collective(
        name,
        operator,
        elements,
        ranks,
        sequence_parallel=True,
        dtype_bytes=shape.widths.result if dtype_bytes is None else dtype_bytes,
        gathered_bytes=gathered_bytes,
        flags=SENT,
    )
    assert layer.collective is not None
    apart = layer.collective._replace(
        operations=operator.split, split_operations=None, axis=axis, group=group
    )
    return layer._replace(collective=apart)


# -- all-to-all: rows are sent to their experts -----------------------------------------------------------------------


def _sent_rows(shape: BlockShape) -> Iterator[Layer]:
    """Yield copies of rows, their all-to-all over experts, and their gather over parts of the same experts."""
    sizes = shape.sizes
    counts = communication(
        "MlpBlock_Counts",
        "ep",
        shape.model.num_experts * (sizes.expert_par * sizes.expert_tensor_par),
        np.where(sizes.expert_par > 1, sizes.expert_par * sizes.expert_tensor_par, 1.0),
        forward="all_gather",
        backward=None,
        dtype_bytes=COUNT_BYTES,
        flags=SENT,
    )
    assert counts.collective is not None
    yield counts._replace(
        collective=counts.collective._replace(group="all"), launches=(_COUNT_KERNELS, 0, 0)
    )
    yield _permuted(shape, shape.residual, shape.own_rows)
    yield from _exchange("MlpBlock_Dispatch", shape, dispatches=True)
    yield from _gathered_rows("MlpBlock_Rows_F", COLUMN_INPUT, shape)
    yield _in_order("MlpBlock_Sort", shape)


def _returned_rows(shape: BlockShape) -> Iterator[Layer]:
    """Yield the layers that reverse :func:`_sent_rows`."""
    yield _in_order("MlpBlock_Unsort", shape)
    yield from _gathered_rows("MlpBlock_Rows_G", ROW_OUTPUT, shape)
    yield from _exchange("MlpBlock_Combine", shape, dispatches=False)
    yield _permuted(shape, shape.residual, shape.own_rows, back=True)


def _gathered_rows(name: str, operator: TensorOperator, shape: BlockShape) -> Iterator[Layer]:
    """Yield the gather of rows over parts of the same experts, or the reduction of their results."""
    if shape.choice.sequence_parallel:  # otherwise only one rank has their tokens
        elements = shape.rows * shape.model.hidden
        yield _split(name, operator, shape, elements, shape.sizes.expert_tensor_par, "tp", "width")


def _exchange(name: str, shape: BlockShape, *, dispatches: bool) -> Iterator[Layer]:
    """Exchange the rows of a rank with their scores over the ranks that hold other experts.

    The busiest rank receives more than the mean, and all ranks wait for it.
    """
    ranks, hidden = shape.sizes.expert_par, shape.model.hidden
    sent = _sent_widths(shape, dispatches=dispatches)
    own = np.where(ranks > 1, shape.own_rows, 0.0)
    received = np.where(ranks > 1, shape.received_rows, 0.0)
    yield from _converted(name, shape, own + received, sent)
    layer = communication(
        name,
        "ep",
        received * hidden,
        ranks,
        forward="all_to_all",
        backward="all_to_all",
        # Rows as sent, in addition to rows as received
        saved=received * hidden if dispatches else 0.0,
        dtype_bytes=shape.widths.result,
        flags=SENT,
    )
    assert layer.collective is not None
    there, back = (received * (hidden * one + SCORE_BYTES) for one in sent)
    yield layer._replace(
        launches=_ROW_EXCHANGES if dispatches else None,
        accessed=(2 * there, 2 * back, 0.0),
        collective=layer.collective._replace(message=there, returned=back),
    )


def _sent_widths(shape: BlockShape, *, dispatches: bool) -> tuple[float, float]:
    """Return the bytes per sent element, forward and backward.

    Dispatch may use a narrower type than combine; the gradient of each is sent in the type of the other (DeepSeek-AI,
    *DeepSeek-V3*, arXiv 2412.19437, section 3.3.3).
    """
    choice, result = shape.choice, shape.widths.result
    dispatched = exchanged_bytes(choice.dispatch_dtype, result)
    combined = exchanged_bytes(choice.combine_dtype, result)
    return (dispatched, combined) if dispatches else (combined, dispatched)


def _converted(
    name: str, shape: BlockShape, rows: Count, sent: tuple[float, float]
) -> Iterator[Layer]:
    """Convert rows before they are sent and after they arrive, if a pass sends them in a narrower type."""
    result = shape.widths.result
    if min(sent) < result:
        elements = rows * shape.model.hidden
        yield converted_rows(f"{name}_Cast", elements, sent, result, flags=RECOMPUTED)


def _in_order(name: str, shape: BlockShape) -> Layer:
    """Sort rows that come from several ranks by their experts, unless the rank has a single expert."""
    sizes = shape.sizes
    several = sizes.expert_par > 1
    if shape.choice.sequence_parallel:
        several = several | (sizes.expert_tensor_par > 1)
    rows = np.where(several & (shape.local_experts > 1), shape.rows, 0.0)
    return sorted_rows(
        name,
        rows * shape.model.hidden,
        fused=shape.choice.fuses_permutation,
        dtype_bytes=shape.widths.result,
        flags=RECOMPUTED,
    )


# -- expert libraries: ranks receive one copy of a token --------------------------------------------------------------


def arrived_tokens(shape: BlockShape) -> Count:
    """Return the token copies that the busiest rank receives from an expert library, including its own tokens.

    See `distinct_parts`. Without other ranks, a rank creates the rows of its own tokens.
    """
    tokens, sizes = shape.residual / shape.model.hidden, shape.sizes
    arrived = sizes.load(padded=False) * distinct_parts(Routing.of(shape.model), sizes.expert_par)
    return tokens * np.where(sizes.expert_par > 1, arrived, 1.0)


def _sent_copies(shape: BlockShape) -> Iterator[Layer]:
    """Yield the dispatch of token copies, and the rows that each rank creates from received copies."""
    yield from _library("MlpBlock_Dispatch", shape, dispatches=True)
    yield _permuted(shape, arrived_tokens(shape) * shape.model.hidden, shape.rows)


def _returned_copies(shape: BlockShape) -> Iterator[Layer]:
    """Yield the sums of the rows of each copy, and their return, which sums them for each token."""
    yield _permuted(shape, arrived_tokens(shape) * shape.model.hidden, shape.rows, back=True)
    yield from _library("MlpBlock_Combine", shape, dispatches=False)


def _library(name: str, shape: BlockShape, *, dispatches: bool) -> Iterator[Layer]:
    """Exchange token copies; types, and the busiest rank, as in :func:`_exchange`.

    Row counts are sent with the copies. A dispatch keeps counts and scores for the backward pass, but not the tokens,
    which experts save. The kernels compute the layout, exchange the counts, and send; the return path knows the counts
    already. Source: DeepEP, README, ``get_dispatch_layout``, ``dispatch``, ``combine``; Megatron-LM,
    ``moe/fused_a2a.py``.
    """
    choice, model = shape.choice, shape.model
    ranks, routing = shape.sizes.expert_par, Routing.of(shape.model)
    sent = _sent_widths(shape, dispatches=dispatches)
    several = ranks > 1
    own = np.where(several, shape.residual / model.hidden, 0.0)
    arrived = np.where(several, arrived_tokens(shape), 0.0)
    yield from _converted(name, shape, own + arrived, sent)
    layer = communication(
        name,
        "ep",
        arrived * model.hidden,
        ranks,
        forward=choice.moe_dispatcher,
        backward=choice.moe_dispatcher,
        dtype_bytes=shape.widths.result,
        flags=SENT,
    )
    assert layer.collective is not None
    busiest = own * shape.sizes.load(padded=False)
    there, back = (copy_bytes(routing, model.hidden * one) for one in sent)
    entries = arrived * (ENTRY_BYTES * routing.each) if dispatches else 0.0 * arrived
    launches = _DISPATCH_KERNELS if dispatches else _COMBINE_KERNELS
    yield layer._replace(
        accessed=(2 * arrived * there, 2 * arrived * back, 0.0),
        activation=entries,
        launches=launches,
        collective=layer.collective._replace(
            message=busiest * there, returned=busiest * back, routing=routing
        ),
    )


# -- permutation ------------------------------------------------------------------------------------------------------


def _permuted(shape: BlockShape, elements: Elements, rows: Number, *, back: bool = False) -> Layer:
    """Copy tokens to rows in the order of experts (permute), or sum the rows of each token (unpermute)."""
    return copied_rows(
        "MlpBlock_Unpermute" if back else "MlpBlock_Permute",
        elements,
        rows * shape.model.hidden,
        back=back,
        fused=shape.choice.fuses_permutation,
        dtype_bytes=shape.widths.result,
        flags=RECOMPUTED,
    )
