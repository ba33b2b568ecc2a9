"""Executions that break each rule on what hides the exchange of experts; changes to a valid one."""

from tests.plan.rules.expert_cases import MODEL

_WITHOUT = {"edition": "corrected", "coll_algo": "auto"}
_WITHOUT |= {"tensor_par_comm_type": "rs_ag"}
_SPREAD = _WITHOUT | {"expert_par": 2}
PAIRED = _SPREAD | {"ep_overlap": "1f1b", "pipeline_interleaving": 2}

MALFORMED = {
    "ep_overlap_needs_exchange": (
        _SPREAD | {"ep_overlap": "two_batch", "moe_dispatcher": "allgather"},
        "ep_overlap: none, unless expert_par is above 1 and moe_dispatcher is not allgather",
    ),
    "shared_overlap_needs_exchange": (
        _WITHOUT | {"moe_shared_overlap": True},
        "moe_shared_overlap: false, unless expert_par is above 1",
    ),
    "shared_overlap_needs_experts": (
        _SPREAD | {"moe_shared_overlap": True},
        "moe_shared_overlap: false, since model has no shared experts",
    ),
    "shared_overlap_alone": (
        PAIRED | {"moe_shared_overlap": True},
        "moe_shared_overlap: false with ep_overlap=1f1b",
    ),
    "shared_overlap_stores": (
        _SPREAD | {"moe_shared_overlap": True, "recompute_modules": "shared_experts"},
        "moe_shared_overlap: false with recompute_modules=shared_experts",
    ),
    "shared_overlap_latents": (
        _SPREAD | {"moe_shared_overlap": True},
        "moe_shared_overlap: false, since moe_latent=512: latents are made between router and dispatch",
    ),
    "pairs_predict": (PAIRED, "ep_overlap: none, since model has mtp_layers=2"),
    "delay_needs_pairs": (
        _SPREAD | {"delay_wgrad": True},
        "delay_wgrad: false, unless ep_overlap is 1f1b",
    ),
    "halves_of_microbatch": (
        _SPREAD | {"ep_overlap": "two_batch", "microbatch_size": 1},
        "ep_overlap: none or 1f1b with microbatch_size=1, which has no two halves",
    ),
    "halves_split": (
        _SPREAD | {"ep_overlap": "two_batch", "seq_length": 2046, "microbatch_size": 2},
        "ep_overlap: none or 1f1b, since tokens of half a microbatch are no multiple of tensor_par=4",
    ),
    "pairs_train": (
        PAIRED | {"training": False},
        "ep_overlap: none, since inference has no backward passes",
    ),
    "pairs_datatype": (PAIRED | {"datatype": "float32"}, "ep_overlap: none with datatype=float32"),
    "pairs_store": (
        PAIRED | {"activation_recompute": "full"},
        "ep_overlap: none with activation_recompute=full",
    ),
    "pairs_schedule": (
        PAIRED | {"pipeline_interleaving": 1},
        "ep_overlap: none, unless pipeline_par is 1 or pipeline_interleaving above 1",
    ),
    "schedule_has_pairs": (
        PAIRED | {"pp_schedule": "dualpipev", "ep_overlap": "none"},
        "ep_overlap: 1f1b with pp_schedule=dualpipev, whose pairs of passes hide the exchange of experts",
    ),
    "pairs_stay": (
        PAIRED | {"activations_offload": True},
        "ep_overlap: none with offloaded weights or activations",
    ),
    "pairs_synchronize_once": (
        PAIRED | {"zero_stage": "2", "optimizer_sharding": True},
        "ep_overlap: none with zero_stage=2",
    ),
    "pairs_need_microbatches": (
        PAIRED | {"batch_size": 8},
        "ep_overlap: none, since there are too few microbatches to pair their passes",
    ),
}

_SHARING = MODEL | {"shared_feedforward": 8192}
SHAPES = dict.fromkeys(MALFORMED, MODEL) | {
    "shared_overlap_latents": MODEL | {"shared_feedforward": 1024, "moe_latent": 512},
    "shared_overlap_alone": _SHARING,
    "shared_overlap_needs_exchange": _SHARING,
    "shared_overlap_stores": _SHARING,
    "pairs_predict": MODEL | {"vocab": 1000, "mtp_layers": 2},
}
