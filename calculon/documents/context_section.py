"""Context parallelism of a result: tokens per processor, exchange of keys and values, and its time."""

from collections.abc import Mapping, Sequence
from typing import Any

from calculon.base.units import scaled
from calculon.declarations.axes import AXIS
from calculon.documents.result import Result, seq_length
from calculon.render.digits import Digits
from calculon.render.document import Block, Grid, Section, dim, headed, labeled
from calculon.render.texts import counted

Exchange = Mapping[str, Any]
"""Exchange as plain data, as in :func:`calculon.estimate.operators.context_exchange`."""

_PARTS = {
    "zigzag": "a part from the front of every sequence and its mirror image from the end (zigzag)",
    "contiguous": "one part of every sequence (contiguous)",
    "striped": "one in {} tokens of every sequence (striped)",
}
_WAYS = {
    "p2p": "ring (p2p): keys and values are passed around",
    "all_gather": "all-gather: every processor gathers the keys and values of whole sequences",
    "a2a": "all-to-all over heads (a2a): every processor has whole sequences for its share of the heads",
    "a2a_p2p": "all-to-all over heads among {} neighbors, and a ring between these groups (a2a_p2p)",
}
_LINEAR = "all-to-all over heads"
"""Exchange of the states of linear attention."""

_SENT = {
    "KV_Ring": "keys and values",
    "KV_Gather": "keys and values",
    "KV_Regather": "keys and values again",
    "Heads_In": "tokens for heads",
    "Heads_Out": "heads for tokens",
}
_GRADIENTS = {"KV_Ring": "keys, values, gradients", "KV_Gather": "gradients of these"}
"""Contents of messages of the backward pass, if they differ."""

_PASSES = {"forward": "forward", "activation_grad": "backward", "recompute": "again"}

EVEN = 1.005
"""Ratio of the busiest processor's attention to the mean up to which attention counts as balanced."""


def context_lines(result: Result) -> dict[str, str]:
    """Describe the split of sequences, one line per aspect; empty if there is no context parallelism, or if unknown."""
    execution, exchange = result.execution, result.context_exchange
    if execution is None or result.inputs is None or not exchange:
        return {}
    return {
        "split": _split(execution, exchange),
        "exchange": _way(execution, exchange, result.digits),
        "memory": _memory(exchange),
        "sent": _sent(result),
    }


def context_section(result: Result, *, table: bool = True) -> Section | None:
    """Return the context parallelism of a result: lines, and a table of the messages of a block."""
    lines, exchange = context_lines(result), result.context_exchange
    if not lines or not exchange or result.inputs is None or result.execution is None:
        return None
    length = seq_length(result.inputs, result.execution)
    part = length // result.execution[AXIS["cp"].degree]
    blocks: list[Block] = [labeled(lines)]
    if table and exchange["sent"]:
        counts = {row["blocks"] for row in exchange["sent"]}
        block = f"one of {counted(counts.pop(), 'block')}" if len(counts) == 1 else "one block"
        of = f"{block}, one microbatch: bytes sent by a processor, and their time"
        blocks += (_table(exchange["sent"], result.digits), dim(of))
    remark = f"{part:,} of the {length:,} tokens of a sequence on each processor"
    return Section("Context", tuple(blocks), remark)


def _split(execution: Mapping[str, Any], exchange: Exchange) -> str:
    """Return the tokens of a processor, and the load balance of attention."""
    degree, balance = execution["context_par"], execution["cp_balance"]
    text = f"CP {degree:,}: each processor has "
    # After the all-to-all, every rank has whole sequences for its heads: causal masks do not unbalance it.
    if execution["cp_comm"] == "a2a":
        return text + "one part of every sequence, and attention is balanced"
    text += _PARTS[balance].format(degree)
    load = exchange["imbalance"]
    if load < EVEN:
        return f"{text}; attention is balanced"
    return f"{text}; the others wait for the busiest, with {load:.2f} times the mean attention"


def _way(execution: Mapping[str, Any], exchange: Exchange, digits: Digits) -> str:
    """Return the exchange of keys and values, and the attention time that hides a ring."""
    kinds = [row["name"].startswith("AttnBlock_") for row in exchange["sent"]]
    if not any(kinds):
        return f"{_LINEAR} (linear attention)"
    text = _WAYS[execution["cp_comm"]].format(execution["cp_a2a_size"])
    if ring := exchange.get("ring"):
        transfer, attention = (
            digits.duration(ring[name], max(ring.values())) for name in ("transfer", "attention")
        )
        # A ring of n ranks has n steps of attention but only n - 1 transfers: the first part is local.
        count = ring["steps"] - 1
        if count == 1:
            times = f"one transfer of {transfer}"
        else:
            # Skipped parts make the mean number of transfers fractional.
            number = f"{count:,.0f}" if count == round(count) else f"{count:,.1f}"
            times = f"{number} transfers of {transfer} each"
        text += f"; {times}, overlapping {attention} of attention (forward)"
    return text if all(kinds) else f"{text}. Blocks with linear attention: {_LINEAR}"


def _memory(exchange: Exchange) -> str:
    """Return the memory for keys and values of other processors in a block."""
    there = {row["name"]: row["message"] for row in exchange["sent"] if row["pass"] == "forward"}
    if ring := exchange.get("ring"):
        part = scaled(there["AttnBlock_KV_Ring"] / (ring["steps"] - 1), "B", binary=True, digits=1)
        # One part is computed on while the next one arrives.
        return f"two parts of keys and values of {part} at a time, in the running block"
    if gathered := there.get("AttnBlock_KV_Gather"):
        size = scaled(gathered, "B", binary=True, digits=1)
        return f"{size} of keys and values of whole sequences, in the running block"
    return ""


def _sent(result: Result) -> str:
    """Return the bytes that a processor sends per step for context parallelism, and their time."""
    digits = result.digits
    link, out = (result.value(f"cp_comm_{name}_time") for name in ("link", "exposed"))
    share = digits.share(out / result.value("total_time"))
    moved = sum(
        place["bytes"]
        for group in result.groups
        if group["kind"] == AXIS["cp"].kind
        for place in group["networks"]
    )
    text = f"{scaled(moved, 'B', digits=1)} per processor and step: " if moved else ""
    return f"{text}{digits.duration(link)} on the link, {digits.duration(out)} exposed, {share} of the time"


def _table(sent: Sequence[Mapping[str, Any]], digits: Digits) -> Grid:
    """Return the messages of a block and their times, pass by pass."""
    several = len({row["blocks"] for row in sent}) > 1
    titles = ("", "", "sent", "on link", "exposed", *["blocks"] * several)
    rows = []
    longest = max(row["time"] for row in sent)
    before = ""
    for row in sent:
        words = _words(row)
        times = digits.seconds([row["time"], row["exposed"]], longest)
        moved = scaled(row["moved"], "B", binary=True, digits=1)
        # Repeated words of several passes are left blank.
        what = words if words != before else ""
        count = [f"{row['blocks']:,}"] * several
        rows.append((what, _PASSES[row["pass"]], moved, *times, *count))
        before = words
    return headed(("left", "left", *["right"] * (len(titles) - 2)), titles, rows)


def _words(row: Mapping[str, Any]) -> str:
    """Return the content of a message, marked if it belongs to linear attention."""
    kind, _, name = row["name"].partition("_")
    words = _SENT[name]
    if row["pass"] == "activation_grad":
        words = _GRADIENTS.get(name, words)
    return words if kind == "AttnBlock" else f"{words} (linear)"
