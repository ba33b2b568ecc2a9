"""The contract of an edition of the cost model: every choice in which editions differ, as a function.

The published model (edition ``sc23``) has behaviour that is odd but required. Each such behaviour is one method
here, implemented by the classes in :mod:`calculon.editions`; no formula asks which edition it serves. The rows of the
fidelity table in ``validation/README.md`` name these methods.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeVar

from calculon.hardware.system import System
from calculon.records import Column, columns
from calculon.spec.execution import BlockChoice, LayoutChoice, StepChoice
from calculon.spec.model import Model
from calculon.units import Array, Bytes, BytesPerSecond, Count, Elements, Flops, Fraction, Seconds

R = TypeVar("R")
Side = Literal["gather", "reduce"]


class When:
    """When something happens to a layer, as :meth:`Edition.happens` tells of a choice.

    Where an edition does not say otherwise, names of properties of :class:`~calculon.spec.execution.BlockChoice`.
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


class OverlappedSpace(NamedTuple):
    """Elements that an overlapped linear ``(m, n) x (n, k)`` stores and moves.

    Attributes
    ----------
    saved : array
        Saved input, while the block is computed and, unless ``shard`` takes its place, until the backward pass.
    grad : array
        Gradient of the output.
    backward : array
        Activations that each gradient pass moves in tier-1 memory, weights apart.
    shard : array or float
        What stays of an input that is gathered again in the backward pass.
    """

    saved: Elements
    grad: Elements
    backward: Elements
    shard: Elements | float


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
    backward_base, backward_edge : array
        Whole backward time of the two kinds of block.
    backward_chunk : array
        Whole backward time of a chunk.
    memory : array
        Time on tier-1 memory in the backward time of a block.
    tensor_base, tensor_edge : array
        Time that tensor-parallel collectives of the backward pass take on the same network; 0 on another one.
    compute, step_compute : array
        Arithmetic time of the backward pass of a block, and of an optimizer step that traffic may slow.
    slack : array
        Time of the optimizer step of a block without its memory time, where the optimizer is not sharded.
    p2p : array
        Time of one backward pipeline transfer.
    shares_pipeline_network : array of bool
        Data and pipeline parallelism use the same network.
    usage : array
        Share of the engines lost while communicating.
    microbatches, pipeline_par, interleaving, chunk_blocks : array
        Counts of the schedule.
    message, traffic_factor : array
        Bytes of a block's message, and the scalars of its operations.
    volume : array
        Bytes that the collectives of a block move per endpoint.
    head : array or float
        Time of the collectives of the output head, whose gradients are there first.
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


