"""Fields of collectives, meshes, pipeline schedules (1F1B, interleaved) and activation recomputation."""

from calculon.base.frozen import dataclass
from calculon.declarations.execution_fields.replica_fields import ReplicaFields
from calculon.declarations.fields import ABOVE_ONE, BATCH, BLOCK, declare
from calculon.declarations.lists_of_counts import ListsOfCounts
from calculon.declarations.module_sets import ModuleSets
from calculon.declarations.named_values import (
    COLLECTIVES,
    MESH_ORDERS,
    OTHER_SCHEDULES,
    PP_LAYOUTS,
    PP_SCHEDULES,
)

STAGE_LISTS = ListsOfCounts()
"""Registry of the lists of blocks per stage that were read."""

MODULE_SETS = ModuleSets()
"""Sets of modules that can be recomputed."""

_AGAIN = {
    "norm": "norms again",
    "activation": "activations again",
    "norm_activation": "norms, activations again",
    "mlp": "MLP again",
    "ops": "selective ops",
}
"""Short labels of recomputed modules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFields(ReplicaFields):
    """Fields of collectives, meshes, pipeline schedules and activation recomputation."""

    coll_algo: str = declare(
        "algorithm of collectives: published, the formula of the network's ops; auto, the choice of the collective "
        "library, as measured if the system states it (ext.networks[].operations), else the fastest algorithm that "
        "libraries choose from; any other algorithm if it can run, and auto otherwise. An algorithm that libraries "
        "choose from is never faster than auto; hierarchical and pipelined, for groups that span networks, can be",
        choices=COLLECTIVES,
        default="published",
        scope=BLOCK | BATCH,
        label="collectives {}",
        mark="{} collectives",
        adds="algorithms of collectives",
        of="circumstance",
    )
    mesh_order: str = declare(
        "numbering of ranks, fastest dimension first: groups use the networks that they span, and the three *_net "
        "have no effect; stated: each group uses its *_net",
        choices=MESH_ORDERS,
        default="stated",
        scope=BLOCK | BATCH,
        label="ranks numbered {}",
        mark="{}",
        searched="fixed",
        control="Order of ranks",
        instead="a search uses one numbering of ranks: --fix mesh_order=tp-dp-pp",
    )
    pp_schedule: str = declare(
        "pipeline schedule of training: 1f1b (interleaved with several chunks), gpipe (all forward passes first), "
        "zb_h1 (weight gradients fill the drain), zb_h2 (more microbatches in flight fill the rest; stages step "
        "separately), zbv (the same in a V: through the pipeline_par ranks and back, with pipeline_interleaving 2), "
        "dualpipe (both directions at once: each of the pipeline_par ranks has two stages, twice the weights), "
        "dualpipev (half of dualpipe: a V of pipeline_par ranks, with pipeline_interleaving 2)",
        choices=PP_SCHEDULES,
        default=PP_SCHEDULES[0],
        scope=BATCH,
        label="pipeline schedule {}",
        mark=OTHER_SCHEDULES,
        needs={"training": (True,), "pipeline_par": ABOVE_ONE},
        adds="schedules other than 1f1b",
        control="Pipeline schedule",
    )
    pp_layout: str = declare(
        "distribution of blocks over pipeline stages: uniform; balanced, the output head counts as the number of "
        "blocks with the same weights, in its stage and in its chunk; or the embedding, the head or both count as one "
        "block each",
        choices=PP_LAYOUTS,
        default="uniform",
        scope=BATCH,
        label="{} pipeline stages",
        mark="{}",
        needs={"pipeline_par": ABOVE_ONE},
        adds="layouts other than uniform pipeline stages",
        control="Layout of stages",
    )
    first_stage_blocks: int = declare(
        "blocks of the first pipeline stage; 0: according to pp_layout",
        at_least=0,
        default=0,
        scope=BATCH,
        label="first stage of {} blocks",
        mark="first {}",
        needs={"pipeline_par": ABOVE_ONE, "pp_layout": ("uniform",)},
        adds="blocks of the first pipeline stage",
        samples=(1, 2),
        with_="pp_layout",
    )
    last_stage_blocks: int = declare(
        "blocks of the last pipeline stage; 0: according to pp_layout",
        at_least=0,
        default=0,
        scope=BATCH,
        label="last stage of {} blocks",
        mark="last {}",
        needs={"pipeline_par": ABOVE_ONE, "pp_layout": ("uniform",)},
        adds="blocks of the last pipeline stage",
        samples=(1, 2),
        with_="pp_layout",
    )
    stage_blocks: str = declare(
        "blocks of each pipeline stage, in order; or of each chunk: the first chunks of all stages, then the second "
        "chunks, and so on; a chunk may have 0 blocks, m marks a chunk that has the MTP modules (2-2-1m-0; by default "
        "they are with the loss), and Megatron-LM's layout such as Et*3|(tt|)*2tm|L is another form; empty: according "
        "to pp_layout",
        choices=STAGE_LISTS,
        default="",
        scope=BATCH,
        label="stages of {} blocks",
        mark="stages {}",
        needs={
            "pipeline_par": ABOVE_ONE,
            "pp_layout": ("uniform",),
            "first_stage_blocks": (0,),
            "last_stage_blocks": (0,),
        },
        adds="lists of the blocks of all stages, such as 9-8-8-7",
        samples=("2-2", "3-1"),
        with_="pp_layout",
    )
    p2p_overlap: bool = declare(
        "transfers between pipeline stages overlap other passes, except one trip of a microbatch",
        default=False,
        scope=BATCH,
        label="pipeline transfers overlapped",
        mark="p2p overlap",
        needs={"pipeline_par": ABOVE_ONE},
        adds="true: pipeline transfers overlapped with other passes",
        control="Pipeline transfers overlapped",
        switches={False: 0},
    )
    stage_stop_us: int = declare(
        "idle time of each pipeline stage per microbatch, while the host runs the instructions of a pipeline engine "
        "and reads what other stages sent",
        unit="us",
        at_least=0,
        default=0,
        scope=BATCH,
        label="stages idle for {} us per microbatch",
        mark="{} us idle per microbatch",
        adds="idle times of stages per microbatch",
        samples=(0, 100, 10_000),
        of="circumstance",
    )

    recompute_modules: str = declare(
        "operators of a block that the backward pass recomputes instead of storing their results: norms, activations, "
        "both, the whole MLP; or ops (selective: everything except attention, reductions of sequence parallelism and "
        "every other product); or any of Megatron-LM's modules: norm (layernorm), core_attn (like attn_only), "
        "mla_up_proj (queries, keys and values of latents), mlp (of dense blocks), moe_act (activation of experts), "
        "shared_experts, moe (router, dispatch, experts, combine)",
        choices=MODULE_SETS,
        default="none",
        scope=BLOCK,
        label="recomputed: {}",
        mark={name: _AGAIN.get(name, f"{name} again") for name in MODULE_SETS},
        needs={
            "training": (True,),
            "activation_recompute": ("none", "attn_only"),
            "tp_impl": ("megatron",),
            "matmul_impl": ("gemm",),
        },
        adds="recomputed operators",
        control="Recomputed operators",
        saves=("moe_act", "moe"),
        with_="activation_recompute",
    )
    recompute_every: int = declare(
        "one of every N blocks recomputes, the others store everything",
        unit="blocks",
        at_least=1,
        default=1,
        scope=BLOCK | BATCH,
        label="one of {} blocks recomputes",
        mark="1 of {} again",
        needs={"activation_recompute": ("full", "attn_only")},
        why="something is recomputed, possibly by recompute_modules",
        adds="recomputation in one of every N blocks",
        samples=(2, 3),
        with_="activation_recompute",
    )
    recompute_blocks: int = declare(
        "blocks out of each recompute_every that recompute, instead of one (Megatron-LM's --recompute-method block: "
        "recompute_every is the number of blocks of a chunk, --recompute-num-layers the number that recompute); 0: one",
        unit="blocks",
        at_least=0,
        default=0,
        scope=BLOCK | BATCH,
        label="{} blocks of them",
        mark="{} blocks again",
        needs={"activation_recompute": ("full", "attn_only")},
        why="something is recomputed, possibly by recompute_modules",
        adds="numbers of recomputing blocks out of each recompute_every",
        samples=(1,),
        with_="activation_recompute",
    )
