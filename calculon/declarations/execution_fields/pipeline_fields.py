"""Fields of collectives, meshes and pipelines, and of what stages compute again."""

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
"""The lists of blocks of stages that have been read."""

MODULE_SETS = ModuleSets()
"""The sets of modules that may be computed again."""

_AGAIN = {
    "norm": "norms again",
    "activation": "activations again",
    "norm_activation": "norms, activations again",
    "mlp": "MLP again",
    "ops": "selective ops",
}
"""What is computed again, in a few letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFields(ReplicaFields):
    """Fields of collectives, meshes and pipelines, and of what stages compute again."""

    coll_algo: str = declare(
        "algorithm of collectives: published is the formula of the network's ops; auto is the library's own choice, as "
        "measured where the system states it (ext.networks[].operations), else the fastest that libraries choose from; "
        "any other one where it can run, and auto elsewhere. An algorithm that libraries choose from is never faster "
        "than auto; hierarchical and pipelined run in groups that span networks, and may be",
        choices=COLLECTIVES,
        default="published",
        scope=BLOCK | BATCH,
        label="collectives {}",
        mark="{} collectives",
        adds="algorithms of collectives",
        of="circumstance",
    )
    mesh_order: str = declare(
        "how ranks are numbered, fastest dimension first: groups then use the networks that they span, whatever "
        "the three *_net say; stated: each group is on its *_net",
        choices=MESH_ORDERS,
        default="stated",
        scope=BLOCK | BATCH,
        label="ranks numbered {}",
        mark="{}",
        searched="fixed",
        control="Order of ranks",
        instead="ranks are numbered in one way, or in none: --fix mesh_order=tp-dp-pp",
    )
    pp_schedule: str = declare(
        "order of passes in a training pipeline: 1f1b (interleaved with several chunks), gpipe (all forward passes "
        "first), zb_h1 (gradients of weights fill the drain), zb_h2 (more microbatches in flight fill the rest; stages "
        "step by themselves), zbv (the same in a V: pipeline_par ranks and back, with pipeline_interleaving 2), "
        "dualpipe (both directions at once: each of pipeline_par ranks has two stages, twice the weights), dualpipev "
        "(its half: a V of pipeline_par ranks, with pipeline_interleaving 2)",
        choices=PP_SCHEDULES,
        default=PP_SCHEDULES[0],
        scope=BATCH,
        label="pipeline schedule {}",
        mark=OTHER_SCHEDULES,
        needs={"training": (True,), "pipeline_par": ABOVE_ONE},
        adds="other schedules beside 1f1b",
        control="Pipeline schedule",
    )
    pp_layout: str = declare(
        "blocks of pipeline stages: uniform; balanced, where the output head counts as the blocks that its weights "
        "are worth; or the embedding, the head or both count as one block each",
        choices=PP_LAYOUTS,
        default="uniform",
        scope=BATCH,
        label="{} pipeline stages",
        mark="{}",
        needs={"pipeline_par": ABOVE_ONE},
        adds="layouts beside uniform pipeline stages",
        control="Layout of stages",
    )
    first_stage_blocks: int = declare(
        "blocks of the first pipeline stage; 0: as pp_layout says",
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
        "blocks of the last pipeline stage; 0: as pp_layout says",
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
        "blocks of each pipeline stage, in order, or of each chunk: of the first chunk of all stages, then of the "
        "second, and so on; empty: as pp_layout says",
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
        "transfers between pipeline stages run beside other passes, but for one trip of a microbatch",
        default=False,
        scope=BATCH,
        label="pipeline transfers overlapped",
        mark="p2p overlap",
        needs={"pipeline_par": ABOVE_ONE},
        adds="true: pipeline transfers beside other passes",
        control="Pipeline transfers overlapped",
        switches={False: 0},
    )
    stage_stop_us: int = declare(
        "time for which each stage of a pipeline stands still beside a microbatch, while the host runs the "
        "instructions of a pipeline engine and reads what other stages send",
        unit="us",
        at_least=0,
        default=0,
        scope=BATCH,
        label="stages stand still for {} us beside each microbatch",
        mark="{} us beside a microbatch",
        adds="times for which stages stand still beside a microbatch",
        samples=(0, 100, 10_000),
        of="circumstance",
    )

    recompute_modules: str = declare(
        "which operators of a block the backward pass computes again instead of storing their results: norms, "
        "activations, both, the whole MLP; or ops, all but attention, reductions of split sequences and every other "
        "product; or any of Megatron-LM's modules: norm (layernorm), core_attn (as attn_only), mla_up_proj (queries, "
        "keys and values of latents), mlp (of dense blocks), moe_act (activation of experts), shared_experts, moe "
        "(router, dispatch, experts, combine)",
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
        adds="operators that are computed again",
        control="Recomputed operators",
        saves=("moe_act", "moe"),
        with_="activation_recompute",
    )
    recompute_every: int = declare(
        "of so many blocks one recomputes, the others store everything",
        unit="blocks",
        at_least=1,
        default=1,
        scope=BLOCK | BATCH,
        label="one of {} blocks recomputes",
        mark="1 of {} again",
        needs={"activation_recompute": ("full", "attn_only")},
        why="something is recomputed, which recompute_modules may say, too",
        adds="that one of so many blocks recomputes",
        samples=(2, 3),
        with_="activation_recompute",
    )
    recompute_blocks: int = declare(
        "so many of each recompute_every blocks recompute, not one (Megatron-LM's --recompute-method block: "
        "recompute_every blocks are those of a chunk, of which --recompute-num-layers recompute); 0: one",
        unit="blocks",
        at_least=0,
        default=0,
        scope=BLOCK | BATCH,
        label="{} blocks of them",
        mark="{} blocks again",
        needs={"activation_recompute": ("full", "attn_only")},
        why="something is recomputed, which recompute_modules may say, too",
        adds="how many blocks recompute of each recompute_every",
        samples=(1,),
        with_="activation_recompute",
    )
