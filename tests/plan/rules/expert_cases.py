"""Executions that break each rule on how experts are spread; changes to a valid one."""

MODEL = {
    "hidden": 6144,
    "feedforward": 24576,
    "seq_size": 2048,
    "attn_heads": 64,
    "attn_size": 96,
    "num_blocks": 12,
    "num_experts": 8,
    "experts_per_token": 2,
}
_EDITION = {"edition": "corrected"}
_SPREAD = _EDITION | {"tensor_par_comm_type": "rs_ag", "coll_algo": "auto", "expert_par": 2}

_LACKING = {
    "expert_par": 2,
    "expert_tensor_par": 2,
    "moe_dispatcher": "allgather",
    "moe_capacity_percent": 125,
}
_PLAIN = {"expert_par": 1, "expert_tensor_par": 0, "moe_dispatcher": "alltoall"}

MALFORMED = {
    **{
        f"{name}_needs_experts": (
            _EDITION | {name: value},
            f"{name}: {_PLAIN.get(name, 0)}, since blocks of model do not have several experts",
        )
        for name, value in _LACKING.items()
    },
    "expert_par_net_used": (
        _EDITION | {"expert_par_net": 1},
        "expert_par_net: 0, since expert_par is 1",
    ),
    "expert_par_net_number": (_SPREAD | {"expert_par_net": 2}, "expert_par_net: numbered 0 to 1"),
    "imbalance_largest": (
        _SPREAD | {"moe_imbalance_percent": 1_000_000},
        "moe_imbalance_percent: at most 100 x expert_par = ",
    ),
    "padding_needs_capacity": (
        _EDITION | {"moe_pad_to_capacity": True},
        "moe_pad_to_capacity: false, unless moe_capacity_percent is above 0",
    ),
    "padding_has_no_imbalance": (
        _SPREAD
        | {
            "moe_pad_to_capacity": True,
            "moe_capacity_percent": 125,
            "moe_imbalance_percent": 130,
        },
        "moe_imbalance_percent: 100, since moe_pad_to_capacity gives every rank the same number of rows",
    ),
    **{
        f"{name}_needs_exchange": (
            _SPREAD | {"moe_dispatcher": "allgather", name: "float8"},
            f"{name}: same, unless expert_par is above 1 and moe_dispatcher is not allgather",
        )
        for name in ("dispatch_dtype", "combine_dtype")
    },
    **{
        f"{name}_narrower": (
            _SPREAD | {name: "bfloat16"},
            f"{name}: same, or a type of fewer bytes",
        )
        for name in ("dispatch_dtype", "combine_dtype")
    },
    "library_needs_ranks": (
        _EDITION | {"moe_dispatcher": "deepep"},
        "moe_dispatcher: alltoall or allgather, since expert_par is 1",
    ),
    "library_needs_whole_experts": (
        _SPREAD | {"moe_dispatcher": "hybridep"},
        "expert_tensor_par: 1 with moe_dispatcher=hybridep, which is modeled for ranks that have whole experts",
        "0",
    ),
    "library_does_not_pad": (
        _SPREAD
        | {
            "expert_tensor_par": 1,
            "moe_dispatcher": "deepep",
            "moe_capacity_percent": 125,
            "moe_pad_to_capacity": True,
        },
        "moe_pad_to_capacity: false with moe_dispatcher=deepep, which sends copies of tokens and no empty rows",
    ),
    "library_needs_ports": (
        _SPREAD | {"expert_tensor_par": 1, "moe_dispatcher": "deepep"},
        "moe_dispatcher: alltoall or allgather on system: libraries of experts need a port to each network",
    ),
    "experts_split": (
        _SPREAD | {"expert_par": 3, "expert_tensor_par": 1},
        "expert_par: a divisor of the model's num_experts=8",
    ),
    "experts_width_inside": (
        _EDITION | {"expert_tensor_par": 3},
        "expert_tensor_par: a divisor of tensor_par=4, or 0 for all of it",
    ),
    "experts_width": (
        _EDITION | {"tensor_par_comm_type": "rs_ag", "expert_tensor_par": 4},
        "expert_tensor_par: a divisor of the model's expert_feedforward=6",
    ),
    "expert_groups": (
        _SPREAD | {"expert_par": 4, "expert_par_net": 1},
        "expert_par: 4 x 4 = 16 divides tensor_par x data_par = 8",
    ),
    "expert_mesh": (
        _SPREAD
        | {
            "num_procs": 24,
            "data_par": 3,
            "batch_size": 36,
            "expert_par": 3,
            "expert_tensor_par": 2,
            "mesh_order": "tp-dp-pp",
        },
        "expert_par: = 6 is a multiple or a divisor of tensor_par=4",
    ),
    "experts_split_sequences": (
        _SPREAD | {"tensor_par_comm_type": "ar"},
        "tensor_par_comm_type: rs_ag, since experts are split differently from other layers (tensor_par=4)",
    ),
}

INFEASIBLE = {
    "expert_network_size": (
        _SPREAD | {"num_procs": 32, "data_par": 4, "expert_par": 4},
        "connects 8 processors, and expert_par=4 x expert_tensor_par=4 needs 16 (8 too many)",
    ),
}

_DENSE = {name: value for name, value in MODEL.items() if "expert" not in name}

SHAPES = {
    **dict.fromkeys((*MALFORMED, *INFEASIBLE), MODEL),
    **{f"{name}_needs_experts": _DENSE for name in _LACKING},
    "expert_mesh": MODEL | {"num_experts": 6},
    "experts_width": MODEL | {"expert_feedforward": 6},
}
"""The models of these cases."""
