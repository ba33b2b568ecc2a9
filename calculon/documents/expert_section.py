"""Expert parallelism of a result: placement, rows and traffic of experts, their memory, and the time of a block."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from calculon.base.units import scaled
from calculon.declarations.plan_words import expert_replicas, expert_width
from calculon.documents.result import Result
from calculon.render.bars import Bar, Share
from calculon.render.digits import Digits
from calculon.render.document import Block, Cell, Grid, Legend, Section, bold, dim, headed, labeled
from calculon.render.texts import counted

FEW_ROWS = 256
"""Rows per expert below which reading its weights takes longer than its arithmetic on most processors."""

_FEW = f"below {FEW_ROWS}: reading weights takes longer than multiplying"

TIGHT = 1.1
"""Ratio of the busiest processor's rows to the mean; a plan without memory for it counts as tight."""

Parts = Sequence[Mapping[str, Any]]
"""Parts of a block with experts, as in :func:`calculon.estimate.operators.expert_parts`."""


def rows_text(model: Mapping[str, Any], execution: Mapping[str, Any], tokens: int) -> str:
    """Return the rows per expert of a microbatch; empty for a model without routing.

    Args:
        model, execution: The fields of a model and of an execution.
        tokens: Tokens of a microbatch, summed over ranks of tensor and context parallelism.
    """
    experts = model.get("num_experts", 0)
    if experts < 2 or model.get("part", "block") not in ("block", "mlp"):
        return ""
    ranks = execution.get("expert_par", 1) * expert_width(execution)
    split = execution["tensor_par"] * execution.get("context_par", 1)
    # Tokens are spread over TP x CP ranks, and a group of EP x ETP ranks pools them for its experts.
    rows = tokens * model.get("experts_per_token", 1) / experts * ranks / split
    held = experts // execution.get("expert_par", 1)
    text = f"{held:,} of {experts:,} experts on each processor, {_count(rows)} rows for each per microbatch"
    return text + (f" ({_FEW})" if rows < FEW_ROWS else "")


def expert_lines(result: Result) -> dict[str, str]:
    """Describe the experts of a result, one line per aspect; empty if it has none, or if they are unknown."""
    execution, inputs = result.execution, result.inputs
    if execution is None or inputs is None or not result.value("expert_weight_space"):
        return {}
    return {
        "spread": _spread(execution),
        "rows": _rows(result, inputs.model, execution),
        "sent": _sent(result, execution),
        "memory": _memory(result),
        "headroom": _headroom(result.imbalance_headroom, execution),
    }


def experts_section(result: Result, *, table: bool = False) -> Section | None:
    """Return the experts of a result: lines, and the time of a block with experts, as a table or as one more line."""
    lines = expert_lines(result)
    if not lines or result.inputs is None:
        return None
    of_block = result.expert_parts or {}
    experts, parts = result.inputs.model["num_experts"], of_block.get("parts")
    held = experts // (result.execution or {}).get("expert_par", 1)
    blocks: list[Block] = []
    if parts and table:
        of = f"one of {counted(of_block['blocks'], 'block')} with experts, one microbatch"
        note = dim(f"{of}, all passes; communication before overlap")
        blocks = [experts_table(parts, result.digits), note]
    elif parts:
        lines["time"] = _shares(parts, result.digits)
    remark = f"{held:,} of {experts:,} on each processor"
    return Section("Experts", (labeled(lines), *blocks), remark)


def experts_table(parts: Parts, digits: Digits) -> Grid:
    """Return the time of the parts of a block with experts: computation and communication."""
    whole = sum(map(_together, parts))
    longest = max(map(_together, parts))
    titles = ("", "computing", "sending", "share", Legend("{} computing {} sending"))
    rows: list[tuple[Cell, ...]] = []
    for one in parts:
        pieces = (
            Share(one["computing"] / longest, "blue"),
            Share(one["sending"] / longest, "vermilion", solid=False),
        )
        # Computation is solid and communication hatched, for readers who cannot see colors.
        rows.append((one["part"], *_texts(one, whole, digits), Bar(pieces)))
    sums = {name: sum(one[name] for one in parts) for name in ("computing", "sending")}
    rows.append((*map(bold, ("together", *_texts(sums, whole, digits))),))
    kinds = ("left", "right", "right", "right", "wide")
    return headed(kinds, titles, rows, least=(16,))


def _texts(one: Mapping[str, float], whole: float, digits: Digits) -> Iterator[str]:
    """Yield both times and their share of the total; a dash means exactly 0."""
    times = (one["computing"], one["sending"])
    texts = digits.seconds(times, whole)
    yield from (text if time else "-" for text, time in zip(texts, times, strict=True))
    yield digits.share(_together(one) / whole)


