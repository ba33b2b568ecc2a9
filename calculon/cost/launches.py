"""The host, which launches kernels: no pass of a block takes less time than its launches."""

from collections.abc import Sequence

import numpy as np

from calculon.architecture.shape import Sizes
from calculon.base.arrays import ordered_sum
from calculon.base.units import Array, Seconds
from calculon.cost.axis_overlap import EXPERTS, exchange_rows, experts_hidden
from calculon.cost.layer_cost import LayerCost, LayerTable, tensor_exposed_times
from calculon.declarations.scope_choices import BlockChoice
from calculon.declarations.statistics import KINDS, Communication
from calculon.editions.edition import Edition
from calculon.hardware.system import System


def host_times(of_layers: Seconds, added: Seconds | float, again: Array | None) -> Seconds:
    """Return the time in which the host launches each phase: shape (phases, blocks).

    Args:
        of_layers (shape (phases, layers, blocks)): Time in which it launches the kernels of a layer.
        added: Time to launch the kernels that add gradients, with the weight gradients.
        again (shape (layers, blocks)): Mask of layers whose forward pass is launched again, with the activation
            gradients.
    """
    host = ordered_sum(of_layers)
    host[2] += added
    if again is not None:
        host[1] += ordered_sum(of_layers[0] * again)
    return host


def exposed_of_base(passes: Sequence[Communication], further: Seconds) -> Seconds:
    """Return the exposed time of the collectives of a base block by pass; `further` is of further axes."""
    base = KINDS.index("base")
    return np.stack([found.time_exposed[base] for found in passes]) + further


def bounded_by_launches(
    processing: Seconds, host: Seconds, again: Seconds, exposed: Seconds
) -> Seconds:
    """Return processing times of passes that take at least the launches of their kernels: shape (phases, blocks).

    The host launches on while the device waits for a collective. Exposed time is of a base block: the collectives
    of edge blocks depend on the pipeline, and a block costs the same with and without pipeline. Recomputation and both
    gradients are one pass for the host; the time that they wait for it is added to the weight gradients.

    Args:
        again: Time of recomputation.
        exposed: Exposed time of collectives, by pass of :data:`~calculon.cost.tensor.PASSES`.
    """
    forward = np.maximum(processing[0], host[0] - exposed[0])
    busy = again + processing[1] + processing[2] + (exposed[1] + exposed[2])
    waited = np.maximum(0.0, (host[1] + host[2]) - busy)
    return np.stack([forward, processing[1], processing[2] + waited])


def late_times(table: LayerTable, host: Seconds, busy: Seconds, recomputed: Array) -> Seconds:
    """Return the time in which the device waits because the host waited for row counts: shape (phases, blocks).

    The host waits in each forward pass and in recomputation, but in no backward pass, which knows the counts: its wait
    is part of the weight gradients. Source: Megatron-LM, ``moe/token_dispatcher.py``, ``_maybe_dtoh_and_synchronize``;
    DeepEP, README: the host waits for the counts of a dispatch.

    Args:
        host: Times in which the host launches the layers in each phase.
        busy: Times of the layers in each pass, from :func:`busy_times`.
    """
    first, kernels = table.awaited, table.kernels
    late = np.zeros((len(host), host.shape[-1]))
    late[0] = lag(host[0], busy[0], kernels[0], first)
    again = recomputed > 0
    if again[table.copied_rows].any():

        def both(repeated: Array, backward: Array) -> Array:
            return np.concatenate([repeated, backward[::-1]])

        late[2] = lag(
            both(host[0] * again, host[1] + host[2]),
            both(busy[2], busy[1]),
            both(kernels[0] * again, kernels[1] + kernels[2]),
            first,
        )
    return late


def busy_times(
    table: LayerTable,
    cost: LayerCost,
    recomputed: Array,
    choice: BlockChoice,
    edition: Edition,
    sizes: Sizes,
    system: System,
) -> Seconds:
    """Return the times of layers with exposed collectives of TP and EP: shape (passes, layers, blocks)."""
    forward, inputs, weights = cost.times.processing
    busy = np.stack([forward, inputs + weights, forward * recomputed])
    base = KINDS.index("base")
    exposed = tensor_exposed_times(table, cost, choice, edition)[:, base]
    busy[:, table.collective_rows()] += exposed
    rows = table.collective_rows(EXPERTS)
    busy[:, rows] += cost.further[EXPERTS].link
    exchanged = exchange_rows(table)
    if choice.moe_shared_overlap and exchanged is not None:
        hidden = experts_hidden(table, cost, recomputed, choice, sizes, system)
        for row, of_row in zip(exchanged, hidden[:, :, base], strict=True):
            busy[:, rows[row]] -= of_row
    return busy


def lag(host: Seconds, busy: Seconds, kernels: Array, first: int) -> Seconds:
    r"""Return the time that the device waits for the host, which waits for the device once per round of layers.

    The host begins a round with the layer `first`, when the device has nothing left to do, and launches all layers in
    order, those before `first` at the end. A kernel starts after its launch and after the kernel before it. So with the
    times `h` to launch kernels and `d` to run them, the device is idle for

    .. math:: \max_j \left(\sum_{i \le j} h_i - \sum_{i < j} d_i\right)

    where the kernels of a layer share its times equally: the maximum is at its first or its last kernel.

    Args:
        host, busy, kernels (shape (layers, blocks)): Times of launches, of the device, and the number of kernels.
        first: Row of the layer after the wait.
    """
    host, busy, kernels = (
        np.concatenate([one[first:], one[:first]]) for one in (host, busy, kernels)
    )
    others = 1 - 1 / np.maximum(kernels, 1.0)
    ahead = (host - busy).cumsum(axis=0) + busy
    waiting: Seconds = (ahead - others * np.minimum(host, busy)).max(axis=0)
    return waiting
