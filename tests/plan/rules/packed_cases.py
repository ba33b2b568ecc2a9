"""Executions that break each rule on packed sequences; changes to a valid one."""

_EDITION = {"edition": "corrected"}
_PACKED = _EDITION | {"attn_impl": "flash", "packed_percent": 40}
_PARTS = {"context_par": 2, "num_procs": 32, "cp_comm": "all_gather"}

_MOST = "pack_imbalance_percent: expected at most 100 x 100 / packed_percent"
MORE = (
    (_PACKED | _PARTS | {"pack_imbalance_percent": 376}, f"{_MOST} x (2 x 2 - 1) / 2 = 375,"),
    (
        _PACKED | _PARTS | {"cp_comm": "p2p", "pack_imbalance_percent": 251},
        f"{_MOST} = 250,",
    ),
)
"""Further executions that have too large an imbalance, with what is expected."""

MALFORMED = {
    "packed_needs_flash": (
        _PACKED | {"attn_impl": "eager"},
        "packed_percent: 100, unless attn_impl is flash",
    ),
    "pack_imbalance_needs_documents": (
        _PACKED | {"packed_percent": 100, "pack_imbalance_percent": 130},
        "pack_imbalance_percent: 100, unless packed_percent is below 100",
    ),
    "pack_imbalance_largest": (
        _PACKED | {"pack_imbalance_percent": 251},
        "pack_imbalance_percent: at most 100 x 100 / packed_percent = 250, for a slowest rank with "
        "one document per sequence",
    ),
    "packed_needs_attention": (
        _PACKED,
        "packed_percent: 100, since model has no attention with softmax",
    ),
}