class Edition(ABC):
    """One edition of the cost model.

    Attributes
    ----------
    name : str
        As in the field ``edition`` of an execution.
    stats : type
        Record of the statistics that it computes.
    writes_input_gradients : bool
        Whether the backward pass of norms, activations, softmax and attention products counts the gradients of their
        inputs, which it writes.
    counts_flops : bool
        Whether its statistics need the FLOP that the matrix engine executes.
    """

    name: str
    stats: Any
    writes_input_gradients: bool
    counts_flops: bool

    def __repr__(self) -> str:
        return f"<edition {self.name}>"

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of its statistics."""
        return columns(self.stats)

    @abstractmethod
    def machine(self, system: System) -> System:
        """Return the system as this edition knows it."""

    # -- layers ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def happens(self, when: str, choice: BlockChoice) -> bool:
        """Whether something happens to a layer under a choice (:class:`~calculon.architecture.layer.When`)."""

    @abstractmethod
    def dropout_grad_bytes(self, dtype_bytes: int) -> int:
        """Bytes of one element of the gradient of a dropout's output."""

    @abstractmethod
    def fuses_projections(self, choice: LayoutChoice) -> bool:
        """Whether query, key and value are one product when that runs beside its collective."""

    @abstractmethod
    def key_value_width(
        self, model: Model, choice: LayoutChoice, tensor_par: Count
    ) -> Elements | int:
        """Width of the key projection (and of the value projection) on one processor."""

    @abstractmethod
    def key_value_heads(self, model: Model, choice: LayoutChoice, tensor_par: Count) -> Array:
        """Key (and value) heads that the score products of one processor read, as a share of all; per sequence."""

    @abstractmethod
    def overlapped_space(
        self,
        side: Side,
        choice: LayoutChoice,
        m: Elements,
        n: Elements,
        k: Elements,
        tensor_par: Count,
    ) -> OverlappedSpace:
        """Elements that an overlapped ``(m, n) x (n, k)`` stores and moves."""

    # -- time of a block ------------------------------------------------------------------------------------------

    @abstractmethod
    def link_time(
        self, network: Seconds, work: Seconds, *, recommunication: bool, overlapped: bool
    ) -> Seconds:
        """Time of a collective, from its network time and that of its arithmetic and, alone in its layer, memory.

        A repeated collective is given the work of the forward one. An overlapped one runs beside a product.
        """

    @abstractmethod
    def splits_collectives(self, choice: BlockChoice, *, edge: bool, outer: bool) -> bool:
        """Whether a collective is split into reduce-scatter and all-gather.

        In a base or `edge` block; an `outer` one is next to the pipeline transfer: the first gather, the last reduce.
        """

    @abstractmethod
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
        """Return processing and exposed time of an overlapped linear; ``link`` is per kind of block."""

    @abstractmethod
    def gradient_link(self, link: Seconds, recomputed: Array) -> Seconds:
        """Link time beside which the weight-gradient pass runs, from that of the repeated collective."""

    @abstractmethod
    def repeated_exposed(self, forward: Seconds, backward: Seconds, recomputed: Array) -> Seconds:
        """Exposed time of a layer's repeated overlapped collective, from the forward and weight-gradient pass."""

    @abstractmethod
    def recommunication_exposed(self, forward: Seconds, repeated: Seconds) -> Seconds:
        """Return what counts of :meth:`repeated_exposed` in a block, given that of the forward pass too."""

    @abstractmethod
    def recomputed_work(self, forward: Array, recomputed: Array) -> Array:
        """Work of recomputation: ``forward`` is ``(..., layers, blocks)``, ``recomputed`` a flag per layer."""

    # -- space of a block -----------------------------------------------------------------------------------------

    @abstractmethod
    def checkpoint_bytes(self, activation: Bytes, choice: LayoutChoice, tensor_par: Count) -> Bytes:
        """Bytes of the block input that full recomputation keeps."""

    @abstractmethod
    def gradient_bytes(self, choice: StepChoice, shards: Count) -> Array | int:
        """Bytes of an element of the weight gradients that stay until the optimizer step."""

    @abstractmethod
    def optimizer_traffic(
        self, state: Bytes, gradients: Bytes, weights: Elements, choice: StepChoice, shards: Count
    ) -> Bytes:
        """Bytes that a fused optimizer step moves in tier-1 memory; `gradients` are those that it reads."""

    # -- time of a batch ------------------------------------------------------------------------------------------

    @abstractmethod
    def transfer_time(self, time: Seconds, needed: Array) -> Seconds:
        """Time of a pipeline transfer in a block's critical path; `needed` where there is one at all."""

    @abstractmethod
    def at_edge(self, collectives: R, piped: Array) -> R:
        """Return what edge blocks do, of collectives by kind of block, in stages that are `piped` or not."""

    @abstractmethod
    def offload_bytes(
        self, weights: Bytes, activations: Bytes, optimizer: Bytes
    ) -> tuple[Bytes, Bytes]:
        """Bytes moved to and from tier 2 per block in the forward and in the backward pass."""

    @abstractmethod
    def step_offload_bytes(self, state: Bytes, gradients: Bytes) -> Bytes | None:
        """Bytes of an offloaded optimizer that move once per batch and block; None where it moves in every pass."""

    @abstractmethod
    def backward_memory(self, gradients: Seconds, recomputation: Seconds) -> Seconds:
        """Tier-1 memory time in the backward pass of a block, when offload traffic has to wait."""

    @abstractmethod
    def data_par_exposed(self, window: DataParallelWindow) -> Seconds:
        """Exposed time of overlapped data-parallel traffic."""

    @abstractmethod
    def data_par_bandwidth(
        self, window: DataParallelWindow
    ) -> tuple[BytesPerSecond, BytesPerSecond]:
        """Bandwidth that would hide the traffic of the chunks but the last, and of the last."""

    @abstractmethod
    def offload_window(self, busy: Seconds, memory: Seconds) -> Seconds:
        """Time that a block leaves to offload traffic, of a pass that uses the memory for so long."""

    # -- space and efficiency of a batch --------------------------------------------------------------------------

    @abstractmethod
    def in_flight(self, held: Count, microbatches: Count) -> Count:
        """Microbatches whose activations the first stage holds, from those of a long batch."""

    @abstractmethod
    def offloaded_activations(self, working: Bytes, stored: Bytes, *, training: bool) -> Bytes:
        """Bytes of activations that stay in tier 1 when activations are offloaded."""

    @abstractmethod
    def offloaded_checkpoint(self, checkpoint: Bytes, *, training: bool) -> Bytes:
        """Bytes of checkpoints that stay in tier 1 when they are offloaded."""

    @abstractmethod
    def useful_flops(
        self, forward: Flops, backward: Flops, optimizer: Flops, microbatches: Count
    ) -> Flops:
        """FLOP of one block and microbatch that count as useful."""
