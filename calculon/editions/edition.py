"""Every choice in which editions of the cost model differ, as a function: as it should be.

The published model (edition ``sc23``) has behaviour that is odd but required: it overrides what it does otherwise. No
formula asks which edition it serves. Tags such as [A05] name a row of the fidelity table in ``validation/editions.md``,
which says what was wrong and what difference it makes.
"""

from typing import Any, Final, Literal, NamedTuple, TypeVar

import numpy as np

from calculon.base.arrays import ordered_sum, rate
from calculon.base.frozen import dataclass
from calculon.base.records import Column, columns, view
from calculon.base.units import (
    Array,
    Bytes,
    BytesPerSecond,
    Count,
    Elements,
    Flops,
    Fraction,
    Seconds,
)
from calculon.declarations.model import Model
from calculon.declarations.named_values import CORRECTED, MASTER_BYTES
from calculon.declarations.scope_choices import BlockChoice, LayoutChoice, StepChoice
from calculon.declarations.statistics import CorrectedStats
from calculon.hardware.system import System

R = TypeVar("R")
Side = Literal["gather", "reduce"]


class When:
    """When something happens to a layer, as :meth:`Edition.happens` tells of a choice.

    Where an edition does not say otherwise, names of properties of
    :class:`~calculon.declarations.scope_choices.BlockChoice`.
    """

    NEVER: Final = "never"
    ALWAYS: Final = "always"
    RECOMPUTE_ALL: Final = "recompute_all"
    RECOMPUTE_ATTENTION: Final = "recompute_attention"
    RECOMPUTE_VALUES: Final = "recompute_values"
    REGATHER_ATTENTION: Final = "regather_attention"
    REGATHER_MLP: Final = "regather_mlp"
    GATHERED_ATTENTION: Final = "gathered_attention"
    GATHERED_MLP: Final = "gathered_mlp"
    DROPPED_ATTENTION: Final = "dropped_attention"
    DROPPED_MLP: Final = "dropped_mlp"
    RECOMPUTE_OPERATORS: Final = "recompute_operators"
    REMAKES: Final = "remakes"
    RECOMPUTE_NORM: Final = "recompute_norm"
    RECOMPUTE_ACTIVATION: Final = "recompute_activation"
    RECOMPUTE_MLP: Final = "recompute_mlp"
    RECOMPUTE_GATED: Final = "recompute_gated"
    RECOMPUTE_STREAM: Final = "recompute_stream"
    DROPS_HIDDEN: Final = "drops_hidden"
    REGATHER_SHARED: Final = "regather_shared"
    GATHERED_SHARED: Final = "gathered_shared"
    DROPPED_SHARED: Final = "dropped_shared"
    KEPT_BY_SHARED: Final = "kept_by_shared"
    RECOMPUTE_SHARED_ACTIVATION: Final = "recompute_shared_activation"
    RECOMPUTE_EXPERT_ACTIVATION: Final = "recompute_expert_activation"
    RECOMPUTE_LATENT_HEADS: Final = "recompute_latent_heads"
    DROPS_LATENT_HEADS: Final = "drops_latent_heads"
    DROPS_STREAM: Final = "drops_stream"
    RECOMPUTE_GDN_NORM: Final = "recompute_gdn_norm"


REGATHERED = {
    When.GATHERED_ATTENTION: When.REGATHER_ATTENTION,
    When.DROPPED_ATTENTION: When.REGATHER_ATTENTION,
    When.GATHERED_MLP: When.REGATHER_MLP,
    When.DROPPED_MLP: When.REGATHER_MLP,
    When.GATHERED_SHARED: When.REGATHER_SHARED,
    When.DROPPED_SHARED: When.REGATHER_SHARED,
}
"""When the input is gathered again whose whole tensor, or whose share, is kept or not."""


