"""Plans and their figures in words."""

from calculon.estimate import Estimate
from calculon.spec.axes import FURTHER_AXES
from calculon.spec.execution import Execution
from calculon.units import GIB, duration


def plan_in_words(execution: Execution) -> str:
    """Write the split of an execution, and what saves memory in it.

    >>> from calculon import inputs
    >>> plan_in_words(inputs.execution("3072_t4_p64_d12_mbs4_full"))
    'TP 4, PP 64, DP 12, microbatch 4, full recomputation, optimizer state split'
    """
    e = execution
    chunks = f" x {e.pipeline_interleaving} chunks" if e.pipeline_interleaving > 1 else ""
    parts = [f"TP {e.tensor_par}", f"PP {e.pipeline_par}{chunks}", f"DP {e.data_par}"]
    parts += [
        f"{axis.name.upper()} {degree}"
        for axis in FURTHER_AXES
        if (degree := getattr(e, axis.degree)) > 1
    ]
    parts.append(f"microbatch {e.microbatch_size}")
    recompute = {"full": "full recomputation", "attn_only": "attention recomputed"}
    parts += [recompute[e.activation_recompute]] if e.activation_recompute in recompute else []
    if e.zero_stage not in ("auto", "0"):
        parts.append("FSDP" if e.zero_stage == "fsdp" else f"ZeRO-{e.zero_stage}")
    elif e.optimizer_sharding:
        parts.append("optimizer state split")
    moved = [what for what, on in _moved(e) if on]
    return ", ".join([*parts, *([f"{' and '.join(moved)} offloaded"] if moved else [])])


def _moved(e: Execution) -> tuple[tuple[str, bool], ...]:
    return (
        ("weights", e.weight_offload),
        ("activations", e.activations_offload),
        ("optimizer state", e.optimizer_offload),
    )


def figures(found: Estimate) -> str:
    """Write the memory that an execution needs and the time of a step, with the digits that its interval leaves."""
    time, belief = found.stats["total_time"] or 0.0, found.belief
    error = 0.0 if belief is None else (belief.high - belief.low) / 2
    memory = gib(found.stats["proc_mem_tier1_cap_req"] or 0.0)
    return f"{memory}, {duration(time, error)} a step"


def gib(size: float) -> str:
    """Write a size with a decimal; one that is smaller with more, so that nothing that counts reads as 0."""
    gib = size / GIB
    return f"{gib:,.1f} GiB" if gib >= 0.1 else f"{gib:,.2g} GiB"
