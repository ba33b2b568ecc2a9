"""Edition ``corrected``: the published model with its defects mended.

Each method is one correction. Tags such as [A05] name its row in the fidelity table of ``validation/README.md``, which
says what was wrong and what difference it makes. What this edition does not mention here it does as edition ``sc23``.
"""

import numpy as np

from calculon.arrays import ordered_sum
from calculon.editions.edition import (
    DataParallelWindow,
    Edition,
    OverlappedSpace,
    OverlappedTimes,
    R,
    Side,
    When,
)
from calculon.hardware.system import System
from calculon.records import view
from calculon.spec.execution import CORRECTED, MASTER_BYTES, BlockChoice, LayoutChoice, StepChoice
from calculon.spec.model import Model
from calculon.statistics import CorrectedStats
from calculon.units import Array, Bytes, BytesPerSecond, Count, Elements, Flops, Fraction, Seconds

MAIN_GRADIENT_BYTES = 4
"""Bytes of an element of the gradients that microbatches are added up in (Megatron-LM's *main gradients*)."""


ROUNDING = 1e-12
"""Share of a time that may be left of the difference of equal ones."""


class Corrected(Edition):
    """The published model with its defects mended, and with the choices it lacks."""

    name = CORRECTED
    stats = CorrectedStats
    writes_input_gradients = True  # [A22]
    counts_flops = True

    def machine(self, system: System) -> System:
        """All of it."""
        return system

    # -- layers ---------------------------------------------------------------------------------------------------

    def happens(self, when: str, choice: BlockChoice) -> bool:
        """[A02, A25, A28] Inputs are gathered again only where they are split; then their shard is what is stored."""
        match when:
            case When.RECOMPUTE_VALUES:
                return choice.recompute_attention
            case When.REGATHER_ATTENTION | When.REGATHER_MLP:
                return choice.sequence_parallel and bool(getattr(choice, when))
            case When.GATHERED_ATTENTION:
                return not self.happens(When.REGATHER_ATTENTION, choice)
            case When.GATHERED_MLP:
                return not self.happens(When.REGATHER_MLP, choice)
        return bool(getattr(choice, when))

    def fuses_projections(self, choice: LayoutChoice) -> bool:
        """[A45] Always."""
        return True

    def dropout_grad_bytes(self, dtype_bytes: int) -> int:
        """[A21] The gradient has the datatype of the activations."""
        return dtype_bytes

    def key_value_width(
        self, model: Model, choice: LayoutChoice, tensor_par: Count
    ) -> Elements | int:
        """[A45] Whole heads: a rank has its share of them, or one that it shares with other ranks."""
        heads: Elements = self.key_value_heads(model, choice, tensor_par) * model.attn_size
        return heads

    def key_value_heads(self, model: Model, choice: LayoutChoice, tensor_par: Count) -> Array:
        """[A45] Those of the model, at least one; one for all in multiquery attention."""
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
        """[A04, A29, A30] The operands of the gradient products; of an input that is gathered again, its shard."""
        inputs, outputs = m * n, m * k
        shard = np.floor(inputs / tensor_par) if side == "gather" else inputs
        return OverlappedSpace(inputs, outputs, backward=inputs + outputs, shard=shard)

    # -- time of a block ------------------------------------------------------------------------------------------

    def link_time(
        self, network: Seconds, work: Seconds, *, recommunication: bool, overlapped: bool
    ) -> Seconds:
        """[A23, A24] As published: arithmetic and memory pass count, but not of a repeated collective.

        The published validation is calibrated with this convention. Beside a product, a repeated collective is the
        first one again: it must not be exposed for longer than it takes.
        """
        return network if recommunication and not overlapped else network + work

    def splits_collectives(self, choice: BlockChoice, *, edge: bool, outer: bool) -> bool:
        """[A18] Around pipeline transfers, only the first gather and the last reduction."""
        return choice.sequence_parallel or (edge and outer and choice.splits_transfers)

    def at_edge(self, collectives: R, piped: Array) -> R:
        """[A18] Without a pipeline, edge blocks are as the others."""
        return view(collectives, lambda values: np.where(piped, values, values[:1]))

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
    ) -> OverlappedTimes:
        """[A05, A06, L1, L3] The first tile runs alone; the others are slowed, and wait for longer communication.

        Being slowed never takes longer than running slowed from beginning to end, and a collective hides behind all
        that it runs beside [L1], so that more bandwidth or FLOP/s is never slower. Each kind of block waits for its
        own collective [A06], and is slowed by it: what that takes beyond a base block counts as exposed [L3]. The
        first tile of the pipelined form is paid once, as exposed time [A05].
        """
        slowed = arithmetic / (1 - usage)
        normal, longest = system.combine(arithmetic, memory), system.combine(slowed, memory)
        beside = system.beside_collective(slowed, memory)
        first, others = 1 / tiles, (tiles - 1) / tiles
        slower = np.minimum(normal + link * usage, longest)
        processing = first * normal + others * np.where(link > beside, longest, slower)
        processing = np.where(link > 0, processing, normal)
        exposed = others * np.maximum(0.0, link - beside)
        exposed = np.maximum(0.0, exposed + (processing - processing[0]))
        if pipelined:
            exposed = exposed + link * first
        return OverlappedTimes(processing=processing[0], exposed=exposed)

    def gradient_link(self, link: Seconds, recomputed: Array) -> Seconds:
        """[A07] A recomputed layer has repeated its collective in its forward pass."""
        return np.where(recomputed, 0.0, link)

    def repeated_exposed(self, forward: Seconds, backward: Seconds, recomputed: Array) -> Seconds:
        """[A06] That of the pass in which it is repeated."""
        return np.where(recomputed, forward, backward)

    def recommunication_exposed(self, forward: Seconds, repeated: Seconds) -> Seconds:
        """[A06] The same in a block as in its layers."""
        return repeated

    def recomputed_work(self, forward: Array, recomputed: Array) -> Array:
        """[A01] The forward work of the recomputed layers."""
        return ordered_sum(forward * recomputed)

    # -- space of a block -----------------------------------------------------------------------------------------

    def checkpoint_bytes(self, activation: Bytes, choice: LayoutChoice, tensor_par: Count) -> Bytes:
        """[A15] The block input is split where the residual stream is."""
        return np.floor(activation / tensor_par) if choice.sequence_parallel else activation

    def gradient_bytes(self, choice: StepChoice, shards: Count) -> Array | int:
        """[A10, A11] Four while they are whole; sharded with the optimizer, those of the weights; or as stated."""
        if stated := choice.stated_gradient_bytes:
            return stated
        if choice.whole_gradients or choice.sharded_masters:
            return MAIN_GRADIENT_BYTES
        return np.where(shards > 1, choice.dtype_bytes, MAIN_GRADIENT_BYTES)

    def optimizer_traffic(
        self, state: Bytes, gradients: Bytes, weights: Elements, choice: StepChoice, shards: Count
    ) -> Bytes:
        """[A12] The state is read and written, a gradient read, a weight written (in 4 bytes also read)."""
        alone = choice.sharded_masters or choice.dtype_bytes == MASTER_BYTES
        each = (
            2 * MASTER_BYTES if alone else choice.dtype_bytes
        )  # a master copy is part of the state
        weight = each * weights / shards
        traffic: Bytes = 2 * state + gradients + weight
        return traffic

    # -- time of a batch ------------------------------------------------------------------------------------------

    def transfer_time(self, time: Seconds, needed: Array) -> Seconds:
        """[A17] Nothing to send takes no time."""
        return np.where(needed, time, 0.0)

    def offload_bytes(
        self, weights: Bytes, activations: Bytes, optimizer: Bytes
    ) -> tuple[Bytes, Bytes]:
        """[A13, A36] The larger of weights and activations forward, their sum backward; no optimizer."""
        return np.maximum(weights, activations), weights + activations

    def step_offload_bytes(self, state: Bytes, gradients: Bytes) -> Bytes | None:
        """[A13] State and gradients move once per batch (ZeRO-Offload, arXiv 2101.06840, section 4)."""
        return state + gradients

    def backward_memory(self, gradients: Seconds, recomputation: Seconds) -> Seconds:
        """[A14] Recomputation uses the memory too."""
        return gradients + recomputation

    def offload_window(self, busy: Seconds, memory: Seconds) -> Seconds:
        """[A38] Never below 0; what rounding leaves of a pass that only uses the memory is no window."""
        window = busy - memory
        return np.where(window > ROUNDING * busy, window, 0.0)

    def data_par_exposed(self, window: DataParallelWindow) -> Seconds:
        """[A08, A09] Last block, then all chunks but the last, then the rest of the last chunk and the head."""
        available, compute = self._chunk(window)
        rest = window.chunk_blocks - 1
        chunk = self._exposed(
            window.chunk_blocks * window.collective, available, compute, window.usage
        )
        tail = self._exposed(
            rest * window.collective + window.head,
            self._last(window),
            rest * window.compute,
            window.usage,
        )
        exposed: Seconds = window.collective + (window.interleaving - 1) * chunk + tail
        return exposed

    @staticmethod
    def _exposed(
        traffic: Seconds, available: Seconds, compute: Seconds, usage: Fraction
    ) -> Seconds:
        """Return what traffic adds: what its window does not hold, or the slow-down of what runs beside it."""
        share = np.divide(compute, available, out=np.ones_like(available), where=available > 0)
        slowed = usage * traffic * np.minimum(1.0, share)
        left = np.where(available > 0, np.maximum(traffic - available, slowed), traffic)
        return np.minimum(traffic, left)

    def data_par_bandwidth(
        self, window: DataParallelWindow
    ) -> tuple[BytesPerSecond, BytesPerSecond]:
        """[A10w] The bytes of a chunk over its own window; of the last, those of all its blocks but one."""
        chunk = np.where(window.interleaving > 1, window.chunk_blocks * window.volume, 0.0)
        return (
            _bandwidth(chunk, self._chunk(window)[0]),
            _bandwidth((window.chunk_blocks - 1) * window.volume, self._last(window)),
        )

    @staticmethod
    def _usable(window: DataParallelWindow) -> tuple[Seconds, Seconds]:
        """Return the time of a base and of an edge block in which neither memory nor the network is busy [L2]."""
        base = window.backward_base - window.memory - window.tensor_base
        transfer = np.where(window.shares_pipeline_network, window.p2p, 0.0)
        return base, window.backward_edge - window.memory - window.tensor_edge - transfer

    def _chunk(self, window: DataParallelWindow) -> tuple[Seconds, Seconds]:
        """Return window and arithmetic of a chunk, over the microbatches that the pipeline holds."""
        base, edge = self._usable(window)
        several = np.minimum(window.microbatches, window.pipeline_par)
        blocks = window.chunk_blocks
        available = np.maximum(0.0, several * ((blocks - 1) * base + edge))
        return available, several * blocks * window.compute

    def _last(self, window: DataParallelWindow) -> Seconds:
        """Return the window of the last chunk: its blocks but one, for one microbatch."""
        available: Seconds = np.maximum(0.0, (window.chunk_blocks - 1) * self._usable(window)[0])
        return available

    # -- space and efficiency of a batch --------------------------------------------------------------------------

    def in_flight(self, held: Count, microbatches: Count) -> Count:
        """[A16] Not more than there are."""
        return np.minimum(held, microbatches)

    def offloaded_activations(self, working: Bytes, stored: Bytes, *, training: bool) -> Bytes:
        """[A41] Working set, and in training one block's store."""
        return working + stored if training else working

    def offloaded_checkpoint(self, checkpoint: Bytes, *, training: bool) -> Bytes:
        """[A37] None in inference."""
        return checkpoint if training else np.zeros_like(checkpoint)

    def useful_flops(
        self, forward: Flops, backward: Flops, optimizer: Flops, microbatches: Count
    ) -> Flops:
        """[A19] The optimizer's FLOP count once per batch."""
        useful: Flops = forward + backward + optimizer / microbatches
        return useful


def _bandwidth(traffic: Bytes, time: Seconds) -> BytesPerSecond:
    """Rate of so many bytes in a time: 0 for none, infinite without time."""
    traffic, time = np.broadcast_arrays(traffic, time)
    needed = np.where(traffic > 0, np.inf, 0.0)
    return np.divide(traffic, time, out=needed, where=(time > 0) & (traffic > 0))
