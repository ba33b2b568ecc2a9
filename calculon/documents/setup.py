"""Question of a result in words: the top of its page."""

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any

from calculon.base.units import between, scaled
from calculon.declarations.axes import FURTHER_DEGREES
from calculon.declarations.plan_words import (
    OFFLOADED,
    SWITCHED_ON,
    expert_replicas,
    expert_width,
    spreads_experts,
)
from calculon.declarations.recipes import NO_RECIPE, RECIPES
from calculon.documents.confidence import risk_words
from calculon.documents.model_details import details
from calculon.documents.result import Result, seq_length
from calculon.estimate.graph_step import MIN_GAIN
from calculon.plan.columns import FIELDS, field_of
from calculon.render.document import ByWidth, Cell, Grid, Line, Section, SideBySide, bold, dim
from calculon.render.texts import bandwidth, capacity, counted, level_text

_RECOMPUTE = {"full": "full recomputation", "attn_only": "attention recomputation"}
_COLLECTIVES = field_of("tensor_par_comm_type").declaration.words
_EFFICIENCIES = {"compute": "of the peak", "system": "of the time", "total": "(product)"}

_SCALES = {
    "delayed": "one factor per tensor, from earlier steps",
    "tensorwise": "one factor per tensor",
    "blockwise": "a factor per 128 values, for weights per 128 x 128",
    "mxfp8": "a factor per 32 values",
    "nvfp4": "a factor per 16 values, and one per tensor",
    "nvfp4_plain": "a factor per 16 values, and one per tensor",
}
"""Scaling factors of operands, by recipe."""

_KEPT = "weights, norms, attention, residual stream, router, embedding, head, gradients and optimizer keep their types"

NARROW = 78
"""Width below which key figures are in one column."""

NARROW_WITH_INTERVAL = 100
"""Width below which key figures with intervals are in one column."""

_LONGEST = "tokens/s per processor"

Row = tuple[Cell, ...]
"""Cells of a row of a grid."""


def _arithmetic(execution: Mapping[str, Any]) -> str:
    """Return the data type of matrix arithmetic."""
    matmul: str = execution.get("matmul_dtype", "same")
    datatype: str = execution["datatype"]
    recipe: str = execution.get("fp8_recipe", NO_RECIPE)
    if recipe != NO_RECIPE:
        return f"{RECIPES[recipe].product} by recipe {recipe}, {datatype} stored"
    return datatype if matmul == "same" else f"{matmul}, {datatype} stored"


def setup_texts(result: Result) -> dict[str, str]:
    """Describe model, processors, split, batch and options in a line each; lines may be empty."""
    inputs, execution = result.inputs, result.execution
    if execution is None:
        return {"question": "unknown: the file contains statistics only"}
    replicas, micro = execution["data_par"], execution["microbatch_size"]
    batch = execution["batch_size"]
    texts = {
        "split": f"{_degrees(execution)}{_experts(execution)}{_stages(result)}",
        "batch": f"{counted(batch, 'sequence')} = {counted(replicas, 'replica')} x "
        f"{counted(batch // replicas // micro, 'microbatch')} of {micro:,}",
        "recipe": _recipe(execution),
        "options": ", ".join(options(execution)) or "none",
    }
    if inputs is None:
        return {"question": "model and system are unknown: give --model and --system"} | texts
    model, machine = inputs.model, inputs.machine
    tier1, tier2 = (
        f"{capacity(size)} at {bandwidth(rate)}"
        for size, rate in zip(machine.capacities, machine.bandwidths, strict=True)
    )
    active = f" ({scaled(inputs.active)} active)" if inputs.active else ""
    if inputs.modules:
        active += f" and {scaled(inputs.modules)} of multi-token prediction"
    return {
        "model": f"{scaled(inputs.parameters)} parameters{active}: {counted(model['num_blocks'], 'block')}, "
        f"hidden {model['hidden']:,}, {_widths(model)}"
        f"sequences of {seq_length(inputs, execution):,}",
        "details": ", ".join(details(model)),
        "processor": f"{machine.peak / 1e12:,g} TFLOP/s {_arithmetic(execution)}, {tier1}"
        + (f" + {tier2}" if machine.capacities[1] else ""),
        **texts,
    }


def _degrees(execution: Mapping[str, Any]) -> str:
    """Write the degrees whose product is the number of processors; a context parallelism of 1 is left out."""
    degrees = {
        "TP": execution["tensor_par"],
        "CP": execution.get("context_par", 1),
        "PP": execution["pipeline_par"],
        "DP": execution["data_par"],
    }
    shown = (f"{name} {n:,}" for name, n in degrees.items() if n > 1 or name != "CP")
    return " x ".join(shown)


