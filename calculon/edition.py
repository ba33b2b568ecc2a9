"""The contract of an edition of the cost model: every choice in which editions differ, as a function.

The published model (edition ``sc23``) has behaviour that is odd but required. Each such behaviour is one method
here, implemented by the classes in :mod:`calculon.editions`; no formula asks which edition it serves. The rows of the
fidelity table in ``validation/README.md`` name these methods.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from calculon.plan.choice import Choice
from calculon.spec.model import Model
from calculon.units import Array, Bytes, BytesPerSecond, Count, Elements, Flops, Fraction, Seconds

Side = Literal["gather", "reduce"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlappedTimes:
    """Times of an overlapped linear layer in one pass.

    ``processing`` has shape ``(layers, blocks)``, ``exposed`` ``(kinds, layers, blocks)``.
    """

    processing: Seconds
    exposed: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class DataParallelWindow:
    """What data-parallel traffic can hide behind, per execution.

    Attributes
    ----------
    collective : array
        Time of the collectives of one block.
    base, edge : array
        Backward time of a base and an edge block that traffic may use.
    backward_base, backward_edge : array
        Whole backward time of the two kinds of block.
    backward_chunk : array
        Whole backward time of a chunk.
    compute : array
        Arithmetic time of the backward pass of a block, slowed by overlapped traffic.
    slack : array
        Time of the optimizer step that traffic may use.
    p2p : array
        Time of one backward pipeline transfer.
    shares_pipeline_network : array of bool
        Data and pipeline parallelism use the same network.
    usage : array
        Share of the engines lost while communicating.
    microbatches, pipeline_par, interleaving, chunk_blocks : array
        Counts of the schedule.
    message, traffic_factor : array
        Bytes of a block's message, and network bytes per byte of it.
    """

    collective: Seconds
    base: Seconds
    edge: Seconds
    backward_base: Seconds
    backward_edge: Seconds
    backward_chunk: Seconds
    compute: Seconds
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


class Edition(ABC):
    """One edition of the cost model."""

    name: str

    def __repr__(self) -> str:
        return f"<edition {self.name}>"

    # -- layers ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def dropout_grad_bytes(self, dtype_bytes: int) -> int:
        """Bytes of one element of the gradient of a dropout's output."""

    @abstractmethod
    def key_value_width(self, model: Model, choice: Choice, tensor_par: Count) -> Elements | int:
        """Width of the key projection (and of the value projection) on one processor."""

    @abstractmethod
    def overlapped_saved(
        self, side: Side, choice: Choice, m: Elements, n: Elements, k: Elements, tensor_par: Count
    ) -> tuple[Elements, Elements]:
        """Elements of the saved input and the output gradient of an overlapped ``(m, n) x (n, k)``."""

    # -- time of a block ------------------------------------------------------------------------------------------

    @abstractmethod
    def link_time(self, network: Seconds, work: Seconds, *, recommunication: bool) -> Seconds:
        """Time of a collective of its own layer, from its network time and that of its arithmetic and memory.

        A repeated collective is given the work of the forward one.
        """

    @abstractmethod
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
        """Return processing and exposed time of an overlapped linear; ``link`` is per kind of block."""

    @abstractmethod
    def recommunication_exposed(self, forward: Seconds, backward: Seconds) -> Seconds:
        """Exposed time of a repeated overlapped collective, from that of the forward and weight-gradient pass."""

    @abstractmethod
    def recomputed_work(self, forward: Array, recomputed: Array) -> Array:
        """Work of recomputation: ``forward`` is ``(..., layers, blocks)``, ``recomputed`` a flag per layer."""

    # -- space of a block -----------------------------------------------------------------------------------------

    @abstractmethod
    def checkpoint_bytes(self, activation: Bytes, choice: Choice, tensor_par: Count) -> Bytes:
        """Bytes of the block input that full recomputation keeps."""

    @abstractmethod
    def gradient_bytes(self, weights: Elements, dtype_bytes: int, shards: Count) -> Bytes:
        """Bytes of the weight gradients that stay until the optimizer step."""

    # -- time of a batch ------------------------------------------------------------------------------------------

    @abstractmethod
    def transfer_time(self, time: Seconds, needed: Array) -> Seconds:
        """Time of a pipeline transfer in a block's critical path; `needed` where there is one at all."""

    @abstractmethod
    def offload_bytes(
        self, weights: Bytes, activations: Bytes, optimizer: Bytes
    ) -> tuple[Bytes, Bytes]:
        """Bytes moved to and from tier 2 per block in the forward and in the backward pass."""

    @abstractmethod
    def data_par_exposed(self, window: DataParallelWindow) -> Seconds:
        """Exposed time of overlapped data-parallel traffic."""

    @abstractmethod
    def data_par_bandwidth(
        self, window: DataParallelWindow
    ) -> tuple[BytesPerSecond, BytesPerSecond]:
        """Bandwidth that would hide the traffic of the chunks but the last, and of the last."""

    # -- space and efficiency of a batch --------------------------------------------------------------------------

    @abstractmethod
    def offloaded_activations(self, working: Bytes, stored: Bytes, training: Array) -> Bytes:
        """Bytes of activations that stay in tier 1 when activations are offloaded."""

    @abstractmethod
    def offloaded_checkpoint(self, checkpoint: Bytes, training: Array) -> Bytes:
        """Bytes of checkpoints that stay in tier 1 when they are offloaded."""

    @abstractmethod
    def useful_flops(self, forward: Flops, backward: Flops, optimizer: Flops) -> Flops:
        """FLOP of one block and microbatch that count as useful."""
