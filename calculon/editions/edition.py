"""All choices in which editions of the cost model differ, as methods with corrected behavior.

The published model (edition ``sc23``) has odd behavior that is nevertheless required: it overrides these methods. No
formula checks its edition. Tags such as [A05] name a row of the fidelity table in ``validation/editions.md``, which
describes the defect and its effect.
"""

from typing import Any, Final, Literal, NamedTuple, TypeVar

import numpy as np

from calculon.base.arrays import ordered_sum, rate
from calculon.base.frozen import dataclass
from calculon.base.record_arrays import view
from calculon.base.records import Column, columns
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
    """Conditions under which something happens to a layer, evaluated by :meth:`Edition.happens`.

    Unless an edition overrides them, they are names of properties of
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
"""Conditions of repeated gathers, by the conditions under which the gathered tensor is saved or dropped."""


class OverlappedSpace(NamedTuple):
    """Elements that an overlapped linear layer ``(m, n) x (n, k)`` saves and moves.

    Attributes:
        saved: Saved input, while the block is computed and, unless ``shard`` replaces it, until the backward pass.
        grad: Gradient of the output.
        backward: Activations that each gradient pass moves in tier-1 memory, without weights.
        shard: Remaining part of an input whose gather is repeated in the backward pass.
    """

    saved: Elements
    grad: Elements
    backward: Elements
    shard: Elements | float


@dataclass(frozen=True, slots=True, kw_only=True)
class DataParallelWindow:
    """Window that can hide data-parallel traffic, per execution.

    Attributes:
        collective: Time of the collectives of one block.
        backward_base, backward_edge: Total backward time of base and edge blocks.
        backward_chunk: Total backward time of a chunk.
        memory: Tier-1 memory time in the backward time of a block.
        tensor_base, tensor_edge: Time of tensor-parallel collectives of the backward pass on the same network; 0 if
            they use another one.
        compute, step_compute: Arithmetic time of the backward pass of a block, and of an optimizer step that traffic
            may slow.
        slack: Time of the optimizer step of a block without its memory time, if the optimizer is not sharded.
        p2p: Time of one backward pipeline transfer.
        shares_pipeline_network: True if data and pipeline parallelism use the same network.
        usage: Fraction of the engines that communication takes.
        microbatches, pipeline_par, interleaving, chunk_blocks: Counts of the schedule.
        message, traffic_factor: Bytes of a block's message, and traffic factors of its operations.
        volume: Bytes that the collectives of a block move per endpoint.
        head: Time of the collectives of the LM head, whose gradients are complete first.
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
"""Bytes per element of accumulated gradients (*main gradients* of Megatron-LM)."""

ROUNDING = 1e-12
"""Relative rounding error of the difference of equal times."""