def _recipe(execution: Mapping[str, Any]) -> str:
    """Return the data types of a low-precision recipe; empty without one."""
    name = execution.get("fp8_recipe", NO_RECIPE)
    if name == NO_RECIPE:
        return ""
    bits = "4 bits" if RECIPES[name].product == "float4" else "8 bits"
    kept = _KEPT
    if execution.get("fp8_attention"):
        kept = kept.replace("attention, ", "")
    if execution.get("fp8_param_gather"):
        kept = f"{kept.removeprefix('weights, ')}, and weights are kept and gathered in 8 bits"
    operands = f"operands of the products of blocks are in {bits}, with {_SCALES[name]}"
    if execution.get("fp8_attention"):
        operands += "; operands of attention are in 8 bits"
    return f"{name}: {operands}; {kept}; MFU is relative to the peak in {RECIPES[name].product}"


def _experts(execution: Mapping[str, Any]) -> str:
    """Return the split of experts, if it differs."""
    if not spreads_experts(execution):
        return ""
    degrees = execution.get("expert_par", 1), expert_width(execution), expert_replicas(execution)
    return " (experts EP {:,} x ETP {:,} x EDP {:,})".format(*degrees)


def _stages(result: Result) -> str:
    """Return the blocks of the stages, and their chunks, if the model is known."""
    if result.inputs is None or result.execution is None:
        return ""
    chunks = result.execution["pipeline_interleaving"]
    folded = "parts" in result.stages[0] if result.stages else False
    counts = [int(stage["blocks"]) for stage in result.stages or ()]
    if len(set(counts)) > 1:
        alike = ((blocks, len(list(several))) for blocks, several in groupby(counts))
        parts = [f"{n} x {blocks}" if n > 1 else str(blocks) for blocks, n in alike]
        stages = f"{' + '.join(parts)} blocks in {'ranks' if folded else 'stages'}"
    else:
        blocks = -(-int(result.inputs.model["num_blocks"]) // result.execution["pipeline_par"])
        each = counts[0] if counts else blocks
        stages = f"{counted(each, 'block')} per {'rank' if folded else 'stage'}"
    if folded:
        return f", {stages}, which holds two parts of the model"
    stages += f" in {chunks} chunks" if chunks > 1 else ""
    apart = [stage["stage"] for stage in result.stages or () if stage.get("modules")]
    return f", {stages}" + "".join(f", MTP modules on stage {number}" for number in apart)


def _widths(model: Mapping[str, Any]) -> str:
    """Return the widths of the parts of a block: MLP, attention."""
    part = model.get("part", "block")
    inner = model.get("expert_feedforward") or model["feedforward"]
    mixed = f"{counted(model.get('num_experts', 0), 'expert')} of {inner:,}, "
    dense = f"feedforward {model['feedforward']:,}, "
    if not model.get("num_experts"):
        mlp = dense
    else:
        mlp = dense + mixed if {"first_k_dense", "moe_layer_freq"} & model.keys() else mixed
    mlp = mlp if part in ("block", "mlp") else ""
    heads = f"{counted(model['attn_heads'], 'head')} of {model['attn_size']}, "
    return mlp + (heads if part in ("block", "attention") else "")


def options(execution: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options of an execution in words."""
    if execution["activation_recompute"] in _RECOMPUTE:
        yield _RECOMPUTE[execution["activation_recompute"]]
    if execution["tensor_par"] > 1:
        reduced = execution["tensor_par_comm_type"] == "ar"
        if not reduced or execution.get("tp_impl", "megatron") == "megatron":
            yield _COLLECTIVES[execution["tensor_par_comm_type"]]
        if execution["tensor_par_overlap"] != "none":
            yield f"TP overlap ({execution['tensor_par_overlap']})"
    if execution["attention_type"] != "multihead":
        yield f"{execution['attention_type']} attention"
    yield from (words for field, words in SWITCHED_ON.items() if execution[field])
    yield from (
        field.declaration.label.format(execution[field.name])
        for field in FIELDS
        if field.declaration.label
        and field.name not in FURTHER_DEGREES  # in the line of the split
        and execution.get(field.name, field.default) != field.default
    )
    if offloaded := [words for field, words in OFFLOADED.items() if execution[field]]:
        yield "offloading of " + " and ".join(
            (", ".join(offloaded[:-1]), offloaded[-1])
        ).removeprefix(" and ")


def key_figures(result: Result) -> Section:
    """Return the key figures: speed on the left, efficiency on the right or below."""
    shares: tuple[Row, ...] = tuple(
        (
            f"{word} efficiency",
            bold(result.digits.efficiency(result.value(f"{word}_efficiency"))),
            dim(meaning),
        )
        for word, meaning in _EFFICIENCIES.items()
    )
    kinds = ("left", "right", "text")
    narrow: tuple[Grid, ...]
    if result.interval is None:
        width = NARROW
        speed = Grid(kinds[:2], tuple(_speeds(result)))
        narrow = (speed, Grid(kinds, shares, least=(len(_LONGEST),)))
        right = Grid(kinds, shares)
    else:
        width = NARROW_WITH_INTERVAL
        rows = (interval_heads(result.interval), *speed_rows(result))
        speed = Grid(kinds, rows, heads=1)
        narrow = (Grid(kinds, (*rows, *shares), heads=1),)
        right = Grid(kinds, ((), *shares))  # an empty row, opposite the column titles of the speeds
    wide = SideBySide(((speed,), (right,)), width, equal=False)
    return Section("", (ByWidth(width, (wide,), narrow),))


IN_SHORT = ("time per iteration", "MFU", _LONGEST)
"""Figures of a short page, by prefix of their labels."""


def short_figures(result: Result) -> Grid:
    """Return the figures of a short page, with intervals: time, MFU, tokens/s per processor, memory and risk."""
    rows = [row for row in speed_rows(result) if str(row[0]).startswith(IN_SHORT)]
    heads = interval_heads(result.interval or {})
    return Grid(("left", "right", "text"), (heads, *rows, memory_row(result)), heads=1)


def memory_row(result: Result) -> Row:
    """Return the memory per processor, with the usable memory and the risk of running out of it."""
    used, there = result.value("proc_mem_tier1_cap_req"), (result.capacities or (0.0, 0.0))[0]
    usable = f"of {result.digits.gib(there)} usable; {risk_words(result.fits)}"
    return "memory", bold(result.digits.gib(used)), usable


def _speeds(result: Result) -> Iterator[Row]:
    """Yield time and rates without intervals."""
    digits = result.digits
    yield "time per iteration", bold(digits.duration(result.value("total_time")))
    yield "samples/s", bold(digits.rate(result.value("sample_rate")))
    if (tokens := result.tokens_per_second) is not None:
        yield "tokens/s", bold(digits.rate(tokens))
        if result.execution is not None:
            yield _LONGEST, bold(digits.rate(tokens / result.execution["num_procs"]))


def interval_heads(interval: Mapping[str, Any]) -> Row:
    """Return the row of column titles for figures with intervals."""
    return "", dim("predicted"), dim(f"{level_text(interval)} interval")


def interval_row(
    label: str,
    value: float,
    ends: tuple[float | None, float | None],
    write: Callable[..., str],
) -> Row:
    """Return a figure with its interval, if any; the ends have the digits of the figure."""
    low, high = ends
    known = low is not None and high is not None
    said = between(write(low, like=value), write(high, like=value)) if known else ""
    return label, bold(write(value)), said


def speed_rows(result: Result) -> list[Row]:
    """Return MFU, time and rates, each with an interval derived from the interval of the time."""
    total, digits = result.value("total_time"), result.digits
    slow, fast = ((result.interval or {})[end] / total for end in ("high", "low"))

    def rate_row(label: str, value: float, write: Callable[..., str]) -> Row:
        return interval_row(label, value, (value / slow, value / fast), write)

    rows = []
    if mfu := result.mfu:
        rows.append(rate_row(f"MFU, {result.masking}", mfu, digits.efficiency))
    ends = (fast * total, slow * total)
    rows.append(interval_row("time per iteration", total, ends, digits.duration))
    if (tokens := result.tokens_per_second) is not None:
        if result.execution is not None:
            rows.append(rate_row(_LONGEST, tokens / result.execution["num_procs"], digits.rate))
        rows.append(rate_row("tokens/s", tokens, digits.rate))
    rows.append(rate_row("samples/s", result.value("sample_rate"), digits.rate))
    return rows


def precision_lines(result: Result) -> Iterator[Line]:
    """Yield a remark if a wider precision is faster."""
    if (wider := result.wider_step) is not None:
        time, total = wider["total_time"], result.value("total_time")
        less = f"{result.digits.duration(time)}, {100 * (1 - time / total):.0f} % less"
        yield bold("Precision: "), f"with products in {wider['dtype']} it takes {less}."


def launch_lines(result: Result) -> Iterator[Line]:
    """Yield a remark if kernel launches of the host limit the step, with the time of a step in graphs."""
    total, graphs = result.value("total_time"), result.graph_step
    waits = result.value("host_wait_time") if "host_wait_time" in result.stats else 0.0
    if graphs is None and waits < MIN_GAIN * total:
        return
    words = ["kernel launches limit the step"]
    if waits > 0:
        wait = f"{result.digits.duration(waits)}, {100 * waits / total:.0f} %"
        words.append(f"{wait} of the parts above is waiting for the host")
    if graphs is not None:
        time, option = graphs["total_time"], f"launch_mode={graphs['launch_mode']}"
        option += "" if graphs["supported"] else f", not in {result.preset}"
        less = f"{result.digits.duration(time)}, {100 * (1 - time / total):.0f} % less"
        words.append(f"in CUDA graphs ({option}) it takes {less}")
    yield bold("Host: "), "; ".join(words) + "."
