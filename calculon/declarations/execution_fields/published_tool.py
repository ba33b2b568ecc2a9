"""Fields of the published tool: tensor, pipeline and data parallelism, microbatches, recomputation, offloading."""

from calculon.base.frozen import dataclass
from calculon.declarations.fields import BATCH, BLOCK, LAYOUT, STEP, NamedValues, declare
from calculon.declarations.named_values import DATATYPE_BYTES


class _Stored(NamedValues):
    """Storage types, with a hint for ``fp8``: that is a recipe of products, not a storage type."""

    __slots__ = ()

    def hint(self, value: object) -> str | None:
        """Name the field of recipes if the value is a recipe."""
        if str(value).lower() in ("fp8", "mxfp8", "nvfp4", "fp4"):
            return "training in 8 or 4 bits stores bfloat16: set fp8_recipe"
        return super().hint(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFields:
    """The 23 fields of the published tool, in the order of its files."""

    num_procs: int = declare(
        "processors; product of the tensor-, context-, pipeline- and data-parallel degrees",
        at_least=1,
        scope=BATCH,
        searched="argument",
        of="question",
        instead="use the argument of the processor count",
    )
    tensor_par: int = declare(
        "tensor-parallel degree (TP)",
        at_least=1,
        scope=BLOCK | STEP | BATCH,
        control="Tensor parallel (TP)",
    )
    pipeline_par: int = declare(
        "pipeline-parallel degree (PP)",
        at_least=1,
        scope=BATCH,
        adds="pipeline degrees that leave stages uneven",
        control="Pipeline parallel (PP)",
    )
    data_par: int = declare(
        "data-parallel degree (DP)", at_least=1, scope=STEP | BATCH, control="Data parallel (DP)"
    )
    tensor_par_net: int = declare(
        "network of the tensor-parallel groups",
        at_least=0,
        scope=BLOCK | BATCH,
        of="circumstance",
        with_="mesh_order",
    )
    pipeline_par_net: int = declare(
        "network of the pipeline", at_least=0, scope=BATCH, of="circumstance", with_="mesh_order"
    )
    data_par_net: int = declare(
        "network of the data-parallel groups",
        at_least=0,
        scope=BATCH,
        of="circumstance",
        with_="mesh_order",
    )
    batch_size: int = declare(
        "global batch",
        unit="sequences",
        at_least=1,
        scope=BATCH,
        adds="batch sizes below the largest",
        of="question",
    )
    microbatch_size: int = declare(
        "sequences per microbatch",
        unit="sequences",
        at_least=1,
        scope=BLOCK | BATCH,
        control="Microbatch",
        off=1,
    )
    datatype: str = declare(
        "type of weights, activations and matrix arithmetic",
        choices=_Stored(DATATYPE_BYTES),
        scope=LAYOUT,
        searched="argument",
        of="question",
        instead="use the argument of the datatype",
    )
    fused_activation: bool = declare(
        "GeLU fused with its neighbors, so that its input is not stored",
        scope=LAYOUT,
        control="Fused activation",
    )
    attention_type: str = declare(
        "multihead, or multiquery (one shared key/value head)",
        choices=("multihead", "multiquery"),
        scope=LAYOUT | BATCH,
        adds="multiquery in addition to multihead",
        of="question",
    )
    activation_recompute: str = declare(
        "activation recomputation: full; attn_only, the attention core (useless with flash attention, which stores "
        "only its inputs anyway); none",
        choices=("full", "attn_only", "none"),
        scope=BLOCK | BATCH,
        adds="attn_only, if a preset leaves it out",
        control="Recomputation",
        saves=("full",),
        words={"attn_only": "attention"},
        switches={"none": 0, "full": 2},
        off="none",
    )
    pipeline_interleaving: int = declare(
        "model chunks per processor (virtual stages)",
        at_least=1,
        scope=BATCH,
        control="Chunks per stage",
        off=1,
    )
    optimizer_sharding: bool = declare(
        "optimizer state split over data parallelism (ZeRO-1)",
        scope=BATCH,
        control="Optimizer sharding",
        mark="S",
    )
    tensor_par_comm_type: str = declare(
        "tensor-parallel collectives: all-reduce; reduce-scatter and all-gather around pipeline transfers; or "
        "reduce-scatter and all-gather everywhere (sequence parallelism)",
        choices=("ar", "p2p_rs_ag", "rs_ag"),
        scope=LAYOUT | BLOCK,
        control="TP collectives",
        words={
            "ar": "all-reduce",
            "p2p_rs_ag": "reduce-scatter around transfers",
            "rs_ag": "sequence parallelism",
        },
        off="ar",
    )
    tensor_par_overlap: str = declare(
        "tensor-parallel collectives overlapped with their matrix products, in tiles",
        choices=("none", "ring", "pipe"),
        scope=LAYOUT | BLOCK,
        adds="ring or pipe, if a preset leaves them out",
        control="TP overlap",
        switches={"none": 0},
        off="none",
    )
    seq_par_ag_redo: bool = declare(
        "sequence parallelism stores split inputs and gathers them again in the backward pass",
        scope=BLOCK,
        control="Repeated all-gather",
        mark="R",
        switches={False: 0},
    )
    data_par_overlap: bool = declare(
        "data-parallel traffic overlapped with the backward pass",
        scope=BATCH,
        control="DP overlap",
        mark="O",
        switches={False: 0},
    )
    weight_offload: bool = declare(
        "weights kept in host memory",
        scope=BATCH,
        adds="true, if a preset leaves it out",
        control="Weights offloaded",
        saves=(True,),
        mark="w",
        switches={False: 0},
    )
    activations_offload: bool = declare(
        "activations kept in host memory",
        scope=BATCH,
        adds="true: also with full recomputation, and if a preset leaves it out",
        control="Activations offloaded",
        saves=(True,),
        mark="a",
        switches={False: 0},
    )
    optimizer_offload: bool = declare(
        "optimizer state kept in host memory",
        scope=BATCH,
        adds="true, if a preset leaves it out",
        control="Optimizer offloaded",
        saves=(True,),
        mark="o",
        switches={False: 0},
    )
    training: bool = declare(
        "training step; false is inference, forward only",
        scope=BLOCK | STEP | BATCH,
        searched="argument",
        of="question",
        instead="a search covers training only",
    )