class Edition:
    """Edition of the cost model; by default with the defects of the published model corrected.

    Attributes:
        name: Name, as in the field ``edition`` of an execution.
        stats: Record of the computed statistics.
        writes_input_gradients: True if norms, activations, softmax and attention products count the input gradients
            that they write in the backward pass.
        counts_flops: True if its statistics need the FLOP that the matrix engine executes.
        computes_fused_activations_again: True if recomputing the unsaved output of a fused activation costs an
            additional pass in the backward pass.
        fuses_activations: True if a search fuses activations by default.
        times_tiles: True if the tiles of a product that overlaps with its collective are timed as separate products.
        peak_of_gradients: True if activation gradients are counted at the peak of the backward pass, when later layers
            have freed their activations; False if gradients of all layers of a block exist at once.
        prefers_few_switches: True if a search breaks ties in favor of less offloading, recomputation and overlap,
            before the order of its loops decides.
    """

    name: str
    stats: Any
    writes_input_gradients = True  # [A22]
    counts_flops = True
    computes_fused_activations_again = True  # [A60]
    fuses_activations = False  # [A60]
    times_tiles = True  # [A49]
    peak_of_gradients = True  # [A61]
    prefers_few_switches = True  # [A52]

    def __repr__(self) -> str:
        return f"<edition {self.name}>"

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of the computed statistics."""
        return columns(self.stats)

    def machine(self, system: System) -> System:
        """Return the system as seen by this edition; by default unchanged."""
        return system

    # -- layers ---------------------------------------------------------------------------------------------------

    def happens(self, when: str, choice: BlockChoice) -> bool:
        """Return True if a condition (:class:`~calculon.architecture.layer.When`) holds under a choice.

        [A02, A25, A28] Gathers of inputs are repeated only if inputs are divided; then their shard is saved, unless the
        norm that creates it is recomputed.
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
        """Return the bytes per element of the gradient of a dropout's output.

        [A21] The gradient has the datatype of the activations.
        """
        return dtype_bytes

    def fuses_projections(self, choice: LayoutChoice) -> bool:
        """Return True if query, key and value are a single product when it overlaps with its collective.

        [A45] Always.
        """
        return True

    def key_value_width(
        self, model: Model, choice: LayoutChoice, tensor_par: Count
    ) -> Elements | int:
        """Return the width of the key projection (and of the value projection) on one processor.

        [A45] Whole heads: each rank has its share of them, or one that it shares with other ranks.
        """
        return self.key_value_heads(model, choice, tensor_par) * model.attn_size

    def key_value_heads(self, model: Model, choice: LayoutChoice, tensor_par: Count) -> Array:
        """Return the number of key (and value) heads that the score products of one processor read, per sequence.

        [A45] The key heads of the model, at least one per rank; one in total for multi-query attention.
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
        """Return the elements that an overlapped ``(m, n) x (n, k)`` saves and moves.

        [A04, A29, A30] The operands of the gradient products; the shard of an input whose gather is repeated.
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
        """Return the time of a collective, from its network time and the time of its arithmetic and memory pass.

        A repeated collective has the work of the forward one. An overlapped one runs at the same time as a product.
        `by_bus` is a mask of networks that are stated by their bus bandwidth.

        [A23, A24] As published: arithmetic and memory pass count, except for a repeated collective. For networks that
        are stated by their bus bandwidth, they are part of the network time.

        The published validation is calibrated with this convention, on networks without a kind. A repeated collective
        that overlaps with a product is identical to the first one: it must not be exposed for longer than it takes.

        Source: nccl-tests, doc/PERFORMANCE.md: times are from memory to memory, with the reduction.
        """
        if overlapped:
            return network + work
        return network if recommunication else network + np.where(by_bus, 0.0, work)

    def splits_collectives(self, choice: BlockChoice, *, edge: bool, outer: bool) -> bool:
        """Return True if a collective is split into reduce-scatter and all-gather.

        It is in a base or `edge` block; an `outer` one is next to the pipeline transfer: the first gather or the last
        reduction.

        [A18] Around pipeline transfers, only the first gather and the last reduction are split.
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
        """Return processing and exposed time of an overlapped linear layer in one pass.

        Arrays have shape ``(layers, blocks)``; the first axis of `link` and of the exposed time is the kind of block.

        [A05, A06, L1, L3] The first tile runs alone; the others are slowed, and wait for longer communication.

        Slowed tiles never take longer than a product that is slowed from beginning to end, and a collective hides
        behind everything that runs at the same time [L1], so more bandwidth or FLOP/s is never slower. Each kind of
        block waits for its own collective [A06], and is slowed by it: the excess over a base block counts as exposed
        [L3]. The first tile of the pipelined form counts once, as exposed time [A05].
        """
        slowed = arithmetic / (1 - usage)
        normal, longest = system.combine(arithmetic, memory), system.combine(slowed, memory)
        concurrent = system.overlappable_time(slowed, memory)
        first, others = 1 / tiles, (tiles - 1) / tiles
        slower = np.minimum(normal + link * usage, longest)
        processing = first * normal + others * np.where(link > concurrent, longest, slower)
        processing = np.where(link > 0, processing, normal)
        exposed = others * np.maximum(0.0, link - concurrent)
        exposed = np.maximum(0.0, exposed + (processing - processing[0]))
        if pipelined:
            exposed = exposed + link * first
        return processing[0], exposed

    def gradient_link(self, link: Seconds, recomputed: Array) -> Seconds:
        """Return the link time that overlaps with the weight-gradient pass, from the repeated collective.

        [A07] A recomputed layer has repeated its collective in its forward pass already.
        """
        return np.where(recomputed, 0.0, link)

    def repeated_exposed(self, forward: Seconds, backward: Seconds, recomputed: Array) -> Seconds:
        """Return the exposed time of a repeated overlapped collective, from the forward and weight-gradient pass.

        [A06] The exposed time of the pass that repeats it.
        """
        return np.where(recomputed, forward, backward)

    def recommunication_exposed(self, forward: Seconds, repeated: Seconds) -> Seconds:
        """Return the part of :meth:`repeated_exposed` that counts in a block, given the forward pass, too.

        [A06] A block counts the same time as its layers.
        """
        return repeated

    def recomputed_work(self, forward: Array, recomputed: Array) -> Array:
        """Return the work of recomputation: ``forward`` is ``(..., layers, blocks)``, ``recomputed`` a mask of layers.

        [A01] The forward work of the recomputed layers.
        """
        return ordered_sum(forward * recomputed)

    # -- space of a block -----------------------------------------------------------------------------------------

    def checkpoint_bytes(self, activation: Bytes, choice: LayoutChoice, tensor_par: Count) -> Bytes:
        """Return the bytes of the block input that full recomputation saves.

        [A15] The block input is divided like the residual stream.
        """
        return np.floor(activation / tensor_par) if choice.sequence_parallel else activation

    def gradient_bytes(self, choice: StepChoice, shards: Count) -> Array | int:
        """Return the bytes per element of the weight gradients that are kept until the optimizer step.

        [A10, A11] Four if gradients are whole; the width of weights if sharded with the optimizer; or as stated.
        """
        if stated := choice.explicit_gradient_bytes:
            return stated
        if choice.whole_gradients or choice.sharded_masters:
            return MAIN_GRADIENT_BYTES
        return np.where(shards > 1, choice.dtype_bytes, MAIN_GRADIENT_BYTES)

    def optimizer_traffic(
        self, state: Bytes, gradients: Bytes, weights: Elements, choice: StepChoice, shards: Count
    ) -> Bytes:
        """Return the bytes that a fused optimizer step moves in tier-1 memory; `gradients` are the bytes it reads.

        [A12] The state is read and written, a gradient read, a weight written (and also read if it has 4 bytes).
        """
        alone = choice.sharded_masters or choice.dtype_bytes == MASTER_BYTES
        # A separate master copy is part of the state; only weights that are their own masters are also read.
        each = 2 * MASTER_BYTES if alone else choice.dtype_bytes
        weight = each * weights / shards
        return 2 * state + gradients + weight

    # -- time of a batch ------------------------------------------------------------------------------------------

    def transfer_time(self, time: Seconds, needed: Array) -> Seconds:
        """Return the time of a pipeline transfer on a block's critical path; `needed` is a mask of actual transfers.

        [A17] Sending nothing takes no time.
        """
        return np.where(needed, time, 0.0)

    def at_edge(self, collectives: R, piped: Array) -> R:
        """Return the collectives of edge blocks, from collectives by kind of block; `piped` is a mask of pipelines.

        [A18] Without a pipeline, edge blocks are like other blocks.
        """
        return view(collectives, lambda values: np.where(piped, values, values[:1]))

    def offload_bytes(
        self, weights: Bytes, activations: Bytes, optimizer: Bytes
    ) -> tuple[Bytes, Bytes]:
        """Return the bytes moved to and from tier 2 per block, in the forward and in the backward pass.

        [A13, A36] The larger of weights and activations forward, their sum backward; no optimizer state.
        """
        return np.maximum(weights, activations), weights + activations

    def step_offload_bytes(self, state: Bytes, gradients: Bytes) -> Bytes | None:
        """Return the bytes of an offloaded optimizer that move once per batch and block; None if in every pass.

        [A13] State and gradients move once per batch (ZeRO-Offload, arXiv 2101.06840, section 4).
        """
        return state + gradients

    def backward_memory(self, gradients: Seconds, recomputation: Seconds) -> Seconds:
        """Return the tier-1 memory time in the backward pass of a block, during which offload traffic waits.

        [A14] Recomputation uses the memory, too.
        """
        return gradients + recomputation

    def data_par_exposed(self, window: DataParallelWindow) -> Seconds:
        """Return the exposed time of overlapped data-parallel traffic.

        [A08, A09] The last block, then all chunks except the last, then the rest of the last chunk and the head.
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
        """Return the edge and base blocks of a chunk: with less than one block on average, all are edge blocks."""
        edges = np.minimum(1.0, window.chunk_blocks)
        return edges, window.chunk_blocks - edges

    @staticmethod
    def _exposed(
        traffic: Seconds, available: Seconds, compute: Seconds, usage: Fraction
    ) -> Seconds:
        """Return the time that traffic adds: the part that exceeds its window, or the slowdown of concurrent work."""
        share = np.divide(compute, available, out=np.ones_like(available), where=available > 0)
        slowed = usage * traffic * np.minimum(1.0, share)
        left = np.where(available > 0, np.maximum(traffic - available, slowed), traffic)
        return np.minimum(traffic, left)

    def _chunk(self, window: DataParallelWindow) -> tuple[Seconds, Seconds]:
        """Return window and arithmetic of a chunk: microbatches pass it in groups of as many as there are stages.

        A short group takes the slots of a full one; stages are idle in some of them, which hides traffic as well.
        """
        base, edge = self._usable(window)
        edges, rest = self._kinds(window)
        group, blocks = window.pipeline_par, window.chunk_blocks
        available = np.maximum(0.0, group * (rest * base + edges * edge))
        return available, np.minimum(window.microbatches, group) * blocks * window.compute

    def _last(self, window: DataParallelWindow) -> Seconds:
        """Return the window of the last chunk: all blocks except one, for one microbatch."""
        return np.maximum(0.0, self._kinds(window)[1] * self._usable(window)[0])

    @staticmethod
    def _usable(window: DataParallelWindow) -> tuple[Seconds, Seconds]:
        """Return the time of base and edge blocks during which both memory and network are idle [L2]."""
        base = window.backward_base - window.memory - window.tensor_base
        transfer = np.where(window.shares_pipeline_network, window.p2p, 0.0)
        return base, window.backward_edge - window.memory - window.tensor_edge - transfer

    def data_par_bandwidth(
        self, window: DataParallelWindow
    ) -> tuple[BytesPerSecond, BytesPerSecond]:
        """Return the bandwidth that would hide the traffic of the chunks except the last, and of the last one.

        [A10w] The bytes of a chunk over its own window; for the last one, the bytes of all its blocks except one.

        Without a window, no bandwidth would hide it: null.
        """
        chunk = np.where(window.interleaving > 1, window.chunk_blocks * window.volume, 0.0)
        return (
            rate(chunk, self._chunk(window)[0]),
            rate(self._kinds(window)[1] * window.volume, self._last(window)),
        )

    def offload_window(self, busy: Seconds, memory: Seconds) -> Seconds:
        """Return the time of a block that is left for offload traffic in a pass with a given memory time.

        [A38] Never negative; a rounding error in a pass that only uses the memory is not a window.
        """
        window = busy - memory
        return np.where(window > ROUNDING * busy, window, 0.0)

    # -- space and efficiency of a batch --------------------------------------------------------------------------

    def in_flight(self, held: Count, microbatches: Count) -> Count:
        """Return the microbatches whose activations the first stage holds, given the number for a long batch.

        [A16] At most the number of microbatches.
        """
        return np.minimum(held, microbatches)

    def offloaded_blocks(self, blocks: Count) -> Count | int:
        """Return the blocks whose tensors stay in tier 1 among `blocks` with offloading.

        [A47] The current one and the next one, if there is one.
        """
        return np.minimum(2, blocks)

    def first_stage_blocks(self, blocks: Count, missing: Count, stages: Count) -> Count:
        """Return the blocks of the first of equal stages: the largest has `blocks`, and the others lack `missing`.

        [A48] A single odd block is on the last stage, in every schedule.
        """
        single = (stages > 1) & (missing == stages - 1) & (blocks > 1)
        return np.where(single, blocks - 1, blocks)

    def offloaded_activations(self, working: Bytes, stored: Bytes, *, training: bool) -> Bytes:
        """Return the bytes of activations that stay in tier 1 when activations are offloaded.

        [A41] The working set, and in training the saved activations of one block.
        """
        return working + stored if training else working

    def offloaded_checkpoint(self, checkpoint: Bytes, *, training: bool) -> Bytes:
        """Return the bytes of checkpoints that stay in tier 1 when they are offloaded.

        [A37] None in inference.
        """
        return checkpoint if training else np.zeros_like(checkpoint)

    def useful_flops(
        self, forward: Flops, backward: Flops, optimizer: Flops, microbatches: Count
    ) -> Flops:
        """Return the useful FLOP of one block and microbatch.

        [A19] The optimizer's FLOP count once per batch.
        """
        return forward + backward + optimizer / microbatches


# Edition ``corrected``: the published model with its defects fixed, and with additional choices.


class Corrected(Edition):
    """Edition with all defaults of :class:`Edition`."""

    name = CORRECTED
    stats = CorrectedStats
