"""What decides which layers a block has, and what decides how big they are.

Choices are scalars, sizes are arrays: a table of executions is split by :class:`Choice`, and within one choice the
:class:`Sizes` are columns.
"""

from dataclasses import dataclass
from typing import Final

from calculon.spec.execution import DATATYPE_BYTES, MATMUL_BYTES, arithmetic_type
from calculon.units import Array, Count

_LEAST_RESULT_BYTES = 2
"""8-bit products have 16-bit results (Micikevicius et al., arXiv 2209.05433, section 3)."""


MASTER_BYTES = 4
"""Bytes of a master copy of a weight, and of a gradient in the arithmetic of a step."""


class When:
    """When something happens to a layer, as :meth:`calculon.editions.edition.Edition.happens` tells of a choice.

    Where an edition does not say otherwise, names of properties of :class:`~calculon.plan.choice.Choice`.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The knobs of an execution that shape a block; names and values as in :class:`Execution`."""

    datatype: str
    fused_activation: bool
    attention_type: str
    activation_recompute: str
    tensor_par_comm_type: str
    tensor_par_overlap: str
    seq_par_ag_redo: bool
    training: bool
    edition: str
    attn_impl: str
    ce_impl: str
    grad_buffer: str
    grad_comm_dtype: str
    optimizer: str
    optimizer_impl: str
    optimizer_state_dtype: str
    grad_dtype: str
    main_grad: bool
    grad_clip: bool
    latency_per_step: bool
    fusion: str
    matmul_dtype: str
    vocab_pad_multiple: int
    zero_stage: str
    dp_shard: int
    fsdp_unit: int
    fsdp_prefetch: int
    reshard_after_forward: bool
    ddp_bucket_mib: int
    no_sync: bool
    overlap_param_gather: bool
    mem_reserved_mib: int
    coll_algo: str
    mesh_order: str
    tp_impl: str
    tp_async: bool
    bias_after_reduce: bool
    matmul_impl: str
    pp_schedule: str
    pp_layout: str
    first_stage_blocks: int
    last_stage_blocks: int
    p2p_overlap: bool

    @property
    def dtype_bytes(self) -> int:
        """Bytes per element."""
        return DATATYPE_BYTES[self.datatype]

    @property
    def matmul_type(self) -> str:
        """Type of the arithmetic of products with weights."""
        return arithmetic_type(self.datatype, self.matmul_dtype)

    @property
    def operand_bytes(self) -> int:
        """Bytes per element of what products with weights read."""
        return min(self.dtype_bytes, MATMUL_BYTES[self.matmul_type])

    @property
    def result_bytes(self) -> int:
        """Bytes per element of what products write, and of what is computed between them."""
        return min(self.dtype_bytes, max(self.operand_bytes, _LEAST_RESULT_BYTES))

    @property
    def never(self) -> bool:
        """False: for what does not depend on the choice."""
        return False

    @property
    def always(self) -> bool:
        """True: for what does not depend on the choice."""
        return True

    @property
    def sequence_parallel(self) -> bool:
        """Whether the residual region is split along the sequence (Korthikanti 2022, section 4.2.2)."""
        return self.tensor_par_comm_type == "rs_ag"

    @property
    def gathers_outputs(self) -> bool:
        """Whether every product is split by columns, and its output gathered."""
        return self.tp_impl == "allgather"

    @property
    def recompute_all(self) -> bool:
        """Whether every layer is computed again in the backward pass."""
        return self.activation_recompute == "full"

    @property
    def recompute_attention(self) -> bool:
        """Whether at least the attention core is computed again (selective recompute)."""
        return self.activation_recompute in ("full", "attn_only")

    @property
    def regather_attention(self) -> bool:
        """Whether the backward pass repeats the gather of the attention input."""
        return self.recompute_attention or self.seq_par_ag_redo

    @property
    def regather_mlp(self) -> bool:
        """Whether the backward pass repeats the gather of the MLP input."""
        return self.recompute_all or self.seq_par_ag_redo

    @property
    def splits_transfers(self) -> bool:
        """Whether collectives are split around pipeline transfers only (Narayanan 2021, section 4.1)."""
        return self.tensor_par_comm_type == "p2p_rs_ag"

    @property
    def fuses(self) -> bool:
        """Whether chains of elementwise operators are one kernel."""
        return self.fusion in ("compile", "max")

    @property
    def multiquery(self) -> bool:
        """Whether one key/value head serves all query heads."""
        return self.attention_type == "multiquery"

    @property
    def flash(self) -> bool:
        """Whether attention is one fused kernel that never has the scores in memory."""
        return self.attn_impl == "flash"

    @property
    def reduced_bytes(self) -> int:
        """Bytes per element of the gradients that data parallelism reduces."""
        return DATATYPE_BYTES.get(self.grad_comm_dtype, self.dtype_bytes)

    @property
    def stated_gradient_bytes(self) -> int | None:
        """Bytes per element of the gradients that wait, where the execution states their type."""
        return DATATYPE_BYTES.get(self.grad_dtype)

    @property
    def step(self) -> tuple[str | bool, ...]:
        """What the optimizer step depends on, sizes apart."""
        return (
            self.optimizer,
            self.optimizer_impl,
            self.optimizer_state_dtype,
            self.grad_buffer,
            self.grad_dtype,
            self.main_grad,
            self.grad_clip,
            self.zero_stage,
        )

    @property
    def whole_gradients(self) -> bool:
        """Whether a rank keeps all of its gradients until the step, whatever its share of the optimizer state is."""
        return self.zero_stage in ("0", "1") or self.grad_buffer == "full"

    @property
    def sharded_masters(self) -> bool:
        """Whether the weights that a rank keeps are 4-byte masters (FSDP: Zhao et al., arXiv 2304.11277, 4.4)."""
        return self.zero_stage == "fsdp"

    @property
    def splits_weights(self) -> bool:
        """Whether a rank keeps its share of the weights only."""
        return self.zero_stage in ("3", "fsdp", "owner")

    @property
    def plain_step(self) -> bool:
        """Whether the step reads every gradient once, in one fused pass."""
        return not (
            self.main_grad
            or self.grad_clip
            or self.optimizer_impl != "fused"
            or self.optimizer == "adafactor"
        )

    @property
    def steps_by_matrix(self) -> bool:
        """Whether the step depends on which weights are matrices, and on their shapes."""
        return self.optimizer_impl == "loop" or self.optimizer in ("adafactor", "muon")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Columns that size the layers of a block; all of shape ``(blocks,)``.

    Attributes
    ----------
    tensor_par : array of float
        Tensor-parallel degree.
    microbatch_size : array of float
        Sequences per microbatch.
    tensor_par_net : array of int
        Network of the tensor-parallel groups.
    """

    tensor_par: Count
    microbatch_size: Count
    tensor_par_net: Array
