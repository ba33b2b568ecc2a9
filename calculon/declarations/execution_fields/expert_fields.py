"""Fields of mixtures of experts: expert parallelism, dispatch and combine (all-to-all), capacity and overlap."""

from calculon.base.frozen import dataclass
from calculon.declarations.execution_fields.pipeline_fields import PipelineFields
from calculon.declarations.fields import ABOVE_ONE, ABOVE_ZERO, BATCH, BLOCK, LAYOUT, STEP, declare
from calculon.declarations.named_values import EP_OVERLAPS, EXCHANGED, EXCHANGING, MOE_DISPATCHERS


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertFields(PipelineFields):
    """Fields of mixtures of experts."""

    expert_par: int = declare(
        "expert-parallel degree (EP): each rank of a group holds a share of the experts; groups consist of "
        "tensor- and data-parallel ranks, so the degree is not a factor of the number of processors",
        at_least=1,
        default=1,
        scope=BLOCK | STEP | BATCH,
        label="expert parallelism {}",
        mark="EP {}",
        adds="expert-parallel degrees",
        samples=(2,),
        searched="option",
        control="Expert parallel (EP)",
    )
    expert_par_net: int = declare(
        "network of the expert-parallel groups",
        at_least=0,
        default=0,
        scope=BLOCK | BATCH,
        label="expert parallelism on network {}",
        mark="EP on {}",
        needs={"expert_par": ABOVE_ONE},
        why="experts are spread over ranks",
        adds="networks of the expert-parallel groups",
        samples=(1,),
        searched="option",
        of="circumstance",
        with_="mesh_order",
    )
    expert_tensor_par: int = declare(
        "ranks over which each expert is split by width (ETP); 0: same as tensor_par",
        at_least=0,
        default=0,
        scope=BLOCK | STEP | BATCH,
        label="experts split by width over {}",
        mark="ETP {}",
        adds="degrees by which experts are split by width",
        samples=(1, 2),
        searched="option",
        control="Ranks of one expert (ETP)",
        words={0: "as TP"},
    )
    moe_dispatcher: str = declare(
        "token dispatch to experts on other ranks: alltoall, one row per expert of a token, exchanged within the "
        "group; allgather, all tokens to every rank; deepep, one copy per node with an expert of the token, forwarded "
        "inside the node; hybridep, another library, modeled in the same way",
        choices=MOE_DISPATCHERS,
        default="alltoall",
        scope=LAYOUT,
        label="dispatcher {}",
        mark="{} dispatcher",
        adds="dispatchers other than alltoall",
        control="Dispatch of experts",
    )
    moe_imbalance_percent: int = declare(
        "rows of the busiest rank of an expert-parallel group, for which the other ranks wait",
        unit="% of the mean",
        at_least=100,
        default=100,
        scope=BLOCK | BATCH,
        label="{} % of the rows on the busiest rank",
        mark="imbalance {} %",
        needs={"expert_par": ABOVE_ONE},
        why="experts are spread over ranks",
        adds="imbalances of experts",
        samples=(130, 200),
        of="circumstance",
    )
    moe_capacity_percent: int = declare(
        "capacity of an expert: rows beyond it are dropped; 0: no rows are dropped",
        unit="% of the mean",
        at_least=0,
        default=0,
        scope=BLOCK | BATCH,
        label="expert capacity {} %",
        mark="capacity {} %",
        adds="capacities of experts",
        samples=(80, 125),
    )
    moe_pad_to_capacity: bool = declare(
        "pad the rows of every expert to its capacity",
        default=False,
        scope=LAYOUT,
        label="experts padded to their capacity",
        mark="padded experts",
        needs={"moe_capacity_percent": ABOVE_ZERO},
        why="experts have a capacity",
        adds="true: experts padded to their capacity",
    )
    moe_router_fusion: bool = declare(
        "router in fused kernels: one for the scores and the choice of experts, one for the scores of the "
        "load-balancing loss (Megatron-LM, --moe-router-fusion); false, or with fusion none: one kernel per operator",
        default=True,
        scope=LAYOUT,
        label="router operator by operator",
        mark="unfused router",
        adds="false: router operator by operator",
    )
    moe_permute_fusion: bool = declare(
        "permutation of tokens to the rows of experts, and back, in fused kernels (Megatron-LM, --moe-permute-fusion); "
        "false, or with fusion none: one kernel per operator",
        default=True,
        scope=LAYOUT,
        label="permutation operator by operator",
        mark="unfused permutation",
        adds="false: permutation operator by operator",
    )
    dispatch_dtype: str = declare(
        "type of the rows dispatched to experts on other ranks, and of the gradients returned; same: type of product "
        "results",
        choices=EXCHANGED,
        default="same",
        scope=LAYOUT,
        label="rows dispatched in {}",
        mark="dispatch in {}",
        needs={"expert_par": ABOVE_ONE, "moe_dispatcher": EXCHANGING},
        why="rows are exchanged",
        adds="types in which rows are dispatched",
    )
    combine_dtype: str = declare(
        "type of the expert results that are returned, and of the gradients sent to experts",
        choices=EXCHANGED,
        default="same",
        scope=LAYOUT,
        label="results combined in {}",
        mark="combine in {}",
        needs={"expert_par": ABOVE_ONE, "moe_dispatcher": EXCHANGING},
        why="rows are exchanged",
        adds="types in which results of experts are combined",
    )
    ep_overlap: str = declare(
        "overlap of expert dispatch and combine: none; 1f1b, forward passes overlap backward passes of another "
        "microbatch, block by block, while the pipeline is full; two_batch, the other half of each microbatch",
        choices=EP_OVERLAPS,
        default="none",
        scope=BLOCK | BATCH,
        label="exchange of experts overlapped: {}",
        mark={"1f1b": "EP overlap 1F1B", "two_batch": "EP overlap halves"},
        needs={"expert_par": ABOVE_ONE, "moe_dispatcher": EXCHANGING},
        why="rows are exchanged",
        adds="overlaps of expert dispatch and combine",
        control="EP overlap",
    )
    delay_wgrad: bool = declare(
        "with ep_overlap 1f1b: delay the weight gradients of experts until the input gradient is being sent, and "
        "overlap the two",
        default=False,
        scope=BLOCK,
        label="weight gradients of experts delayed",
        mark="delayed wgrad",
        needs={"ep_overlap": ("1f1b",)},
        adds="true: expert weight gradients overlapped with the dispatch of gradients",
        control="Delayed weight gradients",
    )
    moe_shared_overlap: bool = declare(
        "shared experts overlap dispatch and combine: their first product overlaps dispatch, the second overlaps "
        "combine",
        default=False,
        scope=BLOCK,
        label="shared experts overlapped with dispatch and combine",
        mark="shared overlap",
        needs={
            "expert_par": ABOVE_ONE,
            "moe_dispatcher": EXCHANGING,
            "ep_overlap": ("none",),
        },
        why="rows are exchanged",
        adds="true: shared experts overlapped with dispatch and combine",
        control="Shared experts overlapped",
    )
