"""Overlap of context-parallel rings with attention, and of expert-parallel exchange with other work of a block."""

import numpy as np

from calculon.architecture.context_exchange import AXIS as CONTEXT
from calculon.architecture.context_exchange import RING
from calculon.architecture.experts import SHARED
from calculon.architecture.shape import Sizes
from calculon.base.arrays import ordered_sum
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Fraction, Seconds
from calculon.cost.layer_cost import LayerCost, LayerTable, RingSteps, kernel_types, ring_steps
from calculon.cost.process_groups import layer_group, not_hidden, tensor_group
from calculon.cost.tensor import PASSES
from calculon.declarations.scope_choices import BlockChoice
from calculon.declarations.statistics import KINDS
from calculon.hardware.collectives.dispatch import engine_share
from calculon.hardware.system import System


def ring_row(table: LayerTable) -> int | None:
    """Return which of the collectives of context parallelism is the ring; None without one."""
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
    layer = table.layers[table.collective_rows(CONTEXT)[number]]
    assert layer.collective is not None
    group = layer_group(CONTEXT, sizes, choice, system, layer.collective.group)
    link = cost.further[CONTEXT].link[:, number]
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


EXPERTS = "ep"

_FORWARD, _BACKWARD, _AGAIN = range(len(PASSES))


@dataclass(frozen=True, slots=True)
class ExpertTimes:
    """Times of a block with spread experts by pass, each in seconds and of shape (passes, blocks).

    Passes are those of :data:`~calculon.cost.tensor.PASSES`: forward, backward (both gradients), and what of the
    forward pass is computed again. Work is counted without that beside which tensor-parallel traffic runs on a network
    that the exchange uses, too.

    Attributes:
        dispatch, combine: Exchange before and after the experts, on the link; in the backward pass those of their
            gradients.
        experts: Work between dispatch and combine.
        attention: All other work of a block: attention, norms, router, shared experts.
        shared: Of shared experts, which are part of the latter, the first product with the activation, and the second
            one.
        weights (shape (blocks,)): Work of the gradients of the weights of experts, which is part of their backward
            pass.
        usage: Share of the engines that the exchange takes while it runs.
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
        """Return those of the layers of a block, of which the shares `recomputed` are computed again."""
        layers, count = table.layers, len(table.layers)
        group = layer_group(EXPERTS, sizes, choice, system)
        same = group.meets(tensor_group(sizes, choice, system), system)
        traffic = cost.traffic.link[:, 0] - cost.traffic.exposed[:, 0]
        busy = np.zeros((len(PASSES), count, table.weights.shape[1]))
        busy[:, table.collective_rows()] = np.where(same, traffic, 0.0)
        busy[_BACKWARD] += busy[_AGAIN]  # which may run beside gradients as well
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

        def window(chosen: Array) -> Seconds:
            here = chosen[:, None]
            return np.maximum(0.0, ordered_sum(work * here) - ordered_sum(busy * here))

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
        """Return what passes of a microbatch hide by themselves, of dispatch and of combine.

        Returns:
            Array of shape (2, passes, kinds of block, blocks).
        """
        if choice.in_halves:
            return self._of_halves()
        found = np.zeros((2, *self.dispatch.shape))
        if choice.moe_shared_overlap:
            first, second = self.shared
            found[0] = self._beside(self.dispatch, first)
            found[1] = self._beside(self.combine, second)
        return np.stack([found] * len(KINDS), axis=2)

    def _of_halves(self) -> Seconds:
        """Return what one of two halves of a microbatch hides on average; all times are those of a half.

        Each transfer of a half runs beside the work of the other: the dispatch of the first beside attention of the
        second, that of the second beside the experts of the first, and so on, combine of the second beside attention
        of the next block; backward in the opposite order. So the last transfer of a forward pass, and the first one of
        a backward pass, run alone, and so does the last of what a block computes again.
        Source: DeepSeek-AI, *DeepSeek-V3*, arXiv 2412.19437, section 3.4.1: two micro-batches, attention and experts of
        one beside dispatch and combine of the other.
        """
        beside_attention, beside_experts = (
            np.stack([self._beside(moved, work) for moved in (self.dispatch, self.combine)])
            for work in (self.attention, self.experts)
        )
        inner = beside_attention + beside_experts
        alone = inner.copy()
        alone[1] = beside_experts[1]
        inner[1, _AGAIN] = alone[1, _AGAIN]
        return np.stack([inner, alone], axis=2) / 2

    def paired(self, choice: BlockChoice) -> Seconds:
        r"""Return what a forward and a backward pass of two microbatches, block by block beside each other, hide.

        What they expose by themselves becomes

        .. math:: [C_b - A_f]^+ + [D_f - X_b]^+ + [D_b - X_f]^+ + [C_f - A_b]^+

        for dispatch `D`, combine `C`, attention `A` and experts `X`: gradients are combined beside attention forward,
        tokens dispatched beside the gradients of experts, and so on. Gradients of the weights of experts are part of
        :math:`X_b`, or delayed until the gradients of their input are on their way, and so part of :math:`X_f`.
        What is computed again makes backward passes longer.

        Source: Megatron-LM, ``core/models/common/model_chunk_schedule_plan.py``, ``TransformerLayerSchedulePlan.run``.
        """
        attention = self.attention[_BACKWARD] + self.attention[_AGAIN]
        experts = self.experts[_BACKWARD] + self.experts[_AGAIN]
        forward = self.experts[_FORWARD]
        if choice.delay_wgrad:
            delayed = np.minimum(self.weights, experts)
            experts, forward = experts - delayed, forward + delayed
        return (
            self._beside(self.combine[_BACKWARD], self.attention[_FORWARD])
            + self._beside(self.dispatch[_FORWARD], experts)
            + self._beside(self.dispatch[_BACKWARD], forward)
            + self._beside(self.combine[_FORWARD], attention)
        )

    def _beside(self, traffic: Seconds, work: Seconds) -> Seconds:
        """Return what of traffic is hidden by the work beside it, which it slows down."""
        return traffic - not_hidden(traffic, work, self.usage)


def exchange_rows(table: LayerTable) -> tuple[int, int] | None:
    """Return which of the layers with collectives of experts are dispatch and combine; None without them.

    What else ranks tell each other, the work waits for.
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
    """Return :meth:`ExpertTimes.hidden` of any block: nothing where none is exchanged, or nothing runs beside it."""
    if not choice.hides_experts or exchange_rows(table) is None:
        return np.zeros((2, len(PASSES), len(KINDS), table.weights.shape[1]))
    return ExpertTimes.of(table, cost, recomputed, choice, sizes, system).hidden(choice)
