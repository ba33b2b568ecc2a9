"""Executions that break the rules of context parallelism, on 16 ranks: two stages, two replicas, four parts."""

SPLIT = {
    "edition": "corrected",
    "attn_impl": "flash",
    "tensor_par": 1,
    "context_par": 4,
}
WHOLE = {"edition": "corrected"}
BY_HEADS = SPLIT | {"cp_comm": "a2a"}

MALFORMED = {
    "context_par_net_used": (
        WHOLE | {"context_par_net": 1},
        "context_par_net: 0, since context_par is 1",
    ),
    "context_par_net_number": (
        SPLIT | {"context_par_net": 7},
        "context_par_net: one of the 2 networks",
    ),
    "cp_comm_needs_parts": (
        WHOLE | {"cp_comm": "all_gather"},
        "cp_comm: p2p, since context_par is 1: nothing is exchanged",
    ),
    "cp_a2a_size_needs_exchange": (
        BY_HEADS | {"cp_a2a_size": 2},
        "cp_a2a_size: 0, since cp_comm is a2a",
    ),
    "cp_kv_replicate_needs_exchange": (
        SPLIT | {"cp_kv_replicate": True},
        "cp_kv_replicate: false, since cp_comm is p2p",
    ),
    "cp_balance_needs_exchange": (
        BY_HEADS | {"cp_balance": "contiguous"},
        "cp_balance: zigzag, since cp_comm is a2a",
    ),
    "cp_skip_needs_exchange": (WHOLE | {"cp_skip": True}, "cp_skip: false, since context_par is 1"),
    "cp_skip_window": (
        SPLIT | {"cp_skip": True},
        "cp_skip: false, since every part has keys that some query attends to",
    ),
    "cp_sequence": (
        SPLIT | {"seq_length": 2052},
        "context_par: such that 2 x context_par divides seq_length=2052",
    ),
    "cp_heads": (
        BY_HEADS | {"num_procs": 32, "context_par": 8},
        "context_par: such that tensor_par x context_par divides the model's attn_heads=12",
    ),
    "cp_a2a_inner": (
        SPLIT | {"cp_comm": "a2a_p2p", "cp_a2a_size": 3},
        "cp_a2a_size: a divisor of context_par=4",
    ),
    "cp_kv_heads": (
        BY_HEADS,
        "context_par: such that tensor_par x context_par divides the 2 key and value heads",
    ),
    "cp_kv_copies": (
        BY_HEADS | {"cp_kv_replicate": True},
        "cp_kv_replicate: false, since there are key and value heads for every rank",
    ),
    "cp_kept_heads": (
        BY_HEADS | {"recompute_modules": "ops"},
        "recompute_modules: without ops and mla_up_proj with cp_comm: a2a",
    ),
    "cp_fused_attention": (
        SPLIT | {"attn_impl": "eager"},
        "attn_impl: flash, since cp_comm: p2p combines results for parts of the keys",
    ),
}

SHAPES = {"cp_kv_heads": {"kv_heads": 2}, "cp_heads": {"attn_heads": 12}}
"""What the models of cases have beside others."""

INFEASIBLE = {
    "cp_network_size": (
        SPLIT | {"num_procs": 32, "data_par": 4},
        "network 1 of system is too small: it connects 8 processors, and context_par=4 x data_par=4, which have "
        "the same weights, needs 16 (8 too many)",
    ),
}

SIZES = {"cp_network_size": 8}
"""Processors that the outer network of systems of cases connects."""
