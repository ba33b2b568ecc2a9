"""Confidence of a prediction: the evidence of its prediction interval, the nearest measured runs, and warnings."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from calculon.base.units import chance, duration, scaled
from calculon.declarations.axes import PUBLISHED_DEGREES
from calculon.declarations.statistics import LEVEL
from calculon.estimate.comparison_confidence import MAX_TIED
from calculon.estimate.exceeded_runs import CLASS, MODEL, visible
from calculon.render.document import Block, Section, bold
from calculon.render.text_tables import Column, Table

Order = Mapping[str, Any]
"""Confidence that one plan is faster than another, as plain data: ``calculon.estimate.comparison_confidence.Order``."""

ABOVE = "Above every measured run"
ABOVE_MODEL = f"{ABOVE} of this model"
OUTSIDE = "Outside of what was measured"
FITTED = "Fitted to models of another size"
TIGHT = "Memory may not suffice"
LIKELY_OUT = "Likely out of memory"

_ERROR = 0.04
"""Relative rounding error of displayed times and sizes of runs: repeated measurements differ by 2 to 4 %."""


def remarks(belief: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield labeled reasons why a prediction is less certain than its interval says."""
    if belief["above"]:
        yield above_label(belief["above"]), above_text(belief["above"])
    if belief["outside"]:
        yield OUTSIDE, "; ".join(belief["outside"])
    if belief["fitted"]:
        yield FITTED, "; ".join(belief["fitted"])
    if belief["memory"] and belief["memory"]["remark"]:
        yield memory_label(belief["memory"]["fits"]), belief["memory"]["remark"]


def memory_label(fits: float | None) -> str:
    """Return the label of a memory warning, with the risk of running out if that is more likely than not.

    >>> memory_label(0.06), memory_label(0.6)
    ('Likely out of memory (94 %)', 'Memory may not suffice')
    """
    return TIGHT if fits is None or fits >= 0.5 else f"{LIKELY_OUT} ({chance(1 - fits)})"


def confidence_section(belief: Mapping[str, Any], *, memory: bool = False) -> Section:
    """Return the evidence of an interval, warnings, and the nearest measured runs.

    With `memory`, also compare predicted with measured memory.
    """
    blocks: list[Block] = [(bold(f"{label}: "), text) for label, text in remarks(belief)]
    if memory and belief["memory"] and not belief["memory"]["remark"]:
        blocks.append((bold("Memory: "), memory_text(belief["memory"])))
    if belief["nearest"]:
        blocks.append(nearest_table(belief["nearest"]))
    return Section("Prediction interval", tuple(blocks), belief["basis"])


def memory_text(memory: Mapping[str, Any]) -> str:
    """Return the probability that an execution fits, and the evidence for it."""
    level, error = 100 * memory["level"], 100 * memory["error"]
    return (
        f"risk of running out {chance(1 - memory['fits'])}, by {memory['runs']:,} measured runs of "
        f"{memory['sources']} sources; {error:.0f} % more than predicted is enough in {level:.0f} % of cases"
    )


def short_basis(basis: str) -> str:
    """Shorten the evidence of an interval: keep the last count in parentheses, drop the sizes of residuals.

    >>> short_basis("9 measured steps of 3 sources (2 on x, 1 of MoE models); residuals of kernels of y: products 9 %")
    '9 measured steps of 3 sources, 1 of MoE models; residuals of kernels of y'
    """
    return re.split(r": |, assumed", re.sub(r" \(([^)]*, )?([^),]*)\)", r", \2", basis))[0]


def above_label(above: Sequence[Mapping[str, Any]]) -> str:
    """Return the label of a warning that a prediction exceeds measured runs: of its class, or only of its model."""
    return ABOVE if any(run["of"] == CLASS for run in above) else ABOVE_MODEL


def above_text(above: Sequence[Mapping[str, Any]], *, short: bool = False) -> str:
    """Say by how much a prediction exceeds the fastest measured run of its model, and of its class.

    The short form leaves out the type of arithmetic, the study, the predicted utilization, and the utilization on
    another processor.

    >>> run = {"processor": "H100", "type": "float8", "study": "a", "label": "b", "relative": False, "of": "class"}
    >>> run |= {"experts": 128, "mfu": 0.55, "measured_mfu": 0.41, "comparable_mfu": 0.41, "excess": 0.341}
    >>> above_text([run])
    'MFU 55 % causal, 34 % above the best published run with experts on H100 in float8: 41 % (a, b)'
    >>> above_text([run], short=True)
    '34 % above the best MoE run on H100: MFU 41 %'
    """
    # The fastest run of a class may be of the same model: name it once.
    runs = {(run["study"], run["label"]): run for run in above}.values()
    adjective = "" if short else "published "
    words = []
    for run in runs:
        kind = f"{adjective}run"
        if run["of"] == CLASS and run["experts"]:
            kind = "MoE run" if short else f"{kind} with experts"
        elif run["of"] == MODEL and len(runs) > 1:
            kind = f"{kind} of this model"
        place = f"{'the related ' if run['relative'] else ''}{run['processor']}"
        text = f"{100 * run['excess']:.0f} % above the best {kind} on {place}"
        if not short:
            text += f" in {run['type']}: {_comparable(run)} ({run['study']}, {run['label']})"
        elif not run["relative"]:
            text += f": MFU {_comparable(run)}"
        words.append(text)
    return ("" if short else f"MFU {visible(above[0]['mfu']):g} % causal, ") + "; ".join(words)