class OverlappedSpace(NamedTuple):
    """Elements that an overlapped linear ``(m, n) x (n, k)`` stores and moves.

    Attributes:
        saved: Saved input, while the block is computed and, unless ``shard`` takes its place, until the backward pass.
        grad: Gradient of the output.
        backward: Activations that each gradient pass moves in tier-1 memory, weights apart.
        shard: What stays of an input that is gathered again in the backward pass.
    """

    saved: Elements
    grad: Elements
    backward: Elements
    shard: Elements | float


@dataclass(frozen=True, slots=True, kw_only=True)
class DataParallelWindow:
    """What data-parallel traffic can hide behind, per execution.

    Attributes:
        collective: Time of the collectives of one block.
        backward_base, backward_edge: Whole backward time of the two kinds of block.
        backward_chunk: Whole backward time of a chunk.
        memory: Time on tier-1 memory in the backward time of a block.
        tensor_base, tensor_edge: Time that tensor-parallel collectives of the backward pass take on the same network; 0
            on another one.
        compute, step_compute: Arithmetic time of the backward pass of a block, and of an optimizer step that traffic
            may slow.
        slack: Time of the optimizer step of a block without its memory time, where the optimizer is not sharded.
        p2p: Time of one backward pipeline transfer.
        shares_pipeline_network: Data and pipeline parallelism use the same network.
        usage: Share of the engines lost while communicating.
        microbatches, pipeline_par, interleaving, chunk_blocks: Counts of the schedule.
        message, traffic_factor: Bytes of a block's message, and the scalars of its operations.
        volume: Bytes that the collectives of a block move per endpoint.
        head: Time of the collectives of the output head, whose gradients are there first.
    """

    collective: Seconds
    backward_base: Seconds
    backward_edge: Seconds
    backward_chunk: Seconds
    memory: Seconds
    tensor_base: Seconds
    tensor_edge: Seconds
    compute: Seconds
    step_compute: Seconds
    slack: Seconds
    p2p: Seconds
    shares_pipeline_network: Array
    usage: Fraction
    microbatches: Count
    pipeline_par: Count
    interleaving: Count
    chunk_blocks: Count
    message: Bytes
    traffic_factor: Array
    volume: Bytes
    head: Seconds | float = 0.0


MAIN_GRADIENT_BYTES = 4
"""Bytes of an element of the gradients that microbatches are added up in (Megatron-LM's *main gradients*)."""

ROUNDING = 1e-12
"""Share of a time that may be left of the difference of equal ones."""


