"""Edition ``sc23``: the model as published, including its oddities.

Each method is one choice of the published model. Tags such as [O1] name a row of the fidelity table in
``validation/editions.md``, which describes the oddity, its reason, and its effect.
"""

import numpy as np

from calculon.base.arrays import ordered_sum
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
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.scope_choices import BlockChoice, LayoutChoice, StepChoice
from calculon.declarations.statistics import Stats
from calculon.editions.edition import (
    DataParallelWindow,
    Edition,
    OverlappedSpace,
    R,
    Side,
    When,
)
from calculon.hardware.system import System


class Sc23(Edition):
    """The published model (Isaev et al., *Calculon*, SC'23, doi:10.1145/3581784.3607102)."""

    name = PUBLISHED
    stats = Stats
    writes_input_gradients = False  # [A22]
    counts_flops = False
    computes_fused_activations_again = False  # [A60]
    fuses_activations = True  # [A60]
    times_tiles = False  # [O28]
    peak_of_gradients = False  # [A61]
    prefers_few_switches = False  # [O29]

    def machine(self, system: System) -> System:
        """Return the system without fields that the published format lacks."""
        return system.published

    def fuses_projections(self, choice: LayoutChoice) -> bool:
        """[O22] Projections of multi-query attention are not fused."""
        return not choice.multiquery

    def happens(self, when: str, choice: BlockChoice) -> bool:
        """[A25] Selective recomputation excludes the last product; [A28] gathered inputs are saved twice."""
        if when == When.RECOMPUTE_VALUES:
            return choice.recompute_all
        if when in (When.GATHERED_ATTENTION, When.GATHERED_MLP):
            return False
        regather = {
            When.DROPPED_ATTENTION: When.REGATHER_ATTENTION,
            When.DROPPED_MLP: When.REGATHER_MLP,
        }
        return bool(getattr(choice, regather.get(when, when)))

    def dropout_grad_bytes(self, dtype_bytes: int) -> int:
        """[O18] One byte per element, like the mask, for any datatype."""
        return 1

    def key_value_width(
        self, model: Model, choice: LayoutChoice, tensor_par: Count
    ) -> Elements | int:
        """[O22] The single key/value head of multi-query attention is replicated on every rank."""
        if choice.multiquery:
            return model.attn_size
        return np.floor(model.attn_heads * model.attn_size / tensor_par)

    def key_value_heads(self, model: Model, choice: LayoutChoice, tensor_par: Count) -> Array:
        """[O22] One for each query head, also in multi-query attention."""
        return model.attn_heads / tensor_par

    def overlapped_space(
        self,
        side: Side,
        choice: LayoutChoice,
        m: Elements,
        n: Elements,
        k: Elements,
        tensor_par: Count,
    ) -> OverlappedSpace:
        """[O6] The gather side saves no gradient, and the reduce side no input but two gradients.

        An input has the same size whether or not its gather is repeated. With sequence parallelism the buffers are one
        tile of the input, or two of the output. Gradient passes move exactly the saved elements.
        """
        inputs, outputs = m * n, m * k
        none = np.zeros_like(inputs)
        if choice.sequence_parallel:
            if side == "gather":
                saved, grad = np.floor(inputs / tensor_par), outputs
            else:
                saved, grad = inputs, 2 * np.floor(outputs / tensor_par)
        else:
            saved, grad = (inputs, none) if side == "gather" else (none, 2 * outputs)
        return OverlappedSpace(saved, grad, backward=saved + grad, shard=saved)

    def link_time(
        self,
        network: Seconds,
        work: Seconds,
        *,
        recommunication: bool,
        overlapped: bool,
        by_bus: Array,
    ) -> Seconds:
        """[O16, O24] A collective also takes the time of its arithmetic and memory pass, unless it is repeated."""
        return network if recommunication else network + work

    def splits_collectives(self, choice: BlockChoice, *, edge: bool, outer: bool) -> bool:
        """[O15] All collectives are split with sequence parallelism; with split transfers, all of an edge block."""
        return choice.sequence_parallel or (edge and choice.splits_transfers)

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
        """[O3, O4, O5] The first tile runs alone; the others are slowed, or wait for their communication.

        Both kinds of block have the link times of base blocks [O5]. The weight-gradient pass has the link time of a
        repeated collective, so that pass is slowed as well [O4]. The pipelined form counts one tile of communication in
        both times [O3].
        """
        base = link[0]
        communicates = base > 0
        slowed = arithmetic / (1 - usage)
        normal = system.combine(arithmetic, memory)
        waiting = base / tiles - slowed / tiles
        bound = waiting > 0
        first, others = normal / tiles, tiles - 1
        concurrent = np.where(
            bound,
            first + others * system.combine(slowed, memory) / tiles,
            first + others * normal / tiles + others * (base / tiles) * usage,
        )
        processing = np.where(communicates, concurrent, normal)
        hidden = np.where(communicates & bound, others * waiting, 0.0)
        if pipelined:
            tile = base / tiles  # 0 where nothing is communicated
            processing, hidden = processing + tile, hidden + tile
        return processing, np.stack([hidden, hidden])

    def gradient_link(self, link: Seconds, recomputed: Array) -> Seconds:
        """[O4] The time of the repeated collective, although a recomputed layer repeats it in its forward pass."""
        return link

    def repeated_exposed(self, forward: Seconds, backward: Seconds, recomputed: Array) -> Seconds:
        """[O2] The exposed time of the weight-gradient pass."""
        return backward

    def recommunication_exposed(self, forward: Seconds, repeated: Seconds) -> Seconds:
        """[O2] The exposed time of the forward pass."""
        return forward

    def recomputed_work(self, forward: Array, recomputed: Array) -> Array:
        """[O1] Running totals up to each recomputed layer: a layer counts once per recomputed layer from it on."""
        times_counted = recomputed[::-1].cumsum(axis=0)[::-1]  # recomputed layers from here on
        return ordered_sum(forward * times_counted)

    def checkpoint_bytes(self, activation: Bytes, choice: LayoutChoice, tensor_par: Count) -> Bytes:
        """[O17] The complete block input, which is never divided, even with sequence parallelism."""
        return activation

    def gradient_bytes(self, choice: StepChoice, shards: Count) -> Array | int:
        """[O23] Gradients have the datatype of the weights."""
        return choice.dtype_bytes

    def optimizer_traffic(
        self, state: Bytes, gradients: Bytes, weights: Elements, choice: StepChoice, shards: Count
    ) -> Bytes:
        """[A12] The state moves once; gradients and weights do not move."""
        return state

    def transfer_time(self, time: Seconds, needed: Array) -> Seconds:
        """[O8] A transfer of nothing still costs the latency."""
        return time

    def at_edge(self, collectives: R, piped: Array) -> R:
        """[O15] Edge blocks split their collectives, even if no transfer follows."""
        return collectives

    def offload_bytes(
        self, weights: Bytes, activations: Bytes, optimizer: Bytes
    ) -> tuple[Bytes, Bytes]:
        """[O25] The larger of weights and activations forward; their sum plus the optimizer state backward."""
        return np.maximum(weights, activations), weights + activations + optimizer

    def step_offload_bytes(self, state: Bytes, gradients: Bytes) -> Bytes | None:
        """[O25] The state moves in the backward pass of every microbatch."""
        return None

    def backward_memory(self, gradients: Seconds, recomputation: Seconds) -> Seconds:
        """[A14] Recomputation does not delay offload traffic."""
        return gradients

    def offload_window(self, busy: Seconds, memory: Seconds) -> Seconds:
        """[A38] The difference, even if negative."""
        return busy - memory

    def data_par_exposed(self, window: DataParallelWindow) -> Seconds:
        """[O10] The last block, then all chunks except the last, then the rest of the last chunk."""
        available, compute, last = self._windows(window)
        blocks = window.chunk_blocks
        traffic = blocks * window.collective
        rest = np.mod(window.microbatches, window.pipeline_par)
        alive = np.where(rest == 0, window.pipeline_par, rest)
        shared = window.shares_pipeline_network & (window.backward_chunk > 0)
        backward = np.where(shared, window.backward_chunk, np.inf)
        collisions = np.minimum(np.floor_divide(traffic, backward), alive)
        left = traffic - (available - collisions * window.p2p) + compute * window.usage
        chunks = (window.interleaving - 1) * np.where(left > 0, left, traffic * window.usage)
        tail_traffic = (blocks - 1) * window.collective
        slowed = window.compute + window.step_compute
        tail_left = tail_traffic + slowed * window.usage - last
        tail = np.where(tail_left > 0, tail_left, tail_traffic * window.usage)
        return window.collective + chunks + tail

    def data_par_bandwidth(
        self, window: DataParallelWindow
    ) -> tuple[BytesPerSecond, BytesPerSecond]:
        """[O11] One chunk's bytes over the window of all chunks except the last; the slowdown adds to the window."""
        available, compute, last = self._windows(window)
        transfer = np.where(window.shares_pipeline_network, window.p2p, 0.0)
        chunks = (window.interleaving - 1) * (available + compute * window.usage - transfer)
        tail = last + (window.chunk_blocks - 1) * window.collective * window.usage
        return self._bandwidth(window, chunks), self._bandwidth(window, tail)

    @staticmethod
    def _bandwidth(window: DataParallelWindow, time: Seconds) -> BytesPerSecond:
        """Return the network bytes of a chunk divided by a time; 0 if the time is not positive."""
        message = window.chunk_blocks * window.message
        rate: BytesPerSecond = np.divide(message, time, out=np.zeros_like(time), where=time > 0)
        return rate * window.traffic_factor

    @staticmethod
    def _windows(window: DataParallelWindow) -> tuple[Seconds, Seconds, Seconds]:
        """Return window and arithmetic of a chunk over all stages, and the window of the last chunk."""
        base_blocks = window.chunk_blocks - 1

        def usable(whole: Seconds, tensor: Seconds) -> Seconds:
            return whole - window.memory + window.slack - tensor

        chunk = base_blocks * usable(window.backward_base, window.tensor_base) + usable(
            window.backward_edge, window.tensor_edge
        )
        mean = (window.backward_base + window.backward_edge) / 2
        last = np.where(base_blocks > 0, chunk - window.p2p - mean + window.slack, 0.0)
        slowed = window.compute + window.step_compute
        compute = window.pipeline_par * (window.chunk_blocks * slowed)
        return window.pipeline_par * chunk, compute, last

    def in_flight(self, held: Count, microbatches: Count) -> Count:
        """[A16] Interleaving holds more microbatches than a short batch has."""
        return held

    def offloaded_blocks(self, blocks: Count) -> Count | int:
        """[O26] Two, even if there are fewer."""
        return 2

    def first_stage_blocks(self, blocks: Count, missing: Count, stages: Count) -> Count:
        """[O27] As many as the largest stage, even if another stage has the only odd block."""
        return blocks

    def offloaded_activations(self, working: Bytes, stored: Bytes, *, training: bool) -> Bytes:
        """[O13] The working set and the saved activations of one block, also in inference, which saves none."""
        return working + stored

    def offloaded_checkpoint(self, checkpoint: Bytes, *, training: bool) -> Bytes:
        """[O7] Not a number (null) in inference."""
        return checkpoint if training else np.full_like(checkpoint, np.nan)

    def useful_flops(
        self, forward: Flops, backward: Flops, optimizer: Flops, microbatches: Count
    ) -> Flops:
        """[O12] The optimizer's FLOP count once per microbatch, although the step runs once per batch."""
        return forward + backward + optimizer
