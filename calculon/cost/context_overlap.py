"""What hides the ring of context parallelism: keys and values on their way beside attention to those that are there."""

import numpy as np

from calculon.architecture.context_exchange import AXIS, RING
from calculon.architecture.shape import Sizes
from calculon.base.units import Array, Fraction, Seconds
from calculon.cost.beside import not_hidden
from calculon.cost.layer_cost import LayerCost, LayerTable, kernel_types
from calculon.cost.process_groups import layer_group
from calculon.cost.ring_steps import RingSteps, ring_steps
from calculon.cost.tensor import PASSES
from calculon.declarations.scope_choices import BlockChoice
from calculon.hardware.system import System


def ring_row(table: LayerTable) -> int | None:
    """Return which of the collectives of context parallelism is the ring; None without one."""
    names = [table.layers[row].name for row in table.collective_rows(AXIS)]
    return names.index(RING) if RING in names else None


def ring_hidden(
    table: LayerTable,
    cost: LayerCost,
    recomputed: Array,
    choice: BlockChoice,
    sizes: Sizes,
    system: System,
) -> Seconds:
    """Return what attention hides of the ring of a block: shape (passes, blocks), 0 without a ring.

    Passes are those of :data:`~calculon.cost.tensor.PASSES`. A ring that runs again does so beside attention that
    is computed again: the shares `recomputed` of the layers are.
    """
    number = ring_row(table)
    if number is None:
        return np.zeros((len(PASSES), table.weights.shape[1]))
    rows = table.rings
    assert len(rows) == 1, "a block attends once"
    row, types = rows[0], kernel_types(system, choice.layout)
    steps = ring_steps(
        table.layers[row], table.flops[:, row], table.accessed[:, row], system, types
    )
    layer = table.layers[table.collective_rows(AXIS)[number]]
    assert layer.collective is not None
    group = layer_group(AXIS, sizes, choice, system, layer.collective.group)
    link = cost.further[AXIS].link[:, number]
    found: Seconds = link - ring_exposed(link, steps, group.usage(system))
    found[2] *= np.broadcast_to(recomputed, table.weights.shape)[row] > 0
    return found


def ring_exposed(link: Seconds, steps: RingSteps, usage: Fraction) -> Seconds:
    r"""Return what a ring adds to the attention beside it, by pass, of the times `link` of all its transfers.

    Of `c` steps, each but the last one has a transfer of keys and values beside it, so that forward is exposed

    .. math:: [x - a_1]^+ + (c - 2) [x - a]^+

    for the transfer `x`, the step `a_1` of the own keys, and other steps `a`. Backward gradients of keys and values are
    on their way beside each step, which begins with the keys that came last and ends with the own ones:

    .. math:: (c - 1) [2 x - a]^+ + [x - a_1]^+

    While there is traffic, attention has the engines that it leaves, the share `usage` less.

    Source: Liu et al., *Ring Attention*, arXiv 2310.01889, section 3; Transformer Engine, ``context_parallel.py``,
    ``AttnFuncWithCPAndKVP2P``: the next transfer is started before a step's attention, and waited for after it.
    """
    others = steps.steps - 1
    sent = np.where(others > 0, others, 1.0)  # not always whole: a mean over blocks
    once = np.minimum(others, 1.0)
    first, later = steps.first, steps.later
    exposed = np.zeros_like(link)
    for number in (0, 2):
        hop = link[number] / sent
        exposed[number] = once * not_hidden(hop, first[0], usage) + (others - once) * not_hidden(
            hop, later[0], usage
        )
    hop = link[1] / (2 * sent + 1)
    exposed[1] = sent * not_hidden(2 * hop, later[1], usage) + not_hidden(hop, first[1], usage)
    return np.minimum(link, exposed)