class Edition:
    """One edition of the cost model; what it does not override has the defects of the published model corrected.

    Attributes:
        name: As in the field ``edition`` of an execution.
        stats: Record of the statistics that it computes.
        writes_input_gradients: Whether the backward pass of norms, activations, softmax and attention products counts
            the gradients of their inputs, which it writes.
        counts_flops: Whether its statistics need the FLOP that the matrix engine executes.
        computes_fused_activations_again: Whether what a fused activation does not keep costs a pass of the backward
            pass.
        fuses_activations: Whether a search fuses activations unless it is told otherwise.
        times_tiles: Whether the tiles of a product that overlaps its collective are products of their own.
        prefers_few_switches: Whether of equally good executions a search returns those that offload, recompute and
            overlap least, before the order of its loops decides.
    """

    name: str
    stats: Any
    writes_input_gradients = True  # [A22]
    counts_flops = True
    computes_fused_activations_again = True  # [A60]
    fuses_activations = False  # [A60]
    times_tiles = True  # [A49]
    prefers_few_switches = True  # [A52]

    def __repr__(self) -> str:
        return f"<edition {self.name}>"

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of its statistics."""
        return columns(self.stats)

    def machine(self, system: System) -> System:
        """Return the system as this edition knows it: by default all of it."""
        return system

    # -- layers ---------------------------------------------------------------------------------------------------

    def happens(self, when: str, choice: BlockChoice) -> bool:
        """Whether something happens to a layer under a choice (:class:`~calculon.architecture.layer.When`).

        [A02, A25, A28] Inputs are gathered again only where they are split; then their shard is what is stored, unless
        the norm that makes it is computed again.
        """
        match when:
            case When.DROPPED_ATTENTION | When.DROPPED_MLP | When.DROPPED_SHARED:
                return choice.recompute_norm or self.happens(REGATHERED[when], choice)
            case When.KEPT_BY_SHARED:
                kept = "shared_experts" not in choice.checkpoints and (
                    not choice.sequence_parallel or self.happens(When.REGATHER_SHARED, choice)
                )
                return choice.recompute_norm or kept
            case When.RECOMPUTE_VALUES:
                return choice.recompute_attention
            case When.REGATHER_ATTENTION | When.REGATHER_MLP | When.REGATHER_SHARED:
                return choice.sequence_parallel and bool(getattr(choice, when))
            case When.GATHERED_ATTENTION | When.GATHERED_MLP | When.GATHERED_SHARED:
                return choice.recompute_norm or not self.happens(REGATHERED[when], choice)
        return bool(getattr(choice, when))

    def dropout_grad_bytes(self, dtype_bytes: int) -> int:
        """Bytes of one element of the gradient of a dropout's output.

        [A21] The gradient has the datatype of the activations.
        """
        return dtype_bytes

    def fuses_projections(self, choice: LayoutChoice) -> bool:
        """Whether query, key and value are one product when that runs beside its collective.

        [A45] Always.
        """
        return True

    def key_value_width(
        self, model: Model, choice: LayoutChoice, tensor_par: Count
    ) -> Elements | int:
        """Width of the key projection (and of the value projection) on one processor.

        [A45] Whole heads: a rank has its share of them, or one that it shares with other ranks.
        """
        return self.key_value_heads(model, choice, tensor_par) * model.attn_size

    def key_value_heads(self, model: Model, choice: LayoutChoice, tensor_par: Count) -> Array:
        """Key (and value) heads that the score products of one processor read, as a share of all; per sequence.

        [A45] Those of the model, at least one; one for all in multiquery attention.
        """
        heads = 1 if choice.multiquery else model.key_value_heads
        return np.ceil(heads / tensor_par)

    def overlapped_space(
        self,
        side: Side,
        choice: LayoutChoice,
        m: Elements,
        n: Elements,
        k: Elements,
        tensor_par: Count,
    ) -> OverlappedSpace:
        """Elements that an overlapped ``(m, n) x (n, k)`` stores and moves.

        [A04, A29, A30] The operands of the gradient products; of an input that is gathered again, its shard.
        """
        inputs, outputs = m * n, m * k
        shard = np.floor(inputs / tensor_par) if side == "gather" else inputs
        return OverlappedSpace(inputs, outputs, backward=inputs + outputs, shard=shard)

    # -- time of a block ------------------------------------------------------------------------------------------

    def link_time(
        self,
        network: Seconds,
        work: Seconds,
        *,
        recommunication: bool,
        overlapped: bool,
        by_bus: Array,
    ) -> Seconds:
        """Time of a collective, from its network time and that of its arithmetic and, alone in its layer, memory.

        A repeated collective is given the work of the forward one. An overlapped one runs beside a product. `by_bus`
        says where the network is stated by its bus bandwidth.

        [A23, A24] As published: arithmetic and memory pass count, but not of a repeated collective. Where the network
        is stated by its bus bandwidth, they are part of its time.

        The published validation is calibrated with this convention, on networks without a kind. Beside a product, a
        repeated collective is the first one again: it must not be exposed for longer than it takes.

        Source: nccl-tests, doc/PERFORMANCE.md: times are from memory to memory, with the reduction.
        """
        if overlapped:
            return network + work
        return network if recommunication else network + np.where(by_bus, 0.0, work)

    def splits_collectives(self, choice: BlockChoice, *, edge: bool, outer: bool) -> bool:
        """Whether a collective is split into reduce-scatter and all-gather.

        In a base or `edge` block; an `outer` one is next to the pipeline transfer: the first gather, the last reduce.

        [A18] Around pipeline transfers, only the first gather and the last reduction.
        """
        return choice.sequence_parallel or (edge and outer and choice.splits_transfers)

    def overlapped_times(
        self,
        arithmetic: Seconds,
        memory: Seconds,
        link: Seconds,
        tiles: Count,
        usage: Fraction,
        system: System,
        *,
        pipelined: bool,
    ) -> tuple[Seconds, Seconds]:
        """Return processing and exposed time of an overlapped linear in one pass.

        Arrays are of shape ``(layers, blocks)``; `link` and exposed time are by kind of block, the first axis.

        [A05, A06, L1, L3] The first tile runs alone; the others are slowed, and wait for longer communication.

        Being slowed never takes longer than running slowed from beginning to end, and a collective hides behind all
        that it runs beside [L1], so that more bandwidth or FLOP/s is never slower. Each kind of block waits for its
        own collective [A06], and is slowed by it: what that takes beyond a base block counts as exposed [L3]. The
        first tile of the pipelined form is paid once, as exposed time [A05].
        """
        slowed = arithmetic / (1 - usage)
        normal, longest = system.combine(arithmetic, memory), system.combine(slowed, memory)
        beside = system.overlappable_time(slowed, memory)
        first, others = 1 / tiles, (tiles - 1) / tiles
        slower = np.minimum(normal + link * usage, longest)
        processing = first * normal + others * np.where(link > beside, longest, slower)
        processing = np.where(link > 0, processing, normal)
        exposed = others * np.maximum(0.0, link - beside)
        exposed = np.maximum(0.0, exposed + (processing - processing[0]))
        if pipelined:
            exposed = exposed + link * first
        return processing[0], exposed

    def gradient_link(self, link: Seconds, recomputed: Array) -> Seconds:
        """Link time beside which the weight-gradient pass runs, from that of the repeated collective.

        [A07] A recomputed layer has repeated its collective in its forward pass.
        """
        return np.where(recomputed, 0.0, link)

    def repeated_exposed(self, forward: Seconds, backward: Seconds, recomputed: Array) -> Seconds:
        """Exposed time of a layer's repeated overlapped collective, from the forward and weight-gradient pass.

        [A06] That of the pass in which it is repeated.
        """
        return np.where(recomputed, forward, backward)

    def recommunication_exposed(self, forward: Seconds, repeated: Seconds) -> Seconds:
        """Return what counts of :meth:`repeated_exposed` in a block, given that of the forward pass too.

        [A06] The same in a block as in its layers.
        """
        return repeated

    def recomputed_work(self, forward: Array, recomputed: Array) -> Array:
        """Work of recomputation: ``forward`` is ``(..., layers, blocks)``, ``recomputed`` a flag per layer.

        [A01] The forward work of the recomputed layers.
        """
        return ordered_sum(forward * recomputed)

    # -- space of a block -----------------------------------------------------------------------------------------

    def checkpoint_bytes(self, activation: Bytes, choice: LayoutChoice, tensor_par: Count) -> Bytes:
        """Bytes of the block input that full recomputation keeps.

        [A15] The block input is split where the residual stream is.
        """
        return np.floor(activation / tensor_par) if choice.sequence_parallel else activation

    def gradient_bytes(self, choice: StepChoice, shards: Count) -> Array | int:
        """Bytes of an element of the weight gradients that stay until the optimizer step.

        [A10, A11] Four while they are whole; sharded with the optimizer, those of the weights; or as stated.
        """
        if stated := choice.explicit_gradient_bytes:
            return stated
        if choice.whole_gradients or choice.sharded_masters:
            return MAIN_GRADIENT_BYTES
        return np.where(shards > 1, choice.dtype_bytes, MAIN_GRADIENT_BYTES)

    def optimizer_traffic(
        self, state: Bytes, gradients: Bytes, weights: Elements, choice: StepChoice, shards: Count
    ) -> Bytes:
        """Bytes that a fused optimizer step moves in tier-1 memory; `gradients` are those that it reads.

        [A12] The state is read and written, a gradient read, a weight written (in 4 bytes also read).
        """
        alone = choice.sharded_masters or choice.dtype_bytes == MASTER_BYTES
        each = (
            2 * MASTER_BYTES if alone else choice.dtype_bytes
        )  # a master copy is part of the state
        weight = each * weights / shards
        return 2 * state + gradients + weight

    # -- time of a batch ------------------------------------------------------------------------------------------

    def transfer_time(self, time: Seconds, needed: Array) -> Seconds:
        """Time of a pipeline transfer in a block's critical path; `needed` where there is one at all.

        [A17] Nothing to send takes no time.
        """
        return np.where(needed, time, 0.0)

    def at_edge(self, collectives: R, piped: Array) -> R:
        """Return what edge blocks do, of collectives by kind of block, in stages that are `piped` or not.

        [A18] Without a pipeline, edge blocks are as the others.
        """
        return view(collectives, lambda values: np.where(piped, values, values[:1]))

    def offload_bytes(
        self, weights: Bytes, activations: Bytes, optimizer: Bytes
    ) -> tuple[Bytes, Bytes]:
        """Bytes moved to and from tier 2 per block in the forward and in the backward pass.

        [A13, A36] The larger of weights and activations forward, their sum backward; no optimizer.
        """
        return np.maximum(weights, activations), weights + activations

    def step_offload_bytes(self, state: Bytes, gradients: Bytes) -> Bytes | None:
        """Bytes of an offloaded optimizer that move once per batch and block; None where it moves in every pass.

        [A13] State and gradients move once per batch (ZeRO-Offload, arXiv 2101.06840, section 4).
        """
        return state + gradients

    def backward_memory(self, gradients: Seconds, recomputation: Seconds) -> Seconds:
        """Tier-1 memory time in the backward pass of a block, when offload traffic has to wait.

        [A14] Recomputation uses the memory too.
        """
        return gradients + recomputation

    def data_par_exposed(self, window: DataParallelWindow) -> Seconds:
        """Exposed time of overlapped data-parallel traffic.

        [A08, A09] Last block, then all chunks but the last, then the rest of the last chunk and the head.
        """
        available, compute = self._chunk(window)
        edges, rest = self._kinds(window)
        chunk = self._exposed(
            window.chunk_blocks * window.collective, available, compute, window.usage
        )
        tail = self._exposed(
            rest * window.collective + window.head,
            self._last(window),
            rest * window.compute,
            window.usage,
        )
        return edges * window.collective + (window.interleaving - 1) * chunk + tail

    @staticmethod
    def _kinds(window: DataParallelWindow) -> tuple[Count, Count]:
        """Return edge and base blocks of a chunk: of less than one in the mean, all are edge blocks."""
        edges = np.minimum(1.0, window.chunk_blocks)
        return edges, window.chunk_blocks - edges

    @staticmethod
    def _exposed(
        traffic: Seconds, available: Seconds, compute: Seconds, usage: Fraction
    ) -> Seconds:
        """Return what traffic adds: what its window does not hold, or the slow-down of what runs beside it."""
        share = np.divide(compute, available, out=np.ones_like(available), where=available > 0)
        slowed = usage * traffic * np.minimum(1.0, share)
        left = np.where(available > 0, np.maximum(traffic - available, slowed), traffic)
        return np.minimum(traffic, left)

    def _chunk(self, window: DataParallelWindow) -> tuple[Seconds, Seconds]:
        """Return window and arithmetic of a chunk: microbatches pass it in groups of as many as there are stages.

        A short group keeps the places of a full one, in which stages are idle and traffic hides all the same.
        """
        base, edge = self._usable(window)
        edges, rest = self._kinds(window)
        group, blocks = window.pipeline_par, window.chunk_blocks
        available = np.maximum(0.0, group * (rest * base + edges * edge))
        return available, np.minimum(window.microbatches, group) * blocks * window.compute

    def _last(self, window: DataParallelWindow) -> Seconds:
        """Return the window of the last chunk: its blocks but one, for one microbatch."""
        return np.maximum(0.0, self._kinds(window)[1] * self._usable(window)[0])

    @staticmethod
    def _usable(window: DataParallelWindow) -> tuple[Seconds, Seconds]:
        """Return the time of a base and of an edge block in which neither memory nor the network is busy [L2]."""
        base = window.backward_base - window.memory - window.tensor_base
        transfer = np.where(window.shares_pipeline_network, window.p2p, 0.0)
        return base, window.backward_edge - window.memory - window.tensor_edge - transfer

    def data_par_bandwidth(
        self, window: DataParallelWindow
    ) -> tuple[BytesPerSecond, BytesPerSecond]:
        """Bandwidth that would hide the traffic of the chunks but the last, and of the last.

        [A10w] The bytes of a chunk over its own window; of the last, those of all its blocks but one.

        Where there is no window none would do: null.
        """
        chunk = np.where(window.interleaving > 1, window.chunk_blocks * window.volume, 0.0)
        return (
            rate(chunk, self._chunk(window)[0]),
            rate(self._kinds(window)[1] * window.volume, self._last(window)),
        )

    def offload_window(self, busy: Seconds, memory: Seconds) -> Seconds:
        """Time that a block leaves to offload traffic, of a pass that uses the memory for so long.

        [A38] Never below 0; what rounding leaves of a pass that only uses the memory is no window.
        """
        window = busy - memory
        return np.where(window > ROUNDING * busy, window, 0.0)

    # -- space and efficiency of a batch --------------------------------------------------------------------------

    def in_flight(self, held: Count, microbatches: Count) -> Count:
        """Microbatches whose activations the first stage holds, from those of a long batch.

        [A16] Not more than there are.
        """
        return np.minimum(held, microbatches)

    def offloaded_blocks(self, blocks: Count) -> Count | int:
        """Blocks that stay in tier 1 of the `blocks` whose tensors are offloaded.

        [A47] The one at work and the next one, if there is one.
        """
        return np.minimum(2, blocks)

    def first_stage_blocks(self, blocks: Count, missing: Count, stages: Count) -> Count:
        """Blocks of the first of equal stages, of which the largest has `blocks` and all others lack `missing`.

        [A48] A single odd block is on the last stage, whatever the schedule.
        """
        single = (stages > 1) & (missing == stages - 1) & (blocks > 1)
        return np.where(single, blocks - 1, blocks)

    def offloaded_activations(self, working: Bytes, stored: Bytes, *, training: bool) -> Bytes:
        """Bytes of activations that stay in tier 1 when activations are offloaded.

        [A41] Working set, and in training one block's store.
        """
        return working + stored if training else working

    def offloaded_checkpoint(self, checkpoint: Bytes, *, training: bool) -> Bytes:
        """Bytes of checkpoints that stay in tier 1 when they are offloaded.

        [A37] None in inference.
        """
        return checkpoint if training else np.zeros_like(checkpoint)

    def useful_flops(
        self, forward: Flops, backward: Flops, optimizer: Flops, microbatches: Count
    ) -> Flops:
        """FLOP of one block and microbatch that count as useful.

        [A19] The optimizer's FLOP count once per batch.
        """
        return forward + backward + optimizer / microbatches


# Edition ``corrected``: the published model with its defects fixed, and with the choices it lacks.


class Corrected(Edition):
    """What an edition does where it does not say otherwise."""

    name = CORRECTED
    stats = CorrectedStats
