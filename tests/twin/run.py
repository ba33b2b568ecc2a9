"""The inputs, and the quantities that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from .optimizer import Step, adam
from .rules import Rules
from .system import System

Kind = Literal["base", "edge"]
KINDS: tuple[Kind, Kind] = ("base", "edge")

BYTES_PER_ELEMENT = {"float8": 1, "float16": 2, "bfloat16": 2, "float32": 4}


@dataclass(frozen=True)
class Model:
    """A transformer: a stack of identical blocks."""

    hidden: int  # width of the residual stream
    feedforward: int  # inner width of the MLP
    seq_size: int  # tokens per sequence
    attn_heads: int
    attn_size: int  # width of one head; heads * width need not equal `hidden`
    num_blocks: int


@dataclass(frozen=True)
class Execution:
    """How the model is run; the fields of an execution file in canonical order, then options."""

    num_procs: int
    tensor_par: int
    pipeline_par: int
    data_par: int
    tensor_par_net: int
    pipeline_par_net: int
    data_par_net: int
    batch_size: int  # global, in sequences
    microbatch_size: int  # sequences
    datatype: str
    fused_activation: bool
    attention_type: str
    activation_recompute: str
    pipeline_interleaving: int  # chunks per processor
    optimizer_sharding: bool
    tensor_par_comm_type: str
    tensor_par_overlap: str
    seq_par_ag_redo: bool
    data_par_overlap: bool
    weight_offload: bool
    activations_offload: bool
    optimizer_offload: bool
    training: bool
    edition: str = "sc23"
    attn_impl: str = "eager"
    ce_impl: str = "eager"  # of models with a vocabulary, which ours have not
    grad_buffer: str = "sharded"
    grad_comm_dtype: str = "same"
    optimizer: str = "adam"
    optimizer_impl: str = "fused"
    optimizer_state_dtype: str = "float32"
    grad_dtype: str = "auto"
    main_grad: bool = False
    grad_clip: bool = False
    latency_per_step: bool = False


class Run:
    """A model executed on a system.  Tensor sizes are in elements.

    A processor owns chunks of consecutive blocks.  The last block of a chunk, the *edge* block, is
    followed by a pipeline transfer; the others are *base* blocks.
    """

    def __init__(self, model: Model, execution: Execution, system: System, rules: Rules) -> None:
        ex = execution
        self.model, self.execution, self.system, self.rules = model, execution, system, rules
        self.element_bytes = BYTES_PER_ELEMENT[ex.datatype]
        self.microbatches = ex.batch_size // ex.data_par // ex.microbatch_size  # per pipeline
        self.shards = ex.data_par if ex.optimizer_sharding else 1  # of the optimizer state
        self.sequence_par = ex.tensor_par_comm_type == "rs_ag"
        self.full_recompute = ex.activation_recompute == "full"
        self.recomputes_attention = ex.activation_recompute in ("full", "attn_only")
        self.per_step = rules.latency_per_step and ex.latency_per_step

        # The backward pass repeats the collective at the input of attention, of the MLP.
        split = self.sequence_par or not rules.regather_needs_sequence_par
        self.regathers_attention = split and (self.recomputes_attention or ex.seq_par_ag_redo)
        self.regathers_mlp = split and (self.full_recompute or ex.seq_par_ag_redo)
        self.whole_gradients = self.shards == 1 or ex.grad_buffer == "full"
        asked = ex if rules.optimizer_fields else adam(ex)
        self.step = Step(asked, self.element_bytes, self.whole_gradients)

        self.blocks = -(-model.num_blocks // ex.pipeline_par)  # of the most loaded stage
        self.missing_blocks = self.blocks * ex.pipeline_par - model.num_blocks  # of later stages
        self.chunk_blocks = self.blocks // ex.pipeline_interleaving
        self.base_blocks = self.chunk_blocks - 1  # per chunk, besides the edge block

        self.tokens = ex.microbatch_size * model.seq_size  # per microbatch
        self.activation = self.tokens * model.hidden
        self.split_activation = self.tokens // ex.tensor_par * model.hidden
        # An activation in the residual region.
        self.residual = self.split_activation if self.sequence_par else self.activation

        self.tp_network = system.networks[ex.tensor_par_net]
        self.pp_network = system.networks[ex.pipeline_par_net]
        self.dp_network = system.networks[ex.data_par_net]

    @property
    def reduction_bytes(self) -> int:
        """Bytes of a gradient element in the DP reduction."""
        datatype = self.execution.grad_comm_dtype
        if datatype == "same" or not self.rules.reduction_datatype:
            return self.element_bytes
        return BYTES_PER_ELEMENT[datatype]

    def chunk_sum(self, per_block: Mapping[Kind, float]) -> float:
        """Sum over the blocks of one chunk."""
        return self.base_blocks * per_block["base"] + per_block["edge"]

    def batch_sum(self, per_block: Mapping[Kind, float]) -> float:
        """Sum over all chunks of a processor and all microbatches."""
        chunks = self.microbatches * self.execution.pipeline_interleaving
        return chunks * self.chunk_sum(per_block)
