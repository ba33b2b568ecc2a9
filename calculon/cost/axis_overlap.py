"""Overlap of further axes: context-parallel rings with attention, and dispatch and combine of experts with other work.

Passes are :data:`~calculon.cost.tensor.PASSES`: forward, backward (both gradients), and recomputation.
"""

import numpy as np

from calculon.architecture.context_exchange import AXIS as CONTEXT
from calculon.architecture.context_exchange import RING
from calculon.architecture.experts import SHARED
from calculon.architecture.shape import Sizes
from calculon.base.arrays import ordered_sum
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Fraction, Seconds
from calculon.cost.layer_cost import LayerCost, LayerTable, RingSteps, kernel_types, ring_steps
from calculon.cost.process_groups import exposed_time, layer_group, tensor_group
from calculon.cost.tensor import PASSES
from calculon.declarations.scope_choices import BlockChoice
from calculon.declarations.statistics import KINDS
from calculon.hardware.collectives.dispatch import engine_share
from calculon.hardware.system import System

EXPERTS = "ep"

_FORWARD, _BACKWARD, _AGAIN = range(len(PASSES))

# -- context parallelism ----------------------------------------------------------------------------------------------


def ring_row(table: LayerTable) -> int | None:
    """Return the index of the ring among the collectives of context parallelism; None without a ring."""
    names = [table.layers[row].name for row in table.collective_rows(CONTEXT)]
    return names.index(RING) if RING in names else None


