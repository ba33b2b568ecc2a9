"""What models with multi-head latent attention cannot be combined with: each rule names a form that is not modelled."""

from collections.abc import Callable

import numpy as np

from calculon.base.units import Array
from calculon.plan.rules.rule import Requests, Rule, expected


def _of_latents(holds: Callable[[Requests], Array]) -> Callable[[Requests], Array]:
    """Ask only models that have latents, and attention."""

    def asked(r: Requests) -> Array:
        return holds(r) if r.model.latent and r.model.attends else np.array(True)

    return asked


_WHY = "since kv_lora_rank={model.kv_lora_rank}"

LATENT_RULES = (
    Rule(
        "latent_multiquery",
        _of_latents(lambda r: r.plan.is_choice("attention_type", "multihead")),
        expected(
            "attention_type",
            f"multihead, {_WHY}: every query head has a key and a value of its own",
        ),
    ),
    Rule(
        "latent_overlap",
        _of_latents(lambda r: r.plan.is_choice("tensor_par_overlap", "none")),
        expected(
            "tensor_par_overlap", f"none, {_WHY}: projections down gather nothing that could be cut"
        ),
    ),
    Rule(
        "latent_comm",
        _of_latents(lambda r: ~r.plan.is_choice("tensor_par_comm_type", "p2p_rs_ag")),
        expected(
            "tensor_par_comm_type",
            f"ar or rs_ag, {_WHY}: latents are gathered, not what stages send",
        ),
    ),
    Rule(
        "latent_tp_impl",
        _of_latents(lambda r: r.plan.is_choice("tp_impl", "megatron")),
        expected("tp_impl", f"megatron, {_WHY}: projections down are whole on every rank"),
        ("tp_impl",),
    ),
    Rule(
        "latent_operators",
        _of_latents(lambda r: ~r.plan.is_choice("recompute_modules", "ops")),
        expected(
            "recompute_modules",
            f"another than ops, {_WHY}: it is unknown which products of latents are kept",
        ),
        ("recompute_modules",),
    ),
)
"""Requirements of latent attention, in the order of checking."""
