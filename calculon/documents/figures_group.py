"""Commonly quoted figures of the corrected edition: MFU, HFU, model size, embedding and LM head."""

from collections.abc import Sequence

from calculon.base.units import scaled
from calculon.documents.result import Result, Stats
from calculon.documents.setup import NARROW, Row
from calculon.render.digits import Digits
from calculon.render.document import ByWidth, Grid, Section, SideBySide, bold, dim

SIDE_BY_SIDE = 144
"""Minimum width for two columns of figures."""

NO_VOCABULARY = "Embedding, LM head and loss are not included: the model states no vocabulary."

DROPPED = (
    "MFU counts all rows routed to experts, including dropped ones; HFU counts computed rows only."
)

Figure = tuple[str, str, str]
"""Name, formatted value, and convention of a figure."""


def has_vocabulary(stats: Stats) -> bool:
    """Return True if embedding and LM head are included."""
    return bool(stats["embedding_time"] or stats["head_time"])


def figures(stats: Stats, digits: Digits, *, masked: bool, apart: bool = False) -> list[Figure]:
    """Return the figures of an execution; times of embedding, LM head and multi-token prediction only if included.

    If the attention kernel skips `masked` keys, the model's arithmetic excludes them, too. Executed arithmetic is
    then at least as large, and HFU is not below MFU. Multi-token prediction modules may be `apart` from the loss.
    """

    def value(name: str) -> float:
        return stats[name] or 0.0

    def share(name: str) -> str:
        return digits.efficiency(value(name))

    def end(label: str, name: str, stage: str) -> Figure:
        of_time = digits.share(value(name) / value("total_time"))
        return label, digits.duration(value(name)), f"{of_time} of the time, {stage} stage"

    ends = has_vocabulary(stats)
    full = ("MFU, full attention", share("mfu"), "masked keys count too (PaLM)")
    causal = ("MFU, causal", share("mfu_causal"), "masked keys do not count")
    # The convention of the kernel comes first, because it is comparable with HFU.
    first, last = (causal, full) if masked else (full, causal)
    counted = value("mfu_causal") / (value("mfu") or 1.0) if masked else 1.0
    convention = "causal" if masked else "full attention"
    result: list[Figure] = [
        first,
        ("HFU, as executed", share("hfu"), f"with recomputation ({convention})"),
        last,
        (
            "per processor",
            digits.quantity(value("model_flops_per_second_per_proc") * counted, "FLOP/s"),
            f"model arithmetic, {convention}",
        ),
        (
            "model arithmetic",
            scaled(value("model_flops_per_token") * counted, "FLOP", digits=2),
            f"per token, {convention}",
        ),
        ("parameters", scaled(value("parameters")), "with embedding and head" if ends else ""),
        *_padded(value("parameters"), stats.get("padded_parameters") or 0.0),
        (
            "activations",
            scaled(value("block_act_bytes_per_token"), "B", binary=True, digits=2),
            "kept per token and block",
        ),
    ]
    if ends:
        result.append(end("embedding", "embedding_time", "first"))
        result.append(end("head and loss", "head_time", "last"))
        if value("mtp_time"):
            of_modules = "their own and the last" if apart else "last"
            result.append(end("further tokens", "mtp_time", of_modules))
    return result


def _padded(parameters: float, padded: float) -> list[Figure]:
    """Return the padded number of parameters in full, for comparison with the number that a framework prints."""
    if padded <= parameters:
        return []
    return [
        (
            "parameters, padded",
            f"{padded:,.0f}",
            f"{padded - parameters:,.0f} padding the vocabulary",
        )
    ]


def figures_section(result: Result) -> Section:
    """Return the figures: in two columns on wide pages, without remarks on narrow ones."""
    stats, digits, masked = result.stats, result.digits, result.skips_masked_keys
    apart = any(stage.get("modules") for stage in result.stages or ())
    found = [
        (name, bold(text), dim(remark))
        for name, text, remark in figures(stats, digits, masked=masked, apart=apart)
    ]
    # Rounded up: the left column is never shorter than the right one.
    half = -(-len(found) // 2)
    columns = SideBySide(((_grid(found[:half]),), (_grid(found[half:]),)), SIDE_BY_SIDE)
    without = _grid([row[:2] for row in found])
    narrow = ByWidth(NARROW, (_grid(found),), (without,))
    share = digits.efficiency(result.mfu)
    remark = f"MFU {share}, causal" if masked else f"MFU {share} with full attention"
    notes = [NO_VOCABULARY] if not has_vocabulary(stats) else []
    if result.value("dropped_fraction"):
        notes.append(DROPPED)
    blocks = (ByWidth(SIDE_BY_SIDE, (columns,), (narrow,)), *map(dim, notes))
    return Section("Figures", blocks, remark)


def _grid(rows: Sequence[Row]) -> Grid:
    return Grid(("left", "right", "text"), tuple(rows), least=(len("tokens/s per processor"),))
