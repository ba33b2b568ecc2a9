"""Choices of an execution by scope: its named values and switches, as records for plain code (not columns).

The members of the records of layouts, blocks and steps are generated from the field declarations.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, ClassVar, TypeVar

from calculon.base.frozen import dataclass
from calculon.declarations.execution import Execution
from calculon.declarations.fields import Scope, spec_fields
from calculon.declarations.module_sets import INSIDE, modules_of
from calculon.declarations.named_values import (
    DATATYPE_BYTES,
    FOLDED_SCHEDULES,
    MASTER_BYTES,
    MATMUL_BYTES,
    MESH_ORDERS,
    SIMULATED_SCHEDULES,
    SPLIT_WEIGHTS,
    multiplied,
    product_type,
    result_bytes,
)
from calculon.declarations.recipes import FLOAT8, NO_RECIPE, PRODUCTS_IN_FLOAT8, RECIPES, Recipe

DERIVED: dict[str, tuple[str, ...]] = {
    "sequence_parallel": ("tensor_par_comm_type",),
    "overlapped": ("tensor_par_overlap",),
    "own_stages": (
        "pp_schedule",
        "pp_layout",
        "first_stage_blocks",
        "last_stage_blocks",
        "stage_blocks",
    ),
    "modules_apart": ("stage_blocks",),
}
"""Members of choices that are not execution fields, with the fields that they are derived from."""

if TYPE_CHECKING:
    _Members = (
        Execution  # type checkers see all execution fields, although each record has only some
    )
else:
    _Members = object

T = TypeVar("T")


def _of_scope(scope: Scope) -> Callable[[type[T]], type[T]]:
    """Add the named values and switches of a scope to a record, except fields that another member covers."""

    def completed(cls: type[T]) -> type[T]:
        own = cls.__annotations__
        known = {source for name in own for source in DERIVED.get(name, ())}
        if "layout" in own:
            known |= {field.name for field in fields(LayoutChoice)}
        generated = {
            field.name: field.annotation
            for field in spec_fields(Execution)
            if field.named and scope in field.declaration.scope and field.name not in known
        }
        plain = {name: kind for name, kind in own.items() if name not in DERIVED}
        # dataclass takes the order of fields from here; derived members come last.
        cls.__annotations__ = plain | generated | own
        return cls

    return completed


@dataclass(frozen=True, slots=True, kw_only=True)
@_of_scope(Scope.LAYOUT)
class LayoutChoice(_Members):
    """Choices that determine the list of layers; the layer generators read nothing else of an execution.

    Attributes:
        sequence_parallel: Sequence parallelism: the residual region is split along the sequence (Korthikanti 2022,
            section 4.2.2). From ``tensor_par_comm_type``.
        overlapped: Tensor-parallel collectives overlap their products. From ``tensor_par_overlap``.
    """

    sequence_parallel: bool
    overlapped: bool

    @property
    def dtype_bytes(self) -> int:
        """Bytes per element."""
        return DATATYPE_BYTES[self.datatype]

    @property
    def launched(self) -> str | None:
        """Kernel launch mode: one of :data:`LAUNCH_MODES`, or None if launches take no time."""
        if self.launch_mode != "auto":
            return self.launch_mode
        return {"none": "eager", "compile": "compile", "max": "compile"}.get(self.fusion)

    @property
    def blocking(self) -> bool:
        """True if the host waits for each kernel before it launches the next."""
        return self.launch_mode == "blocking"

    @property
    def waits_for_counts(self) -> bool:
        """True if the host waits for the row counts of experts in each block.

        Without a fixed capacity, the host allocates rows and launches products of their size; a graph of a whole
        iteration has no such wait.
        """
        launched = self.launched
        return (
            launched is not None
            and launched not in ("graph", "blocking")
            and not self.moe_pad_to_capacity
        )

    @property
    def loops_over_experts(self) -> bool:
        """True if the host launches quantization and product of each expert.

        In a graph of a whole iteration, the device reads the row counts, and one kernel does this for all experts.
        Source: Transformer Engine, ``pytorch/module/grouped_linear.py``, and pull request 2360.
        """
        return self.launched != "graph" or self.moe_pad_to_capacity

    @property
    def recipe(self) -> Recipe | None:
        """Recipe of operands narrower than 16 bits; None without such operands."""
        if self.fp8_recipe != NO_RECIPE:
            return RECIPES[self.fp8_recipe]
        # Tensors stored in 8 bits need no conversion, and so no recipe.
        if self.matmul_dtype == FLOAT8 and self.dtype_bytes > 1:
            return PRODUCTS_IN_FLOAT8[self.float8_scaling]
        return None

    def recipe_on(self, *, transposes: bool) -> Recipe | None:
        """Return the recipe on a machine that needs transposed copies of 8-bit operands, or does not.

        Without ``fp8_recipe``, the meaning of ``matmul_dtype`` is the same on all machines.
        """
        if self.fp8_recipe == NO_RECIPE:
            return self.recipe
        return RECIPES[self.fp8_recipe].on(transposes=transposes)

    @property
    def attention_bytes(self) -> int:
        """Bytes per element of the operands of fused attention."""
        return 1 if self.fp8_attention else self.result_bytes

    @property
    def narrow_outputs(self) -> bool:
        """True if the kernels of 8-bit attention write 8 bits: outputs, and gradients of queries, keys and values.

        Other scales than delayed ones are known only after the result: it is written in 16 bits. Source: Transformer
        Engine, ``attention/dot_product_attention/backends.py``, ``FusedAttnFunc``.
        """
        return self.fp8_attention and self.fp8_recipe == "delayed"

    @property
    def multiplied(self) -> str:
        """The ``matmul_dtype`` that determines the types of product results and attention: float8 under a recipe."""
        return multiplied(self.matmul_dtype, self.fp8_recipe)

    @property
    def matmul_type(self) -> str:
        """Type of the arithmetic of products with weights."""
        return product_type(self.datatype, self.matmul_dtype, self.fp8_recipe)

    @property
    def operand_bytes(self) -> float:
        """Bytes per element of the operands of products with weights."""
        if (recipe := self.recipe) is not None:
            return recipe.operand
        return min(self.dtype_bytes, MATMUL_BYTES[self.matmul_type])

    @property
    def result_bytes(self) -> int:
        """Bytes per element of the results of products, and of the operators between them."""
        return result_bytes(self.datatype, self.multiplied)

    @property
    def gathers_outputs(self) -> bool:
        """True if every product is split by columns and its output gathered."""
        return self.tp_impl == "allgather"

    @property
    def fuses(self) -> bool:
        """True if chains of elementwise operators are one kernel."""
        return self.fusion in ("compile", "max")

    @property
    def fuses_router(self) -> bool:
        """True if the operators of the router are fused."""
        return self.fuses and self.moe_router_fusion

    @property
    def fuses_permutation(self) -> bool:
        """True if the operators that permute rows of experts are fused."""
        return self.fuses and self.moe_permute_fusion

    @property
    def fuses_loss(self) -> bool:
        """True if the loss is fused, in a layout of the head (:func:`~calculon.cost.embedding_head.plain_layout`)."""
        return self.fuses or self.compile_scope == "blocks_and_loss"

    @property
    def multiquery(self) -> bool:
        """True for multi-query attention: one key/value head serves all query heads."""
        return self.attention_type == "multiquery"

    @property
    def flash(self) -> bool:
        """True for FlashAttention: one fused kernel that does not materialize the score matrix."""
        return self.attn_impl == "flash"


@dataclass(frozen=True, slots=True, kw_only=True)
@_of_scope(Scope.BLOCK)
class BlockChoice(_Members):
    """Choices that determine the cost of a block, given the layers of its layout."""

    layout: LayoutChoice

    never: ClassVar[bool] = False
    always: ClassVar[bool] = True

    @property
    def sequence_parallel(self) -> bool:
        """True if the residual region is split along the sequence."""
        return self.layout.sequence_parallel

    @property
    def recompute_all(self) -> bool:
        """True for full recomputation: the backward pass recomputes every layer."""
        return self.activation_recompute == "full"

    @property
    def modules(self) -> frozenset[str]:
        """Recomputed modules."""
        return modules_of(self.recompute_modules)

    @property
    def checkpoints(self) -> frozenset[str]:
        """Modules that recompute all their layers from the module input, and store nothing else.

        Source: Megatron-LM, ``moe/moe_layer.py``: router, dispatch, experts and combine are one checkpointed function.
        """
        if self.recompute_modules == "none":
            return frozenset()
        # "moe" contains these modules, although the value does not list them.
        found = self.modules & {"moe", "shared_experts"}
        return found | {*INSIDE["moe"]} if "moe" in found else found

    @property
    def recompute_attention(self) -> bool:
        """True if at least the attention core is recomputed (selective recomputation)."""
        if self.remakes:  # `ops` always keeps the result of fused attention
            return not self.layout.flash
        return self.activation_recompute in ("full", "attn_only") or "core_attn" in self.modules

    @property
    def recomputes(self) -> bool:
        """True if anything is recomputed."""
        return self.activation_recompute != "none" or self.recompute_modules != "none"

    @property
    def remakes(self) -> bool:
        """True if individual operators are recomputed."""
        return self.recompute_modules == "ops"

    @property
    def recompute_operators(self) -> bool:
        """True if everything except attention and every other product is recomputed."""
        return self.recompute_all or self.remakes

    @property
    def recompute_norm(self) -> bool:
        """True if the norms before products are recomputed."""
        return self.recompute_operators or "norm" in self.modules

    @property
    def recompute_activation(self) -> bool:
        """True if the activation of the MLP is recomputed."""
        return self.recompute_shared_activation or "mlp" in self.modules

    @property
    def recompute_shared_activation(self) -> bool:
        """True if the activation of shared experts is recomputed, unless the experts are recomputed as a whole."""
        return self.recompute_operators or "activation" in self.modules

    @property
    def recompute_expert_activation(self) -> bool:
        """True if the activation of routed experts is recomputed, so that its output is discarded."""
        return self.recompute_shared_activation or "moe_act" in self.modules

    @property
    def recompute_latent_heads(self) -> bool:
        """True if queries, keys and values are recomputed from their latents, with rotary positions."""
        return self.recompute_all or "mla_up_proj" in self.modules

    @property
    def recompute_gdn_norm(self) -> bool:
        """True if the norm after the state of the gated delta rule is recomputed."""
        return self.recompute_all or "gdn_norm_out" in self.modules

    @property
    def drops_latent_heads(self) -> bool:
        """True if queries, keys and values of latent attention are not stored."""
        return "mla_up_proj" in self.modules

    @property
    def recompute_mlp(self) -> bool:
        """True if both products of the MLP are recomputed."""
        return self.recompute_all or "mlp" in self.modules

    @property
    def recompute_gated(self) -> bool:
        """True if the first product of a gated MLP is recomputed, in full or for one half."""
        return self.recompute_operators or self.recompute_mlp

    @property
    def drops_hidden(self) -> bool:
        """True if the result of the first MLP product is not stored."""
        return "mlp" in self.modules

    @property
    def recompute_stream(self) -> bool:
        """True if the residual stream between attention and MLP is recomputed.

        With sequence parallelism its reduction is stored instead.
        """
        return self.recompute_operators and (self.recompute_all or not self.sequence_parallel)

    @property
    def drops_stream(self) -> bool:
        """True if the residual stream between attention and MLP is not stored."""
        return self.remakes and not self.sequence_parallel

    @property
    def regather_attention(self) -> bool:
        """True if the backward pass repeats the all-gather of the attention input."""
        return self.recompute_latent_heads or (
            self.recompute_attention or self.recompute_norm or self.seq_par_ag_redo
        )

    @property
    def regather_mlp(self) -> bool:
        """True if the backward pass repeats the all-gather of the MLP input."""
        return self.recompute_norm or self.recompute_mlp or self.seq_par_ag_redo

    @property
    def regather_shared(self) -> bool:
        """True if the backward pass repeats the all-gather of the input of shared experts."""
        return self.recompute_norm or self.seq_par_ag_redo

    @property
    def splits_transfers(self) -> bool:
        """True if collectives are split around pipeline transfers only (Narayanan 2021, section 4.1)."""
        return self.tensor_par_comm_type == "p2p_rs_ag"

    @property
    def pairs_passes(self) -> bool:
        """True if passes of two microbatches overlap, to hide the all-to-all of experts."""
        return self.ep_overlap == "1f1b"

    @property
    def in_halves(self) -> bool:
        """True if the two halves of a microbatch overlap."""
        return self.ep_overlap == "two_batch"

    @property
    def hides_experts(self) -> bool:
        """True if anything overlaps the all-to-all of experts."""
        return self.ep_overlap != "none" or self.moe_shared_overlap

    @property
    def accumulates(self) -> bool:
        """True if gradients are added to sums of an explicit type."""
        return self.training and self.grad_dtype != "auto"

    @property
    def adds_gradients(self) -> bool:
        """True if separate kernels accumulate gradients over microbatches."""
        return self.accumulates and not self.grad_fusion

    @property
    def reduced_bytes(self) -> int:
        """Bytes per element of the gradients in the data-parallel reduction."""
        return DATATYPE_BYTES.get(self.grad_comm_dtype, self.layout.dtype_bytes)

    @property
    def explicit_gradient_bytes(self) -> int | None:
        """Bytes per element of accumulated gradients (gradient accumulation); None unless their type is explicit."""
        return DATATYPE_BYTES.get(self.grad_dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
@_of_scope(Scope.STEP)
class StepChoice(_Members):
    """Choices that determine the cost of an optimizer step, and of the gradients accumulated for it."""

    layout: LayoutChoice

    @property
    def dtype_bytes(self) -> int:
        """Bytes per element of the weights."""
        return self.layout.dtype_bytes

    @property
    def explicit_gradient_bytes(self) -> int | None:
        """Bytes per element of accumulated gradients (gradient accumulation); None unless their type is explicit."""
        return MASTER_BYTES if self.grad_sums else DATATYPE_BYTES.get(self.grad_dtype)

    @property
    def added_gradient_bytes(self) -> int:
        """Bytes per element of the gradients kept in addition to 4-byte sums; 0 without such sums."""
        return DATATYPE_BYTES[self.grad_dtype] if self.grad_sums else 0

    @property
    def flat_gradient_bytes(self) -> int:
        """Bytes per element of the gradients concatenated before their 4-byte copy; 0 if none are."""
        return DATATYPE_BYTES[self.grad_dtype] if self.main_grad and self.grad_flat else 0

    @property
    def whole_gradients(self) -> bool:
        """True if a rank keeps all gradients until the step, even if it holds only a shard of the optimizer state."""
        return self.zero_stage in ("0", "1") or self.grad_buffer == "full"

    @property
    def sharded_masters(self) -> bool:
        """True if the weights of a rank are 4-byte master weights (FSDP: Zhao et al., arXiv 2304.11277, 4.4)."""
        return self.zero_stage == "fsdp"

    @property
    def splits_weights(self) -> bool:
        """True if a rank keeps only its share of the weights."""
        return self.zero_stage in SPLIT_WEIGHTS

    @property
    def plain_step(self) -> bool:
        """True if the step reads every gradient once, in one fused pass."""
        return not (
            self.main_grad
            or self.grad_clip
            or self.optimizer_impl != "fused"
            or self.optimizer == "adafactor"
        )

    @property
    def steps_by_matrix(self) -> bool:
        """True if the cost of the step depends on which weights are matrices, and on their shapes."""
        return self.optimizer_impl == "loop" or self.optimizer in ("adafactor", "muon")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchChoice:
    """Choices of strategies for a batch, shared by all executions that plain code handles together.

    Attributes:
        own_stages: True for a schedule or a layout of stages other than the published ones.
        modules_apart: True if the MTP modules of a model are on another stage than the loss.
    """

    edition: str
    training: bool
    zero_stage: str
    coll_algo: str
    mesh_order: str
    pp_schedule: str
    own_stages: bool
    modules_apart: bool
    ep_overlap: str

    @property
    def pairs_passes(self) -> bool:
        """True if forward passes overlap backward passes of another microbatch while the pipeline is full."""
        return self.ep_overlap == "1f1b"

    @property
    def in_halves(self) -> bool:
        """True if the two halves of a microbatch overlap."""
        return self.ep_overlap == "two_batch"

    @property
    def simulated(self) -> bool:
        """True if the time of the schedule is simulated for uneven stages."""
        return self.pp_schedule in SIMULATED_SCHEDULES

    @property
    def folded(self) -> bool:
        """True if a pipeline rank has two opposite parts of the model."""
        return self.pp_schedule in FOLDED_SCHEDULES

    @property
    def mirrored(self) -> bool:
        """True if the second half of the ranks has the parts of the first, for microbatches in reverse direction."""
        return self.pp_schedule == "dualpipe"

    @property
    def meshed(self) -> bool:
        """True if ranks are numbered, and process groups use the networks that they span."""
        return self.mesh_order != MESH_ORDERS[0]


CHOICES = {
    Scope.LAYOUT: LayoutChoice,
    Scope.BLOCK: BlockChoice,
    Scope.STEP: StepChoice,
    Scope.BATCH: BatchChoice,
}
"""Record of the choices of each scope."""
