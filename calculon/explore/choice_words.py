"""The fields of a plan and their values as the controls name them."""

from collections.abc import Mapping
from typing import Any

from calculon.declarations.axes import AXES
from calculon.documents.setup import COLLECTIVES
from calculon.plan.columns import field_of

LABELS: Mapping[str, str] = {
    **{axis.degree: f"{axis.kind.capitalize()} parallel ({axis.name.upper()})" for axis in AXES},
    "expert_tensor_par": "Ranks of one expert (ETP)",
    "microbatch_size": "Microbatch",
    "pipeline_interleaving": "Chunks per stage",
    "activation_recompute": "Recomputation",
    "recompute_modules": "Recomputed operators",
    "zero_stage": "Sharded by replicas (ZeRO)",
    "optimizer_sharding": "Optimizer sharding",
    "tensor_par_comm_type": "TP collectives",
    "seq_par_ag_redo": "Repeated all-gather",
    "tensor_par_overlap": "TP overlap",
    "tp_user_buffers": "TP user buffers",
    "tp_async": "Asynchronous TP gradients",
    "p2p_overlap": "Pipeline transfers overlapped",
    "data_par_overlap": "DP overlap",
    "overlap_param_gather": "Early all-gather of weights",
    "reshard_after_forward": "Weights dropped after use",
    "weight_offload": "Weights offloaded",
    "activations_offload": "Activations offloaded",
    "optimizer_offload": "Optimizer offloaded",
    "pp_layout": "Layout of stages",
    "pp_schedule": "Pipeline schedule",
    "mesh_order": "Order of ranks",
    "attn_impl": "Attention kernel",
    "ce_impl": "Cross-entropy",
    "fused_activation": "Fused activation",
    "cp_comm": "CP exchange",
    "cp_balance": "CP parts of a sequence",
    "moe_dispatcher": "Dispatch of experts",
    "ep_overlap": "EP overlap",
    "delay_wgrad": "Delayed weight gradients",
    "moe_shared_overlap": "Shared experts overlapped",
}
"""Fields of a plan by the names of their controls."""

_VALUES: Mapping[str, Mapping[Any, str]] = {
    "activation_recompute": {"attn_only": "attention"},
    "tensor_par_comm_type": COLLECTIVES,
    "expert_tensor_par": {0: "as TP"},
}


def label(name: str) -> str:
    """Return the name of a control."""
    return LABELS.get(name, name.replace("_", " "))


def value_words(name: str, value: Any) -> str:
    """Return a value of a field in words.

    >>> value_words("zero_stage", "1"), value_words("p2p_overlap", False), value_words("tensor_par", 1024)
    ('ZeRO-1', 'off', '1,024')
    """
    if value in (known := _VALUES.get(name, {})):
        return known[value]
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return f"{value:,}"
    mark = field_of(name).declaration.mark
    if name == "zero_stage" and isinstance(mark, Mapping):
        return mark.get(value, str(value))
    return str(value).replace("_", " ").replace("+", " + ")


def change_words(name: str, before: Any, after: Any) -> str:
    """Return a change of a field: its name and both values.

    >>> change_words("pipeline_interleaving", 20, 10)
    'Chunks per stage 20 → 10'
    """
    return f"{label(name)} {value_words(name, before)} → {value_words(name, after)}"