def _together(one: Mapping[str, float]) -> float:
    return one["computing"] + one["sending"]


def _shares(parts: Parts, digits: Digits) -> str:
    """Return the parts of a block in one line, longest first."""
    whole = sum(map(_together, parts))
    ordered = sorted(parts, key=_together, reverse=True)
    shares = (f"{one['part']} {digits.share(_together(one) / whole)}" for one in ordered)
    return f"{', '.join(shares)} of a block with experts, before overlap"


def _spread(execution: Mapping[str, Any]) -> str:
    """Return the ranks that experts are spread over, and the number of replicas."""
    experts, width, replicas = (
        execution.get("expert_par", 1),
        expert_width(execution),
        expert_replicas(execution),
    )
    ranks = experts * width
    over = f"over {ranks:,} processors" if ranks > 1 else "all on each processor"
    split = f"each split over {width:,}" if width > 1 else "each whole"
    text = f"EP {experts:,} x ETP {width:,} x EDP {replicas:,}: {over}, {split}, {counted(replicas, 'replica')}"
    # Other ranks replicate their layers over DP x CP; only experts without replicas need no gradient reduction.
    same = execution["data_par"] * execution.get("context_par", 1)
    if replicas == 1 < same and execution["training"]:
        text += ": no gradients to reduce, no state to shard"
    return text


def _rows(result: Result, model: Mapping[str, Any], execution: Mapping[str, Any]) -> str:
    """Return the rows per expert on the busiest processor, for one microbatch."""
    if model["num_experts"] == 1:
        return ""
    rows = result.value("expert_rows") / (model["num_experts"] // execution.get("expert_par", 1))
    text = f"{_count(rows)} per expert, block and microbatch"
    notes = [_FEW] if rows < FEW_ROWS else []
    if (percent := execution.get("moe_imbalance_percent", 100)) > 100:
        notes.append(f"on the busiest processor, with {percent} % of the mean")
    if dropped := result.value("dropped_fraction"):
        notes.append(f"{result.digits.share(dropped)} of the rows dropped")
    return "; ".join([text, *notes])


def _sent(result: Result, execution: Mapping[str, Any]) -> str:
    """Return the bytes that a processor sends for experts per step, by network, and their time."""
    near, far = result.value("ep_scale_up_bytes"), result.value("ep_nic_bytes")
    if not near and not far:
        return ""
    digits, link = result.digits, result.value("ep_comm_link_time")
    out = result.value("ep_comm_exposed_time")
    share = digits.share(out / result.value("total_time"))
    return (
        f"{_bytes(near)} within the node and {_bytes(far)} to other nodes, per processor and step "
        f"({execution['moe_dispatcher']}): {digits.duration(link)} on the link, {digits.duration(out)} exposed, "
        f"{share} of the time"
    )


def _count(rows: float) -> str:
    """Write a mean number of rows.

    >>> _count(16384.0), _count(2.5)
    ('16,384', '2.5')
    """
    return f"{rows:,.0f}" if rows >= 100 else f"{rows:.3g}"


def _bytes(size: float) -> str:
    return scaled(size, "B", digits=1) if size else "nothing"


def _headroom(load: float | None, execution: Mapping[str, Any]) -> str:
    """Return the load imbalance for which memory suffices."""
    if load is None:
        return ""
    # A group of EP ranks has EP times the mean rows in all, which bounds any imbalance.
    if load >= execution.get("expert_par", 1):
        return "memory suffices even if one processor of a group gets all rows"
    capacity = execution.get("moe_capacity_percent", 0) / 100
    if capacity and load >= capacity:
        return f"memory suffices up to the capacity, {100 * capacity:.0f} % of the mean rows"
    text = f"the busiest processor gets at most {100 * load:.0f} % of the mean rows"
    if load < TIGHT:
        return f"tight: memory suffices only while {text}, less than 110 %"
    return f"memory suffices while {text}"


def _memory(result: Result) -> str:
    """Return the memory of experts: weights, optimizer state and dispatched rows."""
    gib = result.digits.gib
    parts = [
        f"{gib(result.value(f'expert_{name}_space'))} of the {gib(whole)} of {words}"
        for name, words in (("weight", "weights"), ("optimizer", "optimizer state"))
        if (whole := result.value(f"{name}_space"))
    ]
    if there := result.value("dispatch_space"):
        parts.append(f"{gib(there)} of rows before and after dispatch")
    return ", ".join(parts)