def ring_hidden(
    table: LayerTable,
    cost: LayerCost,
    recomputed: Array,
    choice: BlockChoice,
    sizes: Sizes,
    system: System,
) -> Seconds:
    """Return the time of a block's ring that attention hides: shape (passes, blocks), 0 without a ring.

    `recomputed` is the share of each layer that is recomputed: a repeated ring is hidden by recomputed attention only.
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
    layer = table.layers[table.collective_rows(CONTEXT)[number]]
    assert layer.collective is not None
    group = layer_group(CONTEXT, sizes, choice, system, layer.collective.group)
    link = cost.further[CONTEXT].link[:, number]
    hidden: Seconds = link - ring_exposed(link, steps, group.usage(system))
    hidden[_AGAIN] *= np.broadcast_to(recomputed, table.weights.shape)[row] > 0
    return hidden


def ring_exposed(link: Seconds, steps: RingSteps, usage: Fraction) -> Seconds:
    r"""Return the exposed time of a ring by pass; `link` is the time of all its transfers, shape (passes, blocks).

    Each of `c` steps but the last overlaps with a transfer of keys and values. The exposed time of a forward pass is

    .. math:: [x - a_1]^+ + (c - 2) [x - a]^+

    for a transfer `x`, the step `a_1` with the rank's own keys, and other steps `a`. A backward pass begins with the
    keys that came last and ends with the own ones; gradients of keys and values are transferred during each step:

    .. math:: (c - 1) [2 x - a]^+ + [x - a_1]^+

    During traffic, attention lacks the share `usage` of the multiprocessors.

    Source: Liu et al., *Ring Attention*, arXiv 2310.01889, section 3; Transformer Engine, ``context_parallel.py``,
    ``AttnFuncWithCPAndKVP2P``: the next transfer is started before a step's attention, and waited for after it.
    """
    others = steps.steps - 1
    sent = np.where(others > 0, others, 1.0)  # not always an integer: a mean over blocks
    once = np.minimum(others, 1.0)
    first, later = steps.first, steps.later
    exposed = np.zeros_like(link)
    for number in (_FORWARD, _AGAIN):
        hop = link[number] / sent
        at_first, at_later = (exposed_time(hop, step[0], usage) for step in (first, later))
        exposed[number] = once * at_first + (others - once) * at_later
    hop = link[_BACKWARD] / (2 * sent + 1)
    at_first, at_later = exposed_time(hop, first[1], usage), exposed_time(2 * hop, later[1], usage)
    exposed[_BACKWARD] = sent * at_later + at_first
    return np.minimum(link, exposed)


# -- expert parallelism -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExpertTimes:
    """Times of a block with expert parallelism, each in seconds and of shape (passes, blocks).

    Work is a window for the exchange. It excludes the time that hides tensor-parallel traffic on a network that the
    exchange uses as well: two collectives cannot use the same link at full rate.

    Attributes:
        dispatch, combine: Link time of the exchange before and after the experts; in the backward pass, of the
            gradients of its output.
        experts: Work between dispatch and combine.
        attention: All other work of a block: attention, norms, router, shared experts.
        shared: Work of shared experts, a part of ``attention``: the first product with the activation function, and the
            second product.
        weights (shape (blocks,)): Work of the experts' weight gradients, a part of their backward pass.
        usage: Share of the multiprocessors that the exchange occupies.
    """

    dispatch: Seconds
    combine: Seconds
    experts: Seconds
    attention: Seconds
    shared: tuple[Seconds, Seconds]
    weights: Seconds
    usage: Fraction

    @classmethod
    def of(
        cls,
        table: LayerTable,
        cost: LayerCost,
        recomputed: Array,
        choice: BlockChoice,
        sizes: Sizes,
        system: System,
    ) -> "ExpertTimes":
        """Return the times of the layers of a block; `recomputed` is the share of each that is recomputed."""
        layers, count = table.layers, len(table.layers)
        group = layer_group(EXPERTS, sizes, choice, system)
        same = group.meets(tensor_group(sizes, choice, system), system)
        hidden = cost.traffic.link[:, 0] - cost.traffic.exposed[:, 0]
        busy = np.zeros((len(PASSES), count, table.weights.shape[1]))
        busy[:, table.collective_rows()] = np.where(same, hidden, 0.0)
        busy[_BACKWARD] += busy[_AGAIN]  # a repeated gather may overlap with gradients as well
        forward, inputs, weights = cost.times.processing
        work = np.stack([forward, inputs + weights, forward * recomputed])
        exchanged = exchange_rows(table)
        assert exchanged is not None, "rows are exchanged"
        sent, back = exchanged
        rows = table.collective_rows(EXPERTS)
        first, last = rows[sent], rows[back]
        place = np.arange(count)
        between = (place > first) & (place < last)
        shared = np.array([layer.name.startswith(SHARED) for layer in layers])
        second = np.array([layer.name.startswith(f"{SHARED}Mlp2") for layer in layers])

        def window(mask: Array) -> Seconds:
            chosen = mask[:, None]
            return np.maximum(0.0, ordered_sum(work * chosen) - ordered_sum(busy * chosen))

        link = cost.further[EXPERTS].link
        return cls(
            dispatch=link[:, sent],
            combine=link[:, back],
            experts=window(between),
            attention=window(~between),
            shared=(window(shared & (np.cumsum(second) == 0)), window(second)),
            weights=ordered_sum(weights * between[:, None]),
            usage=engine_share(system, choice.layout.moe_dispatcher, group.placed(system)),
        )

    def hidden(self, choice: BlockChoice) -> Seconds:
        """Return the time of dispatch and of combine that passes of one microbatch hide.

        The shape is (2, passes, kinds of block, blocks).
        """
        if choice.in_halves:
            return self._of_halves()
        found = np.zeros((2, *self.dispatch.shape))
        if choice.moe_shared_overlap:
            first, second = self.shared
            found[0] = self._hidden_by(self.dispatch, first)
            found[1] = self._hidden_by(self.combine, second)
        return np.stack([found] * len(KINDS), axis=2)

    def _of_halves(self) -> Seconds:
        """Return the hidden time per half of a microbatch that runs in two interleaved halves; all times are of a half.

        The exchange of one half overlaps with the work of the other: dispatch of the first half with attention of the
        second, dispatch of the second with experts of the first, and so on; combine of the second half overlaps with
        attention of the next block. A backward pass has the opposite order. So the last transfer of a forward pass and
        of recomputation in a block, and the first transfer of a backward pass, are exposed.
        Source: DeepSeek-AI, *DeepSeek-V3*, arXiv 2412.19437, section 3.4.1: attention and experts of one micro-batch
        overlap with dispatch and combine of another.
        """
        by_attention, by_experts = (
            np.stack([self._hidden_by(moved, work) for moved in (self.dispatch, self.combine)])
            for work in (self.attention, self.experts)
        )
        inner = by_attention + by_experts
        edge = inner.copy()
        edge[1] = by_experts[1]  # an edge block has no next block in its stage
        inner[1, _AGAIN] = edge[1, _AGAIN]  # nor has recomputation, which stops at each block
        return np.stack([inner, edge], axis=2) / 2

    def paired(self, choice: BlockChoice) -> Seconds:
        r"""Return the time that a forward and a backward pass of two microbatches hide, interleaved block by block.

        Their exposed time becomes

        .. math:: [C_b - A_f]^+ + [D_f - X_b]^+ + [D_b - X_f]^+ + [C_f - A_b]^+

        for dispatch `D`, combine `C`, attention `A` and experts `X`, forward (`f`) and backward (`b`): the combine of
        gradients overlaps with forward attention, the dispatch of tokens with the experts' gradients, and so on. The
        experts' weight gradients are part of :math:`X_b`; delayed until the dispatch of their input gradients, they are
        part of :math:`X_f` instead. Recomputation is part of backward passes.

        Source: Megatron-LM, ``core/models/common/model_chunk_schedule_plan.py``, ``TransformerLayerSchedulePlan.run``.
        """
        attention = self.attention[_BACKWARD] + self.attention[_AGAIN]
        experts = self.experts[_BACKWARD] + self.experts[_AGAIN]
        forward = self.experts[_FORWARD]
        if choice.delay_wgrad:
            delayed = np.minimum(self.weights, experts)
            experts, forward = experts - delayed, forward + delayed
        return (
            self._hidden_by(self.combine[_BACKWARD], self.attention[_FORWARD])
            + self._hidden_by(self.dispatch[_FORWARD], experts)
            + self._hidden_by(self.dispatch[_BACKWARD], forward)
            + self._hidden_by(self.combine[_FORWARD], attention)
        )

    def _hidden_by(self, traffic: Seconds, work: Seconds) -> Seconds:
        """Return the time of traffic that overlapping work hides, less the time by which the traffic slows it down."""
        return traffic - exposed_time(traffic, work, self.usage)


def exchange_rows(table: LayerTable) -> tuple[int, int] | None:
    """Return the indices of dispatch and combine among the collectives of experts; None without them.

    Collectives of subgroups of experts are always exposed.
    """
    rows = table.collective_rows(EXPERTS)
    collectives = [table.layers[row].collective for row in rows]
    found = [i for i, one in enumerate(collectives) if one is not None and not one.group]
    return (found[0], found[1]) if found else None


def experts_hidden(
    table: LayerTable,
    cost: LayerCost,
    recomputed: Array,
    choice: BlockChoice,
    sizes: Sizes,
    system: System,
) -> Seconds:
    """Return :meth:`ExpertTimes.hidden` of any block; 0 without exchange, or if the choice overlaps nothing with it."""
    if not choice.hides_experts or exchange_rows(table) is None:
        return np.zeros((2, len(PASSES), len(KINDS), table.weights.shape[1]))
    return ExpertTimes.of(table, cost, recomputed, choice, sizes, system).hidden(choice)
