"""Executions that break the rules of linear attention, and of blocks that are parts: of 4 tensor-parallel ranks."""

from typing import Any

CORRECTED = {"edition": "corrected"}

MALFORMED = {
    "linear_heads_split": (CORRECTED, "tensor_par: a divisor of the model's ssm_heads=6"),
    "linear_groups_split": (
        CORRECTED,
        "tensor_par: a divisor or a multiple of the model's ssm_groups=3",
    ),
    "cp_linear": (
        CORRECTED | {"num_procs": 32, "context_par": 2},
        "context_par: such that tensor_par x context_par divides linear_key_heads=4",
    ),
    "pattern_comm": (
        CORRECTED | {"tensor_par_comm_type": "p2p_rs_ag"},
        "tensor_par_comm_type: ar or rs_ag, since blocks of model are parts",
    ),
    "pattern_ep_overlap": (
        CORRECTED | {"expert_par": 2, "tensor_par_comm_type": "rs_ag", "ep_overlap": "two_batch"},
        "ep_overlap: none, since blocks of model are partial",
    ),
}

SHAPES: dict[str, dict[str, Any]] = {
    "linear_heads_split": {"linear_attention": "mamba2", "ssm_heads": 6, "ssm_groups": 2},
    "linear_groups_split": {"linear_attention": "mamba2", "ssm_heads": 24, "ssm_groups": 3},
    "cp_linear": {
        "linear_attention": "gated_delta",
        "linear_key_heads": 4,
        "linear_value_heads": 8,
    },
    "pattern_comm": {"layer_pattern": "*-" * 6},
    "pattern_ep_overlap": {"layer_pattern": "*E" * 6, "num_experts": 8, "experts_per_token": 2},
}
"""What their models have beside others."""