def _comparable(run: Mapping[str, Any]) -> str:
    """Return the utilization of an exceeded run, at the peak rate of the prediction."""
    other = run["comparable_mfu"] != run["measured_mfu"]
    share = f"{visible(run['comparable_mfu']):g} %"
    return f"{share} of this plan's peak rate" if other else share


def risk_words(fits: float | None) -> str:
    """Write the risk of running out of memory (OOM: out of memory).

    >>> risk_words(0.934), risk_words(None)
    ('OOM risk 7 %', 'OOM risk not known')
    """
    return f"OOM risk {'not known' if fits is None else chance(1 - fits)}"


def with_risk(words: str, fits: float | None, risk: float) -> str:
    """Write a plan, followed by its risk of running out of memory if the risk is above the accepted one.

    >>> with_risk("TP 2, DP 8", 0.63, 0.1), with_risk("TP 2, DP 8", 0.95, 0.1)
    ('TP 2, DP 8 (OOM risk 37 %)', 'TP 2, DP 8')
    """
    return words if fits is None or 1 - fits <= risk else f"{words} ({risk_words(fits)})"


def none_within(risk: float, fits: float) -> str:
    """Say that no plan has an acceptable risk, and give the risk of the best.

    >>> none_within(0.1, 0.734)
    'No plan has a risk of running out of memory of at most 10 % (--risk); this one has 27 %.'
    """
    most = f"at most {100 * risk:.2g} % (--risk)"
    return (
        f"No plan has a risk of running out of memory of {most}; this one has {chance(1 - fits)}."
    )


def order_in_words(order: Order, first: str = "the best", other: str = "mine") -> str:
    """Say which of two plans is faster, with the probability.

    >>> order_in_words({"longer": 0.04, "probability": 0.83, "margin": 0.06, "told_apart": False}, "A", "B")
    'too close to call, A is faster in 83 % of cases'
    """
    # Name the probable winner: a probability below one half reads badly.
    ahead = order["probability"] >= 0.5
    names = (first, other) if ahead else (other, first)
    sure = max(order["probability"], 1 - order["probability"])
    words = "" if order["told_apart"] else "too close to call, "
    return f"{words}{names[0]} is faster in {chance(sure)} of cases"


SURE = (1 + LEVEL) / 2
"""Probability of one order of two plans above which they are distinguishable."""

WHY_TIED = (
    "Similar plans share their errors, so small differences between them are reliable; between dissimilar plans they "
    "are not. The order of two plans is reliable if one is faster in more than "
    f"{100 * SURE:.0f} % of cases, or by more than {100 * MAX_TIED:.0f} %"
)
"""Reason why a slower plan may be marked as not distinguishable while a faster one is not."""


def ties_in_words(alike: int, among: int, simplest: str) -> str:
    """Say how many executions tie with the fastest (itself included), and name the simplest.

    >>> ties_in_words(1, 10, "TP 8 (# 0)")
    'The fastest is clearly faster than all others, judging by measured runs of similar plans'
    >>> ties_in_words(3, 10, "TP 8").partition(", judging")[0]
    '3 of 10, including the fastest, are too close to call'
    """
    if alike == 1:
        return "The fastest is clearly faster than all others, judging by measured runs of similar plans"
    some = f"All {among} plans" if alike == among else f"{alike} of {among}, including the fastest,"
    return f"{some} are too close to call, judging by measured runs of similar plans; the simplest: {simplest}"


def nearest_table(runs: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of measured runs, nearest first."""
    columns = (
        Column("run", "nearest runs", cut=True),
        Column("processors", "processors", right=True),
        Column("parameters", "model", right=True),
        Column("split", "TP.PP.DP", right=True),
        Column("measured", "measured", right=True),
        Column("predicted", "predicted", right=True),
        Column("error", "error", right=True),
    )
    return Table(columns, [_cells(run) for run in runs])


def _cells(run: Mapping[str, Any]) -> dict[str, str]:
    table, sign, row = run["label"].rpartition("#")  # the number of a row in a table identifies it
    parameters = run["parameters"]
    return {
        "run": f"{run['study']} {sign}{row if table else run['label']}",
        "processors": f"{run['num_procs']:,} {run['processor']}",
        "parameters": scaled(parameters, error=_ERROR * parameters),
        "split": ".".join(str(run[name]) for name in PUBLISHED_DEGREES),
        **{name: duration(run[name], _ERROR * run[name]) for name in ("measured", "predicted")},
        "error": f"{run['error']:+.0f} %",
    }
