"""Edition ``sc23``: the model as published, oddities included.

Each method is one choice of the published model. Tags such as [O1] name its row in the fidelity table of
``validation/README.md``, which says what is odd, why, and what difference it makes.
"""

from collections.abc import Callable

import numpy as np

from calculon.cost.layer import ordered_sum
from calculon.edition import DataParallelWindow, Edition, OverlappedTimes, Side
from calculon.plan.choice import Choice
from calculon.spec.model import Model
from calculon.units import Array, Bytes, BytesPerSecond, Count, Elements, Flops, Fraction, Seconds


class Sc23(Edition):
    """The published model (Isaev et al., *Calculon*, SC'23, doi:10.1145/3581784.3607102)."""

    name = "sc23"

    def dropout_grad_bytes(self, dtype_bytes: int) -> int:
        """[O18] One byte per element, like the mask, whatever the datatype."""
        return 1

    def key_value_width(self, model: Model, choice: Choice, tensor_par: Count) -> Elements | int:
        """[O22] The one key/value head of multiquery attention is replicated on every rank."""
        if choice.attention_type == "multiquery":
            return model.attn_size
        return np.floor(model.attn_heads * model.attn_size / tensor_par)

    def overlapped_saved(
        self, side: Side, choice: Choice, m: Elements, n: Elements, k: Elements, tensor_par: Count
    ) -> tuple[Elements, Elements]:
        """[O6] The gather side keeps no gradient, the reduce side no input but two gradients.

        With sequence parallelism the buffers are one tile of the input, or two of the output.
        """
        inputs, outputs = m * n, m * k
        none = np.zeros_like(inputs)
        if choice.sequence_parallel:
            if side == "gather":
                return np.floor(inputs / tensor_par), outputs
            return inputs, 2 * np.floor(outputs / tensor_par)
        return (inputs, none) if side == "gather" else (none, 2 * outputs)

    def link_time(self, network: Seconds, work: Seconds, *, recommunication: bool) -> Seconds:
        """[O16, O24] A collective also takes the time of its arithmetic and memory pass, unless repeated."""
        return network if recommunication else network + work

    def overlapped_times(
        self,
        arithmetic: Seconds,
        memory: Seconds,
        link: Seconds,
        tiles: Count,
        usage: Fraction,
        combine: Callable[[Seconds, Seconds], Seconds],
        *,
        pipelined: bool,
    ) -> OverlappedTimes:
        """[O3, O4, O5] The first tile runs alone; the others are slowed, or wait for their communication.

        Link times are those of base blocks for both kinds [O5]. In the weight-gradient pass the link time is that
        of a repeated collective, so that pass is slowed as well [O4]. The pipelined form pays one tile of
        communication in both times [O3].
        """
        base = link[0]
        communicates = base > 0
        slowed = arithmetic / (1 - usage)
        normal = combine(arithmetic, memory)
        waiting = base / tiles - slowed / tiles
        bound = waiting > 0
        first, others = normal / tiles, tiles - 1
        beside = np.where(
            bound,
            first + others * combine(slowed, memory) / tiles,
            first + others * normal / tiles + others * (base / tiles) * usage,
        )
        processing = np.where(communicates, beside, normal)
        hidden = np.where(communicates & bound, others * waiting, 0.0)
        if pipelined:
            tile = base / tiles  # 0 where nothing is communicated
            processing, hidden = processing + tile, hidden + tile
        return OverlappedTimes(processing=processing, exposed=np.stack([hidden, hidden]))

    def recommunication_exposed(self, forward: Seconds, backward: Seconds) -> Seconds:
        """[O2] The exposed time of the forward pass."""
        return forward

    def recomputed_work(self, forward: Array, recomputed: Array) -> Array:
        """[O1] Running totals up to each recomputed layer: a layer counts once for each such layer from it on."""
        times_counted = recomputed[::-1].cumsum(axis=0)[::-1]  # recomputed layers from here on
        return ordered_sum(forward * times_counted)

    def checkpoint_bytes(self, activation: Bytes, choice: Choice, tensor_par: Count) -> Bytes:
        """[O17] The whole block input, never split, not even with sequence parallelism."""
        return activation

    def gradient_bytes(self, weights: Elements, dtype_bytes: int, shards: Count) -> Bytes:
        """[O23] Gradients in the datatype of the weights, sharded with the optimizer."""
        gradients: Bytes = dtype_bytes * weights / shards
        return gradients

    def transfer_time(self, time: Seconds, needed: Array) -> Seconds:
        """[O8] A transfer of nothing still costs the latency."""
        return time

    def offload_bytes(
        self, weights: Bytes, activations: Bytes, optimizer: Bytes
    ) -> tuple[Bytes, Bytes]:
        """[O25] The larger of weights and activations forward; their sum and the optimizer state backward."""
        return np.maximum(weights, activations), weights + activations + optimizer

    def data_par_exposed(self, window: DataParallelWindow) -> Seconds:
        """[O10] Last block, then all chunks but the last, then the rest of the last chunk."""
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
        tail_left = tail_traffic + window.compute * window.usage - last
        tail = np.where(tail_left > 0, tail_left, tail_traffic * window.usage)
        exposed: Seconds = window.collective + chunks + tail
        return exposed

    def data_par_bandwidth(
        self, window: DataParallelWindow
    ) -> tuple[BytesPerSecond, BytesPerSecond]:
        """[O11] One chunk's bytes over the window of all chunks but the last; the slow-down adds to it."""
        available, compute, last = self._windows(window)
        transfer = np.where(window.shares_pipeline_network, window.p2p, 0.0)
        chunks = (window.interleaving - 1) * (available + compute * window.usage - transfer)
        tail = last + (window.chunk_blocks - 1) * window.collective * window.usage
        return self._bandwidth(window, chunks), self._bandwidth(window, tail)

    @staticmethod
    def _bandwidth(window: DataParallelWindow, time: Seconds) -> BytesPerSecond:
        """Return network bytes of a chunk over a time; 0 where there is no time."""
        message = window.chunk_blocks * window.message
        rate: BytesPerSecond = np.divide(message, time, out=np.zeros_like(time), where=time > 0)
        return rate * window.traffic_factor

    @staticmethod
    def _windows(window: DataParallelWindow) -> tuple[Seconds, Seconds, Seconds]:
        """Return window and arithmetic of a chunk over all stages, and the window of the last chunk."""
        base_blocks = window.chunk_blocks - 1
        chunk = base_blocks * window.base + window.edge
        mean = (window.backward_base + window.backward_edge) / 2
        last = np.where(base_blocks > 0, chunk - window.p2p - mean + window.slack, 0.0)
        compute = window.pipeline_par * (window.chunk_blocks * window.compute)
        return window.pipeline_par * chunk, compute, last

    def offloaded_activations(self, working: Bytes, stored: Bytes, training: Array) -> Bytes:
        """[O13] Working set and one block's store, in inference too, where nothing is stored."""
        return working + stored

    def offloaded_checkpoint(self, checkpoint: Bytes, training: Array) -> Bytes:
        """[O7] Not a number (null) in inference."""
        return np.where(training, checkpoint, np.nan)

    def useful_flops(self, forward: Flops, backward: Flops, optimizer: Flops) -> Flops:
        """[O12] The optimizer's FLOP count once per microbatch, though the step runs once per batch."""
        return forward + backward + optimizer
