"""Fields of mixtures of experts."""

from calculon.base.frozen import dataclass
from calculon.declarations.execution_fields.pipeline_fields import PipelineFields
from calculon.declarations.fields import ABOVE_ONE, ABOVE_ZERO, BATCH, BLOCK, LAYOUT, STEP, declare
from calculon.declarations.named_values import EP_OVERLAPS, EXCHANGED, EXCHANGING, MOE_DISPATCHERS


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertFields(PipelineFields):
    """Fields of mixtures of experts."""

    expert_par: int = declare(
        "expert-parallel degree (EP): each rank of a group has its share of the experts; groups are made of ranks of "
        "tensor and data parallelism, so that the degree is no factor of the processors",
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
        "over how many ranks each expert is split by its width; 0: as many as tensor_par",
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
        "how tokens come to experts on other ranks: alltoall, a row for each expert of a token, exchanged over the "
        "group; allgather, all tokens to every rank; deepep, one copy to each node that has an expert of the token, "
        "which a library sends on inside of the node; hybridep, another library that is modelled alike",
        choices=MOE_DISPATCHERS,
        default="alltoall",
        scope=LAYOUT,
        label="dispatcher {}",
        mark="{} dispatcher",
        adds="dispatchers beside alltoall",
        control="Dispatch of experts",
    )
    moe_imbalance_percent: int = declare(
        "rows of the busiest rank of a group of experts, for which the others wait",
        unit="% of the mean",
        at_least=100,
        default=100,
        scope=BLOCK | BATCH,
        label="{} % of the rows on the busiest rank",
        mark="imbalance {} %",
        needs={"expert_par": ABOVE_ONE},
        why="experts are spread over ranks",
        adds="imbalances of experts",
        samples=(130, 250),
        of="circumstance",
    )
    moe_capacity_percent: int = declare(
        "most rows of an expert, further ones are dropped; 0: none is",
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
        "rows of every expert are filled up to its capacity",
        default=False,
        scope=LAYOUT,
        label="experts padded to their capacity",
        mark="padded experts",
        needs={"moe_capacity_percent": ABOVE_ZERO},
        why="there is a capacity",
        adds="true: rows filled up to the capacity of experts",
    )
    dispatch_dtype: str = declare(
        "type of rows on their way to experts on other ranks, and of gradients on the way back; same: that of results "
        "of products",
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
        "type of results of experts on their way back, and of gradients on the way there",
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
        "what runs beside dispatch and combine of experts: nothing; 1f1b, forward passes beside backward passes of "
        "another microbatch, block by block, while the pipeline is full; two_batch, the other half of each microbatch",
        choices=EP_OVERLAPS,
        default="none",
        scope=BLOCK | BATCH,
        label="exchange of experts overlapped: {}",
        mark={"1f1b": "EP beside 1f1b", "two_batch": "EP beside halves"},
        needs={"expert_par": ABOVE_ONE, "moe_dispatcher": EXCHANGING},
        why="rows are exchanged",
        adds="what runs beside dispatch and combine of experts",
        control="EP overlap",
    )
    delay_wgrad: bool = declare(
        "with ep_overlap 1f1b: gradients of the weights of experts wait until the gradient of their input is on its "
        "way, and run beside that",
        default=False,
        scope=BLOCK,
        label="weight gradients of experts delayed",
        mark="delayed wgrad",
        needs={"ep_overlap": ("1f1b",)},
        adds="true: weight gradients of experts beside the dispatch of gradients",
        control="Delayed weight gradients",
    )
    moe_shared_overlap: bool = declare(
        "shared experts run beside dispatch and combine: their first product beside the former, the second beside the "
        "latter",
        default=False,
        scope=BLOCK,
        label="shared experts beside the exchange",
        mark="shared overlap",
        needs={
            "expert_par": ABOVE_ONE,
            "moe_dispatcher": EXCHANGING,
            "ep_overlap": ("none",),
        },
        why="rows are exchanged",
        adds="true: shared experts beside dispatch and combine",
        control="Shared experts overlapped",
    )
